"""Registers and stack of a compiled kernel, read from its binary without a GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mtmc.errors import InfraError

# A msgpack unsigned integer as it follows its key in a code object's metadata note: one byte, or a marker and 1/2/4 bytes.
_NUMBER = rb"([\x00-\x7f]|\xcc.|\xcd..|\xce....)"


@dataclass(frozen=True)
class Usage:
    """Registers per thread and stack bytes per thread (spills, and arrays that are indexed at run time)."""

    registers: int
    stack_bytes: int


@lru_cache(maxsize=4096)
def usage(binary: bytes, backend: str) -> Usage:
    """Resources of one cubin (`backend` "cuda") or hsaco ("hip"); the same binary is read once a process.

    Raises InfraError when the binary or the reading tool is not what is expected.
    """
    return _READERS[backend](binary)


def _cubin(binary: bytes) -> Usage:
    """By `cuobjdump --dump-resource-usage`, which Triton brings along."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        ran = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=False)
    found = re.search(r"REG:(\d+) STACK:(\d+)", ran.stdout)
    if not found:
        raise InfraError(f"cuobjdump gave no resource usage: {ran.stderr.strip() or ran.stdout.strip()}")
    return Usage(int(found[1]), int(found[2]))


def _hsaco(binary: bytes) -> Usage:
    """By the metadata note (AMDGPU code object V5): vector registers and the private segment."""
    return Usage(_note(binary, b".vgpr_count"), _note(binary, b".private_segment_fixed_size"))


def _note(binary: bytes, key: bytes) -> int:
    found = re.search(re.escape(key) + _NUMBER, binary, re.DOTALL)
    if not found:
        raise InfraError(f"the code object's metadata has no {key.decode()}")
    digits = found[1]
    return int.from_bytes(digits if len(digits) == 1 else digits[1:], "big")


_READERS = {"cuda": _cubin, "hip": _hsaco}
