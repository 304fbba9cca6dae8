"""Small models, one or more an operator family of the lowering, at two sizes each.

A case is the text of `forward` over its inputs, which are texts too; sizes are the names of SIZES. `kept` names the
operators that are meant to stay PyTorch calls; `slack` is a factor on the error allowed (cancellation).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

SIZES: tuple[dict[str, int], ...] = (
    {"A": 3, "B": 37, "C": 5, "D": 4, "N": 11, "M": 33, "K": 70},
    {"A": 2, "B": 65, "C": 7, "D": 6, "N": 9, "M": 17, "K": 41},
)


@dataclass(frozen=True)
class Case:
    """`forward` is an expression or statements ending in a return; `init` are statements of the constructor."""

    forward: str
    inputs: dict[str, str]
    init: str = ""
    kept: tuple[str, ...] = ()
    slack: float = 1.0


def source(cases: Sequence[Case]) -> str:
    """A model file that runs all the cases side by side (capturing one model is the costly part) and returns a list."""
    lines = ["import torch", "import torch.nn as nn", "import torch.nn.functional as F"]
    lines += [f"{name} = {value}" for name, value in SIZES[0].items()]
    for number, case in enumerate(cases):
        body = case.forward if "return " in case.forward else f"return {case.forward}"
        lines += [f"class Case{number}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        {line}" for line in case.init.splitlines()]
        lines += [f"    def forward(self, {', '.join(case.inputs)}):", *(f"        {line}" for line in body.splitlines())]
    names = [{name: f"{name}{number}" for name in case.inputs} for number, case in enumerate(cases)]
    every = [new for some in names for new in some.values()]
    values = [value for case in cases for value in case.inputs.values()]
    lines += ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        self.case{number} = Case{number}()" for number in range(len(cases))]
    lines += [f"    def forward(self, {', '.join(every)}):"]
    lines += [f"        y{number} = self.case{number}({', '.join(some.values())})" for number, some in enumerate(names)]
    lines += [f"        return [{', '.join(f'y{number}' for number in range(len(cases)))}]"]
    lines += ["def get_inputs():", f"    return [{', '.join(values)}]", "def get_init_inputs():", "    return []"]
    return "\n".join(lines) + "\n"


def randn(*shape: str, dtype: str = "float32") -> str:
    """Text of a normal tensor; the shape's parts are texts as well."""
    made = f"torch.randn({', '.join(shape)})" if shape else "torch.randn(())"
    return made if dtype == "float32" else f"{made}.to(torch.{dtype})"


def one(forward: str, *shape: str, dtype: str = "float32", init: str = "", kept: tuple[str, ...] = ()) -> Case:
    """A model of one normal input `x`."""
    return Case(forward, {"x": randn(*(shape or ("A", "B")), dtype=dtype)}, init, kept)


def two(forward: str, left: str, right: str, init: str = "", kept: tuple[str, ...] = (), slack: float = 1.0) -> Case:
    """A model of two normal inputs `x` and `y`, shapes as comma-separated text."""
    return Case(forward, {"x": randn(*left.split(",")), "y": randn(*right.split(","))}, init, kept, slack)


UNARY = (
    "F.relu(x)", "F.relu6(x * 4)", "F.leaky_relu(x, 0.2)", "torch.sigmoid(x)", "torch.tanh(x)", "F.silu(x)", "F.elu(x)",
    "F.elu(x, 0.7)", "F.selu(x)", "F.celu(x, 0.4)", "F.softplus(x)", "F.softplus(x * 9, 2.0, 4.0)",
    "F.hardtanh(x, -0.5, 0.3)", "F.hardsigmoid(x * 3)", "F.hardswish(x * 3)", "F.mish(x * 4)", "F.logsigmoid(x)",
    "F.threshold(x, 0.1, 2.0)", "x.abs()", "-x", "x.exp()", "x.expm1()", "x.abs().log()", "x.abs().log1p()",
    "x.abs().log2()", "x.abs().sqrt()", "x.abs().rsqrt()", "x.reciprocal()", "x.square()", "x.sin()", "x.cos()", "x.erf()",
    "x.floor()", "x.ceil()", "x.sign()", "F.softsign(x)", "F.gelu(x)", "F.gelu(x, approximate='tanh')", "x ** 2", "x ** 3",
    "x.abs() ** 0.5", "x.abs() ** 1.7", "x ** -1", "x ** 5", "x.clamp(-0.3, 0.6)", "x.clamp(min=0.1)", "x.clamp(max=0.1)",
    "1.5 - x", "x / 3.0", "x + 2", "torch.rsub(x, 2.0, alpha=3)", "x.tril()", "x.triu(1)", "x > 0.2", "(x > 0) & (x < 1)",
    "~(x > 0)", "torch.logical_not(x)", "x.masked_fill(x > 0, -1.0)", "torch.where(x > 0, x, x * 0.1)", "x.clone()", "x",
    "F.dropout(x, 0.5, False)", "x.detach() * 2", "x.double() * 2", "x.half() * 2", "x.to(torch.bfloat16)",
    "(x > 0).float()", "(x * 5).to(torch.int64)", "(x > 0).to(torch.int32)", "x.bool()",
)  # fmt: skip

