"""Lowering: a captured graph becomes the first Program, in its plain form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mtmc.capture import Capture
from mtmc.graph import Graph
from mtmc.lower.emit import Reference, fallback_text, program_text
from mtmc.lower.normalize import Normalized, normalize, varying_arguments
from mtmc.problem import Problem, instantiate
from mtmc.program import Program

__all__ = ["Lowering", "Normalized", "Reference", "lower", "reference_of"]


@dataclass(frozen=True)
class Lowering:
    """The first Program with what belongs to it.

    `graph` is the primitive graph (None when the model was not captured), `sizes` holds one SIZES dict for each smaller
    variant (None where the same text does not fit that variant), `reasons` says why a node stayed a PyTorch call.
    """

    program: Program
    graph: Graph | None
    sizes: tuple[dict[str, Any] | None, ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)


def lower(problem: Problem, captured: Capture, variants: Sequence[Graph] = ()) -> Lowering:
    """The plain program of a captured model.

    `variants` are graphs of the same model at other sizes, which the program text must also fit; numbers that differ between
    them go to SIZES.
    """
    reference = reference_of(problem)
    if captured.graph is None:
        return Lowering(
            Program(fallback_text(problem.name, reference, captured.reason)), None, reasons={"model": captured.reason}
        )
    varying = varying_arguments(captured.graph, variants)
    full = normalize(captured.graph, varying)
    text = program_text(problem.name, full, reference)
    sizes = tuple(_sizes_at(problem, v, varying, (reference, full, text)) for v in variants)
    return Lowering(Program(text), full.graph, sizes, full.reasons)


def _sizes_at(
    problem: Problem, variant: Graph, varying: frozenset[str], full: tuple[Reference, Normalized, str]
) -> dict[str, Any] | None:
    """SIZES at a variant, if the program text is the same there but for sizes."""
    reference, normalized, text = full
    small = normalize(variant, varying, normalized.choices)
    same = _sizeless(program_text(problem.name, small, reference, normalized.graph)) == _sizeless(text)
    return small.sizes if same and small.sizes.keys() == normalized.sizes.keys() else None


def _sizeless(text: str) -> str:
    """The program without the SIZES table and the shapes in `supports`."""
    head, _, tail = text.partition("\nSIZES = {")
    return head + tail[tail.index("\nclass ModelNew") :]


def reference_of(problem: Problem) -> Reference:
    """The embedded reference: text, class name, plain attributes of its modules."""
    from mtmc.embed import reference_source

    model = instantiate(problem, "meta").model
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if not name.startswith("_") and isinstance(value, (bool, int, float, str, tuple, type(None))):
                found[f"{path}.{name}".lstrip(".")] = value
    tensors = (*model.parameters(), *model.buffers())
    found["dtypes"] = tuple(str(t.dtype) for t in tensors)
    found["shapes"] = tuple(tuple(t.shape) for t in tensors)
    found["strides"] = tuple(t.stride() for t in tensors)
    return Reference(reference_source(problem), problem.entry, found)
