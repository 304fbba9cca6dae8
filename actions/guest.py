"""What the three fusions share: an elementwise kernel as a *guest* whose loads and formulas move into a *host*'s text.

Names make this simple: a value is called the same in every kernel, so what the host stores (loads) is what the guest
reads (stores).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtmc.action import Action
from mtmc.actions.call_sites import Site
from mtmc.actions.context import Context
from mtmc.actions.forward import Call
from mtmc.actions.split_reduction import splits
from mtmc.actions.unit import Access, Line, Unit, code, is_load, is_store, replace_names, statement, target
from mtmc.errors import check
from mtmc.frames import Frame, broadcasts, operand_offset, pad, seen_through_view
from mtmc.graph import TensorType

# Coordinates that walk the columns of a product's tile have their own bounds; elsewhere `mask` covers every tile coordinate.
MASKS: dict[str, dict[tuple[str, ...], str]] = {
    "contraction.matmul": {("col",): "col < N", ("row",): "row < M"},
    "contraction.bmm": {("col",): "col < N", ("row",): "m < M"},
    "contraction.heads": {("col",): "col < N", ("row",): "m < M"},
    "attention.attention": {("col",): "col < E", ("row",): "m < M"},
    "attention.weighted": {("col",): "col < E", ("row",): "m < M"},
}
TAKING = ("contraction", "attention", "reduction", "normalization", "scan")
REDUCING = ("reduction", "arg_reduction", "moments")


@dataclass(frozen=True)
class Guest:
    """An elementwise unit at one call site, its names replaced by those of the site.

    `scalars` maps a plain-number parameter to the argument at the site; `value` is what the guest stores, named as the
    result at the site.
    """

    operands: tuple[str, ...]
    scalars: dict[str, str]
    formulas: tuple[str, ...]
    value: str

    @property
    def counts(self) -> bool:
        """Whether a formula uses the coordinates themselves."""
        return any(re.search(r"\b(row|col)\b", formula) for formula in self.formulas)


def guest_at(context: Context, call: Call) -> Guest:
    """The guest that a call runs. Raises Illegal unless its unit is an elementwise kernel of the usual form."""
    name = call.unit
    check(context.template(name).startswith("pointwise."), f"{name} is not elementwise")
    unit = Unit.of(context.program, name)
    own = unit.parameters(unit.launcher)
    check(len(own) == len(call.args), f"{name} is called with other arguments")
    site = dict(zip(own, call.args, strict=True))
    scalars = {p: a for p, a in site.items() if p in unit.parameters()}
    names = {p: a for p, a in site.items() if p not in scalars} | {f"{p}_ptr": f"{a}_ptr" for p, a in site.items()}
    stored = [Access.of(line).value for line in unit.stores]
    check(len(stored) == 1 and len(call.targets) == 1, f"{name} stores {len(stored)} times")
    names |= dict(zip(stored, call.targets, strict=True))
    loaded: set[str] = set()
    formulas: list[str] = []
    for line in unit.body:
        if is_load(line):
            loaded.add(names[target(line)])
        elif loaded and not is_store(line):
            formulas.append(_renamed(code(line), names))
    check(bool(formulas), f"{name} has no formula")
    operands = tuple(a for p, a in site.items() if p not in scalars)
    check(set(operands) == loaded, f"{name} does not load its operands plainly")
    return Guest(operands, scalars, tuple(formulas), names[stored[0]])


def _renamed(line: str, names: dict[str, str]) -> str:
    """A formula with its names replaced, the assigned one included."""
    name, _, formula = line.partition(" = ")
    return f"{names.get(name, name)} = {replace_names(formula, names)}"


def behind(context: Context, action: Action) -> tuple[Unit, Call, Call, Guest]:
    """The host an action names, its call, the only reader of its result, and that reader as a guest. Raises Illegal."""
    host = Unit.of(context.program, action.region)
    call = context.leading_call(host.name)
    reader = call and context.only_reader(call)
    check(call is not None and reader is not None, "the host's result has other readers")
    assert call is not None and reader is not None
    check(reader.unit == action["guest"], "the reader is another kernel")
    check("SPLIT" not in host.constants, "the host stores parts of its results")
    return host, call, reader, guest_at(context, reader)


def sites_behind(context: Context, call: Call) -> list[Site]:
    """The further calls of a host, each with the only reader of its result. Raises Illegal where one has none."""
    found = [(other, context.only_reader(other)) for other in context.other_calls(call)]
    check(all(reader for _, reader in found), f"{call.unit} is called where its result has other readers")
    return [Site(other, reader) for other, reader in found if reader]


def awaited(context: Context, call: Call) -> bool:
    """Whether a call is an elementwise kernel that a product, reduction, scan or normalisation before it can take in."""
    if not context.template(call.unit).startswith("pointwise."):
        return False
    for made in context.forward.calls:
        if context.template(made.unit).split(".")[0] in TAKING and context.only_reader(made) == call:
            return _as_large(context, made, call) and not splits(context, Unit.of(context.program, made.unit))
    return False


def _as_large(context: Context, made: Call, reader: Call) -> bool:
    """Whether a kernel's reader has as many elements as its result, or as what it goes over: else it is not taken in."""
    own, *others = (context.type(name) for name in (reader.targets[0], made.targets[0], *made.args))
    return own is None or own.numel in [other.numel for other in others if other]


