"""The macro policy: a small language model reads the prompt and chooses one option a stage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from mtmc.policies import prompt
from mtmc.policies.menu import Menu, menu
from mtmc.policies.policy import Choice, View

if TYPE_CHECKING:
    from torch import Tensor


Score = Callable[[str, Sequence[Menu]], "list[Tensor]"]
"""Log-probabilities over the options of each menu, behind one prefix: see `scoring.Scorer` and `vllm`."""


@dataclass(frozen=True)
class LlmPolicy:
    """Takes the likeliest action; the probability of an action is the product over its menus.

    `hardware` shows the GPU's card, `guided` the predicted gains. Without `stops` it goes on while anything else is legal,
    as `model` does.
    """

    score: Score
    hardware: bool = True
    name: str = "llm"
    stops: bool = True
    guided: bool = True
    staged: bool = False

    def choose(self, view: View, rng: Random) -> Choice:
        """The choice, and the probability of every legal action. Draws nothing from `rng`."""
        before, gains = prompt.prefix(view, self.hardware), view.gains if self.guided else {}
        chances: dict[str, float] = {}
        level = [(menu(view.legal, gains), 1.0)]  # menus of one depth, each with its probability
        while level:
            deeper = []
            scored = self.score(before, [options for options, _ in level])
            for (options, chance), raw in zip(level, scored, strict=True):
                found = raw if self.stops else _going_on(options, raw)
                for option, share in zip(options, found.exp().tolist(), strict=True):
                    if len(option.actions) > 1:
                        deeper.append((menu(option.actions, gains), chance * share))
                    else:
                        chances[option.actions[0].id] = chance * share
            level = deeper
        return Choice(max(view.legal, key=lambda action: chances[action.id]), chances)


def _going_on(options: Menu, found: Tensor) -> Tensor:
    """Log-probabilities of a menu with nothing left for `stop`, unless nothing else is there."""
    stop = found.new_tensor([option.actions[0].family == "stop" for option in options]).bool()
    return found if bool(stop.all()) else found.masked_fill(stop, -math.inf).log_softmax(-1)
