"""`mtmc predict` and `mtmc rescore`: what is filled in, what another GPU makes of a tree, and what of it is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import FIRST, FakeEvaluator, FakeMoves, time_ms, too_large, value
from test_trees import grown
from typer.testing import CliRunner

from mtmc import cli, foresight, reward
from mtmc.assembly import Setup
from mtmc.errors import BadInput, OutOfTime
from mtmc.judge.cache import made_with
from mtmc.judge.jobs import Compiled
from mtmc.judge.predict import KernelTime, Prediction
from mtmc.program import Program
from mtmc.trajectories import archive
from mtmc.trajectories.trees import StoredTree
from mtmc.tree import offered
from mtmc.verdict import CompileError, Infra, Timing, Verdict, Verified

SLOWDOWN = 3.0  # of the other GPU


@dataclass
class Other:
    """Another GPU: slower, and with room for smaller tiles of gemm only. `lost` is a program that no machine compiles."""

    largest: int = 64
    lost: str = ""

    def compile_many(self, programs: Sequence[Program]) -> list[Compiled | Verdict]:
        return [self._compiled(program) for program in programs]

    def _compiled(self, program: Program) -> Compiled | Verdict:
        if program.key == self.lost:
            return Infra("no memory")
        if value(program, "gemm", "BLOCK") > self.largest:
            return CompileError("too much shared memory", "shared_memory")
        ms = SLOWDOWN * time_ms(program)
        return Compiled((), Prediction((KernelTime("gemm_kernel", ms, "dram", {}),)), 0.0)

    def predicted(self, compiled: Compiled) -> Timing:
        ms = float(compiled.prediction.total_ms)
        return Timing("predicted", 40.0, ms, 40.0 / ms, 40.0 / ms, 40.0 / ms)


class Fewer(FakeMoves):
    """Its rules know two stages at most."""

    def _all(self, program: Program, verdict: Verdict):
        return (action for action in super()._all(program, verdict) if "STAGES=3" not in action.id)


def roles(moves=None, judge=None) -> Setup:
    return Setup(FIRST, moves or FakeMoves(), judge or FakeEvaluator(), SimpleNamespace(name="v100"), False)


def quiet(_: str) -> None: ...


def last(tree: StoredTree, made: Setup, every: bool) -> StoredTree:
    return [tree, *foresight.filled(tree, made, every, quiet)][-1]


def test_every_action_gets_the_time_of_the_program_it_leads_to() -> None:
    tree = grown(12)
    assert any(foresight.lacking(tree, key) for key in tree.nodes)
    found, moves = last(tree, roles(), every=True), FakeMoves()
    for key, node in found.nodes.items():
        assert not foresight.lacking(found, key)
        for action in offered(node.legal, node.verdict, key == found.root):
            if action.id not in node.refused:
                after = moves.apply(node.program, action).after
                assert node.predicted[action.id] == (None if too_large(after) else pytest.approx(time_ms(after)))
    assert foresight.complete(found, every=True) and not list(foresight.filled(found, roles(), True, quiet))


def test_by_default_only_what_guided_policies_come_by_is_filled() -> None:
    found = last(grown(20), roles(), every=False)
    full = [key for key in found.nodes if not foresight.lacking(found, key)]
    assert found.root in full and len(full) < len(found.nodes)
    assert foresight.complete(found, every=False) and not foresight.complete(found, every=True)


def test_filling_goes_on_where_it_ended() -> None:
    tree, judge = grown(12), FakeEvaluator()
    parts = foresight.filled(tree, roles(judge=judge), True, quiet)
    half = [next(parts) for _ in range(4)][-1]
    before = len(judge.predicted)
    assert last(half, roles(judge=judge), True).nodes == last(tree, roles(), True).nodes
    assert len(set(judge.predicted[before:]) & set(tree.nodes)) == 0, "the tree's own programs are known"


def test_times_by_other_versions_are_predicted_anew() -> None:
    old = grown(12)
    wrong = replace(old, nodes={k: replace(n, predicted=dict.fromkeys(n.predicted, 77.0)) for k, n in old.nodes.items()})
    assert not foresight.complete(wrong, every=False)
    found = last(wrong, roles(), every=True)
    assert found.provenance.predictor == made_with() and found.provenance.versions == old.provenance.versions
    assert 77.0 not in [ms for node in found.nodes.values() for ms in node.predicted.values()]


def test_an_action_that_turns_out_to_lead_to_a_known_program_becomes_a_step(tmp_path: Path) -> None:
    tree = grown(40)
    joined = [step for step in tree.steps if step.action and not step.policy]
    assert joined
    loose = replace(tree, steps=tuple(step for step in tree.steps if step not in joined))
    loose = replace(
        loose,
        nodes={
            key: replace(node, predicted={name: ms for name, ms in node.predicted.items() if name in loose.edges(key)})
            for key, node in tree.nodes.items()
        },
    )
    found = last(loose, roles(), every=True)
    ends = {(s.parent, s.action.id): s.child for s in found.steps if s.action}
    for step in joined:
        assert step.action and ends[step.parent, step.action.id] == step.child
    assert archive.read(archive.write(tmp_path, found)) == found
    assert [step.index for step in found.steps[len(loose.steps) :]] == list(range(len(loose.steps), len(found.steps)))


def test_another_gpu_has_its_own_times_and_verification_stays_as_it_was(tmp_path: Path) -> None:
    tree = grown(60, FakeMoves(mistakes=True))
    found = foresight.rescored(tree, roles(FakeMoves(mistakes=True), Other()), quiet)
    assert (found.provenance.gpu, found.provenance.timing, found.provenance.device) == ("v100", "predicted", "")
    assert "Re-scored from a tree predicted for h100" in found.provenance.notes[-1]
    for key, node in found.nodes.items():
        old = tree.nodes[key].verdict
        if isinstance(node.verdict, Verified):
            assert isinstance(old, Verified) and node.verdict.accuracy == old.accuracy
            assert node.verdict.timing.speedup == pytest.approx(40.0 / (SLOWDOWN * time_ms(node.program)))
            assert node.predicted_ms == pytest.approx(SLOWDOWN * time_ms(node.program))
        else:
            assert node.verdict == old or node.verdict.status == "compile_error"
    assert {"verified", "wrong"} <= {node.verdict.status for node in found.nodes.values()}
    for step in found.steps:
        assert step.verdict == found.nodes[step.child].verdict and step.reward == reward.graded(step.verdict)
    assert found.steps[0].parent == "" and archive.read(archive.write(tmp_path, found)) == found


def test_what_does_not_compile_there_leads_on_by_repairs_alone() -> None:
    tree = grown(60)
    found = foresight.rescored(tree, roles(judge=Other(largest=64)), quiet)
    failed = [key for key, node in found.nodes.items() if node.verdict.status == "compile_error"]
    assert failed and all(value(found.nodes[key].program, "gemm", "BLOCK") == 128 for key in failed)
    assert not any(found.edges(key) for key in failed)


def test_steps_that_the_rules_do_not_propose_there_are_left_out_with_all_that_hangs_on_them(tmp_path: Path) -> None:
    tree = grown(60)
    found = foresight.rescored(tree, roles(Fewer(), Other()), quiet)
    assert 1 < len(found.nodes) < len(tree.nodes) and 0 < len(found.independent) < len(tree.independent)
    assert archive.read(archive.write(tmp_path, found)) == found
    assert not any("STAGES=3" in step.action.id for step in found.steps if step.action)
    for key, node in found.nodes.items():
        assert key == found.root or found.tree.path(key)
        assert set(found.edges(key)) <= {action.id for action in node.legal}


def test_a_program_that_nobody_verified_is_left_out_when_it_compiles_there() -> None:
    tree = grown(60)
    unknown = {key for key, node in tree.nodes.items() if node.verdict.status == "compile_error"}
    assert unknown and not unknown & foresight.rescored(tree, roles(judge=Other()), quiet).nodes.keys()


def test_a_fault_of_the_machine_is_no_verdict() -> None:
    tree = grown(12)
    lost = list(tree.nodes)[3]
    assert lost not in foresight.rescored(tree, roles(judge=Other(lost=lost)), quiet).nodes
    with pytest.raises(foresight.InfraError, match="first program of two"):
        foresight.rescored(tree, roles(judge=Other(lost=tree.root)), quiet)


def test_one_tree_that_fails_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        tree = grown(6)
        archive.write(tmp_path / "trees", replace(tree, question=replace(tree.question, name=name)))

    def setup(tree: StoredTree, gpu: str, *_) -> Setup:
        if tree.question.name == "a":
            raise BadInput("it cannot be read")
        return roles(judge=Other())

    monkeypatch.setattr(foresight, "setup", setup)
    arguments = ["rescore", str(tmp_path / "trees"), "--gpu", "v100", "--out", str(tmp_path / "new")]
    with pytest.raises(OutOfTime):
        cli.app([*arguments, "--minutes", "1e-9"], standalone_mode=False)
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 3 and "a: failed, it cannot be read" in result.stderr
    assert [path.name for path in archive.paths(tmp_path / "new")] == ["b.jsonl.xz"]
    monkeypatch.setattr(foresight, "setup", lambda *_: roles(judge=Other()))
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0 and "1/1 a: 6 of 6 programs" in result.stderr, "b is there already"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["predict", "nowhere"], "no trees"),
        (["rescore", "nowhere", "--gpu", "none", "--out", "x"], "none"),
        (["rescore", "trees", "--gpu", "v100", "--out", "trees"], "another folder"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        cli.app(arguments, standalone_mode=False)


@pytest.mark.slow
def test_a_sample_is_compiled_for_another_gpu(tmp_path: Path) -> None:
    name = "g1_0003_channel_gate.jsonl.xz"
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / name).write_bytes((archive.SAMPLES / name).read_bytes())
    arguments = ["rescore", str(tmp_path / "one"), "--gpu", "v100", "--out", str(tmp_path / "v100"), "--jobs", "1"]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    old, new = archive.read(tmp_path / "one" / name), archive.read(tmp_path / "v100" / name)
    assert new.root == old.root and 1 < len(new.nodes) <= len(old.nodes)
    first, other = new.nodes[new.root].verdict, old.nodes[old.root].verdict
    assert isinstance(first, Verified) and isinstance(other, Verified)
    assert first.timing.kind == "predicted" and first.timing.candidate_ms > other.timing.candidate_ms
