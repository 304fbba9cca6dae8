"""How `mtmc bench` runs: a process and a row for each problem whatever happens to it, resumable, and only with a GPU."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench_rows import SMALL, failed, row
from fakes import FIRST, FakeEvaluator

from mtmc import cli, hardware_profiles
from mtmc.action import Action
from mtmc.bench import crosscheck, guard, one, rows, runner
from mtmc.bench.guard import Guard
from mtmc.bench.one import Asked, Task
from mtmc.bench.runner import Plan, Runner, Watcher, left, next_run
from mtmc.bench.suite import Case, cases
from mtmc.errors import BadInput, InfraError
from mtmc.graph import Graph, Node, Ref, TensorType
from mtmc.judge.processes import running
from mtmc.optimizer import Result
from mtmc.step import Step
from mtmc.trajectories.store import Ending, Run, RunInfo
from mtmc.verdict import CompileError, Wrong

MODEL = "class Model: ...\n"
ROOMY = Guard(1 << 62, 0)
ANSWER = {"status": "verified", "eager_ms": 2.0, "ours_ms": 1.0, "over_eager": 2.0, "low": 1.9, "high": 2.1}
PROBLEM = """
import json, os, subprocess, sys, time
task = json.loads(sys.argv[1])
name = os.path.basename(task["folder"])
with open(os.environ["SEEN"], "a") as seen:
    seen.write(name + (" check" if task["checkout"] else "") + "\\n")
if name == "1-2":
    sys.exit("RuntimeError: it broke")
