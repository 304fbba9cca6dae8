"""Views, casts of layout and data movement."""

from __future__ import annotations

from typing import Any

from mtmc.graph import Node, Ref, TensorType
from mtmc.lower.builder import TURNS, Builder, NotMine, meta_of
from mtmc.lower.rules_pointwise import arguments

# ATen view -> method text over argument names; sizes that vary become SIZES entries.
METHODS: dict[str, str] = {
    "view": "self.reshape(size)",
    "reshape": "self.reshape(shape)",
    "_unsafe_view": "self.reshape(size)",
    "permute": "self.permute(dims)",
    "transpose": "self.transpose(dim0, dim1)",
    "t": "self.t()",
    "numpy_T": "self.permute(REVERSED)",
    "unsqueeze": "self.unsqueeze(dim)",
    "squeeze": "self.squeeze(dim)",
    "expand": "self.expand(size)",
    "flatten": "self.flatten(start_dim, end_dim)",
    "unflatten": "self.unflatten(dim, sizes)",
    "select": "self.select(dim, index)",
    "movedim": "self.movedim(source, destination)",
    "diagonal": "self.diagonal(offset, dim1, dim2)",
    "unfold": "self.unfold(dimension, size, step)",
    "expand_as": "self.expand_as(other)",
    "view_as": "self.reshape(other.shape)",
}
NOTHING = ("alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous", "clone")


def view(b: Builder, node: Node, type: TensorType) -> str:
    """One view: metadata only, except that a reshape needs what strides cannot give in another shape contiguous first."""
    args = arguments(node)
    base = node.op.split(".")[1]
    source = args["self"].name
    if base == "slice":
        call = _slice(b, node, source, args, len(type.shape))
    else:
        if (".reshape(" in METHODS[base] or base == "flatten") and not b.choose(
            f"{node.name}.view", b.viewable(source, type.shape)
        ):
            source = b.dense(source)
        texts = {k: _text(b, node, k, v) for k, v in args.items()}
        texts |= {"self": source, "REVERSED": repr(tuple(range(len(type.shape) - 1, -1, -1)))}
        call = _fill(METHODS[base], texts)
    seen = _strided(b, source, base, args, type)
    before = b.turned_back(source, seen) if base in TURNS else None
    if b.choose(f"{node.name}.back", before is not None) and before:
        return before
    return b.view(node.name, call, source, seen)


def _fill(method: str, texts: dict[str, str]) -> str:
    head, _, tail = method.partition("(")
    inner = ", ".join(texts.get(part.strip(), part.strip()) for part in tail.rstrip(")").split(",") if part.strip())
    if inner == "other.shape":
        inner = f"{texts['other']}.shape"
    return f"{head.replace('self', texts['self'])}({inner})"


def _text(b: Builder, node: Node, key: str, value: Any) -> str:
    if isinstance(value, Ref):
        return value.name
    name = f"{node.name}.{key}"
    if name in b.varying:
        b.sizes[name] = value
        return f'SIZES["{name}"]'
    return repr(value)


def _slice(b: Builder, node: Node, source: str, args: dict[str, Any], rank: int) -> str:
    dim = args["dim"] % rank
    start, end, step = (args[k] for k in ("start", "end", "step"))
    texts = [
        "" if start in (0, None) and f"{node.name}.start" not in b.varying else _text(b, node, "start", start),
        "" if end is None or end >= 2**62 else _text(b, node, "end", end),
    ]
    span = ":".join(texts) + (f":{step}" if step != 1 else "")
    return f"{source}[{', '.join([':'] * dim + [span])}]"


def _strided(b: Builder, source: str, base: str, args: dict[str, Any], type: TensorType) -> TensorType:
    """The view's type with the strides that it really has, seen from the strides its source has here."""
    import torch

    have = b.type(source)
    if base == "slice":
        call = torch.ops.aten.slice.Tensor
        meta = call(meta_of(have), args["dim"], args["start"], args["end"], args["step"])
    else:
        texts = {k: repr(v) for k, v in args.items() if not isinstance(v, Ref)}
        texts |= {"self": "x", "REVERSED": repr(tuple(range(len(type.shape) - 1, -1, -1)))}
        if base in ("expand_as", "view_as"):
            meta = meta_of(have).expand(type.shape) if base == "expand_as" else meta_of(have).reshape(type.shape)
        else:
            meta = eval(_fill(METHODS[base], texts), {"x": meta_of(have)})  # our own table's text
    return TensorType(type.shape, type.dtype, tuple(meta.stride()))