BROADCAST = {
    "row": two("x + y", "A,B", "B"),
    "column": two("x * y", "A,B", "A,1"),
    "scalar tensor": Case("x / y", {"x": randn("A", "B"), "y": "torch.tensor(1.5)"}),
    "single element": two("x - y", "A,B", "1,1"),
    "middle": two("x + y", "A,C,D", "C,1"),
    "first of four": two("x * y", "A,C,D,N", "A,1,1,1"),
    "second of four": two("x * y", "A,C,D,N", "C,1,1"),
    "last two of four": two("x + y", "A,C,D,N", "D,N"),
    "first and last": two("x + y", "A,C,D", "A,1,D"),
    "both ways": two("x * y", "A,1,D", "C,1"),
    "outer": two("x - y", "A,1", "1,B"),
    "alpha": two("torch.add(x, y, alpha=0.3) - torch.sub(y, x, alpha=2)", "A,B", "A,B"),
    "maximum": two("torch.maximum(x, y) + torch.minimum(x, y)", "A,B", "B"),
    "max of two": two("torch.max(x, y) * torch.min(y, x)", "A,B", "B"),
    "addcmul": two("torch.addcmul(x, y, y, value=0.2) + torch.addcdiv(x, x, y.abs() + 1, value=0.5)", "A,B", "A,B"),
    "lerp": two("torch.lerp(x, y, 0.3)", "A,B", "A,B"),
    "comparison": two("(x < y) | (x >= 1)", "A,B", "B"),
    "mask input": Case("x.masked_fill(m, 0.0)", {"x": randn("A", "B"), "m": "torch.rand(A, B) > 0.5"}),
    "where of masks": Case("torch.where(m, x, -x)", {"x": randn("A", "B"), "m": "torch.rand(B) > 0.5"}),
    "integers": Case("x * 2 + y", {"x": "torch.randint(0, 9, (A, B))", "y": "torch.randint(0, 9, (B,))"}),
    "mixed types": Case("x * y", {"x": randn("A", "B"), "y": "torch.randint(0, 9, (B,))"}),
    "half and single": Case("x + y", {"x": randn("A", "B", dtype="float16"), "y": randn("A", "B")}),
    "transposed operand": two("x + y.t()", "A,B", "B,A"),
    "expanded operand": two("x * y.expand(A, B)", "A,B", "1,B"),
    "expanded both ways": two("x.expand(A, B) * y.expand(A, B)", "A,1", "1,B"),
    "expanded from one element": two("x / y.sum((1, 2), keepdim=True).expand_as(x)", "A,C,D", "A,C,D"),
    "large ids": one("x * 2 + 1", "4099"),
    "a number that varies": one("x * (1.0 / N) + B"),
    "parameter": one(
        "x * self.scale + self.shift",
        init="self.scale = nn.Parameter(torch.randn(B))\nself.register_buffer('shift', torch.randn(A, 1))",
    ),
}

