"""Worker processes: every way in which a candidate can misbehave ends as its typed verdict, and the workers go on."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import judge_samples as samples
import numpy as np
import pytest
import torch
from processes import environment

from mtmc.hardware_profiles import load
from mtmc.judge.executor import GIB, Limits, LocalProcesses
from mtmc.judge.jobs import Compiled, CompileJob, GpuVerifyJob, InterpretJob, Job
from mtmc.judge.processes import running as alive
from mtmc.judge.turns import turn
from mtmc.judge.wire import outcome_of
from mtmc.verdict import Accuracy, CompileError, Infra, RuntimeFault, Timeout, Timing, Verified, Wrong

H100 = load("h100")
FAST = Limits(
    workers={"compile": 1, "interpret": 1, "gpu": 1},
    memory_bytes={"compile": 3 * GIB // 2, "interpret": 3 * GIB // 2, "gpu": GIB},
)


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcesses]:
    with LocalProcesses(tmp_path_factory.mktemp("cache"), FAST) as running:
        yield running


def compiled(executor: LocalProcesses, source: str, seconds: float = 60) -> object:
    job = CompileJob(problem=samples.problem(), source=source, profile=H100, seconds=seconds)
    return executor.submit(job).result()


def interpreted(executor: LocalProcesses, source: str, seconds: float = 60) -> object:
    return executor.submit(InterpretJob(problem=samples.problem(), source=source, seconds=seconds)).result()


def test_a_good_candidate_compiles_for_the_target(executor: LocalProcesses) -> None:
    result = compiled(executor, samples.CANDIDATE)
    assert isinstance(result, Compiled)
    (launch,) = result.launches
    assert (launch.kernel, launch.grid) == ("relu_kernel", (11, 1, 1))
    assert launch.registers > 0


def test_a_good_candidate_is_interpreted(executor: LocalProcesses) -> None:
    result = interpreted(executor, samples.CANDIDATE)
    assert isinstance(result, Accuracy)
    assert result.candidate_error < 1e-6
    assert result.checked == ("own 37x70",)
    assert executor.spent["interpret verify"] > 0 and executor.spent["interpret start"] > 0


@pytest.mark.parametrize(
    ("source", "cause", "words"),
    [
        (samples.SYNTAX, "syntax", "line"),
        (samples.NO_COMPILE, "compile", "no_such_function"),
        (samples.TOO_MUCH_SHARED, "shared_memory", "Hardware limit: 232448"),
    ],
)
def test_compile_errors(executor: LocalProcesses, source: str, cause: str, words: str) -> None:
    result = compiled(executor, source)
    assert isinstance(result, CompileError), result
    assert result.cause == cause
    assert words in result.message
    assert "\n" not in result.message


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (samples.OUT_OF_BOUNDS, "out_of_bounds"),
        (samples.MASKED_STORE_TOO_FAR, "out_of_bounds"),
        (samples.EXITS, "died"),
        (samples.SYSTEM_EXIT, "died"),
        (samples.CRASHES, "died"),
        (samples.RAISES, "raised"),
        (samples.GREEDY, "died"),
    ],
)
def test_runtime_faults(executor: LocalProcesses, source: str, cause: str) -> None:
    result = interpreted(executor, source)
    assert isinstance(result, RuntimeFault), result
    assert result.cause == cause


def test_a_candidate_that_never_ends_times_out(executor: LocalProcesses) -> None:
    assert isinstance(interpreted(executor, samples.CANDIDATE), Accuracy)
    began = time.monotonic()
    assert interpreted(executor, samples.FOR_EVER, seconds=1.0) == Timeout("verify", 1.0)
    assert time.monotonic() - began < 20
    assert isinstance(interpreted(executor, samples.CANDIDATE), Accuracy)


def test_wrong_values_and_output_that_was_never_written(executor: LocalProcesses) -> None:
    wrong = interpreted(executor, samples.WRONG)
    assert isinstance(wrong, Wrong) and wrong.check == "values"
    assert wrong.candidate_error == pytest.approx(1e-3, rel=0.01)
    unwritten = interpreted(executor, samples.UNWRITTEN)
    assert isinstance(unwritten, Wrong) and unwritten.check == "nan"
    written = interpreted(executor, samples.WRITES_INPUT)
    assert isinstance(written, Wrong) and written.check == "mutation"


def test_what_a_candidate_prints_stays_out_of_the_protocol(executor: LocalProcesses) -> None:
    assert isinstance(interpreted(executor, samples.PRINTS), Accuracy)


def test_a_bad_problem_is_not_the_candidates_fault(executor: LocalProcesses) -> None:
    broken = samples.problem(samples.REFERENCE.replace("return [3.0]", "return [1 / 0]"))
    result = executor.submit(InterpretJob(problem=broken, source=samples.CANDIDATE)).result()
    assert isinstance(result, Infra)
    assert "ZeroDivisionError" in result.message


@dataclass(frozen=True, kw_only=True)
class Look(Job):
    """What a worker sees: its process, session, folder and environment."""

    kind = "compile"
    stage = "compile"

    def run(self) -> tuple[int, int, str, dict[str, str]]:
        return os.getpid(), os.getsid(0), str(Path.cwd()), dict(os.environ)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find this file's folder on their path, so that jobs defined here can be unpickled there."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")


def test_environment_session_and_end(importable: None) -> None:
    import test_executor  # the importable name of this module

    with LocalProcesses(limits=FAST) as running:
        pid, session, folder, environment = running.submit(test_executor.Look()).result()
        again, *_ = running.submit(test_executor.Look()).result()
    assert pid != again
    assert session == pid != os.getsid(0)
    assert "SECRET_TOKEN" not in environment
    assert environment["HOME"] == environment["TMPDIR"] == folder
    assert environment["TRITON_CACHE_DIR"].endswith("cache/reference/triton")
    assert not Path(f"/proc/{again}").exists()
    assert not Path(folder).exists()


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_the_machines_fault(executor: LocalProcesses) -> None:
    if torch.cuda.is_available():
        pytest.skip("the gpu worker starts here")
    result = executor.submit(GpuVerifyJob(problem=samples.problem(), source=samples.CANDIDATE)).result()
    assert isinstance(result, Infra) and "did not start" in result.message


def test_close_ends_running_and_waiting_jobs() -> None:
    running = LocalProcesses(limits=FAST)
    jobs = [InterpretJob(problem=samples.problem(), source=samples.HOST_FOR_EVER, seconds=100) for _ in range(2)]
    futures = [running.submit(job) for job in jobs]
    began = time.monotonic()
    running.close()
    running.close()
    assert time.monotonic() - began < 10
    assert all(isinstance(future.result(), Infra) for future in futures)
    with pytest.raises(RuntimeError, match="closed"):
        running.submit(jobs[0])


def test_close_does_not_wait_for_a_turn_that_others_hold(tmp_path: Path) -> None:
    with turn(tmp_path, gpu=False, alone=True):
        running = LocalProcesses(tmp_path, FAST)
        future = running.submit(InterpretJob(problem=samples.problem(), source=samples.CANDIDATE))
        while not running._lanes["interpret"][0].waits:
            time.sleep(0.05)
        began = time.monotonic()
        running.close()
        assert time.monotonic() - began < 10 and not future.done()
    assert isinstance(future.result(10), Infra)


def test_a_turn_that_cannot_be_taken_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "cores.door").mkdir()
    with LocalProcesses(tmp_path, FAST) as running:
        for _ in range(2):
            result = running.submit(InterpretJob(problem=samples.problem(), source=samples.CANDIDATE)).result(60)
            assert isinstance(result, Infra) and "no turn" in result.message


PARENT = """
import os, sys, time
sys.path.insert(0, {folder!r})
import judge_samples as samples
import test_executor
from mtmc.judge.jobs import InterpretJob
from mtmc.judge.executor import LocalProcesses
from mtmc.judge.processes import descendants
if __name__ == "__main__":
    running = LocalProcesses(limits=test_executor.FAST)
    running.submit(InterpretJob(problem=samples.problem(), source=samples.HOST_FOR_EVER, seconds=100))
    while len(descendants(os.getpid())) < 2:
        time.sleep(0.1)
    print(*descendants(os.getpid()), flush=True)
    time.sleep(100)
"""


@pytest.mark.slow
def test_a_worker_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(folder=str(Path(__file__).parent)))
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment())
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) >= 2 and all(map(alive, workers))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def test_replies_hold_outcomes_of_their_job_only() -> None:
    job = InterpretJob(problem=samples.problem(), source=samples.CANDIDATE)
    accuracy = Accuracy(np.float64(1e-7), 2e-7, ("own",))
    assert outcome_of(job, pickle.dumps(accuracy)) == accuracy
    verified = Verified(Timing("measured", 1.0, 1.0, 1.0, 1.0, 1.0), accuracy)
    for unwanted in (os.system, subprocess.Popen, Path("x"), verified, verified.timing, None, (accuracy, False)):
        assert isinstance(outcome_of(job, pickle.dumps(unwanted)), RuntimeFault)
    for damaged in (b"", b"\x80", b"garbage", pickle.dumps(accuracy)[:-2]):
        assert isinstance(outcome_of(job, damaged), RuntimeFault)
