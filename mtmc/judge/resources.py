"""Registers, stack and loads of a compiled kernel, read from its binary without a GPU."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from mtmc.errors import InfraError

_LOADS = (0x981, 0xFAE)  # LDG and LDGSTS: the low 12 bits of an instruction, from Ampere on
_LOAD_BITS = (8, 8, 16, 16, 32, 64, 128)  # by bits 73 to 75 of the instruction

# A msgpack unsigned integer as it follows its key in a code object's metadata note: one byte, or a marker and 1/2/4 bytes.
_NUMBER = rb"([\x00-\x7f]|\xcc.|\xcd..|\xce....)"


@dataclass(frozen=True)
class Usage:
    """Registers per thread and stack bytes per thread (spills, and arrays that are indexed at run time).

    `load_bits` are the widths of the instructions that load from global memory, in order; empty where they cannot be read.
    """

    registers: int
    stack_bytes: int
    load_bits: tuple[int, ...] = ()


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
    return Usage(int(found[1]), int(found[2]), _load_bits(binary))


def _load_bits(binary: bytes) -> tuple[int, ...]:
    """From the instructions themselves (128 bits each): disassembling costs a quarter of a second, this nothing."""
    found: list[int] = []
    for name, offset, size in _sections(binary):
        if name.startswith(b".text."):
            words = np.frombuffer(binary, dtype="<u8", count=size // 16 * 2, offset=offset).reshape(-1, 2)
            loads = words[np.isin(words[:, 0] & 0xFFF, _LOADS), 1]
            found += [_LOAD_BITS[min(int(code), len(_LOAD_BITS) - 1)] for code in loads >> 9 & 7]
    return tuple(found)


def _sections(binary: bytes) -> list[tuple[bytes, int, int]]:
    """(name, offset, size) of the sections of a 64-bit ELF file (System V ABI, chapter 4)."""
    table = struct.unpack_from("<Q", binary, 0x28)[0]
    size, number, naming = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + index * size) for index in range(number)]
    names = headers[naming][4]
    return [(binary[names + h[0] : binary.index(b"\0", names + h[0])], h[4], h[5]) for h in headers]


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
