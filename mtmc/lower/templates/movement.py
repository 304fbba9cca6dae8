"""Data movement: strided copies (permute, expand, slice made contiguous; parts of a concatenation) and lookups by index.

An index out of range never reads foreign memory; with device assertions compiled in it is reported.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, d1, d2, d3, d4, x0, x1, x2, x3, x4, y0, y1, y2, y3, y4, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(d4, BLOCK)
    tiles = tl.cdiv(d3, ROWS) * blocks
    lead = (tl.program_id(0) // tiles).to(tl.int64)
    tile = (tl.program_id(0) % tiles).to(tl.int64)
    i0 = lead // (d1 * d2)
    i1 = lead // d2 % d1
    i2 = lead % d2
    row = (tile // blocks * ROWS + tl.arange(0, ROWS))[:, None]
    col = (tile % blocks * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = (row < d3) & (col < d4)
    x = tl.load(x_ptr + (i0 * x0 + i1 * x1 + i2 * x2) + row * x3 + col * x4, mask=mask)
    tl.store(out_ptr + (i0 * y0 + i1 * y1 + i2 * y2) + row * y3 + col * y4, x, mask=mask)


def copy_into(x, out):
    """Copies x to out, both of one shape with at most five dimensions and any strides.

    Columns of a tile are what lies together in out; rows what lies together in x, or else the longest extent.
    """
    if x.numel() == 0:
        return out
    walk = []  # size, stride in x, stride in out of each extent, those that are one in both joined
    for size, own, other in sorted(zip(x.shape, x.stride(), out.stride(), strict=True), key=lambda extent: -extent[2]):
        if walk and walk[-1][1:] == (own * size, other * size):
            walk[-1] = (walk[-1][0] * size, own, other)
        elif size != 1:
            walk.append((size, own, other))
    walk = [(1, 0, 0)] * (5 - len(walk)) + walk
    turned = [extent for extent in walk if extent[0] > 1 and extent[1] < walk[4][1]]
    rows = min(turned, key=lambda extent: extent[1]) if turned else max(walk[:4], key=lambda extent: extent[0])
    walk.remove(rows)
    walk.insert(3, rows)
    (d0, d1, d2, d3, d4), x_strides, out_strides = zip(*walk, strict=True)
    BLOCK = min(64 if turned else 2048, triton.next_power_of_2(d4))
    ROWS = min(2048 // BLOCK, triton.next_power_of_2(d3))
    grid = (d0 * d1 * d2 * triton.cdiv(d3, ROWS) * triton.cdiv(d4, BLOCK),)
    copy_kernel[grid](x, out, d1, d2, d3, d4, *x_strides, *out_strides, ROWS=ROWS, BLOCK=BLOCK, num_warps=4)
    return out


def launch_copy(x):
    """A row-major copy of x."""
    return copy_into(x, torch.empty(x.shape, dtype=x.dtype, device=x.device))


def launch_restride(x, order):
    """A dense copy of x whose dimensions lie in memory in the given order, the fastest last."""
    return copy_into(x, torch.empty_permuted(x.shape, order, dtype=x.dtype, device=x.device))


def launch_cat(tensors, dim):
    """Concatenation along dim, one copy a part."""
    shape = list(tensors[0].shape)
    shape[dim] = sum(t.shape[dim] for t in tensors)
    out = torch.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)
    start = 0
    for part in tensors:
        copy_into(part, out.narrow(dim, start, part.shape[dim]))
        start += part.shape[dim]
    return out


@triton.jit
def lookup_kernel(operand_ptr, at_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    blocks = tl.cdiv(cols, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    col = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    mask = col < cols
    at = tl.load(at_ptr + row).to(tl.int64)
    tl.device_assert((at >= 0) & (at < rows), "an index is out of range")
    value = tl.load(operand_ptr + at * cols + col, mask=mask & (at >= 0) & (at < rows))
    index = row * cols + col
    tl.store(out_ptr + index, value, mask=mask)


def launch_lookup(operand, at):
    """operand[at]: rows of a table by an integer tensor of any shape (embedding, index along the first dimension)."""
    cols = operand.numel() // operand.shape[0]
    out = torch.empty((*at.shape, *operand.shape[1:]), dtype=operand.dtype, device=operand.device)
    BLOCK = 256
    grid = (at.numel() * triton.cdiv(cols, BLOCK),)
    lookup_kernel[grid](operand, at, out, operand.shape[0], cols, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def gather_kernel(operand_ptr, at_ptr, out_ptr, taken, reds, cols, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    row = index // (tl.cast(taken, tl.int64) * cols)
    col = index % cols
    at = tl.load(at_ptr + index, mask=mask, other=0).to(tl.int64)
    tl.device_assert((at >= 0) & (at < reds), "an index is out of range")
    value = tl.load(operand_ptr + (row * reds + at) * cols + col, mask=mask & (at >= 0) & (at < reds))
    tl.store(out_ptr + index, value, mask=mask)


def launch_gather(operand, at, dim):
    """torch.gather where at has operand's shape except along dim: out[r, t, c] = operand[r, at[r, t, c], c]."""
    out = torch.empty(at.shape, dtype=operand.dtype, device=operand.device)
    cols = at.stride(dim)
    numel = out.numel()
    BLOCK = 256
    grid = (triton.cdiv(numel, BLOCK),)
    gather_kernel[grid](operand, at, out, at.shape[dim], operand.shape[dim], cols, numel, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out


@triton.jit
def flip_kernel(operand_ptr, out_ptr, reds, cols, numel, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < numel
    red = index // cols % reds
    value = tl.load(operand_ptr + index + (reds - 1 - 2 * red) * cols, mask=mask)
    tl.store(out_ptr + index, value, mask=mask)


def launch_flip(operand, dim):
    """operand turned around along one dimension: out[r, i, c] = operand[r, n - 1 - i, c]."""
    out = torch.empty_like(operand)
    numel = out.numel()
    BLOCK = 256
    grid = (triton.cdiv(numel, BLOCK),)
    flip_kernel[grid](operand, out, operand.shape[dim], operand.stride(dim), numel, BLOCK=BLOCK, num_warps=1, num_stages=1)
    return out
