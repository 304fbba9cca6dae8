"""split_fp16: fp32 operands are split into fp16 pairs; three fp16 products replace one fp32 product.

Both are split once a call, before the product. Where one is much larger than the other, its pairs would cost more traffic
than the product itself: then its tiles are split inside the kernel. The product gets a tile that feeds the matrix unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import ceil, prod

import libcst as cst

from mtmc.action import Action, Value
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import PAIR_TILES
from mtmc.actions.library_functions import with_library
from mtmc.actions.product import (
    BATCHED,
    MATMUL,
    PRODUCTS,
    SPLIT,
    TILE,
    checked_operands,
    dot,
    float32_check,
    operands,
    tensor_cores,
)
from mtmc.actions.unit import Line, Unit, code, is_load, statement, target
from mtmc.errors import check
from mtmc.program import Program

LEAST_TILE = 64  # smaller tiles leave the matrix unit waiting: slower than plain multiply-adds
MUCH_LARGER = 4
FILLED = 0.75  # of the SMs should have a tile
BYTES = 4  # of both parts of an element


class SplitFp16(Rule):
    """Legal for a plain product of two fp32 matrices, or of batches of them, on an NVIDIA GPU with matrix units.

    With `ahead`, the name of one operand, only that one is split before. `tile` counts PAIR_TILES; without it the product's
    own tile stays, as far as it is large enough.
    """

    kind = "split_fp16"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if tensor_cores(context) else ():
            if operands(context, unit.name, PRODUCTS) and "input_precision" in unit.text:
                start, end = (
                    f"Split the fp32 operands of {unit.name} into fp16 pairs",
                    "for three products on the matrix unit",
                )
                tile, shape = _proposed(context, unit)
                yield self.action(unit.name, f"{start}, {end}{shape}.", **tile)
                for small, large in _unequal(context, unit):
                    inside = f"{large} tile by tile inside the kernel"
                    yield self.action(unit.name, f"{start}, {inside}, {end}{shape}.", ahead=small, **tile)

    def apply(self, context: Context, action: Action) -> Program:
        named = dict(action.params)
        a, b = checked_operands(context, action.region, PRODUCTS)
        split = (str(named["ahead"]),) if "ahead" in named else (a, b)
        check(set(split) <= {a, b}, f"ahead is {a} or {b}")
        unit = Unit.of(context.program, action.region)
        dots = [found for found in map(dot, unit.lines) if found and found.precision != SPLIT]
        check([found[:3] for found in dots] == [("acc", a, b)], "the dot has another form")
        check(f"{unit.name} = acc" in unit.lines, "the accumulator is used in another way")
        check(split == (a, b) or _plain(context, unit), "one operand alone is split in a product of whole matrices only")
        unit = _with_tile(context, _with_pairs(context, unit, (a, b), split), named.get("tile"))
        program = unit.into(context.program)
        for name in ("split_fp16", _product((a, b), split)):
            program = with_library(program, name, unit.name)
        return program


def _proposed(context: Context, unit: Unit) -> tuple[dict[str, int], str]:
    """The first of PAIR_TILES that fills the GPU, else the last, and its shape in words; nothing where the tile is large."""
    if min(unit.constants[name] for name in TILE) >= LEAST_TILE:
        return {}, ""
    host = context.host(unit.name)
    assert host is not None and host.type is not None
    *lead, rows, cols = host.type.shape
    batches, rows = (prod(lead), rows) if context.template(unit.name) in BATCHED else (1, rows * prod(lead))
    programs = [batches * ceil(rows / m) * ceil(cols / n) * unit.constants.get("SPLIT", 1) for m, n, *_ in PAIR_TILES]
    filling = [number for number, count in enumerate(programs) if count >= FILLED * context.profile.sm_count]
    number = filling[0] if filling else len(PAIR_TILES) - 1
    return {"tile": number}, f", in tiles of {' x '.join(map(str, PAIR_TILES[number][:3]))}"


def _with_tile(context: Context, unit: Unit, number: Value | None) -> Unit:
    """The unit with one of PAIR_TILES and as many of its stages as shared memory holds; else no smaller than LEAST_TILE."""
    if number is None:
        for name in TILE:
            unit = unit.with_constant(name, max(unit.constants[name], LEAST_TILE))
        return unit
    check(0 <= int(number) < len(PAIR_TILES), f"there are {len(PAIR_TILES)} tiles")
    m, n, k, warps, stages = PAIR_TILES[int(number)]
    for name, size in zip(TILE, (m, n, k), strict=True):
        unit = unit.with_constant(name, size)
    room = context.profile.shared_per_block_bytes // ((m + n) * k * BYTES)
    return unit.with_option("num_warps", warps).with_option("num_stages", max(1, min(stages, room)))


def _plain(context: Context, unit: Unit) -> bool:
    """Whether it multiplies two matrices, over their whole common extent at once."""
    return context.template(unit.name) == MATMUL and "SPLIT" not in unit.constants


def _unequal(context: Context, unit: Unit) -> Iterator[tuple[str, str]]:
    """The smaller and the larger operand of a product that may split one alone, where they differ much."""
    pair = checked_operands(context, unit.name, PRODUCTS)
    small, large = sorted(pair, key=lambda n: _elements(context, n))
    if _plain(context, unit) and MUCH_LARGER * _elements(context, small) <= _elements(context, large):
        yield small, large


def _elements(context: Context, operand: str) -> int:
    type = context.graph[operand].type
    return type.numel if type else 0


def _product(pair: tuple[str, str], split: tuple[str, ...]) -> str:
    """The library's product of operands of which those in `split` come in pairs."""
    return "op_dot_fp16x3" if split == pair else "op_dot_left_fp16x3" if split == pair[:1] else "op_dot_right_fp16x3"


