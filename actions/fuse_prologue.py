"""fuse_prologue: the elementwise kernel before a unit is computed on the values as they are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from mtmc.action import Action
from mtmc.actions.call_sites import Changed, Site, everywhere
from mtmc.actions.context import Context, Rule
from mtmc.actions.forward import Call
from mtmc.actions.guest import REDUCING, Guest, Place, awaited, check_names, guest_at, load_line, loaded_place, take_in
from mtmc.actions.library_functions import without_dead
from mtmc.actions.unit import Access, Line, Unit, code, in_loop, is_load, statement, target
from mtmc.errors import check
from mtmc.frames import pad
from mtmc.graph import TensorType
from mtmc.program import Program

OTHERS = ("pointwise", "normalization", "scan")
HOSTS = (*REDUCING, *OTHERS)


class FusePrologue(Rule):
    """Legal where the unit reads, at all its calls alike, what an elementwise kernel of the same shape made.

    A chain of kernels before a reduction is best taken in from its end: what has grown first may be too long for one edit.
    So reductions come first.
    """

    kind = "fuse_prologue"
    family = "fusion"

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self.hosts = hosts

    def propose(self, context: Context) -> Iterator[Action]:
        hosts = [unit for unit in context.units if context.template(unit.name).split(".")[0] in self.hosts]
        for unit in hosts:
            call = context.leading_call(unit.name)
            for name in call.args if call else ():
                made = context.forward.assigning(name)
                guest = made.unit if made and name not in context.graph.results and not awaited(context, made) else ""
                if context.template(guest).startswith("pointwise."):
                    sentence = f"Fuse the elementwise kernel {guest} into {unit.name}, where it loads {name}."
                    yield self.action(unit.name, sentence, guest=guest, value=name)

    def apply(self, context: Context, action: Action) -> Program:
        host, name = Unit.of(context.program, action.region), str(action["value"])
        call, made = context.leading_call(host.name), context.forward.assigning(name)
        check(call is not None and made is not None and name in call.args, f"{host.name} does not read {name} once")
        assert call is not None and made is not None
        check(context.template(host.name).split(".")[0] in HOSTS, f"{host.name} is a product")
        check(made.unit == action["guest"], f"another kernel makes {name}")
        guest, place = guest_at(context, made), loaded_place(context, host.name)
        site, others = Site(call, made), _sites_before(context, call, name)
        host, sizes = _spliced(context, host, guest, place)
        lead = _lead(context, host, guest)
        host = _redirected(_without(host, name), name, lead)
        call = replace(call, args=tuple(a for a in call.args if a != name))
        check(bool(lead) or _walks_result(context, host), "no operand of the guest has its result's shape and type")
        shape = "out.shape" if _walks_result(context, host) else f"{lead}.shape"
        host, fused = take_in(host, call, guest, guest.operands, sizes, shape)
        changed: Changed = {call.line: fused}
        if context.forward.uses(name) == 1:
            changed[made.line] = None
        changed = everywhere(context, site, others, changed)
        return without_dead(host.into(context.program, context.forward.with_calls(changed)))


def _sites_before(context: Context, call: Call, value: str) -> list[Site]:
    """The further calls of a host, each with the kernel that makes what is `value` in this one. Raises Illegal."""
    forward, place = context.forward, call.args.index(value)
    found: list[Site] = []
    for other in context.other_calls(call):
        made = forward.assigning(other.args[place])
        alike = made is not None and (forward.uses(other.args[place]) == 1) == (forward.uses(value) == 1)
        check(alike and other.args[place] not in context.graph.results, f"{call.unit} is called in other ways")
        assert made is not None
        found.append(Site(other, made))
    return found


def _types(context: Context, guest: Guest) -> dict[str, TensorType]:
    """Types of the guest's operands and of its result."""
    found = {name: context.graph[name].type for name in (*guest.operands, guest.value)}
    return {name: type for name, type in found.items() if type is not None}


