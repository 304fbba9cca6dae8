"""Turns at the GPU and at the cores, among threads and among processes."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import environment

from mtmc.judge import turns
from mtmc.judge.turns import turn

HOLD = """
import sys
from pathlib import Path
from mtmc.judge.turns import turn
with turn(Path(sys.argv[1]), sys.argv[2] == "gpu", sys.argv[3] == "alone"):
    print("in", flush=True)
    sys.stdin.read()
"""


class Jobs:
    """Jobs in threads that stay in their turn until they may leave; `seen` lists who was in whenever one came in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running, self.seen, self.leave = folder, [], [], threading.Event()
        self.threads: list[threading.Thread] = []

    def begin(self, name: str, gpu: bool = False, alone: bool = False, shares: bool = False) -> None:
        def work() -> None:
            with turn(self.folder, gpu, alone, shares):
                self.running.append(name)
                self.seen.append("".join(sorted(self.running)))
                self.leave.wait(5)
                self.running.remove(name)

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def end(self) -> None:
        self.leave.set()
        for thread in self.threads:
            thread.join(5)


def until(condition) -> None:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


def held(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_job_that_runs_alone_waits_for_others_and_holds_new_ones_back(tmp_path):
    jobs = Jobs(tmp_path)
    jobs.begin("a")
    until(lambda: jobs.seen == ["a"])
    jobs.begin("x", gpu=True, alone=True)
    until(lambda: held(tmp_path / "cores.door"))
    jobs.begin("b")
    time.sleep(0.05)
    assert jobs.seen == ["a"]
    jobs.end()
    assert jobs.seen == ["a", "x", "b"]


def test_jobs_on_the_cores_run_side_by_side_and_beside_one_on_the_gpu(tmp_path):
    jobs = Jobs(tmp_path)
    for name, gpu in (("a", False), ("b", False), ("g", True)):
        jobs.begin(name, gpu)
        until(lambda name=name: name in jobs.running)
    jobs.begin("h", gpu=True)
    time.sleep(0.05)
    assert jobs.seen == ["a", "ab", "abg"]
    jobs.end()
    assert "h" in jobs.seen[-1] and "g" not in jobs.seen[-1]


def test_the_gpu_is_shared_by_jobs_that_may_share_it(tmp_path):
    jobs = Jobs(tmp_path)
    for name in "ab":
        jobs.begin(name, gpu=True, shares=True)
        until(lambda name=name: name in jobs.running)
    jobs.begin("m", gpu=True)
    until(lambda: held(next(tmp_path.glob("gpu*.door"))))
    jobs.begin("c", gpu=True, shares=True)
    time.sleep(0.05)
    assert jobs.seen == ["a", "ab"]
    jobs.end()
    assert jobs.seen == ["a", "ab", "m", "c"]


@pytest.mark.parametrize(("mine", "theirs", "waits"), [("alone", "cores", True), ("cores", "cores", False)])
def test_another_process_holds_a_turn(tmp_path, mine, theirs, waits):
    command = [sys.executable, "-c", HOLD, str(tmp_path), "cores", theirs]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as other:
        assert other.stdout and other.stdout.readline() == "in\n"
        jobs = Jobs(tmp_path)
        jobs.begin("m", gpu=mine == "alone", alone=mine == "alone")
        if waits:
            time.sleep(0.1)
            assert not jobs.seen
        else:
            until(lambda: jobs.seen == ["m"])
        other.communicate()
        until(lambda: jobs.seen == ["m"])
        jobs.end()


UUIDS = ("GPU-5a01-aa", "GPU-77b2-cc")


@pytest.mark.parametrize(
    ("visible", "uuids", "name"),
    [
        (None, UUIDS, "gpu-5a01-aa"),
        ("0", UUIDS, "gpu-5a01-aa"),
        ("0,1", UUIDS, "gpu-5a01-aa"),
        (" 1, 0", UUIDS, "gpu-77b2-cc"),
        ("GPU-77b2-cc", UUIDS, "gpu-77b2-cc"),
        ("GPU-77", UUIDS, "gpu-77b2-cc"),
        ("GPU-99", UUIDS, "gpu-99"),
        ("MIG-3f/1", UUIDS, "gpu-MIG-3f-1"),
        ("7", UUIDS, "gpu-7"),
        (None, (), "gpu-0"),
        ("0", (), "gpu-0"),
        ("", UUIDS, "gpu"),
    ],
)
def test_one_gpu_has_one_lock_however_it_is_called(tmp_path, monkeypatch, visible, uuids, name):
    monkeypatch.setattr(turns, "_uuids", lambda: uuids)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with turn(tmp_path, gpu=True, alone=False):
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.door", f"{name}.lock"]


def test_without_nvml_gpus_have_numbers(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert turns._uuids.__wrapped__() == ()
