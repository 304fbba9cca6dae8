"""Landlock (Linux 5.13 and later): a process gives up rights over files, sockets and other processes, for good.

Needs no privilege, is inherited by children and cannot be undone. Numbers from the kernel's `include/uapi/linux/landlock.h`;
https://docs.kernel.org/userspace-api/landlock.html. What an older kernel does not know is left out.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CREATE, ADD_RULE, RESTRICT = 444, 445, 446  # system calls, the same on every architecture
PATH_BENEATH, VERSION_FLAG, NO_NEW_PRIVS = 1, 1, 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE  # rights that make sense for something other than a folder
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}  # by version; later rights over files are not used
TCP, TCP_FROM = 0b11, 4  # bind and connect
SCOPES, SCOPES_FROM = 0b11, 6  # abstract sockets and signals


def version() -> int:
    """The kernel's Landlock version, 0 without."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(CREATE, None, ctypes.c_size_t(0), VERSION_FLAG)))


def restrict(readable: Iterable[Path], writable: Iterable[Path], usable: Iterable[Path] = (), network: bool = True) -> None:
    """From now on: read and execute only below `readable`, everything below `writable`, existing files below `usable`.

    No signals, no tracing and no abstract sockets to processes outside; without `network` no TCP. Raises OSError where the
    kernel refuses; paths that do not exist are skipped.
    """
    known = version()
    rights = RIGHTS[min(known, max(RIGHTS))]
    tcp = TCP if known >= TCP_FROM and not network else 0
    scopes = SCOPES if known >= SCOPES_FROM else 0
    attributes = struct.pack("QQQ", rights, tcp, scopes)[: 24 if known >= SCOPES_FROM else 16 if known >= TCP_FROM else 8]
    ruleset = _call(CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    for paths, allowed in ((readable, READ), (writable, rights), (usable, READ | WRITE_FILE | TRUNCATE)):
        for path in paths:
            with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                _allow(ruleset, path, allowed & rights)
    _libc().prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    _call(RESTRICT, ruleset, 0)
    os.close(ruleset)


def everything_but(hidden: Path) -> list[Path]:
    """Paths that cover the file system as it is now, except what lies below `hidden`; later neighbours of it are not."""
    found: list[Path] = []
    for folder, kept in zip(reversed(hidden.parents), [*reversed(hidden.parents)][1:] + [hidden], strict=True):
        with suppress(PermissionError):
            found += [path for path in folder.iterdir() if path != kept and not path.is_symlink()]
    return found


def _allow(ruleset: int, path: Path, allowed: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            allowed &= OF_FILES
        _call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", allowed, fd), 0)
    finally:
        os.close(fd)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"landlock: {os.strerror(error)}")
    return result
