"""fuse_epilogue: the elementwise kernel after a unit is computed on the values before they are stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from mtmc.action import Action
from mtmc.actions.call_sites import Changed, Site, everywhere
from mtmc.actions.context import Context, Rule
from mtmc.actions.forward import INDENT, Call, Forward
from mtmc.actions.guest import Guest, Place, awaited, behind, check_names, guest_at, sites_behind, stored_place, take_in
from mtmc.actions.library_functions import without_dead
from mtmc.actions.split_reduction import splits
from mtmc.actions.unit import Access, Line, Unit, code, is_store, replace_names, statement, target
from mtmc.errors import Illegal, check
from mtmc.frames import pad
from mtmc.graph import TensorType
from mtmc.program import Program

ROOM = 20  # changed lines that an edit may have: a longer chain is not proposed
BASE, FRESH = 4, 7  # lines that any fusion changes, and that it does besides where something more is read


class FuseEpilogue(Rule):
    """Legal where, at all calls of the unit alike, an elementwise kernel is all that reads its one result.

    With `through`, all of a chain of such kernels from the `guest` to that one, each the only reader of the one before.
    """

    kind = "fuse_epilogue"
    family = "fusion"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            call = context.leading_call(unit.name)
            if splits(context, unit):  # it must store bare sums to be split, and its few results cost nothing apart
                continue
            if call and awaited(context, call):  # it goes into the kernel before it first, one formula at a time
                continue
            chain = _chain(context, call) if call else []
            if len(chain) > 1:
                listed = f"{', '.join(chain[:-1])} and {chain[-1]}"
                sentence = f"Fuse the elementwise kernels {listed} into {unit.name}, before its result is stored."
                yield self.action(unit.name, sentence, guest=chain[0], through=chain[-1])
            if chain:
                sentence = f"Fuse the elementwise kernel {chain[0]} into {unit.name}, before its result is stored."
                yield self.action(unit.name, sentence, guest=chain[0])

    def apply(self, context: Context, action: Action) -> Program:
        named = dict(action.params)
        guest, last = str(named["guest"]), str(named.get("through", named["guest"]))
        program = _with_guest(context, replace(action, params=(("guest", guest),)))
        while guest != last:
            context = replace(context, program=program)
            call = context.leading_call(action.region)
            guest = next(iter(_chain(context, call) if call else []), last)
            program = _with_guest(context, replace(action, params=(("guest", guest),)))
        return program


def _chain(context: Context, call: Call) -> list[str]:
    """The elementwise units behind a call, each the only reader of the one before, as many as one edit has room for."""
    found: list[str] = []
    known, fresh, lines = {*call.args, *call.targets}, set[str](), BASE
    reader = context.only_reader(call)
    while reader and context.template(reader.unit).startswith("pointwise.") and reader.unit not in (call.unit, *found):
        try:
            guest = guest_at(context, reader)
        except Illegal:
            break
        fresh |= {arg for arg in reader.args if arg not in known}
        lines += 1 + len(guest.formulas)
        if found and lines + len(fresh) + FRESH * bool(fresh) > ROOM:
            break
        found.append(reader.unit)
        known |= {*reader.targets}
        reader = context.only_reader(reader)
    return found


def _with_guest(context: Context, action: Action) -> Program:
    """The program with one guest taken in. Raises Illegal."""
    host, call, reader, guest = behind(context, action)
    (value,), read = call.targets, context.forward.followed(call.targets[0])
    place = stored_place(context, host.name, value, read)
    made, seen = context.graph[guest.value].type, context.graph[read].type
    check(made is not None and seen is not None and made.shape == seen.shape, "the guest changes the shape")
    assert made is not None and seen is not None
    check(not (place.flat and _needs_rows(context, guest, seen)), "the host has no rows")
    alike = read == value and {"row", "col"} <= {name for name, _, _ in place.frame}
    check(alike or not guest.counts, "the guest counts rows that the host counts otherwise")
    operands = [o for o in guest.operands if o != read]
    host, sizes = _spliced(context, host, guest, read, place)
    host, fused = take_in(host, call, guest, operands, sizes, "out.shape")
    host = _with_dtype(host, place.full, made)
    changed = _joined(context.forward, call, reader, fused)
    changed = everywhere(context, Site(call, reader), sites_behind(context, call), changed)
    return without_dead(host.into(context.program, context.forward.with_calls(changed)))


def _needs_rows(context: Context, guest: Guest, full: TensorType) -> bool:
    types = [context.graph[o].type for o in guest.operands]
    broadcast = [t for t in types if t and pad(t.shape, len(full.shape)) != full.shape and t.numel > 1]
    return guest.counts or bool(broadcast)


def _spliced(context: Context, host: Unit, guest: Guest, read: str, place: Place) -> tuple[Unit, dict[str, str]]:
    """The host with the guest's loads and formulas before its store, and the size arguments they need."""
    check(len(host.stores) == 1, f"{host.name} stores {len(host.stores)} times")
    check_names(host, guest, ())
    at = Access.of(host.stores[0])
    assigned = {target(line) for line in host.lines}
    new: list[Line] = []
    sizes: dict[str, str] = {}
    for operand in guest.operands:
        if operand == read:
            continue
        load, needed = place.load(context, operand, at)
        sizes |= needed
        if code(load) not in host.lines:
            check(operand not in assigned, f"{operand} is already read in another way")
            new.append(load)
    new += [statement(replace_names(formula, {read: at.value})) for formula in guest.formulas]

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        if not is_store(line):
            return None
        return [*new, statement(code(line).replace(f", {at.value}", f", {guest.value}", 1))]

    return host.edit_lines(change), sizes


def _with_dtype(host: Unit, old: TensorType, new: TensorType) -> Unit:
    """The host's output allocated in the guest's type."""

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        if new.dtype == old.dtype or not code(line).startswith("out = "):
            return None
        return [statement(re.sub(r"dtype=[\w.]+", f"dtype=torch.{new.dtype}", code(line)))]

    return host.edit_launcher(change)


def _joined(forward: Forward, call: Call, reader: Call, fused: Call) -> Changed:
    """Lines of the class: the fused call in the reader's place; views between the two follow it."""
    (value,) = call.targets
    if value in reader.args:
        return {call.line: None, reader.line: replace(fused, targets=reader.targets)}
    changed: Changed = {call.line: None}
    between, name = "", value
    while name not in reader.args:
        view = next(v for v in forward.views if v.source == name)
        changed[view.line], name = None, view.target
        between += forward.lines[view.line]
    changed[reader.line] = f"{fused.text}{between}{INDENT}{reader.targets[0]} = {name}\n"
    return changed
