"""Does the judge's timing see what is there, and nothing else? Needs a GPU; about a minute and a half on an H200.

    python benchmarks/timing_honesty.py --output timing_honesty.jsonl

Three kernels of more than 0.2 ms: memory-bound, matrix product, reduction. Each exists as two copies, imported twice, and a
third that does 3 % more: more elements, more rows, or more steps along k. The plant is measured at length first. Then, for
trials spread over the kernels, copy against copy (A/A) and copy against plant, exactly as the judge times a candidate in the
last judgement: `timing.interleave`, `timing.ratio_interval`, `Interval.decision`. One JSON line a trial, and at the end the
rates: false differences in A/A (at most 5 % wanted), plants found (at least 90 %; no verdict is a miss), no verdict overall
(at most 10 %).
"""

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).parents[1]))
from mtmc.judge import timing
from mtmc.judge.clocks import Clocks

Call = Callable[[], object]
Pair = Callable[[ModuleType, float], Call]  # a copy of this module and the extra work → a call

PLANT = 0.03
TRIAL = timing.Budget(seconds=0.3, precise=timing.DECISIVE)
LONG = timing.Budget(seconds=1.0, rounds=300, most=600)
CLOSE = 0.003  # how far from PLANT the measured plant may be before the extra work is scaled once


@triton.jit
def scale_kernel(x_ptr, out_ptr, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=mask) * 2.0, mask=mask)


@triton.jit
def sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        col = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + col, mask=col < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 0))


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, n, k, stride, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):  # noqa: PLR0913
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    red = tl.arange(0, BLOCK_K)
    a, b = a_ptr + row[:, None] * stride + red[None, :], b_ptr + col[None, :] * stride + red[:, None]
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    for _ in range(0, k, BLOCK_K):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BLOCK_K
        b += BLOCK_K
    tl.store(out_ptr + row[:, None] * n + col[None, :], acc.to(tl.float16))


def memory_bound() -> Pair:
    """fp32 elements doubled: 0.5 GiB in, 0.5 GiB out."""
    numel = 1 << 27
    x = torch.rand(int(numel * 1.1), device="cuda")

    def make(module: ModuleType, extra: float) -> Call:
        count = int(numel * (1 + extra)) // 1024 * 1024  # where 16 does not divide it, the copy is not vectorised: 15 % more
        out = torch.empty(count, device="cuda")
        return lambda: module.scale_kernel[(triton.cdiv(count, 1024),)](x, out, count, BLOCK=1024, num_warps=4)

    return make


def reduction() -> Pair:
    """Sums of fp32 rows of 8192."""
    rows, columns = 36_000, 8192
    x = torch.rand(int(rows * 1.1), columns, device="cuda")

    def make(module: ModuleType, extra: float) -> Call:
        count = int(rows * (1 + extra))
        out = torch.empty(count, device="cuda")
        return lambda: module.sum_kernel[(count,)](x, out, columns, BLOCK=2048, num_warps=8)

    return make


def product() -> Pair:
    """fp16 matrices of 4096 by 4096 and k = 6144; k grows in steps of 64."""
    m, n, k, block_k = 4096, 4096, 6144, 64
    stride = int(k * 1.1) // block_k * block_k
    a, b = (torch.randn(size, stride, device="cuda", dtype=torch.float16) for size in (m, n))

    def make(module: ModuleType, extra: float) -> Call:
        depth = round(k * (1 + extra) / block_k) * block_k
        out = torch.empty(m, n, device="cuda", dtype=torch.float16)
        grid = (m // 128, n // 128)
        options = {"BLOCK": 128, "BLOCK_K": block_k, "num_warps": 8, "num_stages": 3}
        return lambda: module.product_kernel[grid](a, b, out, n, depth, stride, **options)

    return make


KERNELS = {"memory": memory_bound, "reduction": reduction, "product": product}


def copy(number: int) -> ModuleType:
    """This file imported once more, so that its kernels are compiled and loaded apart."""
    spec = importlib.util.spec_from_file_location(f"copy_{number}", __file__)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def trial(first: Call, second: Call, clock: timing.CudaClock, budget: timing.Budget, seed: int) -> dict:
    began = time.monotonic()
    times = timing.interleave({"a": first, "b": second}, clock, budget, seed=seed)
    found = timing.ratio_interval(times["a"], times["b"], seed)
    return {
        "ratio": round(found.ratio, 5),
        "low": round(found.low, 5),
        "high": round(found.high, 5),
        "decision": found.decision,
        "rounds": len(times["a"]),
        "ms": round(float(sorted(times["a"])[len(times["a"]) // 2]), 5),
        "seconds": round(time.monotonic() - began, 3),
    }


def planted(make: Pair, copies: list[ModuleType], clock: timing.CudaClock) -> tuple[float, dict]:
    """The extra work that costs 3 %, and its long measurement."""
    extra = PLANT
    for _ in range(2):
        measured = trial(make(copies[1], extra), make(copies[0], 0.0), clock, LONG, seed=99)
        if abs(measured["ratio"] - 1 - PLANT) <= CLOSE:
            break
        extra = min(extra * PLANT / max(measured["ratio"] - 1, PLANT / 3), 0.09)
    return extra, {**measured, "extra": round(extra, 5)}


def trials(count: int, clock: timing.CudaClock) -> Iterator[dict]:
    copies = [copy(0), copy(1)]
    for position, (name, build) in enumerate(KERNELS.items()):
        make = build()
        extra, measured = planted(make, copies, clock)
        yield {"kernel": name, "kind": "long", "trial": 0, **measured}
        for number in range(position, count, len(KERNELS)):
            base = make(copies[0], 0.0)
            for kind, other in (("aa", make(copies[1], 0.0)), ("plant", make(copies[1], extra))):
                yield {"kernel": name, "kind": kind, "trial": number, **trial(base, other, clock, TRIAL, seed=number)}


def summary(rows: list[dict]) -> dict:
    aa, plants = ([row["decision"] for row in rows if row["kind"] == kind] for kind in ("aa", "plant"))
    return {
        "trials": [len(aa), len(plants)],
        "false_differences": sum(d in ("faster", "slower") for d in aa) / max(len(aa), 1),
        "plants_found": plants.count("slower") / max(len(plants), 1),
        "no_verdict": (aa + plants).count("no verdict") / max(len(aa) + len(plants), 1),
        "seconds": round(sum(row["seconds"] for row in rows), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100, help="of each kind, spread over the kernels")
    parser.add_argument("--output", type=Path, required=True, help="JSON lines, written as it goes")
    options = parser.parse_args()
    clock, clocks, rows = timing.CudaClock(), Clocks(), list[dict]()
    with options.output.open("w", encoding="utf-8") as file:
        for row in trials(options.trials, clock):
            clocks.sample()
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
            if row["kind"] == "long":
                print(f"{row['kernel']}: {row['ms']:.3f} ms with the plant, which costs {row['ratio'] - 1:.2%}", flush=True)
        device, waiting = torch.cuda.get_device_name(), clock.waiting_ms
        found = {**summary(rows), "device": device, "waiting_us": round(1e3 * waiting, 1), "clocks": clocks.record()}
        print(json.dumps({"summary": found}), file=file, flush=True)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
