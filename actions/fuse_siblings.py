"""fuse_siblings: two reductions over the rows of one tensor become one kernel that reads it once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import libcst as cst

from mtmc.action import Action
from mtmc.actions.call_sites import Changed
from mtmc.actions.context import Context, Rule
from mtmc.actions.forward import Call, Forward
from mtmc.actions.library_functions import without_dead
from mtmc.actions.unit import Line, Unit, code, in_loop, loops, replace_names, statement, target, targets
from mtmc.errors import check
from mtmc.program import Program

SHARED = ("row", "col", "mask", "index", "out_index", "start", "cols")  # mean the same in every reduction of rows
MADE_ANEW = ("out", "grid")  # what the launcher of a reduction assigns, tile constants beside it


class FuseSiblings(Rule):
    """Legal for two reductions over rows that read a tensor in common; they may be two calls of one kernel."""

    kind = "fuse_siblings"
    family = "fusion"

    def propose(self, context: Context) -> Iterator[Action]:
        rows = [call for call in context.forward.calls if context.template(call.unit) == "reduction.row"]
        for first, second in combinations(rows, 2):
            shared = [name for name in first.args if name in second.args and _walked(context, first.unit, name)]
            if shared:
                sentence = f"Reduce {second.targets[0]} in {first.unit} as well, which reads {shared[0]} already."
                yield self.action(first.unit, sentence, value=second.targets[0])

    def apply(self, context: Context, action: Action) -> Program:
        first = context.leading_call(action.region)
        second = context.forward.assigning(str(action["value"]))
        check(first is not None and second is not None and first != second, "there are not two calls")
        assert first is not None and second is not None
        units = {first.unit, second.unit}
        check(all(context.template(name) == "reduction.row" for name in units), "not a reduction of rows")
        check(set(context.calls(first.unit)) <= {first, second}, f"{first.unit} is called elsewhere")
        made = [context.graph[call.targets[0]].type for call in (first, second)]
        check(made[0] == made[1] and len(second.targets) == 1, "the results have other types")
        host = Unit.of(context.program, first.unit)
        guest = _sibling(host, Unit.of(context.program, second.unit), second)
        joined = replace(first, targets=(*first.targets, *second.targets), args=(*first.args, *guest.tensors))
        changed = _placed(context.forward, first, second, joined)
        return without_dead(_joined(host, guest).into(context.program, context.forward.with_calls(changed)))


def _walked(context: Context, unit: str, name: str) -> bool:
    """Whether a reduction loads a tensor of the full shape under this name."""
    host = context.host(unit)
    full, own = host and context.graph[host.inputs[0]].type, context.graph[name].type
    return bool(full and own) and full.numel == own.numel  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Sibling:
    """A reduction with its names replaced so that it stands beside the host's, cut into what goes where."""

    before: tuple[Line, ...]
    loop: tuple[Line, ...]
    after: tuple[Line, ...]
    arguments: dict[str, str]  # kernel's parameter → launch argument, of what the host lacks
    tensors: tuple[str, ...]  # arguments of the call that the host lacks
    launcher: tuple[str, ...]  # sizes and checks
    out: str


def _sibling(host: Unit, unit: Unit, call: Call) -> _Sibling:
    """Raises Illegal where the two kernels walk their rows differently."""
    check(list(host.constants) == list(unit.constants) and "SPLIT" not in host.constants, "the tiles are of other kinds")
    ours, theirs = loops(host.body), loops(unit.body)
    check(len(ours) == len(theirs) == 1, "there is not one loop in each")
    check(code(ours[0].iter) == code(theirs[0].iter), "the loops are of other kinds")
    place = unit.body.index(theirs[0])
    names = _names(host, unit, call)
    arguments = {p: code(a.value) for p, a in zip(unit.arguments, unit.launch.args, strict=False)}
    renamed = {replace_names(p, names): replace_names(a, names) for p, a in arguments.items()}
    lines = [_whole(line, names) for line in unit.launcher.body.body]
    return _Sibling(
        _fresh(host.lines, unit.body[:place], names),
        _fresh(host.lines, [line for line in theirs[0].body.body if isinstance(line, cst.BaseStatement)], names),
        _fresh(host.lines, unit.body[place + 1 :], names),
        {p: a for p, a in renamed.items() if p not in host.arguments},
        tuple(a for a in call.args if a not in host.parameters(host.launcher)),
        tuple(text for text in lines if text and text not in [code(line) for line in host.launcher.body.body]),
        names["out"],
    )


