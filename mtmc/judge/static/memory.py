"""What the dataflow remembers: cells with labels, and the variables and attributes that lead to them.

A cell is one tensor, number or object; views share their tensor's cell, a container leads to the cells of all it holds, and
a name that may be one of several things leads to several cells. Labels say where a cell's contents come from:

    input       an input's elements           K:NAME    stored by kernel NAME   copy:NAME  stored by one that only copies
    param:NAME  the model's state             lib:NAME  a PyTorch operator      ref        the reference's own forward
    meta        shapes, types, plain values   const     literals                uninit     memory that nobody wrote
    old         left by an earlier call       copied    moved elsewhere         ?          not known

Plain values also say where they come from: ptr an address, random chance, clock, env the environment, count a counter, past
an earlier call, identity a comparison of objects, probe the state of CUDA; dict is a dictionary. Things to call have labels
with a kind: `fn:`, `kernel:`, `class:`, `obj:`, `mod:`, `name:`, `super:`, and `ext`, `graph`.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Cells = frozenset[int]
Labels = frozenset[str]
Key = tuple[Any, str]
Path = tuple[tuple[int, bool], ...]

EMPTY: Cells = frozenset()
MISSING = object()
PLAIN = frozenset({"meta", "const", "ptr", "random", "clock", "env", "count", "past", "identity", "dict", "probe"})
CALLABLE = ("fn:", "kernel:", "class:", "obj:", "mod:", "name:", "super:", "self:", "apply:", "partial:")


@dataclass(frozen=True)
class Name:
    """A thing known by its full name only, such as `torch.float32`."""

    full: str


@dataclass(frozen=True)
class Spec:
    """An input as far as its text says: a tensor's shape (None unknown) and dtype, contiguous, on the GPU; or a `value`."""

    shape: tuple[int, ...] | None = None
    dtype: str = "torch.float32"
    value: Any = None


@dataclass(frozen=True)
class Event:
    """Something that happened on a live path: `kind` is `launch`, `library`, `reference`, `replay`, `cached`."""

    kind: str
    name: str
    node: ast.AST
    path: Path
    phase: str


@dataclass(frozen=True)
class Returned:
    """A return of the entry: the labels of each cell that it may give back."""

    node: ast.AST
    cells: tuple[Labels, ...]
    path: Path


@dataclass(frozen=True)
class Stored:
    """An attribute or global that gets a value: the labels of that value."""

    node: ast.AST
    name: str
    labels: Labels
    path: Path
    phase: str


@dataclass(frozen=True)
class Attempt:
    """A `try` (or `suppress`) that was run: what happened in its body and in the handlers that swallow the exception."""

    node: ast.AST
    body: tuple[Event, ...]
    handlers: tuple[Event, ...]
    returns: tuple[Labels, ...]


@dataclass(frozen=True, eq=False)
class Changes:
    """Keys that were set in a dictionary; `before` are those set until it was last copied."""

    keys: set[Any] = field(default_factory=set)
    before: Changes | None = None

    def back(self) -> Iterator[Changes]:
        found: Changes | None = self
        while found:
            yield found
            found = found.before


class Tracked(dict[K, frozenset[V]]):
    """Sets by key, and what was changed since copies parted: to join them, nothing else must be looked at.

    Keys are set by `[]` alone: what `update` or `setdefault` put in would be lost where paths join.
    """

    def __init__(self, content: Mapping[K, frozenset[V]] | None = None, changes: Changes | None = None) -> None:
        super().__init__(content or {})
        self.changes = changes or Changes()

    def __setitem__(self, key: K, value: frozenset[V]) -> None:
        self.changes.keys.add(key)
        super().__setitem__(key, value)

    def copy(self) -> Tracked[K, V]:
        """Another one with the same content."""
        return Tracked(self, Changes(before=self._parted()))

    def joined(self, others: Sequence[Tracked[K, V]]) -> Tracked[K, V]:
        """The union of the sets at each key."""
        every = (self, *others)
        backs = [list(one._parted().back()) for one in every]
        shared = set(backs[0]).intersection(*backs[1:])
        common = next((changes for changes in backs[0] if changes in shared), None)
        found = Tracked(self, Changes(before=common))
        for key in {key for back in backs for changes in takewhile(lambda c: c is not common, back) for key in changes.keys}:
            found[key] = frozenset[V]().union(*(one[key] for one in every if key in one))
        return found

    def _parted(self) -> Changes:
        """The changes so far; those from now on are told apart."""
        parted, self.changes = self.changes, Changes(before=self.changes)
        return parted


