"""Rules about code that another compiler writes or runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mtmc.judge.static.control import under
from mtmc.judge.static.rule import Case, Hit
from mtmc.judge.static.trees import Function

COMPILERS = (
    "torch.compile", "torch.jit.script", "torch.jit.trace", "torch.jit.trace_module", "torch.jit.freeze",
    "torch.jit.optimize_for_inference", "torch.jit.load", "torch.jit.ScriptModule", "torch.jit.script_method",
    "torch._dynamo.optimize", "torch._dynamo.export", "torch.export", "torch._inductor", "torch.fx.symbolic_trace",
    "torch.fx.Tracer", "torch.fx.GraphModule", "torch.compiler.compile", "functorch.compile", "torch_tensorrt",
    "tensorrt", "onnxruntime", "torch.onnx", "thunder", "jax", "torch_xla", "tvm", "torch._export",
    "torch.aot_compile", "torch.fx.experimental", "torch._functorch", "torch._higher_order_ops", "openvino",
    "deepspeed", "torch._C._jit_pass_inline",
)  # fmt: skip
HARMLESS = (
    "torch._dynamo.disable", "torch._dynamo.is_compiling", "torch._dynamo.allow_in_graph", "torch._dynamo.graph_break",
    "torch._dynamo.mark",
)  # fmt: skip
INDUCTOR_NAMES = (
    "xnumel", "ynumel", "rnumel", "r0_numel", "XBLOCK", "YBLOCK", "RBLOCK", "R0_BLOCK", "xoffset", "xindex", "xmask",
    "rindex", "roffset", "rbase", "rmask",
)  # fmt: skip
INDUCTOR_CALLS = frozenset(
    {"assert_size_stride", "empty_strided_cuda", "assert_alignment", "reinterpret_tensor", "grid_type"}
)


def torch_compile(case: Case) -> Iterator[Hit]:
    """Another compiler does the work."""
    for node, name in case.candidate.uses:
        if under(name, COMPILERS) and not name.startswith(HARMLESS):
            yield Hit(node, f"{name} hands the work to another compiler")
    for call, name in case.candidate.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and not name:
            yield Hit(call, f"{ast.unparse(call.func)} hands the work to another compiler", certainty="likely")


def inductor_code(case: Case) -> Iterator[Hit]:
    """A kernel that torch.compile wrote: Inductor's names for sizes, blocks, pointers and values, or its helpers."""
    for node in case.candidate.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch._inductor"):
            yield Hit(node, f"{node.module} belongs to Inductor's generated code")
        elif isinstance(node, ast.Import) and any(a.name.startswith("torch._inductor") for a in node.names):
            yield Hit(node, "torch._inductor belongs to Inductor's generated code")
        elif isinstance(node, ast.Name) and node.id in INDUCTOR_CALLS:
            yield Hit(node, f"{node.id} belongs to Inductor's generated code", certainty="likely")
    for name, function in case.candidate.device.items():
        signs = _inductor_signs(function)
        if len(signs) >= 3 or name.startswith(("triton_poi_", "triton_red_", "triton_per_", "triton_tem_")):
            told = ", ".join(sorted(signs)) or name
            yield Hit(function, f"{name} is written as Inductor writes kernels ({told})", certainty="likely")


def _inductor_signs(function: Function) -> set[str]:
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {a.arg for a in function.args.args}
    signs = {name for name in INDUCTOR_NAMES if name in names}
    numbered = {"tmp": 3, "in_ptr": 1, "out_ptr": 1, "in_out_ptr": 1}
    for stem, least in numbered.items():
        found = [n for n in names if n.startswith(stem) and n.removeprefix(stem).isdigit()]
        if len(found) >= least:
            signs.add(f"{stem}0")
    telling = {"xnumel", "ynumel", "rnumel", "r0_numel", "xindex", "xmask", "rindex", "rmask", "tmp0"}
    return signs if signs & telling and "tmp0" in signs else set()
