"""Opening closed folders to an unprivileged user, in a mount namespace of its own and only as far as needed.

Python often lies below root's home (`/root/.pyenv`, `/root/.local/share/uv`), which nobody else may enter. There an empty
folder is laid over the closed one and what is needed is mounted back into it; everything else below it has vanished.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

CLONE_NEWNS = 0x20000
MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE = 1, 4096, 16384, 1 << 18


def closed_above(path: Path) -> Path | None:
    """The topmost folder above `path` that others may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & stat.S_IXOTH), None)


def openings(needs: Iterable[Path]) -> dict[Path, tuple[Path, ...]]:
    """Closed folders, each with what is needed below it; links are followed, what does not exist is left out."""
    found: dict[Path, set[Path]] = {}
    for path in needs:
        for real in {path.absolute(), path.resolve()}:
            if real.exists() and (closed := closed_above(real)):
                found.setdefault(closed, set()).add(real)
    return {closed: tuple(p for p in sorted(paths) if not paths & set(p.parents)) for closed, paths in found.items()}


def open_up(closed: dict[Path, tuple[Path, ...]]) -> None:
    """Apply `openings` to this process and its children. Raises OSError where the kernel refuses."""
    if not closed:
        return
    _call("unshare", CLONE_NEWNS)
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    for folder, kept in closed.items():
        held = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in kept}
        _mount("mtmc", str(folder), "tmpfs", 0, "size=1m,mode=755")
        for path, fd in held.items():
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                path.mkdir(parents=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            _mount(f"/proc/self/fd/{fd}", str(path), None, MS_BIND | MS_REC)
            os.close(fd)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    _call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
