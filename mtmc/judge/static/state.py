"""Rules about what lives on from call to call: caches by address, remembered outputs, version counters, work done early."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mtmc.banned import text
from mtmc.judge.static.cuda import CudaSource
from mtmc.judge.static.memory import Labels, Stored
from mtmc.judge.static.rule import Case, Hit, computes

COUNTERS = (
    "torch._C._autograd._unsafe_set_version_counter", "torch.autograd._unsafe_preserve_version_counter",
    "torch.autograd._unsafe_set_version_counter", "torch._C._get_version",
)  # fmt: skip
POINTERS = frozenset(
    {"void", "uintptr_t", "intptr_t", "float", "half", "__half", "scalar_t", "TensorImpl", "StorageImpl", "T", "char"}
)
INTEGERS = frozenset({"uintptr_t", "intptr_t"})
TABLES = frozenset({"map", "unordered_map", "set", "unordered_set"})
MADE = frozenset({"input", "ref", "graph", "?", "uninit"})


def pointer_cache(case: Case) -> Iterator[Hit]:
    """Something is remembered by a tensor's address or identity, which says nothing of its contents."""
    replays = any(e.kind == "replay" for e in case.flow.events)
    softer = {"level": "warn", "certainty": "possible"} if replays else {}
    for event in case.flow.events:
        if event.kind == "keyed":
            yield Hit(event.node, f"{event.name} is looked up by a tensor's address or identity", **softer)
        elif event.kind == "cached":
            yield Hit(event.node, f"{event.name} remembers its results by the identity of the tensors it gets")
    for node, labels in case.flow.tests.values():
        if "past" in labels and labels & {"ptr", "identity"}:
            yield Hit(
                node,
                f"the condition {ast.unparse(node)} compares a tensor's address or identity with an earlier one",
                **softer,
            )
    for source in case.cuda:
        if _pointer_map(source):
            yield Hit(source.node, "the C++ keeps a table by the addresses of tensors", certainty="likely")


def _pointer_map(source: CudaSource) -> bool:
    """A table whose keys are pointers, or a static pointer that is compared, in text that asks for `data_ptr`."""
    t = source.tokens
    tables = [t[i + 2 : i + 6] for i in range(len(t)) if t[i] in TABLES and t[i + 1 : i + 2] == ["<"]]
    keyed = any(POINTERS & set(key) and ("*" in key or INTEGERS & set(key)) for key in tables)
    statics = [t[i : _end(t, i)] for i in range(len(t)) if t[i] == "static"]
    kept = {words[-1] for words in statics if "*" in words or INTEGERS & set(words)}
    compared = any(t[i] in kept and t[i + 1] in "!=" and t[i + 2] == "=" for i in range(len(t) - 2))
    compared |= any(t[i] in kept and t[i - 1] == "=" and t[i - 2] in "!=" for i in range(2, len(t)))
    return "data_ptr" in t and (keyed or compared)


def _end(tokens: list[str], start: int) -> int:
    """Where a declaration's name ends: before its `=` or `;`."""
    return next((i for i in range(start, len(tokens)) if tokens[i] in "=;("), len(tokens))


def output_memo(case: Case) -> Iterator[Hit]:
    """What is returned may be what an earlier call computed."""
    for returned in case.flow.returns:
        for labels in returned.cells:
            stale = "old" in labels and not labels & MADE and not computes(labels)
            if stale and not any(label.startswith(("K:", "copy:", "param:")) for label in labels):
                yield Hit(
                    returned.node,
                    "what is returned can be the result of an earlier call, kept and not computed again",
                    certainty="likely",
                )
    yield from _forgets_inputs(case)


def _forgets_inputs(case: Case) -> Iterator[Hit]:
    """A later call gives back what earlier ones left, and its own inputs have no part in it."""
    for returned in case.flow.later:
        for labels in returned.cells:
            if "old" in labels and not labels & {"input", "ref", "?"} and not any(x.startswith("param:") for x in labels):
                why = "what later calls return does not come from their inputs"
                yield Hit(returned.node, why, certainty="likely")


def version_counter(case: Case) -> Iterator[Hit]:
    """A tensor's version counter is read or set."""
    for node in case.candidate.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "_version" and not _own_version(case, node):
            yield Hit(node, f"{ast.unparse(node)} is a tensor's version counter")
    for node, name in case.candidate.uses:
        if name in COUNTERS:
            yield Hit(node, f"{name} touches version counters")
    for call, name in case.candidate.calls:
        if name == "getattr" and len(call.args) > 1 and text(call.args[1]) == "_version":
            yield Hit(call, f"{ast.unparse(call)} is a tensor's version counter")
    for source in case.cuda:
        if {"_version", "current_version", "version_counter"} & set(source.tokens):
            yield Hit(source.node, "the C++ reads a tensor's version counter")


def _own_version(case: Case, node: ast.Attribute) -> bool:
    """`self._version` of a module is the version of its saved form."""
    owner = node.value
    return isinstance(owner, ast.Name) and (owner.id in ("self", "cls") or owner.id in case.candidate.classes)


def early_work(case: Case) -> Iterator[Hit]:
    """Weights are worked on once, before the calls or at the first, so later weights would not count."""
    for stored in case.flow.stored:
        if not _derived(stored.labels) or not _is_own(case, stored):
            continue
        if stored.phase == "init" and _read_by_calls(case, stored.name):
            yield Hit(stored.node, f"{stored.name} is computed from the weights when the model is made")
        elif stored.phase == "call" and "input" not in stored.labels and _once(case, stored):
            yield Hit(stored.node, f"{stored.name} is computed from the weights at the first call and kept")
    for event in case.flow.events:
        if event.kind == "launch" and event.phase == "import" and not case.flow.named("launch", "replay"):
            yield Hit(event.node, f"{event.name} is launched when the file is imported, and never by a call")


def _derived(labels: Labels) -> bool:
    """Whether something was made from weights and no longer follows them."""
    made = "copied" in labels or computes(labels) or any(label.startswith(("K:", "copy:")) for label in labels)
    return (
        made
        and any(label.startswith("param:") for label in labels)
        and not any(label.startswith("mod:") for label in labels)
    )


def _is_own(case: Case, stored: Stored) -> bool:
    """Whether the candidate's own text stores it, not a constructor that stands in the reference."""
    return any(stored.node is node for node in case.candidate.nodes)


def _read_by_calls(case: Case, name: str) -> bool:
    functions = case.candidate.called.values()
    return any(isinstance(n, ast.Attribute) and n.attr == name for f in functions for n in ast.walk(f))


def _once(case: Case, stored: Stored) -> bool:
    """Whether a condition asks for the very thing that is stored: `if self.packed is None`."""
    tests = [case.flow.tests[number][0] for number, _ in stored.path if number in case.flow.tests]
    words = {getattr(n, "attr", getattr(n, "id", getattr(n, "value", None))) for test in tests for n in ast.walk(test)}
    return stored.name in words
