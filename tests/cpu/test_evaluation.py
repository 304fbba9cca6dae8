"""`mtmc evaluate-policy`: what a course counts, what can be reached at best, figures by hand, and that it can be resumed."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, log
from pathlib import Path
from random import Random

import pytest
from fakes import FIRST, FakeEvaluator, FakeMoves
from test_trees import grown
from typer.testing import CliRunner

from mtmc import cli, policies
from mtmc.errors import BadInput, OutOfTime
from mtmc.evaluation import evaluate, online, pages
from mtmc.evaluation.course import FAILED, KNOWN, UNTRIED, Course, Runner, best_gain, courses, limit
from mtmc.evaluation.figures import LIMIT, Case, figures
from mtmc.evaluation.settings import Contender, Order, Settings, Side
from mtmc.policies.policy import Choice, View
from mtmc.policies.replay import Untried
from mtmc.search import Limits, Search
from mtmc.trajectories import archive
from mtmc.trajectories.store import Ending, Run, RunInfo
from mtmc.trajectories.trees import StoredTree

TREE = grown(60, FakeMoves(mistakes=True))
SPARSE = grown(8)


class Sorted:
    """Holds the first action likeliest, and counts how often it was asked."""

    name, guided = "sorted", False

    def __init__(self) -> None:
        self.asked = 0

    def choose(self, view: View, rng: Random) -> Choice:
        self.asked += 1
        chances = {action.id: 1.0 / (1 + place) for place, action in enumerate(view.legal)}
        return Choice(view.legal[0], chances)


class Idle:
    name, guided = "idle", False

    def choose(self, view: View, rng: Random) -> Choice:
        return Choice(view.stop)


def course(tree: StoredTree, policy, seed: int = 0, budget: int = 99, order: Order = Order.best) -> Course:
    return Runner(tree, policy, Random(seed), budget, order).run()


def test_a_curve_counts_candidates_by_either_convention() -> None:
    made = Course(-0.2, (UNTRIED, 0.5, KNOWN, FAILED, UNTRIED, 0.4, 0.9))
    assert made.curve(5, Untried.free) == (0.0, 0.5, 0.5, 0.5, 0.9, 0.9)
    assert made.curve(7, Untried.charged) == (0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.9, 0.9)
    assert made.curve(1, Untried.charged) == (0.0, 0.0)
    assert made.untried == pytest.approx(2 / 7)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("name", ["random", "greedy", "model"])
@pytest.mark.parametrize("tree", [TREE, SPARSE], ids=["wide", "sparse"])
def test_nobody_beats_the_limit_and_outcomes_are_the_trees(tree: StoredTree, name: str, order: Order) -> None:
    best = limit(tree, 20)
    assert list(best) == sorted(best) and limit(tree, 99)[-1] == pytest.approx(best_gain(tree))
    for seed in range(5):
        made = course(tree, policies.load(name), seed, 20, order)
        gains = [outcome for outcome in made.outcomes if isinstance(outcome, float)]
        assert set(gains) <= {node.verdict.log_speedup for node in tree.nodes.values()}
        assert len(gains) + made.outcomes.count(FAILED) <= 20 and len(set(gains)) <= len(tree.nodes)
        for untried in Untried:
            assert all(mine <= most + 1e-9 for mine, most in zip(made.curve(20, untried), best, strict=True))


def test_the_limit_is_the_shortest_way() -> None:
    deepest = limit(TREE, 99)
    for candidates in range(4):
        reached = {TREE.root}
        for _ in range(candidates):
            reached |= {step.child for key in reached for step in TREE.edges(key).values()}
        gains = [TREE.nodes[key].verdict.log_speedup or 0.0 for key in reached]
        assert deepest[candidates] == pytest.approx(max(0.0, *gains))


def test_the_model_finds_the_best_where_times_are_the_models_own() -> None:
    made = course(TREE, policies.load("model"))
    assert max(o for o in made.outcomes if isinstance(o, float)) == pytest.approx(best_gain(TREE))
    assert not made.drew and made.blind > 0


def test_equal_seeds_make_equal_courses_and_chance_is_noticed() -> None:
    first, again, other = courses(TREE, policies.load("random"), (1, 1, 2), 9, Order.best)
    assert first == again and first is not again and first.drew and first.outcomes != other.outcomes
    one, two, three = courses(TREE, policies.load("greedy"), (0, 1, 2), 9, Order.best)
    assert one is two is three


def test_stop_closes_a_program_and_ends_a_course_when_all_are_closed() -> None:
    assert course(TREE, Idle()).outcomes == ()


def test_one_that_says_how_likely_its_actions_are_is_not_asked_again_after_an_untried_one() -> None:
    policy = Sorted()
    made = course(SPARSE, policy)
    assert made.outcomes.count(UNTRIED) > 3
    assert policy.asked <= len(made.outcomes) - made.outcomes.count(UNTRIED) + len(SPARSE.nodes)


class Scattered:
    """Ranks all actions without a draw, each program's in an order of its own, `stop` last: as `llm-on` does."""

    name, guided = "scattered", False

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def choose(self, view: View, rng: Random) -> Choice:
        own = {a.id: Random(f"{self.seed} {view.program.key} {a.id}").random() for a in view.moves}
        chances = {**own, view.stop.id: 0.0}
        return Choice(max(view.legal, key=lambda action: chances[action.id]), chances)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tree", [TREE, SPARSE], ids=["wide", "sparse"])