def _lead(context: Context, host: Unit, guest: Guest) -> str:
    """What has the shape and type of the guest's result, so that the launcher can read both off it.

    An operand of the guest, or another one of a host that walks its result; empty where there is none.
    """
    others = host.parameters(host.launcher) if _walks_result(context, host) else []
    made = context.graph[guest.value].type
    alike = [o for o in (*guest.operands, *others) if o != guest.value and _same(context.type(o), made)]
    return alike[0] if alike else ""


def _walks_result(context: Context, host: Unit) -> bool:
    node = context.host(host.name)
    return node is not None and "frame_in" not in node.kwargs


def _same(one: TensorType | None, other: TensorType | None) -> bool:
    return one is not None and other is not None and (one.shape, one.dtype) == (other.shape, other.dtype)


def _spliced(context: Context, host: Unit, guest: Guest, place: Place) -> tuple[Unit, dict[str, str]]:
    """The host with each load of the guest's result replaced by the guest, and the size arguments it needs."""
    name, sizes = guest.value, {}
    check_names(host, guest, (name,))

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        if not (is_load(line) and target(line) == name):
            return None
        at = Access.of(line)
        loads = [_load(context, guest, operand, place, at) for operand in guest.operands]
        for _, needed in loads:
            sizes.update(needed)
        return [*(load for load, _ in loads), *(statement(formula) for formula in guest.formulas)]

    changed = host.edit_lines(change)
    check(changed.lines != host.lines, f"{host.name} does not load {name} plainly")
    changed = changed.with_body(_once(changed.body))
    for operand in guest.operands:
        texts = {line for line in changed.lines if target(line) == operand}
        check(len(texts) == 1, f"{operand} is read in two ways")
    return changed, sizes


def _load(context: Context, guest: Guest, operand: str, place: Place, at: Access) -> tuple[Line, dict[str, str]]:
    """The guest's load of an operand where the host loaded the guest's result."""
    types = _types(context, guest)
    made, type, full = types[guest.value], types[operand], place.full.shape
    if type.shape == made.shape:
        return load_line(operand, type, at.index, at.mask), {}
    whole = pad(made.shape, len(full)) == full
    check(whole or type.numel == 1, "the guest's operands are broadcast inside a broadcast one")
    check(not (place.flat and type.numel > 1), "the host has no rows")
    return place.load(context, operand, at)


def _once(lines: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """Lines without the second of two equal loads in one block."""
    kept: list[cst.BaseStatement] = []
    seen: set[str] = set()
    for line in lines:
        if isinstance(line, cst.For):
            line = in_loop(line, _once([s for s in line.body.body if isinstance(s, cst.BaseStatement)]))
        elif is_load(line):
            if code(line) in seen:
                continue
            seen.add(code(line))
        kept.append(line)
    return kept


def _redirected(host: Unit, name: str, lead: str) -> Unit:
    """The launcher reads shape, dtype and device from `lead` instead of `name`, of which it asserts nothing any more.

    Raises Illegal where there is no `lead` and it reads them.
    """

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        text = code(line)
        if text.startswith("assert "):
            claims = [c for c in text.removeprefix("assert ").split(" and ") if not c.startswith(f"{name}.")]
            text = f"assert {' and '.join(claims)}" if claims else ""
        moved = re.sub(rf"\b{name}\.", f"{lead}.", text)
        check(bool(lead) or moved == text, "no operand of the guest has its result's shape and type")
        return None if moved == code(line) else [statement(moved)] if moved else []

    return host.edit_launcher(change)


def _without(host: Unit, name: str) -> Unit:
    """The operand removed from parameters and launch."""
    kernel = [p for p in host.arguments if p != f"{name}_ptr"]
    host = host.with_parameters(kernel, [p for p in host.parameters(host.launcher) if p != name])
    return host.with_arguments({name: ()})
