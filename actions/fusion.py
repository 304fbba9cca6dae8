"""Fusion: an elementwise kernel moves into the kernel before it (epilogue) or after it (prologue).

Both splice the *guest*'s loads and formulas into the *host*'s text. Names make this simple: a value is called the same in
every kernel, so the host's stored (loaded) value is what the guest reads (stores).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from mtmc.action import Action, Family
from mtmc.actions.context import Context, units
from mtmc.actions.forward import INDENT, Call, Forward
from mtmc.actions.split import splits
from mtmc.actions.unit import Line, Unit, code, is_load, is_store, replace_names, statement, target
from mtmc.errors import Illegal, check
from mtmc.frames import Frame, broadcasts, operand_offset, pad, seen_through_view
from mtmc.graph import TensorType
from mtmc.program import Program

# Coordinates that walk the columns of a product's tile have their own bounds; elsewhere `mask` covers every tile coordinate.
MASKS: dict[str, dict[tuple[str, ...], str]] = {
    "contraction.matmul": {("col",): "col < N", ("row",): "row < M"},
    "contraction.bmm": {("col",): "col < N", ("row",): "m < M"},
}
UNIFORM = {"row"}  # coordinates that are one number per program, outside products


@dataclass(frozen=True)
class Guest:
    """An elementwise unit at one call site, its names replaced by those of the site: loads by operand, formulas, result."""

    operands: tuple[str, ...]
    scalars: tuple[str, ...]
    loads: dict[str, str]
    formulas: tuple[str, ...]
    value: str


def guest_at(context: Context, name: str, call: Call) -> Guest:
    """Raises Illegal unless the unit is an elementwise kernel of the usual form."""
    check(context.template(name).startswith("pointwise."), f"{name} is not elementwise")
    unit = Unit.of(context.program, name)
    own = unit.parameters(unit.launcher)
    check(len(own) == len(call.args), f"{name} is called with other arguments")
    scalars = {p for p in own if p in unit.parameters()}
    names = {p: a if p not in scalars else p for p, a in zip(own, call.args, strict=True)}
    names |= {f"{p}_ptr": f"{a}_ptr" for p, a in zip(own, call.args, strict=True)}
    loads, formulas, value = {}, [], ""
    for line in unit.body:
        text = replace_names(code(line), names)
        if is_load(line):
            loads[names[target(line)]] = text
        elif is_store(line):
            value = code(cst.ensure_type(cst.parse_expression(text), cst.Call).args[1].value)
        elif loads:
            formulas.append(text)
    check(bool(value) and bool(formulas), f"{name} has no formula")
    tensors = tuple(a for p, a in zip(own, call.args, strict=True) if p not in scalars)
    check(set(tensors) == set(loads), f"{name} does not load its operands plainly")
    return Guest(tensors, tuple(p for p in own if p in scalars), loads, tuple(formulas), value)


def out_frame(context: Context, host: str, out: str) -> tuple[Frame, TensorType]:
    """The frame in which the host stores `out`, and `out`'s type. Raises Illegal where the two do not fit."""
    node, made = context.host(host), context.graph[out].type
    check(node is not None and made is not None and "frame_out" in node.kwargs, f"{host} has no known output frame")
    assert node is not None and node.type is not None and made is not None
    if node.type.shape == made.shape:
        return node.kwargs["frame_out"], made
    source = context.graph[node.inputs[0]].type
    check("frame_in" in node.kwargs and source is not None and source.shape == made.shape, f"{out} has another shape")
    return node.kwargs["frame_in"], made


