"""Rules about numbers in the text: answers and sizes written down, and lower precision than the reference's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import prod

from mtmc.judge.static.candidate import Candidate
from mtmc.judge.static.memory import is_data
from mtmc.judge.static.rule import Case, Hit

TABLE = 8  # numbers in one literal, from which on it is a table
LARGE = 256  # sizes from here on are the problem's rather than a tile's
LOWER = frozenset(
    {"float16", "bfloat16", "half", "float8_e4m3fn", "float8_e5m2", "float8e4nv", "float8e5", "int8", "tf32", "bf16"}
)
CASTS = frozenset({"half", "bfloat16"})
CUDA_LOWER = frozenset(
    {"__half", "half", "__nv_bfloat16", "nv_bfloat16", "__float2half", "__float2bfloat16", "kHalf", "kBFloat16", "at_half"}
)


def hard_coded(case: Case) -> Iterator[Hit]:
    """Answers in the text, inputs recognised by their values, the test's own inputs drawn again; sizes only warn."""
    known = _literals(case.candidate.reference)
    for node in case.candidate.nodes:
        if isinstance(node, (ast.List, ast.Tuple)):
            numbers = _numbers(node)
            if len(numbers) >= TABLE and not set(numbers) <= known and _as_tensor(case, node):
                yield Hit(node, f"a table of {len(numbers)} numbers is written into the text", certainty="likely")
    for node, labels in case.flow.tests.values():
        if "input" in labels and not labels & {"old", "past"} and _recognises(node):
            yield Hit(node, f"the condition {ast.unparse(node)} recognises an input by its values")
    yield from _drawn_again(case)
    yield from _sizes(case)


def _numbers(node: ast.AST) -> list[float]:
    values = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def _literals(candidate: Candidate | None) -> set[float]:
    return set(_numbers(candidate.tree)) if candidate else set()


def _as_tensor(case: Case, node: ast.AST) -> bool:
    """Whether a literal becomes a tensor."""
    names = {
        t.id
        for n in ast.walk(case.candidate.tree)
        if isinstance(n, ast.Assign) and _inside(n.value, node)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    for call, name in case.candidate.calls:
        if name in (
            "torch.tensor",
            "torch.as_tensor",
            "torch.Tensor",
            "torch.FloatTensor",
            "numpy.array",
            "torch.from_numpy",
            "torch.asarray",
        ):
            words = {n.id for a in call.args for n in ast.walk(a) if isinstance(n, ast.Name)}
            if any(_inside(a, node) for a in call.args) or names & words:
                return True
    return False


def _inside(tree: ast.AST, node: ast.AST) -> bool:
    return any(child is node for child in ast.walk(tree))


def _recognises(node: ast.AST) -> bool:
    """Whether a condition compares with numbers of the text other than small round ones."""
    compared = [
        n
        for n in ast.walk(node)
        if isinstance(n, ast.Compare) and any(isinstance(op, (ast.Eq, ast.NotEq, ast.In)) for op in n.ops)
    ]
    near = [n for n in ast.walk(node) if isinstance(n, ast.Call) and "close" in ast.unparse(n.func)]
    gap = [
        n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) in ("abs", "math.fabs", "torch.equal")
    ]
    numbers = [v for n in (*compared, *near, *gap) for v in _numbers(n)]
    gaps = [v for n in ast.walk(node) if isinstance(n, ast.Compare) and gap for v in _numbers(n)]
    return any(v not in (0, 1, -1) for v in (*numbers, *gaps))


def _drawn_again(case: Case) -> Iterator[Hit]:
    for call, name in case.candidate.calls:
        if name in ("torch.manual_seed", "torch.cuda.manual_seed", "torch.Generator") or _seeds(call, name):
            inside = [f for f in case.candidate.called.values() if any(n is call for n in ast.walk(f))]
            if inside and any(isinstance(a, ast.Constant) for a in call.args):
                yield Hit(call, f"{ast.unparse(call)} draws given random numbers again", certainty="likely")
    for node in case.candidate.nodes:
        if isinstance(node, ast.Name) and node.id in ("get_inputs", "get_init_inputs") and isinstance(node.ctx, ast.Load):
            yield Hit(node, f"{node.id} gives the test's own inputs")


def _seeds(call: ast.Call, name: str) -> bool:
    return not name and isinstance(call.func, ast.Attribute) and call.func.attr == "manual_seed"


def _sizes(case: Case) -> Iterator[Hit]:
    """Sizes of the problem as literals where a tensor could be asked."""
    sizes = _problem_sizes(case)
    for call, name in case.candidate.calls:
        grid = isinstance(call.func, ast.Subscript)
        if name.startswith("torch.") and name.split(".")[-1] in ("empty", "zeros", "full", "ones") or grid:
            found = [v for v in _numbers(call.func.slice if grid else call) if v in sizes]  # type: ignore[attr-defined]
            if found:
                yield Hit(call, f"the size {found[0]} is written into the text", "warn", "possible")
    for function in case.candidate.device.values():
        for node in ast.walk(function):
            if isinstance(node, ast.Compare) and (found := [v for v in _numbers(node) if v in sizes]):
                yield Hit(node, f"the size {found[0]} is written into kernel {function.name}", "warn", "possible")


def _problem_sizes(case: Case) -> set[float]:
    """Large dimensions of the inputs, and their products."""
    specs = case.flow.specs
    shapes = [s.shape for s in specs if s is not None and s.shape]
    every = {size for shape in shapes for size in shape} | {prod(shape) for shape in shapes}
    return {float(size) for size in every if size >= LARGE}


def precision(case: Case) -> Iterator[Hit]:
    """Lower precision than the reference asks for; the oracle decides whether it matters."""
    reference = case.candidate.reference
    asked = set() if reference is None else {w for n in ast.walk(reference.tree) for w in _words(n)}
    seen: set[str] = set()
    for node in (*case.candidate.nodes, *(n for f in case.candidate.device.values() for n in ast.walk(f))):
        for word in _words(node):
            if word not in asked and word not in seen and _casts(case, node):
                seen.add(word)
                yield Hit(node, f"{word}: lower precision than the reference asks for")
    for source in case.cuda:
        for token in sorted(CUDA_LOWER & set(source.tokens)):
            yield Hit(source.node, f"the C++ uses {token}: lower precision than the reference asks for")


def _words(node: ast.AST) -> list[str]:
    """Names of low-precision types and modes in one node."""
    if isinstance(node, ast.Attribute) and node.attr in LOWER:
        return [node.attr]
    if isinstance(node, ast.keyword) and node.arg in ("input_precision", "allow_tf32", "fast_math"):
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        return [str(value) if node.arg == "input_precision" else node.arg] if value in ("tf32", True) else []
    if isinstance(node, ast.Attribute) and node.attr in ("autocast", "allow_tf32"):
        return [node.attr]
    return []


def _casts(case: Case, node: ast.AST) -> bool:
    """Not a mere question about a type, as a guard asks."""
    for parent in case.candidate.nodes:
        if isinstance(parent, ast.Compare) and any(child is node for child in ast.walk(parent)):
            return False
    return True


__all__ = ["CASTS", "hard_coded", "is_data", "precision"]
