"""Policies: who chooses the next action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mtmc.errors import BadInput
from mtmc.policies.greedy import GreedyPolicy, ModelPolicy
from mtmc.policies.policy import Policy
from mtmc.policies.random import RandomPolicy
from mtmc.policies.weights import EXTRA, NoWeights, source

if TYPE_CHECKING:
    from torch import Tensor

    from mtmc.policies.llm import Score
    from mtmc.policies.menu import Menu
    from mtmc.policies.scoring import Scorer

Tell = Callable[[str], None]

POLICIES: dict[str, Callable[[], Policy]] = {
    "greedy": GreedyPolicy,
    "random": RandomPolicy,
    "model": ModelPolicy,
}


def _scorer(path: str, doing: Tell) -> Scorer:
    found = source(path, doing)
    doing("loading the language model")
    from mtmc.policies import scoring

    return scoring.load(found)


def _vllm(path: str, doing: Tell) -> Score:
    from mtmc.policies import vllm

    return vllm.load(path, doing).by_label


BLIND = "llm-blind"
GOING_ON = ("llm-on", BLIND)
LANGUAGE_MODELS: dict[str, Callable[[str, Tell], Score]] = {
    "llm": lambda path, doing: _scorer(path, doing).by_label,
    "llm-on": lambda path, doing: _scorer(path, doing).by_label,
    "llm-blind": lambda path, doing: _scorer(path, doing).by_label,
    "llm-sentences": lambda path, doing: _scorer(path, doing).by_sentence,
    "vllm": _vllm,
}


def load(name: str, doing: Tell = lambda _: None, note: Tell = lambda _: None) -> Policy:
    """The policy of this name; `llm:PATH[+ADAPTER]` names a model of one's own, `llm` alone is the default one.

    `llm-on` never stops while anything else is legal, `llm-blind` does neither and sees no predicted times (for comparison),
    `llm-sentences` scores texts.
    `vllm` takes the same, or the URL of a server. Where the default model cannot be had the choice falls to `greedy`, and
    `note` is told why. Raises BadInput for an unknown name, listing the known, and for a model of one's own that cannot be
    loaded; InfraError where a server does not answer.
    """
    kind, path = _parts(name)
    return _language_model(kind, path, doing, note) if kind in LANGUAGE_MODELS else POLICIES[name]()


def check(name: str, doing: Tell = lambda _: None) -> None:
    """Fetch what `load` needs, and load nothing. Raises BadInput for an unknown name, and where a model is not to be had."""
    kind, path = _parts(name)
    if kind not in LANGUAGE_MODELS or "://" in path:
        return
    try:
        source(path, doing)
    except NoWeights as error:
        raise BadInput(f"The policy {name} cannot be used: {error}.") from error


def _parts(name: str) -> tuple[str, str]:
    """Kind and path. Raises BadInput for an unknown name, listing the known."""
    kind, _, path = name.partition(":")
    if kind not in LANGUAGE_MODELS and name not in POLICIES:
        raise BadInput(f"There is no policy {name}; known are {', '.join([*POLICIES, *LANGUAGE_MODELS])}.")
    return kind, path


def _in_turn(score: Score) -> Score:
    """The same, computed when it disturbs nobody's times: it takes turns with the jobs of judges."""
    import torch

    from mtmc.judge.cache import cache_folder
    from mtmc.judge.turns import turn

    folder, gpu = cache_folder() / "compiled", torch.cuda.is_available()

    def scored(prefix: str, menus: Sequence[Menu]) -> list[Tensor]:
        with turn(folder, gpu, alone=False, shares=True):
            return score(prefix, menus)

    return scored


def _language_model(kind: str, path: str, doing: Tell, note: Tell) -> Policy:
    try:
        score = LANGUAGE_MODELS[kind](path, doing)
        from mtmc.policies.llm import LlmPolicy

        return LlmPolicy(_in_turn(score), name=kind, stops=kind not in GOING_ON, guided=kind != BLIND)
    except ImportError as error:
        if path:
            raise BadInput(f"{kind} cannot be used: {EXTRA}.") from error
        note(f"The policy {kind} cannot be used, {EXTRA}; greedy chose in its place.")
    except NoWeights as error:
        note(f"The policy {kind} cannot be used: {error}; greedy chose in its place.")
    return GreedyPolicy()