@dataclass(frozen=True)
class Place:
    """Where in a host a guest computes: the host's template, and the frame that walks a tensor of type `full` there.

    `seen` is the type under which the guest reads the host's value, where that is a view of it; `prefix` tells sizes of a
    reduction's result from those of what is reduced.
    """

    template: str
    frame: Frame
    full: TensorType
    seen: TensorType | None = None
    prefix: str = ""

    @property
    def flat(self) -> bool:
        """The host counts elements, not rows."""
        return bool(self.frame) and self.frame[0][0] == "index"

    def load(self, context: Context, operand: str, at: Access) -> tuple[Line, dict[str, str]]:
        """The line that loads an operand, and its size arguments (name -> text over `{shape}`). Raises Illegal.

        `at` holds index and mask of the host's own access.
        """
        found, full = context.graph[operand].type, self.full.shape
        read = self.seen.shape if self.seen else full
        check(found is not None and broadcasts(found.shape, read), f"{operand} does not broadcast to the host's shape")
        assert found is not None
        shape = seen_through_view(found.shape, read, full) if self.seen else found.shape
        check(shape is not None, f"{operand} covers a part of the host's dimensions")
        assert shape is not None
        if pad(shape, len(full)) == full:
            return load_line(operand, found, at.index, at.mask), {}
        offset = operand_offset(self.frame, full, shape)
        names = {name: f"{self.prefix}{name}" for name in offset.sizes}
        text = "" if offset.text == "0" else replace_names(offset.text, names)
        return load_line(operand, found, text, self._mask(offset.coordinates, at)), {
            names[name]: size for name, size in offset.sizes.items()
        }

    def _mask(self, coordinates: tuple[str, ...], at: Access) -> str:
        """A coordinate that is one number per program needs no mask."""
        masks = MASKS.get(self.template)
        if masks:
            return masks.get(coordinates, at.mask) if coordinates else ""
        uniform = "red" if self.template.endswith(".chan") else "row"
        return at.mask if set(coordinates) - {uniform} else ""


def load_line(name: str, type: TensorType, index: str, mask: str) -> Line:
    """`name = tl.load(name_ptr + index, mask=mask)`, 16-bit values widened."""
    cast = ".to(tl.float32)" if type.dtype in ("float16", "bfloat16") else ""
    return statement(f"{name} = tl.load({name}_ptr{f' + {index}' * bool(index)}{f', mask={mask}' * bool(mask)}){cast}")


def stored_place(context: Context, host: str, out: str, read: str) -> Place:
    """Where the host stores `out`, which the guest reads as `read`. Raises Illegal where the host's frames do not fit."""
    node, made, seen = context.host(host), context.graph[out].type, context.graph[read].type
    check(node is not None and made is not None and "frame_out" in node.kwargs, f"{host} has no known output frame")
    assert node is not None and node.type is not None and made is not None
    view, template = seen if read != out else None, context.template(host)
    if node.type.shape == made.shape:
        prefix = "out_" if template.split(".")[0] in REDUCING else ""
        return Place(template, node.kwargs["frame_out"], made, view, prefix)
    place = loaded_place(context, host)
    check("frame_in" in node.kwargs and place.full.shape == made.shape, f"{out} has another shape")
    return replace(place, full=made, seen=view)


def loaded_place(context: Context, host: str) -> Place:
    """Where the host reads the elements it walks. Raises Illegal for a product."""
    node = context.host(host)
    check(node is not None and node.type is not None and "frame_out" in node.kwargs, f"{host} has no known frame")
    assert node is not None and node.type is not None
    if "frame_in" not in node.kwargs:
        return Place(context.template(host), node.kwargs["frame_out"], node.type)
    source = context.graph[node.inputs[0]].type
    assert source is not None
    return Place(context.template(host), node.kwargs["frame_in"], source)


def take_in(
    host: Unit, call: Call, guest: Guest, operands: Sequence[str], sizes: dict[str, str], shape: str
) -> tuple[Unit, Call]:
    """The host with what a guest reads, and the call that passes it: parameters, arguments, size assignments and checks.

    `shape` is the text that the sizes are read from.
    """
    launcher, kernel = host.parameters(host.launcher), host.arguments
    fresh = [o for o in operands if o not in launcher]
    numbers = {p: a for p, a in guest.scalars.items() if p not in launcher}
    known = dict(zip(launcher, call.args, strict=False))
    check(all(known[p] == a for p, a in guest.scalars.items() if p in launcher), "a number means two things")
    lengths = {k: v.format(shape=shape) for k, v in sizes.items() if k not in kernel}
    pointers = [f"{o}_ptr" for o in fresh]
    host = host.with_parameters([*kernel, *pointers, *numbers, *lengths], [*launcher, *fresh, *numbers])
    host = host.with_extra_arguments([*fresh, *numbers, *lengths])
    checks = [f"assert {' and '.join(f'{o}.is_contiguous()' for o in fresh)}"] if fresh else []
    host = host.beside("out", *(f"{k} = {v}" for k, v in lengths.items()), *checks)
    return host, replace(call, args=(*call.args, *fresh, *numbers.values()))


def check_names(host: Unit, guest: Guest, besides: Sequence[str]) -> None:
    """Raises Illegal where a formula of the guest would assign a name that the host uses for something else."""
    own = {target(line) for line in host.lines} - set(besides)
    for formula in guest.formulas:
        check(target(formula) not in own, f"{target(formula)} is another value in {host.name}")
