"""The time model: counts are exact for real compiled kernels; rankings go the way the hardware does."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from lowering_cases import Case, source

from mtmc.capture import capture
from mtmc.graph import TensorType
from mtmc.hardware_profiles import load
from mtmc.judge import candidate, ttir
from mtmc.judge.counts import count
from mtmc.judge.predict import KernelTime, Prediction, _step, floor_ms, kernel_time, occupancy, predict, predict_aten
from mtmc.judge.standin import stand_in
from mtmc.lower import lower
from mtmc.problem import Problem, instantiate
from mtmc.verdict import Launch

H200 = load("h200")


def _kernels() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "kernels.py"
    spec = importlib.util.spec_from_file_location("calibration_kernels", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


K = _kernels()


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def launch(call: Callable[[], Any], gpu: str = "h200") -> Launch:
    with stand_in(load(gpu)) as recorder:
        call()
    return recorder.launches[0]


def add(n: int, block: int, warps: int = 4, gpu: str = "h200") -> Launch:
    x, y, out = tensor(n), tensor(n), tensor(n)
    return launch(lambda: K.add_kernel[(-(-n // block),)](x, y, out, n, BLOCK=block, num_warps=warps), gpu)


def softmax(rows: int, cols: int, block: int, warps: int = 4) -> Launch:
    x, out = tensor(rows, cols), tensor(rows, cols)
    return launch(lambda: K.softmax_kernel[(rows,)](x, out, rows, cols, BLOCK=block, num_warps=warps))


def matmul(shape: tuple[int, int, int], tile: tuple[int, int, int], **options: Any) -> Launch:
    """fp32 [M, K] @ [K, N]; `nt=True` stores the second operand as [N, K]."""
    m, n, k = shape
    dtype, precision = options.pop("dtype", torch.float32), options.pop("precision", "tf32")
    nt, gpu, group = options.pop("nt", False), options.pop("gpu", "h200"), options.pop("group", 8)
    a, b, out = tensor(m, k, dtype=dtype), tensor(k, n, dtype=dtype), tensor(m, n, dtype=dtype)
    strides = (1, k) if nt else (n, 1)
    grid = (-(-m // tile[0]) * -(-n // tile[1]),)
    constants = dict(zip(("BM", "BN", "BK"), tile, strict=True), GROUP=group, PRECISION=precision)
    return launch(lambda: K.matmul_kernel[grid](a, b, out, m, n, k, k, 1, *strides, **constants, **options), gpu)


def ms(one: Launch, gpu: str = "h200") -> float:
    return kernel_time(one, load(gpu)).ms


def test_add_counts() -> None:
    counts = count(add(1000, 256))
    assert [(a.kind, a.root, a.bytes) for a in counts.accesses] == [
        ("load", "x_ptr", 1024),
        ("load", "y_ptr", 1024),
        ("store", "out_ptr", 1024),
    ]
    assert counts.float_lanes == 256  # one addition an element
    assert counts.iterations == counts.dot_flops == 0
    assert {a.sectors for a in counts.accesses} == {32}


def test_mask_of_the_only_program_is_exact() -> None:
    counts = count(add(1000, 1024))
    assert counts.bytes("load") == 2 * 4000 and counts.bytes("store") == 4000


def test_softmax_trip_counts_with_a_ragged_tail() -> None:
    counts = count(softmax(8, 1000, 256))
    assert counts.iterations == 3 * 4
    assert counts.bytes("load") == 3 * 1000 * 4 and counts.bytes("store") == 1000 * 4
    assert counts.reductions == 2
    assert counts.special_lanes == 256 * (4 + 4 + 4)  # exp twice and one division, four tiles each


def test_matmul_counts_with_a_ragged_k() -> None:
    counts = count(matmul((128, 128, 80), (64, 64, 32), num_warps=4, num_stages=3))
    assert counts.dot_flops == 2 * 64 * 64 * 32 * 3
    assert [a.bytes for a in counts.accesses] == [64 * 80 * 4, 80 * 64 * 4, 64 * 64 * 4]
    assert counts.dots[0].unit == "tf32" and counts.iterations == 3
    assert counts.pipelined_phases == 3 and counts.pipeline_stages == 3


def test_three_dimensional_reduction_counts() -> None:
    x, out = tensor(4, 100, 96), tensor(4, 96)
    one = launch(lambda: K.middle_sum_kernel[(3, 4)](x, out, 100, 96, RED=16, COLS=32))
    counts = count(one)
    assert counts.iterations == 7
    assert counts.bytes("load") == 100 * 32 * 4 and counts.bytes("store") == 32 * 4
    time = kernel_time(one, H200)
    assert time.dram_bytes == 4 * 100 * 96 * 4 + 4 * 96 * 4


def test_vector_width_follows_alignment() -> None:
    assert {a.vector for a in count(add(4096, 1024)).accesses} == {4}
    assert {a.vector for a in count(add(4095, 1024)).accesses} == {1}  # the mask may flip inside a vector


def test_transposed_store_wastes_sectors() -> None:
    x, out = tensor(1024, 1024), tensor(1024, 1024)
    one = launch(lambda: K.transpose_kernel[(256, 32)](x, out, 1024, 1024, ROWS=32, COLS=4))
    read, written = count(one).accesses
    assert read.sectors == 32 and written.sectors == 16  # 32 rows of 16 bytes; 4 columns of 128 bytes


def test_wave_shares_operand_tiles() -> None:
    """DRAM traffic of a matmul is between its tensors once and every program's own tiles; grouping lowers it."""
    shape, tile = (4096, 16384, 4096), (128, 128, 32)
    grouped = kernel_time(matmul(shape, tile, num_warps=8), H200)
    rows = kernel_time(matmul(shape, tile, num_warps=8, group=1), H200)
    once = 4096 * 4096 * 4 * (1 + 4 + 4)
    assert once <= grouped.dram_bytes < rows.dram_bytes < 32 * once


