"""How far do the exact results move when the inputs move by a rounding?

On inputs far from what a problem is about (`draws.SWAYED`) the reference may be ill-conditioned: where two attention scores
of size 1e5 nearly tie, a change of the inputs by 2⁻²³ decides between them; where sums of like terms cancel, the largest
error is one of few elements and a matter of luck on either side. An error no larger than what such a change does is none of
the kernel's making. It is measured with the oracle, and only once a candidate has failed there:

    inputs · (1 ± 2⁻²³), signs drawn, TRIES times  →  the largest ‖o′ − o‖ / ‖o‖ and the largest |o′ − o| / (1 + |o|)

ROUNDINGS times that is added to the rule's limits. What kernels round is worth so many steps: either operand of a product as
a pair of fp16 has 22 bits (two steps each), the product of the low halves is dropped (two), sums and what is stored between
kernels take the rest. So a candidate may be off as the exact result for inputs of 20 bits is.

Where one step moves the result beyond JUMP no slope was measured but a threshold crossed, and nothing is allowed.
"""

from __future__ import annotations

from mtmc.judge.accuracy import Allowance, Errors, inexact
from mtmc.judge.oracle import Oracle

TRIES = 3
ROUNDINGS = 8
JUMP = 1e-3  # relative norm: half of the digits of fp32, at which `draws` calls a draw useless
NOTE = f"ill-conditioned: {ROUNDINGS} times what a rounding of the inputs changes in the exact results was allowed too"


def allowances(exact: Oracle) -> dict[str, Allowance]:
    """What to add to the rule's limits, by leaf (see `Part.leaves`). Raises NoOracle, for one where memory runs out."""
    tries = [dict[str, Errors]() for _ in range(TRIES)]
    for piece in exact.pieces:
        still = dict(exact.part(piece).leaves())
        for seed, errors in enumerate(tries):
            for name, moved in exact.part(piece, nudge=seed).leaves():
                if inexact(moved) and name in still and moved.shape == still[name].shape:
                    errors.setdefault(name, Errors(name, "float64")).add(moved, still[name], still[name])
    return {name: _allowed([errors[name] for errors in tries if name in errors]) for name in tries[0]}


def _allowed(tries: list[Errors]) -> Allowance:
    if any(errors.candidate_sq > JUMP**2 * errors.oracle_sq for errors in tries):
        return Allowance()
    norm, element = max(e.candidate_error for e in tries), max(e.candidate_scaled for e in tries)
    return Allowance(ROUNDINGS * norm, ROUNDINGS * element)
