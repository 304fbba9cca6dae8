"""Faults on a real GPU cost one worker, and the next candidate's verdict is right. Run with `-m gpu`."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cpu"))

import judge_samples as samples
import sandbox_samples as hostile

from mtmc.judge.executor import LocalProcesses
from mtmc.judge.jobs import GpuVerifyJob
from mtmc.judge.measure import GpuTimeJob
from mtmc.verdict import Accuracy, RuntimeFault, Timeout, Timing, Verdict, Wrong

pytestmark = pytest.mark.gpu

SIZES = {"N": 1024, "M": 1024}
# An address that belongs to nobody: the context is spoilt, and every later call in the process fails.
ILLEGAL = samples.changed(("x_ptr + index, mask=mask)", "x_ptr + index + (1 << 40), mask=mask)"))
HOST_MEMORY = hostile.doing("kept = [bytearray(b'x') * (1 << 30) for _ in range(100)]")
GPU_MEMORY = hostile.doing(
    "import torch\nkept = []\nwhile True:\n    kept.append(torch.empty(1 << 30, dtype=torch.uint8, device='cuda'))"
)
# Takes most of the GPU's memory, lets go of nothing, and otherwise answers rightly.
KEEPS = hostile.doing(
    "import torch, builtins\n"
    "if not hasattr(builtins, 'kept'):\n"
    "    free, _ = torch.cuda.mem_get_info()\n"
    "    builtins.kept = torch.empty(int(free * 0.97), dtype=torch.uint8, device='cuda')"
)
GPU_DAEMON = hostile.doing(
    "import subprocess, sys\n"
    "code = 'import torch, time; x = torch.empty(8 << 30, dtype=torch.uint8, device=\"cuda\"); time.sleep(600)'\n"
    "subprocess.Popen([sys.executable, '-c', code], start_new_session=True)"
)


@pytest.fixture(scope="module", params=[False, True], ids=["foreign", "trusting"])
def executor(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[LocalProcesses]:
    with LocalProcesses(tmp_path_factory.mktemp("cache"), trusting=request.param) as running:
        yield running


def judged(executor: LocalProcesses, source: str, seconds: float = 60) -> Verdict | Accuracy:
    job = GpuVerifyJob(problem=samples.problem(**SIZES), source=source, seconds=seconds)
    found = executor.submit(job).result()
    assert isinstance(found, (Verdict, Accuracy))
    return found


def next_is_right(executor: LocalProcesses) -> None:
    assert isinstance(found := judged(executor, samples.CANDIDATE), Accuracy), found
    assert isinstance(found := judged(executor, samples.WRONG), Wrong) and found.check == "values", found


def test_confinement_is_said(executor: LocalProcesses) -> None:
    next_is_right(executor)
    print(*executor.confinement(), sep="\n")
    assert len(executor.confinement()) >= 4


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (ILLEGAL, "illegal memory access"),
        (HOST_MEMORY, "GiB of host memory"),
        (GPU_MEMORY, "out of memory"),
        (hostile.OS_EXIT, "exit code 0"),
        (hostile.KILLS_ITSELF, "SIGKILL"),
        (hostile.FORK_BOMB, "bomb|processes"),
        (hostile.FORGES, "protocol|reply|exit code 0"),
    ],
)
def test_a_fault_costs_one_worker(executor: LocalProcesses, source: str, words: str) -> None:
    next_is_right(executor)
    found = judged(executor, source)
    assert isinstance(found, RuntimeFault), found
    assert any(word in found.message for word in words.split("|")), found.message
    next_is_right(executor)


def test_a_hang(executor: LocalProcesses) -> None:
    for source in (samples.FOR_EVER, hostile.IGNORES_SIGNALS):
        assert judged(executor, source, seconds=5) == Timeout("verify", 5)
        next_is_right(executor)


@pytest.mark.parametrize("source", [KEEPS, GPU_DAEMON])
def test_memory_that_is_kept_goes_with_its_worker(executor: LocalProcesses, source: str) -> None:
    judged(executor, source)
    large = GpuVerifyJob(problem=samples.problem(N=32768, M=32768), source=samples.CANDIDATE, repeat=False, seconds=120)
    assert isinstance(found := executor.submit(large).result(), Accuracy), found


def test_what_a_pair_of_processes_costs(tmp_path: Path) -> None:
    """Printed: seconds of a verification in one process and in two, at 4 GiB of input, the worker warm."""
    for trusting in (True, False):
        with LocalProcesses(tmp_path / str(trusting), trusting=trusting) as running:
            next_is_right(running)
            for name, sizes in (("small", SIZES), ("4 GiB", {"N": 32768, "M": 32768})):
                job = GpuVerifyJob(problem=samples.problem(**sizes), source=samples.CANDIDATE, seconds=300)
                for _ in range(2):
                    began = time.monotonic()
                    assert isinstance(running.submit(job).result(), Accuracy)
                    print(f"{'one process' if trusting else 'two processes'}, {name}: {time.monotonic() - began:.2f} s")


def test_timing_after_a_fault(executor: LocalProcesses) -> None:
    judged(executor, ILLEGAL)
    job = GpuTimeJob(problem=samples.problem(N=8192, M=8192), source=samples.CANDIDATE, budget_s=0.3)
    assert isinstance(found := executor.submit(job).result(), Timing), found
