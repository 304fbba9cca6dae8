"""Small models and plans: actions applied to their first programs one after the other, the last of which a plan is about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from lowering_cases import Case, one, randn, two

from mtmc import actions
from mtmc.action import Action, Edit
from mtmc.actions import RULES, Context
from mtmc.capture import capture
from mtmc.edit import gate
from mtmc.hardware_profiles import load
from mtmc.lower import Lowering, lower
from mtmc.problem import Problem
from mtmc.program import Program

# Large enough that splits pay and that rows fill a GPU; and odd sizes at which programs run, some above one tile.
FULL = {"A": 600, "B": 8192, "C": 5, "D": 64, "N": 96, "M": 128, "K": 32768}
SMALL = {"A": 3, "B": 333, "C": 5, "D": 7, "N": 37, "M": 35, "K": 75}
FAMILY = {rule.kind: rule.family for rule in RULES}

WEIGHT = "self.w = nn.Parameter(torch.rand(B))"
MODELS: dict[str, Case] = {
    "chain": two("F.gelu(x * y + self.b) * 0.5", "A,B", "A,B", "self.b = nn.Parameter(torch.randn(B))"),
    "softmax": one("(x * 0.3).softmax(-1) * 2"),
    "long_softmax": one("(x * 0.3).softmax(-1) * 2", "A", "K"),
    "columns": one("x.softmax(1)", "A", "B", "D"),
    "left_out": one("x.tril(-3).masked_fill(x > 0, float('-inf')).softmax(-1)", "A", "B"),
    "layer_norm": one("self.norm(x).relu()", init="self.norm = nn.LayerNorm(B)"),
    "few_rows": one("self.norm(x)", "C", "B", init="self.norm = nn.LayerNorm(B)"),
    "group_norm": one("F.silu(self.norm(x))", "A", "6", "N", init="self.norm = nn.GroupNorm(3, 6)"),
    "batch_norm": one("self.norm(x)", "A", "C", "D", init="self.norm = nn.BatchNorm1d(C)"),
    "long_batch_norm": one("self.norm(x)", "A", "C", "B", init="self.norm = nn.BatchNorm1d(C)"),
    "long_group_norm": one("self.norm(x)", "A", "6", "K * 12", init="self.norm = nn.GroupNorm(2, 6)"),
    "linear": one("F.gelu(self.fc(x)) * 0.5", "M", "K", init="self.fc = nn.Linear(K, N)"),
    "layers": one(
        "(F.gelu(self.a(x)) * 0.5) @ (F.gelu(self.b(x)) * 0.5).t()",
        "M",
        "K",
        init="self.a = nn.Linear(K, N)\nself.b = nn.Linear(K, N)",
    ),
    "product": two("x @ y", "M,K", "K,N"),
    "aligned": two("F.relu(x @ y + self.b)", "M,72", "72,N", "self.b = nn.Parameter(torch.randn(N))"),
    "batched": two("torch.bmm(x, y) + self.b", "A,M,K", "A,K,N", "self.b = nn.Parameter(torch.randn(M, 1))"),
    "heads": two(
        "x.view(C, M, 3, K).transpose(1, 2) @ y + self.b", "C,M,3*K", "C,3,K,N", "self.b = nn.Parameter(torch.randn(M, 1))"
    ),
    "half": one("F.silu(self.fc(x))", "M", "K", dtype="float16", init="self.fc = nn.Linear(K, N).half()"),
    "sum": one("((x - 1) * x).sum(1, keepdim=True).sqrt()", "A", "B"),
    "middle": one("(x * x).sum(1).sqrt()", "A", "B", "D"),
    "batch_scaled": two("(x * y).sum((0, 2)).exp()", "A,C,D", "A,1,1"),
    "channel_scaled": two("(x * y).sum((0, 2))", "A,C,D", "C,1"),
    "sizes": Case(
        "((x * y).sum(1) + z).relu()", {"x": randn("A", "C", "D", "N"), "y": randn("C", "D", "1"), "z": randn("D", "1")}
    ),
    "rms_norm": one("x / (x * x).mean(-1, keepdim=True).add(1e-5).sqrt() * self.w", init=WEIGHT),
    "share": one("x / x.abs().sum(1, keepdim=True)", "A", "B", "D"),
    "twice": two("(x * x).sum(1).sqrt() + (y * y).sum(1).sqrt()", "A,B", "A,B"),
    "unlike": two("(x * x).cumsum(1) - (y * 2).cumsum(1)", "A,B", "A,B"),
    "siblings": Case(
        "(x - y).square().sum(1).sqrt() + (x - z).square().sum(1).sqrt()", {name: randn("A", "B") for name in "xyz"}
    ),
    "cosine": two("F.cosine_similarity(x, y)", "A,B", "A,B"),
    "hinge": two("(1 - x * y).clamp(min=0).mean()", "K,B", "B"),
    "shares": one("x / x.norm()", "A", "D", "B"),
    "classes": Case("F.cross_entropy(x * 2, t, ignore_index=2)", {"x": randn("A", "B"), "t": "torch.randint(0, 5, (A,))"}),
    "loss": two("((x - y) ** 2).mean()", "A,B", "A,B"),
    "variance": one("x.var(1)", "A", "B"),
    "column_variance": one("(x * 2).var(1)", "C", "A", "D"),
    "attention": Case(
        "F.scaled_dot_product_attention(q, k, v, is_causal=True) * self.g",
        {name: randn("C", "4", "B", "D") for name in "qkv"},
        "self.g = nn.Parameter(torch.randn(4, 1, D))",
    ),
    "attention_masked": Case(
        "F.scaled_dot_product_attention(q, k, v, m)",
        {"q": randn("C", "4", "N", "D"), "m": randn("N", "B"), **{name: randn("C", "4", "B", "D") for name in "kv"}},
    ),
    "attention_by_hand": Case(
        "((q @ k.transpose(-2, -1) * D ** -0.5).masked_fill(m > 0, float('-inf')).softmax(-1) @ v)"
        ".transpose(1, 2).flatten(2) * self.g",
        {"q": randn("C", "4", "N", "D"), "m": randn("N", "B"), **{name: randn("C", "4", "B", "D") for name in "kv"}},
        "self.g = nn.Parameter(torch.randn(4 * D))",
    ),
    "relu_attention": Case(
        "F.relu(q @ k.transpose(-2, -1) * 0.3) @ v * self.g",
        {name: randn("C", "4", "B", "D") for name in "qkv"},
        "self.g = nn.Parameter(torch.randn(4, 1, D))",
    ),
    "triangle": one("torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1).tril()"),
    "scan": two("(x * y).cumsum(1) * 2", "A,B", "A,B"),
    "scan_back": two("(x * y).flip(1).cumsum(1).flip(1) + y", "A,B,D", "D"),
    "scan_after": two(
        "torch.cat((torch.zeros_like(x[:, :1]), (x * y)[:, :-1].cumsum(1)), 1) + self.b",
        "A,B", "A,B", "self.b = nn.Parameter(torch.randn(B))",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Actions by id, in order, on the first program of a model, in which `region` lost every text `dropped` before."""

    model: str
    ids: tuple[str, ...]
    region: str = ""
    dropped: str = ""

    @property
    def first(self) -> Program:
        program = lowered(self.model).program
        return program.replace(self.region, program.text(self.region).replace(self.dropped, "")) if self.region else program


