"""Builder: collects the primitive nodes that a rule makes of one ATen node.

Primitive nodes carry what codegen and the actions need in `kwargs`: `template` (module.function in `templates/`), `body`
(the formula, over node names), `frame_in` / `frame_out` (see `mtmc.frames`), and template-specific entries. Views are `view`
nodes whose `kwargs["call"]` is the Python expression; PyTorch calls are `torch` nodes.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from mtmc.frames import Frame, broadcast, pad, split_for
from mtmc.graph import Node, Ref, TensorType

# Names with a meaning inside kernels, launchers or the forward: a node called so is renamed.
RESERVED = frozenset(
    "row red col index mask mean var total squares count delta peak top norm rstd value acc best where replace start "
    "stop at k m a b out out_index numel cols reds rows grid blocks pid_m pid_n batch tl torch triton math libdevice "
    "self model supports inf nan tensors taken x0 part lost rest first last n means variances fresh less chunk length "
    "parts SIZES BLOCK RED M N K identity finish combine better body partial dim strides "
    "carry term along place scale heads shift fade score h d D E".split()
) | frozenset(dir(builtins))

HALF = ("float16", "bfloat16")
FAR = 2**31 - 2**27  # extents from which on, the last part of a split and its last tile included, 32 bits may not do
SHORT = 512  # elements of a row below which a program of its own has too little to do
TURNS = ("transpose", "permute", "t")  # views that change nothing but the order of dimensions
FLOATS = ("float32", "float64", *HALF)


def compute_type(dtype: str) -> str:
    """The type a value has inside a kernel: float32 for 16-bit floats, else its own."""
    return "float32" if dtype in HALF else dtype


def meta_of(type: TensorType) -> Any:
    """A tensor without data of this type and these strides."""
    import torch

    dtype = getattr(torch, type.dtype)
    if not type.strides:
        return torch.empty(type.shape, dtype=dtype, device="meta")
    return torch.empty_strided(type.shape, type.strides, dtype=dtype, device="meta")


def permuted(type: TensorType, order: Sequence[int]) -> TensorType:
    """A tensor's type with its dimensions in another order."""
    meta = meta_of(type).permute(list(order))
    return TensorType(tuple(meta.shape), type.dtype, tuple(meta.stride()))


def contiguous(shape: Sequence[int], dtype: str) -> TensorType:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return TensorType(tuple(shape), dtype, tuple(reversed(strides)))


class NotMine(Exception):
    """A rule declines: the node stays a PyTorch call. Carries the reason."""


