"""Views for the tests of the language model's policy: a real first program, a verdict as a GPU gives it, actions."""

from __future__ import annotations

from pathlib import Path

from mtmc.action import Action
from mtmc.hardware_profiles import load
from mtmc.policies.policy import View
from mtmc.program import Program
from mtmc.step import Step
from mtmc.verdict import Accuracy, CompileError, Launch, Timing, Verified

GOLDEN = Path(__file__).parents[1] / "golden"
HEAD = Program((GOLDEN / "head.py").read_text())
STOP = Action("stop", "stop", "model", (), "Stop: keep the program as it is.")


def verified(speedup: float = 0.5) -> Verified:
    parts = {"linear_product": 0.08, "softmax": 0.015, "gelu": 0.005}
    timing = Timing("measured", 0.1 * speedup, 0.1, speedup, speedup, speedup, 0.01, kernels_ms=parts)
    launches = (
        Launch("linear_product_kernel", (512, 1, 1), 4, 1, 62, 0, 8192, constants={"BLOCK_M": 32}),
        Launch("softmax_kernel", (128, 1, 1), 1, 2, 255, 96, 0),
    )
    return Verified(timing, Accuracy(1e-7, 1e-7), launches)


def tiles(unit: str, count: int) -> tuple[Action, ...]:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "BLOCK")
    return tuple(
        Action(
            "tile_size", "tiling", unit, (("constant", names[i % 4]), ("value", 32 << i // 4)),
            f"In {unit}, change {names[i % 4]} from 16 to {32 << i // 4}.",
        )
        for i in range(count)
    )  # fmt: skip


FUSE = Action("fuse_epilogue", "fusion", "linear_product", (("guest", "gelu"),), "Fuse the elementwise kernel gelu into it.")
STAGES = Action(
    "stages", "pipelining", "linear_product", (("value", 3),), "Pipeline the loop of linear_product in 3 stages."
)


def history() -> tuple[Step, ...]:
    failed = CompileError("linear_product_kernel needs 262144 bytes of shared memory,\n232448 are there.", "shared_memory")
    return (
        Step(1, "a", "b", FUSE, verified(0.4), 0.15, "random"),
        Step(2, "b", "c", STAGES, verified(0.5), 0.15, "random"),
        Step(3, "c", "d", tiles("linear_product", 1)[0], failed, 0.0, "random"),
    )


def view(count: int = 3, **changes: object) -> View:
    """A decision with `count` tile actions, one fusion, one pipelining and `stop`."""
    known = {"program": HEAD, "verdict": verified(), "legal": (FUSE, STAGES, *tiles("softmax", count), STOP)}
    return View(**{**known, "history": history()[:2], "profile": load("h100"), **changes})  # type: ignore[arg-type]
