"""The dynamic checks on a real GPU: what the interpreter cannot show. Run with `-m gpu`."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "cpu"))
sys.path.insert(0, str(Path(__file__).parents[1] / "adversarial"))

import corpus
import judge_samples as samples

from mtmc.judge import door, timing
from mtmc.judge.clocks import Clocks
from mtmc.judge.dynamic import memory, sanitizer
from mtmc.judge.executor import LocalProcesses
from mtmc.judge.jobs import GpuDynamicJob, Observations, SanitizeJob
from mtmc.judge.measure import GpuTimeJob
from mtmc.verdict import Timing

pytestmark = pytest.mark.gpu

KINDS = ("side_stream", "stale_memory", "graph_replay", "outside_reads", "same_address", "hidden_change", "captured_place")
KINDS += ("packed_weights", "later_calls", "fig_leaf", "no_effect", "left_behind", "threads_left", "strange_output")
CASES = [case for case in corpus.cases() if case.kind in KINDS]
FULL = samples.problem(N=4096, M=4096)


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcesses]:
    with LocalProcesses(tmp_path_factory.mktemp("cache")) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}/{case.name}")
def test_the_checks_alone_tell_cheats_from_their_twins(executor: LocalProcesses, case: corpus.Case) -> None:
    """A cheat is found, or its result is wrong from the start, which is left to the accuracy rule."""
    job = GpuDynamicJob(problem=case.problem, source=case.source, door=door.find(case.source, 1))
    found = executor.submit(job).result()
    if case.honest:
        assert isinstance(found, Observations), found
        assert not [finding for finding in found.findings if finding.level == "reject"], found
    elif isinstance(found, Observations):
        rejected = [f"rejected {finding.rule}" for finding in found.findings if finding.level == "reject"]
        left = any("wrong already" in note for note in found.notes) and any(e.startswith("wrong") for e in case.expect)
        assert left or set(rejected) & set(case.expect), found
    else:
        assert any(wanted.startswith(found.status) for wanted in case.expect), found


def test_our_own_program_passes_and_most_of_its_time_is_its_own(executor: LocalProcesses) -> None:
    found = executor.submit(GpuDynamicJob(problem=FULL, source=samples.CANDIDATE)).result()
    assert isinstance(found, Observations) and found.findings == () and found.notes == (), found


def test_freed_memory_is_poisoned() -> None:
    kept = torch.ones(1 << 20, device="cuda")
    freed = torch.full((1 << 22,), 7.0, device="cuda")
    place = freed.data_ptr()
    del freed
    assert memory.poison_freed() >= 1 << 24
    again = torch.empty(1 << 22, device="cuda")
    assert again.data_ptr() == place and bool(again.isnan().all()) and bool((kept == 1).all())


def test_the_clock_sees_work_on_other_streams() -> None:
    clock, side = timing.CudaClock(), torch.cuda.Stream()
    cycles = 4_000_000  # about 2 ms

    def here() -> None:
        torch.cuda._sleep(cycles)

    def elsewhere() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(cycles)

    own, hidden = (sorted(clock.device_ms(call) for _ in range(9))[4] for call in (here, elsewhere))
    assert own > 1 and abs(hidden - own) < 0.1 * own, (own, hidden)
    assert clock.waiting_ms < 0.2
    nothing = sorted(clock.device_ms(lambda: None) for _ in range(9))[4]
    assert nothing < 0.02, nothing


def test_device_time_does_not_hold_launch_cost() -> None:
    clock = timing.CudaClock()

    def launched_late() -> None:
        time.sleep(0.002)
        torch.cuda._sleep(1_000_000)  # about 0.5 ms

    found = sorted(clock.device_ms(launched_late) for _ in range(9))[4]
    assert 0.3 < found < 1 and clock.flushes > 1, (found, clock.flushes)


def test_everything_that_is_timed_beside(executor: LocalProcesses) -> None:
    names = ("eager-cudnn-benchmark", "eager-channels-last", "eager-graph", "compile-default", "compile-reduce-overhead")
    small = samples.problem(N=64, M=64)
    job = GpuTimeJob(problem=small, source=samples.CANDIDATE, baselines=names, whole=True, budget_s=0.5, seconds=300)
    found = executor.submit(job).result()
    assert isinstance(found, Timing), found
    assert set(found.baselines_ms) == set(names) - {"eager-channels-last"}
    assert any("channels-last" in note and "four dimensions" in note for note in found.notes)
    assert 0 < found.graph_ms < found.host_ms and found.reference_graph_ms > 0
    assert 1 < found.launch_us < 1e3 and found.rounds >= 10
    clocks = Clocks()
    assert found.clocks.get("sm_mhz") or clocks.note in found.notes


@pytest.mark.skipif(sanitizer.find() is None, reason="compute-sanitizer is not installed")
def test_the_sanitizer_sees_a_read_past_the_end(executor: LocalProcesses) -> None:
    small = samples.problem(N=3, M=65)
    honest, cheat = (
        executor.submit(SanitizeJob(problem=small, source=source, seconds=300)).result()
        for source in (samples.CANDIDATE, samples.OUT_OF_BOUNDS)
    )
    assert isinstance(honest, Observations) and honest.findings == (), honest
    if not honest.notes:
        (finding,) = cheat.findings
        assert finding.rule == "dynamic.sanitizer" and "relu_kernel" in finding.why
