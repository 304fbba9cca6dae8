"""C++ and CUDA text inside a candidate: the sources given to a builder, as tokens without comments and strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from mtmc.judge.static.candidate import BUILDERS, Candidate

COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
TOKENS = re.compile(r"[A-Za-z_]\w*|<<<|>>>|::|->|\d[\w.]*|\S")
LAUNCHES = frozenset({"<<<", "cudaLaunchKernel", "cudaLaunchKernelEx", "cuLaunchKernel", "cudaLaunchCooperativeKernel"})
NAMESPACES = frozenset({"at", "torch", "aten"})
# What C++ asks of ATen without having it compute.
ATEN_PLAIN = frozenset({
    "Tensor", "empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "TensorOptions",
    "cuda", "kFloat", "kHalf", "kCUDA", "ScalarType", "Half", "BFloat16", "kFloat32", "kInt", "kLong", "IntArrayRef",
    "Device", "device", "dtype", "optional", "List", "Scalar", "native", "CheckedFrom", "kBFloat16", "kFloat16",
    "kDouble", "kBool", "nn", "AutoDispatchBelowAutograd", "PackedTensorAccessor32", "RestrictPtrTraits",
    "opmath_type", "acc_type", "Generator", "PhiloxCudaState", "OptionalTensorRef", "kInt64", "kInt32", "kByte",
    "kChar", "kInt8", "kUInt8", "indexing", "Slice", "None", "ArrayRef", "str", "TensorList", "elementSize", "Library",
    "getNumGPUs", "detail", "tensor", "from_blob", "arange", "layout", "headeronly", "stable", "jit", "autograd",
})  # fmt: skip


@dataclass(frozen=True)
class CudaSource:
    """One builder call and the text given to it; `whole` is False where some of it could not be read."""

    node: ast.Call
    text: str
    whole: bool

    @cached_property
    def tokens(self) -> list[str]:
        return TOKENS.findall(COMMENTS.sub(" ", self.text))

    @property
    def has_kernel(self) -> bool:
        """A kernel of its own that it launches; so is any text that is compiled as a kernel alone."""
        launched = bool(LAUNCHES & set(self.tokens))
        return "__global__" in self.tokens and launched

    @property
    def aten_calls(self) -> list[str]:
        """ATen operators it calls: `at::relu(`, `torch::matmul(`."""
        t = self.tokens
        calls = [t[i + 2] for i in range(len(t) - 3) if t[i] in NAMESPACES and t[i + 1] == "::" and t[i + 3] == "("]
        return [name for name in calls if name not in ATEN_PLAIN]


def cuda_sources(candidate: Candidate) -> Iterator[CudaSource]:
    """Every builder call in the candidate's own code."""
    for node, name in candidate.calls:
        if name in BUILDERS:
            arguments = [*node.args, *(k.value for k in node.keywords)]
            texts = [_text(candidate, argument, 0) for argument in arguments]
            yield CudaSource(node, "\n".join(t for t in texts if t), None not in texts and name.endswith("load_inline"))


def _text(candidate: Candidate, node: ast.expr, depth: int) -> str | None:
    """Strings of an argument, names followed to their assignments; None where one leads nowhere."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.Name):
        values = candidate.origin(node.id) if depth < 4 else []
        found = [_text(candidate, value, depth + 1) for value in values]
        return None if not found or None in found else "\n".join(str(f) for f in found)
    if isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        strings = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        return "\n".join(strings) if len("".join(strings)) > 80 else None
    parts = [_text(candidate, child, depth) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return None if None in parts else "\n".join(str(p) for p in parts)
