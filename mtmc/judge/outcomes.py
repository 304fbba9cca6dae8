"""What a job's outcome says: a value of the kind that was asked for, or a Verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from mtmc.errors import InfraError
from mtmc.judge.jobs import ReferenceTimes
from mtmc.judge.predict import Prediction
from mtmc.verdict import Accuracy, RuntimeFault, Timing, Verdict, Wrong

T = TypeVar("T")

UNTIMED = Timing("unknown", 0.0, 0.0, 1.0, 1.0, 1.0)  # nothing was measured and nothing could be predicted


def only_at_its_sizes(own: Any, failures: Sequence[Any]) -> Wrong | None:
    """The finding on a candidate that is right at the problem's own sizes and wrong or helpless at others."""
    for found in failures:
        if isinstance(own, Accuracy) and (isinstance(found, Wrong) or getattr(found, "cause", "") == "raised"):
            message = f"right at the file's own sizes but not at others, which the reference takes: {found.message}"
            return Wrong(message, "shape")
    return None


def predicted_timing(reference: ReferenceTimes, found: Prediction, floor_ms: float) -> Timing:
    """A prediction beside that of the reference."""
    candidate_ms = float(found.total_ms)
    speedup = reference.eager_ms / max(candidate_ms, 1e-6)
    return Timing(
        "predicted",
        reference.eager_ms,
        candidate_ms,
        speedup,
        speedup,
        speedup,
        floor_ms=floor_ms,
        host_ms=float(found.host_ms),
        reference_host_ms=reference.host_ms,
        kernels_ms={name.removesuffix("_kernel"): float(ms) for name, ms in found.kernels_ms.items()},
    )


def refused(outcome: Any) -> bool:
    """Whether a program's own checks have refused the sizes."""
    return isinstance(outcome, RuntimeFault) and outcome.cause == "refused"


def verdict_of(outcome: Any) -> Verdict:
    """A job's failed outcome. Raises InfraError for anything that is no Verdict: a worker must not have sent it."""
    return need(outcome, Verdict)


def need(outcome: Any, kind: type[T]) -> T:
    if not isinstance(outcome, kind):
        raise InfraError(f"expected {kind.__name__} from a worker, got {getattr(outcome, 'message', outcome)!r}")
    return outcome