def test_one_that_never_stops_before_the_end_meets_every_program_as_random_does(tree: StoredTree, seed: int) -> None:
    """What is left of the ranking of an exhausted program, `stop`, does not close the next one."""
    runner = Runner(tree, Scattered(seed), Random(0), 999)
    runner.run()
    assert runner._found == pytest.approx(best_gain(tree))


def case(first: float, best: float, *made: Course, name: str = "random") -> Case:
    return Case("a", {}, best, (first, *[best] * 8), {name: made})


def test_figures_by_hand() -> None:
    """Two trees of best log speed-up 1 and 2; the first is found at once, the second half-way in one course of two."""
    easy = case(0.0, 1.0, Course(0.0, (1.0,)), Course(0.0, (1.0,)))
    hard = case(0.0, 2.0, Course(0.0, (FAILED, 1.0)), Course(0.0, (FAILED, FAILED, 2.0)))
    found = figures([easy, hard], 4, Untried.free)["random"]
    assert [e.value for e in found.share] == pytest.approx([0.0, 0.5, 0.625, 0.875, 0.875])
    assert found.speedup[4].value == pytest.approx(exp((1.0 + 1.5) / 2))
    assert found.area.value == pytest.approx((0.5 + 0.625 + 0.875 + 0.875) / 4)
    assert found.needed.value == pytest.approx((1 + (4 + 3) / 2) / 2)
    assert (found.arrived, found.middle) == (0.75, 2.0)
    assert found.saved and found.saved.value == 1.0 == found.saved.low == found.saved.high
    assert found.share[1].low == 0.0 and found.share[1].high == 1.0
    best = figures([easy, hard], 4, Untried.free)[LIMIT]
    assert best.needed.value == 1.0 and best.saved and best.saved.value == pytest.approx(2.25)


def test_a_policy_that_never_arrives_has_no_median() -> None:
    found = figures([case(0.0, 1.0, Course(0.0, ()))], 4, Untried.charged)["random"]
    assert (found.middle, found.arrived, found.needed.value) == (None, 0.0, 4.0)


def stored(folder: Path, *trees: StoredTree) -> Path:
    for number, tree in enumerate(trees):
        archive.write(folder, replace(tree, question=replace(tree.question, name=f"t{number}")))
    return folder


def sided(tree: StoredTree, held_out: bool) -> StoredTree:
    return replace(tree, question=replace(tree.question, structure="0" if held_out else "1"))


def test_only_held_out_trees_with_something_to_gain_count(tmp_path: Path) -> None:
    slow = grown(1)
    assert best_gain(slow) < log(1.2) < best_gain(TREE)
    folder = stored(tmp_path, sided(TREE, True), sided(TREE, False), sided(slow, True))
    assert [path.name[:2] for path, _ in evaluate.chosen([folder], Settings())] == ["t0"]
    assert [path.name[:2] for path, _ in evaluate.chosen([folder], Settings(side=Side.training))] == ["t1"]
    assert len(evaluate.chosen([folder], Settings(side=Side.all, least=0.5))) == 3
    with pytest.raises(BadInput, match=r"no tree .* is held-out and whose best is 99× or more"):
        evaluate.chosen([folder], Settings(least=99))


