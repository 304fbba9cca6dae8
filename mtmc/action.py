"""Action: what to do next, in one sentence. Family + region + parameters; a frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from mtmc.program import Program

Family = Literal["tiling", "fusion", "pipelining", "reorder", "library", "repair", "stop"]
Value = str | int


@dataclass(frozen=True)
class Action:
    """`kind` names the rule in `mtmc.actions.RULES`; `region` is a unit name, or `model` for the whole program."""

    kind: str
    family: Family
    region: str
    params: tuple[tuple[str, Value], ...]
    sentence: str

    def __getitem__(self, name: str) -> Value:
        return dict(self.params)[name]

    @cached_property
    def id(self) -> str:
        """Short stable identity: `kind(region, name=value, …)`."""
        return f"{self.kind}({', '.join([self.region, *(f'{k}={v}' for k, v in self.params)])})"


@dataclass(frozen=True)
class Edit:
    """The change one Action makes.

    `added` and `removed` count code lines (comments, blanks, whole library functions and dead kernels do not count);
    `library` names device functions brought in whole; `assertions` are the inserted checks, as text.
    """

    before: Program
    after: Program
    added: int
    removed: int
    assertions: tuple[str, ...] = ()
    library: tuple[str, ...] = ()

    @property
    def changed_lines(self) -> int:
        return self.added + self.removed
