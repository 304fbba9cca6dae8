"""`mtmc collect`: who is given which problem, what is believed again, and what happens to processes that do not answer."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_trees import grown
from typer.testing import CliRunner

from mtmc import cli, collecting, crew
from mtmc.assembly import Options
from mtmc.collecting import Order, Outcome, Plan
from mtmc.crew import Crew
from mtmc.errors import BadInput, InfraError, OutOfTime
from mtmc.growth import Recorder
from mtmc.judge.cache import made_with
from mtmc.problem import Problem
from mtmc.trajectories import archive


def served(pipe, plan, gpu) -> None:
    """A hand that does what the name of a problem says."""
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            return
        if order is None:
            return
        kind = order.problem.name.split("-")[0]
        if kind == "hang":
            time.sleep(60)
        if kind == "die":
            return
        pipe.send("growing")
        pipe.send(Outcome(order.problem.name, kind, programs=1, new=1))


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hands are forked threads of this test, not processes that import everything."""
    monkeypatch.setattr(crew, "_serve", served)
    monkeypatch.setattr(crew.multiprocessing, "get_context", lambda _: get_context("fork"))
    monkeypatch.setattr(crew, "OVERSTAY", 0.0)


def orders(*names: str):
    return (Order(Problem(name, "", "")) for name in names)


def plan(folder: Path, **changes) -> Plan:
    return replace(Plan(folder, Options(measure=False, gpu="h100"), budget=8, problem_minutes=0.03), **changes)


def test_what_is_excluded_or_fails_is_made_up_for_in_order(tmp_path: Path, hands: None) -> None:
    names = ("grown-0", "excluded-1", "die-2", "grown-3", "there-4", "grown-5", "grown-6")
    found = {o.name: o.kind for o in Crew(plan(tmp_path), 2).run(orders(*names), 4)}
    assert found == {
        "grown-0": "grown",
        "excluded-1": "excluded",
        "die-2": "failed",
        "grown-3": "grown",
        "there-4": "there",
        "grown-5": "grown",
    }


def test_a_hand_that_hangs_costs_its_problem_and_no_more(tmp_path: Path, hands: None) -> None:
    began = time.monotonic()
    found = [o for o in Crew(plan(tmp_path), 1).run(orders("hang-0", "grown-1"), 2)]
    assert [(o.name, o.kind) for o in found] == [("hang-0", "failed"), ("grown-1", "grown")]
    assert "killed" in found[0].note and time.monotonic() - began < 20


def test_nothing_is_begun_when_the_time_is_over(tmp_path: Path, hands: None) -> None:
    assert not list(Crew(plan(tmp_path, until=time.time() + 5), 1).run(orders("grown-0"), 1)), "less than finishing takes"


def test_a_hand_that_ends_while_it_is_idle_is_replaced_and_loses_nothing(tmp_path: Path, hands: None) -> None:
    team = Crew(plan(tmp_path), 1)
    found = team.run(orders("grown-1", "grown-2"), 2)
    first = next(found)
    team._hands[0].process.kill()
    team._hands[0].process.join()
    assert [first.name, *(outcome.name for outcome in found)] == ["grown-1", "grown-2"]


def test_a_collection_in_which_everything_fails_ends(tmp_path: Path, hands: None) -> None:
    with pytest.raises(InfraError, match=r"5 problems in a row failed, die-4 last: its process ended\."):
        list(Crew(plan(tmp_path), 1).run(orders(*(f"die-{n}" for n in range(100))), 1))


def test_hands_are_replaced_after_some_problems(tmp_path: Path, hands: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "RECYCLED", 2)
    team, pids = Crew(plan(tmp_path), 1), set()
    team.doing = lambda *_: pids.add(team._hands[0].process.pid)
    assert len(list(team.run(orders(*(f"grown-{n}" for n in range(5))), 5))) == 5
    assert len(pids) == 3


def test_a_tree_that_is_there_is_kept_unless_more_is_asked(tmp_path: Path) -> None:
    tree = grown(8)
    archive.write(tmp_path, tree)
    order = Order(tree.question.problem)
    outcome = collecting.collect(order, plan(tmp_path), None, lambda _: None)
    assert (outcome.kind, outcome.programs, outcome.new) == ("there", 8, 0)
    assert not collecting.enough(tree, plan(tmp_path, budget=9))
    cut = replace(tree, provenance=replace(tree.provenance, budget=0))
    assert not collecting.enough(cut, plan(tmp_path, budget=4)), "time had ended it"
    other = collecting.collect(Order(Problem("two", "class Other: ...", "")), plan(tmp_path), None, lambda _: None)
    assert other.kind == "failed" and "another problem of this name" in other.note