def _names(host: Unit, unit: Unit, call: Call) -> dict[str, str]:
    """The sibling's names → those beside the host: tensors as at its call, the rest with a number where taken."""
    number = len(host.stores) + 1
    names = dict(zip(unit.parameters(unit.launcher), call.args, strict=True))
    names |= {f"{p}_ptr": f"{a}_ptr" for p, a in names.items()} | {"out": f"out_{number}", "out_ptr": f"out_{number}_ptr"}
    taken = {name for line in host.body for name in _assigned(line)}
    own = [name for line in unit.body for name in _assigned(line) if name not in names and name not in SHARED]
    return names | {name: f"{name}_{number}" if name in taken else name for name in own}


def _assigned(line: Line) -> list[str]:
    inside = line.body.body if isinstance(line, cst.For) else [line]
    return [name for inner in inside for name in targets(inner) or [target(inner)] if name]


def _fresh(present: Sequence[str], lines: Sequence[Line], names: dict[str, str]) -> tuple[Line, ...]:
    """Lines with other names, those left out that the host has already."""
    texts = [_renamed(code(line), names) for line in lines]
    return tuple(statement(text) for text in texts if text not in present)


def _renamed(text: str, names: dict[str, str]) -> str:
    """A line with its names replaced, the assigned ones included."""
    left, equals, right = text.partition(" = ")
    if not equals or "(" in left:
        return replace_names(text, names)
    return f"{', '.join(names.get(name, name) for name in left.split(', '))} = {replace_names(right, names)}"


def _whole(line: cst.CSTNode, names: dict[str, str]) -> str:
    """A launcher's line of sizes or checks with other names; empty for what the host's launcher has of its own."""
    text, assigned = code(line), targets(line)
    own = text.startswith(("return ", '"""')) or "_kernel[" in text or any(n in MADE_ANEW or n.isupper() for n in assigned)
    return "" if own or assigned == ["cols"] else _renamed(text, names)


def _joined(host: Unit, guest: _Sibling) -> Unit:
    """The host that does the sibling's work too, and returns both results."""
    known = [code(line).partition(" = ")[0] for line in host.launcher.body.body]
    check(not any(text.partition(" = ")[0] in known for text in guest.launcher), "a size means two things")
    body: list[Line] = []
    for line in host.body:
        if isinstance(line, cst.For):
            body += [*guest.before, in_loop(line, [*_statements(line), *guest.loop])]
        else:
            body.append(line)
    host = host.with_body([*body, *guest.after])
    tensors = [*host.parameters(host.launcher), *guest.tensors]
    host = host.with_parameters([*host.arguments, *guest.arguments], tensors)
    host = host.with_extra_arguments(list(guest.arguments.values()))
    host = host.beside("out", f"{guest.out} = torch.empty_like(out)", *guest.launcher)

    def change(line: cst.SimpleStatementLine) -> Sequence[Line] | None:
        return [statement(f"{code(line)}, {guest.out}")] if code(line).startswith("return ") else None

    return host.edit_launcher(change)


def _statements(loop: cst.For) -> list[cst.BaseStatement]:
    return [line for line in loop.body.body if isinstance(line, cst.BaseStatement)]


def _placed(forward: Forward, first: Call, second: Call, joined: Call) -> Changed:
    """The joined call where the later of the two stands, or where the earlier does. Raises Illegal where neither will do."""
    early, late = sorted((first, second), key=lambda call: call.line)
    between = "".join(forward.lines[early.line + 1 : late.line])
    if not re.search(rf"\b{early.targets[0]}\b", between):
        return {early.line: None, late.line: joined}
    made = [name for call in forward.calls if early.line < call.line < late.line for name in call.targets]
    made += [view.target for view in forward.views if early.line < view.line < late.line]
    check(not set(made) & set(late.args), "what is between the two reads the one and makes what the other reads")
    return {early.line: joined, late.line: None}
