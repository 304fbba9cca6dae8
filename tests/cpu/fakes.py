"""A small world without torch, compilers or devices: programs are a few lines, times are a formula over them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mtmc.action import Action, Edit
from mtmc.errors import Illegal, check
from mtmc.program import Program
from mtmc.verdict import Accuracy, CompileError, Timing, Verdict, Verified, Wrong

REFERENCE_MS = 10.0
FIRST = Program(
    '''"""Two kernels."""


def launch_gemm(x):
    BLOCK = 16
    STAGES = 1
    MASK = 1
    return BLOCK


def launch_relu(x):
    BLOCK = 16
    STAGES = 1
    MASK = 1
    return BLOCK


FUSED = 0
'''
)
STOP = Action("stop", "stop", "model", (), "Stop here.")
TILES, STAGES = (32, 64, 128), (2, 3)
LARGEST_TILE = 64  # of relu: a larger one does not fit


def value(program: Program, unit: str, name: str) -> int:
    found = re.search(rf"{name} = (\d+)", program.text(f"launch_{unit}") if unit else program.source)
    assert found
    return int(found[1])


def unit_ms(program: Program, unit: str) -> float:
    """A product of the unit's weight, its tile and its stages: every knob helps by itself."""
    weight = {"gemm": 8.0, "relu": 2.0}[unit]
    return weight * (16 / value(program, unit, "BLOCK")) ** 0.5 / (1 + 0.1 * value(program, unit, "STAGES"))


def time_ms(program: Program, fusion_gain_ms: float = 0.5) -> float:
    return sum(unit_ms(program, unit) for unit in program.units) - fusion_gain_ms * value(program, "", "FUSED")


@dataclass
class FakeMoves:
    """Tiles and stages per unit, one fusion, a mask-dropping action that is wrong until it is repaired, and stop."""

    mistakes: bool = False

    def propose(self, program: Program, verdict: Verdict) -> tuple[Action, ...]:
        return (*self._all(program, verdict), STOP)

    def _all(self, program: Program, verdict: Verdict) -> Iterator[Action]:
        for unit in program.units:
            if isinstance(verdict, Wrong) and not value(program, unit, "MASK"):
                yield Action("mask", "repair", unit, (("MASK", 1),), f"Mask the loads of {unit}.")
            for tile in TILES:
                yield Action("tile", "tiling", unit, (("BLOCK", tile),), f"Use a tile of {tile} in {unit}.")
            for stages in STAGES:
                yield Action("stages", "pipelining", unit, (("STAGES", stages),), f"Use {stages} stages in {unit}.")
            if self.mistakes:
                yield Action("drop", "reorder", unit, (("MASK", 0),), f"Drop the mask of {unit}.")
        yield Action("fuse", "fusion", "model", (("FUSED", 1),), "Fuse relu into gemm.")

    def apply(self, program: Program, action: Action) -> Edit:
        (name, new), region = action.params[0], f"launch_{action.region}"
        check(action.kind != "tile" or action["BLOCK"] != value(program, action.region, "BLOCK"), "The tile is the same.")
        old = program.source if action.region == "model" else program.text(region)
        text = re.sub(rf"{name} = \d+", f"{name} = {new}", old)
        if text == old:
            raise Illegal("Nothing to change.")
        after = Program(text) if action.region == "model" else program.replace(region, text)
        return Edit(program, after, 1, 1)


@dataclass
class FakeEvaluator:
    """Times from the formula; `judged` and `predicted` list the keys that were worked on."""

    kind: str = "predicted"
    floor_ms: float = 0.01
    reference_ms: float = REFERENCE_MS
    noise: float = 0.0
    fusion_gain_ms: float = 0.5
    judged: list[str] = field(default_factory=list)
    predicted: list[str] = field(default_factory=list)

    def predict(self, programs: Sequence[Program]) -> list[float | None]:
        self.predicted += [program.key for program in programs]
        return [None if too_large(program) else time_ms(program, self.fusion_gain_ms) for program in programs]

    def judge(self, program: Program) -> Verdict:
        self.judged.append(program.key)
        if too_large(program):
            return CompileError("relu_kernel needs 262144 bytes of shared memory, 232448 are there.", "shared_memory")
        if not all(value(program, unit, "MASK") for unit in program.units):
            return Wrong("Element 64 differs.", "values", 1.0, 1e-7)
        ms = time_ms(program, self.fusion_gain_ms)
        speedup = self.reference_ms / ms
        spread = self.noise * speedup
        parts = {unit: unit_ms(program, unit) for unit in program.units}
        timing = Timing(
            self.kind, self.reference_ms, ms, speedup, speedup - spread, speedup + spread, self.floor_ms, kernels_ms=parts
        )
        return Verified(timing, Accuracy(2e-7, 2e-7, ("odd sizes",), ("fp64 oracle at full size",)))

    def final(self, program: Program) -> Verdict:
        return self.judge(program)


def too_large(program: Program) -> bool:
    return "relu" in program.units and value(program, "relu", "BLOCK") > LARGEST_TILE
