"""Triton's interpreter made fit to judge with: repaired where it is wrong, and watching every memory access.

    TRITON_INTERPRET=1 python -c "from mtmc.judge.interpreter import install; install(); import candidate; …"

Call `install()` before the candidate is imported, in a process of its own: a kernel decorated under the interpreter cannot
be compiled, and the interpreter reads and writes real memory. What is repaired (Triton 3.6 and 3.7):

- sizes as loop bounds under numpy 2.4 and later; device functions no longer patch `tl` again at every call
- bfloat16 arithmetic, dots, casts and atomics (rounded to nearest even after every operation); float8 casts
- dot precisions: tf32 rounds its operands, tf32x3 / bf16x3 / bf16x6 split them as the hardware path does
- `tl.device_assert` raises; libdevice is computed by numpy and torch; an autotuner takes its first configuration
- custom `tl.reduce` and `tl.associative_scan` take log₂(n) steps over whole blocks, not n

Integer overflow wraps silently, as on a GPU without `debug=True`.

What is checked: each access lies inside the tensor its pointer came from (`OutOfBounds`), and programs of one launch do not
race (`Race`). An address that was loaded from memory belongs to no tensor and counts as out of bounds.
"""

from __future__ import annotations

import os

from mtmc.errors import InfraError


class OutOfBounds(RuntimeError):
    """A load, store or atomic outside the tensor that its pointer came from."""


class Race(RuntimeError):
    """Two programs touch one element, one of them stores, and no atomic orders them; or the lanes of one store differ."""


class DeviceAssert(RuntimeError):
    """A `tl.device_assert` failed."""


def install(*, round_tf32: bool = True) -> None:
    """Repairs and watches the interpreter of this process, once. Raises InfraError unless TRITON_INTERPRET is 1.

    `round_tf32` False computes tf32 dots in fp32, as a GPU without tf32 does.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise InfraError("the repaired interpreter needs TRITON_INTERPRET=1 in its process's environment")
    from mtmc.judge.interpreter_launch import replace_parts

    replace_parts(round_tf32)
