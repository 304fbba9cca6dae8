"""The actions: one ordered table of rules, one module a kind.

A new one is a class (see `context.Rule`), a line in the table, and an example.
"""

from __future__ import annotations

from mtmc.action import Action
from mtmc.actions.context import Context, Rule
from mtmc.actions.dot_precision import DotPrecision
from mtmc.actions.eviction import Eviction
from mtmc.actions.fuse_epilogue import FuseEpilogue
from mtmc.actions.fuse_prologue import OTHERS, FusePrologue
from mtmc.actions.fuse_second_pass import FuseSecondPass
from mtmc.actions.fuse_siblings import FuseSiblings
from mtmc.actions.guest import REDUCING
from mtmc.actions.library import Library
from mtmc.actions.loop_stages import LoopStages
from mtmc.actions.merge_passes import MergePasses
from mtmc.actions.product_tile import ProductTile
from mtmc.actions.repair_mask import RepairMask
from mtmc.actions.repair_shared import RepairShared
from mtmc.actions.repair_spill import RepairSpill
from mtmc.actions.repair_sum import RepairSum
from mtmc.actions.single_block import SingleBlock
from mtmc.actions.split_attention import SplitAttention
from mtmc.actions.split_fp16 import SplitFp16
from mtmc.actions.split_k import SplitK
from mtmc.actions.split_reduction import SplitReduction
from mtmc.actions.stages import Stages
from mtmc.actions.swizzle import Swizzle
from mtmc.actions.tensor_descriptors import TensorDescriptors
from mtmc.actions.tile_shape import TileShape
from mtmc.actions.tile_size import TileSize
from mtmc.actions.unroll import Unroll
from mtmc.actions.warps import Warps
from mtmc.errors import Illegal
from mtmc.program import Program
from mtmc.verdict import Verdict

__all__ = ["RULES", "STOP", "Context", "apply", "propose"]

# Order is the order in which a policy without an opinion sees them: structure first, then arithmetic, then sizes.
RULES: tuple[Rule, ...] = (
    FusePrologue(REDUCING),
    FuseEpilogue(),
    FusePrologue(OTHERS),
    FuseSecondPass(),
    FuseSiblings(),
    MergePasses(),
    SplitFp16(),
    SplitAttention(),
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
    TileShape(),
    Library(),
    RepairShared(),
    RepairSpill(),
    RepairMask(),
    RepairSum(),
)
STOP = Action("stop", "stop", "model", (), "Stop: keep the program as it is.")


def propose(context: Context, verdict: Verdict) -> tuple[Action, ...]:
    """Every action that looks legal, repairs of the verdict first, STOP last. `apply` may still refuse one."""
    repairs = [action for rule in RULES for action in rule.answer(context, verdict)]
    return (*repairs, *(action for rule in RULES for action in rule.propose(context)), STOP)


def apply(context: Context, action: Action) -> Program:
    """The edited program. Raises Illegal, also for a kind that is not in the table (which it then lists)."""
    by_kind = {rule.kind: rule for rule in RULES}
    if action.kind not in by_kind:
        raise Illegal(f"no rule {action.kind}; there are {', '.join(by_kind)}")
    return by_kind[action.kind].apply(context, action)
