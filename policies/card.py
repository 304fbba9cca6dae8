"""The kernel card: what a program's text and its compiled binary say about each of its kernels, in a line.

The text gives loops, tile constants, loads, stores, products and reductions; the verdict gives the launch, registers,
spills, shared memory and the share of the time. Both are recorded, so a stored program has the card of a live one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mtmc.actions.unit import Unit
from mtmc.errors import Illegal
from mtmc.program import Program
from mtmc.verdict import Launch, Timing, Verdict, Verified

SHOWN = 6  # kernels described; the others are named
KIB = 1024
COUNTED = {"load": r"tl\.load\(|\.load\(\[", "store": r"tl\.store\(|\.store\(\[", "dot": r"\b(?:tl\.dot|op_dot\w*)\("}
OPERATIONS = (
    r"\bop_(?!dot)(\w+)\(|\b(?:tl|libdevice)\.(exp2?|expm1|log2?|log1p|pow|sqrt|erf|tanh|max|min|sum|reduce|cumsum)\("
    r"|input_precision=\"(\w+)\"|\bop_dot_(\w+)\("
)


@dataclass(frozen=True)
class Written:
    """What a kernel's text says. `loops` are texts such as `K by BLOCK_K`, nested ones joined by ` > `."""

    loops: tuple[str, ...]
    counts: tuple[tuple[int, str], ...]
    operations: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Kernel:
    """One unit; `share` is of the program's time, 0 to 1, and `launch` the first of its launches."""

    name: str
    share: float
    written: Written
    launch: Launch | None

    def __str__(self) -> str:
        return "; ".join(part for part in (*self._code(), *self._binary()) if part)

    def _code(self) -> Iterator[str]:
        written = self.written
        yield "loops " + ", ".join(written.loops) if written.loops else "no loop"
        yield ", ".join(_plural(count, what) for count, what in written.counts if count)
        yield " ".join(written.operations)
        yield " ".join(f"{name}={value}" for name, value in written.constants)

    def _binary(self) -> Iterator[str]:
        if self.launch:
            launch = self.launch
            blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
            yield f"grid {blocks}, {_plural(launch.num_warps, 'warp')}, {_plural(launch.num_stages, 'stage')}"
            yield f"{launch.registers} registers"
            yield f"{launch.shared_bytes / KIB:.3g} KB shared" if launch.shared_bytes else ""
            yield f"spills {launch.stack_bytes} bytes" if launch.stack_bytes else ""


def kernels(program: Program, verdict: Verdict) -> tuple[Kernel, ...]:
    """The units of a program, the one with the largest share of the time first; file order where nothing was timed."""
    timing, launches = _known(verdict)
    times = timing.kernels_ms if timing else {}
    whole = sum(times.values()) or 1.0
    found = [_kernel(program, name, times.get(name, 0.0) / whole, launches.get(f"{name}_kernel")) for name in program.units]
    return tuple(sorted(found, key=lambda kernel: -kernel.share))


def tensors(program: Program) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The model's inputs and its state, each as `float32 2048x1024`, read off the program's own checks."""
    checked = program.text("supports") if "supports" in program.regions else ""
    found = re.findall(r"\.dtype == torch\.(\w+) and \w+\.shape == \(([\d, ]*)\)", checked)
    config = re.search(r"^CONFIG = (\{.*?^\})", program.source, re.MULTILINE | re.DOTALL)
    values = ast.literal_eval(config[1]) if config else {}
    state = zip(values.get("dtypes", ()), values.get("shapes", ()), strict=True)
    inputs = tuple(_tensor(dtype, [int(size) for size in shape.split(",") if size.strip()]) for dtype, shape in found)
    return inputs, tuple(_tensor(dtype, shape) for dtype, shape in state)


def _known(verdict: Verdict) -> tuple[Timing | None, dict[str, Launch]]:
    if not isinstance(verdict, Verified):
        return None, {}
    return verdict.timing, {launch.kernel: launch for launch in reversed(verdict.launches)}


def written(program: Program, name: str) -> Written:
    """What the text of a unit says."""
    texts = [program.text(region) if region in program.regions else "" for region in (f"{name}_kernel", f"launch_{name}")]
    return _written(name, *texts)


def _kernel(program: Program, name: str, share: float, launch: Launch | None) -> Kernel:
    return Kernel(name, share, written(program, name), launch)


@lru_cache(maxsize=1 << 15)  # programs of a tree share most kernels
def _written(name: str, kernel: str, launcher: str) -> Written:
    try:
        unit = Unit.of(Program(f"{kernel}\n\n{launcher}"), name)
    except Illegal:  # a launcher without a kernel of its own: the library's
        return Written((), (), (), ())
    counts = tuple((len(re.findall(pattern, unit.text)), what) for what, pattern in COUNTED.items())
    operations = tuple(dict.fromkeys("".join(found) for found in re.findall(OPERATIONS, unit.text)))
    return Written(tuple(_loops(unit.text)), counts, operations, tuple(unit.constants.items()))


def _loops(text: str) -> Iterator[str]:
    """The loop nests of a kernel's text, one entry an outermost loop."""
    nest: list[tuple[int, str]] = []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        found = re.match(r" +for \w+ in (?:tl\.)?range\((.*)\):", line)
        if not found:
            continue
        if nest and depth <= nest[0][0]:
            yield " > ".join(what for _, what in nest)
            nest = []
        nest = [(at, what) for at, what in nest if at < depth] + [(depth, _range(found[1]))]
    if nest:
        yield " > ".join(what for _, what in nest)


def _range(arguments: str) -> str:
    """`0, K, BLOCK_K, num_stages=2` as `K by BLOCK_K num_stages=2`."""
    parts = [part.strip() for part in re.split(r",\s*(?![^()]*\))", arguments)]
    options = [part for part in parts if re.match(r"\w+=", part)]
    plain = [part for part in parts if part not in options]
    end, step = (plain[0], "") if len(plain) == 1 else (plain[1], f" by {plain[2]}" if len(plain) > 2 else "")
    return " ".join([f"{end}{step}", *options])


def _tensor(dtype: str, shape: list[int] | tuple[int, ...]) -> str:
    return f"{dtype.removeprefix('torch.')} {'x'.join(map(str, shape)) or 'scalar'}"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
