"""What the expert makes of a tree whose best way is known, and walks through it."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from random import Random

import pytest
from fakes import FIRST, FakeEvaluator, FakeMoves

from mtmc import policies, reward
from mtmc.errors import BadInput
from mtmc.evaluation.course import best_gain
from mtmc.policies import decisions
from mtmc.policies.decisions import Expert
from mtmc.policies.hunt import Hunt, shown
from mtmc.policies.replay import Replay
from mtmc.policies.walk import Walk
from mtmc.search import Limits, Search
from mtmc.trajectories import archive
from mtmc.trajectories.store import Ending, Run, RunInfo
from mtmc.tree import better

INFO = RunInfo("world", "hash", "world.py", "Model", "h100", "random", 0, 60, 0.0, "strict", "predicted")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The world of two kernels, searched at random until much of it is known; some programs there are wrong."""
    run = Run.create(tmp_path_factory.mktemp("runs") / "r", INFO)
    search = Search(FakeMoves(mistakes=True), FakeEvaluator(), policies.load("random"), Limits(120), 3)
    for step in search.steps(FIRST):
        run.append(step, search.programs[step.child])
    run.finish(Ending("Enough."))
    (tree,) = decisions.trees([run.folder.parent])
    return tree


def test_the_worth_of_a_step_is_its_gain_and_the_discounted_worth_of_what_a_search_goes_on_to(stored):
    worth = decisions.values(stored, 0.9)
    timing = {key: node.verdict.timing for key, node in stored.nodes.items() if node.verdict.correct}
    ends = set()
    for key, found in worth.items():
        assert found["stop(model)"] == 0.0
        for name, step in stored.edges(key).items():
            if {key, step.child} <= set(timing):
                old, new = timing[key], timing[step.child]
                after = max(worth.get(step.child, {"": 0.0}).values()) if better(new, old) else 0.0
                assert found[name] == pytest.approx(log(new.speedup / old.speedup) + 0.9 * after, abs=1e-6)
                ends.add(better(new, old))
    assert ends == {True, False}


def test_an_expert_finds_the_best_program_sooner_than_chance(stored):
    def candidates(choose):
        hunt, met = Hunt(stored, 999), {stored.root}
        while seen := hunt.view:
            able = [action for action in seen.moves if hunt.has_a_say(action)]
            action = choose(seen.program.key, able)
            met.add(stored.edges(seen.program.key)[action.id].child)
            hunt.take(action)
        assert hunt.gain == pytest.approx(best_gain(stored))
        return len(met) - 1

    worth = decisions.values(stored, 0.95)
    guided = candidates(lambda key, able: max(able, key=lambda action: worth[key][action.id]))
    rng = Random(0)
    assert guided < 0.7 * min(candidates(lambda key, able: rng.choice(able)) for _ in range(5))


def test_what_fails_and_is_not_repaired_is_worth_less_than_stopping(stored):
    worth = decisions.values(stored, 0.95)
    dead_ends = [
        worth[key][name]
        for key in worth
        for name, step in stored.edges(key).items()
        if stored.nodes[key].verdict.correct and not stored.nodes[step.child].verdict.correct and step.child not in worth
    ]
    assert dead_ends and max(dead_ends) < 0


@pytest.mark.parametrize("known", [True, False])
def test_the_expert_shares_sum_to_one_over_options_with_a_say(stored, known):
    found = list(decisions.stages(stored, Expert(), known))
    assert found
    for stage in found:
        assert sum(stage.target) == pytest.approx(1.0)
        assert sum(stage.known) > 1 and 0 < stage.weight <= 1
        assert all(say or share == 0.0 for say, share in zip(stage.known, stage.target, strict=True))


def test_the_expert_is_asked_along_courses_each_decision_once(stored):
    few, many = (list(decisions.stages(stored, Expert(courses=n))) for n in (1, 6))
    places = [(stage.prefix, stage.menu) for stage in many]
    assert len(places) == len(set(places)) and len(few) < len(many)
    later = [stage for stage in many if "\nTried from here:\n- " in stage.prefix]
    assert any(stage.prefix.split("Tried from here:\n")[1].count("\n- ") > 1 for stage in later)
    for stage in later:
        taken = stage.prefix.split("Tried from here:\n- ")[1].split(" (")[0]
        assert taken not in [option.text for option in stage.menu] and sum(stage.target) == pytest.approx(1.0)


