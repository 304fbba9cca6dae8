"""Second step of a split reduction: the parts of each result, in one tile, in a fixed order (so results repeat bit for bit)."""

import triton
import triton.language as tl


@triton.jit
def combine_add_kernel(partial_ptr, out_ptr, PARTS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    parts = tl.load(partial_ptr + row * PARTS + tl.arange(0, PARTS))
    tl.store(out_ptr + row, tl.sum(parts, axis=0))


def launch_combine_add(partial, out):
    """out[i] = sum of partial[i, :]; the number of parts is a power of two."""
    combine_add_kernel[(out.numel(),)](partial, out, PARTS=partial.shape[1], num_warps=4)
    return out