def test_what_was_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored(tmp_path / "trees", sided(TREE, True), sided(SPARSE, True))
    settings = Settings(contenders=(Contender.of("random"), Contender.of("mine=model")), budget=8)
    trees = evaluate.chosen([folder], settings)
    with pytest.raises(OutOfTime):
        evaluate.evaluate(trees, settings, tmp_path, lambda _: None, until=0.0)
    first = evaluate.evaluate(trees, settings, tmp_path, lambda _: None)
    record = tmp_path / evaluate.FILE
    lines = record.read_text().splitlines(keepends=True)
    assert len(lines) == 4 and list(first[0].courses) == ["random", "mine"]
    record.write_text("".join(lines[:-1]) + lines[-1][:20])
    loaded: list[str] = []
    monkeypatch.setattr(evaluate, "load", lambda contender: loaded.append(contender.spec) or policies.load(contender.spec))
    assert evaluate.evaluate(trees, settings, tmp_path, lambda _: None) == first
    assert evaluate.evaluate(trees, settings, tmp_path, lambda _: None, until=0.0) == first, "nothing is left to run"
    assert loaded == ["model"] and record.read_text().splitlines(keepends=True) == lines
    evaluate.evaluate(trees, replace(settings, budget=9), tmp_path, lambda _: None)
    assert loaded == ["model", "random", "model"], "another budget is another course"


def test_equal_labels_are_pooled(tmp_path: Path) -> None:
    settings = Settings(contenders=(Contender.of("x=random"), Contender.of("x=model")), budget=4, seeds=2)
    folder = stored(tmp_path / "trees", sided(TREE, True))
    (found,) = evaluate.evaluate(evaluate.chosen([folder], settings), settings, tmp_path, lambda _: None)
    assert list(found.courses) == ["x"] and len(found.courses["x"]) == 4


def searched(folder: Path, policy: str, seed: int, gpu: str = "h200") -> Path:
    """A folder with one run folder somewhere below it."""
    info = RunInfo("world", "hash", "world.py", "Model", gpu, policy, seed, 20, 0.0, "strict", "measured")
    run = Run.create(folder / "1" / "world", info)
    search = Search(FakeMoves(mistakes=True), FakeEvaluator(), policies.load(policy), Limits(20), seed)
    for step in search.steps(FIRST):
        run.append(step, search.programs[step.child])
    run.finish(Ending("Enough."))
    return folder


