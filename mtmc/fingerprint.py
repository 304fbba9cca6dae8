"""Fingerprints of graphs: when two models are the same computation, whatever their files look like.

`structure` sees operators and wiring only: no sizes, numbers, dtypes, and no operator that only views or copies. `exact`
sees all of it. Both follow the values back from the results, so the order of independent statements, names and dead code
do not count. Inputs and parameters are numbered as they are met.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from mtmc.graph import Graph, Node, Ref, bare

VIEWS = frozenset(
    "view _unsafe_view reshape flatten squeeze unsqueeze expand expand_as alias contiguous clone detach "
    "_to_copy to view_as lift_fresh_copy".split()
)
"""ATen names (without overload) of operators that move or convert but compute nothing."""


def structure(graph: Graph) -> str:
    """Hash (16 hex digits) of the operators and how they are wired."""
    return _Reader(graph, False).read()


def exact(graph: Graph) -> str:
    """Hash (16 hex digits) of everything: operators, wiring, shapes, dtypes and numbers."""
    return _Reader(graph, True).read()


@dataclass
class _Reader:
    """Writes the graph down from its results backwards, each value once, and hashes the text."""

    graph: Graph
    whole: bool
    lines: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def read(self) -> str:
        self.nodes = {node.name: node for node in self.graph.nodes}
        results = self._said(self.graph.output)
        changed = [self._value(name) for _, name in sorted(self.graph.mutations.items())]
        text = "\n".join([*self.lines, f"results {results}", f"changed {changed}"])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _value(self, name: str) -> str:
        """The number of a value, after those that it is computed from; deep graphs need no deep recursion."""
        pending = [name]
        while pending:
            node = self.nodes[pending[-1]]
            missing = [entry for entry in node.inputs if entry not in self.names]
            if missing and node.name not in self.names:
                pending.append(missing[0])
            else:
                pending.pop()
                self.names.setdefault(node.name, self._written(node))
        return self.names[name]

    def _written(self, node: Node) -> str:
        base = bare(node.op)
        if not self.whole and base in VIEWS and node.inputs:
            return self.names[node.inputs[0]]
        op = node.op if self.whole else base
        parts = [op, self._said(node.args), self._said(node.kwargs)]
        if self.whole and node.type:
            parts += [str(node.type.shape), node.type.dtype]
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} {' '.join(parts)}")
        return name

    def _said(self, value: Any) -> str:
        """An argument as text: references by number; numbers, dtypes and the like only where they count."""
        if isinstance(value, Ref):
            return self.names.get(value.name) or self._value(value.name)
        if isinstance(value, (tuple, list)):
            return f"({','.join(filter(None, map(self._said, value)))})"
        if isinstance(value, dict):
            return self._said([item for _, item in sorted(value.items())])
        return repr(value) if self.whole or isinstance(value, str) else ""
