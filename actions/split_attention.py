"""split_attention: keys and values of an fp32 attention are split into fp16 pairs before; each dot becomes three fp16 ones.

Every program reads all keys and values of its head: to split them once is cheaper than in each, and what was split can be
copied ahead into shared memory. Queries are split in registers, before the loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.knobs import PAIR_ATTENTION_TILES
from mtmc.actions.library_functions import with_library, without_dead
from mtmc.actions.product import ATTENTIONS, dot, float32_check, operands, tensor_cores
from mtmc.actions.unit import Line, Unit, code, is_load, statement, target
from mtmc.errors import check
from mtmc.program import Program

PARTS = ("hi", "lo", "scale")
PRODUCT = {"attention.attention": "op_dot_share_fp16x3", "attention.weighted": "op_dot_right_fp16x3"}


class SplitAttention(Rule):
    """Legal for fp32 attention on NVIDIA GPUs with matrix units, while its keys are read as they came.

    `tile` counts PAIR_ATTENTION_TILES.
    """

    kind = "split_attention"
    family = "tiling"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units if tensor_cores(context) else ():
            if operands(context, unit.name, ATTENTIONS) and any(map(dot, unit.lines)):
                for number, (*sizes, warps, _) in enumerate(PAIR_ATTENTION_TILES):
                    tile = f"in tiles of {' x '.join(map(str, sizes))} by {warps} warps"
                    sentence = f"Split keys and values of {unit.name} into fp16 pairs before it, {tile}."
                    yield self.action(unit.name, sentence, tile=number)

    def apply(self, context: Context, action: Action) -> Program:
        number, unit = int(action["tile"]), Unit.of(context.program, action.region)
        check(operands(context, unit.name, ATTENTIONS) is not None, "not an fp32 attention")
        check(0 <= number < len(PAIR_ATTENTION_TILES), f"there are {len(PAIR_ATTENTION_TILES)} tiles")
        host = context.host(unit.name)
        assert host is not None
        names, product = host.inputs[:3], PRODUCT[host.kwargs["template"]]
        dots = [found[:3] for found in map(dot, unit.lines) if found]
        check(dots == [("score", names[0], names[1]), ("acc", "part", names[2])], "the dots have another form")
        unit = unit.edit_lines(lambda line: _in_kernel(line, unit.name, names, product))
        unit = _launched(unit, *names)
        *sizes, warps, stages = PAIR_ATTENTION_TILES[number]
        for name, size in zip(("BLOCK_M", "BLOCK_N"), sizes, strict=True):
            unit = unit.with_constant(name, size)
        program = unit.with_option("num_warps", warps).with_option("num_stages", stages).into(context.program)
        for name in ("split_fp16", "op_fp16_pair", "op_load_pair", "op_dot_fp16x3", product):
            program = with_library(program, name, unit.name)
        return without_dead(program)


def _in_kernel(line: cst.SimpleStatementLine, unit: str, names: Sequence[str], product: str) -> Sequence[Line] | None:
    """Loads of both parts, the dots of them, and the scales on scores and sum."""
    q, k, v = names
    text, made, found = code(line), target(line), dot(code(line))
    mask = re.search(r"mask=(.+), other=0\.0\)$", text)
    if is_load(line) and made == q:
        return [line, statement(f"{q}_hi, {q}_lo, {q}_scale = op_fp16_pair({q}, 1)")]
    if is_load(line) and made in (k, v) and mask:
        at = (
            f"(batch * N + n[None, :]) * {k}_width + d[:, None]"
            if made == k
            else f"(batch * E + col) * {v}_width + n[:, None]"
        )
        return [statement(f"{made}_hi, {made}_lo = op_load_pair({made}_hi_ptr, {made}_lo_ptr, {at}, {mask[1]})")]
    if found and found.sum == "score":
        scale = f"tl.load({k}_scale_ptr + batch * N + n[None, :], mask=n[None, :] < N, other=0.0)"
        return [statement(f"score = op_dot_fp16x3({q}_hi, {q}_lo, {k}_hi, {k}_lo, score) * {q}_scale * {scale}")]
    if found:
        return [statement(f"acc = {product}(part, {v}_hi, {v}_lo, acc)")]
    if re.match(rf"{unit} = acc\b", text):
        return [statement(f"{text} * tl.load({v}_scale_ptr + batch * E + col, mask=col < E)")]
    return None


def _launched(unit: Unit, q: str, k: str, v: str) -> Unit:
    """Parameters, arguments and launcher with the pairs in place of keys and values, the width of their rows for strides."""
    parts = {n: [f"{n}_{part}" for part in PARTS] for n in (k, v)}
    gone = [f"{n}_stride_{d}" for n in (k, v) for d in "bhnd"]
    new = {f"{n}_ptr": [f"{part}_ptr" for part in parts[n]] for n in (k, v)}
    new |= {own: [] for own in gone} | {f"{n}_stride_b": [f"{n}_width"] for n in (k, v)}
    kernel = [name for own in unit.arguments for name in new.get(own, [own])]
    widths = {f"{n}.stride()": [f"{n}_hi.shape[1]"] for n in (k, v)}
    pairs = ", ".join(f"({', '.join(parts[n])})" for n in (k, v))
    calls = f"split_fp16({k}), split_fp16({v}.transpose(-2, -1))"
    unit = unit.with_parameters(kernel, unit.parameters(unit.launcher)).with_arguments({**parts, **widths})
    return unit.beside("out", float32_check(q, k), f"{pairs} = {calls}")