def nothing(b: Builder, node: Node, type: TensorType) -> str:
    """Operators that change no value."""
    first = node.args[0]
    assert isinstance(first, Ref)
    b.aliases[node.name] = first.name
    return first.name


def cat(b: Builder, node: Node, type: TensorType) -> str:
    args = arguments(node)
    parts = [r.name for r in args["tensors"] if b.type(r.name).shape != (0,)]
    if len(type.shape) > 5 or any(b.type(p).dtype != type.dtype for p in parts):
        raise NotMine("concatenation of mixed types or of more than five dimensions")
    dim = args["dim"] % len(type.shape)
    return b.unit(node.name, "movement.cat", parts, type, strided=True, extra=(dim,), parts=tuple(parts))


def stack(b: Builder, node: Node, type: TensorType) -> str:
    """Concatenation along a new dimension."""
    args = arguments(node)
    dim = args["dim"] % len(type.shape)
    if len(type.shape) > 5 or any(b.type(r.name).dtype != type.dtype for r in args["tensors"]):
        raise NotMine("stack of mixed types or to more than five dimensions")
    parts = []
    for ref in args["tensors"]:
        meta = meta_of(b.type(ref.name)).unsqueeze(dim)
        seen = TensorType(tuple(meta.shape), type.dtype, tuple(meta.stride()))
        parts.append(b.view(f"{ref.name}_part", f"{ref.name}.unsqueeze({dim})", ref.name, seen))
    return b.unit(node.name, "movement.cat", parts, type, strided=True, extra=(dim,), parts=tuple(parts))


def split(b: Builder, node: Node, index: int, type: TensorType) -> str:
    """Part `index` of split (one size or a list of them)."""
    args = arguments(node)
    source = args["self"].name
    key = "split_size" if "split_size" in args else "split_sizes"
    meta = meta_of(b.type(source)).split(args[key], args["dim"])[index]
    seen = TensorType(type.shape, type.dtype, tuple(meta.stride()))
    return b.view(
        f"{node.name}_{index}", f"{source}.split({_text(b, node, key, args[key])}, {args['dim']})[{index}]", source, seen
    )


def unbind(b: Builder, node: Node, index: int, type: TensorType) -> str:
    """Element `index` along a dimension."""
    args = arguments(node)
    source = args["self"].name
    meta = meta_of(b.type(source)).select(args["dim"], index)
    seen = TensorType(type.shape, type.dtype, tuple(meta.stride()))
    return b.view(f"{node.name}_{index}", f"{source}.select({args['dim']}, {index})", source, seen)


def lookup(b: Builder, node: Node, type: TensorType) -> str:
    """embedding, index_select along 0 and index by one integer tensor along 0."""
    args = arguments(node)
    base = node.op.split(".")[1]
    if base == "embedding":
        table, at = args["weight"].name, args["indices"].name
    elif base == "index_select" and args["dim"] == 0:
        table, at = args["self"].name, args["index"].name
    elif base == "index" and len(args["indices"]) == 1 and args["indices"][0] is not None:
        table, at = args["self"].name, args["indices"][0].name
    else:
        raise NotMine("indexing other than by one integer tensor along the first dimension")
    if "int" not in b.type(at).dtype or base == "index":  # a Python index may be negative; a kernel's may not
        raise NotMine("indexing by a mask or by indices that may be negative")
    return b.unit(node.name, "movement.lookup", [table, at], type)


def gather(b: Builder, node: Node, type: TensorType) -> str:
    args = arguments(node)
    source, at, dim = args["self"].name, args["index"].name, args["dim"] % max(len(type.shape), 1)
    have, index = b.type(source).shape, b.type(at).shape
    if not have or any(h != i for d, (h, i) in enumerate(zip(have, index, strict=True)) if d != dim):
        raise NotMine("gather from a larger tensor")
    return b.unit(node.name, "movement.gather", [source, at], type, extra=(dim,))


def broadcast(b: Builder, node: Node, index: int, type: TensorType) -> str:
    """One tensor of broadcast_tensors, expanded."""
    source: str = node.args[0][index].name
    if b.type(source).shape == type.shape:
        return source
    others = ", ".join(f"{r.name}.shape" for r in node.args[0])
    return b.view(f"{node.name}_{index}", f"{source}.expand(torch.broadcast_shapes({others}))", source, type)
