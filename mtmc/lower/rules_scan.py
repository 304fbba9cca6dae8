"""Scans: running sums and products along one dimension, forwards, from the end, and without the element itself.

Two spellings are index maps of a scan and cost no data movement: a scan between two flips walks from the end, and zeros put
before a scan of all but the last elements make it exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mtmc.frames import Frame
from mtmc.graph import Node, TensorType
from mtmc.lower import rules_view as view
from mtmc.lower.builder import FLOATS, Builder, NotMine, compute_type
from mtmc.lower.rules_pointwise import arguments
from mtmc.lower.rules_reduction import KINDS, layout

# kind: function of the library that scans a tile
ALONG = {"sum": "op_sum_along", "prod": "op_prod_along"}
BACK = "_back"  # suffix of the functions that scan from the end
WALKS = {False: "range(0, {extent}, {tile})", True: "range(tl.cdiv({extent}, {tile}) * {tile} - {tile}, -{tile}, -{tile})"}


@dataclass(frozen=True)
class Scan:
    """A scan of `kind` along dimension `dim` of the value `source`; `back` runs from the end, `exclusive` leaves each
    element itself out."""

    kind: str
    source: str
    dim: int
    back: bool = False
    exclusive: bool = False


def scan(b: Builder, node: Node, type: TensorType) -> str:
    """cumsum and cumprod along any dimension."""
    args = arguments(node)
    if not type.shape or 0 in type.shape:
        raise NotMine("a scan of a scalar or of nothing")
    kind = node.op.split(".")[1].removeprefix("cum")
    return _scanned(b, node.name, Scan(kind, args["self"].name, args["dim"] % len(type.shape)), type.dtype)


def _scanned(b: Builder, name: str, made: Scan, out: str) -> str:
    """The kernel of a scan."""
    source = b.dense(made.source)
    have, rank = b.type(source), len(b.type(source).shape)
    if out not in FLOATS and made.kind != "sum":
        raise NotMine("a running product of integers")
    suffix, frame = layout([made.dim], rank)
    identity, combine, finish = KINDS[made.kind] if out in FLOATS else ("0", "op_count", "op_sum_over")
    extent, tile = ("cols", "BLOCK") if suffix == "row" else ("reds", "RED")
    acc = compute_type(out)
    return b.unit(
        name, f"scan.{'exclusive_' * made.exclusive}{suffix}", [source], TensorType(have.shape, out),
        body=b.cast(source, acc), frame_in=frame, frame_out=_stored(frame, suffix) if made.exclusive else frame, acc=acc,
        cols=" * ".join(f"{source}.shape[{d}]" for d in range(frame[-1][1], rank)), reds=f"{source}.shape[{made.dim}]",
        shape=f"{source}.shape", identity=identity, combine=combine, finish=finish, scan=made,
        along=ALONG[made.kind] + BACK * made.back, walk=WALKS[made.back].format(extent=extent, tile=tile),
    )  # fmt: skip


def _stored(frame: Frame, suffix: str) -> Frame:
    """The frame of an exclusive scan's result: what it reads at `col` (or `red`) it stores at `place`, one behind."""
    scanned = "col" if suffix == "row" else "red"
    return tuple(("place" if name == scanned else name, first, last) for name, first, last in frame)


def flip(b: Builder, node: Node, type: TensorType) -> str:
    """A value turned around along some dimensions; a scan of a turned value, turned back, is one from the end."""
    args = arguments(node)
    source, dims = args["self"].name, [d % len(type.shape) for d in args["dims"]]
    turned = _turned_scan(b, source, dims)
    if turned:  # not named after the flip, which has a launcher of its own
        return _scanned(b, f"{source}_back", turned, type.dtype)
    if not dims or 0 in type.shape:
        raise NotMine("a flip of nothing")
    for dim in dims[:-1]:
        source = b.unit(f"{node.name}_{dim}", "movement.flip", [source], type, extra=(dim,))
    return b.unit(node.name, "movement.flip", [source], type, extra=(dims[-1],))


def _turned_scan(b: Builder, source: str, dims: list[int]) -> Scan | None:
    """The scan from the other end that equals `source` flipped over `dims`, where that is the flip of a scan of a flip."""
    made: Scan | None = b.nodes[source].kwargs.get("scan")
    if made is None or made.exclusive or dims != [made.dim]:
        return None
    before = b.nodes[made.source]
    if before.kwargs.get("template") != "movement.flip" or before.kwargs["extra"] != (made.dim,):
        return None
    return replace(made, source=before.inputs[0], back=not made.back)


def cat(b: Builder, node: Node, type: TensorType) -> str:
    """A concatenation; that of one zero and a running sum of all but the last elements is an exclusive running sum."""
    args = arguments(node)
    parts = [ref.name for ref in args["tensors"]]
    made = _shifted_scan(b, parts, args["dim"] % max(len(type.shape), 1), type)
    return _scanned(b, f"{parts[1]}_exclusive", made, type.dtype) if made else view.cat(b, node, type)


def _shifted_scan(b: Builder, parts: list[str], dim: int, type: TensorType) -> Scan | None:
    """The exclusive scan that equals the parts put together along `dim`, where they are of that form."""
    if len(parts) != 2 or b.nodes[parts[0]].kwargs.get("op") != "aten.zeros_like.default":
        return None
    made: Scan | None = b.nodes[parts[1]].kwargs.get("scan")
    if made is None or (made.kind, made.dim, made.back, made.exclusive) != ("sum", dim, False, False):
        return None
    sliced = b.nodes[made.source]
    whole = sliced.inputs[0] if sliced.op == "view" else ""
    first = f"{whole}[{', '.join([':'] * dim + [':'])}"  # a slice from the first element on; its length tells the step
    if not whole or not sliced.kwargs["call"].startswith(first) or b.type(whole).shape != type.shape:
        return None
    return replace(made, source=whole, exclusive=True)
