"""Rules about the work itself: whether a kernel of the candidate's own makes what is returned."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePath

from mtmc.judge.static.candidate import Candidate
from mtmc.judge.static.memory import Labels, from_kernel
from mtmc.judge.static.rule import Case, Hit, computes

# Operators and modules (in lower case) whose results are elements of their operand.
MOVES = (
    "pad", "replicationpad", "reflectionpad", "constantpad", "zeropad", "circularpad", "replication_pad",
    "reflection_pad", "interpolate", "upsample", "embedding", "one_hot", "pixelshuffle", "pixelunshuffle",
    "channelshuffle", "flatten", "unflatten", "identity", "unfold", "im2col", "index", "take", "sort", "topk",
    "unique", "masked_select", "scatter", "getitem", "native_channel_shuffle", "dropout", "feature_dropout",
    "alphadropout", "max_pool", "maxpool", "adaptive_max", "adaptivemax", "nonzero", "argsort", "kthvalue", "median",
    "mode", "bucketize", "searchsorted", "grid_sample", "where",
)  # fmt: skip


def launches_written(candidate: Candidate) -> list[ast.Call]:
    """Launches in the text of what the entry calls, whether or not a condition lets them happen."""
    found = []
    for function in candidate.called.values():
        for node in candidate.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                names = {n.id for n in ast.walk(node.func.value) if isinstance(n, ast.Name)}
                if names & candidate.kernels.keys():
                    found.append(node)
    return found


def _entry(case: Case) -> ast.AST | None:
    names = case.candidate.entries
    return case.candidate.functions[names[0]] if names else None


def unsure(case: Case) -> bool:
    """Whether nothing may be concluded from the dataflow."""
    return not case.flow.complete or any("?" in labels for labels in case.flow.cells)


def no_kernel(case: Case) -> Iterator[Hit]:
    """Nothing that the entry calls launches a kernel."""
    for source in case.cuda:
        others = [e for e in case.flow.named("launch", "replay") if e.name != "extension"]
        if source.whole and not source.has_kernel and not others:
            calls = ", ".join(f"at::{name}" for name in source.aten_calls[:3])
            yield Hit(source.node, f"the compiled C++ launches no kernel of its own{f'; it calls {calls}' if calls else ''}")
    if not case.candidate.entries and (case.candidate.owner in case.candidate.own_names | case.candidate.imports):
        yield Hit(case.candidate.tree.body[0], "ModelNew is not written in this file", certainty="likely")
    if unsure(case) or case.flow.named("launch", "replay", "empty launch") or launches_written(case.candidate):
        return
    if any(e.kind == "cached" for e in case.flow.events):
        return
    kernels = [n for n in case.candidate.kernels if "." not in n]
    idle = f"; {kernels[0]} is never launched" if kernels else ""
    library = [event.name for event in case.flow.named("library")]
    instead = f"; {', '.join(dict.fromkeys(library[:3]))} of PyTorch compute{'s' if len(library) == 1 else ''} the result"
    yield Hit(_entry(case), f"no kernel is launched by what the judge calls{idle}{instead if library else ''}")


def unused_result(case: Case) -> Iterator[Hit]:
    """Kernels run, and what is returned comes from elsewhere."""
    launches = case.flow.named("launch", "replay")
    if unsure(case) or not launches or not case.flow.cells:
        return
    if not any(from_kernel(labels) for labels in case.flow.cells):
        last = case.flow.returns[-1]
        names = ", ".join(dict.fromkeys(event.name for event in launches))
        yield Hit(last.node, f"what is returned does not come from {names}, which is launched for nothing")


def constant_output(case: Case) -> Iterator[Hit]:
    """What is returned is the same whatever the inputs hold."""
    if unsure(case) or not case.flow.cells or _memo(case):
        return
    if any("input" in labels or "ref" in labels for labels in case.flow.cells):
        return
    function = _entry(case)
    takes_inputs = isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and len(function.args.args) > 1
    varies = not case.reference.cells or any("input" in labels for labels in case.reference.cells)
    if (case.flow.inputs or takes_inputs or not case.candidate.problem) and varies:
        kinds = {label for labels in case.flow.cells for label in labels}
        what = "memory that nobody wrote" if "uninit" in kinds else "a constant"
        yield Hit(case.flow.returns[0].node, f"no input decides what is returned: it is {what}")


def _memo(case: Case) -> bool:
    return any("old" in labels for labels in case.flow.cells)


def copy_kernel(case: Case) -> Iterator[Hit]:
    """The only kernels behind the result copy; PyTorch computes, or nobody does."""
    if unsure(case):
        return
    kernels = {label for labels in case.flow.cells for label in labels if label.startswith(("K:", "copy:"))}
    if not kernels or any(label.startswith("K:") for label in kernels):
        return
    names = ", ".join(sorted(label.removeprefix("copy:") for label in kernels))
    node = next((e.node for e in case.flow.named("launch") if f"copy:{e.name}" in kernels), _entry(case))
    if any(computes(labels) for labels in case.flow.cells):
        yield Hit(node, f"{names} only copies; what it copies is computed by PyTorch")
    elif any(_works(labels) for labels in case.reference.cells):
        yield Hit(node, f"{names} only copies its input, and the reference computes", certainty="likely")


def _works(labels: Labels) -> bool:
    """Whether an operator has worked on it that makes new numbers, not one that moves them."""
    verbs = {label.removeprefix("lib:").removeprefix("nn.").lower() for label in labels if label.startswith("lib:")}
    return any(not verb.startswith(MOVES) for verb in verbs)


def reference_call(case: Case) -> Iterator[Hit]:
    """The reference's own forward is run, other than in a guard's fallback."""
    for node in case.candidate.nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and (theirs := _of_reference(case, node)):
            yield Hit(node, f"{theirs} is imported, which is the reference")
    for event in case.flow.named("reference"):
        if _guard(case, event.path):
            continue
        yield Hit(event.node, f"the reference's own computation is called ({event.name})")


def _of_reference(case: Case, node: ast.Import | ast.ImportFrom) -> str:
    """Name of an imported module that is the reference's file."""
    problem = case.candidate.problem
    stems = {"reference", PurePath(problem.path).stem if problem else "reference"} - {"torch", "triton", "math"}
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return next((name for name in names if name.split(".")[-1] in stems), "")


def _guard(case: Case, path: tuple[tuple[int, bool], ...]) -> bool:
    """Whether a path is a fallback: under a condition on shapes and types, while a kernel runs on the other side."""
    launches = case.flow.named("launch", "replay")
    for test, side in path:
        labels = case.flow.tests[test][1] if test in case.flow.tests else frozenset()
        other = [event for event in launches if (test, not side) in event.path]
        if other and plain(labels):
            return True
    return False


def plain(labels: Labels) -> bool:
    """Whether a condition is one on shapes, types and attributes, which no element, clock, counter or chance decides."""
    odd = {"input", "random", "clock", "count", "env", "identity", "ref", "probe"}
    return not labels & odd and not any(label.startswith(("K:", "copy:", "lib:")) for label in labels)