@pytest.mark.parametrize(
    ("gpu", "registers", "warps", "shared", "blocks", "limit"),
    [
        ("a100", 252, 4, 32768, 2, "registers"),
        ("h100", 90, 8, 98328, 2, "registers"),
        ("h100", 38, 8, 32, 6, "registers"),
        ("h100", 32, 1, 0, 32, "blocks"),
        ("h100", 32, 4, 100_000, 2, "shared"),
        ("v100", 16, 8, 0, 8, "warps"),
        ("h100", 255, 32, 0, 0, "registers"),
    ],
)
def test_occupancy(gpu: str, registers: int, warps: int, shared: int, blocks: int, limit: str) -> None:
    one = Launch("k", (1, 1, 1), warps, 1, registers, 0, shared)
    found = occupancy(one, load(gpu))
    assert (found.blocks, found.limit, found.warps) == (blocks, limit, blocks * warps)


def test_add_runs_at_copy_bandwidth_unless_blocks_are_tiny() -> None:
    n = 1 << 26
    good = ms(add(n, 1024))
    assert good == pytest.approx(12 * n / 4.27e12 * 1e3, rel=0.05)
    assert ms(add(n, 32, warps=1)) > 1.3 * good


def test_matmul_tile_ranking() -> None:
    shape = (4096, 4096, 4096)
    tiny = ms(matmul(shape, (16, 16, 32), dtype=torch.float16))
    small = ms(matmul(shape, (64, 64, 32), dtype=torch.float16))
    large = ms(matmul(shape, (128, 128, 64), dtype=torch.float16, num_warps=8))
    assert tiny > 1.5 * small and small > 1.3 * large
    assert 2 * 4096**3 / large / 1e9 < H200.tensor_tflops("fp16")


def test_pipelining_helps_where_few_blocks_hide_latency() -> None:
    one, three = (matmul((512, 512, 8192), (64, 64, 64), dtype=torch.float16, num_stages=s) for s in (1, 3))
    assert ms(one) > 1.3 * ms(three)


