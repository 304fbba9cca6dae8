"""The search on a world of two kernels whose best program is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from fakes import FIRST, STOP, FakeEvaluator, FakeMoves, time_ms, value

from mtmc import policies
from mtmc.action import Action
from mtmc.errors import BadInput
from mtmc.policies.policy import Choice, View
from mtmc.search import Limits, Scope, Search
from mtmc.step import Step
from mtmc.tree import Tree, better, candidate_ms, reference_ms
from mtmc.verdict import Infra, Timing, Verdict


def run(policy="greedy", evaluator=None, limits=None, seed=0, known=None, mistakes=False):
    limits, known = limits or Limits(), known or {}
    search = Search(FakeMoves(mistakes), evaluator or FakeEvaluator(), policies.load(policy), limits, seed, known)
    return search, list(search.steps(FIRST))


def test_a_fault_of_the_machine_is_no_verdict_on_a_program_met_again() -> None:
    evaluator = FakeEvaluator()
    search = Search(FakeMoves(), evaluator, policies.load("greedy"), Limits(3))
    lost = replace(next(iter(search.steps(FIRST))), verdict=Infra("the GPU is lost"))
    search.tree.add(replace(lost, child="other"))
    again = search._judged("", replace(FIRST, source=FIRST.source + "\n"), None)
    assert again.cached and again.verdict.correct
    search.tree.graph.nodes[FIRST.key]["verdict"] = lost.verdict
    again = search._judged("", FIRST, None)
    assert not again.cached and again.verdict.correct and evaluator.judged.count(FIRST.key) == 2


def test_greedy_finds_the_best_program_and_stops_by_itself():
    search, steps = run()
    best = search.programs[search.tree.best]
    assert (value(best, "gemm", "BLOCK"), value(best, "gemm", "STAGES")) == (128, 3)
    assert (value(best, "relu", "BLOCK"), value(best, "relu", "STAGES")) == (64, 3)
    assert value(best, "", "FUSED") == 1
    assert "No action is left" in search.reason
    assert len(search.tree.path(best.key)) == len(steps) - 1 == 5, "every judged candidate was a step forward"


def test_structure_comes_first_then_the_unit_with_the_largest_share():
    _, steps = run()
    assert [s.action.region for s in steps if s.action] == ["model", "gemm", "gemm", "relu", "relu"]


def test_giving_a_region_back_waits_for_the_last_stage():
    give = Action("give", "library", "gemm", (), "Give gemm back.")
    assert [Scope(name).holds(give) for name in ("model", "gemm", "")] == [False, False, True]
    fuse = Action("fuse", "fusion", "gemm", (), "Fuse.")
    assert [Scope(name).holds(fuse) for name in ("model", "gemm", "")] == [True, False, True]
    tile = Action("tile", "tiling", "gemm", (), "Tile.")
    assert [Scope(name).holds(tile) for name in ("model", "gemm", "relu", "")] == [False, True, False, True]


def test_a_candidate_that_cannot_run_is_predicted_but_never_judged():
    search, _ = run()
    assert all(value(search.programs[key], "relu", "BLOCK") <= 64 for key in search.evaluator.judged)


def test_nothing_is_judged_or_compiled_twice():
    search, _ = run("random", limits=Limits(25))
    assert len(search.evaluator.judged) == len(set(search.evaluator.judged))
    greedy, _ = run()
    assert len(greedy.evaluator.predicted) == len(set(greedy.evaluator.predicted))


@pytest.mark.parametrize("policy", ["greedy", "random"])
def test_the_budget_counts_judged_candidates(policy):
    search, _ = run(policy, limits=Limits(3))
    assert len(search.evaluator.judged) == 4, "the first program and three candidates"
    assert "budget of 3" in search.reason


def test_no_time_means_only_the_first_program():
    search, steps = run(limits=Limits(seconds=-1.0))
    assert len(steps) == 1 and "time given" in search.reason


@pytest.mark.parametrize(("waiting", "steps"), [(0.0, 1), (100.0, 6)])
def test_waiting_for_others_is_no_search_time(waiting, steps):
    waited = [100.0]  # what was waited for before the search began is not given back
    search = Search(FakeMoves(), FakeEvaluator(), policies.load("greedy"), Limits(seconds=-50.0), waited=lambda: waited[0])
    waited[0] += waiting
    assert len(list(search.steps(FIRST))) == steps


def test_equal_seeds_give_equal_runs_and_seeds_matter():
    def paths(seed):
        return [(s.parent, s.child) for s in run("random", limits=Limits(12), seed=seed)[1]]

    assert paths(1) == paths(1)
    assert len({tuple(paths(seed)) for seed in range(4)}) > 1


@pytest.mark.parametrize("policy", ["greedy", "random"])
@pytest.mark.parametrize("cut", [1, 4])
def test_a_replayed_run_judges_only_what_is_new_and_ends_the_same(policy, cut):
    whole, steps = run(policy, limits=Limits(10))
    again, replayed = run(policy, limits=Limits(10), known={s.child: s.verdict for s in steps[:cut]})
    assert [s.child for s in replayed] == [s.child for s in steps]
    assert again.tree.best == whole.tree.best
    assert not set(again.evaluator.judged) & {s.child for s in steps[:cut]}


def test_a_program_at_the_floor_ends_the_search():
    search, steps = run(limits=Limits(attainable_ms=time_ms(FIRST) / 1.04))
    assert len(steps) == 1 and "nothing is left to win" in search.reason
    assert len(run(limits=Limits(attainable_ms=time_ms(FIRST) / 1.06))[1]) > 1


def test_a_reference_at_the_floor_is_not_worth_it_unless_told_to_keep_going():
    near = FakeEvaluator(reference_ms=2.05)
    search, steps = run(evaluator=near, limits=Limits(attainable_ms=2.0))
    assert len(steps) == 1 and search.reason.startswith("Not worth it")
    assert len(run(evaluator=near, limits=Limits(attainable_ms=2.0, keep_going=True))[1]) > 1


def test_a_launch_bound_prediction_is_not_at_the_floor():
    timing = FakeEvaluator().judge(FIRST).timing
    assert candidate_ms(replace(timing, host_ms=99.0)) == 99.0
    assert candidate_ms(replace(timing, kind="measured", host_ms=99.0)) == timing.candidate_ms
    assert reference_ms(replace(timing, reference_host_ms=99.0)) == 99.0


def test_a_wrong_program_is_repaired_from_where_it_failed():
    for seed in range(20):
        search, steps = run("random", limits=Limits(30), seed=seed, mistakes=True)
        wrong = next((i for i, s in enumerate(steps) if s.verdict.status == "wrong"), None)
        if wrong is not None:
            assert (steps[wrong + 1].action.family, steps[wrong + 1].parent) == ("repair", steps[wrong].child)
            return
    pytest.fail("no run dropped a mask")


def test_a_first_program_that_fails_ends_without_a_best():
    broken = FIRST.replace("launch_gemm", FIRST.text("launch_gemm").replace("MASK = 1", "MASK = 0"))
    moves = FakeMoves()
    moves._all = lambda program, verdict: iter(())
    search = Search(moves, FakeEvaluator(), policies.load("greedy"))
    assert [s.verdict.status for s in search.steps(broken)] == ["wrong"]
    assert search.tree.best == ""


def test_measured_gains_within_noise_are_not_gains():
    def timing(speedup, spread, kind="measured"):
        return Timing(kind, 1.0, 1.0 / speedup, speedup, speedup - spread, speedup + spread)

    assert not better(timing(1.05, 0.1), timing(1.0, 0.1))
    assert not better(timing(1.05, 0.02), timing(1.0, 0.06)), "inside the old interval"
    assert better(timing(1.05, 0.02), timing(1.0, 0.02))
    assert better(timing(1.006, 0, "predicted"), timing(1.0, 0, "predicted"))
    assert not better(timing(1.004, 0, "predicted"), timing(1.0, 0, "predicted"))


def test_a_doubtful_model_gets_a_few_tries_when_times_are_measured():
    action = Action("tile", "tiling", "gemm", (("BLOCK", 32),), "Use a tile of 32.")
    view = View(FIRST, Verdict(), (action, STOP), {action.id: 1.005}, best_ms=1.0, measured=True)
    choose = policies.load("greedy").choose
    assert choose(view, random.Random(0)).action == action
    assert choose(View(**{**vars(view), "failures": 3}), random.Random(0)).action == STOP
    assert choose(View(**{**vars(view), "measured": False}), random.Random(0)).action == STOP
    slower = replace(view, predicted={action.id: 1.08}, failures=9)
    assert choose(slower, random.Random(0)).action == STOP
    assert choose(replace(slower, losing=True), random.Random(0)).action == action, "PyTorch is as fast: nothing to lose"
    fusion = Action("fuse", "fusion", "model", (), "Fuse.")
    neutral = View(FIRST, Verdict(), (fusion, STOP), {fusion.id: 1.01}, best_ms=1.0)
    assert choose(neutral, random.Random(0)).action == fusion
    assert choose(replace(neutral, failures=1), random.Random(0)).action == STOP


def test_what_was_predicted_to_cost_time_is_predicted_again_from_another_best_program():
    search = Search(FakeMoves(False), FakeEvaluator(), policies.load("greedy"))
    search._hints = {"merge": 1.2, "tile": 0.9}
    search._judged("", FIRST, None)
    assert search._hints == {"tile": 0.9}


def test_fusions_that_gain_little_wait_for_the_kernels_that_take_the_time():
    search, steps = run(evaluator=FakeEvaluator(fusion_gain_ms=0.1))
    assert [s.action.family for s in steps if s.action][-1] == "fusion"
    assert value(search.programs[search.tree.best], "", "FUSED") == 1


def test_fusions_that_gain_nothing_make_one_path_and_the_search_goes_on_from_its_end():
    search, steps = run(evaluator=FakeEvaluator(fusion_gain_ms=-0.01))
    fused = [s for s in steps if s.action and s.action.family == "fusion"]
    assert len(fused) == 1 and value(search.programs[search.tree.best], "gemm", "BLOCK") == 128
    assert search._front()[0] == fused[0].child, "slower by 0.3 %, and still looked at first"


def test_random_weighs_families_not_actions():
    tiles = [Action("tile", "tiling", "gemm", (("BLOCK", b),), "") for b in range(9)]
    fusion = Action("fuse", "fusion", "model", (), "")
    view = View(FIRST, Verdict(), (*tiles, fusion, STOP))
    choice = policies.load("random").choose(view, random.Random(0))
    assert choice.probabilities[fusion.id] == pytest.approx(0.5)
    assert sum(choice.probabilities.values()) == pytest.approx(1.0)
    taken = [policies.load("random").choose(view, random.Random(seed)).action for seed in range(200)]
    assert 80 < taken.count(fusion) < 120


def test_an_unknown_policy_lists_the_known_ones():
    with pytest.raises(BadInput, match="greedy, random"):
        policies.load("clever")


def test_a_fault_of_the_machine_is_replaced_by_the_next_verdict_of_the_same_program():
    good = FakeEvaluator().judge(FIRST)
    steps = [Step(i, "", FIRST.key, None, v, None, "") for i, v in enumerate([Infra("no memory"), good, Infra("again")])]
    assert Tree(steps).verdict(FIRST.key) == good


class Last:
    """Takes the last of the legal actions; keeps their families."""

    name, guided = "last", False

    def __init__(self, staged):
        self.staged, self.seen = staged, []

    def choose(self, view, rng):
        self.seen.append({action.family for action in view.moves})
        return Choice(view.moves[-1])


@pytest.mark.parametrize("staged", [True, False])
def test_a_policy_that_does_not_go_by_stages_sees_all_actions_at_once(staged):
    policy = Last(staged)
    list(Search(FakeMoves(), FakeEvaluator(), policy, Limits(2)).steps(FIRST))
    assert policy.seen[0] == ({"fusion"} if staged else {"fusion", "tiling", "pipelining"})