def plan(model: str, *ids: str) -> Plan:
    return Plan(model, ids)


ATTEND = "{}(attention, {})"
LINEAR = "fuse_epilogue(linear_product, guest=linear)"
GELU = "fuse_epilogue(linear_product, guest=gelu)"
SCALE = "fuse_epilogue(linear_product, guest=mul)"
ROOT = ("fuse_epilogue(mean_sum, guest=mean_)", "fuse_epilogue(mean_sum, guest=add)", "fuse_epilogue(mean_sum, guest=sqrt)")
ABS = "fuse_prologue(sum_1, guest=abs_1, value=abs_1)"
SQUARE = "fuse_prologue(mean_sum, guest=mul, value=mul)"

PAIR = ("fuse_prologue(sum_1, guest=square, value=square)", "fuse_prologue(sum_1, guest=sub, value=sub)")
ANGLE = "cosine_similarity"
PARTS = ("dot", "left")

# One plan a kind, whose edit is kept under tests/golden/actions and of which the kind's example is a part.
GOLDEN: dict[str, Plan] = {
    "fuse_epilogue": plan("linear", LINEAR),
    "fuse_prologue": plan("sum", "fuse_prologue(sum_1, guest=mul, value=mul)"),
    "fuse_siblings": plan("siblings", *PAIR, "fuse_siblings(sum_1, value=sum_2)"),
    "fuse_second_pass": plan(
        "share", "fuse_prologue(sum_1, guest=abs_1, value=abs_1)", "fuse_second_pass(sum_1, guest=div)"
    ),
    "merge_passes": plan("long_softmax", "merge_passes(softmax)"),
    "split_fp16": plan("linear", "split_fp16(linear_product, tile=3)"),
    "split_attention": plan("attention", "split_attention(attention, tile=0)"),
    "dot_precision": plan("linear", "dot_precision(linear_product, precision=tf32x3)"),
    "split_reduction": plan("loss", "split_reduction(mean_sum, parts=16)"),
    "split_k": plan("product", "split_k(matmul, parts=4)"),
    "single_block": plan("softmax", "single_block(softmax, value=8192)"),
    "tensor_descriptors": plan("aligned", "split_fp16(matmul)", "tensor_descriptors(matmul)"),
    "product_tile": plan("linear", "product_tile(linear_product, tile=5)"),
    "tile_size": plan("chain", "tile_size(mul, constant=BLOCK, value=1024)"),
    "warps": plan("chain", "warps(mul, value=4)"),
    "stages": plan("linear", "stages(linear_product, value=3)"),
    "loop_stages": plan("sum", "loop_stages(sum_1, value=3)"),
    "unroll": plan("sum", "unroll(sum_1, value=4)"),
    "swizzle": plan("linear", "swizzle(linear_product, group=8)"),
    "eviction": plan("chain", "eviction(mul)"),
    "tile_shape": plan("middle", "tile_shape(sum_1, red=4, block=256)"),
    "library": plan("linear", "library(linear_product)"),
    "repair_shared": plan("linear", "stages(linear_product, value=3)", "repair_shared(linear_product, what=num_stages)"),
    "repair_spill": plan("chain", "repair_spill(mul, what=BLOCK)"),
    "repair_sum": plan("product", "repair_sum(matmul, parts=32)"),
    "repair_mask": Plan("chain", ("repair_mask(mul)",), "mul_kernel", ", mask=mask"),
}

