"""`mtmc verify`: what is asked of the workers, what becomes of their answers, and how the command ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from mtmc import cli, verification
from mtmc.errors import BadInput
from mtmc.judge.executor import Limits, LocalProcesses
from mtmc.judge.jobs import Compiled, InterpretJob, Observations, ReferenceTimes
from mtmc.judge.predict import Prediction
from mtmc.judge.trivial import Trivial
from mtmc.problem import Problem
from mtmc.verdict import Accuracy, CompileError, Finding, Infra, Rejected, RuntimeFault, Timing, Verified, Wrong
from mtmc.verification import Options, Verification, begin

REFERENCE = """
import torch
import torch.nn as nn

ROWS, COLUMNS = 40, 96


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < numel)
    tl.store(out_ptr + index, tl.maximum(x, 0.0), mask=index < numel)


def relu(x):
    out = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""
CLASS = KERNEL + "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return relu(x)\n"
ON_CPU = Options(gpu="h100", measure=False)
TIMING = Timing("predicted", 2.0, 1.0, 2.0, 2.0, 2.0)
GOOD = Accuracy(1e-7, 2e-7, ("own 33x35",), ("something",), (3.0, 0.5), (2.0, 0.25))


def problem(text: str = REFERENCE) -> Problem:
    return Problem("relu", text, "relu.py")


class Scripted:
    """An executor that answers by the kind of job and remembers what it was asked."""

    def __init__(self, **answers: Any) -> None:
        found = ReferenceTimes("predicted", 2.0, host_ms=0.1)
        usual = {"CompileJob": Compiled((), Prediction(), 0.1), "DrawsJob": ("own", "normal"), "InterpretJob": GOOD}
        usual |= {"InterpretDynamicJob": Observations(), "PredictReferenceJob": found, "TrivialJob": Trivial()}
        self.answers, self.jobs = usual | answers, []

    def submit(self, job: Any) -> Future[Any]:
        self.jobs.append(job)
        future: Future[Any] = Future()
        future.set_result(self.answers[type(job).__name__])
        return future

    def close(self) -> None: ...


def judged(source: str = CLASS, options: Options = ON_CPU, **answers: Any) -> Verification:
    return begin(problem(), source, options, Scripted(**answers))()


def test_every_size_that_the_reference_takes_is_interpreted_and_the_own_one() -> None:
    executor = Scripted()
    found = begin(problem(), CLASS, ON_CPU, executor)()
    jobs = [job for job in executor.jobs if isinstance(job, InterpretJob)]
    sizes = [dict(job.problem.overrides) for job in jobs]
    assert sizes[-1] == {} and len(sizes) >= 2 and all(size % 2 for size in sizes[0].values())
    assert jobs[0].draws == jobs[-1].draws == ("own", "normal") and jobs[0].door.kind == "class"
    assert found.verdict.correct and found.kind == "class" and verification.NO_GPU in found.notes


def test_what_never_ran_is_not_said_to_have_run() -> None:
    found = judged(CompileJob=CompileError("line 1", "syntax"), InterpretJob=CompileError("line 1", "syntax"))
    assert not found.verdict.compiled and found.notes == ()


def test_the_seed_depends_on_the_candidate_and_on_the_option() -> None:
    def seed(source: str, option: int) -> int:
        executor = Scripted()
        begin(problem(), source, Options("h100", False, seed=option), executor)()
        return next(job.seed for job in executor.jobs if isinstance(job, InterpretJob))

    assert seed(CLASS, 0) == seed(CLASS, 0)
    assert len({seed(CLASS, 0), seed(CLASS, 1), seed(CLASS + "\n", 0)}) == 3


def test_what_the_text_gives_away_is_told_before_anything_runs() -> None:
    executor = Scripted()
    found = begin(problem(), CLASS.replace("return relu(x)", "return torch.relu(x)"), ON_CPU, executor)()
    assert isinstance(found.verdict, Rejected) and found.verdict.rule.startswith("static.") and not executor.jobs
    assert found.findings[0].rule == found.verdict.rule


def test_checks_by_name() -> None:
    plain = CLASS.replace("return relu(x)", "return torch.relu(x)")
    only = Options("h100", False, checks=("dynamic.weights",))
    executor = Scripted()
    assert begin(problem(), plain, only, executor)().verdict.correct
    assert [job.names for job in executor.jobs if type(job).__name__ == "InterpretDynamicJob"] == [("weights",)]
    with pytest.raises(BadInput, match=r"unknown check 'static.nonsense'; known: dynamic.*static"):
        judged(options=Options("h100", False, checks=("static.nonsense",)))


def test_right_at_its_own_sizes_only() -> None:
    class OnlyOwn(Scripted):
        def submit(self, job: Any) -> Future[Any]:
            small = isinstance(job, InterpretJob) and bool(job.problem.overrides)
            self.answers["InterpretJob"] = Wrong("off", "values") if small else GOOD
            return super().submit(job)

    found = begin(problem(), CLASS, ON_CPU, OnlyOwn())()
    assert isinstance(found.verdict, Wrong) and found.verdict.check == "shape"


