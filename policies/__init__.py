"""Policies: who chooses the next action."""

from __future__ import annotations

from mtmc.errors import BadInput
from mtmc.policies.greedy import GreedyPolicy, ModelPolicy
from mtmc.policies.policy import Policy
from mtmc.policies.random import RandomPolicy

POLICIES: dict[str, type[Policy]] = {
    "greedy": GreedyPolicy,
    "random": RandomPolicy,
    "model": ModelPolicy,
}


def load(name: str) -> Policy:
    """The policy of this name. Raises BadInput for an unknown one, listing the known."""
    if name not in POLICIES:
        raise BadInput(f"There is no policy {name}; known are {', '.join(POLICIES)}.")
    return POLICIES[name]()
