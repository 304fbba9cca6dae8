"""Trees to learn from: grown wide in a world whose best is known, kept, read back, walked over and counted."""

from __future__ import annotations

import json
import lzma
import random
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FIRST, FakeEvaluator, FakeMoves, value

from mtmc import policies, reward
from mtmc.collecting import _take_over
from mtmc.errors import BadInput
from mtmc.growth import ALTERNATIVES, DENSE, MIX, Growth, Recorder
from mtmc.policies.policy import View
from mtmc.policies.replay import Replay
from mtmc.program import Program
from mtmc.search import Limits, Search
from mtmc.trajectories import archive, traces
from mtmc.trajectories.trees import Provenance, Question, StoredTree
from mtmc.tree import Tree
from mtmc.verdict import Infra, Verified

FORGOTTEN = ("seconds", "probabilities", "predicted_ms")  # what the steps of a search know besides


def grown(
    budget: int = 24, moves: FakeMoves | None = None, seed: int = 0, recorder: Recorder | None = None, mix=MIX
) -> StoredTree:
    growth = Growth(recorder or Recorder(moves or FakeMoves(), FakeEvaluator()), FIRST, budget, seed)
    growth.grow(mix)
    independent = growth.finish()
    provenance = Provenance("h100", "predicted", "2026-01-02", budget=budget, growth=growth.shares, notes=("a note",))
    return StoredTree(
        Question("two", "class Model: ...", grade=2), provenance, growth.nodes(), tuple(growth.steps), independent
    )


def test_a_tree_has_its_budget_of_programs_each_judged_once() -> None:
    evaluator = FakeEvaluator()
    tree = grown(24, recorder=Recorder(FakeMoves(), evaluator))
    assert len(tree.nodes) == 24 == len(evaluator.judged) == len(set(evaluator.judged))
    assert len(evaluator.predicted) == len(set(evaluator.predicted))
    assert sum(tree.provenance.growth.values()) == 24


@pytest.mark.parametrize("mix", [MIX, DENSE])
@pytest.mark.parametrize("budget", [12, 30])
def test_a_tree_grows_on_without_judging_or_losing_a_program_again(budget: int, mix) -> None:
    before, evaluator = grown(20), FakeEvaluator()
    recorder = Recorder(FakeMoves(), evaluator)
    _take_over(recorder, before)
    growth = Growth(recorder, FIRST, budget)
    growth.grow(mix)
    growth.adopt(before)
    growth.finish()
    after = StoredTree(before.question, before.provenance, growth.nodes(), tuple(growth.steps))
    assert growth.whole and before.nodes.keys() <= after.nodes.keys() and after.speedup >= before.speedup
    assert all(before.edges(key).keys() <= after.edges(key).keys() for key in before.nodes)
    assert set(evaluator.judged) == after.nodes.keys() - before.nodes.keys()
    assert len(after.nodes) >= budget


def test_a_tree_that_the_machine_has_ended_is_not_whole() -> None:
    class Lost(FakeEvaluator):
        def judge(self, program):
            return Infra("the GPU is lost") if len(self.judged) >= 12 else super().judge(program)

    growth = Growth(Recorder(FakeMoves(), Lost()), FIRST, 24)
    growth.grow()
    assert growth.spent == 12 and not growth.whole


def test_the_guided_part_finds_the_best_and_the_rest_is_wide() -> None:
    tree = grown(30)
    best = tree.nodes[tree.best].program
    assert (value(best, "gemm", "BLOCK"), value(best, "gemm", "STAGES"), value(best, "", "FUSED")) == (128, 3, 1)
    assert tree.provenance.growth[ALTERNATIVES] >= 10
    assert len(tree.edges(tree.root)) >= 4
    assert max(len(tree.tree.path(key)) for key in tree.nodes) >= 5


def test_a_dense_tree_knows_every_step_from_its_best_path() -> None:
    def unknown(tree: StoredTree) -> int:
        path = [tree.root, *(step.child for step in tree.tree.path(tree.best))]
        known = {key: {*tree.edges(key), *tree.nodes[key].refused, "stop(model)"} for key in path}
        return sum(action.id not in known[key] for key in path for action in tree.nodes[key].legal)

    assert unknown(grown(60, mix=DENSE)) == 0 < unknown(grown(60, mix=(("greedy", 1.0),)))


def test_every_program_has_its_whole_legal_list_and_what_is_refused_is_marked() -> None:
    tree = grown()
    for node in tree.nodes.values():
        assert node.legal == FakeMoves().propose(node.program, node.verdict)
        assert node.refused <= {action.id for action in node.legal}
    assert any(len(tree.edges(key)) < len(node.legal) - 1 - len(node.refused) for key, node in tree.nodes.items())


