"""Offsets of broadcast operands, against the addresses that torch's own strides give."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from mtmc.frames import Frame, broadcasts, operand_offset, pad, split_for

FULL = [(7,), (3, 5), (2, 3, 4), (2, 1, 3, 4), (2, 3, 2, 2, 3)]
SHAPES = [
    (full, shape)
    for full in FULL
    for kept in itertools.product((True, False), repeat=len(full))
    for shape in [tuple(size if keep else 1 for size, keep in zip(full, kept, strict=True))]
]


def frames_of(rank: int) -> list[Frame]:
    cuts = [(i, j) for i in range(rank + 1) for j in range(i, rank + 1)]
    rows: list[Frame] = [(("row", 0, i), ("col", i, rank)) for i in range(rank)]
    return rows + [(("row", 0, i), ("red", i, j), ("col", j, rank)) for i, j in cuts]


def expected(full: tuple[int, ...], shape: tuple[int, ...]) -> torch.Tensor:
    """For each element of `full`, the place of its operand's element in a contiguous operand of `shape`."""
    return torch.arange(torch.Size(shape).numel()).view(shape).expand(full)


def coordinates(frame: Frame, full: tuple[int, ...]) -> dict[str, torch.Tensor]:
    found = {}
    for name, first, last in frame:
        own = torch.arange(torch.Size(full[first:last]).numel()).view(full[first:last])
        found[name] = own.view((1,) * first + full[first:last] + (1,) * (len(full) - last)).expand(full)
    return found


@pytest.mark.parametrize(("full", "shape"), SHAPES)
def test_an_offset_is_the_operands_address(full, shape):
    for frame in frames_of(len(full)):
        offset = operand_offset(frame, full, shape)
        sizes = {name: eval(text.format(shape="shape"), {"shape": full}) for name, text in offset.sizes.items()}
        values = {k: v for k, v in coordinates(frame, full).items() if k in offset.coordinates}
        found = eval(offset.text, {}, {**values, **sizes})
        assert torch.equal(torch.as_tensor(found).expand(full), expected(full, shape)), (frame, offset)


def test_an_offset_needs_no_size_it_does_not_use():
    for full, shape in SHAPES:
        for frame in frames_of(len(full)):
            offset = operand_offset(frame, full, shape)
            for name in offset.sizes:
                rest = dict.fromkeys({*offset.sizes, *offset.coordinates} - {name}, 1)
                with pytest.raises(NameError):
                    eval(offset.text, {}, rest)


def test_missing_leading_dimensions_count_as_ones():
    frame: Frame = (("row", 0, 2), ("col", 2, 3))
    assert operand_offset(frame, (2, 3, 4), (4,)) == operand_offset(frame, (2, 3, 4), (1, 1, 4))
    assert pad((4,), 3) == (1, 1, 4)


def test_a_split_leaves_each_operand_whole_or_absent_in_the_columns():
    random.seed(0)
    for full in FULL:
        for _ in range(20):
            shapes = [tuple(random.choice((s, 1)) for s in full) for _ in range(2)]
            split = split_for(full, [*shapes, full])
            assert 0 <= split < len(full)
            for shape in shapes if split < len(full) - 1 else ():
                tail = [(a, b) for a, b in zip(shape[split:], full[split:], strict=True) if b != 1]
                assert all(a == b for a, b in tail) or all(a == 1 for a, b in tail)


@pytest.mark.parametrize(
    ("shape", "full", "answer"),
    [((3, 1), (2, 3, 4), True), ((), (2,), True), ((2, 3), (3,), False), ((2,), (2, 3), False), ((3,), (2, 3), True)],
)
def test_broadcasts(shape, full, answer):
    assert broadcasts(shape, full) is answer
