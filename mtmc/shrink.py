"""Shrink: the same problem with smaller sizes, so that Triton's interpreter can run its kernels in seconds.

Sizes are odd, pairwise distinct, above one block (65 and up) or just below (33 and up): round or equal sizes hide wrong
masks and strides. One more variant for each of the largest sizes has that one above usual blocks and the others tiny: loops
of one step hide what they forget. Where the model asks for more (heads, groups, patches divide a size), the ladder goes on
with multiples. Every trial runs on meta tensors, which costs milliseconds at any size, and must call the same operations as
the full size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from mtmc.capture import capture
from mtmc.errors import BadInput
from mtmc.graph import Graph, Node
from mtmc.problem import Problem, instantiate
from mtmc.slots import Slot, resized, slots
from mtmc.trials import Trace, trace

KEPT = 32  # sizes up to here are kernels, strides, groups, heads: they stay while the limits allow
SMALLEST_KEPT = 8  # and up to here always
RUNGS = (65, 33, 17, 9, 5, 3, 2)
COMFORT = 17  # lowered further only to come under the limits
BATCH = 3
ALIGNED = 16
FACTORS = (2, 8, 32)
# Operations traced (some three seconds) after which a search only seeks the limits, and after three times as many stops.
PATIENCE = 8000
# First rung, and the share of the limits to aim at: one variant below a typical block, one above it.
SCALES = ((33, 0.02), (65, 0.2))
LONGS, SHORT, LONGEST = (1057, 521), 5, 3  # one size from one of LONGS on, the others from SHORT on; for the largest sizes
MANY = 60  # operations of a model from which on long variants would take too long
OWN_SHARE = 0.2  # of the limits, up to which the interpreter takes the problem's own sizes


@dataclass(frozen=True)
class ShrinkResult:
    """Smaller variants, smallest first and long ones last, with their graphs (if the model has one); `reason` says why none.

    `aligned` is one more variant whose sizes are multiples of 16, for programs that refuse other sizes (tensor descriptors).
    """

    variants: tuple[Problem, ...]
    graphs: tuple[Graph, ...] = ()
    reason: str = ""
    aligned: tuple[Problem, Graph] | None = None


def shrink(problem: Problem, limit_flops: float = 1e9, limit_elements: float = 4e6) -> tuple[Problem, ...]:
    """Smaller variants of the problem within the limits, the smallest first, the long ones last; see `find`."""
    return find(problem, limit_flops, limit_elements).variants


def find(
    problem: Problem, limit_flops: float = 1e9, limit_elements: float = 4e6, graph: Graph | None = None
) -> ShrinkResult:
    """Variants of at most `limit_flops` operations in matrix units and `limit_elements` elements computed.

    `graph` saves capturing the full size again. Raises BadInput when the full problem itself fails.
    """
    full = graph or capture(problem).graph
    try:
        search = _Search(problem, limit_flops, limit_elements)
    except BadInput as error:
        return ShrinkResult((), reason=str(error))
    found: dict[Problem, Graph | None] = {}
    reason = ""
    for base, share in SCALES:
        if found and search.excess > share:
            break  # the first variant costs what the second may: another of the kind shows nothing new
        outcome = search.variant(base, share, full)
        if isinstance(outcome, str):
            reason = outcome
        else:
            found.setdefault(*outcome)
    for variant in search.long_sizes() if found and full else ():
        small = capture(variant).graph
        if small is not None and full is not None and compatible(full, small):
            found.setdefault(variant, small)
    graphs = tuple(small for small in found.values() if small)
    return ShrinkResult(tuple(found), graphs, "" if found else reason, search.aligned(full) if found and full else None)


@dataclass(frozen=True)
class Sizes:
    """Smaller variants, smallest first, of a problem whose candidates need not share its graph.

    `aligned` has multiples of 16 for sizes; `small` says that the interpreter takes the problem's own sizes.
    """

    variants: tuple[Problem, ...] = ()
    aligned: Problem | None = None
    small: bool = False


def sizes_of(problem: Problem, limit_flops: float = 1e9, limit_elements: float = 4e6) -> Sizes:
    """Like `find`, but the operations alone must stay the same: nothing is captured.

    A model that does not run on meta tensors (its control flow reads values) keeps its sizes. Raises BadInput where it
    cannot even be built.
    """
    try:
        search = _Search(problem, limit_flops, limit_elements)
    except BadInput:
        return Sizes(small=_elements(problem) <= OWN_SHARE * limit_elements)
    small = search.within(OWN_SHARE)
    found: dict[Problem, None] = {}
    for base, share in SCALES:
        made = None if found and search.excess > share else search.sized(base, share)
        if isinstance(made, Problem):
            found[made] = None
    found |= dict.fromkeys(search.long_sizes()) if found else {}
    return Sizes(tuple(found), next(search.round_sizes(), None) if found else None, small)


def _elements(problem: Problem) -> int:
    """Elements of the inputs and the parameters."""
    import torch

    made = instantiate(problem, "meta")
    given = [value for value in made.inputs if isinstance(value, torch.Tensor)]
    return sum(x.numel() for x in (*given, *made.model.parameters()))


def largest(problem: Problem, limit_elements: float) -> Problem | None:
    """The problem with its sizes halved, the largest first, until it computes at most so many elements, if it can."""
    return _Search(problem, math.inf, limit_elements).halved()


def compatible(full: Graph, small: Graph) -> bool:
    """Whether a program made from `full` computes `small` as well, once its numbers are exchanged."""
    if len(full.nodes) != len(small.nodes) or (full.mutations, full.output) != (small.mutations, small.output):
        return False
    return all(_same(a, b) for a, b in zip(full.nodes, small.nodes, strict=True))


def _same(a: Node, b: Node) -> bool:
    if (a.name, a.op, a.target, a.inputs) != (b.name, b.op, b.target, b.inputs) or a.kwargs.keys() != b.kwargs.keys():
        return False
    if a.type is None or b.type is None:
        return a.type is b.type
    ones = [size == 1 for size in a.type.shape] == [size == 1 for size in b.type.shape]
    return ones and (a.type.dtype, a.type.contiguous) == (b.type.dtype, b.type.contiguous)


# The search ---------------------------------------------------------------------------------------------------------------

Group = tuple[Slot, ...]  # slots that change together
Chosen = dict[Group, int]


class _Search:
    """Finds sizes that the model takes.

    `trials` remembers every run; the rest belongs to the search under way: operations `spent`, the `groups` of slots and the
    `factors` they are multiples of, the share of the limits that the result uses (`excess`).
    """

    def __init__(self, problem: Problem, limit_flops: float, limit_elements: float) -> None:
        self.problem = problem
        self.limits = (limit_flops, limit_elements)
        self.full = trace(problem)
        self.slots = slots(problem)
        self.spent = 0
        self.excess = 0.0
        self.groups: list[Group] = []
        self.factors: dict[Group, int] = {}
        self.trials: dict[tuple[tuple[str, int], ...], Trace | None] = {}

    def within(self, share: float) -> bool:
        """Whether the problem's own sizes use no more than a share of the limits."""
        return self._excess({}) <= share

    def halved(self) -> Problem | None:
        """Chosen halved, the largest that the model takes first, until the limits are met; None where they cannot be."""
        groups = [group for group in self._grouped(True) if group[0].value > KEPT]
        sizes = {group: group[0].value for group in groups}
        while self._excess(sizes) > 1.0:
            for group in sorted(groups, key=lambda group: (not _is_batch(group), -sizes[group])):
                if sizes[group] > 2 and self._takes({**sizes, group: sizes[group] // 2}):
                    sizes[group] //= 2
                    break
            else:
                return None
        return self._resized(sizes)

    def variant(self, base: int, share: float, graph: Graph | None) -> tuple[Problem, Graph | None] | str:
        """Problem and graph near the rung `base`, or why there is none."""
        problem = self.sized(base, share)
        if isinstance(problem, str):
            return problem
        small = capture(problem).graph
        if graph is None or (small is not None and compatible(graph, small)):
            return problem, small
        return "at smaller sizes the model runs other operations"

    def sized(self, base: int, share: float) -> Problem | str:
        """The problem near the rung `base`, or why there is none."""
        self.spent = 0
        sizes = self._lower(self._fit(base), share)
        self.excess = self._excess(sizes)
        if self.excess > 1.0:
            return "the smallest sizes found still compute too much" if sizes else "no size of the model can be changed"
        return self._resized(sizes)

    def aligned(self, graph: Graph) -> tuple[Problem, Graph] | None:
        """Problem and graph with distinct multiples of 16, None where the model does not take them within the limits."""
        for problem in self.round_sizes():
            small = capture(problem).graph
            if small is not None and compatible(graph, small):
                return problem, small
        return None

    def round_sizes(self) -> Iterator[Problem]:
        """The problem with distinct multiples of 16 for sizes: one for every slot, then one for every value."""
        for by_value in (False, True):
            groups = [group for group in self._grouped(by_value) if group[0].value > 2 * ALIGNED]
            sizes = {group: ALIGNED * (3 + place) for place, group in enumerate(groups)}
            sizes |= {group: BATCH for group in groups if _is_batch(group) and len(groups) > 2}
            sizes = {group: size for group, size in sizes.items() if size < group[0].value}
            if sizes and self._takes(sizes) and self._excess(sizes) <= 1.0:
                yield self._resized(sizes)

    def long_sizes(self) -> Iterator[Problem]:
        """The problem with one size above every usual block and the others tiny: one for each of its largest sizes."""
        if len(self.full.operations) > MANY:
            return
        self.spent = 0
        tiny = self._lower(self._fit(SHORT), SCALES[0][1])
        groups = [group for group in self.groups if not _is_batch(group) and group[0].value > LONGS[-1]]
        for group in sorted(groups, key=lambda group: -group[0].value)[:LONGEST]:
            factor, taken = self.factors.get(group, 1), set(tiny.values())
            size = next((n for long in LONGS if (n := _free(long, factor, taken)) < group[0].value), 0)
            sizes = {**tiny, group: size}
            if size and self._takes(sizes) and self._excess(sizes) <= 1.0:
                yield self._resized(sizes)

    def _grouped(self, by_value: bool) -> list[Group]:
        """Slots that change together, ascending: each alone, or all of one value."""
        ordered = sorted(self.slots, key=lambda slot: slot.value)
        if not by_value:
            return [(slot,) for slot in ordered]
        values = dict.fromkeys(slot.value for slot in ordered)
        return [tuple(slot for slot in ordered if slot.value == value) for value in values]

    def _fit(self, base: int) -> Chosen:
        """Odd distinct sizes for everything if the model takes them, else the first that fits for one after the other."""
        for by_value in (False, True):
            self.groups = self._grouped(by_value)
            large = [group for group in self.groups if group[0].value > KEPT]
            self.factors = dict.fromkeys(large, 1)
            sizes = {group: base + 2 * place for place, group in enumerate(large)}
            sizes = {group: size for group, size in sizes.items() if size < group[0].value}
            if self._takes(sizes):
                return sizes
        self.groups = self._grouped(False)
        sizes = self._fit_each([group for group in self.groups if group[0].value > KEPT], base, {})
        rest = [group for group in self.groups if group[0].value > KEPT and group not in sizes]
        together = {group[0].value: tuple(g[0] for g in rest if g[0].value == group[0].value) for group in rest}
        merged = [group for group in together.values() if len(group) > 1]
        self.groups = [g for g in self.groups if not any(g[0] in group for group in merged)] + merged
        return self._fit_each(merged, base, sizes)

    def _fit_each(self, groups: list[Group], base: int, sizes: Chosen) -> Chosen:
        """One group after the other at the first multiple that the model takes; the others stay."""
        sizes = dict(sizes)
        for group in groups:
            for factor in self._factors(group):
                size = _free(base, factor, set(sizes.values()))
                if size < group[0].value and self.spent < PATIENCE and self._takes({**sizes, group: size}):
                    sizes[group] = size
                    self.factors[group] = factor
                    break
        return sizes

    def _factors(self, group: Group) -> list[int]:
        """What a size may have to be a multiple of: 1, 2, 8, 32, and the small sizes that divide it now."""
        value = group[0].value
        return sorted({1, *FACTORS, *(slot.value for slot in self.slots if slot.value <= KEPT and value % slot.value == 0)})

    def _lower(self, sizes: Chosen, share: float) -> Chosen:
        """Lower sizes, batches first, until `share` of the limits is met; the small ones only while the limits are not."""
        stuck: set[tuple[Group, bool]] = set()
        while (excess := self._excess(sizes)) > share:
            over = excess > 1.0
            if self.spent > (3 * PATIENCE if over else PATIENCE):
                break
            free = [g for g in self.groups if (g, over) not in stuck and _floor(g, over) < sizes.get(g, g[0].value)]
            if not free:
                break
            group = max(free, key=lambda group: (_is_batch(group), sizes.get(group, group[0].value)))
            lower = self._lowered(sizes, group, _floor(group, over))
            if lower is None:
                stuck.add((group, over))
            else:
                sizes = lower
        return sizes

    def _lowered(self, sizes: Chosen, group: Group, floor: int) -> Chosen | None:
        """One group at one of the next two rungs, if the model takes it; a batch goes to the floor at once."""
        now = sizes.get(group, group[0].value)
        taken = set(sizes.values()) - {now}
        rungs = (floor,) if _is_batch(group) else RUNGS
        lower = [size for rung in rungs if floor <= (size := _free(rung, self.factors.get(group, 1), taken)) < now]
        for size in lower[:2]:
            if self._takes({**sizes, group: size}):
                return {**sizes, group: size}
        return None

    def _resized(self, sizes: Chosen) -> Problem:
        return resized(self.problem, {slot: size for group, size in sizes.items() for slot in group})

    def _trace(self, sizes: Chosen) -> Trace | None:
        """Trace at other sizes; None when the model does not take them or runs other operations."""
        key = tuple(sorted((slot.name, size) for group, size in sizes.items() for slot in group))
        if key not in self.trials:
            self.spent += len(self.full.operations)
            try:
                made = trace(self._resized(sizes))
                self.trials[key] = made if made.operations == self.full.operations else None
            except BadInput:
                self.trials[key] = None
        return self.trials[key]

    def _takes(self, sizes: Chosen) -> bool:
        return self._trace(sizes) is not None

    def _excess(self, sizes: Chosen) -> float:
        """Share of the limits that these sizes use."""
        made = self._trace(sizes)
        assert made is not None
        return max(made.flops / self.limits[0], made.elements / self.limits[1])


def _free(base: int, factor: int, taken: set[int]) -> int:
    """The first odd multiple of `factor` from `base` on that is not taken (2 itself where `base` is 2)."""
    first = factor * (-(-base // factor) | 1) if base > 2 else base
    return next(size for size in count(first, 2 * factor) if size not in taken)


def _is_batch(group: Group) -> bool:
    return any("batch" in slot.name for slot in group)


def _floor(group: Group, over: bool) -> int:
    """The least size a group may have; `over` says that the limits are not met yet."""
    value = group[0].value
    if _is_batch(group):
        return min(value, 2 if over else BATCH)
    if value <= KEPT:
        return 2 if over and value > SMALLEST_KEPT else value
    return 2 if over else COMFORT
