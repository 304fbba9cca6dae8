"""The judge from program text to verdict without a GPU, and its order of jobs with one, on an executor with a script."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import judge_samples as samples
import pytest

from mtmc.bench.one import traffic
from mtmc.errors import InfraError
from mtmc.hardware_profiles import load
from mtmc.judge import judge as judge_module
from mtmc.judge.accuracy import NO_FIT
from mtmc.judge.cache import Cache
from mtmc.judge.executor import Limits, LocalProcesses
from mtmc.judge.jobs import (
    Compiled,
    CompileJob,
    DrawsJob,
    GpuDynamicJob,
    GpuVerifyJob,
    Job,
    Observations,
    PredictReferenceJob,
    ReferenceTimes,
)
from mtmc.judge.judge import FINAL_SEED, LARGE, Judge
from mtmc.judge.measure import GpuTimeJob, LoadCompilerJob, ReferenceJob
from mtmc.judge.predict import KernelTime, Prediction
from mtmc.program import Program
from mtmc.verdict import (
    Accuracy,
    CompileError,
    Finding,
    Infra,
    Rejected,
    RuntimeFault,
    Timeout,
    Timing,
    Verdict,
    Verified,
    Wrong,
)

H100 = load("h100")
FULL = samples.problem(N=4096, M=4096)
VARIANTS = ((samples.problem(N=3, M=65), None), (samples.problem(N=7, M=130), None))


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcesses]:
    limits = Limits(workers={"compile": 1, "interpret": 1, "gpu": 1})
    with LocalProcesses(tmp_path_factory.mktemp("cache"), limits) as running:
        yield running


def test_a_program_is_judged_without_a_gpu(executor: LocalProcesses, tmp_path: Path) -> None:
    judge = Judge(executor, FULL, H100, VARIANTS, floor_ms=0.03, cache=Cache(tmp_path / "cache"))
    verdict = judge.judge(Program(samples.CANDIDATE))
    assert isinstance(verdict, Verified), verdict
    assert verdict.accuracy.checked[0] == "own 3x65" and verdict.accuracy.checked[-1] == "own 7x130"
    assert len(verdict.accuracy.checked) == 1 + 2 + 1  # the own inputs, two other draws, the larger size
    timing = verdict.timing
    assert timing.kind == "predicted" and timing.low == timing.speedup == timing.high
    assert timing.kernels_ms.keys() == {"relu"} and timing.floor_ms == 0.03
    assert 1.3 < timing.speedup < 3  # one pass over memory instead of two
    assert verdict.launches[0].grid == (65536, 1, 1)
    (moved, bound) = traffic(verdict.launches, H100)["relu"]
    assert moved == pytest.approx(2 * 4 * 65536 * 256 / 1e9, rel=0.3) and bound, "reads and writes every element once"


def test_the_cache_answers_the_second_time(executor: LocalProcesses, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    first = Judge(executor, FULL, H100, VARIANTS[:1], cache=cache).judge(Program(samples.CANDIDATE))
    nobody = Scripted({})
    again = Judge(nobody, FULL, H100, VARIANTS[:1], cache=cache).judge(Program(samples.CANDIDATE + "\n# a comment\n"))
    assert isinstance(again, Verified) and again.timing == first.timing  # type: ignore[attr-defined]
    assert nobody.jobs == []
    with pytest.raises(KeyError):
        Judge(nobody, FULL, H100, VARIANTS[:1], cache=cache, precision="tf32").judge(Program(samples.CANDIDATE))


@pytest.mark.parametrize(
    ("source", "kind", "detail"),
    [
        (samples.SYNTAX, CompileError, "syntax"),
        (samples.TOO_MUCH_SHARED, CompileError, "shared_memory"),
        (samples.OUT_OF_BOUNDS, RuntimeFault, "out_of_bounds"),
        (samples.WRONG, Wrong, "values"),
    ],
)
def test_failures_end_as_their_verdict(executor: LocalProcesses, source: str, kind: type[Verdict], detail: str) -> None:
    verdict = Judge(executor, FULL, H100, VARIANTS[:1]).judge(Program(source))
    assert type(verdict) is kind, verdict
    assert detail in (getattr(verdict, "cause", ""), getattr(verdict, "check", ""))


def test_many_are_compiled_and_predicted(executor: LocalProcesses) -> None:
    programs = [Program(source) for source in (samples.CANDIDATE, samples.SYNTAX, samples.changed(("256", "1024")))]
    good, bad, other = Judge(executor, FULL, H100).predict(programs)
    assert bad is None and good is not None and other is not None and 0 < other < 1


def test_without_variants_it_says_what_was_not_checked(executor: LocalProcesses) -> None:
    verdict = Judge(executor, FULL, H100).judge(Program(samples.CANDIDATE))
    assert isinstance(verdict, Verified)
    assert verdict.accuracy.checked == () and "not checked" in verdict.accuracy.skipped[0]


class Scripted:
    """An executor that answers each class of job from a table and remembers what it was asked."""

    def __init__(self, answers: dict[type[Job], Any | Callable[[Any], Any]]) -> None:
        self.answers, self.jobs, self.closed = answers, [], False

    def submit(self, job: Job) -> Future[Any]:
        answer = self.answers[type(job)]
        self.jobs.append(job)
        future: Future[Any] = Future()
        future.set_result(answer(job) if callable(answer) else answer)
        return future

    def close(self) -> None:
        self.closed = True


def timing(ms: float) -> Timing:
    return Timing("measured", 1.0, ms, 1.0 / ms, 0.9 / ms, 1.1 / ms)


def answers(predicted: float = 1.0, **other: Any) -> dict[type[Job], Any]:
    compiled = Compiled((), Prediction((KernelTime("relu_kernel", predicted, "dram", {}),), 0.01), 0.1)
    table = {"CompileJob": compiled, "DrawsJob": ("own", "large"), "GpuTimeJob": timing(0.5)}
    table |= {"GpuVerifyJob": Accuracy(1e-7, 2e-7, ("own",)), "ReferenceJob": ReferenceTimes("measured", 1.0)}
    table |= {"GpuDynamicJob": Observations(), "LoadCompilerJob": None, **other}
    jobs = (
        CompileJob,
        DrawsJob,
        GpuVerifyJob,
        GpuDynamicJob,
        LoadCompilerJob,
        GpuTimeJob,
        ReferenceJob,
        PredictReferenceJob,
    )
    classes = {c.__name__: c for c in jobs}
    return {classes[name]: answer for name, answer in table.items()}


PROGRAM = Program(samples.CANDIDATE)


def measuring(executor: Scripted, **options: Any) -> Judge:
    return Judge(executor, FULL, H100, VARIANTS, measure=True, **options)


def test_on_a_gpu_it_compiles_verifies_and_times_in_this_order() -> None:
    executor = Scripted(answers())
    verdict = measuring(executor, floor_ms=0.1).judge(PROGRAM)
    assert isinstance(verdict, Verified) and verdict.timing == timing(0.5)
    assert [type(job) for job in executor.jobs] == [CompileJob, ReferenceJob, DrawsJob, GpuVerifyJob, GpuTimeJob]
    verify, time = executor.jobs[3], executor.jobs[4]
    assert verify.repeat and verify.problem is FULL and verify.draws == ("own", "large")
    assert not time.whole and time.floor_ms == 0.1 and not time.alone and not time.fresh and time.baselines == ()


def test_a_search_tries_products_in_parts_on_all_inputs_at_once() -> None:
    usable = ("own", "normal", "large", "tiny")
    plain, split = PROGRAM, Program(PROGRAM.source + "# op_dot_fp16x3")
    for program, draws in ((plain, 2), (split, 4)):
        executor = Scripted(answers(DrawsJob=usable))
        measuring(executor).judge(program)
        assert [len(job.draws) for job in executor.jobs if isinstance(job, GpuVerifyJob)] == [draws]


def test_the_last_judgement_adds_all_sizes() -> None:
    executor = Scripted(answers())
    measuring(executor).final(PROGRAM)
    verify = [job for job in executor.jobs if isinstance(job, GpuVerifyJob)]
    assert [job.problem for job in verify] == [VARIANTS[0][0], VARIANTS[1][0], FULL]
    assert [job.draws for job in verify] == [("own", "large"), ("own",), ("own", "large")]
    assert not any(job.fresh for job in verify)  # the process is that of the dynamic checks, which come first
    assert all(job.asserts for job in verify) and executor.jobs[-1].whole
    before = executor.jobs[: executor.jobs.index(verify[0])]
    compiled = [job.problem for job in before if isinstance(job, CompileJob) and job.asserts]
    assert compiled == [job.problem for job in verify], "the GPU does not wait for a compiler"


@pytest.mark.parametrize("failure", [Wrong("off"), RuntimeFault("gone", "died"), Timeout("verify", 60), Infra("no memory")])
def test_nothing_is_timed_that_did_not_verify(failure: Verdict) -> None:
    executor = Scripted(answers(GpuVerifyJob=failure))
    assert measuring(executor).judge(PROGRAM) == failure
    assert GpuTimeJob not in map(type, executor.jobs)


def test_short_candidates_are_timed_on_quiet_cores() -> None:
    executor = Scripted(answers(predicted=0.1))
    measuring(executor).judge(PROGRAM)
    assert [job.alone for job in executor.jobs if isinstance(job, GpuTimeJob)] == [True]
    surprise = Scripted(answers(predicted=1.0, GpuTimeJob=timing(0.1)))
    measuring(surprise).judge(PROGRAM)
    assert [job.alone for job in surprise.jobs if isinstance(job, GpuTimeJob)] == [False, True]
    loud = Scripted(answers(predicted=0.1, GpuTimeJob=timing(0.1)))
    judge = measuring(loud, quiet=False)
    judge.judge(PROGRAM)
    judge.final(PROGRAM)
    assert [job.alone for job in loud.jobs if isinstance(job, GpuTimeJob)] == [False, True], "the last one still waits"


def test_the_last_judgement_waits_for_quiet_cores_where_launching_decides_on_either_side() -> None:
    def waited(**times: float) -> list[bool]:
        executor = Scripted(answers(GpuTimeJob=replace(timing(0.5), **times)))
        assert isinstance(measuring(executor).final(PROGRAM), Verified)
        return [job.alone for job in executor.jobs if isinstance(job, GpuTimeJob)]

    assert waited(host_ms=0.6, reference_host_ms=1.1) == [False]
    assert waited(host_ms=1.0) == waited(reference_host_ms=2.0) == waited(reference_ms=0.1) == [False, True]


def test_the_last_judgement_is_fresh_in_every_way() -> None:
    executor = Scripted(answers())
    assert isinstance(measuring(executor, seed=5).final(PROGRAM), Verified)
    gpu = [job for job in executor.jobs if job.kind == "gpu" and not isinstance(job, ReferenceJob)]
    assert gpu[0].fresh and not any(job.fresh for job in gpu[1:])  # one new process for all of it
    assert all(job.seed == 5 + FINAL_SEED for job in gpu if not job.idle)
    assert gpu[-1].baselines == ("compile-default",)
    assert isinstance(gpu[-2], LoadCompilerJob) and gpu[-2].idle, "others have the GPU meanwhile"


def test_checks_come_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Scripted({})
    monkeypatch.setattr(judge_module, "own_program", lambda *_: Rejected("fallback", "no kernel"))
    assert measuring(executor).judge(PROGRAM) == Rejected("fallback", "no kernel")
    assert not executor.jobs


def test_the_last_judgement_makes_the_dynamic_checks_and_the_search_does_not() -> None:
    finding = Finding("dynamic.streams", 0, "the result comes late")
    executor = Scripted(answers(GpuDynamicJob=Observations((finding,))))
    assert isinstance(measuring(executor).judge(PROGRAM), Verified)
    assert GpuDynamicJob not in map(type, executor.jobs)
    assert measuring(executor).final(PROGRAM) == Rejected("dynamic.streams", "the result comes late")
    warning = replace(finding, level="warn")
    assert isinstance(measuring(Scripted(answers(GpuDynamicJob=Observations((warning,))))).final(PROGRAM), Verified)


def test_dynamic_checks_of_large_problems_are_made_on_a_small_variant() -> None:
    def observed(peak: int, **other: Any) -> list[GpuDynamicJob]:
        executor = Scripted(answers(ReferenceJob=ReferenceTimes("measured", 1.0, peak_bytes=peak), **other))
        measuring(executor).final(PROGRAM)
        return [job for job in executor.jobs if isinstance(job, GpuDynamicJob)]

    (small,), (large,) = observed(1 << 20), observed(LARGE + 1)
    assert small.problem is FULL and small.full_size
    assert large.problem is VARIANTS[0][0] and not large.full_size
    assert [job.full_size for job in observed(LARGE + 1, GpuDynamicJob=RuntimeFault("odd sizes", "refused"))] == [
        False,
        True,
    ]


def test_a_search_verifies_large_problems_at_small_sizes_and_the_last_judgement_at_their_own() -> None:
    executor = Scripted(answers(ReferenceJob=ReferenceTimes("measured", 1.0, peak_bytes=LARGE + 1)))
    judge = measuring(executor)
    assert isinstance(judge.judge(PROGRAM), Verified)
    searched = [job for job in executor.jobs if isinstance(job, GpuVerifyJob)]
    assert [job.problem for job in searched] == [VARIANTS[0][0], VARIANTS[1][0]] and all(job.shares for job in searched)
    executor.jobs.clear()
    judge.final(PROGRAM)
    assert [(job.problem, job.shares) for job in executor.jobs if isinstance(job, GpuVerifyJob)][-1] == (FULL, False)
    bare = Judge(executor, FULL, H100, (), measure=True)
    executor.jobs.clear()
    bare.judge(PROGRAM)
    assert [job.problem for job in executor.jobs if isinstance(job, GpuVerifyJob)] == [FULL], "nothing smaller is known"


def test_what_fails_at_the_largest_size_with_an_oracle_is_the_verdict() -> None:
    def final(smaller: Any) -> Verdict:
        outcomes = iter([Accuracy(1e-7, 2e-7, ("own",), (NO_FIT,)), smaller])
        executor = Scripted(answers(GpuVerifyJob=lambda _: next(outcomes)))
        return Judge(executor, FULL, H100, (), measure=True).final(PROGRAM)

    assert final(Wrong("output: off")) == Wrong("output: off")
    assert final(RuntimeFault("gone", "died")) == RuntimeFault("gone", "died")
    worse, refused = final(Accuracy(3e-7, 2e-7, ("smaller",))), final(RuntimeFault("multiples of 16 only", "refused"))
    assert isinstance(worse, Verified) and worse.accuracy.candidate_error == 3e-7
    assert isinstance(refused, Verified) and refused.accuracy.checked == ("own",)
    assert "multiples of 16 only" in refused.accuracy.skipped[-1]


def test_a_reference_that_cannot_run_is_an_infrastructure_error() -> None:
    times = ReferenceTimes("measured", 2.0, 1.5)
    executor = Scripted(answers(ReferenceJob=times))
    judge = measuring(executor)
    assert judge.reference is judge.reference is times
    assert len(executor.jobs) == 1
    with pytest.raises(InfraError, match="no memory"):
        _ = measuring(Scripted(answers(ReferenceJob=Infra("no memory")))).reference
    judge.close()
    assert executor.closed


def test_a_program_that_cannot_be_built_by_its_own_constructor(executor: LocalProcesses) -> None:
    broken = "class ModelNew(Model):\n    def __init__(self, *args):\n        raise TypeError('not like this')\n\n"
    source = samples.CANDIDATE.replace("class ModelNew(Model):\n", broken)
    assert source != samples.CANDIDATE
    verdict = Judge(executor, FULL, H100).judge(Program(source))
    assert isinstance(verdict, CompileError) and "not like this" in verdict.message