if name == "1-3" and os.environ.get("SLOW"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
    open(os.environ["SEEN"] + ".pids", "w").write(f"{os.getpid()} {child.pid}")
    time.sleep(100)
answer = {"kernelbench_correct": True, "kernelbench_note": ""} if task["checkout"] else json.loads(os.environ["ANSWER"])
open(task["answer"], "w").write(json.dumps(answer))
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A suite of three problems, and a process for each that writes what it was asked to `seen`."""
    folder = tmp_path / "suite" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for number in (1, 2, 3):
        (folder / f"{number}_Problem.py").write_text(MODEL)
    (tmp_path / "problem.py").write_text(PROBLEM)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("ANSWER", json.dumps(ANSWER))
    monkeypatch.setattr(runner, "CLEARING", 0.2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(task: Task) -> list[str]:
    return [sys.executable, "problem.py", task.text()]


def plan(world: Path, **fields) -> Plan:
    found = cases("kernelbench", world / "suite")
    return Plan(found, world / "rows.jsonl", world / "runs", 3, **{"facts": {"gpu": "NVIDIA H200"}, "jobs": 3, **fields})


def recorded(world: Path) -> dict[str, rows.Row]:
    return {one.problem: one for one in rows.read(world / "rows.jsonl")}


def seen(world: Path) -> list[str]:
    return sorted((world / "seen").read_text().split("\n")[:-1])


def test_every_problem_has_a_row_that_names_run_date_versions_and_options(world):
    told = []
    watcher = Watcher()
    watcher.finished = told.append
    assert Runner(plan(world), ROOMY, watcher, start).run()
    found = recorded(world)
    assert {name: row.status for name, row in found.items()} == {"1/1": "verified", "1/2": "failed", "1/3": "verified"}
    assert found["1/2"].message == "RuntimeError: it broke"
    first = found["1/1"]
    assert (first.run, first.gpu, first.title, first.ours_ms) == (3, "NVIDIA H200", "1_Problem", 1.0)
    assert first.date and first.options == Asked().to_json() and first.seconds is not None
    assert {row.problem for row in told} == set(found)


def test_the_checker_is_asked_about_verified_problems_only(world):
    assert Runner(plan(world, checkout="there"), ROOMY, None, start).run()
    assert seen(world) == ["1-1", "1-1 check", "1-2", "1-3", "1-3 check"]
    assert recorded(world)["1/3"].kernelbench_correct is True and recorded(world)["1/2"].kernelbench_correct is None


def test_a_problem_that_takes_too_long_is_ended_with_all_its_processes(world, monkeypatch):
    monkeypatch.setenv("SLOW", "1")
    assert Runner(plan(world, minutes=0.02), ROOMY, None, start).run()
    assert recorded(world)["1/3"].status == "timeout" and "0.02 minutes" in recorded(world)["1/3"].message
    pids = [int(pid) for pid in (world / "seen.pids").read_text().split()]
    assert not any(map(running, pids))


def test_a_problem_that_takes_too_much_memory_is_ended_and_has_a_row(world, monkeypatch):
    monkeypatch.setenv("SLOW", "1")
    began = time.monotonic()
    one_case = replace(plan(world), cases=plan(world).cases[2:])
    assert Runner(one_case, Guard(1 << 20, 0), None, start).run()
    assert time.monotonic() - began < 20
    found = recorded(world)["1/3"]
    assert found.status == "skipped" and "GiB of the host's memory" in found.message


def test_problems_wait_until_the_host_has_memory(world, monkeypatch):
    free, waited = [0], []
    monkeypatch.setattr(guard, "available_bytes", lambda: free[0])
    watcher = Watcher()

    def waiting(case: Case) -> None:
        waited.append(case.name)
        free[0] = 100

    watcher.waiting = waiting
    assert Runner(plan(world, jobs=1), Guard(1 << 62, 50), watcher, start).run()
    assert waited == ["1/1"] and len(recorded(world)) == 3


def test_what_is_not_started_in_time_has_a_row_and_is_taken_up_again(world):
    assert Runner(plan(world, hours=1e-9), ROOMY, None, start).run()
    found = rows.read(world / "rows.jsonl")
    assert {row.status for row in found} == {"skipped"} and "not started" in found[0].message
    assert not (world / "seen").exists()
    again = left(found, found[0].run, plan(world).cases, Asked(), False)
    assert len(again.cases) == 3 and again.noted == {"1/1", "1/2", "1/3"}
    assert Runner(plan(world, hours=1e-9), ROOMY, None, start, again.unasked, again.noted).run()
    assert len(rows.read(world / "rows.jsonl")) == 3


def test_ctrl_c_ends_what_runs_and_keeps_what_is_done(world, monkeypatch):
    monkeypatch.setenv("SLOW", "1")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell has started this behind a `&`
    watcher = Watcher()
    watcher.finished = lambda row: threading.Timer(0.5, interrupt).start() if row.problem == "1/2" else None

    def interrupt() -> None:
        os.kill(os.getpid(), 2)

    try:
        assert not Runner(plan(world, jobs=1), ROOMY, watcher, start).run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(recorded(world)) == {"1/1", "1/2"}
    pids = [int(pid) for pid in (world / "seen.pids").read_text().split()] if (world / "seen.pids").exists() else []
    assert not any(map(running, pids))


def test_a_run_goes_on_where_it_was_and_asks_only_for_what_is_missing(world):
    there = plan(world).cases
    made = [replace(row, options=Asked().to_json()) for row in (row("1/1"), failed("1/3", "infra"), failed("1/2"))]
    assert [case.name for case in left(made, 1, there, Asked(), False).cases] == ["1/3"]
    found = left(made, 1, there, Asked(), True)
    assert [case.name for case in found.cases] == ["1/1", "1/3"] and set(found.unasked) == {"1/1"}
    going_on = replace(plan(world, checkout="there"), cases=found.cases)
    assert Runner(going_on, ROOMY, None, start, found.unasked).run()
    assert seen(world) == ["1-1 check", "1-3", "1-3 check"]
    assert recorded(world)["1/1"] == replace(made[0], kernelbench_correct=True)
    with pytest.raises(BadInput, match="budget 16"):
        left(made, 1, there, Asked(budget=3), False)
    with pytest.raises(BadInput, match="no run to resume"):
        left([], 0, there, Asked(), False)


def test_a_run_without_a_row_goes_on_too_and_so_does_a_failed_opinion(world):
    there = plan(world).cases
    made = [replace(row("1/1"), options=Asked().to_json(), kernelbench_note="No module named 'pydantic'")]
    found = left(made, 2, there, Asked(budget=3), True)
    assert found.run == 2 and len(found.cases) == len(there), "run 2 was interrupted in its first problem"
    assert set(left(made, 1, there, Asked(), True).unasked) == {"1/1"}


def test_a_new_run_takes_no_folder_of_an_earlier_one(tmp_path):
    assert next_run([], tmp_path / "b.jsonl", tmp_path) == 1
    (tmp_path / "b-005").mkdir()
    assert next_run([replace(SMALL[0], run=4)], tmp_path / "b.jsonl", tmp_path) == 6


def test_a_task_travels_as_text():
    task = Task(
        "a.py", "runs/1-1", "a.answer", Asked(("eager-graph",), 3, 0.5, 7, "tf32", policy="random", cached=True), "there"
    )
    assert Task.read(task.text()) == task


INFO = RunInfo("p", "abc", "p.py", "Model", "h200", "greedy", 0, 16, 2.0, "strict", "measured")
H200 = hardware_profiles.load("h200")
TILE = Action("tile", "tiling", "gemm", (("BLOCK", 64),), "Use a tile of 64 in gemm.")


def finished(folder: Path, verdict, final=None) -> Result:
    run = Run.create(folder, INFO)
    run.append(Step(0, "", FIRST.key, None, verdict, 0.5, ""), FIRST)
    run.finish(Ending("The budget is used up.", FIRST.key if final else "", final))
    return Result(folder, "The budget is used up.", run.steps(), (), FIRST.source if final else None, final)


def test_a_row_says_what_the_last_judgement_found(tmp_path):
    verdict = FakeEvaluator("measured", noise=0.02).judge(FIRST)
    timing = replace(verdict.timing, library_ms=sum(verdict.timing.kernels_ms.values()), peak_bytes=7, graph_ms=0.5)
    final = replace(verdict, timing=replace(timing, baselines_ms={"compile-default": 9.0}, reference_graph_ms=1.0))
    found = one.found(finished(tmp_path / "r", verdict, final), None, H200)
    made = rows.Row("1/1", **found)
    assert made.won and made.units == 2 and made.candidates == 1
    assert (made.kernel_share, made.peak_bytes, made.graph_ms, made.eager_graph_ms) == (0.5, 7, 0.5, 1.0)
    assert made.times == {"eager": 10.0, "compile-default": 9.0} and made.error == 2e-7


def test_what_does_not_beat_eager_is_judged_a_last_time_all_the_same(tmp_path):
    verdict = FakeEvaluator("measured", reference_ms=0.1).judge(FIRST)
    asked = []

    def judged(program):
        asked.append(program.key)
        return verdict

    made = rows.Row("1/1", **one.found(finished(tmp_path / "r", verdict), judged, H200))
    assert asked == [FIRST.key] and made.verified and made.handed_back is False and not made.won
    made = rows.Row("1/1", **one.found(finished(tmp_path / "s", verdict), lambda _: Wrong("off by 2"), H200))
    assert (made.status, made.message) == ("wrong", "off by 2")


def test_a_problem_without_a_verified_program_says_why(tmp_path):
    made = rows.Row("1/1", **one.found(finished(tmp_path / "r", CompileError("no such op")), None, H200))
    assert (made.status, made.message, made.reason) == ("none", "no such op", "The budget is used up.")


@pytest.mark.parametrize(
    ("error", "status"), [(BadInput("the file has no class Model"), "none"), (InfraError("no memory"), "infra")]
)
def test_a_problem_that_cannot_be_used_is_a_row_too(monkeypatch, error, status):
    def broken(task):
        raise error

    monkeypatch.setattr(one, "measure", broken)
    assert one.answer(Task("a.py", "r", "a")) == {"status": status, "message": str(error)}


def test_what_cannot_fit_on_the_gpu_is_skipped_with_the_figures():
    big = TensorType((1 << 34,), "float32")
    nodes = (Node("x", "input", type=big), Node("y", "aten.relu.default", (Ref("x"),), type=big))
    said = "inputs, state and both sides' results take 206 GB, the GPU has 141 GB"
    assert one.too_large(Graph(nodes, Ref("y")), H200) == said
    small = replace(big, shape=(1 << 33,))
    assert not one.too_large(Graph(tuple(replace(node, type=small) for node in nodes), Ref("y")), H200)


EVALUATOR = """
import torch
from openai import OpenAI
from litellm import completion

class Found:
    def __init__(self, correctness):
        self.correctness, self.metadata = correctness, {"hardware": "x", "max_difference": ["0.5"]}

def eval_kernel_against_ref(reference, candidate, num_correct_trials, measure_performance, backend):
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    if candidate == "raises":
        raise RuntimeError("expected scalar type Long\\nmore")
    return None if candidate == "locked" else Found(reference == candidate)
"""


@pytest.fixture
def checker():
    """Write the text of a checker into a checkout; what was imported of it is forgotten afterwards."""

    def write(checkout, text):
        package = checkout / "src" / "kernelbench"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "eval.py").write_text(text)

    yield write
    for name in ("kernelbench", "kernelbench.eval"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ("x", (True, "")),
        ("y", (False, "max_difference: ['0.5']")),
        ("locked", (None, "KernelBench's checker gave no verdict")),
        ("raises", (None, "KernelBench's checker raised RuntimeError: expected scalar type Long")),
    ],
)
def test_the_checkers_opinion(tmp_path, monkeypatch, checker, candidate, expected):
    checker(tmp_path, EVALUATOR)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert crosscheck.opinion(crosscheck.evaluator(tmp_path), "x", candidate) == expected


def test_a_checker_that_cannot_be_loaded_is_told_before_anything_runs(tmp_path, checker):
    checker(tmp_path, "import a_package_that_nobody_has")
    with pytest.raises(BadInput, match="cannot load KernelBench's checker: No module named 'a_package_that_nobody_has'"):
        crosscheck.imported(tmp_path)


@pytest.fixture
def mtmc(monkeypatch, capsys):
    """Run the command in this process: (exit code, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["mtmc", "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


@pytest.fixture
def gpu(world, monkeypatch):
    """A machine that says it has an H200, and fake processes for the problems."""
    monkeypatch.setattr(hardware_profiles, "detect", lambda: hardware_profiles.load("h200"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(runner, "command", start)
    return world


def test_without_a_gpu_one_sentence_says_so_and_results_can_still_be_read(world, mtmc):
    code, out, err = mtmc("--path", "suite")
    assert (code, out, err.count("\n")) == (2, "", 1) and "times on a GPU and there is none here" in err
    for made in SMALL:
        rows.append(world / "old.jsonl", made)
    code, out, err = mtmc("show", "old.jsonl")
    assert code == 0 and out.startswith("# Benchmark") and not err
    assert mtmc("compare", "old.jsonl", "old.jsonl")[1].startswith("4 equal, 1 neither")


def test_the_command_runs_draws_and_resumes(gpu, mtmc, checker):
    checker(gpu / "suite", EVALUATOR)
    code, out, err = mtmc("--path", "suite", "-o", "rows.jsonl", "--problems", "1/1,1/2", "--jobs", "1")
    assert code == 0 and out.split() == ["rows.md", "rows.html"]
    assert "1/1 2.00 over eager" in err and "1/2 failed: RuntimeError: it broke" in err
    assert "torch" in (gpu / "rows.md").read_text() and "1/1" in (gpu / "rows.html").read_text()
    assert mtmc("--path", "suite", "-o", "rows.jsonl", "--resume", "--cross-check", "-q", "--jobs", "2")[0] == 0
    assert seen(gpu) == ["1-1", "1-1 check", "1-2", "1-3", "1-3 check"]
    found = recorded(gpu)
    assert {row.run for row in found.values()} == {1} and found["1/1"].kernelbench_correct
    assert found["1/1"].gpu == "NVIDIA H200" and found["1/1"].torch and found["1/1"].mtmc and found["1/1"].code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--path", "nowhere"], "holds no problem"),
        ([], "Give the suite's folder with --path"),
        (["--path", "suite", "--levels", "one"], '"one" is not a level'),
        (["--path", "suite", "--baselines", "fastest"], "unknown baseline 'fastest'"),
        (["--path", "suite", "--precision", "sloppy"], "unknown precision"),
        (["--path", "suite", "--cross-check"], "no src/kernelbench/eval.py"),
        (["--path", "suite", "--resume"], "no run to resume"),
        (["--path", "suite", "--degenerate", "nowhere"], "not a list of degenerate problems"),
        (["show", "nowhere.jsonl"], "cannot be read"),
        (["compare", "nowhere.jsonl", "nowhere.jsonl"], "cannot be read"),
        (["compare", "empty.jsonl", "empty.jsonl"], "no row in empty.jsonl"),
        (["show", "other.jsonl"], "line 1, is not a row of mtmc bench: it has no status"),
    ],
)
def test_bad_input_is_one_sentence_code_2_and_no_file(gpu, mtmc, arguments, message):
    (gpu / "empty.jsonl").write_text("")
    (gpu / "other.jsonl").write_text('{"problem": "1/1"}\n')
    before = sorted(path.name for path in gpu.iterdir())
    code, out, err = mtmc(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err
    assert sorted(path.name for path in gpu.iterdir()) == before


def test_the_docs_name_every_option():
    import typer

    text = (Path(__file__).parents[2] / "docs/bench.md").read_text()
    group = typer.main.get_command(cli.app).commands["bench"]
    parameters = [*group.params, *(parameter for command in group.commands.values() for parameter in command.params)]
    options = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts) if name[:2] == "--"}
    assert len(options) > 15 and not {name for name in options if f"`{name}" not in text}
