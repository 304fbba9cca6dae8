"""Einstein sums: two operands at a time, from the left, as PyTorch contracts them; each a product or an elementwise kernel.

A sum over letters is a product [batch, M, K] @ [batch, K, N] of views, with one or two dimensions for the batch. Copies are
made only where strides give no such view. Its result lies in memory as batch, rows, columns, the batch's letters in the
order of the whole result if that costs no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from mtmc.graph import Node, TensorType
from mtmc.lower.builder import Builder, NotMine, contiguous, meta_of, permuted
from mtmc.lower.rules_contraction import product
from mtmc.lower.rules_pointwise import arguments


@dataclass(frozen=True)
class Term:
    """A value and the letters of its dimensions, in order."""

    name: str
    letters: str


@dataclass(frozen=True)
class Plan:
    """A product's letters by what they are, the batch in one or two groups; an empty group is no dimension."""

    batch: tuple[str, ...]
    rows: str
    cols: str
    summed: str

    @property
    def made(self) -> str:
        """Letters of the result as it lies in memory."""
        return "".join(self.batch) + self.rows + self.cols

    def groups(self, right: bool) -> tuple[str, ...]:
        """Letters of each dimension of an operand."""
        return (*self.batch, self.summed, self.cols) if right else (*self.batch, self.rows, self.summed)


def einsum(b: Builder, node: Node, type: TensorType) -> str:
    """Two operands or more with an explicit result, no repeated letters inside one, each letter of one size."""
    args = arguments(node)
    equation, names = args["equation"].replace(" ", ""), [ref.name for ref in args["tensors"]]
    left, arrow, result = equation.partition("->")
    letters = left.split(",")
    if len(names) < 2 or not arrow or "." in equation:
        raise NotMine("einsum other than of several operands with an explicit result")
    if any(len(set(term)) != len(term) for term in (*letters, result)):
        raise NotMine("einsum with a repeated letter")
    sizes = _sizes(b, names, letters)
    terms = [Term(name, term) for name, term in zip(names, letters, strict=True)]
    done, rest = terms[0], terms[1:]
    for number, term in enumerate(rest):
        later = [other.letters for other in rest[number + 1 :]] + [result]
        name = node.name if number == len(rest) - 1 else f"{node.name}_part{number}"
        done = _joined(b, name, (done, term), later, sizes)
    return _turned(b, node.name, done, result, type)