def test_the_expert_says_where_to_stop(stored):
    (last,) = [stage for stage in decisions.stages(stored, Expert(courses=0, believes=False)) if stage.weight == 1.0]
    assert last.target[-1] == max(last.target) and last.menu[-1].actions[0].family == "stop"


def test_of_what_nobody_tried_only_what_was_predicted_is_shown():
    stored = next(archive.load(archive.SAMPLES))
    key, edges = stored.root, stored.edges(stored.root)
    seen = Replay(stored).view(key)
    untried = next(action.id for action in seen.moves if action.id not in edges)
    node = replace(stored.nodes[key], predicted={untried: 1.0})
    tree = replace(stored, nodes={**stored.nodes, key: node})
    both, tried = (shown(seen, tree, known) for known in (False, True))
    assert {action.id for action in tried.moves} == edges.keys() & {action.id for action in seen.moves}
    assert {action.id for action in both.moves} == {untried} | {action.id for action in tried.moves}
    assert both.stop == tried.stop == seen.stop


def test_shuffling_keeps_each_option_with_its_share(stored):
    stage = max(decisions.stages(stored), key=lambda stage: len(stage.menu))
    mixed = stage.shuffled(Random(1))
    assert mixed.menu != stage.menu
    assert set(zip(mixed.menu, mixed.target, mixed.known, strict=True)) == set(
        zip(stage.menu, stage.target, stage.known, strict=True)
    )


def test_the_rewards_of_a_walk_add_up_to_what_it_kept(stored):
    for seed in range(20):
        rng, walk = Random(seed), Walk(stored, 8, known=True)
        while walk.view:
            walk.take(rng.choice(walk.view.legal))
        here, first = (reward.graded(stored.nodes[key].verdict) for key in (walk.env.view().program.key, stored.root))
        assert sum(walk.rewards) == pytest.approx(here - first, abs=1e-6)


def test_an_action_is_not_offered_twice_at_a_program(stored):
    rng, walk, seen = Random(0), Walk(stored, 50, known=True), set()
    while walk.view and walk.view.moves:
        action = rng.choice(walk.view.moves)
        key = walk.view.program.key
        assert (key, action.id) not in seen and walk.has_a_say(action)
        seen.add((key, action.id))
        walk.take(action)


def test_the_samples_can_be_read_and_a_folder_without_trees_is_refused(tmp_path):
    found = decisions.trees([archive.SAMPLES])
    assert len(found) >= 5 and all(list(decisions.stages(tree)) for tree in found)
    with pytest.raises(BadInput, match="There are no trees"):
        decisions.trees([tmp_path])
    with pytest.raises(BadInput, match="no folder"):
        decisions.trees([Path(tmp_path / "absent")])


@pytest.mark.parametrize("kind", ["graded", "stepwise"])
def test_a_hunt_meets_the_best_program_and_earns_the_area_under_its_curve(stored, kind):
    horizon, graded = 999, {key: reward.graded(node.verdict) for key, node in stored.nodes.items()}
    for seed in range(10):
        rng, hunt, seen, met, curve = Random(seed), Hunt(stored, horizon, kind), set(), {stored.root}, [graded[stored.root]]
        while hunt.view:
            key, able = hunt.view.program.key, [action for action in hunt.view.legal if hunt.has_a_say(action)]
            assert able and all(action.family != "stop" for action in able)
            action = rng.choice(able)
            assert (key, action.id) not in seen
            seen.add((key, action.id))
            child = stored.edges(key)[action.id].child
            curve += [max(curve[-1], graded[child])] * (child not in met)
            met.add(child)
            hunt.take(action)
        assert hunt.gain == pytest.approx(best_gain(stored))
        if kind == "graded":
            curve += curve[-1:] * (horizon - len(curve) + 1)
            area = sum(curve[1:]) / horizon - curve[0]
            assert sum(hunt.rewards) == pytest.approx(area, abs=1e-6) and min(hunt.rewards) >= 0


def test_a_hunt_is_over_when_its_candidates_are_spent(stored):
    hunt = Hunt(stored, 3, known=True)
    met = {stored.root}
    while hunt.view:
        action = next(action for action in hunt.view.moves)
        met.add(stored.edges(hunt.view.program.key)[action.id].child)
        hunt.take(action)
    assert len(met) - 1 <= 3