def test_what_was_judged_is_predicted_too_and_actions_know_where_they_lead() -> None:
    tree = grown()
    for key, node in tree.nodes.items():
        assert node.predicted_ms is not None or not node.verdict.correct
        for name, step in tree.edges(key).items():
            assert node.predicted[name] == tree.nodes[step.child].predicted_ms


def test_programs_reached_in_two_ways_are_joined_by_steps_that_no_policy_chose() -> None:
    tree = grown(40)
    joined = [step for step in tree.steps if step.action and not step.policy]
    assert joined and all(step.cached for step in joined)
    moves = FakeMoves()
    for step in joined:
        assert step.action and moves.apply(tree.nodes[step.parent].program, step.action).after.key == step.child


def test_failures_are_kept_and_faults_of_the_machine_are_not() -> None:
    class Faulty(FakeEvaluator):
        def judge(self, program):
            return Infra("no memory") if value(program, "gemm", "BLOCK") == 32 else super().judge(program)

    tree = grown(40, recorder=Recorder(FakeMoves(mistakes=True), Faulty()))
    statuses = {node.verdict.status for node in tree.nodes.values()}
    assert {"verified", "wrong"} <= statuses and "infra" not in statuses
    assert all(value(node.program, "gemm", "BLOCK") != 32 for node in tree.nodes.values())


def test_the_end_of_time_is_told_from_the_end_of_actions() -> None:
    moves = FakeMoves()
    moves._all = lambda program, verdict: (a for a in FakeMoves()._all(program, verdict) if a.region == "relu")
    growth = Growth(Recorder(moves, FakeEvaluator()), FIRST, 1000)
    growth.grow()
    assert growth.whole and growth.spent < 20, "all programs of that world were judged"
    late = Growth(Recorder(FakeMoves(), FakeEvaluator()), FIRST, 50, seconds=-1.0)
    late.grow()
    assert not late.whole


def test_a_tree_is_read_back_as_it_was(tmp_path: Path) -> None:
    tree = grown(moves=FakeMoves(mistakes=True))
    path = archive.write(tmp_path, tree)
    assert archive.read(path) == tree
    assert list(archive.load(tmp_path)) == [tree]
    assert [path.name for path in tmp_path.iterdir()] == ["two.jsonl.xz"], "no drafts are left"


def test_likeness_of_programs_costs_no_space(tmp_path: Path) -> None:
    body = "".join(f"\n\ndef launch_other{i}(x):\n    return x + {i * 7919 % 1000}\n" for i in range(400))
    tree = grown()
    large = {key: replace(node, program=Program(node.program.source + body)) for key, node in tree.nodes.items()}
    small, size = (
        archive.write(tmp_path / "a", tree).stat().st_size,
        archive.write(tmp_path / "b", replace(tree, nodes=large)),
    )
    assert size.stat().st_size - small < len(body) / 2, "24 programs grew by that text, which is kept once"


@pytest.mark.parametrize(
    "source", [FIRST.source, "", "\n", "def f(:", 'x = """\n\ndef g(): pass\n"""\n\n@a\ndef h():\n    pass', "a = '\x0c'\n"]
)
def test_pieces_are_the_text_again(source: str) -> None:
    assert "".join(archive.pieces(source)) == source


def test_damage_and_other_schemas_are_told_in_one_sentence(tmp_path: Path) -> None:
    path = archive.write(tmp_path, grown(4))
    lines = lzma.decompress(path.read_bytes()).decode().splitlines(keepends=True)
    torn = tmp_path / "torn.jsonl.xz"
    torn.write_bytes(path.read_bytes()[:-20])
    short = tmp_path / "short.jsonl.xz"
    short.write_bytes(lzma.compress("".join(lines[:4] + lines[-1:]).encode()))
    other = tmp_path / "other.jsonl.xz"
    other.write_bytes(lzma.compress((json.dumps({**json.loads(lines[0]), "schema": 99}) + "\n").encode()))
    for broken, why in ((torn, "cannot be read|can be read"), (short, "1 of 4 programs"), (other, "schema 99")):
        with pytest.raises(BadInput, match=why):
            archive.read(broken)
    with pytest.raises(BadInput, match="no trees"):
        archive.paths(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["random", "greedy"])