def test_time_never_replaces_a_tree_by_a_smaller_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_question", lambda _: grown(2).question)
    monkeypatch.setattr(collecting, "assemble", lambda *_: None)
    order, path = Order(grown(2).question.problem), archive.path_of(tmp_path, "two")
    cut = replace(grown(12).provenance, budget=0)
    for before, after, kind in ((12, 8, "kept"), (8, 12, "grown")):
        archive.write(tmp_path, replace(grown(before), provenance=cut))
        monkeypatch.setattr(collecting, "_grown", lambda *_, n=after: (replace(grown(n), provenance=cut), n))
        outcome = collecting.collect(order, plan(tmp_path), SimpleNamespace(spent={}), lambda _: None)
        assert (outcome.kind, outcome.programs, outcome.good) == (kind, 12, True)
        assert len(archive.read(path).nodes) == 12


def test_a_damaged_tree_fails_its_own_problem_alone(tmp_path: Path) -> None:
    archive.path_of(tmp_path, "two").write_bytes(b"torn")
    outcome = collecting.collect(Order(Problem("two", "", "")), plan(tmp_path), None, lambda _: None)
    assert outcome.kind == "failed" and "not a tree that can be read" in outcome.note


def test_a_tree_that_grows_on_keeps_what_was_predicted_by_the_same_versions() -> None:
    tree = grown(8)
    first = tree.nodes[tree.root]
    untried = next(action.id for action in first.legal if action.id not in first.predicted)
    nodes = {**tree.nodes, tree.root: replace(first, predicted={untried: 1.0, "gone": 2.0}, refused=frozenset({"gone"}))}
    for predictor, kept in ((made_with(), {untried: 1.0} | dict(first.predicted)), ({"torch": "1"}, dict(first.predicted))):
        filled = replace(tree, nodes=nodes, provenance=replace(tree.provenance, predictor=predictor))
        found = collecting._filled(tree.nodes, filled)
        assert found[tree.root].predicted == kept and found[tree.root].refused == first.refused
        assert found.keys() == tree.nodes.keys()


def test_verdicts_are_believed_again_only_under_the_same_conditions() -> None:
    tree, recorder = grown(8), Recorder(SimpleNamespace(), SimpleNamespace())
    collecting._take_over(recorder, tree)
    assert recorder.verdicts == {key: node.verdict for key, node in tree.nodes.items()}
    mine = tree.provenance
    assert collecting._same(mine, replace(mine, date="2027-01-01", budget=99, seed=5))
    for change in (
        {"gpu": "a100"},
        {"timing": "measured"},
        {"device": "x"},
        {"precision": "tf32"},
        {"versions": {"torch": "1"}},
    ):
        assert not collecting._same(mine, replace(mine, **change))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--grades", "0-3"], "choice of grades"),
        (["--grades", "x"], "choice of grades"),
        (["--precision", "fp8"], "precision"),
        (["--gpu", "nothing"], "nothing"),
        (["nowhere.py"], "no file nowhere.py"),
        (["--count", "--store", "nowhere"], "no trees"),
        (["--measure"], "needs a GPU"),
        (["--store", __file__], "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "gpus", lambda: ())
    with pytest.raises(BadInput, match=why):
        cli.app(["collect", *arguments], standalone_mode=False)


def test_a_collection_that_its_time_cut_short_is_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "gpus", lambda: ())
    monkeypatch.setattr("mtmc.cli_learning._watch", lambda *_: archive.write(tmp_path, grown(2)) is None)
    arguments = ["collect", "--store", str(tmp_path), "--gpu", "h100", "--minutes"]
    with pytest.raises(OutOfTime):
        cli.app([*arguments, "0.01"], standalone_mode=False)
    assert CliRunner().invoke(cli.app, [*arguments, "60"]).exit_code == 0


def test_the_count_is_printed(tmp_path: Path) -> None:
    archive.write(tmp_path, grown(12))
    shown = CliRunner().invoke(cli.app, ["collect", "--count", "--store", str(tmp_path)]).stdout
    assert "distinct transitions" in shown and "12, 12" in shown
    figures = CliRunner().invoke(cli.app, ["collect", "--count", "--store", str(tmp_path), "--json"]).stdout
    assert '"programs": 12' in figures


def test_grades_are_read_as_ranges_and_lists() -> None:
    from mtmc.cli_learning import _grades

    assert (_grades("1-5"), _grades("2"), _grades("1,3-4")) == ((1, 2, 3, 4, 5), (2,), (1, 3, 4))


def test_generated_orders_say_that_they_are() -> None:
    first = list(islice(collecting.generated(0, (1, 2)), 3))
    assert all(order.generated for order in first) and [order.grade for order in first] == [1, 2, 1]
