"""Measures what the analytic time model needs to know of a GPU, and a sweep of tile variants to fit it on.

    python benchmarks/calibrate.py --output h200.json            # on the GPU; under 150 s
    python benchmarks/fit_model.py h200.json                     # anywhere: rank correlation, suggested constants

The JSON is rewritten after every result, so an interrupted run keeps what it has. A variant that fails is recorded with its
error and the run goes on. Times are medians over repeated runs with the L2 flushed between them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import triton
from triton.errors import TritonError
from triton.testing import do_bench

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import kernels
from variants import Variant, compile_all, variants

from mtmc.verdict import Launch


def measured_ms(call: Callable[[], Any], reps_ms: int = 20) -> float:
    return float(do_bench(call, warmup=5, rep=reps_ms, return_mode="median"))


def bandwidths() -> Iterator[tuple[str, float]]:
    """GB/s: copies (read + write), a read-only reduction, and reads that stay in L2."""
    n = 1 << 28
    x, out = torch.rand(n, device="cuda"), torch.empty(n, device="cuda")
    yield "torch_copy_gb_s", 8 * n / measured_ms(lambda: out.copy_(x)) / 1e6
    block = 4096
    copy = kernels.copy_kernel[(n // block,)]
    yield "triton_copy_gb_s", 8 * n / measured_ms(lambda: copy(x, out, n, BLOCK=block, num_warps=8)) / 1e6
    cols = 1 << 15
    row_sum = kernels.row_sum_kernel[(n // cols,)]
    yield (
        "triton_read_gb_s",
        4 * n / measured_ms(lambda: row_sum(x, out, n // cols, cols, ROWS=1, BLOCK=4096, num_warps=8)) / 1e6,
    )
    repeats, size = 400, 1 << 21  # 8 MiB, read over and over inside one launch
    grid = (torch.cuda.get_device_properties(0).multi_processor_count * 4,)
    ms = measured_ms(lambda: kernels.reread_kernel[grid](x, out, size, repeats, BLOCK=4096, num_warps=8))
    yield "l2_read_gb_s", 4 * grid[0] * 4096 * repeats / ms / 1e6


def launch_costs() -> Iterator[tuple[str, float]]:
    """Microseconds: host time of a Triton launch and of a torch call, device time of an empty kernel, cost of a block."""
    x = torch.zeros(1024, device="cuda")
    out = torch.empty_like(x)
    yield "triton_launch_host_us", _host_us(lambda: kernels.add_kernel[(1,)](x, x, out, 1024, BLOCK=1024))
    yield "aten_launch_host_us", _host_us(lambda: torch.add(x, x))
    yield "empty_kernel_us", 1e3 * measured_ms(lambda: kernels.empty_kernel[(1,)](x))
    yield "small_add_kernel_us", 1e3 * measured_ms(lambda: kernels.add_kernel[(1,)](x, x, out, 1024, BLOCK=1024))
    blocks = 1 << 20
    yield "empty_block_ns", 1e6 * measured_ms(lambda: kernels.empty_kernel[(blocks,)](x, num_warps=1)) / blocks


def _host_us(call: Callable[[], Any], times: int = 200) -> float:
    """Wall time a call keeps the host busy, the device far from full; the best of five rounds."""
    call()
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best / times


def rates() -> Iterator[tuple[str, float]]:
    """T(FL)OP/s: multiply-add, special functions, library and Triton matmuls by precision (useful FLOPs, operand [N, K])."""
    n, repeat = 1 << 24, 256
    x, out = torch.rand(n, device="cuda"), torch.empty(n, device="cuda")
    fma = kernels.fma_kernel[(n // 1024,)]
    yield "fma_tflops", 16.0 * n * repeat / measured_ms(lambda: fma(x, out, n, REPEAT=repeat, BLOCK=1024)) / 1e9
    sigmoid = kernels.sigmoid_kernel[(n // 1024,)]
    yield "sigmoid_tops", 64.0 * n / measured_ms(lambda: sigmoid(x, out, n, REPEAT=64, BLOCK=1024)) / 1e9
    size = 4096
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        yield f"library_{str(dtype)[6:]}_tflops", 2 * size**3 / measured_ms(lambda: a @ b.T) / 1e9  # noqa: B023


def describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()))
    return value


def record(variant: Variant) -> dict[str, Any]:
    """Compiles, times and describes one variant."""
    arguments = variant.arguments("cuda")
    compiled = variant.launch("cuda", arguments)
    names = [p.name for p in variant.kernel.params if not p.is_constexpr]
    launch = Launch(
        kernel=variant.kernel.__name__,
        grid=(*variant.grid, 1, 1)[:3],
        num_warps=variant.num_warps,
        num_stages=variant.num_stages,
        registers=compiled.n_regs,
        stack_bytes=4 * compiled.n_spills,  # the driver reports 32-bit words
        shared_bytes=compiled.metadata.shared,
        arguments=dict(zip(names, map(describe, arguments), strict=True)),
        constants=variant.constants,
        ttir=compiled.asm["ttir"],
    )
    ms = measured_ms(lambda: variant.launch("cuda", arguments))
    return {"group": variant.group, "ms": ms, "launch": asdict(launch)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=140.0, help="start no new measurement after this long")
    parser.add_argument("--workers", type=int, default=8, help="processes that compile ahead")
    args = parser.parse_args()
    start = time.perf_counter()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "facts": {},
        "sweep": [],
        "failed": [],
    }

    def save() -> None:
        args.output.write_text(json.dumps(result))

    for group in (bandwidths, launch_costs, rates):
        for name, value in group():
            result["facts"][name] = round(value, 3)
            print(f"{name:28s} {value:12.3f}", flush=True)
            save()
    compile_all(args.workers)
    print(f"compiled after {time.perf_counter() - start:.0f} s", flush=True)
    for variant in variants():
        if time.perf_counter() - start > args.seconds:
            print("out of time", flush=True)
            break
        try:
            result["sweep"].append(record(variant))
            print(f"{variant.group:28s} {variant.label:44s} {result['sweep'][-1]['ms']:9.4f} ms", flush=True)
        except (RuntimeError, TritonError) as error:
            result["failed"].append({"group": variant.group, "label": variant.label, "error": str(error)[:300]})
            print(f"{variant.group:28s} {variant.label:44s} failed: {type(error).__name__}", flush=True)
        save()
    result["seconds"] = round(time.perf_counter() - start, 1)
    save()
    print(f"{len(result['sweep'])} variants, {len(result['failed'])} failed, {result['seconds']} s")


if __name__ == "__main__":
    main()