def test_a_refusal_of_other_sizes_is_told_and_no_failure() -> None:
    class Refuses(Scripted):
        def submit(self, job: Any) -> Future[Any]:
            small = isinstance(job, InterpretJob) and bool(job.problem.overrides)
            self.answers["InterpretJob"] = RuntimeFault("AssertionError: 96 columns", "refused") if small else GOOD
            return super().submit(job)

    found = begin(problem(), CLASS, ON_CPU, Refuses())()
    assert isinstance(found.verdict, Verified) and "96 columns" in found.verdict.accuracy.skipped[-1]


def test_what_meta_tensors_cannot_answer_is_no_failure_but_triton_is_believed() -> None:
    found = judged(CompileJob=CompileError("TypeError: a value was asked for"))
    assert isinstance(found.verdict, Verified) and verification.NOT_TIMED in found.notes
    assert judged(CompileJob=CompileError("CompilationError: no such function")).verdict.status == "compile_error"


def test_a_degenerate_problem_is_told_and_no_failure() -> None:
    found = judged(TrivialJob=Trivial(("identity of input 0",), (), ("normal",)))
    assert found.verdict.correct and any(note.startswith("Degenerate problem") for note in found.notes)


def test_what_needs_a_gpu_says_so() -> None:
    cuda = "from torch.utils.cpp_extension import load_inline\n" + CLASS
    found = judged(cuda, Options("h100", False, checks=("static.threads",)))
    assert isinstance(found.verdict, Infra) and "inline CUDA" in found.verdict.message
    asked = judged(InterpretJob=RuntimeFault("AssertionError: Torch not compiled with CUDA enabled", "raised"))
    assert isinstance(asked.verdict, Infra) and "needs a GPU" in asked.verdict.message


def test_warnings_of_dynamic_checks_are_findings() -> None:
    warning = Finding("dynamic.launches", 0, "odd", "possible", "warn")
    found = judged(InterpretDynamicJob=Observations((warning,), ("a note",)))
    assert isinstance(found.verdict, Verified) and found.findings == (warning,)
    assert found.verdict.accuracy.skipped == ("something", "a note")


def test_measuring_without_a_gpu_is_refused() -> None:
    with pytest.raises(BadInput, match="--measure"):
        judged(options=Options("h100", True))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcesses]:
    limits = Limits(workers={"compile": 1, "interpret": 1, "gpu": 1})
    with LocalProcesses(tmp_path_factory.mktemp("cache"), limits) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("source", [CLASS, KERNEL], ids=["class", "function"])
def test_a_kernel_is_verified_by_real_workers(source: str, workers: LocalProcesses) -> None:
    found = begin(problem(), source, ON_CPU, workers)()
    assert isinstance(found.verdict, Verified), found
    assert found.verdict.timing.kind == "predicted" and found.verdict.accuracy.candidate_ulp == (0.0, 0.0)
    wrong = begin(problem(), source.replace("tl.maximum(x, 0.0)", "tl.abs(x)"), ON_CPU, workers)()
    assert isinstance(wrong.verdict, Wrong) and wrong.verdict.check == "values"


@pytest.fixture
def mtmc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `mtmc verify` with a verification of the test's choice: (exit code, stdout, stderr)."""
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "candidate.py").write_text(CLASS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(found: Verification | None, *arguments: str) -> tuple[int, str, str]:
        if found is not None:
            monkeypatch.setattr(verification, "verify", lambda *_, **__: found)
        monkeypatch.setattr(sys, "argv", ["mtmc", "verify", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def ended(verdict: Any, **more: Any) -> Verification:
    return Verification("relu", "class", "h100", False, verdict, **more)


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verified(TIMING, GOOD), 0),
        (Infra("needs a GPU"), 3),
        (Wrong("off", "shape"), 4),
        (Rejected("static.copy", "no"), 4),
        (RuntimeFault("gone", "died"), 4),
        (CompileError("no"), 4),
    ],
)
def test_exit_codes_and_json(mtmc: Any, verdict: Any, code: int) -> None:
    found, out, _ = mtmc(ended(verdict, notes=("a note",)), "reference.py", "candidate.py", "--json")
    facts = json.loads(out)
    assert found == code and facts["verified"] == (code == 0) and facts["notes"] == ["a note"]
    assert facts["verdict"]["status"] == verdict.status


def test_the_table_shows_both_sides_and_what_was_not_checked(mtmc: Any) -> None:
    warning = Finding("static.precision", 7, "a cast to half", "likely", "warn")
    found = ended(Verified(TIMING, GOOD), findings=(warning,), notes=("No GPU",), opinion="honest: fine")
    _, out, _ = mtmc(found, "reference.py", "candidate.py")
    for text in (
        "verified",
        "static.precision",
        "2.00e-07",
        "1.00e-07",
        "0.25",
        "own 33x35",
        "something",
        "No GPU",
        "honest",
    ):
        assert text in out, text


def test_bad_files_and_options_end_with_two(mtmc: Any) -> None:
    assert mtmc(None, "reference.py", "nowhere.py")[0] == 2
    assert mtmc(None, "nowhere.py", "candidate.py")[0] == 2
    code, _, err = mtmc(None, "reference.py", "candidate.py", "--checks", "static.nonsense")
    assert code == 2 and "static.nonsense" in err
    code, _, err = mtmc(None, "reference.py", "candidate.py", "--auditor")
    assert code == 2 and "MTMC_LLM_URL" in err
