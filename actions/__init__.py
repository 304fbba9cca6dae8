"""The actions: one ordered table of rules. A new one is a class (see `context.Rule`) and a line in the table."""

from __future__ import annotations

from collections.abc import Iterator

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.fusion import FuseEpilogue, FusePrologue, FuseSecondPass
from mtmc.actions.memory import Eviction, LoopOrder
from mtmc.actions.passes import MergePasses, SingleBlock
from mtmc.actions.pipeline import LoopStages, Stages, Unroll
from mtmc.actions.preset import ProductTile
from mtmc.actions.product import Library, SplitFp16, Swizzle, TensorDescriptors
from mtmc.actions.repair import RepairMask, RepairResources, repairs
from mtmc.actions.split import SplitK, SplitReduction
from mtmc.actions.tile import DotPrecision, TileSize, Warps
from mtmc.errors import Illegal
from mtmc.program import Program
from mtmc.verdict import Verdict

__all__ = ["RULES", "STOP", "Context", "apply", "propose"]

# Order is the order in which a policy without an opinion sees them: structure first, then arithmetic, then sizes.
RULES: tuple[Rule, ...] = (
    FuseEpilogue(),
    FusePrologue(),
    FuseSecondPass(),
    MergePasses(),
    SplitFp16(),
    DotPrecision(),
    SplitReduction(),
    SplitK(),
    SingleBlock(),
    TensorDescriptors(),
    ProductTile(),
    TileSize(),
    Warps(),
    Stages(),
    LoopStages(),
    Unroll(),
    Swizzle(),
    Eviction(),
    LoopOrder(),
    Library(),
    RepairResources("repair_shared"),
    RepairResources("repair_spill"),
    RepairMask(),
)
STOP = Action("stop", "stop", "model", (), "Stop: keep the program as it is.")


def propose(context: Context, verdict: Verdict) -> tuple[Action, ...]:
    """Every action that looks legal, repairs of the verdict first, STOP last. `apply` may still refuse one."""

    def found() -> Iterator[Action]:
        yield from repairs(context, verdict)
        for rule in RULES:
            yield from rule.propose(context)

    return (*found(), STOP)


def apply(context: Context, action: Action) -> Program:
    """The edited program. Raises Illegal, also for a kind that is not in the table (which it then lists)."""
    by_kind = {rule.kind: rule for rule in RULES}
    if action.kind not in by_kind:
        raise Illegal(f"no rule {action.kind}; there are {', '.join(by_kind)}")
    return by_kind[action.kind].apply(context, action)
