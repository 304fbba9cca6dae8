"""Dataflow through a candidate's host code, for the problem's own inputs: where what it returns comes from.

Nothing is run. Statements are followed in order, calls into the candidate's own functions included; a condition that the
text decides for the problem's shapes and types takes one way, any other both. Where a text cannot be followed, cells are
labelled as not known, and no rule concludes anything from them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mtmc.judge.static.calls import Arguments
from mtmc.judge.static.candidate import Candidate
from mtmc.judge.static.expressions import Frame
from mtmc.judge.static.memory import (
    EMPTY,
    PLAIN,
    Attempt,
    Cells,
    Event,
    Exhausted,
    Key,
    Labels,
    Returned,
    Spec,
    State,
    Stored,
)
from mtmc.judge.static.operators import KEEPERS
from mtmc.judge.static.statements import Statements
from mtmc.judge.static.trees import Function, is_main


@dataclass(frozen=True)
class Flow:
    """What following a candidate found. `complete` is False when its text was too long, or has no entry.

    `later` are the returns of a call after others, which finds what they left.
    """

    returns: tuple[Returned, ...] = ()
    events: tuple[Event, ...] = ()
    stored: tuple[Stored, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    tests: dict[int, tuple[ast.AST, Labels]] = field(default_factory=dict)
    complete: bool = False
    specs: tuple[Spec | None, ...] = ()
    later: tuple[Returned, ...] = ()

    @property
    def inputs(self) -> int:
        return len(self.specs)

    @property
    def cells(self) -> list[Labels]:
        """Labels of everything that some live return may give back."""
        return [labels for returned in self.returns for labels in returned.cells]

    def named(self, *kinds: str) -> list[Event]:
        """What happened while the entry was called."""
        return [event for event in self.events if event.kind in kinds and event.phase == "call"]


def follow(candidate: Candidate) -> Flow:
    """Follow the candidate's entry, called with the problem's inputs."""
    specs = _input_specs(candidate)
    try:
        found = _Run(candidate=candidate).whole(specs)
        later = _Run(candidate=candidate, steady=True).whole(specs).returns if _changed(candidate) else found.returns
        return replace(found, later=later)
    except (Exhausted, RecursionError):
        return Flow()


def _input_specs(candidate: Candidate) -> list[Spec | None]:
    """Inputs as the problem's text describes them."""
    problem, reference = candidate.problem, candidate.reference
    if problem is None or reference is None:
        return []
    if problem.inputs:
        return [Spec(i.shape, f"torch.{i.dtype}") for i in problem.inputs]
    maker = reference.functions.get("get_inputs")
    run = _Run(candidate=reference)
    try:
        return run.made_inputs(maker) if maker else []
    except (Exhausted, RecursionError):
        return []


