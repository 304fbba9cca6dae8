"""Predicted gains as the language model reads them: who reads only the hints chooses as `model`, and reaches everything."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf
from random import Random

import pytest
import torch
from policy_views import FUSE, STAGES, STOP, tiles, view

from mtmc import policies
from mtmc.evaluation.course import Runner, best_gain
from mtmc.policies import decisions, prompt
from mtmc.policies.decisions import Expert
from mtmc.policies.llm import LlmPolicy
from mtmc.policies.menu import LABELS, menu
from mtmc.policies.replay import Replay
from mtmc.trajectories import archive

SAMPLES = decisions.trees([archive.SAMPLES])
LINE = re.compile(r"^([A-Z])\. (?:#(\d+) [+-]\d+% )?", re.MULTILINE)


def reading(prefix, menus):
    """A scorer of the prompt's text alone: the lower the place in a hint, the likelier; what has none comes last."""
    found = []
    for options in menus:
        places = [int(place) if place else 2 * len(LABELS) for _, place in LINE.findall(prompt.text(options))]
        assert len(places) == len(options)
        found.append((-2.0 * torch.tensor(places)).float().log_softmax(-1))
    return found


def decided(tree):
    """A view at every program of a tree, with the predicted times that the tree knows."""
    for key in tree.nodes:
        replay = Replay(tree)
        yield replay.view(replay.follow(tree.tree.path(key)))


@pytest.mark.parametrize("tree", SAMPLES, ids=lambda tree: tree.question.name)
def test_who_reads_the_hints_takes_the_lowest_predicted_time(tree):
    policy, model = LlmPolicy(reading, stops=False), policies.load("model")
    seen = [view for view in decided(tree) if view.gains]
    assert seen
    for here in seen:
        chosen, wanted = (p.choose(here, Random(0)).action for p in (policy, model))
        assert here.predicted.get(chosen.id, inf) == here.predicted.get(wanted.id, inf)


@pytest.mark.parametrize("tree", SAMPLES, ids=lambda tree: tree.question.name)
def test_every_legal_action_has_a_probability_and_a_course_ends_at_the_best(tree):
    policy = LlmPolicy(reading, stops=False)
    for here in decided(tree):
        chances = policy.choose(here, Random(0)).probabilities
        assert set(chances) == {action.id for action in here.legal} and sum(chances.values()) == pytest.approx(1.0)
    runner = Runner(tree, policy, Random(0), 99)
    runner.run()
    assert runner._found == pytest.approx(best_gain(tree))


def test_a_hint_has_the_place_in_the_menu_and_the_gain_over_the_best_program():
    actions = tiles("softmax", 20)
    seen = view(20, predicted={FUSE.id: 0.08, STAGES.id: 0.11, actions[3].id: 0.05, actions[4].id: 0.2}, best_ms=0.1)
    options = menu(seen.legal, seen.gains)
    assert [option.hint for option in options] == ["#2 +25%", "#3 -9%", "#1 +100%", ""]
    inside = menu(options[2].actions, seen.gains)
    assert [option.hint for option in inside if option.hint] == ["#1 +100%", "#2 -50%"]
    assert "A. #2 +25% Fuse" in prompt.text(options) and f"D. {STOP.sentence}" in prompt.text(options)
    assert "predicted" not in prompt.text(menu(seen.legal)) and not replace(seen, best_ms=None).gains


def test_the_blind_one_sees_no_hints():
    told = []

    def listening(prefix, menus):
        told.extend(prompt.text(options) for options in menus)
        return reading(prefix, menus)

    seen = view(predicted={FUSE.id: 0.08}, best_ms=0.1)
    for guided in (True, False):
        told.clear()
        LlmPolicy(listening, guided=guided).choose(seen, Random(0))
        assert any("#1 +25%" in text for text in told) is guided


def test_the_expert_believes_predictions_of_what_nobody_tried_as_far_as_they_hold():
    tree = next(tree for tree in SAMPLES if len(tree.nodes[tree.root].predicted) > len(tree.edges(tree.root)))
    worth = decisions.values(tree, 0.0)[tree.root]
    believed = decisions._believed(tree, tree.root, worth)
    root = tree.nodes[tree.root]
    assert believed and not believed.keys() & tree.edges(tree.root).keys()
    name = max(believed, key=believed.__getitem__)
    assert root.predicted[name] == min(ms for n, ms in root.predicted.items() if ms and n in believed)
    tried, all_known = (sum(sum(s.known) for s in decisions.stages(tree, Expert(believes=b))) for b in (False, True))
    assert tried < all_known
