"""Random choice: the family first, so that a family with many parameters does not drown the others, then the action."""

from __future__ import annotations

from random import Random

from mtmc.policies.policy import Choice, View


class RandomPolicy:
    """Stops only where nothing else is legal."""

    name = "random"
    guided = False
    staged = True

    def choose(self, view: View, rng: Random) -> Choice:
        if not view.moves:
            return Choice(view.stop, {view.stop.id: 1.0})
        families = sorted({action.family for action in view.moves})
        members = {family: [a for a in view.moves if a.family == family] for family in families}
        chances = {a.id: 1 / (len(families) * len(group)) for group in members.values() for a in group}
        return Choice(rng.choice(members[rng.choice(families)]), chances)