def _sizes(b: Builder, names: list[str], letters: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, term in zip(names, letters, strict=True):
        for letter, size in zip(term, b.type(name).shape, strict=True):
            if found.setdefault(letter, size) != size:
                raise NotMine("einsum that broadcasts")
    return found


def _joined(b: Builder, name: str, pair: tuple[Term, Term], later: list[str], sizes: dict[str, int]) -> Term:
    """Two terms made one that has the letters which `later` terms, or the result at their end, still need."""
    left, right = pair
    needed = set("".join(later))
    both = set(left.letters) & set(right.letters)
    if alone := (set(left.letters) ^ set(right.letters)) - needed:
        raise NotMine(f"einsum that sums {''.join(sorted(alone))} of one operand alone")
    summed = "".join(letter for letter in left.letters if letter in both - needed)
    if not summed:
        return _multiplied(b, name, pair, sizes)
    batch = both & needed
    rows, cols = ("".join(c for c in term.letters if c not in both) for term in pair)
    if not (rows and cols):
        raise NotMine("einsum that is no contraction")
    orders = ["".join(c for c in term if c in batch) for term in (later[-1], left.letters, right.letters)]
    plan = _plan(b, name, pair, Plan((), rows, cols, summed), list(dict.fromkeys(orders)))
    operands = [_seen(b, term, plan.groups(term is right), sizes) for term in pair]
    dtype = b.type(left.name).dtype
    lead = [prod(sizes[c] for c in group) for group in plan.batch]
    flat = TensorType((*lead, *(prod(sizes[c] for c in group) for group in (rows, cols))), dtype)
    made = product(b, f"{name}_product", operands[0], operands[1], flat)
    text = ", ".join(_where(pair, letter) for letter in plan.made)
    shape = tuple(sizes[letter] for letter in plan.made)
    return Term(b.view(f"{name}_shaped", f"{made}.view({text})", made, contiguous(shape, dtype)), plan.made)


def _plan(b: Builder, name: str, pair: tuple[Term, Term], plan: Plan, orders: list[str]) -> Plan:
    """The order of the batch and its groups for which the fewest elements must be copied, the first of equals."""
    plans = [replace(plan, batch=tuple(filter(None, (o[:cut], o[cut:])))) for o in orders for cut in range(len(o), 0, -1)]
    plans = plans or [plan]
    costs = [sum(0 if _viewable(b, t, p.groups(t is pair[1])) else b.type(t.name).numel for t in pair) for p in plans]
    chosen = [b.choose(f"{name}.plan{number}", cost == min(costs)) for number, cost in enumerate(costs)]
    return plans[chosen.index(True)]


def _permuted(b: Builder, term: Term, order: str) -> TensorType:
    """The type of a term with its dimensions in the order of these letters."""
    return permuted(b.type(term.name), [term.letters.index(letter) for letter in order])


def _flat(type: TensorType, groups: tuple[str, ...]) -> tuple[int, ...]:
    sizes = iter(type.shape)
    return tuple(prod(next(sizes) for _ in group) for group in groups)


def _viewable(b: Builder, term: Term, groups: tuple[str, ...]) -> bool:
    """Whether strides alone give a term with one dimension a group."""
    turned = _permuted(b, term, "".join(groups))
    try:
        meta_of(turned).view(_flat(turned, groups))
    except RuntimeError:
        return False
    return True


def _seen(b: Builder, term: Term, groups: tuple[str, ...], sizes: dict[str, int]) -> str:
    """A term with one dimension a group, copied where strides do not give that."""
    order = "".join(groups)
    name = _turned(b, f"{term.name}_turned", term, order, _permuted(b, term, order))
    if all(len(group) == 1 for group in groups):
        return name
    if not b.choose(f"{name}.merged.{'.'.join(groups)}", _viewable(b, Term(name, order), groups)):
        name = b.dense(name)
    ends = [order.index(group[0]) for group in groups]
    text = ", ".join(
        " * ".join(f"{name}.shape[{start + i}]" for i in range(len(group)))
        for start, group in zip(ends, groups, strict=True)
    )
    return b.merged(name, tuple(prod(sizes[c] for c in group) for group in groups), text)


def _turned(b: Builder, name: str, term: Term, order: str, type: TensorType) -> str:
    """A term with its dimensions in the order of these letters."""
    if term.letters == order:
        return term.name
    dims = tuple(term.letters.index(letter) for letter in order)
    seen = _permuted(b, term, order)
    return b.view(name, f"{term.name}.permute({dims})", term.name, replace(type, strides=seen.strides))


def _multiplied(b: Builder, name: str, pair: tuple[Term, Term], sizes: dict[str, int]) -> Term:
    """An elementwise product in the order of the term with more dimensions, the other one broadcast."""
    large, small = sorted(pair, key=lambda term: -len(term.letters))
    order = large.letters + "".join(letter for letter in small.letters if letter not in large.letters)
    dtype = b.type(large.name).dtype
    seen = " * ".join(_spread(b, term, order) for term in pair)
    return Term(b.pointwise(name, seen, TensorType(tuple(sizes[c] for c in order), dtype)), order)


def _spread(b: Builder, term: Term, order: str) -> str:
    """A term with one dimension for each letter, those that it lacks of size 1."""
    kept = "".join(letter for letter in order if letter in term.letters)
    name = _turned(b, f"{term.name}_turned", term, kept, _permuted(b, term, kept))
    for place, letter in enumerate(order):
        if letter not in term.letters:
            meta = meta_of(b.type(name)).unsqueeze(place)
            name = b.seen(f"{name}_spread", f"{name}.unsqueeze({place})", name, meta)
    return name


def _where(pair: tuple[Term, Term], letter: str) -> str:
    """Text of a letter's size."""
    term = next(term for term in pair if letter in term.letters)
    return f"{term.name}.shape[{term.letters.index(letter)}]"
