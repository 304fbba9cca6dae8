"""Device functions that programs bring in whole: elementwise formulas and the finishing step of reductions.

Each is written once here, tested against PyTorch, and recognised in a program by the hash of its text. Values are in the compute
type (float32 for 16-bit data), formulas are those of `torch.nn.functional`.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def op_relu(x):
    """max(x, 0), NaN kept."""
    return tl.where(x < 0, 0.0, x)


@triton.jit
def op_leaky_relu(x, negative_slope):
    """x for x > 0, else negative_slope * x."""
    return tl.where(x > 0, x, x * negative_slope)


@triton.jit
def op_sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def op_tanh(x):
    """op_tanh(x)."""
    return libdevice.tanh(x)


@triton.jit
def op_silu(x):
    """x * sigmoid(x)."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def op_gelu(x):
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def op_gelu_tanh(x):
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    return 0.5 * x * (1.0 + op_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@triton.jit
def op_exp(x):
    """op_exp(x) to 1 ulp; `tl.exp` loses bits as |x| grows."""
    return libdevice.exp(x)


@triton.jit
def op_expm1(x):
    """exp(x) - 1 without cancellation."""
    return libdevice.expm1(x)


@triton.jit
def op_log1p(x):
    """log(1 + x) without cancellation."""
    return libdevice.log1p(x)


@triton.jit
def op_elu(x, alpha, scale, input_scale):
    """scale * x for x > 0, else scale * alpha * (exp(input_scale * x) - 1)."""
    return tl.where(x > 0, x * scale, op_expm1(x * input_scale) * (alpha * scale))


@triton.jit
def op_softplus(x, beta, threshold):
    """log(1 + exp(beta * x)) / beta, x where beta * x > threshold."""
    z = x * beta
    return tl.where(z > threshold, x, op_log1p(tl.exp(z)) / beta)


@triton.jit
def op_hardtanh(x, low, high):
    """x clipped to [low, high], NaN kept."""
    return tl.where(x < low, low, tl.where(x > high, high, x))


@triton.jit
def op_clamp_min(x, low):
    """x, at least low; NaN kept."""
    return tl.where(x < low, low, x)


@triton.jit
def op_clamp_max(x, high):
    """x, at most high; NaN kept."""
    return tl.where(x > high, high, x)


@triton.jit
def op_hardsigmoid(x):
    """min(max(x + 3, 0), 6) / 6."""
    return op_hardtanh(x + 3.0, 0.0, 6.0) / 6.0


@triton.jit
def op_hardswish(x):
    """x * hardsigmoid(x)."""
    return x * op_hardtanh(x + 3.0, 0.0, 6.0) / 6.0


@triton.jit
def op_mish(x):
    """x * tanh(softplus(x)) = x * n / (n + 2) with n = e^x (e^x + 2)."""
    e = tl.exp(tl.minimum(x, 20.0))
    n = e * (e + 2.0)
    return tl.where(x > 20.0, x, x * (n / (n + 2.0)))


@triton.jit
def op_log_sigmoid(x):
    """min(x, 0) - log(1 + exp(-|x|))."""
    return tl.minimum(x, 0.0) - op_log1p(tl.exp(-tl.abs(x)))


@triton.jit
def op_smooth_l1(d, beta):
    """d^2 / (2 beta) for |d| < beta, else |d| - beta / 2."""
    magnitude = tl.abs(d)
    return tl.where(magnitude < beta, 0.5 * d * d / beta, magnitude - 0.5 * beta)


@triton.jit
def op_huber(d, delta):
    """d^2 / 2 for |d| <= delta, else delta * (|d| - delta / 2)."""
    magnitude = tl.abs(d)
    return tl.where(magnitude <= delta, 0.5 * d * d, delta * (magnitude - 0.5 * delta))


@triton.jit
def op_xlogx_minus(t, x):
    """t * log t - t * x, t * log t being 0 where t is: one term of the Kullback-Leibler divergence."""
    return tl.where(t == 0, 0.0, t * tl.log(t)) - t * x


@triton.jit
def op_power(x, exponent):
    """x ** exponent; NaN for negative x unless the exponent is whole."""
    return libdevice.pow(x, exponent)


@triton.jit
def op_sign(x):
    """-1, 0 or 1."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def op_nan_maximum(a, b):
    """max(a, b), NaN where either is NaN."""
    return tl.where((a != a) | (a > b), a, b)


@triton.jit
def op_nan_minimum(a, b):
    """min(a, b), NaN where either is NaN."""
    return tl.where((a != a) | (a < b), a, b)


@triton.jit
def op_add(acc, lost, x):
    """acc + x and the rounding error that the next step gives back (Kahan 1965); an infinite sum loses nothing."""
    y = x - lost
    total = acc + y
    rest = (total - acc) - y
    return total, tl.where(rest == rest, rest, 0.0)


@triton.jit
def op_add_finite(acc, lost, x):
    """acc + x with what rounding lost, for what is finite; an infinite sum becomes NaN, as the variance of such data is."""
    y = x - lost
    total = acc + y
    return total, (total - acc) - y


@triton.jit
def op_lane_moments(pivot, total, lost, squares, n):
    """Mean, count and squared deviations of each lane over its part of n elements: `total`, less `lost`, sums x - pivot, `squares` its squares."""
    lanes: tl.constexpr = total.shape[0]
    lane = tl.arange(0, lanes)
    if len(total.shape) == 2:
        lane = lane[:, None]
    count = ((n + lanes - 1 - lane) // lanes).to(total.dtype)
    mean = (tl.fma(pivot, count, total) - lost) / count  # rounded once, also where the pivot is far larger than the mean
    total -= lost
    rest = squares - total * (total / count)
    return tl.where(count > 0, mean, 0.0), count, tl.where((count > 0) & (rest > 0), rest, 0.0)


@triton.jit
def op_count(acc, lost, x):
    """acc + x of integers."""
    return acc + x, lost


@triton.jit
def op_keep_product(acc, lost, x):
    """acc * x."""
    return acc * x, lost


@triton.jit
def op_keep_max(acc, lost, x):
    """max(acc, x), NaN where either is NaN."""
    return op_nan_maximum(acc, x), lost


@triton.jit
def op_keep_min(acc, lost, x):
    """min(acc, x), NaN where either is NaN."""
    return op_nan_minimum(acc, x), lost


@triton.jit
def op_multiply(a, b):
    """a * b."""
    return a * b


@triton.jit
def op_sum_over(acc):
    """Sum over axis 0."""
    return tl.sum(acc, axis=0)


@triton.jit
def op_prod_over(acc):
    """Product over axis 0."""
    return tl.reduce(acc, 0, op_multiply)


@triton.jit
def op_sum_along(x):
    """Running sums along axis 0."""
    return tl.cumsum(x, axis=0)


@triton.jit
def op_prod_along(x):
    """Running products along axis 0."""
    return tl.cumprod(x, axis=0)


@triton.jit
def op_sum_along_back(x):
    """Running sums along axis 0, from its end."""
    return tl.cumsum(x, axis=0, reverse=True)


@triton.jit
def op_prod_along_back(x):
    """Running products along axis 0, from its end."""
    return tl.cumprod(x, axis=0, reverse=True)


@triton.jit
def op_max_over(acc):
    """Maximum over axis 0, NaN when one is there."""
    nans = tl.sum((acc != acc).to(tl.int32), axis=0)
    return tl.where(nans > 0, float("nan"), tl.max(acc, axis=0))


@triton.jit
def op_min_over(acc):
    """Minimum over axis 0, NaN when one is there."""
    nans = tl.sum((acc != acc).to(tl.int32), axis=0)
    return tl.where(nans > 0, float("nan"), tl.min(acc, axis=0))


@triton.jit
def op_first_index_of(values, indices, best):
    """Smallest of `indices` (axis 0) at which `values` equals `best`, or is NaN where `best` is."""
    return tl.min(tl.where((values == best[None]) | (values != values), indices, 0x7FFFFFFFFFFFFFFF), axis=0)


@triton.jit
def op_greater(a, b):
    """a > b; NaN counts as the largest."""
    return (a > b) | ((a != a) & (b == b))


@triton.jit
def op_less(a, b):
    """a < b; NaN counts as the smallest."""
    return (a < b) | ((a != a) & (b == b))
