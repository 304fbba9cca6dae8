"""Policies: who chooses the next action."""

from __future__ import annotations

from collections.abc import Callable

from mtmc.errors import BadInput
from mtmc.policies.greedy import GreedyPolicy, ModelPolicy
from mtmc.policies.policy import Policy
from mtmc.policies.random import RandomPolicy
from mtmc.policies.weights import EXTRA, NoWeights, source

Tell = Callable[[str], None]

POLICIES: dict[str, Callable[[], Policy]] = {
    "greedy": GreedyPolicy,
    "random": RandomPolicy,
    "model": ModelPolicy,
}
LANGUAGE_MODELS = {"llm": False, "llm-sentences": True}  # by the labels' logits, or by the likelihood of the sentences


def load(name: str, doing: Tell = lambda _: None, note: Tell = lambda _: None) -> Policy:
    """The policy of this name; `llm:PATH[+ADAPTER]` names a model of one's own, `llm` alone is the default one.

    Where the default model cannot be had the choice falls to `greedy`, and `note` is told why. Raises BadInput for an
    unknown name, listing the known, and for a model of one's own that cannot be loaded.
    """
    kind, _, path = name.partition(":")
    if kind in LANGUAGE_MODELS:
        return _language_model(kind, path, doing, note)
    if name not in POLICIES:
        raise BadInput(f"There is no policy {name}; known are {', '.join([*POLICIES, *LANGUAGE_MODELS])}.")
    return POLICIES[name]()


def _language_model(kind: str, path: str, doing: Tell, note: Tell) -> Policy:
    try:
        found = source(path, doing)
        doing("loading the language model")
        from mtmc.policies import llm, scoring

        return llm.LlmPolicy(scoring.load(found), sentences=LANGUAGE_MODELS[kind], name=kind)
    except ImportError as error:
        if path:
            raise BadInput(f"{kind} cannot be used: {EXTRA}.") from error
        note(f"The policy {kind} cannot be used, {EXTRA}; greedy chose in its place.")
    except NoWeights as error:
        note(f"The policy {kind} cannot be used: {error}; greedy chose in its place.")
    return GreedyPolicy()
