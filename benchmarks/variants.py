"""The calibration sweep: a dozen problems, eight or more tile variants each, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import ceil
from multiprocessing import get_context
from typing import Any

import kernels
import torch
from triton.errors import TritonError

Spec = tuple[tuple[int, ...], str] | int
"""A tensor (shape, dtype name) or a scalar argument."""


@dataclass(frozen=True)
class Variant:
    """One kernel launch: `group` names the problem; variants of a group do the same work and can be ranked."""

    group: str
    kernel: Any
    grid: tuple[int, ...]
    specs: tuple[Spec, ...]
    constants: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3

    @property
    def label(self) -> str:
        return variant_label(self.constants, self.num_warps, self.num_stages)

    def launch(self, device: str, arguments: list[Any] | None = None) -> Any:
        """Compiles if need be and launches on given or fresh arguments; returns the compiled kernel."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return self.kernel[self.grid](*(arguments or self.arguments(device)), **self.constants, **options)

    def arguments(self, device: str) -> list[Any]:
        """Fresh arguments; tensors of small random numbers (uninitialised on the meta device)."""
        return [s if isinstance(s, int) else _tensor(s, device) for s in self.specs]


def variant_label(constants: dict[str, Any], warps: int, stages: int) -> str:
    return " ".join([*(f"{name}={value}" for name, value in constants.items()), f"w{warps}", f"s{stages}"])


def _tensor(spec: tuple[tuple[int, ...], str], device: str) -> torch.Tensor:
    shape, dtype = spec
    if device == "meta":
        return torch.empty(shape, dtype=getattr(torch, dtype), device=device)
    return torch.rand(shape, device=device).to(getattr(torch, dtype))


def compile_only(variant: Variant) -> str:
    """Fills Triton's disk cache for one variant; returns what went wrong, if anything. Runs in a helper process."""
    types = [s if isinstance(s, int) else getattr(torch, s[1]) for s in variant.specs]
    options = {"num_warps": variant.num_warps, "num_stages": variant.num_stages}
    try:
        variant.kernel.warmup(*types, grid=(1,), **variant.constants, **options)
    except (RuntimeError, TritonError) as error:
        return str(error)
    return ""


