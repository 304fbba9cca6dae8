"""The form of what a model takes and returns: nested tuples, lists, dicts and dataclasses around leaves.

A form is compared by what a caller can do with the result. Dataclasses and dicts need the same names, in any order; a
dataclass of the candidate's own file counts by its name alone. A plain tuple of the same length may stand for a named one
(`torch.max(x, dim)` returned whole is one in eager), because exported programs have only plain ones; a list may not stand
for a tuple. What is none of these is a leaf: tensors, numbers, None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from operator import itemgetter
from typing import Any


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves, in the order of the tuple or of the sorted names."""
    for _, child in _children(tree):
        yield from leaves(child)
    if _kind(tree) == "leaf":
        yield tree


def named(result: Any, buffers: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Everything of a call that is compared by value, with the name it has in messages."""
    found = list(leaves(result))
    yield from ((f"output {i}" if len(found) > 1 else "output", leaf) for i, leaf in enumerate(found))
    yield from ((f"buffer {name}", buffer) for name, buffer in buffers.items())


def skeleton(tree: Any) -> str:
    """The form as text: `tuple(leaf, dict(a=leaf))`."""
    kind = _kind(tree)
    if kind == "leaf":
        return kind
    inner = ", ".join(f"{name}={skeleton(child)}" if name else skeleton(child) for name, child in _children(tree))
    return f"{kind}({inner})"


def _kind(tree: Any) -> str:
    if isinstance(tree, Mapping):
        return "dict"
    if is_dataclass(tree) and not isinstance(tree, type):
        return type(tree).__name__
    if isinstance(tree, list):
        return "list"
    return "tuple" if isinstance(tree, tuple) else "leaf"


def _children(tree: Any) -> list[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        return sorted(((str(key), value) for key, value in tree.items()), key=itemgetter(0))
    if is_dataclass(tree) and not isinstance(tree, type):
        return sorted(((field.name, getattr(tree, field.name)) for field in fields(tree)), key=itemgetter(0))
    return [("", child) for child in tree] if isinstance(tree, (list, tuple)) else []
