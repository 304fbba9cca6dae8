"""Mutants: every kind of defect is made from a correct kernel, and the judge tells them from the original."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import judge_samples as samples
import pytest
from rich.console import Console

from mtmc import terminal, verification
from mtmc.errors import BadInput
from mtmc.hardware_profiles import load
from mtmc.judge.executor import Limits, LocalProcesses
from mtmc.judge.judge import Judge
from mtmc.judge.mutants import Mutant, Trial, mutants, rates, same_bits, tried, verdicts
from mtmc.judge.mutations import KINDS
from mtmc.judge.sites import Code
from mtmc.problem import load as load_problem
from mtmc.program import canonical_key
from mtmc.verdict import Infra, RuntimeFault, Timing, Verified, Wrong

ROWS = """
import torch
import triton
import triton.language as tl


@triton.jit
def op_gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.70710678))


@triton.jit
def row_kernel(x_ptr, b_ptr, out_ptr, cols, stride, EPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    peak = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = (col < cols) & (row >= 0)
        x = tl.load(x_ptr + row * stride + col, mask=mask, other=0.0)
        total += tl.where(mask, x, 0.0)
        peak = tl.maximum(peak, x)
    scale = tl.sum(total, axis=0) / cols + EPS
    b = tl.load(b_ptr + row)
    y = op_gelu(tl.max(peak, axis=0) * scale - b)
    tl.store(out_ptr + row, y)


def launch(x, b):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    count = torch.zeros((1,), dtype=torch.int64, device=x.device)
    grid = (triton.cdiv(x.shape[0], 1),)
    row_kernel[grid](x, b, out, x.shape[1], x.stride(0), EPS=1e-5, BLOCK=128)
    return out
"""


def changes(kind: str) -> dict[str, str]:
    """What is said of each mutant of a kind, and its changed lines."""
    found = {}
    for mutant in mutants(ROWS, count=1000, kinds=(kind,)):
        old, new = set(ROWS.splitlines()), set(mutant.source.splitlines())
        found[mutant.what] = " ".join(line.strip() for line in mutant.source.splitlines() if line in new - old)
    return found


@pytest.mark.parametrize(
    ("kind", "what", "line"),
    [
        (
            "mask_dropped",
            "the mask of tl.load(x_ptr + row * stride + col, mask=mask, other=0.0) is dropped",
            "* stride + col)",
        ),
        ("mask_dropped", "the mask forgets col < cols", "mask = (row >= 0)"),
        ("other_changed", "masked lanes hold 1.0, not 0.0", "1.0"),
        ("reduction_shortened", "range(0, cols, BLOCK) ends one step early", "range(0, cols - BLOCK, BLOCK)"),
        ("reduction_shortened", "range(0, cols, BLOCK) begins one step late", "range(0 + BLOCK, cols, BLOCK)"),
        ("reduction_shortened", "only the last step of total += tl.where(mask, x, 0.0) counts", "total = tl.where(mask"),
        (
            "reduction_shortened",
            "only the last step of peak = tl.maximum(peak, x) counts",
            "tl.maximum(tl.zeros_like(peak), x)",
        ),
        (
            "operation_skipped",
            "op_gelu(tl.max(peak, axis=0) * scale - b) is skipped",
            "y = (tl.max(peak, axis=0) * scale - b)",
        ),
        (
            "operation_skipped",
            "b is left out of tl.max(peak, axis=0) * scale - b",
            "op_gelu((tl.max(peak, axis=0) * scale))",
        ),
        ("operator_swapped", "min for max in tl.max(peak, axis=0)", "tl.min(peak, axis=0)"),
        ("operator_swapped", "-= for += in total += tl.where(mask, x, 0.0)", "total -= tl.where"),
        ("precision_lowered", "scale is rounded to bfloat16", "scale = scale.to(tl.bfloat16).to(scale.dtype)"),
        ("off_by_one", "col < cols lets one fewer in", "cols - 1"),
        ("off_by_one", "tl.store(out_ptr + row, y) one element too far", "out_ptr + row + 1"),
        ("wrong_stride", "stride + 1 for stride in row * stride", "row * (stride + 1)"),
        ("wrong_constant", "EPS is 2e-05, not 1e-05", "EPS=2e-05"),
        ("wrong_constant", "division by cols + 1", "/ (cols + 1)"),
        ("missing_initial", "total starts at 1", "tl.zeros((BLOCK,), tl.float32) + 1"),
        ("missing_initial", "peak starts at 0, not float('-inf')", "tl.full((BLOCK,), 0.0, tl.float32)"),
        ("wrong_grid", "one program short in (triton.cdiv(x.shape[0], 1),)", "((triton.cdiv(x.shape[0], 1)) - 1,)"),
        ("wrong_grid", "triton.cdiv(x.shape[0], 1) rounds down", "(((x.shape[0]) // (1)),)"),
        ("wrong_dtype", "torch.zeros((1,), dtype=torch.int64, device=x.device) is torch.int32", "torch.int32"),
    ],
)
def test_kinds_of_defects(kind: str, what: str, line: str) -> None:
    found = changes(kind)
    assert what in found, sorted(found)
    assert line in found[what]


def test_every_mutant_is_one_valid_change_and_none_is_the_original() -> None:
    found = mutants(ROWS, seed=3, count=1000)
    keys = {canonical_key(mutant.source) for mutant in found}
    assert len(keys) == len(found) > 60 and canonical_key(ROWS) not in keys
    assert {mutant.kind for mutant in found} == set(KINDS)
    for mutant in found:
        ast.parse(mutant.source)
        old, new = ROWS.splitlines(), mutant.source.splitlines()
        extra = len(new) - len(old)
        at = mutant.line - 1
        assert new[:at] == old[:at] and new[at + 1 + extra :] == old[at + 1 :], mutant.what


def test_seeds_choose_and_kinds_take_turns() -> None:
    first, again, other = (mutants(ROWS, seed, 24) for seed in (0, 0, 1))
    assert first == again != other
    assert len(mutants(ROWS, 0, 12)) == 12 and {m.kind for m in mutants(ROWS, 0, 12)} == set(KINDS)
    assert {m.kind for m in mutants(ROWS, 0, 5, ("wrong_grid", "mask_dropped"))} == {"wrong_grid", "mask_dropped"}
    with pytest.raises(BadInput, match="known: mask_dropped, other_changed"):
        mutants(ROWS, kinds=("typo",))


def test_addresses_are_told_from_values() -> None:
    kernel = next(f for f in Code(ROWS).functions if f.node.name == "row_kernel")
    assert {"row", "col", "mask", "start", "cols", "BLOCK", "stride"} <= kernel.addresses
    assert not {"total", "peak", "scale", "x", "y", "b"} & kernel.addresses
    assert [f.role for f in Code(ROWS).functions] == ["device", "kernel", "host"]


def test_compensation_of_rounding_is_no_defect() -> None:
    text = ROWS.replace("total += tl.where(mask, x, 0.0)", "total, lost = op_add(total, lost, tl.where(mask, x, 0.0))")
    text = text.replace(
        "@triton.jit\ndef row",
        "@triton.jit\ndef op_add(acc, lost, x):\n    y = x - lost\n    total = acc + y\n    rest = (total - acc) - y\n"
        "    return total, tl.where(rest == rest, rest, 0.0)\n\n\n@triton.jit\ndef row",
    )
    found = [mutant.what for mutant in mutants(text, count=1000) if mutant.line in range(12, 18)]
    assert found and not [what for what in found if "lost" in what or "rest" in what]


def test_a_program_without_kernels_has_no_mutants() -> None:
    assert mutants("import torch\n\n\ndef f(x):\n    return torch.relu(x)\n") == ()


TIMING = Timing("predicted", 1, 1, 1, 1, 1)


def trial(kind: str, verdict: object, equal: bool | None = None) -> Trial:
    return Trial(Mutant("", kind, 1, ""), verdict, equal)  # type: ignore[arg-type]


def test_what_counts_as_killed() -> None:
    survivor = Verified(TIMING, None)  # type: ignore[arg-type]
    found = [
        trial("mask_dropped", RuntimeFault("", "out_of_bounds")),
        trial("mask_dropped", survivor, equal=True),
        trial("mask_dropped", Infra("no memory")),
        trial("wrong_grid", Wrong("", "nan")),
        trial("wrong_grid", survivor, equal=False),
    ]
    assert [t.by for t in found] == ["out_of_bounds", "verified", "infra", "nan", "verified"]
    assert rates(found) == {"mask_dropped": (1, 1, 2), "wrong_grid": (1, 0, 2), "all": (2, 1, 4)}
    assert rates([]) == {"all": (0, 0, 0)}
    asked: list[str] = []
    judged = tried(mutants(ROWS, count=2), lambda source: survivor, lambda source: not asked.append(source))
    assert [t.equal for t in judged] == [True, True] and len(asked) == 2


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcesses]:
    limits = Limits(workers={"compile": 1, "interpret": 1, "gpu": 1})
    with LocalProcesses(tmp_path_factory.mktemp("cache"), limits) as running:
        yield running


@pytest.fixture(scope="module")
def judge(executor: LocalProcesses) -> Judge:
    variants = ((samples.problem(N=3, M=65), None), (samples.problem(N=7, M=130), None))
    return Judge(executor, samples.problem(N=4096, M=4096), load("h100"), variants)


@pytest.mark.slow
def test_the_judge_kills_mutants_of_the_sample(judge: Judge) -> None:
    made = mutants(samples.CANDIDATE, count=8, kinds=("mask_dropped", "off_by_one", "wrong_grid", "operator_swapped"))
    found = tried(made, verdicts(judge))
    assert len(found) == 8 and [t for t in found if not t.killed] == []
    assert "out_of_bounds" in {t.by for t in found}


@pytest.mark.slow
def test_a_survivor_that_computes_the_same_is_told_apart(judge: Judge) -> None:
    original = samples.CANDIDATE.replace("mask=mask)\n    scale", "mask=mask, other=0.0)\n    scale")
    (mutant,) = mutants(original, kinds=("other_changed",))  # masked lanes are never stored
    (survivor,) = tried([mutant], verdicts(judge), same_bits(judge, original))
    assert not survivor.killed and survivor.equal
    slack = samples.changed(("x * scale, 0.0", "x * scale * 1.0000002, 0.0"))
    within = Mutant(slack, "wrong_constant", 1, "within the tolerance")
    (survivor,) = tried([within], verdicts(judge), same_bits(judge, original))
    assert not survivor.killed and survivor.equal is False


@pytest.mark.slow
def test_what_only_another_size_shows_is_killed_there(judge: Judge) -> None:
    wrong = samples.changed(("index < numel", "(index < numel) & (index < 900)"))
    small = partial(Judge, judge.executor, judge.problem, judge.profile, judge.variants[:1])()
    assert verdicts(small)(wrong).correct and not verdicts(judge)(wrong).correct


@pytest.mark.slow
def test_verify_prints_kill_rates_and_survivors(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "sample.py"
    file.write_text(samples.REFERENCE)
    source = samples.CANDIDATE + "\n    def forward(self, x):\n        return self.kernels(x)\n"
    found = verification.verify(load_problem(file), source, verification.Options(measure=False, mutants=3))
    assert found.verdict.correct and len(found.trials) == 3
    rows = found.to_json()["mutants"]
    assert [row["killed"] for row in rows] == [t.killed for t in found.trials] and all(row["what"] for row in rows)
    lost = Trial(Mutant("", "wrong_constant", 7, "2 for [1]"), found.verdict, equal=False)
    for part in terminal.verification(replace(found, trials=(*found.trials, lost))):
        Console(width=200).print(part)
    printed = capsys.readouterr().out
    assert "wrong constant" in printed and "survivor wrong_constant, line 7: 2 for [1] (other bits" in printed
