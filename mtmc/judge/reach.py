"""Whether a compiled kernel's 32-bit integers stay below 2^31: the last program and the last iteration decide.

The Triton IR is walked with exact integers (see counts.py), at the real grid and arguments, for the first and last program.
What passes 2^31 in 32 bits would wrap around on the GPU and address other memory; no large tensor is needed to see that.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mtmc.judge.counts import Walk
from mtmc.judge.integers import Ints, Value
from mtmc.judge.ttir import Operation, Type, parse
from mtmc.judge.work import Access
from mtmc.verdict import Known, Launch

LIMITS = -(2**31), 2**31 - 1
ARITHMETIC = ("arith.addi", "arith.subi", "arith.muli", "arith.trunci", "arith.shli")


def overflows(launch: Launch) -> tuple[str, ...]:
    """What wraps around, a sentence each; empty where nothing does. Raises ValueError without Triton IR."""
    return _overflows(launch.known)


@lru_cache(maxsize=512)  # a candidate differs from the one before in a launch or two
def _overflows(known: Known) -> tuple[str, ...]:
    launch = known.launch
    walks = [_Reach(launch, last) for last in (False, True)]
    for walk in walks:
        walk.block(walk.function.body)
    return tuple(dict.fromkeys(f"{launch.kernel}: {text}" for walk in walks for text in walk.wrapped))


class _Reach(Walk):
    """A walk of the first or the last program that notes 32-bit results, and ends of loops, out of range."""

    def __init__(self, launch: Launch, last: bool) -> None:
        self.function = parse(launch.ttir)
        self.wrapped: list[str] = []
        x, y, z = (np.array([(extent - 1) * last], dtype=np.int64) for extent in launch.grid)
        super().__init__(launch, self.function, (x, y, z), warp_size=32)

    def elementwise(self, op: Operation) -> None:
        super().elementwise(op)
        if op.name in ARITHMETIC and op.type.element == "i32":
            self.note(op.name, self.get(op.results[0]).data)

    def record(self, op: Operation, kind: str, tile: Type, pointer: Value, mask: Value) -> None:
        """Which sectors a tile touches does not matter here."""
        self.accesses[id(op)] = Access(kind, pointer.root, tile.itemsize, tile.shape)

    def visit(self, op: Operation, weight: float, first: bool) -> list[Value]:
        if op.name == "scf.for" and " : i64 {" not in op.text:
            low, high, step = (self.get(name).scalar for name in op.operands[1:4])
            self.note("the end of a loop", np.array([low - (low - high) // max(step, 1) * step], dtype=np.int64))
        return super().visit(op, weight, first)

    def note(self, what: str, data: Ints | None) -> None:
        reached = Value(data).ints
        far = max((int(reached.min()), int(reached.max())), key=abs)
        if not LIMITS[0] <= far <= LIMITS[1]:
            self.wrapped.append(f"{what} reaches {far} in 32 bits")