def test_a_replay_shows_what_the_search_showed(name: str) -> None:
    """A policy sees in a stored tree, after the same steps, the View that the search gave it."""
    seen: list[tuple[int, View]] = []
    policy = policies.load(name)

    class Watched:
        guided, staged, name = policy.guided, policy.staged, policy.name

        def choose(self, view: View, rng: random.Random):
            seen.append((len(steps), view))
            return policy.choose(view, rng)

    recorder, steps = Recorder(FakeMoves(mistakes=True), FakeEvaluator()), []
    search = Search(recorder, recorder, Watched(), Limits(12), seed=3)
    growth = Growth(recorder, FIRST, 40)
    for step in search.steps(FIRST):
        steps.append(step)
        growth.keep(step, search.programs[step.child])
    growth.grow(((ALTERNATIVES, 1.0),))
    stored = StoredTree(Question("two", ""), Provenance("h100", "predicted", ""), growth.nodes(), tuple(growth.steps))
    compared = 0
    for number, view in seen:
        replay = Replay(stored)
        replay.follow(tuple(steps[1:number]))
        wanted = {action.id for action in view.legal}
        shown = replay.view(view.program.key, policy.guided, lambda action, ids=wanted: action.id in ids)
        assert [a.id for a in shown.legal] == [
            a.id for a in view.legal if a.id not in stored.nodes[view.program.key].refused
        ]
        for field in ("program", "verdict", "best_ms", "measured", "losing", "failures"):
            assert getattr(shown, field) == getattr(view, field), field
        assert {k: v for k, v in shown.predicted.items() if k in view.predicted} == view.predicted
        for one, other in zip(shown.history, view.history, strict=True):
            assert replace(stored.patch(one), **dict.fromkeys(FORGOTTEN)) == replace(other, **dict.fromkeys(FORGOTTEN))
        compared += 1
    assert compared > 5


def test_an_action_nobody_tried_is_shown_and_leads_nowhere() -> None:
    stored = grown(6)
    replay = Replay(stored)
    view = replay.view(stored.root)
    unknown = [action for action in view.moves if action.id not in stored.edges(stored.root)]
    assert unknown and replay.take(stored.root, unknown[0]) is None
    assert len(replay.tree.keys) == 1
    known = next(action for action in view.moves if action.id in stored.edges(stored.root))
    step = replay.take(stored.root, known)
    assert step and step.child in replay.tree and known.id not in {a.id for a in replay.view(stored.root).moves}


def test_actions_on_different_kernels_are_independent_and_those_on_one_knob_are_not() -> None:
    pairs = grown(60).independent
    assert ("stages(gemm, STAGES=2)", "stages(relu, STAGES=3)") in pairs
    assert not any(a.startswith("tile(gemm") and b.startswith("tile(gemm") for a, b in pairs)


def test_the_normal_form_does_not_know_the_order_of_independent_steps() -> None:
    pairs = frozenset({("a", "b"), ("a", "c")})

    def form(word: str) -> traces.Form:
        made: traces.Form = ()
        for letter in word:
            made = traces.appended(made, letter, pairs)
        return made

    assert form("ab") == form("ba") == (("a", "b"),)
    assert form("abc") == form("bac") == form("bca") == (("a", "b"), ("c",))
    assert form("bc") != form("cb")
    assert form("aa") == (("a",), ("a",))


def test_trajectories_are_counted_as_a_plain_enumeration_counts_them() -> None:
    tree = grown(14)
    words: set[tuple[str, traces.Form]] = set()

    def walk(key: str, met: tuple[str, ...], form: traces.Form) -> None:
        for name, step in tree.edges(key).items():
            if step.child not in met and len(met) <= traces.LONGEST:
                longer = traces.appended(form, name, tree.independent)
                words.add((step.child, longer))
                walk(step.child, (*met, step.child), longer)

    walk(tree.root, (tree.root,), ())
    found = traces.tally([tree], most=10**9)
    assert found.trajectories == len(words) == sum(found.lengths.values()) > len(tree.nodes)
    assert found.transitions == sum(step.action is not None for step in tree.steps)
    assert traces.tally([tree, tree], most=5) == replace(
        traces.tally([tree], most=5) + traces.tally([tree], most=5), capped=2
    )


def test_the_parts_of_a_reward_add_up_to_it() -> None:
    for node in grown(moves=FakeMoves(mistakes=True)).nodes.values():
        parts = reward.parts(node.verdict)
        assert parts and parts.compiled + parts.correct + parts.gain == pytest.approx(reward.graded(node.verdict))
        assert (parts.gain != 0) <= isinstance(node.verdict, Verified)
    assert reward.parts(Infra("lost")) is None


def test_equal_seeds_grow_equal_trees() -> None:
    def paths(seed: int) -> list[tuple[str, str]]:
        return [(step.parent, step.child) for step in grown(seed=seed).steps]

    assert paths(1) == paths(1) != paths(2)
    assert Tree(grown(seed=1).steps).root == FIRST.key
