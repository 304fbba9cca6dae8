"""fuse_second_pass: a reduction and the kernel that applies its result to the same rows become one kernel of two passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from mtmc.action import Action
from mtmc.actions.call_sites import Site, everywhere
from mtmc.actions.context import Context, Rule
from mtmc.actions.forward import Call
from mtmc.actions.guest import Guest, Place, behind, check_names, loaded_place, sites_behind, take_in
from mtmc.actions.library_functions import without_dead
from mtmc.actions.unit import Access, Line, Unit, code, in_loop, is_store, loops, replace_names, statement, target
from mtmc.errors import check
from mtmc.graph import TensorType
from mtmc.program import Program

PRELUDE = ("col", "red", "mask", "index")
GRIDS = {  # one program a result -> one program a row
    "grid = (out.numel(),)": "grid = (out.numel() // cols,)",
    "grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)": (
        "grid = (out.numel() // (reds * cols) * triton.cdiv(cols, BLOCK),)"
    ),
}


class FuseSecondPass(Rule):
    """Legal where a row-wise reduction is read by one elementwise kernel over what was reduced."""

    kind = "fuse_second_pass"
    family = "fusion"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            call = context.leading_call(unit.name)
            reader = call and context.only_reader(call)
            if not (call and reader and context.template(unit.name) in ("reduction.row", "reduction.mid")):
                continue
            if call.targets[0] in reader.args and context.template(reader.unit) == "pointwise.rows":
                sentence = f"Let {unit.name} go over its rows again and compute {reader.unit} in the same kernel."
                yield self.action(unit.name, sentence, guest=reader.unit)

    def apply(self, context: Context, action: Action) -> Program:
        host, call, reader, guest = behind(context, action)
        (value,), place = call.targets, loaded_place(context, host.name)
        out, reduced, full = context.graph[guest.value].type, context.graph[value].type, place.full.shape
        assert out is not None and reduced is not None
        check(out.shape == full, "the guest does not go over the same rows")
        check(value in guest.operands, "the guest does not read the reduction itself")
        check(len(reduced.shape) == len(full) or reduced.numel == 1, "the reduction does not keep its dimensions")
        operands = [o for o in guest.operands if o != value]
        types = {o: context.graph[o].type for o in operands}
        lead = next((o for o, type in types.items() if type and type.shape == full), "")
        check(bool(lead), "no operand has the full shape")
        host, sizes = _second_loop(context, host, guest, value, place)
        host, fused = take_in(host, call, guest, operands, sizes, f"{lead}.shape")
        host = _full_output(host, lead, out, types[lead])
        changed: dict[int, Call | str | None] = {call.line: None, reader.line: replace(fused, targets=reader.targets)}
        changed = everywhere(context, Site(call, reader), sites_behind(context, call), changed)
        return without_dead(host.into(context.program, context.forward.with_calls(changed)))


def _second_loop(context: Context, host: Unit, guest: Guest, value: str, place: Place) -> tuple[Unit, dict[str, str]]:
    """The host with a second loop that stores what the guest makes of the reduction, and the size arguments it needs."""
    check(len(host.stores) == 1 and bool(loops(host.body)), "the reduction has another form")
    loop = loops(host.body)[0]
    prelude = [line for line in loop.body.body if target(line) in PRELUDE]
    sizes: dict[str, str] = {}
    body = [line for line in prelude if isinstance(line, cst.BaseStatement)]
    for operand in guest.operands:
        if operand != value:
            load, needed = place.load(context, operand, Access("index", "mask"))
            sizes |= needed
            body.append(load)
    names = {value: Access.of(host.stores[0]).value}
    body += [statement(replace_names(formula, names)) for formula in guest.formulas]
    body.append(statement(f"tl.store(out_ptr + index, {guest.value}, mask=mask)"))
    check_names(host, guest, ())
    kept = [line for line in host.body if not is_store(line) and target(line) != "out_index"]
    return host.with_body([*kept, in_loop(loop, body)]), sizes


def _full_output(host: Unit, lead: str, out: TensorType, like: TensorType | None) -> Unit:
    """The launcher allocates the full result and starts one program a row."""
    dtype = f"{lead}.dtype" if like and like.dtype == out.dtype else f"torch.{out.dtype}"

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        text = code(line)
        if text.startswith("out = "):
            return [statement(f"out = torch.empty({lead}.shape, dtype={dtype}, device={lead}.device)")]
        return [statement(GRIDS[text])] if text in GRIDS else None

    return host.edit_launcher(change)
