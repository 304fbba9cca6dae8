"""Profile: the facts of one GPU, loaded from a TOML file; every number carries its unit in its key."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from mtmc.errors import BadInput

FOLDER = Path(__file__).parent
KIB = 1024
MIB = 1024**2
Table = TypeVar("Table", "Efficiency", "Profile")


@dataclass(frozen=True)
class Efficiency:
    """Every free parameter of the time model (docs/analytic_model.md); fractions are of the data sheet's peak.

    `dot_*` are the fractions that a well-tiled Triton matmul reaches, counted in products that the unit really does
    (tf32x3 does three); `library_*` are cuBLAS's and cuDNN's. `tf32_turn_*` is the price of TF32 operands not contiguous
    along k, which warp-group instructions need.
    """

    source: str
    dram_fraction: float
    l2_bytes_per_clock_per_sm: float
    l2_shared_bytes_per_clock_per_sm: float
    shared_bytes_per_clock_per_sm: float
    issue_fraction: float
    sfu_lanes_per_clock_per_sm: float
    dot_ieee_fraction: float
    dot_tf32_fraction: float
    dot_tf32x3_fraction: float
    dot_16bit_fraction: float
    dot_bf16x3_fraction: float
    dot_bf16x6_fraction: float
    tf32_turn_clocks_per_element: float
    library_fp32_fraction: float
    library_tensor_fraction: float
    library_convolution_fraction: float
    memory_latency_ns: float
    block_start_ns: float
    block_dispatch_ns: float
    iteration_overhead_ns: float
    reduce_latency_ns: float
    overlap_exponent: float
    kernel_latency_us: float
    launch_host_us: float
    aten_host_us: float


@dataclass(frozen=True)
class Profile:
    """One GPU. TFLOP/s are peaks at boost clock, dense and sparse apart; None where the unit does not exist.

    `tensor_cores_in_triton` is false where `tl.dot` becomes scalar multiply-add (dots then run at the fp32 rate).
    `last_level_cache_mib` is the cache before DRAM: the L2, except on GPUs with a memory-side cache behind it.
    """

    name: str
    title: str
    backend: str
    architecture: str
    warp_size: int
    device_names: tuple[str, ...]
    source: str
    memory_gb: float
    memory_bandwidth_gb_s: float
    l2_mib: float
    last_level_cache_mib: float
    sm_count: int
    boost_clock_mhz: float
    registers_per_sm: int
    registers_per_warp_granularity: int
    max_registers_per_thread: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    shared_per_sm_kib: float
    shared_per_block_kib: float
    shared_reserved_per_block_bytes: int
    shared_granularity_bytes: int
    fp64_tflops: float
    fp32_tflops: float
    tensor_cores_in_triton: bool
    async_copy: bool
    tma: bool
    wgmma: bool
    efficiency: Efficiency
    fp16_tensor_dense_tflops: float | None = None
    fp16_tensor_sparse_tflops: float | None = None
    bf16_tensor_dense_tflops: float | None = None
    bf16_tensor_sparse_tflops: float | None = None
    tf32_tensor_dense_tflops: float | None = None
    tf32_tensor_sparse_tflops: float | None = None
    fp8_tensor_dense_tflops: float | None = None
    fp8_tensor_sparse_tflops: float | None = None

    @property
    def capability(self) -> int | str:
        """What Triton's GPUTarget wants: 90 for `sm_90`, the name itself for `gfx942`."""
        return int(self.architecture.removeprefix("sm_")) if self.backend == "cuda" else self.architecture

    @property
    def shared_per_block_bytes(self) -> int:
        """Largest shared memory one block may ask for (opt-in limit)."""
        return int(self.shared_per_block_kib * KIB)

    @property
    def shared_per_sm_bytes(self) -> int:
        return int(self.shared_per_sm_kib * KIB)

    @property
    def last_level_cache_bytes(self) -> int:
        return int(self.last_level_cache_mib * MIB)

    @property
    def clock_hz(self) -> float:
        return self.boost_clock_mhz * 1e6

    def tensor_tflops(self, dtype: str) -> float | None:
        """Dense matrix-unit peak that Triton can reach for `tf32`, `fp16`, `bf16` or `fp8` operands; None without one."""
        if not self.tensor_cores_in_triton:
            return None
        value: float | None = getattr(self, f"{dtype}_tensor_dense_tflops")
        return value


def names() -> list[str]:
    """Names of the profiles that ship with the package, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name_or_path: str) -> Profile:
    """The shipped profile of that name, or the one in a TOML file. Raises BadInput with the known names or the bad key."""
    path = FOLDER / f"{name_or_path}.toml" if name_or_path in names() else Path(name_or_path)
    if path.suffix != ".toml" or not path.is_file():
        raise BadInput(f"unknown GPU '{name_or_path}'; known: {', '.join(names())}, or the path of a .toml profile")
    data = _read(path)
    return _build(Profile, {**data, "efficiency": _efficiency(data, path)}, path)


def detect() -> Profile | None:
    """The profile of the first local GPU, matched by device name; None without a GPU.

    Raises BadInput for a GPU that no profile describes: figures are never guessed.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    device = torch.cuda.get_device_name(0)
    for profile in map(load, names()):
        if device in profile.device_names:
            return profile
    raise BadInput(
        f"no profile describes the local GPU '{device}'; "
        f"give --gpu one of {', '.join(names())}, or the path of a .toml profile written for it"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from None


def _efficiency(data: dict[str, Any], path: Path) -> Efficiency:
    """The `[efficiency]` table; `same_as = "h200"` takes another profile's, with what stands beside it replaced."""
    table = dict(data.get("efficiency", {}))
    if "same_as" in table:
        other = table.pop("same_as")
        if other not in names() or other == path.stem:
            raise BadInput(f"{path.name}: efficiency.same_as must name another of {', '.join(names())}")
        table = {**_read(FOLDER / f"{other}.toml")["efficiency"], **table}
    return _build(Efficiency, table, path)


def _build(kind: type[Table], data: dict[str, Any], path: Path) -> Table:
    """`kind(**data)` after a check of keys and types."""
    known = {f.name: f for f in fields(kind)}
    missing = [n for n, f in known.items() if n not in data and f.default is MISSING]
    unknown = [n for n in data if n not in known]
    if missing or unknown:
        parts = [f"{what} {', '.join(keys)}" for what, keys in (("missing", missing), ("unknown", unknown)) if keys]
        raise BadInput(f"{path.name}: {' and '.join(parts)} in {kind.__name__.lower()}")
    for name, value in data.items():
        if type(value) not in _allowed(str(known[name].type)):
            raise BadInput(f"{path.name}: {name} must be {known[name].type}, not {value!r}")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return kind(**values)


def _allowed(annotation: str) -> tuple[type, ...]:
    table: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "float | None": (int, float),
        "tuple[str, ...]": (list,),
        "Efficiency": (Efficiency,),
    }
    return table[annotation]