DIMENSIONS = {
    "A,B": ("0", "1", "(0, 1)"),
    "A,C,D": ("0", "1", "2", "(0, 2)", "(1, 2)", "(0, 1)"),
    "A,C,D,N": ("(0, 2, 3)", "(2, 3)", "1", "(1, 2)"),
}
SUMS = {
    f"{text} of {shape} over {dim}": one(text.format(dim), *shape.split(","))
    for shape, dims in DIMENSIONS.items()
    for dim in dims
    for text in ("x.sum({})", "x.mean({}, keepdim=True)")
}
EXTREMA = {
    f"{text} of {shape} over {dim}": one(text.format(dim), *shape.split(","))
    for shape, dims in {"A,B": "01", "A,C,D": "012"}.items()
    for dim in dims
    for text in (
        "x.amax({})",
        "x.amin({}, keepdim=True)",
        "tuple(x.max({}))",
        "tuple(x.min({}, keepdim=True))",
        "x.argmax({})",
        "x.argmin({}, keepdim=True)",
        "(x * 0.5).prod({})",
    )
}
MOMENTS = {
    f"{text} of {shape} over {dim}": one(text.format(dim), *shape.split(","))
    for shape, dims in {"A,B": ("0", "1"), "A,C,D": ("(0, 2)", "2", "(1, 2)", "(0, 1)", "1")}.items()
    for dim in dims
    for text in ("x.var({})", "x.std({}, correction=0)")
}
REDUCTIONS = {
    "all": one("x.sum()", "A", "C", "D"),
    "mean of all": one("x.mean()"),
    "max of all": one("x.max()"),
    "min of all": one("x.min()"),
    "argmax of all": one("x.argmax()"),
    "prod of all": one("(x.abs() + 0.5).prod()", "C", "D"),
    "var of all": one("x.var()"),
    "std of all, unbiased by position": one("x.std(1, False)"),
    "sum of bools": one("(x > 0).sum(1)"),
    "sum of integers": Case("x.sum(0)", {"x": "torch.randint(0, 100, (A, B))"}),
    "mean in half": one("x.mean(1)", dtype="float16"),
    "sum in bfloat16": one("x.sum(0)", dtype="bfloat16"),
    "sum to double": one("x.sum(1, dtype=torch.float64)"),
    "double": one("x.sum(1)", dtype="float64"),
    "ends of three": one("x.sum((0, 2))", "A", "C", "D"),
    "two apart": one("x.sum((0, 2))", "A", "C", "D", "N", kept=("aten.sum.dim_IntList",)),
    "ties": Case("(x.argmax(1), x.argmin(0), *x.max(1))", {"x": "torch.randint(0, 3, (A, B)).float()"}),
    "missing": one(
        "v = x.masked_fill(x > 1, float('nan'))\nreturn v.amax(1), v.amin(0), v.sum(1), *v.max(1), v.argmax(1), v.argmin(0)"
    ),
    "infinite": one("v = x.masked_fill(x < 0.5, float('-inf'))\nreturn v.amax(0), v.argmax(1), v.amin(1), v.softmax(1)"),
    "norm 2": one("x.norm(dim=1, keepdim=True)"),
    "norm 1": one("torch.norm(x, p=1, dim=0)"),
    "norm inf": one("torch.linalg.vector_norm(x, float('inf'), dim=1)"),
    "frobenius": one("torch.norm(x, p='fro')"),
    "normalize": one("F.normalize(x, dim=1)", "A", "C", "D"),
    "one column": one("x.sum(1)", "B", "1"),
    "one row": one("x.max(0)[0]", "1", "B"),
    "large offset": one("(x + 1000).var(1), (x + 1000).var(0)"),
    "long rows": one("x.sum(1), x.argmax(1), x.amin(1), x.var(1), x.softmax(1), x.log_softmax(1)", "2", "600"),
    "long columns": one("x.sum(0), x.argmax(0), x.amin(0), x.var(0), x.softmax(0), x.log_softmax(0)", "70", "67"),
    "index without a dimension": one("x.argmin(), x.flatten().argmax(0, keepdim=True)"),
}
SCANS = {
    f"{text} of {shape} over {dim}": one(text.format(dim), *shape.split(","))
    for shape, dims in {"A,B": "01", "A,C,D": "12"}.items()
    for dim in dims
    for text in ("x.cumsum({0})", "(1 + x / 8).cumprod({0})", "x.flip({0}).cumsum({0}).flip({0})")
} | {
    "long rows": one("x.cumsum(1), x.flip(1).cumsum(1).flip(1), (1 + x / 99).cumprod(1)", "2", "B + 600"),
    "long columns": one("x.cumsum(0), x.flip(0).cumsum(0).flip(0)", "70", "67"),
    "exclusive": one("torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)", "A", "B + 300"),
    "exclusive, columns": one("torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)", "A", "B", "D"),
    "exclusive by narrow": one(
        "z, s = torch.zeros_like(x.select(1, 0).unsqueeze(1)), x.narrow(1, 0, x.size(1) - 1).cumsum(1)\n"
        "return torch.cat((z, s), 1)"
    ),
    "zeros before another scan": one(
        "torch.cat((torch.zeros_like(x[:, :1]), x[:, 1:].cumsum(1)), 1)", kept=("aten.zeros_like.default",)
    ),
    "masked": Case("(x * m).cumsum(1)", {"x": randn("A", "B"), "m": "torch.rand(A, B) > 0.5"}),
    "of a turned value": one("x.t().cumsum(1), x.flip(0).cumsum(1).flip(0)"),
    "of a vector": one("x.cumsum(0), x.cumprod(0), x.cumsum(-1, dtype=torch.float64)", "B"),
    "of bools": one("(x > 0).cumsum(1), torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1).exp()"),
    "of integers": Case("x.cumsum(0)", {"x": "torch.randint(0, 100, (A, B))"}),
    "product of integers": Case("x.cumprod(0)", {"x": "torch.randint(1, 3, (A, B))"}, kept=("aten.cumprod.default",)),
    "in half": one("x.cumsum(1)", dtype="float16"),
    "in bfloat16": one("(1 + x / 8).cumprod(0)", dtype="bfloat16"),
    "in double": one("x.cumsum(1), (1 + x / 8).cumprod(1)", dtype="float64"),
    "missing and infinite": one(
        "v = x.masked_fill(x > 2, float('nan')).masked_fill(x < -2, float('inf'))\n"
        "return v.cumsum(1), v.cumsum(0), v.cumprod(1)"
    ),
    "two alike": two("x.cumsum(1) + y.cumsum(1)", "A,B", "A,B"),
}
SOFTMAX = {
    f"{text} of {shape} over {dim}": one(text.format(dim), *shape.split(","))
    for shape, dims in {"A,B": ("0", "1", "-1"), "A,C,D": ("1", "2"), "B": ("0",)}.items()
    for dim in dims
    for text in ("x.softmax({})", "F.log_softmax(x, {})", "x.logsumexp({})")
} | {
    "softmax in half": one("x.softmax(-1)", dtype="float16"),
    "softmax of large numbers": one("(x * 60).softmax(-1), (x * 60).log_softmax(0)"),
    "logsumexp keeps": one("x.logsumexp((1, 2), keepdim=True)", "A", "C", "D"),
    "softmax to single": one("x.softmax(1, dtype=torch.float32)", dtype="bfloat16"),
    "softmin": one("F.softmin(x, 1)"),
}
COUNTER = ("aten.add.Tensor",)  # of the batches seen
NORMS = {
    "layer": one("self.n(x)", init="self.n = nn.LayerNorm(B)\nnn.init.normal_(self.n.weight)"),
    "layer of two": one("self.n(x)", "A", "C", "D", init="self.n = nn.LayerNorm((C, D))"),
    "layer, plain": one("F.layer_norm(x, (B,))"),
    "layer without bias": one("self.n(x)", init="self.n = nn.LayerNorm(B, bias=False)"),
    "layer of many rows": one("F.layer_norm(x, (D,))", "520", "D"),
    "layer of a turned value": one("F.layer_norm(x.transpose(1, 2), (C,))", "A", "C", "D"),
    "layer in half": one("self.n(x)", dtype="float16", init="self.n = nn.LayerNorm(B).half()"),
    "group": one("self.n(x)", "A", "6", "D", "N", init="self.n = nn.GroupNorm(3, 6)\nnn.init.normal_(self.n.bias)"),
    "group, plain": one("F.group_norm(x, 2)", "A", "6", "D"),
    "group of two dimensions": one("self.n(x)", "A", "6", init="self.n = nn.GroupNorm(2, 6)"),
    "instance": one("self.n(x)", "A", "C", "D", "N", init="self.n = nn.InstanceNorm2d(C)"),
    "instance, affine": one("self.n(x)", "A", "C", "D", init="self.n = nn.InstanceNorm1d(C, affine=True)"),
    "batch of two dimensions": one(
        "self.n(x)", init="self.n = nn.BatchNorm1d(B)\nnn.init.normal_(self.n.weight)", kept=COUNTER
    ),
    "batch of three": one("self.n(x)", "A", "C", "D", init="self.n = nn.BatchNorm1d(C)", kept=COUNTER),
    "batch of four": one(
        "self.n(x)", "A", "C", "D", "N", init="self.n = nn.BatchNorm2d(C)\nnn.init.normal_(self.n.bias)", kept=COUNTER
    ),
    "batch, plain": one("self.n(x)", "A", "C", "D", init="self.n = nn.BatchNorm1d(C, affine=False)", kept=COUNTER),
    "batch without statistics": one(
        "self.n(x)", "A", "C", "D", init="self.n = nn.BatchNorm1d(C, track_running_stats=False)"
    ),
    "batch, evaluating": one("self.n(x)", "A", "C", init="self.n = nn.BatchNorm1d(C).eval()"),
    "batch twice": one(
        "self.m(F.relu(self.n(x)))",
        "A",
        "C",
        "D",
        init="self.n = nn.BatchNorm1d(C)\nself.m = nn.BatchNorm1d(C)",
        kept=COUNTER * 2,
    ),
    "rms": one("self.n(x)", init="self.n = nn.RMSNorm(B)\nnn.init.normal_(self.n.weight)"),
    "rms, given epsilon": one("F.rms_norm(x, (D,), eps=1e-3)", "A", "C", "D"),
    "rms in half": one("self.n(x)", dtype="bfloat16", init="self.n = nn.RMSNorm(B).bfloat16()"),
    "rms by hand": one("x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)", "A", "C", "D"),
}
PRODUCTS = {
    "mm": two("x @ y", "M,K", "K,N"),
    "mm left turned": two("x.t() @ y", "K,M", "K,N"),
    "mm right turned": two("x @ y.t()", "M,K", "N,K"),
    "mm both turned": two("x.t() @ y.t()", "K,M", "N,K"),
    "mm by itself": one("x @ x.t()", "M", "K"),
    "mm squared": one("x @ x", "N", "N"),
    "vector": two("x @ y", "M,K", "K"),
    "column": two("x @ y", "M,K", "K,1"),
    "row": two("x @ y", "1,K", "K,N"),
    "vector on the left": two("x @ y", "K", "K,N", kept=("aten.matmul.default",)),
    "bmm": two("torch.bmm(x, y)", "A,M,C", "A,C,N"),
    "bmm turned": two("torch.bmm(x.transpose(1, 2), y.transpose(1, 2))", "A,C,M", "A,N,C"),
    "matmul three by two": two("x @ y", "A,C,K", "K,N"),
    "matmul four by two": two("x @ y", "A,C,D,K", "K,N"),
    "matmul four by four": two("x @ y", "A,C,N,D", "A,C,D,M"),
    "matmul heads turned": two("x @ y.transpose(-2, -1)", "A,C,N,D", "A,C,M,D"),
    "matmul broadcast": two("x @ y", "A,C,K", "1,K,N", kept=("aten.matmul.default",)),
    "linear": one("self.f(x)", "A", "K", init="self.f = nn.Linear(K, N)"),
    "linear of three": one("self.f(x)", "A", "C", "K", init="self.f = nn.Linear(K, N)"),
    "linear without bias": one("self.f(x)", "A", "K", init="self.f = nn.Linear(K, N, bias=False)"),
    "linear in half": one("self.f(x)", "A", "K", dtype="float16", init="self.f = nn.Linear(K, N).half()"),
    "linear in bfloat16": one("self.f(x)", "A", "K", dtype="bfloat16", init="self.f = nn.Linear(K, N).bfloat16()"),
    "linear of a turned input": one("self.f(x.t())", "K", "A", init="self.f = nn.Linear(K, N)"),
    "addmm": Case(
        "torch.addmm(z, x, y, beta=0.5, alpha=2.0)", {"x": randn("M", "K"), "y": randn("K", "N"), "z": randn("N")}
    ),
    "baddbmm": Case(
        "torch.baddbmm(z, x, y)", {"x": randn("A", "M", "C"), "y": randn("A", "C", "N"), "z": randn("A", "M", "N")}
    ),
    "einsum": two("torch.einsum('ijl,lk->ijk', x, y)", "A,C,K", "K,N"),
    "einsum of batches": two("torch.einsum('bhid,bhjd->bhij', x, y)", "A,C,N,D", "A,C,M,D"),
    "einsum with two sums": two("torch.einsum('abk,bkn->an', x, y)", "A,C,D", "C,D,N"),
    "einsum of three": Case(
        "torch.einsum('bhl,bln,bhn->bhn', x, y, z)",
        {"x": randn("A", "C", "K"), "y": randn("A", "K", "N"), "z": randn("A", "C", "N")},
    ),
    "einsum of chunks": Case(
        "torch.einsum('bclhn,bcshn,bhcls,bcshp->bclhp', x, y, z, w)",
        {
            "x": randn("2", "3", "M", "C", "D"),
            "y": randn("2", "3", "M", "C", "D"),
            "z": randn("2", "C", "3", "M", "M"),
            "w": randn("2", "3", "M", "C", "N"),
        },
    ),
    "einsum of a decay": Case(
        "torch.einsum('bclhn,bhcl,bclhp->bchpn', x, y, z)",
        {"x": randn("2", "3", "M", "C", "D"), "y": randn("2", "C", "3", "M"), "z": randn("2", "3", "M", "C", "N")},
    ),
    "einsum of an outer product": two("torch.einsum('bi,bj->bji', x, y)", "A,M", "A,N"),
    "einsum of one operand alone": two("torch.einsum('bik,bj->bij', x, y)", "A,M,K", "A,N", kept=("aten.einsum.default",)),
    "einsum turned": two("torch.einsum('ik,kj->ji', x, y)", "M,K", "K,N"),
    "heads that do not join": one(
        "y = x.view(A, M, C, D).transpose(1, 2)\nreturn y @ y.transpose(-2, -1), y.transpose(-2, -1) @ (y * 2)",
        "A",
        "M",
        "C * D",
    ),
    "heads of one side that do not join": two("x.view(A, M, C, D).transpose(1, 2) @ y", "A,M,C*D", "A,C,D,N"),
    "more batches that do not join": two("x.transpose(0, 1) @ y.transpose(0, 1)", "A,2,C,N,D", "A,2,C,D,M"),
    "double": Case(
        "x @ y",
        {"x": randn("M", "K", dtype="float64"), "y": randn("K", "N", dtype="float64")},
        kept=("aten.matmul.default",),
    ),
    "diagonal": two("torch.diag(x) @ y", "M", "M,N", kept=("aten.diag.default",)),
    "masked by tril": two("torch.tril(torch.matmul(x, y))", "M,M", "M,M"),
    "attention by hand": two("(x @ y.transpose(-2, -1) / C ** 0.5).softmax(-1) @ y", "A,N,D", "A,M,D"),
}
QKV = {"q": randn("A", "C", "N", "D"), "k": randn("A", "C", "M", "D"), "v": randn("A", "C", "M", "D")}
ALIKE = {name: randn("A", "C", "M", "D") for name in "qkv"}
TURNED = "q, k, v = (t.view(A, M, C, D).transpose(1, 2) for t in x.split(C * D, 2))\n"
SDPA = "F.scaled_dot_product_attention"
ATTENTION = {
    "plain": Case(f"{SDPA}(q, k, v)", QKV),
    "causal": Case(f"{SDPA}(q, k, v, is_causal=True)", ALIKE),
    "causal, more keys": Case(f"{SDPA}(q, k, v, is_causal=True)", QKV),
    "scaled": Case(f"{SDPA}(q, k, v, scale=0.3)", QKV),
    "a scale that varies": Case(f"{SDPA}(q, k, v, scale=1 / D)", QKV, kept=("aten.scaled_dot_product_attention.default",)),
    "masked": Case(f"{SDPA}(q, k, v, attn_mask=m > 0)", {**QKV, "m": randn("N", "M")}),
    "rows without a key": Case(f"{SDPA}(q, k, v, attn_mask=m)", {**QKV, "m": "torch.ones(N, M).tril(-2).bool()"}),
    "biased": Case(f"{SDPA}(q, k, v, attn_mask=m)", {**QKV, "m": randn("A", "1", "N", "M")}),
    "biased by heads": Case(f"{SDPA}(q, k, v, m * 2) + 1", {**QKV, "m": randn("C", "1", "M")}),
    "other values": Case(f"{SDPA}(q, k, v)", {**QKV, "v": randn("A", "C", "M", "K")}),
    "three dimensions": Case(
        f"{SDPA}(q, k, v)", {"q": randn("A", "N", "D"), "k": randn("A", "M", "D"), "v": randn("A", "M", "D")}
    ),
    "two dimensions": Case(f"{SDPA}(q, k, v) * 2", {"q": randn("N", "D"), "k": randn("M", "D"), "v": randn("M", "D")}),
    "of itself": one(f"{SDPA}(x, x, x)", "A", "C", "N", "D"),
    "heads turned": one(
        f"{TURNED}return {SDPA}(q, k, v, is_causal=True).transpose(1, 2).reshape(A, M, C * D)", "A", "M", "3 * C * D"
    ),
    "in half": Case(f"{SDPA}(q, k, v)", {name: f"{text}.half()" for name, text in QKV.items()}),
    "in bfloat16": Case(
        f"{SDPA}(q, k, v, m)", {name: f"{text}.bfloat16()" for name, text in {**QKV, "m": randn("N", "M")}.items()}
    ),
    "wide heads": Case(
        f"{SDPA}(q, k, v)",
        {"q": randn("A", "2", "N", "B + 260"), "k": randn("A", "2", "M", "B + 260"), "v": randn("A", "2", "M", "D")},
    ),
    "dropout": Case(
        f"{SDPA}(q, k, v, dropout_p=0.0 * N)",
        QKV,
    ),
    "in double": Case(
        f"{SDPA}(q, k, v)",
        {name: f"{text}.double()" for name, text in QKV.items()},
        kept=("aten.scaled_dot_product_attention.default",),
    ),
}
TRIANGLE = "self.register_buffer('m', torch.tril(torch.ones(99, 99)).view(1, 1, 99, 99))"
SCORES = "q @ k.transpose(-2, -1)"
ROWS = {name: randn("A", size, "D") for name, size in (("q", "N"), ("k", "M"), ("v", "M"))}
WRITTEN_OUT = {  # lowered to one kernel
    "by hand, plain": Case(f"({SCORES} / D ** 0.5).softmax(-1) @ v", QKV),
    "by hand, no scale": Case(f"({SCORES}).softmax(3) @ v", QKV),
    "by hand, another scale": Case(f"({SCORES} * 0.3).softmax(-1) @ v", QKV),
    "by hand, divided": Case(f"torch.softmax({SCORES} / 3, -1) @ v", QKV),
    "by hand, like GPT": Case(
        f"{TURNED}a = ({SCORES}) * (1.0 / D ** 0.5)\n"
        "a = F.softmax(a.masked_fill(self.m[:, :, :M, :M] == 0, float('-inf')), dim=-1)\n"
        "return self.f((F.dropout(a, 0.0, True) @ v).transpose(1, 2).contiguous().view(A, M, C * D))",
        {"x": randn("A", "M", "3 * C * D")},
        f"{TRIANGLE}\nself.f = nn.Linear(C * D, N)",
    ),
    "by hand, rows without a key": Case(
        f"({SCORES}).masked_fill(m, float('-inf')).softmax(-1) @ v", {**QKV, "m": "torch.ones(N, M).triu(-2).bool()"}
    ),
    "by hand, rows filled with a number": Case(
        f"({SCORES} * D ** -0.5).masked_fill(m, -1e9).softmax(-1) @ v", {**QKV, "m": "torch.ones(N, M).triu(-2).bool()"}
    ),
    "by hand, biased": Case(
        f"({SCORES} * D ** -0.5 + y + m).softmax(-1) @ v", {**QKV, "y": randn("C", "1", "M"), "m": randn("A", "1", "N", "1")}
    ),
    "by hand, an infinite bias": Case(
        f"({SCORES} + m).softmax(-1) @ v", {**QKV, "m": "torch.full((N, M), float('-inf')).triu(1)"}
    ),
    "by hand, chosen": Case(f"torch.where(m > 0, {SCORES}, 0.25).softmax(-1) @ v", {**QKV, "m": randn("N", "M")}),
    "by hand, capped": Case(f"(torch.tanh({SCORES} / 5) * 5).softmax(-1) @ v", QKV),
    "by hand, tempered": Case(f"({SCORES} * self.t).softmax(-1) @ v", QKV, "self.t = nn.Parameter(torch.tensor(0.7))"),
    "by hand, three dimensions": Case("((q * 0.5) @ k.transpose(1, 2)).softmax(2) @ v", ROWS),
    "by hand, heads first": one(
        "q, k, v = (t.reshape(N, A * 2, D).transpose(0, 1) for t in x.split(2 * D, 2))\n"
        "return torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v).transpose(0, 1).reshape(N * A, 2 * D)",
        "N", "A", "6 * D",
    ),
    "by hand, a turned key": Case("(q @ y).softmax(-1) @ v", {**QKV, "y": randn("A", "C", "D", "M")}),
    "by hand, values that are keys": Case(f"({SCORES} / D ** 0.5).softmax(-1) @ k", QKV),
    "by hand, of itself": one("(x @ x.transpose(-2, -1)).softmax(-1) @ x", "A", "C", "N", "D"),
    "by hand, in half": Case(f"({SCORES} / D ** 0.5).softmax(-1) @ v", {n: f"{t}.half()" for n, t in QKV.items()}),
    "by hand, dropout that is off": Case(f"F.dropout(({SCORES}).softmax(-1), 0.5, False) @ v", QKV),
    "by hand, permuted": Case(f"(({SCORES}).softmax(-1) @ v).permute(0, 2, 1, 3).reshape(A, N, C * D) * 2", QKV),
    "by hand, read twice": Case(f"y = ({SCORES}).softmax(-1) @ v\nreturn y.transpose(1, 2), y + 1", QKV),
    "relu for softmax": Case(
        f"{TURNED}a = (({SCORES}) * (1.0 / D ** 0.5)).masked_fill(self.m[:, :, :M, :M] == 0, float('-inf'))\n"
        "return (F.relu(a) @ v).transpose(1, 2).contiguous().view(A, M, C * D)",
        {"x": randn("A", "M", "3 * C * D")},
        TRIANGLE,
    ),
    "sigmoid for softmax": Case(f"torch.sigmoid({SCORES} * 0.1) @ v + 1", ROWS),
    "masked without softmax": Case(f"(({SCORES}) * m) @ v", {**ROWS, "m": "torch.ones(N, M).tril()"}),
}  # fmt: skip
SEPARATE = {  # near misses, not lowered to one kernel
    "scores read twice": Case(f"s = {SCORES}\nreturn s.softmax(-1) @ v, s", QKV),
    "shares read twice": Case(f"s = ({SCORES}).softmax(-1)\nreturn s @ v, s.sum(-1)", QKV),
    "softmax over queries": Case(f"({SCORES}).softmax(-2) @ v", QKV),
    "shares scaled after": Case(f"(({SCORES}).softmax(-1) * 2) @ v", QKV),
    "log softmax": Case(f"({SCORES}).log_softmax(-1) @ v", QKV),
    "values on the left": Case(f"v.transpose(-2, -1) @ ({SCORES}).softmax(-1).transpose(-2, -1)", QKV),
    "nothing between": Case(f"(({SCORES}) * 0.5) @ v", QKV),
    "a bias with more batches": Case(
        f"({SCORES} + m).softmax(-1) @ v",
        {**{name: randn("1", "D", "D") for name in "qkv"}, "m": randn("A", "D", "D")},
        kept=("aten.matmul.default",),
    ),
    "a scale that varies, by hand": Case(f"({SCORES} / D).softmax(-1) @ v", QKV),
    "wide heads by hand": Case(
        f"({SCORES}).softmax(-1) @ v", {n: randn("A", "1", s, "B + 260") for n, s in (("q", "N"), ("k", "M"), ("v", "M"))}
    ),
    "another type in softmax": Case(
        f"F.softmax({SCORES}, -1, dtype=torch.float32) @ v.float()", {n: f"{t}.half()" for n, t in QKV.items()}
    ),
}
CLASSES = {"x": randn("M", "N"), "t": "torch.randint(0, N, (M,))"}
SIGNS = {"x": randn("M"), "t": "torch.randint(0, 2, (M,)).float() * 2 - 1"}
LOSSES = {
    "mse": two("F.mse_loss(x, y)", "A,B", "A,B"),
    "mse summed": two("F.mse_loss(x, y, reduction='sum')", "A,B", "A,B"),
    "mse terms": two("F.mse_loss(x, y, reduction='none')", "A,B", "A,B"),
    "l1": two("F.l1_loss(x, y)", "A,B", "A,B"),
    "smooth l1": two("F.smooth_l1_loss(x, y, beta=0.4)", "A,B", "A,B"),
    "smooth l1 without beta": two("F.smooth_l1_loss(x, y, beta=0.0)", "A,B", "A,B"),
    "huber": two("F.huber_loss(x, y, delta=0.7)", "A,B", "A,B"),
    "cross entropy": Case("F.cross_entropy(x, t)", CLASSES),
    "cross entropy summed": Case("F.cross_entropy(x, t, reduction='sum')", CLASSES),
    "cross entropy, ignoring": Case("F.cross_entropy(x, t, ignore_index=1)", CLASSES),
    "cross entropy, smoothed": Case(
        "F.cross_entropy(x, t, label_smoothing=0.1)", CLASSES, kept=("aten.cross_entropy_loss.default",)
    ),
    "kl": two("F.kl_div(x.log_softmax(1), y.softmax(1), reduction='batchmean')", "A,B", "A,B"),
    "kl mean": two("F.kl_div(x.log_softmax(1), y.softmax(1).masked_fill(y > 1, 0.0))", "A,B", "A,B", slack=10),
    "kl of logs": two("F.kl_div(x.log_softmax(1), y.log_softmax(1), reduction='sum', log_target=True)", "A,B", "A,B"),
    "triplet": Case("self.f(x, p, n)", {k: randn("M", "N") for k in "xpn"}, "self.f = nn.TripletMarginLoss(margin=0.8)"),
    "cosine": two("1 - F.cosine_similarity(x, y, dim=1).mean()", "A,B", "A,B"),
    "hinge": Case("torch.mean(torch.clamp(1 - x * t, min=0))", SIGNS),
    "nll": Case("F.nll_loss(F.log_softmax(x, 1), t)", CLASSES, kept=("aten.nll_loss_nd.default",)),
}
IDS = "torch.randint(0, N, (A, C))"
MOVES = {
    "embedding": Case("self.e(i)", {"i": IDS}, "self.e = nn.Embedding(N, D)"),
    "embedding and more": Case("F.relu(self.e(i) + 1).sum(1)", {"i": IDS}, "self.e = nn.Embedding(N, D)"),
    "gather last": Case("x.gather(1, i)", {"x": randn("A", "N"), "i": IDS}),
    "gather first": Case("x.gather(0, i)", {"x": randn("N", "C"), "i": IDS}),
    "gather middle": Case("x.gather(1, i)", {"x": randn("A", "N", "D"), "i": "torch.randint(0, N, (A, C, D))"}),
    "gather less": Case("x.gather(1, i)", {"x": randn("M", "N"), "i": IDS}, kept=("aten.gather.default",)),
    "index_select": Case("x.index_select(0, i)", {"x": randn("N", "D"), "i": "torch.randint(0, N, (B,))"}),
    "cat last": two("torch.cat([x, y], 1)", "A,B", "A,N"),
    "cat first": two("torch.cat([x, y, x])", "A,B", "N,B"),
    "cat middle": two("torch.cat([x, y], dim=1) * 2", "A,B,C", "A,N,C"),
    "cat of views": two("torch.cat([x.t(), y[:, 1:]], dim=1)", "B,A", "A,N"),
    "stack of views": two("torch.stack([x.t(), y, y], -1) * 2", "B,A", "A,B"),
    "unbind": one("a, b, c = x.unbind(1)\nreturn a * b + c", "A", "3", "C"),
    "split by a varying size": one("a, b = x.split(D // 2, 1)\nreturn a * b", "A", "D", "C"),
    "stack": two("torch.stack([x, y], 1)", "A,B", "A,B"),
    "slice": one("x[:, 2:5] * 2", "A", "B"),
    "slice with steps": one("x[::2, 1::3] + 1", "B", "N"),
    "slice of a varying end": one("x[:, : B // 2].exp()"),
    "select": one("x[:, 0] + x[:, -1]"),
    "chunks": one("a, b = x.chunk(2, 1)\nreturn a * torch.sigmoid(b)", "A", "4", "C"),
    "split": one("a, b = x.split([1, 3], 1)\nreturn a + b", "A", "4", "C"),
    "permute": one("x.permute(2, 0, 1) * 2", "A", "C", "D"),
    "five dimensions turned": one("x.permute(0, 3, 1, 4, 2).contiguous()", "2", "3", "A", "2", "B"),
    "parts put together": two("torch.cat((x, y.transpose(1, 2), x), 1)", "A,C,D", "A,D,3"),
    "six dimensions made one": one(
        "x.permute(5, 3, 0, 4, 1, 2).reshape(-1, 6) * 2", "A", "B", "2", "3", "2", "3", kept=("aten.reshape.default",)
    ),
    "permute as the result": one("x.permute(2, 0, 1)", "A", "C", "D"),
    "turned after work": one("(x * 2).t()"),
    "work on a turned value": one("x.t() * 2"),
    "work on two turned values": two("(x.transpose(1, 2) * y.transpose(1, 2)).relu() + 1", "A,C,D", "A,C,D"),
    "work on a turned value and a row": two("x.permute(2, 0, 1) * y + 1", "A,C,D", "C"),
    "work on values turned otherwise": two("x.t() * y.t().contiguous()", "A,B", "A,B"),
    "work between turns": two("F.relu((x @ y).transpose(1, 2)).transpose(1, 2) * 2", "A,M,K", "A,K,N"),
    "made contiguous": one("x.t().contiguous()"),
    "reshaped": one("x.reshape(A, C * D) + 1", "A", "C", "D"),
    "viewed twice": one("(x.view(A * C, D) * 2).view(A, C, D).transpose(1, 2).reshape(A, D * C)", "A", "C", "D"),
    "flattened": one("torch.flatten(x, 1).relu()", "A", "C", "D"),
    "squeezed": one("x.unsqueeze(1).relu().squeeze(1)"),
    "expanded": one("x.unsqueeze(1).expand(A, C, B)"),
    "expanded and added": one("x.unsqueeze(1).expand(A, C, B) + 1"),
    "repeat": one("x.repeat(2, 3)", kept=("aten.repeat.default",)),
    "flip": one("x.flip(1), x.flip(0) * 2"),
    "flip of two": one("x.flip(0, -1)", "A", "C", "D"),
    "half of a view": one("x[:, : D // 2].contiguous()", "A", "D", "C"),
    "channels last input": Case("x.permute(0, 2, 3, 1).mean(-1)", {"x": randn("A", "C", "D", "N")}),
    "a slice as the result": one("x[:, 1:4]"),
    "sum of a turned value": one("x.t().sum(1)"),
    "softmax of a turned value": one("x.transpose(1, 2).softmax(-1)", "A", "C", "D"),
}
FORMS = {
    "tuple": one("x.sum(1), x * 2"),
    "list": one("[x + 1, x.mean(0)]"),
    "dict": one("{'a': x + 1, 'b': (x.mean(0), None)}"),
    "the same value twice": one("y = x * 2\nreturn y, y"),
    "input and more": one("x, x + 1"),
    "two equal kernels": one("F.relu(F.relu(x) * 2)"),
    "two linear layers": one(
        "self.b(F.relu(self.a(x)))", "A", "N", init="self.a = nn.Linear(N, N)\nself.b = nn.Linear(N, N)"
    ),
    "one layer twice": one("self.a(F.relu(self.a(x)))", "A", "N", init="self.a = nn.Linear(N, N)"),
    "a constant": one("x + torch.tensor([1.0, 2.0, 3.0], device=x.device)", "A", "3"),
    "no input at all": Case("self.w * 2", {}, "self.w = nn.Parameter(torch.randn(B))"),
    "reserved names": Case("row * col + out", {"row": randn("A", "B"), "col": randn("B"), "out": randn("A", "1")}),
    "a number as input": Case("x * s", {"x": randn("A", "B"), "s": "2.5"}),
    "in place": one("x = x * 1\nx += 1\nx.relu_()\nreturn x"),
    "counter": one("self.n += 1\nreturn x * self.n", init="self.register_buffer('n', torch.zeros(()))"),
    "convolution stays": one(
        "F.relu(self.c(x))", "A", "3", "N", "N", init="self.c = nn.Conv2d(3, 4, 3)", kept=("aten.conv2d.default",)
    ),
    "pooling stays": one("F.max_pool2d(x, 2) + 1", "A", "3", "N", "N", kept=("aten.max_pool2d.default",)),
    "sorting stays": one("x.sort(1)[0] * 2", kept=("aten.sort.default",)),
}
TYPES = {
    f"{text} in {dtype}": one(text, dtype=dtype)
    for dtype in ("float16", "bfloat16", "float64")
    for text in (
        "F.gelu(x) + x.exp()",
        "x.softmax(0)",
        "F.layer_norm(x, (B,))",
        "tuple(x.max(1))",
        "x.var(1)",
        "torch.sigmoid(x) * x",
    )
}

