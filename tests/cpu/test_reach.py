"""No index wraps around at 2^31: kernels compiled at full size on meta tensors, their integers followed exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from mtmc import actions, problem
from mtmc.actions import RULES, Context
from mtmc.capture import capture
from mtmc.errors import Illegal
from mtmc.hardware_profiles import load
from mtmc.judge import reach
from mtmc.judge.jobs import Compiled, CompileJob
from mtmc.judge.reach import overflows
from mtmc.judge.standin import stand_in
from mtmc.lower import Lowering, lower
from mtmc.problem import Problem
from mtmc.program import Program
from mtmc.verdict import Launch, RuntimeFault

LARGE = sorted((Path(__file__).parents[2] / "benchmarks" / "problems" / "large").glob("*.py"))
H200 = load("h200")
STRUCTURE = ("fuse_prologue", "fuse_epilogue", "fuse_second_pass", "fuse_siblings", "merge_passes", "split_reduction")

# Every kind of kernel over tensors past 2^31 elements, those included whose extents pass 2^31 in one program.
KINDS = {
    "x.sum((0, 2))": "2**23, 3, 257",
    "x.var((0, 2))": "2**23, 3, 257",
    "x.std(1)": "3, 2**31 - 8",
    "x.sum((0, 2), keepdim=True)": "40, 3, 2**25",
    "(x * x[0]).sum(1)": "2, 65537, 32776",
    "x.amax(0)": "65537, 32776",
    "x.argmin(0)": "65537, 32776",
    "x.argmax(1)": "2, 2**31 - 8",
    "x.softmax(1)": "3, 65537, 11008",
    "x.log_softmax(1)": "2, 2**31 - 64",
    "x.cumsum(0)": "65537, 32776",
    "x.cumsum(1)": "9, 2**28 + 8",
    "x.flip(1).cumsum(1).flip(1)": "9, 2**28 + 8",
    "x.transpose(1, 2).contiguous()": "3, 65537, 11008",
    "torch.cat((x, x), 1)": "3, 11008, 65537",
    "F.layer_norm(x, x.shape[1:])": "8, 65537, 4112",
    "F.group_norm(x, 2)": "16, 6, 5000, 5000",
    "x.gather(1, (x[:, :2] * 0).long())": "3, 65537, 11008",
    "F.embedding((x[:9, 0] * 0).long(), x)": "65537, 32776",
    "x @ x[:64].t()": "2**25, 64",
    "torch.bmm(x, x.transpose(1, 2))": "33, 8192, 64",
    "F.scaled_dot_product_attention(x, x, x)": "2, 40, 2**19, 64",
    "F.relu(x @ x.transpose(-2, -1)) @ x": "2, 40, 2**19, 64",
    "x.transpose(1, 2) @ x.permute(0, 2, 3, 1)": "33, 8192, 3, 64",
    "F.cross_entropy(x, (x[:, 0] * 0).long())": "33000, 65536",
    "F.triplet_margin_loss(x, x * 2, x * 3)": "33000, 65536",
}


def model(forwards: dict[str, str]) -> Problem:
    """All expressions over `x`, each with its own input, as one model."""
    names = [f"x{number}" for number in range(len(forwards))]
    lines = ["import torch", "import torch.nn as nn", "import torch.nn.functional as F"]
    for name, forward in zip(names, forwards, strict=True):
        lines += [f"def case_{name}(x):", f"    return {forward}"]
    lines += ["class Model(nn.Module):", f"    def forward(self, {', '.join(names)}):"]
    lines += [f"        return [{', '.join(f'case_{name}({name})' for name in names)}]"]
    lines += ["def get_inputs():", f"    return [{', '.join(f'torch.randn({shape})' for shape in forwards.values())}]"]
    return Problem("kinds", "\n".join(lines) + "\n", "kinds.py")


@cache
def lowered(path: Path | None) -> tuple[Problem, Lowering]:
    what = problem.load(path) if path else model(KINDS)
    return what, lower(what, capture(what))


def wrapped(path: Path | None, program: Program) -> str | None:
    """What wraps around in a program compiled at full size; None where nothing does."""
    outcome = CompileJob(problem=lowered(path)[0], source=program.source, profile=H200).run()
    if isinstance(outcome, RuntimeFault):
        assert outcome.cause == "out_of_bounds"
        return outcome.message
    assert isinstance(outcome, Compiled), outcome
    return None


def improved(path: Path) -> Iterator[Program]:
    """The program after each structural action that applies, one after the other, and with the largest blocks at the end."""
    _, made = lowered(path)
    program, graph = made.program, made.graph
    assert graph is not None
    for kind in (*STRUCTURE, "tile_size", "tile_size"):
        rule = next(rule for rule in RULES if rule.kind == kind)
        for _ in range(4):
            here = Context(program, graph, H200)
            for action in reversed([*rule.propose(here)]):
                try:
                    program = actions.apply(here, action)
                    break
                except Illegal:
                    continue
            else:
                break
    yield program


@pytest.mark.parametrize("path", LARGE, ids=lambda path: path.stem)
def test_the_large_problems_are_large(path):
    _, made = lowered(path)
    assert made.graph is not None
    largest = max(prod(node.type.shape) for node in made.graph.nodes if node.type)
    assert largest > 2**31 - 1 or path.stem == "sum_below" and largest > 2**31 - 256


@pytest.mark.parametrize("path", LARGE, ids=lambda path: path.stem)
def test_their_programs_address_them(path):
    _, made = lowered(path)
    assert wrapped(path, made.program) is None
    for program in improved(path):
        assert wrapped(path, program) is None


def test_every_kind_of_kernel_addresses_large_tensors():
    _, made = lowered(None)
    assert not [node.kwargs["op"] for node in made.graph.nodes if node.op == "torch" and "mul" not in node.kwargs["op"]]
    assert wrapped(None, made.program) is None


def test_extents_kept_in_32_bits_are_found():
    path = next(path for path in LARGE if path.stem == "sum_below")
    _, made = lowered(path)
    narrow = Program(made.program.source.replace("    cols = tl.cast(cols, tl.int64)\n", ""))
    assert narrow.source != made.program.source
    assert "sum_1_kernel: " in wrapped(path, narrow) and "in 32 bits" in wrapped(path, narrow)


@triton.jit
def narrow_kernel(x_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + index, 0.0, mask=index < n)


def narrow(n: int, block: int = 1024) -> Launch:
    with stand_in(H200) as recorder:
        narrow_kernel[(triton.cdiv(n, block),)](torch.empty(n, device="meta"), n, BLOCK=block)
    return recorder.launches[0]


@pytest.mark.parametrize(("n", "wraps"), [(2**31 - 1024, False), (2**31 - 8, False), (2**31 + 8, True)])
def test_the_last_program_decides(n, wraps):
    assert bool(overflows(narrow(n))) == wraps


def test_a_launch_seen_before_is_not_walked_again():
    first, again = narrow(2**31 + 8), narrow(2**31 + 8)
    assert first is not again and first.known == again.known
    said, misses = overflows(first), reach._overflows.cache_info().misses
    assert said and overflows(again) == said
    assert reach._overflows.cache_info().misses == misses


def test_launches_that_differ_in_anything_are_analysed_anew():
    one = narrow(2**31 + 8)
    tensor = one.arguments["x_ptr"]
    others = [
        narrow(2**31 - 8),
        narrow(2**31 + 8, 512),
        replace(one, grid=(1, 1, 1)),
        replace(one, kernel="other"),
        *(replace(one, arguments={**one.arguments, "n": n}) for n in (1, 1.0, True)),
        *(
            replace(one, arguments={**one.arguments, "x_ptr": (*tensor[:2], *changed)})
            for changed in (((8,), (1,)), ((8,), (2,)))
        ),
    ]
    assert len({launch.known for launch in (one, *others)}) == len(others) + 1
    for launch in (one, *others):
        assert overflows(launch) == reach._overflows.__wrapped__(launch.known)
    assert overflows(one) != overflows(others[0]) and overflows(one) != overflows(others[2])
