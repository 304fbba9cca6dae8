"""The judge on a real GPU: verification at full size, interleaved times, poisoned contexts. Run with `-m gpu`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cpu"))

import judge_samples as samples

from mtmc.hardware_profiles import detect
from mtmc.judge.executor import LocalProcesses
from mtmc.judge.jobs import GpuVerifyJob, ReferenceTimes
from mtmc.judge.judge import Judge
from mtmc.judge.measure import GpuTimeJob, ReferenceJob
from mtmc.program import Program
from mtmc.verdict import Accuracy, Rejected, RuntimeFault, Timeout, Timing, Verified, Wrong

pytestmark = pytest.mark.gpu

FULL = samples.problem(N=8192, M=8192)
VARIANTS = ((samples.problem(N=3, M=65), None), (samples.problem(N=7, M=1030), None))
DRAWS = ("own", "normal", "shifted", "large", "structured")
DEVICE_ASSERT = samples.changed(
    ("    out = tl.maximum(", "    tl.device_assert(index < 10, 'too far')\n    out = tl.maximum("),
)
REMEMBERS = samples.changed(
    (
        "        relu = launch_relu(x, p_scale)",
        "        relu = self.__dict__.setdefault('kept', None)\n"
        "        if relu is None:\n            relu = self.__dict__['kept'] = launch_relu(x, p_scale)",
    ),
)


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcesses]:
    with LocalProcesses(tmp_path_factory.mktemp("cache")) as running:
        yield running


def test_every_draw_at_full_size(executor: LocalProcesses) -> None:
    job = GpuVerifyJob(problem=FULL, source=samples.CANDIDATE, draws=DRAWS)
    found = executor.submit(job).result()
    assert isinstance(found, Accuracy), found
    assert found.checked == tuple(f"{draw} 8192x8192" for draw in DRAWS)
    assert found.candidate_error < 1e-6 and not found.skipped


def test_wrong_and_unwritten(executor: LocalProcesses) -> None:
    for source, check in ((samples.WRONG, "values"), (samples.UNWRITTEN, "nan"), (samples.WRITES_INPUT, "mutation")):
        found = executor.submit(GpuVerifyJob(problem=FULL, source=source)).result()
        assert isinstance(found, Wrong) and found.check == check, found


@pytest.mark.parametrize(
    ("source", "cause"),
    [(DEVICE_ASSERT, "assert"), (samples.EXITS, "died"), (samples.CRASHES, "died"), (samples.RAISES, "raised")],
)
def test_a_fault_costs_one_worker(executor: LocalProcesses, source: str, cause: str) -> None:
    found = executor.submit(GpuVerifyJob(problem=FULL, source=source, asserts=True)).result()
    assert isinstance(found, RuntimeFault) and found.cause == cause, found
    assert isinstance(executor.submit(GpuVerifyJob(problem=FULL, source=samples.CANDIDATE)).result(), Accuracy)


def test_a_kernel_that_never_ends(executor: LocalProcesses) -> None:
    job = GpuVerifyJob(problem=FULL, source=samples.FOR_EVER, seconds=15)
    assert executor.submit(job).result() == Timeout("verify", 15)
    assert isinstance(executor.submit(GpuVerifyJob(problem=FULL, source=samples.CANDIDATE)).result(), Accuracy)


def test_reference_times(executor: LocalProcesses) -> None:
    found = executor.submit(ReferenceJob(problem=FULL, seconds=300)).result()
    assert isinstance(found, ReferenceTimes), found
    assert found.compiled_ms is not None and found.compiled_ms < found.eager_ms
    assert found.peak_bytes >= 8192 * 8192 * 4 and found.host_ms > 0


def test_timing_of_one_pass_instead_of_two(executor: LocalProcesses) -> None:
    found = executor.submit(
        GpuTimeJob(problem=FULL, source=samples.CANDIDATE, baselines=("compile-default",), seconds=300)
    ).result()
    assert isinstance(found, Timing), found
    assert 1.3 < found.low <= found.speedup <= found.high < 3
    assert found.kernels_ms.keys() == {"relu"}
    assert 0.5 * found.candidate_ms < found.kernels_ms["relu"] < 1.2 * found.candidate_ms
    assert found.peak_bytes == 8192 * 8192 * 4 and found.compiled_ms is not None
    assert found.host_ms > 0 and found.reference_host_ms > 0 and found.first_call_s > 0


def test_not_faster_than_the_hardware(executor: LocalProcesses) -> None:
    found = executor.submit(GpuTimeJob(problem=FULL, source=samples.CANDIDATE, floor_ms=10.0)).result()
    assert isinstance(found, Rejected) and found.rule == "faster_than_hardware"


def test_a_remembered_result_is_caught(executor: LocalProcesses) -> None:
    found = executor.submit(GpuTimeJob(problem=FULL, source=REMEMBERS)).result()
    assert isinstance(found, Wrong) and found.check == "after_timing"


def test_the_whole_judgement(executor: LocalProcesses) -> None:
    profile = detect()
    assert profile is not None
    judge = Judge(executor, FULL, profile, VARIANTS, measure=True)
    first, last = judge.judge(Program(samples.CANDIDATE)), judge.final(Program(samples.CANDIDATE))
    for verdict in (first, last):
        assert isinstance(verdict, Verified) and verdict.timing.kind == "measured", verdict
    assert len(first.accuracy.checked) == 2  # a search tries the file's own inputs and one other draw
    assert "other weights 8192x8192" in last.accuracy.checked and len(last.accuracy.checked) > 11
    assert first.timing.compiled_ms is None and last.timing.compiled_ms is not None