@dataclass
class Builder:
    """Nodes made so far, by name; `aliases` maps ATen names to the node that holds their value.

    `choices` holds what was decided by size at the full size, so that other sizes get the same kernels. `varying` holds the
    `node.argument` keys whose numbers differ between the sizes of a problem; `sizes` collects their values. `turned` holds
    the attentions whose heads and rows are swapped by their only reader.
    """

    varying: frozenset[str] = frozenset()
    nodes: dict[str, Node] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, bool] = field(default_factory=dict)
    turned: frozenset[str] = frozenset()

    def choose(self, name: str, value: bool) -> bool:
        """A decision by size: taken once, at the full size."""
        return self.choices.setdefault(name, value)

    def type(self, name: str) -> TensorType:
        found = self.nodes[name].type
        if found is None:
            raise NotMine(f"{name} is not a tensor")
        return found

    def fresh(self, name: str) -> str:
        """A free name: not reserved, not taken."""
        name = f"{name}_" if name in RESERVED else name
        taken, count = name, 1
        while taken in self.nodes:
            count += 1
            taken = f"{name}_{count}"
        return taken

    def add(self, node: Node) -> str:
        self.nodes[node.name] = node
        return node.name

    def unit(self, name: str, template: str, operands: Sequence[str], type: TensorType, **facts: Any) -> str:
        """A node computed by a kernel of `template`; its operands are made contiguous where they are not."""
        loose = facts.pop("strided", False)
        names = [o if loose or self.nodes[o].op == "scalar" else self.dense(o) for o in operands]
        if names != list(operands) and "body" in facts:
            facts["body"] = rename(facts["body"], dict(zip(operands, names, strict=True)))
        args = tuple(Ref(n) for n in dict.fromkeys(names))
        facts, name = {"template": template, **facts}, self.fresh(name)
        if "frame_out" in facts and self.choose(f"{name}.wide", self._far(template, names, type, facts)):
            facts["wide"] = True
        return self.add(Node(name, "unit", args, facts, contiguous(type.shape, type.dtype)))

    def _far(self, template: str, names: list[str], type: TensorType, facts: dict[str, Any]) -> bool:
        """Whether a coordinate within a row comes near 2^31; rows themselves are counted in 64 bits in every template.

        A kernel over the outer and inner extents counts the two in one.
        """
        shape = self.type(names[0]).shape if "frame_in" in facts else type.shape
        extents = {c: prod(shape[first:last]) for c, first, last in facts.get("frame_in", facts["frame_out"])}
        inside = [extents.get("col", 0), extents.get("red", 0)]
        if template.endswith(".chan"):
            inside.append(extents["row"] * extents["col"])
        return max(inside) >= FAR

    def view(self, name: str, call: str, source: str, type: TensorType) -> str:
        return self.add(Node(self.fresh(name), "view", (Ref(source),), {"call": call}, type))

    def dense(self, name: str) -> str:
        """`name`, or a contiguous copy of it."""
        found = self.type(name)
        if found.contiguous:
            return name
        for node in self.nodes.values():
            if node.kwargs.get("template") == "movement.copy" and node.args == (Ref(name),):
                return node.name
        if len(found.shape) > 5:
            raise NotMine(f"a copy of {len(found.shape)} dimensions")
        return self.add(
            Node(
                self.fresh(f"{name}_copy"),
                "unit",
                (Ref(name),),
                {"template": "movement.copy"},
                contiguous(found.shape, found.dtype),
            )
        )

    def viewable(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether strides alone give `name` in another shape."""
        try:
            meta_of(self.type(name)).view(shape)
        except RuntimeError:
            return False
        return True

    def merged(self, name: str, shape: tuple[int, ...], text: str) -> str:
        """`name` in another shape that its strides give; `text` is the Python expression of the shape."""
        meta = meta_of(self.type(name)).view(shape)
        return self.view(
            f"{name}_view", f"{name}.view({text})", name, TensorType(shape, self.type(name).dtype, meta.stride())
        )

    def reshaped(self, name: str, shape: tuple[int, ...], text: str) -> str:
        """A contiguous `name` seen in another shape; `text` is the Python expression of the shape."""
        dense = self.dense(name)
        if self.type(dense).shape == shape:
            return dense
        return self.view(f"{name}_view", f"{dense}.view({text})", dense, contiguous(shape, self.type(dense).dtype))

    def pointwise(self, name: str, body: str, type: TensorType, rows: int = 0) -> str:
        """Elementwise `body` over node names; numbers are literals. Result broadcast to `type.shape`.

        Where an operand is broadcast, at least so many leading dimensions are `rows`, unless a row is too short then.
        """
        if compute_type(type.dtype) != "float32":
            body = body.replace("tl.sqrt_rn(", "tl.sqrt(")  # the former is for float32 only; double is exact anyway
        body = rename(body, self._unexpanded(name, [n for n in names_in(body) if n in self.nodes], type))
        operands = [n for n in dict.fromkeys(names_in(body)) if n in self.nodes]
        coordinates = {"row", "col"} & set(names_in(body))
        order = None if coordinates else self._order(operands, type)
        if self.choose(f"{name}.turned", order is not None) and order:
            return self._in_order(name, body, order, operands, type)
        shapes = [self.type(o).shape for o in operands if self.nodes[o].op != "scalar"]
        rank = len(type.shape)
        if not coordinates and all(pad(s, rank) == type.shape or _single(s) for s in shapes):
            return self.unit(name, "pointwise.flat", operands, type, body=body, frame_out=(("index", 0, rank),))
        split = rank - 1 if coordinates else max(rows, split_for(type.shape, [*shapes, type.shape]))
        split = split if coordinates else self._lengthened(name, split, type)
        frame: Frame = (("row", 0, split), ("col", split, rank))
        return self.unit(name, "pointwise.rows", operands, type, body=body, frame_out=frame, split=split)

    def _order(self, operands: Sequence[str], type: TensorType) -> tuple[int, ...] | None:
        """The order of dimensions in which all operands of the full shape are dense, where it is not the usual one."""
        full = [found for o in operands if self.nodes[o].op != "scalar" and (found := self.type(o)).shape == type.shape]
        turned = next((found for found in full if not found.contiguous), None)
        if turned is None:
            return None
        order = tuple(sorted(range(len(type.shape)), key=lambda d: -turned.strides[d]))
        return order if all(permuted(found, order).contiguous for found in full) else None

    def _in_order(self, name: str, body: str, order: tuple[int, ...], operands: Sequence[str], type: TensorType) -> str:
        """Elementwise work on the memory of its operands as it lies, and the view that has the result's shape."""
        seen = {o: self.turned_to(o, order) for o in operands if self.nodes[o].op != "scalar"}
        made = self.pointwise(name, rename(body, seen), permuted(contiguous(type.shape, type.dtype), order))
        return self.turned_to(made, tuple(order.index(d) for d in range(len(order))))

    def turned_to(self, name: str, order: tuple[int, ...]) -> str:
        """A value with its dimensions in another order, after as many of size 1 before them as it lacks."""
        for _ in range(len(order) - len(self.type(name).shape)):
            name = self.seen(f"{name}_spread", f"{name}.unsqueeze(0)", name, meta_of(self.type(name)).unsqueeze(0))
        type = permuted(self.type(name), order)
        return self.turned_back(name, type) or self.view(f"{name}_turned", f"{name}.permute({order})", name, type)

    def turned_back(self, source: str, type: TensorType) -> str | None:
        """What `source` is with its dimensions in another order, if that has the type of a view that reorders them again."""
        node = self.nodes[source]
        if node.op != "view" or not re.match(rf"{node.inputs[0]}\.({'|'.join(TURNS)})\(", node.kwargs["call"]):
            return None
        return node.inputs[0] if self.type(node.inputs[0]) == type else None

    def seen(self, name: str, call: str, source: str, meta: Any) -> str:
        """A view, `meta` being what it is of a tensor without data."""
        return self.view(name, call, source, TensorType(tuple(meta.shape), self.type(source).dtype, tuple(meta.stride())))

    def _unexpanded(self, name: str, operands: Sequence[str], type: TensorType) -> dict[str, str]:
        """Operands that are another value expanded, with that value: the kernel broadcasts by itself.

        One that alone gives the result its shape stays as it is.
        """
        found: dict[str, str] = {}
        for operand in dict.fromkeys(operands):
            node = self.nodes[operand]
            if node.op == "view" and node.kwargs["call"].startswith(f"{node.inputs[0]}.expand("):
                names = [{**found, operand: node.inputs[0]}.get(n, n) for n in operands]
                shapes = [self.type(n).shape for n in names if self.nodes[n].op != "scalar"]
                if self.choose(f"{name}.{operand}.expanded", broadcast(shapes) == type.shape):
                    found[operand] = node.inputs[0]
        return found

    def _lengthened(self, name: str, split: int, type: TensorType) -> int:
        """The first dimension of `col`, moved forward until a row is long enough for a program."""
        while split and self.choose(f"{name}.short{split}", prod(type.shape[split:]) < SHORT):
            split -= 1
        return split

    def scalar(self, name: str, value: float) -> str:
        """A number that depends on the problem's size: an argument of the kernel, kept in SIZES."""
        if name not in self.nodes:
            self.sizes[name] = value
            self.add(Node(name, "scalar", kwargs={"value": value}))
        return name

    def count_text(self, node: str, value: float) -> str:
        """An element count, as a scalar operand."""
        return self.scalar(f"{node}_count", value)

    def reshaped_as(self, name: str, source: str, type: TensorType, text: str) -> str:
        """A view of a contiguous value, named as asked."""
        return self.view(name, f"{source}.view({text})", source, contiguous(type.shape, type.dtype))

    def cast(self, name: str, dtype: str) -> str:
        """Text of `name` as a value of `dtype` inside a kernel."""
        have, want = compute_type(self.type(name).dtype), compute_type(dtype)
        return name if have == want else f"{name}.to(tl.{'int1' if want == 'bool' else want})"


def _single(shape: tuple[int, ...]) -> bool:
    return all(s == 1 for s in shape)


def names_in(expression: str) -> list[str]:
    """Plain names of an expression in order of appearance (`tl` and called functions included)."""
    found = [n for n in ast.walk(ast.parse(expression, mode="eval")) if isinstance(n, ast.Name)]
    return [n.id for n in sorted(found, key=lambda n: (n.lineno, n.col_offset))]


def rename(expression: str, names: dict[str, str]) -> str:
    """The expression with plain names replaced; a value may itself be an expression."""
    tree = ast.parse(expression, mode="eval")

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.parse(names[node.id], mode="eval").body if node.id in names else node

    return ast.unparse(Rename().visit(tree))


def literal(value: Any) -> str:
    """A number as kernel text."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, float) and value != value:
        return 'float("nan")'
    return repr(value)