class _Run(Statements):
    """A run from the file's top level to the entry's returns."""

    def whole(self, specs: list[Spec | None]) -> Flow:
        self.body([s for s in self.candidate.tree.body if not is_main(s)], self.top)
        self.alive = True
        returns: list[Returned] = []
        for name in self.candidate.entries:
            returns += self._entry(name, specs)
        done = bool(self.candidate.entries)
        return Flow(
            tuple(returns), tuple(self.events), tuple(self.stored), tuple(self.attempts), self.tests, done, tuple(specs)
        )

    def made_inputs(self, maker: Function) -> list[Spec | None]:
        self.body([s for s in self.candidate.tree.body if not is_main(s)], self.top)
        frame = Frame(-1, maker, parent=self.top)
        self.body([s for s in maker.body if not isinstance(s, ast.Return)], frame)
        last = next((s.value for s in maker.body if isinstance(s, ast.Return)), None)
        elements = last.elts if isinstance(last, (ast.List, ast.Tuple)) else []
        return [self._spec_of(element, frame) for element in elements]

    def _spec_of(self, node: ast.expr, frame: Frame) -> Spec | None:
        """An input built by arithmetic on a random tensor is like the first tensor in the expression."""
        cells = self.evaluate(node, frame)
        if isinstance(value := self.value(cells), (int, float, str)):
            return Spec(value=value)
        found = [self.specs[c] for c in sorted(cells) if c in self.specs]
        if found:
            return found[0]
        inner = [self._spec_of(child, frame) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return next((spec for spec in inner if spec is not None and spec.value is None), None)

    def _entry(self, name: str, specs: list[Spec | None]) -> list[Returned]:
        function = self.candidate.functions[name]
        owner = self.candidate.model if "." in name else ""
        if owner:
            self.phase = "init"
            made = self.candidate.method(owner, "__init__")
            if made:
                self.function(made, Arguments(loose=True), self.candidate.functions[made], owner)
        self._persist()
        self.phase = "call"
        frame = Frame(-2, function, name.rpartition(".")[0], self.top)
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][1 if owner else 0 :]
        count = len(specs) or len(names) - len(function.args.defaults)
        inputs = [self._input(specs[i] if i < len(specs) else None) for i in range(count)]
        self._parameters(function, Arguments(inputs), owner, frame)
        given = self.state.variables.get((f"@{owner}", name.rpartition(".")[2]), EMPTY)
        if any(True for _ in self.things(given, "fn:")):  # self.forward = another
            node = ast.copy_location(ast.Call(ast.Name(name), [], []), function)
            self._leave(function, self.invoke(given, Arguments(inputs), node), frame)
            function = ast.FunctionDef(name, function.args, [], [])
        if owner and not name.startswith(f"{owner}.") and self._is_reference(name, function):
            self.note("reference", name, function)
        self.running.append(name)
        self.body(function.body, frame)
        self.running.pop()
        found = [self._returned(node, cells, state) for node, cells, state in frame.returns]
        self.alive = True
        return found

    def _input(self, spec: Spec | None) -> Cells:
        if spec is not None and spec.value is not None:
            return self.new("meta", known=spec.value)
        cells = self.new("input")
        if spec is not None:
            self.specs[next(iter(cells))] = spec
        return cells

    def _returned(self, node: ast.AST, cells: Cells, state: State) -> Returned:
        labels = tuple(state.labels.get(cell, frozenset()) for cell in sorted(cells))
        return Returned(node, tuple(found for found in labels if found), state.path)

    def _persist(self) -> None:
        """What calls change (attributes, globals) holds at the start of a call what an earlier call left."""
        changed = _changed(self.candidate)
        for key, cells in list(self.state.variables.items()):
            if key[1] in changed:
                kept = {label for label in self.labels(cells) if label not in PLAIN - {"dict"} and label != "uninit"}
                if not any(label.startswith(("fn:", "obj:", "class:", "mod:")) for label in kept):
                    self.state.variables[key] = self.new("old", *kept)
        for key in _attributes(self.candidate, changed):
            if key not in self.state.variables:
                self.state.variables[key] = self.new("old")


def _changed(candidate: Candidate) -> frozenset[str]:
    """Names of attributes and globals that functions other than constructors assign or fill."""
    found: set[str] = set()
    for name, function in candidate.called.items():
        if name.endswith("__init__") or name in candidate.kernels:
            continue
        for node in candidate.walk(function):
            found |= _written(node)
    return frozenset(found)


def _attributes(candidate: Candidate, changed: frozenset[str]) -> Iterator[Key]:
    """Attributes that only calls make: of the model, and of functions."""
    yield from ((f"@{candidate.model}", name) for name in changed)
    for function in candidate.called.values():
        for node in candidate.walk(function):
            if isinstance(node, ast.Attribute) and node.attr in changed and isinstance(node.value, ast.Name):
                if node.value.id in candidate.functions:
                    yield f"@{node.value.id}", node.attr


def _written(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return set(node.names)
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = [e for t in node.targets for e in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t])]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPERS:
        targets = [ast.Subscript(node.func.value, ast.Constant(0))]
    return {_base(t) for t in targets if isinstance(t, (ast.Attribute, ast.Subscript))} - {""}


def _base(node: ast.expr) -> str:
    """Name of the attribute or variable that a target changes."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


__all__ = ["Flow", "Key", "follow"]
