"""One process of a kind holds the imports for all executors, is replaced when it ends, and ends with the judge."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import PATIENCE, environment

from mtmc.judge.executor import LocalProcesses
from mtmc.judge.jobs import WakeCompile
from mtmc.judge.nursery import Birth, nursery
from mtmc.judge.processes import running

SCRIPT = """
from mtmc.judge.executor import LocalProcesses
from mtmc.judge.jobs import WakeCompile
from mtmc.judge.nursery import nursery

with LocalProcesses() as executor:
    executor.submit(WakeCompile()).result()
print(nursery("compile").pid)
"""


def woken() -> int:
    """The nursery's process after an executor has started and ended a warden."""
    with LocalProcesses() as executor:
        assert executor.submit(WakeCompile()).result() is None
    assert (pid := nursery("compile").pid) is not None
    return pid


def test_all_executors_share_it() -> None:
    first, began = woken(), time.monotonic()
    assert woken() == first
    assert time.monotonic() - began < 5  # an import of everything takes longer


@pytest.mark.slow
def test_one_that_was_killed_is_replaced() -> None:
    first = woken()
    os.kill(first, 9)
    assert woken() != first and not running(first)


@pytest.mark.slow
def test_it_ends_with_the_judge() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    deadline = time.monotonic() + 10
    while running(int(done.stdout)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(int(done.stdout))


def test_a_warden_that_cannot_begin_is_told(tmp_path: Path) -> None:
    woken()
    birth = Birth(("no", "such", "arguments"), environment(), tuple(sys.path), tmp_path)
    with (tmp_path / "log").open("ab") as log:
        child = nursery("compile").bear(birth, log, 30)
    assert child.stdout.read() == b"" and "arguments are required" in (tmp_path / "log").read_text()
    child.end(1)
