"""Small Triton kernels with many tile variants each: what the time model is calibrated with and tested on."""

import triton
import triton.language as tl


@triton.jit
def empty_kernel(x_ptr):
    pass


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=mask), mask=mask)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    y = tl.load(y_ptr + index, mask=mask)
    tl.store(out_ptr + index, x + y, mask=mask)


@triton.jit
def sigmoid_kernel(x_ptr, out_ptr, n, REPEAT: tl.constexpr, BLOCK: tl.constexpr):
    """`REPEAT` sigmoids in a row: bound by the special-function unit when there are many."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    for _ in tl.static_range(REPEAT):
        x = tl.sigmoid(x)
    tl.store(out_ptr + index, x, mask=mask)


@triton.jit
def fma_kernel(x_ptr, out_ptr, n, REPEAT: tl.constexpr, BLOCK: tl.constexpr):
    """`REPEAT` × 8 dependent multiply-adds an element."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    for _ in range(REPEAT):
        for _ in tl.static_range(8):
            x = x * 1.0001 + 0.5
    tl.store(out_ptr + index, x, mask=mask)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    """Softmax of one row a program, three passes over the row."""
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, cols, BLOCK):
        red = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.load(x_ptr + row * cols + red, mask=red < cols, other=float("-inf")))
    high = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        red = start + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(x_ptr + row * cols + red, mask=red < cols, other=float("-inf")) - high)
    scale = tl.sum(total, 0)
    for start in range(0, cols, BLOCK):
        red = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + red, mask=red < cols, other=float("-inf"))
        tl.store(out_ptr + row * cols + red, tl.exp(x - high) / scale, mask=red < cols)


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum over the contiguous axis, `ROWS` rows a program."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, cols, BLOCK):
        red = start + tl.arange(0, BLOCK)[None, :]
        total += tl.load(x_ptr + row * cols + red, mask=(row < rows) & (red < cols), other=0.0)
    index = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(out_ptr + index, tl.sum(total, 1), mask=index < rows)


@triton.jit
def middle_sum_kernel(x_ptr, out_ptr, depth, cols, RED: tl.constexpr, COLS: tl.constexpr):
    """Sum of [batch, depth, cols] over depth; program (column tile, batch)."""
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    base = tl.program_id(1).to(tl.int64) * depth * cols
    total = tl.zeros((RED, COLS), tl.float32)
    for start in range(0, depth, RED):
        red = start + tl.arange(0, RED)[:, None]
        mask = (red < depth) & (col[None, :] < cols)
        total += tl.load(x_ptr + base + red * cols + col[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + tl.program_id(1) * cols + col, tl.sum(total, 0), mask=col < cols)


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    mask = (row < rows) & (col < cols)
    tl.store(out_ptr + col * rows + row, tl.load(x_ptr + row * cols + col, mask=mask), mask=mask)


@triton.jit
def divmod_kernel(x_ptr, y_ptr, out_ptr, n, inner, outer, BLOCK: tl.constexpr):  # noqa: PLR0913
    """x[i] + y[channel] with the channel found by division: NCHW bias."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    channel = index // inner % outer
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=mask) + tl.load(y_ptr + channel, mask=mask), mask=mask)


@triton.jit
def matmul_kernel(  # noqa: PLR0913
    a_ptr, b_ptr, out_ptr, M, N, K, a_row, a_col, b_row, b_col,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out = a @ b, row-major out, programs in groups of `GROUP` row tiles."""
    pid = tl.program_id(0)
    row_tiles = tl.cdiv(M, BM)
    col_tiles = tl.cdiv(N, BN)
    first = pid // (GROUP * col_tiles) * GROUP
    height = min(row_tiles - first, GROUP)
    row = (first + pid % (GROUP * col_tiles) % height) * BM + tl.arange(0, BM)[:, None]
    col = (pid % (GROUP * col_tiles) // height) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        red = start + tl.arange(0, BK)
        a = tl.load(a_ptr + row * a_row + red[None, :] * a_col, mask=(row < M) & (red[None, :] < K), other=0.0)
        b = tl.load(b_ptr + red[:, None] * b_row + col * b_col, mask=(red[:, None] < K) & (col < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    tl.store(out_ptr + row * N + col, acc.to(out_ptr.dtype.element_ty), mask=(row < M) & (col < N))


@triton.jit
def reread_kernel(x_ptr, out_ptr, size, repeats, BLOCK: tl.constexpr):
    """Reads blocks of the first `size` elements over and over, every program from its own start: L2 bandwidth."""
    total = tl.zeros((BLOCK,), tl.float32)
    start = tl.program_id(0) * BLOCK
    for step in range(repeats):
        index = (start + step * BLOCK * 37) % size + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + index)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))
