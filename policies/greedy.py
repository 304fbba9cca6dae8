"""Model-guided choice: the action with the best predicted time, as long as one is worth a try."""

from __future__ import annotations

from math import inf
from random import Random

from mtmc.action import Action
from mtmc.policies.policy import NEUTRAL, Choice, View

TIE = 1.01  # within this of the least, the rules' own order decides: a fusion into the kernel before comes first
GAIN = 0.995  # predicted times closer than 0.5 % are the same
DOUBT = 1.01  # when times are measured, the model may be wrong by this much …
PATIENCE = 3  # … for so many tries in a row
LOSING = 1.1  # while PyTorch is measured to be as fast, everything within this is tried: only the budget can be lost


class GreedyPolicy:
    """Takes the lowest predicted time; stops when no action is predicted to beat the best program so far."""

    name = "greedy"
    guided = True
    staged = True

    def choose(self, view: View, rng: Random) -> Choice:
        worth = [action for action in view.moves if _worth_a_try(action, view)]
        if not worth:
            return Choice(view.stop)
        least = min(view.predicted[action.id] for action in worth)
        return Choice(next(action for action in worth if view.predicted[action.id] <= TIE * least))


class ModelPolicy:
    """Takes the lowest predicted time, whatever it is, and what has none after that; stops where nothing else is legal."""

    name = "model"
    guided = True
    staged = True

    def choose(self, view: View, rng: Random) -> Choice:
        return Choice(min(view.moves, key=lambda action: view.predicted.get(action.id, inf), default=view.stop))


def _worth_a_try(action: Action, view: View) -> bool:
    predicted = view.predicted.get(action.id)
    if predicted is None:
        return False
    if view.best_ms is None:
        return True
    return predicted < _margin(action, view) * view.best_ms


def _margin(action: Action, view: View) -> float:
    """By how much the prediction may be above the best program's for the action to be tried.

    What measured outcomes speak of leaves no room for doubt, and a gain below the noise could not be told from none.
    """
    if action.id in view.seen:
        return 1 - view.noise
    gain = min(GAIN, 1 - view.noise)
    if view.losing:
        return LOSING
    if view.measured and view.failures < PATIENCE:
        return DOUBT
    plateau = action.family == "fusion" and not view.failures  # one from each program: else all orders would be tried
    return NEUTRAL if plateau else gain
