"""The chain of `mtmc learn`: order, what is skipped, how time is shared out, the adapter in its place; no training."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from mtmc import cli, learning
from mtmc.errors import UNFINISHED, BadInput, InfraError, OutOfTime, guarded
from mtmc.learning import Plan, learn
from mtmc.trajectories import archive

ALL = ["collect", "predict", "pretrain", "train", "evaluate-policy"]


class Commands:
    """In the place of processes: notes each command and ends it with the next of the `codes` for its name, else with 0.

    One that ends with UNFINISHED has used up its time, another takes a second.
    """

    def __init__(self, out) -> None:
        self.out, self.ran, self.codes, self.clock = out, [], {}, 0.0

    def run(self, command, seconds):
        assert command[:3] == [sys.executable, "-m", "mtmc"]
        name, codes = command[3], self.codes.get(command[3], [])
        self.ran.append(command[3:])
        code = codes.pop(0) if codes else 0
        self.clock += seconds - learning.GRACE if code == UNFINISHED else 1.0
        if name == "train":
            (self.out / "rl/adapter").mkdir(parents=True, exist_ok=True)
            (self.out / "rl/adapter/adapter_config.json").write_text(str(len(self.ran)))
        return code

    @property
    def names(self):
        return [command[0] for command in self.ran]


@pytest.fixture
def plan(tmp_path):
    return Plan(tmp_path / "out", tmp_path / "place/default")


@pytest.fixture
def commands(plan, monkeypatch):
    found = Commands(plan.out)
    monkeypatch.setattr(learning, "_run", found.run)
    monkeypatch.setattr(learning.time, "monotonic", lambda: found.clock)
    return found


def entries(plan):
    return json.loads((plan.out / learning.FILE).read_text())["steps"]


def test_the_steps_follow_one_another_and_are_done_once(commands, plan):
    learn(plan, 0, print)
    assert commands.names == ALL and not any("--minutes" in command for command in commands.ran)
    assert (plan.place / "adapter_config.json").read_text() == "4"
    assert f"cloned=llm-on:+{plan.out}/bc/adapter" in commands.ran[-1] and "untrained=llm-on:+" in commands.ran[-1]
    learn(plan, 0, print)
    assert commands.names == ALL


def test_a_call_goes_on_where_the_last_one_ended(commands, plan):
    commands.codes = {"collect": [UNFINISHED], "train": [UNFINISHED]}
    for _ in range(2):
        with pytest.raises(OutOfTime):
            learn(plan, 8, print)
    assert commands.names == ["collect", "collect", "predict", "pretrain", "train"] and not plan.place.exists()
    assert [command[-1] for command in commands.ran] == ["8.00", "8.00", "7.98", "7.97", "7.95"]
    learn(plan, 8, print)
    assert commands.names[5:] == ["train", "evaluate-policy"] and plan.place.exists()


def test_a_limit_ends_a_step_for_good(commands, plan):
    commands.codes = {"collect": [UNFINISHED, UNFINISHED]}
    limited = replace(plan, limits={"collect": 10.0})
    with pytest.raises(OutOfTime):
        learn(limited, 8, print)
    plan.store.mkdir()
    (plan.store / f"one{archive.SUFFIX}").touch()
    learn(limited, 8, print)
    assert [command[-1] for command in commands.ran[:3]] == ["8.00", "2.00", "6.00"]
    assert commands.names[2] == "predict" and entries(plan)["collect"] == {
        "command": ["collect", "--store", str(plan.store)],
        "seconds": 600.0,
        "done": "cut short",
    }


@pytest.mark.parametrize("step", ["collect", "pretrain"])
def test_a_limit_that_leaves_nothing_is_told(commands, plan, step: str):
    commands.codes = {step: [UNFINISHED]}
    with pytest.raises(InfraError, match=f"{step} has left nothing within its --limit"):
        learn(replace(plan, limits={step: 1.0}), 8, print)
    assert not entries(plan)[step]["done"]


def test_a_step_that_fails_ends_the_call_and_is_tried_again(commands, plan):
    commands.codes = {"predict": [3], "pretrain": [1]}
    with pytest.raises(InfraError, match="pretrain ended with the exit code 1"):
        learn(plan, 0, print)
    learn(plan, 0, print)
    assert commands.names == ["collect", "predict", "pretrain", *ALL[2:]]


def test_other_options_are_refused_for_what_is_done_and_taken_for_what_is_not(commands, plan):
    commands.codes = {"pretrain": [1]}
    with pytest.raises(InfraError):
        learn(plan, 0, print)
    changed = replace(plan, options={"pretrain": ("--steps", "9")})
    learn(changed, 0, print)
    assert commands.ran[3][-2:] == ["--steps", "9"]
    with pytest.raises(BadInput, match="pretrain was done by .*; take another --out"):
        learn(plan, 0, print)


def test_trees_that_are_there_take_the_place_of_grown_ones(commands, plan, tmp_path):
    learn(replace(plan, trees=(tmp_path / "a", tmp_path / "b"), skipped=("collect", "predict"), model="base"), 0, print)
    assert commands.ran[0] == ["pretrain", f"{tmp_path}/a", f"{tmp_path}/b", "--model", "base", "--out", f"{plan.out}/bc"]
    assert f"base+{plan.out}/bc/adapter" in commands.ran[1]


def test_the_adapter_before_is_kept_and_changed_actions_are_noticed(commands, plan, monkeypatch):
    plan.place.mkdir(parents=True)
    (plan.place / "adapter_config.json").write_text("old")
    learn(plan, 0, print)
    assert (plan.place / "adapter_config.json").read_text() == "4"
    assert (plan.out / "adapter-before/adapter_config.json").read_text() == "old"
    said = []
    monkeypatch.setattr(learning, "_rules", lambda: "others")
    learn(plan, 0, said.append)
    assert "the actions have changed" in said[0] and commands.names == ALL


def test_a_process_that_overstays_is_interrupted_then_killed(monkeypatch):
    monkeypatch.setattr(learning, "LAST", 0.5)
    stubborn = f"import signal, time; signal.signal({int(signal.SIGINT)}, signal.SIG_IGN); time.sleep(60)"
    began = time.monotonic()
    assert learning._run([sys.executable, "-c", stubborn], 0.5) == UNFINISHED
    assert time.monotonic() - began < 20
    assert learning._run([sys.executable, "-c", "raise SystemExit(7)"], float("inf")) == 7


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--limit", "collect"], "--limit wants STEP=MINUTES"),
        (["--limit", "evaluate=3"], '"evaluate" is none of collect, predict, pretrain, train'),
        (["--skip", "train"], '"train" is none of collect, predict'),
        (["--skip", "collect"], "Without collect there must be --trees"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(options, why, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        guarded(lambda: cli.app(["learn", "--out", str(tmp_path), *options], standalone_mode=False))
    assert ended.value.code == 2 and why in capsys.readouterr().err


def test_the_options_reach_the_steps(commands, plan, tmp_path):
    arguments = ["learn", "--out", str(plan.out), "--adapter", str(plan.place), "--with", "collect=--problems 3 --seed 1"]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    assert commands.ran[0] == ["collect", "--store", str(plan.store), "--problems", "3", "--seed", "1"]
