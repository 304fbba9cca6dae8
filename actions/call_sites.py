"""A unit that is called at several places: what a fusion does to its leading call it does to all of them, names apart.

The leading call is the one whose tensors are named as the launcher names them; rules look at that one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtmc.actions.context import Context
from mtmc.actions.forward import Call
from mtmc.errors import check

Changed = dict[int, Call | str | None]


@dataclass(frozen=True)
class Site:
    """A call of the host, and the call of the guest that goes into it there."""

    host: Call
    guest: Call

    def names(self, other: Site) -> dict[str, str]:
        """What is called here → what is called there. Raises Illegal where the same things meet otherwise."""
        mine = [*self.host.args, *self.host.targets, *self.guest.args, *self.guest.targets]
        theirs = [*other.host.args, *other.host.targets, *other.guest.args, *other.guest.targets]
        check(self.host.unit == other.host.unit and self.guest.unit == other.guest.unit, "another kernel stands there")
        pairs = dict(zip(mine, theirs, strict=True))
        check(all(pairs[a] == b for a, b in zip(mine, theirs, strict=True)), f"{self.host.unit} is called in other ways")
        return pairs


def everywhere(context: Context, lead: Site, others: Sequence[Site], changed: Changed) -> Changed:
    """`changed` lines of the leading site, and the same for the others. Raises Illegal where a site differs."""
    check(len({site.guest.line for site in (lead, *others)}) == len(others) + 1, "the sites share a guest")
    found = dict(changed)
    for site in others:
        names = lead.names(site)
        check(all(context.type(a) == context.type(b) for a, b in names.items()), f"{lead.host.unit} has other shapes")
        for mine, theirs in ((lead.host, site.host), (lead.guest, site.guest)):
            if mine.line in changed:
                found[theirs.line] = _renamed(changed[mine.line], names)
    return found


def _renamed(line: Call | str | None, names: dict[str, str]) -> Call | None:
    check(not isinstance(line, str), "views stand between the kernels")
    if not isinstance(line, Call):
        return None
    targets = tuple(names.get(name, name) for name in line.targets)
    return replace(line, targets=targets, args=tuple(names.get(arg, arg) for arg in line.args))
