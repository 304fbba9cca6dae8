"""Repairs: what to do about a failed verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.unit import Line, Unit, code, statement
from mtmc.errors import check
from mtmc.program import Program
from mtmc.verdict import CompileError, RuntimeFault, Timeout, Verdict, Verified, Wrong


def repairs(context: Context, verdict: Verdict) -> Iterator[Action]:
    """Repairs that fit a verdict: too much shared memory, spilled registers or a timeout, a missing mask."""
    family: Family = "repair"
    for unit in units(context):
        if isinstance(verdict, CompileError) and verdict.cause == "shared_memory":
            if unit.option("num_stages") > 1:
                yield Action(
                    "repair_shared", family, unit.name, (("what", "num_stages"),), f"Pipeline {unit.name} one stage less."
                )
            for name in _largest(unit):
                yield Action(
                    "repair_shared",
                    family,
                    unit.name,
                    (("what", name),),
                    f"Halve {name} of {unit.name} to save shared memory.",
                )
        elif isinstance(verdict, Timeout) or (isinstance(verdict, Verified) and _spills(verdict, unit.name)):
            for name in ("num_warps", *_largest(unit)):
                what = f"Run {unit.name} with twice the warps" if name == "num_warps" else f"Halve {name} of {unit.name}"
                yield Action(
                    "repair_spill", family, unit.name, (("what", name),), f"{what} to keep its registers from spilling."
                )
        elif isinstance(verdict, (Wrong, RuntimeFault)) and _unmasked(unit):
            yield Action(
                "repair_mask", family, unit.name, (), f"Mask the loads and stores of {unit.name} that have no mask."
            )


def _spills(verdict: Verified, unit: str) -> bool:
    return any(launch.kernel == f"{unit}_kernel" and launch.stack_bytes > 0 for launch in verdict.launches)


def _largest(unit: Unit) -> list[str]:
    """Tile constants that can be halved, the largest first."""
    sizes = {k: v for k, v in unit.constants.items() if k not in ("GROUP", "SPLIT") and v > 16}
    return sorted(sizes, key=lambda k: -sizes[k])


def _unmasked(unit: Unit) -> list[str]:
    """Loads and stores addressed by `index` without a mask, where the kernel has one."""
    if not any(t.startswith("mask = ") for t in unit.lines):
        return []
    return [t for t in unit.lines if re.search(r"tl\.(load|store)\(\w+_ptr \+ index\b", t) and "mask=" not in t]


class RepairResources:
    """Fewer stages, smaller tiles or more warps."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.family: Family = "repair"

    def propose(self, context: Context) -> Iterator[Action]:
        """Repairs answer verdicts: see `repairs`."""
        yield from ()

    def apply(self, context: Context, action: Action) -> Program:
        unit, what = Unit.of(context.program, action.region), str(action["what"])
        if what == "num_stages":
            check(unit.option(what) > 1, "there is one stage only")
            return unit.with_option(what, unit.option(what) - 1).into(context.program)
        if what == "num_warps":
            check(unit.option(what) < 16, "there are 16 warps already")
            return unit.with_option(what, unit.option(what) * 2).into(context.program)
        check(unit.constants.get(what, 0) > 16, f"{what} cannot be halved")
        return unit.with_constant(what, unit.constants[what] // 2).into(context.program)


class RepairMask:
    """A missing mask put back."""

    kind = "repair_mask"
    family: Family = "repair"

    def propose(self, context: Context) -> Iterator[Action]:
        """Repairs answer verdicts: see `repairs`."""
        yield from ()

    def apply(self, context: Context, action: Action) -> Program:
        unit = Unit.of(context.program, action.region)
        unmasked = _unmasked(unit)
        check(bool(unmasked), "every load and store has a mask")

        def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
            text = code(line)
            if text not in unmasked:
                return None
            call = re.search(r"tl\.(load|store)\(", text)
            assert call is not None
            end = _closing(text, call.end())
            return [statement(f"{text[:end]}, mask=mask{text[end:]}")]

        return unit.edit_lines(change).into(context.program)


def _closing(text: str, start: int) -> int:
    """Position of the bracket that closes the one before `start`."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)