def load_text(
    context: Context, host: str, operand: str, frame: Frame, full: TensorType, read: TensorType | None = None
) -> tuple[str, dict[str, str]]:
    """Text that loads a guest's operand in the host's frame, and its size arguments (name -> text over `{shape}`).

    `read` is the type under which the guest reads the host's value, where that is a view of it.
    """
    found = context.graph[operand].type
    check(
        found is not None and broadcasts(found.shape, (read or full).shape),
        f"{operand} does not broadcast to the host's shape",
    )
    assert found is not None
    shape = seen_through_view(found.shape, read.shape, full.shape) if read else found.shape
    check(shape is not None, f"{operand} covers a part of the host's dimensions")
    assert shape is not None
    cast = ".to(tl.float32)" if found.dtype in ("float16", "bfloat16") else ""
    if pad(shape, len(full.shape)) == full.shape:
        return f"{operand} = tl.load({operand}_ptr + INDEX, MASK){cast}", {}
    offset = operand_offset(frame, full.shape, shape)
    masks = MASKS.get(context.template(host), {})
    tile = [c for c in offset.coordinates if masks or c not in UNIFORM]
    mask = f", mask={masks.get(offset.coordinates, 'MASKED')}" if tile else ""
    at = f" + {offset.text}" if offset.text != "0" else ""
    return f"{operand} = tl.load({operand}_ptr{at}{mask}){cast}", offset.sizes


def _placed(text: str, index: str, mask: str) -> Line:
    """A load at the host's own index and mask expressions; no mask where the host has none."""
    text = re.sub(r"\bINDEX\b", index, text)
    text = text.replace(", MASK)", f", mask={mask})" if mask else ")").replace("mask=MASKED", f"mask={mask}" if mask else "")
    return statement(text.replace(", )", ")"))


