"""What one program of a launch does, counted by walking its Triton IR.

Integers are really evaluated (numpy, exact), so addresses, masks and trip counts are known; floats are not. A loop body
is walked for its first iteration (standing for all but the last) and for its last one, which keeps masks of ragged tails
exact. Two walks are made: `tile` evaluates whole tiles of the middle program; `corner` evaluates the first element of
every tile for many programs at once, which tells which programs share data. Integers loaded from memory are unknown and
replaced by scattered values. `scf.while` bodies count once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, prod

import numpy as np

from mtmc.judge.integers import Ints, Value, advance, evaluate, fast_axis, loaded, parameters, touched, vector_width
from mtmc.judge.ttir import Block, Function, Operation, Type, parse, types
from mtmc.judge.work import Access, Counts, Dot
from mtmc.verdict import Launch

LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
STORES = ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce")
DOTS = ("tt.dot", "tt.dot_scaled")
FREE = (
    "arith.constant",
    "arith.ext",
    "arith.trunci",
    "arith.index_cast",
    "arith.bitcast",
    "scf.",
    "tt.",
    "ub.",
    "cf.",
    "gpu.",
)
"""Prefixes of operations that cost nothing by themselves; those of `tt` that do have handlers or a cost below."""

COSTS: dict[str, tuple[float, float]] = {
    "arith.divf": (8, 1),
    "arith.remf": (20, 1),
    "math.exp": (2, 1),
    "math.exp2": (1, 1),
    "math.log": (3, 1),
    "math.log2": (2, 1),
    "math.sqrt": (6, 1),
    "math.rsqrt": (2, 1),
    "math.sin": (15, 0),
    "math.cos": (15, 0),
    "math.erf": (25, 1),
    "tt.precise_sqrt": (12, 1),
    "tt.precise_divf": (16, 1),
    "tt.extern_elementwise": (25, 2),
    "tt.clampf": (2, 0),
    "tt.fp_to_fp": (1, 0),
}
"""Instructions on the arithmetic pipe and on the special-function unit per element; (1, 0) where not listed."""

UNROLL, UNROLLED_LOADS, UNROLLED_SPECIAL = 4, 2, 2
DESCRIPTOR_WAITS = 2  # outside a pipeline each descriptor load is waited for by itself, as long as two others
BARRIERS = {"tt.reduce", "tt.scan", "scf.for", *DOTS, *STORES}
"""ptxas may unroll a loop four times, and issue the loads together, if a thread has at most two loads, two special functions
and no store in it (read from its output); whether it did, the number of load instructions tells."""

DIVISION = {32: 20.0, 64: 30.0}
"""Instructions of an integer division or remainder by a value unknown at compile time, by bits; 64-bit values small."""


def count(launch: Launch, warp_size: int = 32, wave: int = 1) -> Counts:
    """Work of the middle program of `launch`; corners for `wave` neighbouring programs. Raises ValueError without TTIR."""
    function = parse(launch.ttir)
    tile = Walk(launch, function, _middle(launch.grid), warp_size)
    tile.block(function.body)
    corner = Walk(launch, function, _neighbours(launch.grid, wave), warp_size, tile.accesses)
    corner.block(function.body)
    return tile.finish()


def _middle(grid: tuple[int, int, int]) -> tuple[Ints, Ints, Ints]:
    x, y, z = (np.array([g // 2], dtype=np.int64) for g in grid)
    return x, y, z


def _neighbours(grid: tuple[int, int, int], wave: int) -> tuple[Ints, Ints, Ints]:
    """Coordinates of `wave` programs in launch order around the middle one."""
    total = prod(grid)
    size = min(wave, total)
    linear = (total - size) // 2 + np.arange(size, dtype=np.int64)
    return linear % grid[0], linear // grid[0] % grid[1], linear // (grid[0] * grid[1])


class Walk:
    """One pass over the function. With `known` accesses it is the corner walk and only records their corners."""

    def __init__(
        self,
        launch: Launch,
        function: Function,
        program: tuple[Ints, Ints, Ints],
        warp_size: int,
        known: dict[int, Access] | None = None,
    ) -> None:
        self.launch = launch
        self.program = program
        self.threads = launch.num_warps * warp_size
        self.corner = known is not None
        self.accesses = {} if known is None else known
        self.counts = Counts()
        self.stack: list[tuple[float, bool]] = []  # (iterations this visit stands for, is it the first visit)
        self.values = parameters(launch, function)
        self.unrolled = self.copied = 0.0  # iterations of loops that ptxas may unroll, and load instructions in these loops

    def finish(self) -> Counts:
        """The counts, once all is walked."""
        self.counts.accesses = list(self.accesses.values())
        if self._unrolls():
            self.counts.phases -= self.unrolled * (1 - 1 / UNROLL)
        return self.counts

    def _unrolls(self) -> bool:
        """Whether there are more load instructions than without unrolling; true where the binary cannot be read."""
        if not self.launch.load_bits:
            return True
        plain = sum(max(prod(a.shape) / a.vector / self.threads, 1) for a in self.accesses.values() if a.kind == "load")
        return len(self.launch.load_bits) > plain + self.copied * UNROLL / 2

    def get(self, name: str) -> Value:
        return self.values.get(name) or self.values.get(name.split("#")[0]) or Value()

    def weight(self, level: int) -> float:
        """How often something that varies down to loop `level` happens, as far as the current visit stands for it."""
        if not all(first for _, first in self.stack[level:]):
            return 0.0
        return prod(w for w, _ in self.stack[:level])

    def block(self, block: Block) -> list[Value]:
        """Walks the operations; returns what the block yields."""
        for op in block.operations:
            handler = HANDLERS.get(op.name)
            if handler:
                handler(self, op)
            else:
                self.elementwise(op)
        last = block.operations[-1] if block.operations else None
        return [self.get(n) for n in last.operands] if last and last.name == "scf.yield" else []

    def elementwise(self, op: Operation) -> None:
        """Any operation without a handler: evaluate it if it is integer arithmetic, and count it."""
        operands = [self.get(n) for n in op.operands]
        result = evaluate(op, operands)
        for name in op.results:
            self.values[name] = result
        if op.name in COSTS or not op.name.startswith(FREE):
            self.lanes(op, result.level, operands)

    def lanes(self, op: Operation, level: int, operands: Sequence[Value]) -> None:
        lanes = max(op.type.numel, self.threads) * self.weight(level)
        if op.type.integer or op.type.element.startswith("!tt.ptr"):
            self.counts.integer_lanes += lanes * _integer_cost(op, operands)
            return
        arithmetic, special = COSTS.get(op.name, (1.0, 0.0))
        if op.type.element == "f64":
            self.counts.double_lanes += lanes * (arithmetic + 4 * special)
        else:
            self.counts.float_lanes += lanes * arithmetic
            self.counts.special_lanes += lanes * special

    def loop(self, op: Operation) -> None:
        """`scf.for`: first iteration, then the last one with carried integers extrapolated linearly."""
        induction, low_name, high, step, *pairs = op.operands
        names, inits = pairs[::2], [self.get(n) for n in pairs[1::2]]
        low = self.get(low_name)
        trips = ceil((self.get(high).scalar - low.scalar) / max(self.get(step).scalar, 1))
        results = inits
        if trips > 0:
            self.bind([induction, *names], [low, *inits])
            yielded = self.visit(op, max(trips - 1, 1), True)
            results = [advance(a, b, trips) for a, b in zip(inits, yielded, strict=True)]
            if trips > 1:
                last = [advance(a, b, trips - 1) for a, b in zip(inits, yielded, strict=True)]
                end = replace(low, data=low.ints + (trips - 1) * self.get(step).ints)
                self.bind([induction, *names], [end, *last])
                self.visit(op, 1, False)
        self.values.update(zip(op.results, results, strict=True))

    def bind(self, names: Sequence[str], values: Sequence[Value]) -> None:
        level = len(self.stack) + 1
        self.values.update({n: replace(v, level=level, constant=False) for n, v in zip(names, values, strict=True)})

    def visit(self, op: Operation, weight: float, first: bool) -> list[Value]:
        """One walk of a loop body that stands for `weight` iterations."""
        self.stack.append((weight, first))
        times = self.weight(len(self.stack))
        body = op.blocks[-1]
        names = {o.name for o in body.operations}
        stages = op.attribute("tt.num_stages", self.launch.num_stages)
        pipelined = stages > 1 and (bool(names & set(DOTS)) or "tt.num_stages" in op.text)
        self.counts.iterations += times
        self.counts.dot_iterations += times if names & set(DOTS) else 0
        before = self.load_instructions, self.counts.special_lanes / self.threads
        yielded = self.block(body)
        if names & set(LOADS):
            if pipelined:
                self.counts.pipelined_phases += times
                self.counts.pipeline_stages = max(stages, self.counts.pipeline_stages)
            else:
                loads = (self.load_instructions - before[0]) / max(times, 1)
                special = (self.counts.special_lanes / self.threads - before[1]) / max(times, 1)
                one_by_one = sum(o.name == "tt.descriptor_load" for o in body.operations) * DESCRIPTOR_WAITS
                self.counts.phases += times * (one_by_one or 1)
                if loads <= UNROLLED_LOADS and special <= UNROLLED_SPECIAL and not names & BARRIERS and not one_by_one:
                    self.unrolled += times
                    self.copied += loads if first else 0
        self.stack.pop()
        return yielded

    @property
    def load_instructions(self) -> float:
        """Load instructions a thread has issued so far."""
        return sum(a.lanes / a.vector for a in self.accesses.values() if a.kind == "load") / self.threads

    def while_loop(self, op: Operation) -> None:
        """`scf.while`: the condition and the body once."""
        before, after = op.blocks
        self.bind(op.operands[::2], [self.get(n) for n in op.operands[1::2]])
        self.block(before)
        passed = [self.get(n) for n in before.operations[-1].operands[1:]]
        self.bind(after.arguments, passed)
        self.visit(op, 1, True)
        self.values.update(zip(op.results, passed, strict=True))

    def branch(self, op: Operation) -> None:
        """`scf.if`: the side that the middle program takes; the first side when the condition is unknown."""
        condition = self.get(op.operands[0])
        taken = 0 if condition.data is None or condition.scalar else 1
        yielded = self.block(op.blocks[taken]) if taken < len(op.blocks) else []
        self.values.update(zip(op.results, yielded, strict=bool(yielded)))

    def reduction(self, op: Operation) -> None:
        """`tt.reduce`, `tt.scan`: the combine function once per element of the input; twice for a scan."""
        operands = [self.get(n) for n in op.operands]
        level = max((v.level for v in operands), default=0)
        source = next(iter(types(op.text.rsplit("->", 1)[0])), op.type)
        steps = sum(not o.name.startswith(FREE) for b in op.blocks for o in b.operations)
        times = self.weight(level)
        self.counts.float_lanes += max(source.numel, self.threads) * steps * times * (2 if op.name == "tt.scan" else 1)
        self.counts.reductions += times
        self.values.update({name: Value(level=level) for name in op.results})

    def dot(self, op: Operation) -> None:
        a, b = (t for t in types(op.text.split("->")[0])[:2])
        level = max(self.get(n).level for n in op.operands)
        *batch, m, k = a.shape
        unit = _dot_unit(op.text, a)
        left, right = (self.get(n).fast_axis for n in op.operands[:2])
        turned = (left == a.rank - 2) * m * k + (right == b.rank - 1) * k * b.shape[-1]
        if unit == "ieee":
            turned = (right == b.rank - 2) * k * b.shape[-1]
        self.counts.dots.append(Dot(prod(batch), m, b.shape[-1], k, unit, a.itemsize, self.weight(level), turned))
        self.values[op.results[0]] = Value(level=level)

    def access(self, op: Operation) -> None:
        """Pointer load, store or atomic."""
        names = list(op.operands)
        pointer = self.get(names.pop(0))
        kind = "load" if op.name in LOADS else "store" if op.name in STORES else "atomic"
        mask = self.get(names[-1 if kind == "atomic" else 0 if kind == "load" else 1]) if _masked(op, kind) else Value()
        tile = types(op.text.split("->")[0])[0]
        self.record(op, kind, tile, pointer, mask)
        if kind != "store":
            value = loaded(op.type, pointer, len(self.stack))
            self.values[op.results[0]] = replace(value, fast_axis=self.fast_axis(tile, pointer))

    def descriptor(self, op: Operation) -> None:
        """Descriptor load or store: offsets from the coordinates and the descriptor's strides."""
        descriptor = self.get(op.operands[0])
        kind = "load" if op.name in LOADS else "store"
        tile = [t for t in types(op.text) if t.shape][-1]
        coordinates = [self.get(n) for n in op.operands[1 : 1 + len(tile.shape)]]
        pointer = Value(None, descriptor.root, max((c.level for c in coordinates), default=0))
        if descriptor.strides:
            offsets = np.zeros((1,) * (len(tile.shape) + 1), dtype=np.int64)
            for axis, (c, stride) in enumerate(zip(coordinates, descriptor.strides, strict=False)):
                steps = np.arange(1 if self.corner else tile.shape[axis], dtype=np.int64)
                flat = c.ints.reshape(-1, 1) + steps
                shape = [len(flat), *(len(steps) if i == axis else 1 for i in range(len(tile.shape)))]
                offsets = offsets + (flat * stride.reshape(-1, 1)).reshape(shape)
            pointer = replace(pointer, data=offsets)
        self.record(op, kind, tile, pointer, Value())
        self.accesses[id(op)].descriptor = True
        if op.results:
            self.values[op.results[0]] = Value(level=len(self.stack), fast_axis=self.fast_axis(tile, pointer))

    def fast_axis(self, tile: Type, pointer: Value) -> int | None:
        if self.corner or pointer.data is None:
            return None
        return fast_axis(np.broadcast_to(pointer.data, (1, *tile.shape))[0])

    def record(self, op: Operation, kind: str, tile: Type, pointer: Value, mask: Value) -> None:
        if self.corner:
            if pointer.data is not None and id(op) in self.accesses:
                self.accesses[id(op)].corners.append(
                    np.broadcast_to(pointer.data.reshape(len(pointer.data), -1)[:, 0], len(self.program[0]))
                )
            return
        access = self.accesses.setdefault(id(op), Access(kind, pointer.root, tile.itemsize, tile.shape))
        times = self.weight(len(self.stack))
        offsets = None if pointer.data is None else np.broadcast_to(pointer.data, (1, *tile.shape))[0]
        active = None if mask.data is None else np.broadcast_to(mask.data, (1, *tile.shape))[0].astype(bool)
        access.vector = vector_width(offsets, mask.align, tile, self.threads)
        if kind == "load" and self.launch.load_bits:
            access.vector = max(min(access.vector, max(self.launch.load_bits) // 8 // tile.itemsize), 1)
        elements, sectors, lines = touched(offsets, active, tile)
        if offsets is not None:
            access.extent = max(access.extent, int(np.ptp(offsets)) + 1)
        access.executions += times
        access.footprint_executions += self.weight(pointer.level)
        access.bytes += elements * tile.itemsize * times
        access.sectors += sectors * times
        access.lines += lines * times
        access.lanes += max(tile.numel, self.threads if access.vector == 1 else 0) * times

    def make_range(self, op: Operation) -> None:
        start, end = op.attribute("start"), op.attribute("end")
        self.values[op.results[0]] = Value(np.arange(start, start + 1 if self.corner else end, dtype=np.int64)[None])

    def program_id(self, op: Operation) -> None:
        self.values[op.results[0]] = Value(self.program["xyz".index(op.text.split()[1])])

    def num_programs(self, op: Operation) -> None:
        size = self.launch.grid["xyz".index(op.text.split()[1])]
        self.values[op.results[0]] = Value(np.array([size], dtype=np.int64))

    def reshape(self, op: Operation) -> None:
        value = self.get(op.operands[0])
        if value.data is not None:
            source = types(op.text.split("->")[0])[0].shape
            full = (1,) * len(source) if self.corner else source
            data = np.broadcast_to(value.data, (len(value.data), *full))
            value = replace(
                value, data=data.reshape(len(data), *((1,) * len(op.type.shape) if self.corner else op.type.shape))
            )
        self.values[op.results[0]] = value

    def make_descriptor(self, op: Operation) -> None:
        base, *sizes = op.operands
        strides = tuple(self.get(n).ints for n in sizes[len(sizes) // 2 :])
        self.values[op.results[0]] = replace(self.get(base), strides=strides)


def _integer_cost(op: Operation, operands: Sequence[Value]) -> float:
    """Instructions of one integer operation: division by an unknown is long, 64-bit products are four."""
    kind = op.name.rsplit(".", 1)[-1]
    wide = op.type.element == "i64"
    if kind.startswith(("div", "rem", "floordiv", "ceildiv")):
        return 4.0 if operands[1].constant else DIVISION[64 if wide else 32]
    return (4.0 if kind == "muli" else 2.0) if wide else 1.0


def _dot_unit(text: str, a: Type) -> str:
    """`f16`, `bf16`, `f8…`, `i8`, `f64`, or for fp32 the input precision (`ieee` when none is printed)."""
    if a.element != "f32":
        return a.element
    return text.split("inputPrecision = ")[1].split()[0] if "inputPrecision" in text else "ieee"


def _masked(op: Operation, kind: str) -> bool:
    """Loads are (pointer, mask, other), stores (pointer, value, mask), atomics (pointer, value, mask)."""
    return len(op.operands) > (1 if kind == "load" else 2) and op.name != "tt.atomic_cas"


HANDLERS: dict[str, Callable[[Walk, Operation], None]] = {
    "scf.for": Walk.loop,
    "scf.while": Walk.while_loop,
    "scf.if": Walk.branch,
    "tt.reduce": Walk.reduction,
    "tt.scan": Walk.reduction,
    "tt.dot": Walk.dot,
    "tt.load": Walk.access,
    "tt.store": Walk.access,
    "tt.atomic_rmw": Walk.access,
    "tt.atomic_cas": Walk.access,
    "tt.descriptor_load": Walk.descriptor,
    "tt.descriptor_store": Walk.descriptor,
    "tt.descriptor_reduce": Walk.descriptor,
    "tt.make_range": Walk.make_range,
    "tt.get_program_id": Walk.program_id,
    "tt.get_num_programs": Walk.num_programs,
    "tt.reshape": Walk.reshape,
    "tt.make_tensor_descriptor": Walk.make_descriptor,
}
