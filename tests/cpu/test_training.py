"""Training of a model of two layers on the world of two kernels: it learns, resumes, and leaves an adapter behind."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from random import Random

import pytest
import torch
from policy_views import view
from test_decisions import INFO, stored  # noqa: F401

from mtmc import cli, policies
from mtmc.action import Action
from mtmc.errors import BadInput, InfraError, OutOfTime
from mtmc.policies import pretrain_bc, tiny, train_rl
from mtmc.policies.curves import read
from mtmc.policies.decisions import Stage, trees
from mtmc.policies.menu import Option, menu
from mtmc.policies.model import Lora, Policy, Until, fitting, masks
from mtmc.policies.weights import Source
from mtmc.trajectories import archive

SAMPLES = trees([archive.SAMPLES])
CLONING = replace(pretrain_bc.TINY, steps=4, every=2, batch=2, rows=2, looked_at=4)


OVER = Until(moment=0.0)  # the time is over: one step is done


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Source(str(tiny.write(tmp_path_factory.mktemp("tiny") / "model")))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def short(stages):
    """The stages with prompts of a few words: the model of two layers reads bytes."""
    return [replace(stage, prefix=f"{i}\n") for i, stage in enumerate(stages)]


def test_cloning_lowers_the_loss(model, stored):  # noqa: F811
    from mtmc.policies.decisions import stages

    learnt = short(list(stages(stored))[:4])
    learnt = [replace(stage, menu=tuple(Option(f"{i}", o.actions) for i, o in enumerate(stage.menu))) for stage in learnt]
    policy = Policy(model, Lora(8, 16), "cpu", 0)
    optimizer = torch.optim.AdamW(policy.trained(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = pretrain_bc.compare(policy, learnt)[0].mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.3


def hinted(rng, count=4):
    """A menu of equal texts with predicted gains of chance; the largest is the right answer."""
    actions = tuple(Action("tile", "tiling", "a", (("value", i),), "Tile.") for i in range(count))
    gains = {action.id: rng.uniform(-0.5, 1.0) for action in actions}
    best = max(range(count), key=lambda i: gains[actions[i].id])
    return Stage("", menu(actions, gains), tuple(float(i == best) for i in range(count)), (True,) * count)


def test_cloning_learns_to_follow_predicted_gains_and_does_so_on_new_menus(model):
    policy, rng = Policy(model, Lora(16, 32), "cpu", 0), Random(0)
    optimizer = torch.optim.AdamW(policy.trained(), lr=1e-3)
    new = [hinted(Random(1000 + i)) for i in range(64)]
    for _ in range(100):
        pretrain_bc.compare(policy, [hinted(rng) for _ in range(16)])[0].mean().backward()
        torch.nn.utils.clip_grad_norm_(policy.trained(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert float(pretrain_bc.compare(policy, new)[1].float().mean()) > 0.8  # by chance 0.25


def test_a_resumed_cloning_ends_as_an_unbroken_one_and_its_adapter_is_a_policy(model, tmp_path):
    whole = pretrain_bc.pretrain(SAMPLES, tmp_path / "whole", model, CLONING, "cpu")
    other = pretrain_bc.pretrain(SAMPLES, tmp_path / "cut", model, CLONING, "cpu", OVER)
    assert other != whole
    resumed = pretrain_bc.pretrain(SAMPLES, tmp_path / "cut", model, CLONING, "cpu")
    assert resumed["loss/learnt"] == pytest.approx(whole["loss/learnt"], rel=1e-4)
    assert [row["step"] for row in read(tmp_path / "cut")] == [1, 2, 4]
    assert (tmp_path / "cut/curves.png").read_bytes().startswith(b"\x89PNG") and list(
        (tmp_path / "cut/tensorboard").iterdir()
    )
    policy = policies.load(f"llm:{model.base}+{tmp_path}/cut/adapter")
    assert policy.choose(view(), Random(0)).action in view().legal
    with pytest.raises(BadInput, match="cannot be resumed: rate was"):
        pretrain_bc.pretrain(SAMPLES, tmp_path / "cut", model, replace(CLONING, rate=1.0), "cpu")


def test_a_training_that_its_time_cut_short_is_unfinished():
    OVER.check(4, 4)
    Until(2).check(2, 4)
    with pytest.raises(OutOfTime):
        OVER.check(1, 4)


@pytest.mark.parametrize(("rows", "advice"), [(16, "try --rows 8; what is done is kept"), (1, "try a GPU with more")])
def test_a_gpu_without_room_is_told_in_one_sentence(rows, advice):
    with pytest.raises(InfraError, match=advice), fitting(rows):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_every_stage_comes_once_an_epoch(stored):  # noqa: F811
    data = pretrain_bc.gather([stored], replace(CLONING, watched=0.0))
    settings, size = replace(CLONING, batch=5), len(data.learnt)
    drawn = [stage.prefix for step in range(1, size + 1) for stage in pretrain_bc.draw(data.learnt, step, settings)]
    for epoch in range(5):
        assert sorted(drawn[epoch * size : (epoch + 1) * size]) == sorted(stage.prefix for stage in data.learnt)


def test_reinforcement_runs_resumes_and_refuses_other_settings(model, tmp_path):
    settings = replace(train_rl.TINY, iterations=2, walks=2, horizon=2)
    train_rl.train(SAMPLES, tmp_path / "rl", model, settings, "cpu", OVER)
    with pytest.raises(BadInput, match="cannot be resumed: kl was"):
        train_rl.train(SAMPLES, tmp_path / "rl", model, replace(settings, kl=1.0), "cpu")
    figures = train_rl.train(SAMPLES, tmp_path / "rl", model, settings, "cpu")
    assert {"return", "entropy", "divergence from the start", "value error"} <= set(figures)
    rows = (tmp_path / "rl/metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 2]
    assert policies.load(f"llm:{model.base}+{tmp_path}/rl/adapter").choose(view(), Random(0)).action in view().legal


def choice(policy, options, taken, advantage):
    """A choice among `options` labels, drawn from the policy as it is."""
    row, known = policy.ids("Answer:"), [True] * options
    with torch.no_grad():
        chances = policy([row], masks([known], policy.device))[0][0]
    stage = train_rl.Stage(row, known, taken, chances)
    return train_rl.Choice([stage], float(chances[taken]), 0.0, advantage, 1.0)


def test_the_objective_makes_what_paid_likelier_and_learns_the_value(model):
    policy = Policy(model, Lora(4, 8), "cpu", 0)
    good, bad = choice(policy, 3, 1, 1.0), choice(policy, 3, 2, -1.0)
    before = torch.tensor(good.log_probability).exp()
    optimizer = torch.optim.AdamW([*policy.trained(), *policy.head.parameters()], lr=1e-2)
    settings = replace(train_rl.TINY, kl=0.0, floor=0.0, batch=2, passes=20)
    first = train_rl.update(policy, optimizer, [good, bad], replace(settings, passes=1), Random(0))
    last = train_rl.update(policy, optimizer, [good, bad], settings, Random(0))
    after = choice(policy, 3, 1, 1.0)
    assert torch.tensor(after.log_probability).exp() > before + 0.02
    assert last["value error"] < first["value error"] and first["divergence from the start"] == pytest.approx(0.0, abs=1e-5)


def test_advantages_are_the_discounted_surprises():
    made = [train_rl.Choice(value=0.5), train_rl.Choice(value=0.2)]
    train_rl.credit(made, [1.0, 2.0], 0.9, 0.5)
    assert made[1].advantage == pytest.approx(1.8) and made[1].target == pytest.approx(2.0)
    assert made[0].advantage == pytest.approx(1.0 + 0.9 * 0.2 - 0.5 + 0.9 * 0.5 * 1.8)


def test_walks_of_one_tree_are_compared_step_by_step():
    walks = [[train_rl.Choice(advantage=a) for a in found] for found in ([3.0, 1.0], [1.0], [2.0, 5.0])]
    train_rl.compare(walks)
    assert [[c.advantage for c in made] for made in walks] == [[1.5, -1.5], [-1.5], [0.0, 4.5]]
    alone = [[train_rl.Choice(advantage=2.0)]]
    train_rl.compare(alone)
    assert alone[0][0].advantage == 2.0


def test_the_curriculum_opens_grade_by_grade():
    found = SAMPLES
    grades = [{tree.question.grade for tree in train_rl.curriculum(found, p, 0.5)} for p in (0.0, 0.11, 0.21, 0.5, 1.0)]
    assert grades == [{1}, {1, 2}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}]


@pytest.mark.parametrize(("command", "option"), [("pretrain", "--temperature"), ("train", "--horizon")])
def test_the_command_hands_its_options_on(command, option, monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["mtmc", command, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    code, out, _ = call("--help")
    assert not code and option in out
    code, _, err = call("/nowhere")
    assert code == 2 and err == "mtmc: /nowhere is no folder of trees or runs.\n"
