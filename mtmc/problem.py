"""Problem: the user's model as data, and the one function that builds it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class InputSpec:
    """One input given on the command line: `name=dtype[d0,d1,…]`."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """The user's file and how to call it.

    `inputs` is empty when the file has `get_inputs()`. `overrides` replaces module-level constants (`N = 4096`) by name: a
    shrunken variant is the same Problem with other overrides (or other `inputs`).
    """

    name: str
    source: str
    path: str
    entry: str = "Model"
    inputs: tuple[InputSpec, ...] = ()
    init: str = ""
    overrides: tuple[tuple[str, Any], ...] = ()

    @property
    def hash(self) -> str:
        """Content hash (16 hex digits); the path does not count."""
        text = repr((self.source, self.entry, self.inputs, self.init, self.overrides))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Instance:
    """A built problem: the module as the file leaves it, and one set of inputs, both on the target device."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]