# Further plans: other hosts of the same kinds, and long sequences.
PLANS: dict[str, Plan] = {
    **GOLDEN,
    "epilogue through a view": plan("group_norm", "fuse_epilogue(group_norm_rows, guest=group_norm_scaled)"),
    "epilogues through a view": plan(
        "group_norm",
        "merge_passes(group_norm_rows)",
        "fuse_epilogue(group_norm_rows, guest=group_norm_scaled)",
        "fuse_epilogue(group_norm_rows, guest=group_norm)",
        "fuse_epilogue(group_norm_rows, guest=silu)",
    ),
    "chain of epilogues": plan("linear", "fuse_epilogue(linear_product, guest=linear, through=mul)"),
    "chain at both calls": plan("layers", "fuse_epilogue(linear_product, guest=linear, through=mul)"),
    "chain behind elementwise work": plan("chain", "fuse_epilogue(add, guest=gelu, through=mul_1)"),
    "epilogue of a sum": plan("sum", "fuse_epilogue(sum_1, guest=sqrt)"),
    "epilogue of a batched product": plan("batched", "fuse_epilogue(bmm, guest=add)"),
    "epilogue of a 16-bit product": plan("half", LINEAR, "fuse_epilogue(linear_product, guest=silu)"),
    "epilogues of elementwise kernels": plan(
        "chain",
        "fuse_prologue(add, guest=mul, value=mul)",
        "fuse_epilogue(add, guest=gelu)",
        "fuse_epilogue(add, guest=mul_1)",
    ),
    "prologue of two passes": plan("softmax", "merge_passes(softmax)", "fuse_prologue(softmax, guest=mul, value=mul)"),
    "prologue of a prologue": plan(
        "sum", "fuse_prologue(mul, guest=sub, value=sub)", "fuse_prologue(sum_1, guest=mul, value=mul)"
    ),
    "prologue of a middle sum": plan("middle", "fuse_prologue(sum_1, guest=mul, value=mul)"),
    "prologue of the other channel sum": plan("channel_scaled", "fuse_prologue(sum_1, guest=mul, value=mul)"),
    "prologue and epilogue of a channel sum": plan(
        "batch_scaled", "fuse_prologue(sum_1, guest=mul, value=mul)", "fuse_epilogue(sum_1, guest=exp)"
    ),
    "sizes before and after a sum": plan(
        "sizes",
        "fuse_prologue(sum_1, guest=mul, value=mul)",
        "fuse_epilogue(sum_1, guest=add)",
        "fuse_epilogue(sum_1, guest=relu)",
    ),
    "both calls of a kernel": plan(
        "twice", "fuse_prologue(sum_1, guest=mul, value=mul)", "fuse_epilogue(sum_1, guest=sqrt)"
    ),
    "second pass over rows": plan(
        "rms_norm", *ROOT, SQUARE, "fuse_second_pass(mean_sum, guest=div)", "fuse_epilogue(mean_sum, guest=mul_1)"
    ),
    "second pass in registers": plan(
        "rms_norm", *ROOT, SQUARE, "fuse_second_pass(mean_sum, guest=div)", "single_block(mean_sum, value=512)"
    ),
    "second pass over columns": plan(
        "share",
        ABS,
        "fuse_second_pass(sum_1, guest=div)",
        "single_block(sum_1, value=512)",
    ),
    "online softmax of columns": plan("columns", "merge_passes(softmax)", "tile_shape(softmax, red=2, block=256)"),
    "attention on the matrix unit": plan(
        "attention",
        ATTEND.format("dot_precision", "precision=fp16x3"),
        ATTEND.format("product_tile", "tile=1"),
        ATTEND.format("fuse_epilogue", "guest=mul"),
        ATTEND.format("stages", "value=1"),
    ),
    "attention in TF32": plan(
        "attention_masked",
        ATTEND.format("dot_precision", "precision=fp16x3"),
        ATTEND.format("dot_precision", "precision=tf32x3"),
        ATTEND.format("tile_size", "constant=BLOCK_M, value=64"),
        ATTEND.format("stages", "value=2"),
    ),
    "attention written out": plan(
        "attention_by_hand",
        ATTEND.format("dot_precision", "precision=fp16x3"),
        ATTEND.format("product_tile", "tile=1"),
        ATTEND.format("fuse_epilogue", "guest=mul_1"),
        ATTEND.format("stages", "value=1"),
    ),
    "attention without softmax": plan(
        "relu_attention",
        ATTEND.format("dot_precision", "precision=fp16x3"),
        ATTEND.format("product_tile", "tile=1"),
        ATTEND.format("fuse_epilogue", "guest=mul_1"),
        ATTEND.format("dot_precision", "precision=tf32x3"),
    ),
    "attention of pairs with a mask": plan(
        "attention_masked",
        ATTEND.format("split_attention", "tile=1"),
        ATTEND.format("product_tile", "tile=2"),
        ATTEND.format("stages", "value=2"),
    ),
    "attention of pairs written out": plan(
        "attention_by_hand", ATTEND.format("fuse_epilogue", "guest=mul_1"), ATTEND.format("split_attention", "tile=2")
    ),
    "attention of pairs without softmax": plan(
        "relu_attention", ATTEND.format("split_attention", "tile=0"), ATTEND.format("fuse_epilogue", "guest=mul_1")
    ),
    "scan with all around it": plan(
        "scan",
        "fuse_prologue(cumsum, guest=mul, value=mul)",
        "fuse_epilogue(cumsum, guest=mul_1)",
        "tile_size(cumsum, constant=BLOCK, value=128)",
        "loop_stages(cumsum, value=3)",
    ),
    "scan in registers": plan(
        "scan", "fuse_prologue(cumsum, guest=mul, value=mul)", "single_block(cumsum, value=512)", "warps(cumsum, value=4)"
    ),
    "scan from the end": plan(
        "scan_back",
        "fuse_prologue(cumsum_back, guest=mul, value=mul)",
        "fuse_epilogue(cumsum_back, guest=add)",
        "tile_shape(cumsum_back, red=16, block=32)",
        "unroll(cumsum_back, value=2)",
    ),
    "scan from the end in registers": plan("scan_back", "single_block(cumsum_back, value=512)"),
    "scans of unlike values": plan("unlike", "warps(cumsum, value=2)"),
    "scan before a triangle": plan("triangle", "warps(cumsum_exclusive, value=2)"),
    "exclusive scan": plan(
        "scan_after",
        "fuse_prologue(cumsum_exclusive, guest=mul, value=mul)",
        "fuse_epilogue(cumsum_exclusive, guest=add)",
        "single_block(cumsum_exclusive, value=512)",
    ),
    "Welford": plan("layer_norm", "unroll(layer_norm_normal, value=4)", "merge_passes(layer_norm_normal)"),
    "softmax in registers": plan("softmax", "single_block(softmax, value=512)", "fuse_epilogue(softmax, guest=mul_1)"),
    "columns in registers": plan("columns", "single_block(softmax, value=512)"),
    "norm in registers": plan("layer_norm", "single_block(layer_norm_normal, value=512)"),
    "split channel moments": plan("batch_norm", "split_reduction(batch_norm_moments, parts=4)"),
    "channel moments in two steps": plan("long_batch_norm", "loop_stages(batch_norm_rows_moments, value=3)"),
    "group moments in two steps": plan(
        "long_group_norm",
        "fuse_epilogue(group_norm_rows, guest=group_norm_scaled)",
        "fuse_epilogue(group_norm_rows, guest=group_norm)",
    ),
    "three siblings": plan(
        "cosine",
        *(f"fuse_prologue({ANGLE}_{part}, guest={ANGLE}_{part}_terms, value={ANGLE}_{part}_terms)" for part in PARTS),
        f"fuse_siblings({ANGLE}_dot, value={ANGLE}_left)",
        f"fuse_siblings({ANGLE}_dot, value={ANGLE}_right)",
        f"single_block({ANGLE}_dot, value=512)",
    ),
    "whole mean in two steps": plan(
        "hinge",
        "fuse_prologue(mean_sum_rows, guest=clamp, value=clamp)",
        "fuse_prologue(mean_sum_rows, guest=rsub, value=rsub)",
        "fuse_prologue(mean_sum_rows, guest=mul, value=mul)",
        "fuse_epilogue(mean_sum, guest=mean_)",
    ),
    "whole norm in two steps": plan("shares", "fuse_epilogue(linalg_vector_norm_sum, guest=linalg_vector_norm)"),
    "loss of classes": plan(
        "classes",
        "fuse_prologue(cross_entropy_loss_nll, guest=mul, value=mul)",
        "fuse_epilogue(cross_entropy_loss_nll, guest=cross_entropy_loss_terms)",
        "single_block(cross_entropy_loss_nll, value=512)",
    ),
    "loss of classes in one pass": plan(
        "classes",
        "merge_passes(cross_entropy_loss_nll)",
        "fuse_prologue(cross_entropy_loss_nll, guest=mul, value=mul)",
        "fuse_epilogue(cross_entropy_loss_nll, guest=cross_entropy_loss_terms)",
    ),
    "online softmax behind what is left out": plan("left_out", "merge_passes(softmax)"),
    "split row moments": plan("variance", "split_reduction(var_moments, parts=4)", "unroll(var_moments, value=2)"),
    "split column moments": plan(
        "column_variance",
        "split_reduction(var_moments, parts=4)",
        "fuse_prologue(var_moments, guest=mul, value=mul)",
        "tile_size(var_moments, constant=RED, value=16)",
        "loop_stages(var_moments, value=3)",
    ),
    "few rows": plan("few_rows", "split_reduction(layer_norm_normal_moments, parts=16)"),
    "split sum of squares": plan(
        "loss",
        "split_reduction(mean_sum, parts=16)",
        "fuse_prologue(pow_1, guest=sub, value=sub)",
        "fuse_prologue(mean_sum, guest=pow_1, value=pow_1)",
        "tile_size(mean_sum, constant=SPLIT, value=8)",
    ),
    "split products": plan("product", "split_fp16(matmul)", "swizzle(matmul, group=4)", "split_k(matmul, parts=2)"),
    "fp16 pairs with epilogues": plan(
        "linear", LINEAR, GELU, "split_fp16(linear_product)", SCALE, "tile_size(linear_product, constant=BLOCK_M, value=64)"
    ),
    "all for a product": plan(
        "aligned",
        "split_fp16(matmul)",
        "tensor_descriptors(matmul)",
        "product_tile(matmul, tile=0)",
        "swizzle(matmul, group=8)",
        "fuse_epilogue(matmul, guest=add)",
        "fuse_epilogue(matmul, guest=relu)",
    ),
    "fp16 pairs made in registers": plan("linear", "dot_precision(linear_product, precision=fp16x3)"),
    "fp16 pairs in registers and back": plan(
        "batched", "dot_precision(bmm, precision=fp16x3)", "dot_precision(bmm, precision=tf32x3)", "stages(bmm, value=2)"
    ),
    "batched fp16 pairs in registers": plan("batched", "dot_precision(bmm, precision=fp16x3)", "swizzle(bmm, group=4)"),
    "pairs of each part": plan("product", "split_k(matmul, parts=2)", "split_fp16(matmul)", "swizzle(matmul, group=4)"),
    "left operand alone in pairs": plan(
        "linear",
        "split_fp16(linear_product, ahead=x, tile=0)",
        "split_k(linear_product, parts=2)",
        "swizzle(linear_product, group=4)",
    ),
    "right operand alone in pairs": plan("product", "split_fp16(matmul, ahead=y)", "product_tile(matmul, tile=5)"),
    "batched fp16 pairs": plan("batched", "split_fp16(bmm, tile=1)", "fuse_epilogue(bmm, guest=add)"),
    "batched fp16 pairs by descriptors": plan(
        "batched", "split_fp16(bmm)", "tensor_descriptors(bmm)", "swizzle(bmm, group=4)"
    ),
    "unaligned fp16 pairs by descriptors": plan(
        "linear", "split_fp16(linear_product)", "tensor_descriptors(linear_product)"
    ),
    "heads in fp16 pairs": plan("heads", "split_fp16(matmul)", "fuse_epilogue(matmul, guest=add)"),
    "heads in fp16 pairs by descriptors": plan(
        "heads", "split_fp16(matmul)", "tensor_descriptors(matmul)", "swizzle(matmul, group=4)"
    ),
    "heads in TF32": plan("heads", "dot_precision(matmul, precision=tf32x3)", "swizzle(matmul, group=4)"),
    "batched TF32": plan("batched", "dot_precision(bmm, precision=tf32x3)", "swizzle(bmm, group=4)", "stages(bmm, value=2)"),
}


