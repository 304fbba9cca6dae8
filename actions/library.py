"""library: a product is given back to PyTorch (cuBLAS)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.library_functions import without_dead
from mtmc.errors import check
from mtmc.program import Program


class Library(Rule):
    """Legal for a product that nothing was fused into."""

    kind = "library"
    family = "library"

    def propose(self, context: Context) -> Iterator[Action]:
        for unit in context.units:
            if context.template(unit.name).startswith("contraction.") and len(context.calls(unit.name)) == 1:
                yield self.action(unit.name, f"Give {unit.name} back to PyTorch's matrix product.")

    def apply(self, context: Context, action: Action) -> Program:
        calls, host = context.calls(action.region), context.host(action.region)
        check(host is not None and host.kwargs["template"].startswith("contraction."), "not a product")
        assert host is not None
        plain = len(calls) == 1 and calls[0].targets == (action.region,) and calls[0].args == host.inputs
        check(plain, "something is fused into the product")
        given = replace(calls[0], launcher="torch.ops.aten.matmul.default")
        return without_dead(context.program.replace("ModelNew", context.forward.with_calls({given.line: given})))