class FuseEpilogue:
    """The elementwise kernel after a unit computed on the values before they are stored."""

    kind = "fuse_epilogue"
    family: Family = "fusion"

    def propose(self, context: Context) -> Iterator[Action]:
        forward = context.forward
        for unit in units(context):
            call = _only_call(context, unit.name)
            reader = call and _only_reader(context, forward, call)
            if reader and _unit_name(reader) != unit.name and context.template(_unit_name(reader)).startswith("pointwise."):
                guest = _unit_name(reader)
                if splits(context, unit):  # it must store bare sums to be split, and its few results cost nothing apart
                    continue
                if _awaited(context, forward, call):  # it goes into the kernel before it first, one formula at a time
                    continue
                sentence = f"Fuse the elementwise kernel {guest} into {unit.name}, before its result is stored."
                yield Action(self.kind, self.family, unit.name, (("guest", guest),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        forward, host = context.forward, Unit.of(context.program, action.region)
        call = _only_call(context, host.name)
        reader = call and _only_reader(context, forward, call)
        check(call is not None and reader is not None, "the host's result has other readers")
        assert call is not None and reader is not None
        check(_unit_name(reader) == action["guest"], "the reader is another kernel")
        check("SPLIT" not in host.constants, "the host stores parts of its results")
        guest = guest_at(context, str(action["guest"]), reader)
        (value,) = call.targets
        read = forward.followed(value)
        frame, full = out_frame(context, host.name, value)
        made, seen = context.graph[reader.targets[0]].type, context.graph[read].type
        check(made is not None and seen is not None and made.shape == seen.shape, "the guest changes the shape")
        check(not (frame and frame[0][0] == "index" and _needs_coordinates(context, guest, seen)), "the host has no rows")
        check(read == value or not _coordinates(guest), "the guest counts rows that the host counts otherwise")
        operands = [o for o in guest.operands if o != read]
        host, sizes = _spliced_store(
            context, host, guest, operands, Stored(frame, full, read, seen if read != value else None)
        )
        host = _dtype(_with_operands(host, operands, guest.scalars, sizes, "out.shape"), full, made)
        args = (*call.args, *_added(call, operands), *_scalar_args(context, guest, reader, action))
        program = host.into(context.program).replace("ModelNew", _joined(forward, call, reader, args))
        return without_dead(program)


def _joined(forward: Forward, call: Call, reader: Call, args: tuple[str, ...]) -> str:
    """Class text with the fused call in the reader's place; views between the two follow it."""
    (value,) = call.targets
    if value in reader.args:
        return forward.with_calls({call.line: None, reader.line: replace(call, targets=reader.targets, args=args)})
    changed: dict[int, Call | str | None] = {call.line: None}
    between, name = "", value
    while name not in reader.args:
        view = next(v for v in forward.views if v.source == name)
        changed[view.line], name = None, view.target
        between += forward.lines[view.line]
    changed[reader.line] = f"{replace(call, args=args).text}{between}{INDENT}{reader.targets[0]} = {name}\n"
    return forward.with_calls(changed)


def _coordinates(guest: Guest) -> bool:
    return any(re.search(r"\b(row|col)\b", f) for f in guest.formulas)


@dataclass(frozen=True)
class Stored:
    """How a host stores its value: frame, type, the name under which the guest reads it, its type there if it is a view."""

    frame: Frame
    full: TensorType
    read: str
    seen: TensorType | None


def _scalar_args(context: Context, guest: Guest, reader: Call, action: Action) -> tuple[str, ...]:
    unit = Unit.of(context.program, str(action["guest"]))
    return tuple(a for p, a in zip(unit.parameters(unit.launcher), reader.args, strict=True) if p in guest.scalars)


def _added(call: Call, operands: Sequence[str]) -> tuple[str, ...]:
    return tuple(o for o in operands if o not in call.args)


def _needs_coordinates(context: Context, guest: Guest, full: TensorType | None) -> bool:
    assert full is not None
    shapes = [context.graph[o].type for o in guest.operands]
    return _coordinates(guest) or any(
        s is not None and pad(s.shape, len(full.shape)) != full.shape and s.numel > 1 for s in shapes
    )


def _spliced_store(
    context: Context, host: Unit, guest: Guest, operands: Sequence[str], where: Stored
) -> tuple[Unit, dict[str, str]]:
    """The host with the guest's loads and formulas before its store, and the size arguments they need."""
    sizes: dict[str, str] = {}
    stores = [line for line in host.lines if line.startswith("tl.store(")]
    check(len(stores) == 1, f"{host.name} stores {len(stores)} times")
    present = set(host.lines)

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        if not is_store(line):
            return None
        store = cst.ensure_type(cst.parse_expression(code(line)), cst.Call)
        stored, mask = code(store.args[1].value), next((code(a.value) for a in store.args if a.keyword), "")
        index = code(store.args[0].value).partition(" + ")[2]
        new: list[Line] = []
        for operand in operands:
            text, needed = load_text(context, host.name, operand, where.frame, where.full, where.seen)
            sizes.update(needed)
            load = _placed(text, index, mask)
            if code(load) not in present:
                check(f"{operand}_ptr" not in host.parameters(), f"{operand} is already read in another way")
                new.append(load)
        names = {where.read: stored} if stored != where.read else {}
        new += [statement(replace_names(f, names)) for f in guest.formulas]
        return [*new, statement(code(line).replace(f", {stored}", f", {guest.value}", 1))]

    return host.edit_lines(change), sizes


def _with_operands(host: Unit, operands: Sequence[str], scalars: Sequence[str], sizes: dict[str, str], shape: str) -> Unit:
    """Parameters, launch arguments and size assignments for operands that come in."""
    kernel = [p.name.value for p in host.kernel.params.params if not p.annotation]
    launcher = host.parameters(host.launcher)
    fresh = [o for o in operands if o not in launcher]
    numbers = [s for s in scalars if s not in kernel]
    lengths = {k: v.format(shape=shape) for k, v in sizes.items() if k not in kernel}
    added = [f"{o}_ptr" for o in fresh] + numbers + list(lengths)
    host = host.with_parameters([*kernel, *added], [*launcher, *fresh, *numbers])
    args = [cst.Arg(cst.Name(n)) for n in (*fresh, *numbers, *lengths)]
    plain = [a for a in host.launch.args if not a.keyword]
    named = [a for a in host.launch.args if a.keyword]
    host = host.with_launch([*(a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in plain), *args, *named])
    checks = [statement(f"assert {o}.is_contiguous()") for o in fresh]

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        if not code(line).startswith("out = "):
            return None
        return [line, *(statement(f"{k} = {v}") for k, v in lengths.items()), *checks]

    return host.edit_launcher(change) if lengths or checks else host


def _dtype(host: Unit, old: TensorType, new: TensorType | None) -> Unit:
    if new is None or new.dtype == old.dtype:
        return host

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        if not code(line).startswith("out = "):
            return None
        return [statement(re.sub(r"dtype=[\w.]+", f"dtype=torch.{new.dtype}", code(line)))]

    return host.edit_launcher(change)


class FusePrologue:
    """The elementwise kernel before a unit computed on the values as they are loaded."""

    kind = "fuse_prologue"
    family: Family = "fusion"

    def propose(self, context: Context) -> Iterator[Action]:
        forward = context.forward
        for unit in units(context):
            call = _only_call(context, unit.name)
            if not call or context.template(unit.name).split(".")[0] not in HOSTS:
                continue
            for name in call.args:
                made = forward.assigning(name)
                if (
                    made
                    and not _awaited(context, forward, made)
                    and context.template(_unit_name(made)).startswith("pointwise.")
                    and name not in context.graph.results
                ):
                    sentence = f"Fuse the elementwise kernel {_unit_name(made)} into {unit.name}, where it loads {name}."
                    yield Action(self.kind, self.family, unit.name, (("guest", _unit_name(made)), ("value", name)), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        forward, host, name = context.forward, Unit.of(context.program, action.region), str(action["value"])
        call, made = _only_call(context, host.name), forward.assigning(name)
        check(call is not None and made is not None and name in call.args, f"{host.name} does not read {name} once")
        assert call is not None and made is not None
        guest = guest_at(context, _unit_name(made), made)
        check(guest.value not in host.parameters(), "the value is a parameter already")
        host, sizes, shape = _spliced_load(context, host, guest, name)
        host = _with_operands(_without(host, name), guest.operands, guest.scalars, sizes, shape)
        unit = Unit.of(context.program, _unit_name(made))
        numbers = tuple(a for p, a in zip(unit.parameters(unit.launcher), made.args, strict=True) if p in guest.scalars)
        kept = tuple(a for a in call.args if a != name)
        fused = replace(call, args=(*kept, *(o for o in guest.operands if o not in kept), *numbers))
        changed: dict[int, Call | str | None] = {call.line: fused}
        if forward.uses(name) == 1:
            changed[made.line] = None
        program = host.into(context.program).replace("ModelNew", forward.with_calls(changed))
        return without_dead(program)


HOSTS = ("pointwise", "reduction", "arg_reduction", "moments", "normalization")


def _in_frame(context: Context, host: str) -> tuple[Frame, tuple[int, ...]]:
    node = context.host(host)
    assert node is not None and node.type is not None
    if "frame_in" in node.kwargs:
        source = context.graph[node.inputs[0]].type
        assert source is not None
        return node.kwargs["frame_in"], source.shape
    return node.kwargs["frame_out"], node.type.shape


def _spliced_load(context: Context, host: Unit, guest: Guest, name: str) -> tuple[Unit, dict[str, str], str]:
    """The host with each load of `name` replaced by the guest; size arguments; the text of the full shape."""
    read = context.graph[name].type
    assert read is not None
    frame, full = _in_frame(context, host.name)
    same = {o for o in guest.operands if (t := context.graph[o].type) and t.shape == read.shape}
    whole = pad(read.shape, len(full)) == full
    check(bool(same), "no operand of the guest has its result's shape")
    lead = next((o for o in guest.operands if o in same and context.graph[o].type.dtype == read.dtype), "")  # type: ignore[union-attr]
    check(bool(lead), "no operand of the guest has its result's type")
    sizes: dict[str, str] = {}
    seen: set[str] = set()
    count = 0

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        nonlocal count
        if not (is_load(line) and target(line) == name):
            seen.add(code(line))
            return None
        count += 1
        load = cst.ensure_type(
            cst.parse_expression(re.sub(r"^\w+ = ", "", code(line).removesuffix(".to(tl.float32)"))), cst.Call
        )
        index = code(load.args[0].value).partition(" + ")[2]
        mask = next((code(a.value) for a in load.args if a.keyword and a.keyword.value == "mask"), "")
        new: list[Line] = []
        for operand in guest.operands:
            type_ = context.graph[operand].type
            assert type_ is not None
            if operand in same:
                text = f"{operand} = tl.load({operand}_ptr + INDEX, MASK)" + (
                    ".to(tl.float32)" if "16" in type_.dtype else ""
                )
                text = text if index else text.replace(" + INDEX", "")
            else:
                check(whole or type_.numel == 1, "the guest's operands are broadcast inside a broadcast one")
                check(not (frame[0][0] == "index" and type_.numel > 1), "the host has no rows")
                text, needed = load_text(context, host.name, operand, frame, TensorType(full, read.dtype))
                sizes.update(needed)
            new.append(_placed(text, index, mask))
        new += [statement(f) for f in guest.formulas]
        if guest.value != name:
            new.append(statement(f"{name} = {guest.value}"))
        return new

    changed = host.edit_lines(change)
    check(count > 0, f"{host.name} does not load {name} plainly")
    changed = _deduplicated(changed)
    for operand in guest.operands:
        texts = {t for t in changed.lines if t.startswith(f"{operand} = tl.load(")}
        check(len(texts) == 1, f"{operand} is read in two ways")
    return _redirected(changed, name, lead), sizes, f"{lead}.shape"


def _deduplicated(host: Unit) -> Unit:
    """A load that stands twice in one block is kept once."""

    def block(lines: Sequence[Line]) -> list[Line]:
        kept: list[Line] = []
        seen: set[str] = set()
        for line in lines:
            if isinstance(line, cst.For):
                line = line.with_changes(body=line.body.with_changes(body=block(line.body.body)))  # type: ignore[arg-type]
            elif is_load(line):
                if code(line) in seen:
                    continue
                seen.add(code(line))
            kept.append(line)
        return kept

    return host.with_body(block(host.body))


def _redirected(host: Unit, name: str, lead: str) -> Unit:
    """The launcher reads shape, dtype and device from `lead` instead of `name`."""

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        text = re.sub(rf"\b{name}\.", f"{lead}.", code(line))
        return [statement(text)] if text != code(line) else None

    return host.edit_launcher(change)


def _without(host: Unit, name: str) -> Unit:
    """The operand removed from parameters and launch."""
    kernel = [p.name.value for p in host.kernel.params.params if not p.annotation and p.name.value != f"{name}_ptr"]
    host = host.with_parameters(kernel, [p for p in host.parameters(host.launcher) if p != name])
    return host.with_launch([a for a in host.launch.args if code(a.value) != name])


def _awaited(context: Context, forward: Forward, call: Call | None) -> bool:
    """Is the call an elementwise kernel that a product, reduction or normalisation before it can take in?"""
    if call is None or not context.template(_unit_name(call)).startswith("pointwise."):
        return False
    for made in forward.calls:
        name = _unit_name(made)
        if _only_reader(context, forward, made) == call and context.template(name).split(".")[0] in TAKING:
            return not splits(context, Unit.of(context.program, name))
    return False


TAKING = ("contraction", "reduction", "normalization")


def _unit_name(call: Call) -> str:
    return call.launcher.removeprefix("launch_")


def _only_call(context: Context, unit: str) -> Call | None:
    calls = context.calls(unit)
    return calls[0] if len(calls) == 1 else None


def _only_reader(context: Context, forward: Forward, call: Call) -> Call | None:
    """The one call that reads the one result of `call`, directly or through views, if nothing else does."""
    if len(call.targets) != 1:
        return None
    name = forward.followed(call.targets[0])
    if {name, call.targets[0]} & context.graph.results or forward.uses(name) != 1:
        return None
    readers = forward.calls_reading(name)
    return readers[0] if len(readers) == 1 else None


def without_dead(program: Program) -> Program:
    """The program without units and library functions that nothing calls any more."""
    while True:
        names = [n for n, r in program.regions.items() if r.kind in ("launcher", "kernel", "device")]
        dead = [n for n in names if len(re.findall(rf"\b{n}\b", program.source)) == 1 + _recursive(program, n)]
        if not dead:
            return program
        for name in dead:
            program = program.replace(name, "")


def _recursive(program: Program, name: str) -> int:
    """Mentions of a function inside its own text, the definition aside."""
    return len(re.findall(rf"\b{name}\b", program.text(name))) - 1


class FuseSecondPass:
    """A reduction and the elementwise kernel that applies its result to the same rows become one kernel of two passes."""

    kind = "fuse_second_pass"
    family: Family = "fusion"

    def propose(self, context: Context) -> Iterator[Action]:
        forward = context.forward
        for unit in units(context):
            if context.template(unit.name) not in ("reduction.row", "reduction.mid"):
                continue
            call = _only_call(context, unit.name)
            reader = call and _only_reader(context, forward, call)
            if (
                reader
                and call
                and call.targets[0] in reader.args
                and context.template(_unit_name(reader)) == "pointwise.rows"
            ):
                sentence = f"Let {unit.name} go over its rows again and compute {_unit_name(reader)} in the same kernel."
                yield Action(self.kind, self.family, unit.name, (("guest", _unit_name(reader)),), sentence)

    def apply(self, context: Context, action: Action) -> Program:
        forward, host = context.forward, Unit.of(context.program, action.region)
        call = _only_call(context, host.name)
        reader = call and _only_reader(context, forward, call)
        check(call is not None and reader is not None, "the reduction's result has other readers")
        assert call is not None and reader is not None
        check("SPLIT" not in host.constants, "the host stores parts of its results")
        (value,), guest = call.targets, guest_at(context, _unit_name(reader), reader)
        frame, full = _in_frame(context, host.name)
        out = context.graph[reader.targets[0]].type
        assert out is not None
        check(out.shape == full, "the guest does not go over the same rows")
        check(value in guest.operands, "the guest does not read the reduction itself")
        reduced = context.graph[value].type
        assert reduced is not None
        check(len(reduced.shape) == len(full) or reduced.numel == 1, "the reduction does not keep its dimensions")
        operands = [o for o in guest.operands if o != value]
        host, sizes = _second_loop(context, host, guest, (operands, value), (frame, TensorType(full, out.dtype)))
        lead = next((o for o in operands if context.graph[o].type.shape == full), "")  # type: ignore[union-attr]
        check(bool(lead), "no operand has the full shape")
        host = _with_operands(host, operands, guest.scalars, sizes, f"{lead}.shape")
        host = _full_output(host, lead, out, context.graph[lead].type)
        fused = Call(
            reader.line,
            reader.targets,
            call.launcher,
            (*call.args, *_added(call, operands), *_scalar_args(context, guest, reader, action)),
        )
        program = host.into(context.program).replace("ModelNew", forward.with_calls({call.line: None, reader.line: fused}))
        return without_dead(program)


def _second_loop(
    context: Context, host: Unit, guest: Guest, names: tuple[list[str], str], where: tuple[Frame, TensorType]
) -> tuple[Unit, dict[str, str]]:
    operands, value = names
    store = next((line for line in host.body if is_store(line)), None)
    loop = next((line for line in host.body if isinstance(line, cst.For)), None)
    check(store is not None and loop is not None, "the reduction has another form")
    assert store is not None and loop is not None
    stored = code(cst.ensure_type(cst.parse_expression(code(store)), cst.Call).args[1].value)
    prelude = [line for line in loop.body.body if target(line) in ("col", "red", "mask", "index")]
    sizes: dict[str, str] = {}
    body: list[Line] = list(prelude)  # type: ignore[arg-type]
    for operand in operands:
        text, needed = load_text(context, host.name, operand, *where)
        sizes.update(needed)
        body.append(_placed(text, "index", "mask"))
    body += [statement(replace_names(f, {value: stored})) for f in guest.formulas]
    body.append(statement(f"tl.store(out_ptr + index, {guest.value}, mask=mask)"))
    again = loop.with_changes(body=loop.body.with_changes(body=body))
    kept = [line for line in host.body if line is not store and target(line) != "out_index"]
    return host.with_body([*kept, again]), sizes


def _full_output(host: Unit, lead: str, out: TensorType, like: TensorType | None) -> Unit:
    dtype = f"{lead}.dtype" if like and like.dtype == out.dtype else f"torch.{out.dtype}"

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        text = code(line)
        if text.startswith("out = "):
            return [statement(f"out = torch.empty({lead}.shape, dtype={dtype}, device={lead}.device)")]
        rows = {
            "grid = (out.numel(),)": "out.numel() // cols",
            "grid = (out.numel() // cols * triton.cdiv(cols, BLOCK),)": "",
        }
        if text not in rows:
            return None
        return [statement(f"grid = ({rows[text] or 'out.numel() // (reds * cols) * triton.cdiv(cols, BLOCK)'},)")]

    return host.edit_launcher(change)


__all__ = ["FuseEpilogue", "FusePrologue", "FuseSecondPass", "Illegal", "without_dead"]