def problem(model: str, sizes: Mapping[str, int] = FULL) -> Problem:
    return Problem(model, source(MODELS[model]), f"{model}.py", overrides=tuple(sizes.items()))


def source(case: Case) -> str:
    """A model file that returns a list of one result."""
    lines = ["import torch", "import torch.nn as nn", "import torch.nn.functional as F"]
    lines += [f"{name} = {value}" for name, value in FULL.items()]
    lines += ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {line}" for line in case.init.splitlines()]
    lines += [f"    def forward(self, {', '.join(case.inputs)}):", f"        return [{case.forward}]"]
    lines += ["def get_inputs():", f"    return [{', '.join(case.inputs.values())}]"]
    return "\n".join(lines) + "\n"


@cache
def lowered(model: str) -> Lowering:
    """The first program of a model at its full size, which also fits the small one."""
    small = capture(problem(model, SMALL)).graph
    assert small is not None
    return lower(problem(model), capture(problem(model)), [small])


def context(model: str, program: Program | None = None, gpu: str = "h100", precision: str = "strict") -> Context:
    made = lowered(model)
    assert made.graph is not None
    return Context(program or made.program, made.graph, load(gpu), precision)


def action_of(text: str) -> Action:
    """The action an id stands for; without a sentence."""
    kind, region, params = re.fullmatch(r"(\w+)\((\w+)(?:, (.*))?\)", text).groups()  # type: ignore[union-attr]
    pairs = (pair.split("=") for pair in (params or "").split(", ") if pair)
    return Action(kind, FAMILY[kind], region, tuple((k, int(v) if v.isdigit() else v) for k, v in pairs), "")


@cache
def edits(plan: Plan) -> tuple[Edit, ...]:
    """The gated edits of a plan, in order."""
    program, made = plan.first, []
    for text in plan.ids:
        action = action_of(text)
        edit = gate(program, actions.apply(context(plan.model, program), action), action)
        made.append(edit)
        program = edit.after
    return tuple(made)