@dataclass
class State:
    """`path` holds the undecided conditions on the way here, as (id of the test, its value)."""

    variables: Tracked[Key, int] = field(default_factory=Tracked)
    labels: Tracked[int, str] = field(default_factory=Tracked)
    path: Path = ()

    def copy(self) -> State:
        return State(self.variables.copy(), self.labels.copy(), self.path)

    def extended(self, test: ast.AST, value: bool) -> State:
        return replace(self.copy(), path=(*self.path, (id(test), value)))


def joined(states: Iterable[State | None]) -> State | None:
    """What holds after paths meet; None when none gets there."""
    alive = [state for state in states if state is not None]
    if len(alive) < 2:
        return alive[0] if alive else None
    first, *others = alive
    variables = first.variables.joined([state.variables for state in others])
    labels = first.labels.joined([state.labels for state in others])
    return State(variables, labels, _common([state.path for state in alive]))


def _common(paths: list[Path]) -> Path:
    shared = []
    for steps in zip(*paths, strict=False):
        if any(step != steps[0] for step in steps):
            break
        shared.append(steps[0])
    return tuple(shared)


class Exhausted(Exception):
    """The text is too long to follow; nothing is concluded from it."""


@dataclass
class Memory:
    """Cells of one run. `known` are those with a value that the text decides, `pointees` says where addresses lead.

    `steady`: what an earlier call leaves is taken to be there.
    """

    state: State = field(default_factory=State)
    known: dict[int, Any] = field(default_factory=dict)
    specs: dict[int, Spec] = field(default_factory=dict)
    pointees: dict[int, Cells] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    tests: dict[int, tuple[ast.AST, Labels]] = field(default_factory=dict)
    olds: list[int] = field(default_factory=list)
    phase: str = "import"
    steady: bool = False
    alive: bool = True
    cells: int = 0

    def new(self, *labels: str, known: Any = MISSING) -> Cells:
        """A fresh cell."""
        self.cells += 1
        if self.cells > 400_000:
            raise Exhausted
        self.state.labels[self.cells] = frozenset(labels)
        if "old" in labels:
            self.olds.append(self.cells)
        if known is not MISSING:
            self.known[self.cells] = known
        return frozenset({self.cells})

    def labels(self, cells: Iterable[int]) -> Labels:
        found: set[str] = set()
        for cell in cells:
            found |= self.state.labels.get(cell, frozenset())
        return frozenset(found)

    def contents(self, *many: Cells) -> Labels:
        """Labels of data, without those of things to call."""
        return frozenset(label for cells in many for label in self.labels(cells) if not label.startswith(CALLABLE))

    def value(self, cells: Cells) -> Any:
        """The value that a name surely has; MISSING when it may be several things or none that is known."""
        values = [self.known.get(cell, MISSING) for cell in cells]
        return values[0] if len(values) == 1 else MISSING

    def spec(self, cells: Cells) -> Spec | None:
        return self.specs.get(next(iter(cells))) if len(cells) == 1 else None

    def overwrite(self, cells: Cells, labels: Iterable[str]) -> None:
        """All that these cells held is replaced: a name for several cells means one of them.

        Unless they are a container's, which holds other things beside.
        """
        labels, before = frozenset(labels), self.labels(cells)
        if len(cells) > 1 and ("graph" in before or "dict" in before or any(x.startswith(CALLABLE) for x in before)):
            self.add(cells, labels)
            return
        for cell in cells:
            if cell not in self.known:
                self.state.labels[cell] = labels | {"tensor"}

    def add(self, cells: Cells, labels: Iterable[str]) -> None:
        for cell in cells:
            if cell not in self.known:
                self.state.labels[cell] = self.state.labels.get(cell, frozenset()) | frozenset(labels)

    def note(self, kind: str, name: str, node: ast.AST) -> None:
        self.events.append(Event(kind, name, node, self.state.path, self.phase))

    def things(self, cells: Cells, kind: str) -> Iterator[str]:
        """Names after `kind` among the labels: things(cells, "fn:")."""
        return (label.removeprefix(kind) for label in sorted(self.labels(cells)) if label.startswith(kind))


def is_data(labels: Labels) -> bool:
    """Whether something with these labels is (or may be) a tensor with contents, not a plain value or a thing to call."""
    return any(label not in PLAIN and not label.startswith(CALLABLE) for label in labels)


def from_kernel(labels: Labels) -> bool:
    return any(label.startswith(("K:", "copy:")) or label == "?" for label in labels)
