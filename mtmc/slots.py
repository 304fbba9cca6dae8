"""Slots: the numbers of a problem that may be sizes, and the problem with other numbers in them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtmc.overrides import constants
from mtmc.problem import Problem


@dataclass(frozen=True)
class Slot:
    """One integer of a problem: a slot of `mtmc.overrides`, or a literal of the input specs or of `init`."""

    name: str
    value: int


def slots(problem: Problem) -> tuple[Slot, ...]:
    """Every integer above 1 that `resized` can change."""
    found = {name: value for name, value in constants(problem.source).items() if type(value) is int}
    for spec in problem.inputs:
        found |= {f"--inputs {spec.name}[{place}]": size for place, size in enumerate(spec.shape)}
        found[f"--inputs {spec.name} high"] = spec.high
    found |= {f"--init[{place}]": node.value for place, node in enumerate(_literals(_call(problem.init)))}
    return tuple(Slot(name, value) for name, value in found.items() if value > 1)


def resized(problem: Problem, sizes: Mapping[Slot, int]) -> Problem:
    """The problem with other values in some of its slots."""
    new = {slot.name: value for slot, value in sizes.items()}
    inputs = tuple(
        replace(
            spec,
            shape=tuple(new.get(f"--inputs {spec.name}[{place}]", size) for place, size in enumerate(spec.shape)),
            high=new.get(f"--inputs {spec.name} high", spec.high),
        )
        for spec in problem.inputs
    )
    call = _call(problem.init)
    for place, node in enumerate(_literals(call)):
        node.value = new.get(f"--init[{place}]", node.value)
    init = ", ".join(ast.unparse(part) for part in (*call.args, *call.keywords))
    overrides = dict(problem.overrides) | {name: value for name, value in new.items() if not name.startswith("--")}
    return replace(problem, overrides=tuple(overrides.items()), inputs=inputs, init=init)


def _call(init: str) -> ast.Call:
    call = ast.parse(f"f({init})", mode="eval").body
    assert isinstance(call, ast.Call)
    return call


def _literals(call: ast.Call) -> list[Any]:
    return [node for node in ast.walk(call) if isinstance(node, ast.Constant) and type(node.value) is int]
