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


@triton.jit
def combine_moments_kernel(means_ptr, vars_ptr, mean_ptr, var_ptr, length, chunk, PARTS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS).to(tl.int64)
    count = tl.minimum(length, (part + 1) * chunk) - tl.minimum(length, part * chunk)
    count = count.to(tl.float32)
    means = tl.where(count > 0, tl.load(means_ptr + row * PARTS + part), 0.0)
    squares = tl.where(count > 0, tl.load(vars_ptr + row * PARTS + part) * count, 0.0)
    mean = tl.sum(means * count, axis=0) / length
    total = tl.sum(squares + count * (means - mean) * (means - mean), axis=0)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, total / length)


def launch_combine_moments(means, variances, mean, var, length, chunk):
    """Mean and biased variance of rows of `length` elements from those of parts of `chunk` (the last ones shorter or empty)."""
    parts = means.shape[1]
    combine_moments_kernel[(mean.numel(),)](means, variances, mean, var, length, chunk, PARTS=parts, num_warps=4)
    return mean, var


@triton.jit
def combine_products_kernel(partial_ptr, out_ptr, numel, PARTS, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    acc = tl.zeros((BLOCK,), tl.float32)
    for part in range(0, PARTS):
        acc += tl.load(partial_ptr + tl.cast(part, tl.int64) * numel + index, mask=mask)
    tl.store(out_ptr + index, acc, mask=mask)


def launch_combine_products(partial, out):
    """out = sum of partial[part] over the parts, in order."""
    numel = out.numel()
    grid = (triton.cdiv(numel, 256),)
    combine_products_kernel[grid](partial, out, numel, partial.shape[0], BLOCK=256, num_warps=4)
    return out
