"""Rows of a small made-up benchmark for the tests of `mtmc bench`."""

from __future__ import annotations

from mtmc.bench.rows import Row


def row(problem: str, eager: float = 2.0, ours: float = 1.0, compiled: float | None = 1.5, **fields) -> Row:
    """A verified row with an interval of ± 1 %; `baselines_ms` and other fields can be given."""
    ratio = eager / ours
    given = {
        "date": "2026-12-01",
        "run": 1,
        "gpu": "NVIDIA H200",
        "torch": "2.11.0",
        "triton": "3.6.0",
        "status": "verified",
    }
    given |= {"title": f"{problem.partition('/')[2]}_Some_kernel_", "low": 0.99 * ratio, "high": 1.01 * ratio, "units": 1}
    given |= {
        "handed_back": 0.99 * ratio > 1,
        "candidates": 8,
        "seconds": 60.0,
        "peak_bytes": 1 << 30,
        "passes_ms": 0.9 * ours,
    }
    given |= {"error": 2e-7, "eager_error": 4e-7, "kernel_share": 1.0}
    baselines = {"compile-default": compiled} if compiled else {}
    return Row(problem, eager_ms=eager, ours_ms=ours, over_eager=ratio, **{**given, "baselines_ms": baselines, **fields})


def failed(problem: str, status: str = "none", message: str = "wrong values") -> Row:
    return Row(problem, title=f"{problem.partition('/')[2]}_Hard", status=status, message=message, date="2026-12-01", run=1)


SMALL = [
    row("1/1", 4.0, 1.0, 2.0, kernelbench_correct=True),
    row("1/2", 1.0, 2.0, 4.0, kernelbench_correct=False),  # slower than eager, ahead of torch.compile
    row("1/3", 8.0, 1.0, 8.0),  # degenerate
    failed("1/4"),
    row("2/1", 9.0, 1.0, None, fallback_calls=["aten.conv2d.default"], graph_ms=0.1, eager_graph_ms=0.3, kernel_share=0.25),
]
DEGENERATE = frozenset({"1/3"})