STEPS = (
    "{a}.relu()",
    "torch.tanh({a})",
    "F.gelu({a}) / 2",
    "{a} * {b}",
    "{a} + {b}",
    "{a} - {b}",
    "torch.maximum({a}, {b})",
    "torch.where({a} > 0, {a}, {b})",
    "{a}.sum({d}, keepdim=True)",
    "{a}.mean({d}, keepdim=True)",
    "{a}.amax({d}, keepdim=True)",
    "{a}.softmax({d})",
    "{a}.transpose(0, 2).exp().transpose(0, 2)",
    "{a}[:, -1:] * 1.5",
)


def random_case(seed: int) -> Case:
    """A chain of seven steps on x[A, C, D], each from any values before it; all stay broadcastable to that shape."""
    draw = random.Random(seed)
    lines, names = [], ["x", "y"]
    for number in range(7):
        step = draw.choice(STEPS).format(a=draw.choice(names[-3:]), b=draw.choice(names), d=draw.randrange(3))
        lines.append(f"v{number} = {step}")
        names.append(f"v{number}")
    inputs = {"x": randn("A", "C", "D"), "y": randn("1", "C", "1")}
    return Case("\n".join([*lines, f"return {', '.join(names[-3:])}"]), inputs, slack=50)


CASES: dict[str, Case] = {
    **{f"unary: {text}": one(text) for text in UNARY},
    **{
        f"{family}: {name}": case
        for family, cases in {
            "broadcast": BROADCAST,
            "sum": SUMS,
            "extremum": EXTREMA,
            "moment": MOMENTS,
            "reduction": REDUCTIONS,
            "scan": SCANS,
            "softmax": SOFTMAX,
            "norm": NORMS,
            "product": PRODUCTS,
            "attention": ATTENTION,
            "written out": WRITTEN_OUT,
            "apart": SEPARATE,
            "loss": LOSSES,
            "move": MOVES,
            "form": FORMS,
            "type": TYPES,
            "random": {str(seed): random_case(seed) for seed in range(16)},
        }.items()
        for name, case in cases.items()
    },
}
