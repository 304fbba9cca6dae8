"""Menus: the legal actions as at most 26 labelled options a stage.

A short list is one stage, an action an option. A longer one is split by family and region first; each group is a menu of
its own. Whatever does not fit is one option that leads to a further menu, so that every action can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase

from mtmc.action import Action

Gains = Mapping[str, float]
"""By action id, the predicted speed-up over the best program so far, less 1; unknown ones are missing."""
LABELS = ascii_uppercase
NOTHING: Gains = {}
FLAT = 12  # as many single actions are one stage: their sentences are about as long as the cards


@dataclass(frozen=True)
class Option:
    """One line of a menu: the text, and the actions it stands for: one, or several that the next menu tells apart.

    Where something is predicted, `rank` is the place of its best action among the menu's predicted ones, from 1 on, and
    `gain` that one's; else they are 0.
    """

    text: str
    actions: tuple[Action, ...]
    rank: int = 0
    gain: float = 0.0

    @property
    def hint(self) -> str:
        """Place and gain, as `#1 +35%`; empty where nothing is predicted."""
        return f"#{self.rank} {self.gain:+.0%}" if self.rank else ""


Menu = tuple[Option, ...]


def length(options: Menu) -> int:
    """Characters of the options, about: rows of like length are put together."""
    return sum(len(option.text) + len(option.hint) for option in options)


def menu(actions: Sequence[Action], gains: Gains = NOTHING) -> Menu:
    """The options of one stage, at most 26, in the order of the actions; `stop`, which stands last, stays last."""
    return _hinted(_menu(actions), gains)


def _menu(actions: Sequence[Action]) -> Menu:
    groups = _groups(actions)
    if len(actions) <= FLAT or len(groups) == 1:
        groups = [(action,) for action in actions]
    if len(groups) > len(LABELS):
        shown = len(LABELS) - 2
        rest = tuple(action for group in groups[shown:-1] for action in group)
        return (
            *map(_option, groups[:shown]),
            Option(f"Something else ({len(rest)} more choices).", rest),
            _option(groups[-1]),
        )
    return tuple(map(_option, groups))


def _hinted(options: Menu, gains: Gains) -> Menu:
    """The options with their hints. Equal gains rank as the options stand."""
    known = [[gains[action.id] for action in option.actions if action.id in gains] for option in options]
    best = {at: max(found) for at, found in enumerate(known) if found}
    ranks = {at: rank for rank, at in enumerate(sorted(best, key=lambda at: -best[at]), 1)}
    return tuple(
        replace(option, rank=ranks[at], gain=best[at]) if at in ranks else option for at, option in enumerate(options)
    )


def _groups(actions: Sequence[Action]) -> list[tuple[Action, ...]]:
    """By family and region, in the order in which they first occur."""
    found: dict[tuple[str, str], list[Action]] = {}
    for action in actions:
        found.setdefault((action.family, action.region), []).append(action)
    return [tuple(group) for group in found.values()]


def _option(group: tuple[Action, ...]) -> Option:
    if len(group) == 1:
        return Option(group[0].sentence, group)
    kinds = ", ".join(dict.fromkeys(action.kind for action in group))
    first = group[0]
    return Option(f"{first.family.capitalize()} of {first.region}: {kinds} ({len(group)} choices).", group)