def _with_pairs(context: Context, unit: Unit, pair: tuple[str, str], split: tuple[str, ...]) -> Unit:
    a, b = pair
    batched = context.template(unit.name) in BATCHED
    unit = unit.edit_lines(lambda line: _in_kernel(line, pair, split, unit, batched))
    strides = [f"{n}_stride_{d}" for n, ds in ((a, "bhmk"), (b, "bhkn")) if n in split for d in ds]
    parts = {n: [f"{n}_hi", f"{n}_lo", f"{n}_scale"] for n in split}
    replaced = {f"{n}_ptr": [f"{part}_ptr" for part in parts[n]] for n in split}
    passed = {code(x.value): () for x in unit.launch.args if re.match(rf"({'|'.join(split)})\.stride\(", code(x.value))}
    extent = [f"{split[0]}_hi.shape[1]"]  # padded with zeros: the rows of pairs are as long, a matrix as it came is not
    if split != pair:
        extent, replaced["K"] = ["K", *extent], ["K", "width"]
    kernel = [p for own in unit.arguments if own not in strides for p in replaced.get(own, [own])]
    unit = unit.with_parameters(kernel, unit.parameters(unit.launcher))
    anchor, each = ("partial", ", SPLIT") if "SPLIT" in unit.constants else ("out", "")
    matrix = {a: a, b: f"{b}.transpose(-2, -1)"} if batched else {a: f"{a}.reshape(M, K)", b: f"{b}.t()"}
    found = ", ".join(f"({', '.join(parts[n])})" if split == pair else ", ".join(parts[n]) for n in split)
    calls = ", ".join(f"split_fp16({matrix[n]}{each})" for n in split)
    unit = unit.with_arguments({**passed, **parts, "K": extent}).beside(anchor, float32_check(a, b), f"{found} = {calls}")
    return unit


def _in_kernel(
    line: cst.SimpleStatementLine, pair: tuple[str, str], split: tuple[str, ...], unit: Unit, batched: bool
) -> Sequence[Line] | None:
    """Loads of both parts, the dot of them, and the scales on the sum; rows and columns count through batches.

    After split_k each part of a row or column has its own scale.
    """
    a, b = pair
    row, col = ("(batch * M + m)", "(batch * N + col)") if batched else ("row", "col")
    text, operand = code(line), target(line)
    mask = re.search(r"mask=(.+), other=0\.0\)$", text)
    if is_load(line) and operand in split and mask:
        width = "K" if split == pair else "width"
        at = f"{row} * {width} + k[None, :]" if operand == a else f"{col} * {width} + k[:, None]"
        loads = [f"{operand}_{p} = tl.load({operand}_{p}_ptr + {at}, mask={mask[1]}, other=0.0)" for p in ("hi", "lo")]
        return [statement(t) for t in loads]
    if text.startswith(tuple(f"{n}_ptr += batch" for n in split)):
        return []
    if dot(text):
        given = ", ".join(f"{n}_hi, {n}_lo" if n in split else n for n in pair)
        return [statement(f"acc = {_product(pair, split)}({given}, acc)")]
    if text == f"{unit.name} = acc":
        if "SPLIT" in unit.constants:
            row, col = (f"{at} * SPLIT + tl.program_id(1)" for at in (row, col))
        ends = ((a, row, "m < M" if batched else "row < M"), (b, col, "col < N"))
        scales = [f" * tl.load({n}_scale_ptr + {at}, mask={end})" for n, at, end in ends if n in split]
        return [statement(f"{unit.name} = acc{''.join(scales)}")]  # one by one: their product may underflow
    return None