def test_precisions_rank_by_their_units() -> None:
    shape, tile = (4096, 4096, 4096), (128, 64, 32)
    half = ms(matmul(shape, tile, dtype=torch.float16))
    tf32 = ms(matmul(shape, tile, nt=True))
    turned = ms(matmul(shape, tile))
    ieee = ms(matmul(shape, tile, precision="ieee"))
    assert half < tf32 < turned < ieee


def test_v100_dots_run_at_the_fp32_rate() -> None:
    one = matmul((1024, 1024, 1024), (32, 32, 32), dtype=torch.float16, gpu="v100")
    assert kernel_time(one, load("v100")).parts["matrix"] >= 2 * 1024**3 / 15.7e12 * 1e3


def test_softmax_rereads_cost_dram_only_beyond_the_cache() -> None:
    """Three passes over a row: rows of a wave that fit the L2 are read from DRAM once."""
    rows, cols = 4096, 16384
    once = 2 * rows * cols * 4
    assert kernel_time(softmax(rows, cols, 16384, 16), H200).dram_bytes == once
    assert kernel_time(softmax(rows, cols, 512), H200).dram_bytes > 1.3 * once


def test_spills_cost() -> None:
    one = softmax(4096, 4096, 1024)
    spilled = Launch(**{**one.__dict__, "stack_bytes": 512})
    assert ms(spilled) > 1.2 * ms(one)


def test_a_few_spilled_bytes_lie_outside_the_loop() -> None:
    """H200: fp16x3 products with 136 bytes a thread ran as fast as without, with 168 half as fast."""
    one = matmul((4096, 4096, 4096), (128, 128, 64), dtype=torch.float16, num_warps=8)
    few, many = (Launch(**{**one.__dict__, "stack_bytes": s}) for s in (136, 200))
    assert ms(few) == ms(one) and ms(many) > 1.5 * ms(one)


def test_tiny_blocks_wait_for_their_dispatch() -> None:
    """H200: 2**26 additions by blocks of 64, 128 and 256: 0.635, 0.319 and 0.190 ms."""
    times = [ms(add(1 << 26, block, warps)) for block, warps in ((64, 1), (128, 1), (256, 4))]
    assert times == pytest.approx([0.635, 0.319, 0.190], rel=0.1)