def compile_all(workers: int) -> None:
    """Compiles every variant, several at a time, so that the measuring process only reads the cache."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(_compile_numbered, range(len(list(variants())))))


def _compile_numbered(index: int) -> str:
    return compile_only(list(variants())[index])


def variants() -> Iterator[Variant]:
    """Every variant, one problem after the other."""
    yield from _pointwise("add 64M", kernels.add_kernel, 1 << 26, 3)
    yield from _pointwise("add 1M", kernels.add_kernel, 1 << 20, 3)
    yield from _pointwise("add odd", kernels.add_kernel, (1 << 25) + 3, 3)
    yield from _pointwise("sigmoid x4", kernels.sigmoid_kernel, 1 << 25, 2, REPEAT=4)
    yield from _bias()
    for rows, cols in ((4096, 16384), (8192, 1000), (128, 1 << 18)):
        yield from _softmax(rows, cols)
    for rows, cols in ((16384, 4096), (1 << 18, 256)):
        yield from _row_sum(rows, cols)
    yield from _middle_sum(128, 4096, 1024)
    yield from _middle_sum(16, 1024, 4096)
    yield from _transpose(8192, 8192)
    for precision in ("ieee", "tf32", "tf32x3"):
        yield from _matmul((2048, 2048, 2048), "float32", precision)
    yield from _matmul((4096, 1024, 4096), "float32", "tf32", nt=True)
    yield from _matmul((4096, 1024, 4096), "float16", "tf32")
    yield from _matmul((4096, 4096, 4096), "float16", "tf32", nt=True)
    yield from _matmul((256, 4096, 8192), "float16", "tf32")


def _vector(n: int) -> Spec:
    return ((n,), "float32")


def _pointwise(group: str, kernel: Any, n: int, tensors: int, **constants: int) -> Iterator[Variant]:
    for block, warps in (
        (64, 1),
        (128, 1),
        (128, 4),
        (256, 4),
        (512, 4),
        (1024, 4),
        (1024, 8),
        (4096, 4),
        (8192, 8),
        (32768, 8),
    ):
        yield Variant(group, kernel, (ceil(n / block),), (*[_vector(n)] * tensors, n), {**constants, "BLOCK": block}, warps)


def _bias() -> Iterator[Variant]:
    n, inner, outer = 1 << 25, 56 * 56, 64
    for block, warps in ((128, 4), (256, 4), (512, 4), (1024, 4), (1024, 8), (2048, 4), (4096, 8), (16384, 8)):
        specs = (_vector(n), _vector(outer), _vector(n), n, inner, outer)
        yield Variant("bias by division", kernels.divmod_kernel, (ceil(n / block),), specs, {"BLOCK": block}, warps)


def _softmax(rows: int, cols: int) -> Iterator[Variant]:
    matrix: Spec = ((rows, cols), "float32")
    for block, warps in (
        (128, 1),
        (256, 1),
        (256, 4),
        (512, 4),
        (1024, 4),
        (2048, 4),
        (2048, 8),
        (4096, 8),
        (8192, 8),
        (16384, 16),
    ):
        yield Variant(
            f"softmax {rows}x{cols}", kernels.softmax_kernel, (rows,), (matrix, matrix, rows, cols), {"BLOCK": block}, warps
        )


def _row_sum(rows: int, cols: int) -> Iterator[Variant]:
    specs = (((rows, cols), "float32"), _vector(rows), rows, cols)
    for tall, block, warps in (
        (1, 128, 1), (1, 256, 4), (1, 1024, 4), (1, 4096, 8), (4, 256, 4),
        (8, 64, 4), (16, 128, 4), (16, 32, 4), (64, 64, 4), (128, 16, 4),
    ):  # fmt: skip
        constants = {"ROWS": tall, "BLOCK": block}
        yield Variant(f"row sum {rows}x{cols}", kernels.row_sum_kernel, (ceil(rows / tall),), specs, constants, warps)


def _middle_sum(batch: int, depth: int, cols: int) -> Iterator[Variant]:
    specs = (((batch, depth, cols), "float32"), ((batch, cols), "float32"), depth, cols)
    for red, wide, warps in (
        (1, 128, 4), (1, 1024, 4), (8, 128, 4), (16, 16, 4), (16, 64, 4),
        (32, 32, 4), (32, 128, 8), (64, 8, 4), (128, 32, 8), (4, 512, 4),
    ):  # fmt: skip
        grid, constants = (ceil(cols / wide), batch), {"RED": red, "COLS": wide}
        yield Variant(f"middle sum {batch}x{depth}x{cols}", kernels.middle_sum_kernel, grid, specs, constants, warps)


def _transpose(rows: int, cols: int) -> Iterator[Variant]:
    specs = (((rows, cols), "float32"), ((cols, rows), "float32"), rows, cols)
    for tall, wide, warps in (
        (8, 8, 1),
        (16, 16, 4),
        (32, 32, 4),
        (64, 64, 4),
        (64, 64, 8),
        (4, 256, 4),
        (256, 4, 4),
        (32, 128, 4),
        (128, 128, 8),
    ):
        grid, constants = (ceil(cols / wide), ceil(rows / tall)), {"ROWS": tall, "COLS": wide}
        yield Variant(f"transpose {rows}x{cols}", kernels.transpose_kernel, grid, specs, constants, warps)


def _matmul(shape: tuple[int, int, int], dtype: str, precision: str, nt: bool = False) -> Iterator[Variant]:
    m, n, k = shape
    b_shape, b_strides = ((n, k), (1, k)) if nt else ((k, n), (n, 1))
    specs: tuple[Spec, ...] = (((m, k), dtype), (b_shape, dtype), ((m, n), dtype), m, n, k, k, 1, *b_strides)
    kind = dtype if dtype != "float32" else precision
    for bm, bn, bk, group, warps, stages in (
        (16, 16, 32, 8, 4, 3), (32, 32, 32, 8, 4, 3), (64, 64, 32, 8, 4, 1), (64, 64, 32, 8, 4, 3),
        (64, 64, 64, 1, 4, 3), (64, 128, 32, 8, 4, 4), (128, 64, 32, 8, 8, 3), (128, 128, 32, 8, 4, 3),
        (128, 128, 32, 8, 8, 3), (128, 128, 64, 8, 8, 3), (128, 256, 64, 8, 8, 3),
    ):  # fmt: skip
        if precision == "ieee" and dtype == "float32" and bm * bn > 64 * 128:
            continue  # spills by the kilobyte and compiles for minutes
        yield Variant(
            f"matmul {m}x{n}x{k} {kind}{' nt' if nt else ''}",
            kernels.matmul_kernel,
            (ceil(m / bm) * ceil(n / bn),),
            specs,
            {"BM": bm, "BN": bn, "BK": bk, "GROUP": group, "PRECISION": precision},
            warps,
            stages,
        )
