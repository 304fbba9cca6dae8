"""Run folders survive what can happen to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
from fakes import FIRST, FakeEvaluator, FakeMoves

from mtmc import policies
from mtmc.errors import BadInput
from mtmc.search import Limits, Search
from mtmc.trajectories import files
from mtmc.trajectories.store import Ending, Run, RunInfo, last_folder, new_folder

INFO = RunInfo("mlp", "abc", "mlp.py", "Model", "h100", "greedy", 0, 40, 0.0, "strict", "predicted", notes=("a note",))


def filled(folder):
    """A finished small run: the folder and its steps."""
    run = Run.create(folder, INFO)
    search = Search(FakeMoves(), FakeEvaluator(), policies.load("greedy"), Limits(4))
    steps = []
    for step in search.steps(FIRST):
        run.append(step, search.programs[step.child])
        steps.append(step)
    return run, steps, search


def test_what_was_written_is_read_back(tmp_path):
    run, steps, search = filled(tmp_path / "r")
    again = Run.open(tmp_path / "r")
    assert again.info == INFO
    assert again.steps() == tuple(steps)
    assert again.program(search.tree.best) == search.programs[search.tree.best]
    assert (tmp_path / "r/patches/001.patch").read_text().startswith("--- before.py")
    assert again.ending() is None


@pytest.mark.parametrize("torn", ['{"schema": 1, "ind', "x" * 5000])
def test_a_torn_last_line_costs_only_itself(tmp_path, torn):
    run, steps, search = filled(tmp_path / "r")
    with (tmp_path / "r/steps.jsonl").open("a") as file:
        file.write(torn)
    assert Run.open(tmp_path / "r").steps() == tuple(steps)
    run._lock.close()
    resumed = Run.resume(tmp_path / "r", INFO)
    resumed.append(replace(steps[-1], index=99), search.programs[steps[-1].child])
    assert [s.index for s in resumed.steps()] == [*range(len(steps)), 99]


def test_damage_in_the_middle_is_named(tmp_path):
    run, _, _ = filled(tmp_path / "r")
    path = tmp_path / "r/steps.jsonl"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 9', 1))
    with pytest.raises(BadInput, match="line 1, cannot be read: steps of schema 9"):
        run.steps()


def test_a_folder_that_holds_something_is_not_written_to(tmp_path):
    filled(tmp_path / "r")
    with pytest.raises(BadInput, match="--resume"):
        Run.create(tmp_path / "r", INFO)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="not a run folder"):
        Run.create(tmp_path / "other", INFO)
    assert os.listdir(tmp_path / "other") == ["thesis.txt"]
    with pytest.raises(BadInput, match="no run.json"):
        Run.open(tmp_path / "other")


def test_a_run_is_resumed_only_with_the_same_question_and_by_one_process(tmp_path):
    run, _, _ = filled(tmp_path / "r")
    with pytest.raises(BadInput, match="another process"):
        Run.resume(tmp_path / "r", INFO)
    run._lock.close()
    with pytest.raises(BadInput, match="its seed is 0, now it is 7"):
        Run.resume(tmp_path / "r", replace(INFO, seed=7))
    Run.resume(tmp_path / "r", replace(INFO, budget=99))


def test_the_ending_brings_the_answer_and_takes_it_away(tmp_path):
    run, steps, search = filled(tmp_path / "r")
    ending = Ending("Done.", search.tree.best, steps[-1].verdict, ("x was slower",))
    run.finish(ending)
    assert run.ending() == ending
    assert (tmp_path / "r/optimized.py").read_text() == search.programs[search.tree.best].source
    run.finish(Ending("Nothing."))
    assert not (tmp_path / "r/optimized.py").exists()
    assert run.ending() == Ending("Nothing.")


def test_folders_are_numbered(tmp_path):
    assert new_folder("mlp", "h100", tmp_path).name == "mlp-h100-001"
    for number in ("001", "009", "x"):
        (tmp_path / f"mlp-h100-{number}").mkdir()
    assert new_folder("mlp", "h100", tmp_path).name == "mlp-h100-010"
    with pytest.raises(BadInput, match="no run of mlp"):
        last_folder("mlp", "h100", tmp_path)
    (tmp_path / "mlp-h100-001/run.json").write_text("{}")
    assert last_folder("mlp", "h100", tmp_path).name == "mlp-h100-001"


def test_a_killed_writer_leaves_only_whole_steps(tmp_path):
    script = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
        from dataclasses import replace
        from pathlib import Path
        from test_store import INFO, filled
        run, steps, search = filled(Path({str(tmp_path / "r")!r}))
        print("ready", flush=True)
        while True:
            steps.append(replace(steps[-1], index=len(steps)))
            run.append(steps[-1], search.programs[steps[-1].child])
    """)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    while (tmp_path / "r/steps.jsonl").read_bytes().count(b"\n") < 8:
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    steps = Run.resume(tmp_path / "r", INFO).steps()
    assert [s.index for s in steps] == list(range(len(steps))) and len(steps) >= 8
    assert not [p for p in (tmp_path / "r").glob("*.json") if not json.loads(p.read_text())]


@pytest.mark.parametrize(
    "place, why", [("folder", "Is a directory"), ("file/below", "File exists"), ("file/a/b", "Not a directory")]
)
def test_a_place_that_cannot_be_written_is_said_in_a_sentence_and_nothing_is_left(tmp_path, place, why):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=f"cannot be written: {why}"):
        files.put(tmp_path / place, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    "name, text, read",
    [
        ("run.json", "{", Run.open),
        ("run.json", '{"schema": 1}', Run.open),
        ("result.json", '{"schema": 1}', lambda folder: Run.open(folder).ending()),
        ("steps.jsonl", "{}\n", lambda folder: Run.open(folder).steps()),
        ("programs/none.py", None, lambda folder: Run.open(folder).program("none")),
    ],
)
def test_a_damaged_run_is_said_in_a_sentence(tmp_path, name, text, read):
    filled(folder := tmp_path / "run")
    if text:
        (folder / name).write_text(text)
    with pytest.raises(BadInput, match=f"{name}.* cannot be read"):
        read(folder)


def test_a_file_is_put_into_folders_that_are_made(tmp_path):
    files.put(tmp_path / "a/b/c.txt", "text")
    assert (tmp_path / "a/b/c.txt").read_text() == "text"