def test_short_rows_and_partial_sectors_cost_bandwidth() -> None:
    """H200, 8192 x 8192 transposed: 0.137 ms with 64x64 tiles, 0.180 reading and 0.589 writing four elements at a time."""
    x, out = tensor(8192, 8192), tensor(8192, 8192)

    def transpose(rows: int, cols: int) -> float:
        grid = (8192 // cols, 8192 // rows)
        return ms(launch(lambda: K.transpose_kernel[grid](x, out, 8192, 8192, ROWS=rows, COLS=cols)))

    square, short_reads, short_writes = transpose(64, 64), transpose(256, 4), transpose(4, 256)
    assert square == pytest.approx(0.137, rel=0.1)
    assert 1.2 * square < short_reads < 0.6 * short_writes


def test_turning_costs_only_warp_group_instructions() -> None:
    """H200, tf32: [K, N] operands slow tiles of 64 rows by two, tiles of 32 rows not at all."""
    shape = (2048, 2048, 2048)
    large, small = ([ms(matmul(shape, tile, nt=nt)) for nt in (False, True)] for tile in ((64, 64, 32), (32, 32, 32)))
    assert large[0] > 1.5 * large[1] and small[0] == pytest.approx(small[1], rel=0.1)


def test_scalar_products_collide_on_a_transposed_right_operand() -> None:
    """H200: fp32 64x64 tiles 42 TFLOP/s, 12 when the right operand is contiguous along k."""
    good, bad = (ms(matmul((2048, 2048, 2048), (64, 64, 32), precision="ieee", nt=nt)) for nt in (False, True))
    assert 2 < bad / good < 5


def test_own_loads_count_when_one_block_has_the_sm() -> None:
    """H200: four sigmoids an element, 0.073 ms with small blocks, 0.149 with one block of 32768 an SM at a time."""
    x, out = tensor(1 << 25), tensor(1 << 25)

    def sigmoid(block: int, warps: int) -> float:
        return ms(
            launch(lambda: K.sigmoid_kernel[((1 << 25) // block,)](x, out, 1 << 25, REPEAT=4, BLOCK=block, num_warps=warps))
        )

    assert sigmoid(32768, 8) > 1.3 * sigmoid(1024, 4)


def test_unrolling_does_not_change_the_traffic() -> None:
    """Rows of 4095 elements: tiles share sectors with their neighbours, in one load or in two."""
    x, out = tensor(4, 4096, 4095), tensor(4, 4095)
    one = launch(lambda: K.middle_sum_kernel[(64, 4)](x, out, 4096, 4095, RED=8, COLS=64))
    counts = count(one)
    load = counts.accesses[0]
    halves = [
        replace(load, executions=load.executions / 2, bytes=load.bytes / 2, sectors=load.sectors / 2) for _ in range(2)
    ]
    for half in halves:
        half.footprint_executions, half.lines = load.footprint_executions / 2, load.lines / 2
    unrolled = replace(counts, accesses=[*halves, *counts.accesses[1:]])
    assert kernel_time(one, H200, unrolled).dram_bytes == kernel_time(one, H200, counts).dram_bytes


def test_division_by_an_unknown_costs_instructions() -> None:
    x, y, out = tensor(1 << 22), tensor(64), tensor(1 << 22)
    one = launch(lambda: K.divmod_kernel[(4096,)](x, y, out, 1 << 22, 1000, 64, BLOCK=1024))
    assert count(one).integer_lanes > 60 * 1024
    assert count(add(1 << 22, 1024)).integer_lanes < 10 * 1024


def test_launches_add_up_and_the_host_can_be_the_limit() -> None:
    one = add(4096, 1024)
    many = predict([one] * 50, H200)
    assert many.host_ms == pytest.approx(50 * H200.efficiency.launch_host_us / 1e3)
    assert many.total_ms == max(many.host_ms, many.device_ms)
    assert many.kernels_ms == {"add_kernel": pytest.approx(many.device_ms)}
    both = many + Prediction((KernelTime("aten.mm", 1.0, "matrix", {}),), 0.1)
    assert both.device_ms == pytest.approx(many.device_ms + 1.0) and both.host_ms == pytest.approx(many.host_ms + 0.1)


def test_the_next_kernel_finds_a_small_result_in_the_cache() -> None:
    def chain(n: int) -> list[float]:
        x, out = tensor(n), tensor(n)
        one = launch(lambda: K.sigmoid_kernel[(n // 1024,)](x, out, n, REPEAT=1, BLOCK=1024))
        return [k.dram_bytes for k in predict([one, one], H200).kernels]

    assert chain(1 << 20) == [8 << 20, 4 << 20]
    assert chain(1 << 26) == [8 << 26, 8 << 26]


def test_launches_seen_before_are_predicted_as_if_they_were_not() -> None:
    """Equal launches are walked once; another size, type, grid, GPU or efficiency, or another launch before, is another."""
    one, same, slow = add(1 << 20, 1024), add(1 << 20, 1024), replace(H200.efficiency, dram_fraction=0.5)
    x, y, out = (one.arguments[name] for name in ("x_ptr", "y_ptr", "out_ptr"))
    many = [one, same, one, add(1 << 21, 1024), replace(one, grid=(9, 1, 1)), replace(one, registers=255)]
    many += [replace(one, arguments={**one.arguments, "n": n}) for n in (1, 1.0)]
    many.append(replace(one, arguments={"x_ptr": x, "y_ptr": y, "out_ptr": (*out[:2], (1 << 10,), (1,)), "n": 1 << 20}))
    for profile in (H200, load("rtx4090"), replace(H200, efficiency=slow)):
        warm: frozenset[tuple[str, int]] = frozenset()
        for launch, predicted in zip(many, predict(many, profile).kernels, strict=True):
            plain, warm = _step.__wrapped__(launch.known, profile, warm)
            assert predicted == plain
    hits = _step.cache_info().hits
    assert predict([same], H200) == predict([one], H200) != predict([one], load("rtx4090"))
    assert _step.cache_info().hits >= hits + 2
    assert len({launch.known for launch in many}) == len(many) - 2


def test_a_launch_without_ir_is_refused() -> None:
    with pytest.raises(ValueError, match="no tt.func"):
        predict([Launch("k", (1, 1, 1), 4, 3, 32, 0, 0)], H200)


def test_a_loop_from_the_end_is_counted_like_one_from_the_start(tmp_path: Path) -> None:
    case = Case("x.cumsum(1), x.flip(1).cumsum(1).flip(1)", {"x": "torch.randn(64, 4096)"})
    (tmp_path / "model.py").write_text(source([case]))
    problem = Problem("scans", source([case]), str(tmp_path / "model.py"))
    instance = instantiate(problem, "meta")
    with candidate.imported(lower(problem, capture(problem)).program.source) as module, stand_in(H200) as recorder:
        candidate.call(candidate.build(module, instance.model), instance.inputs)
    forward, back = (count(one) for one in recorder.launches)
    assert (forward.iterations, forward.reductions) == (back.iterations, back.reductions) == (16, 32)  # a scan and a total
    assert [(a.bytes, a.sectors, a.vector) for a in forward.accesses] == [
        (a.bytes, a.sectors, a.vector) for a in back.accesses
    ]


def test_parser_reads_regions() -> None:
    function = ttir.parse(softmax(8, 1000, 256).ttir)
    assert [name for _, name, _ in function.parameters] == ["x_ptr", "out_ptr", "rows", "cols"]
    loops = [op for op in function.body.operations if op.name == "scf.for"]
    assert len(loops) == 3 and all(loop.blocks[0].operations for loop in loops)


def half_tensor(*shape: int) -> TensorType:
    return TensorType(shape, "float16")


def test_aten_calls_against_measured_times() -> None:
    """H200, torch 2.11: fp32 4096³ matmul 2.69 ms; 64 to 128 channels 3x3 convolution on 16x512² 5.5 ms."""
    square = TensorType((4096, 4096), "float32")
    mm = predict_aten("aten.mm.default", [square, square], [square], 2 * 4096**3, H200)
    assert mm.total_ms == pytest.approx(2.69, rel=0.1)
    x, w, y = (TensorType(s, "float32") for s in ((16, 64, 512, 512), (128, 64, 3, 3), (16, 128, 512, 512)))
    conv = predict_aten("aten.convolution.default", [x, w], [y], 2 * 16 * 512**2 * 64 * 128 * 9, H200)
    assert conv.total_ms == pytest.approx(5.5, rel=0.25)
    assert (
        predict_aten("aten.mm.default", [half_tensor(4096, 4096)] * 2, [half_tensor(4096, 4096)], 2 * 4096**3, H200).total_ms
        < 0.3
    )
    relu = predict_aten("aten.relu.default", [square], [square], 0, H200)
    assert relu.device_ms == pytest.approx(2 * 4096**2 * 4 / 4.27e9 + H200.efficiency.kernel_latency_us / 1e3, rel=0.1)


def test_floor_is_below_every_prediction_and_needs_no_efficiency() -> None:
    n = 1 << 26
    floor = floor_ms(8 * n, 4 * n, {"fp32": n}, H200)
    assert floor == pytest.approx((12 * n - 50 * 2**20) / 4.8e9)
    assert floor < ms(add(n, 1024))
    assert floor_ms(0, 0, {"fp16": 989.4e9}, H200) == pytest.approx(1.0)
    assert floor_ms(0, 0, {"tf32": 15.7e9}, load("v100")) == pytest.approx(1.0)