def test_searches_of_different_policies_are_compared_by_what_any_of_them_found(tmp_path: Path) -> None:
    labels = {"random": ("random", 1), "guided": ("model", 0)}
    named = [f"{label}={searched(tmp_path / label, *how)}" for label, how in labels.items()]
    named.append(f"random={searched(tmp_path / 'again', 'random', 2)}")
    arguments = [part for name in named for part in ("--runs", name)]
    result = CliRunner().invoke(cli.app, ["evaluate-policy", *arguments, "--budget", "20", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    facts = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    table = facts["scopes"]["all"]["charged"]
    assert list(facts["scopes"]["all"]) == ["charged"], "nothing is untried: the conventions are one"
    assert list(table) == ["random", "guided", LIMIT]
    assert table["guided"]["needed"][0] < table["random"]["needed"][0] and table[LIMIT]["arrived"] == 1.0
    (case,) = online.cases(online.read([Contender.of(name) for name in named]), Settings(budget=20))
    assert len(case.courses["random"]) == 2 and len(case.courses["guided"]) == 1
    tops = [course.curve(20, Untried.charged) for made in case.courses.values() for course in made]
    assert case.best == max(top[-1] for top in tops)
    assert all(mine <= most + 1e-9 for top in tops for mine, most in zip(top, case.limit, strict=True))


def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    here, there = searched(tmp_path / "a", "random", 1), searched(tmp_path / "b", "model", 0, "a100")
    with pytest.raises(BadInput, match="measured on a100, strict and measured on h200, strict"):
        online.read([Contender("a", str(here)), Contender("b", str(there))])
    Run.create(
        tmp_path / "empty" / "r", RunInfo("world", "", "w.py", "Model", "h200", "random", 0, 9, 0.0, "strict", "measured")
    )
    with pytest.raises(BadInput, match="holds no run folder"):
        online.read([Contender("a", str(tmp_path / "empty"))])
    with pytest.raises(BadInput, match="No problem was searched"):
        online.cases(online.read([Contender("a", str(here))]), Settings(least=1e6))


def test_a_label_is_told_from_a_path() -> None:
    assert Contender.of("a=llm:/x=y") == Contender("a", "llm:/x=y")
    assert Contender.of("llm:/x=y") == Contender("llm:/x=y", "llm:/x=y")


def test_no_policy_stands_in_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_):
        raise ImportError

    monkeypatch.setitem(policies.LANGUAGE_MODELS, "llm", unavailable)
    assert evaluate.load(Contender.of("greedy")).name == "greedy"
    with pytest.raises(BadInput, match=r"^The policy llm cannot be used, .*\.$") as error:
        evaluate.load(Contender.of("llm"))
    assert "greedy" not in str(error.value)


def test_the_expert_needs_no_untried_step_and_few_candidates(tmp_path: Path) -> None:
    settings = Settings(tuple(map(Contender.of, ("random", "expert"))), budget=32)
    trees = evaluate.chosen([stored(tmp_path / "trees", grown(30), sided(SPARSE, True))], replace(settings, side=Side.all))
    cases = evaluate.evaluate(trees, settings, tmp_path, lambda _: None)
    found = figures(cases, 32, Untried.charged)
    assert found["expert"].untried == 0.0 and found["expert"].arrived == 1.0
    assert found[LIMIT].needed.value <= found["expert"].needed.value < found["random"].needed.value


def test_an_unknown_policy_is_told_before_any_course(tmp_path: Path) -> None:
    settings = Settings(tuple(map(Contender.of, ("random", "radnom"))), budget=6)
    trees = evaluate.chosen([stored(tmp_path / "trees", sided(SPARSE, True))], settings)
    with pytest.raises(BadInput, match="no policy radnom"):
        evaluate.evaluate(trees, settings, tmp_path / "out", lambda _: None)
    assert not (tmp_path / "out").exists()


def test_the_report_tells_what_guided_policies_could_not_see(tmp_path: Path) -> None:
    settings = Settings(budget=6)
    trees = evaluate.chosen([stored(tmp_path / "trees", sided(SPARSE, True))], settings)
    cases = evaluate.evaluate(trees, settings, tmp_path, lambda _: None)
    facts = pages.write(tmp_path, cases, settings)
    text = (tmp_path / "evaluation.md").read_text()
    assert "`mtmc predict` would fill in: greedy" in text and "skipped free of charge" in text and "cost a candidate" in text
    assert facts["trees"][0]["timing"] == "predicted" and "h100 (predicted)" in text
    assert json.loads((tmp_path / "evaluation.json").read_text())["scopes"]["all"]["free"]["random"]["arrived"] > 0


def test_the_tiny_evaluation_runs_on_the_samples(tmp_path: Path) -> None:
    out = tmp_path / "report"
    result = CliRunner().invoke(cli.app, ["evaluate-policy", "--tiny", "--out", str(out), "--quiet"])
    assert result.exit_code == 0 and "| model |" in result.stdout and "tree's best" in result.stdout
    assert (out / "evaluation.png").read_bytes()[:4] == b"\x89PNG"
    facts = json.loads((out / "evaluation.json").read_text())
    assert len(facts["trees"]) >= 3 and all(tree["held_out"] and tree["best_speedup"] >= 1.2 for tree in facts["trees"])
    figures = facts["scopes"]["all"]["free"]
    assert figures["model"]["needed"][0] <= figures["random"]["needed"][0]
    assert figures["model"]["blind"] == 0, "every action of the samples that it saw has a predicted time"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "--tiny for the samples"),
        (["nowhere"], "no trees"),
        (["--tiny", "--policy", "clever"], "no policy clever"),
        (["--tiny", "--least", "50"], "50× or more"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=why):
        cli.app(["evaluate-policy", *arguments, "--out", str(tmp_path)], standalone_mode=False)


def test_the_samples_are_small_and_on_both_sides() -> None:
    trees = list(archive.load(archive.SAMPLES))
    assert sum(path.stat().st_size for path in archive.paths(archive.SAMPLES)) < 1_000_000
    assert {tree.question.grade for tree in trees} == {1, 2, 3}
    for side in (True, False):
        assert sum(tree.question.held_out == side and tree.speedup >= 1.2 for tree in trees) >= 3
    assert {tree.provenance.timing for tree in trees} == {"predicted"}
