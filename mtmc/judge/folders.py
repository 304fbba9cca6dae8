"""Folders that a candidate may have written to: handing over, looking into, removing. Nothing in them is trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 16 << 30
MOST_FILES = 20_000
END_OF_LOG = 4096  # bytes in which the last words are looked for


def give(folder: Path, user: int) -> None:
    """Make a user the owner of a folder and all in it, unless the folder is the user's already. Only root can."""
    if folder.stat().st_uid == user:
        return
    for path in [*folder.rglob("*"), folder]:
        os.chown(path, user, user, follow_symlinks=False)


def too_full(folder: Path) -> str:
    """What a folder holds too much of; empty when it is within bounds. What vanishes meanwhile does not count."""
    files, size = 0, 0
    for where, folders, names in os.walk(folder):
        files += len(folders) + len(names)
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(where, name)).st_blocks * 512
        if files > MOST_FILES:
            return f"{MOST_FILES} files"
        if size > MOST_BYTES:
            return f"{MOST_BYTES >> 30} GiB of files"
    return ""


def remove(folder: Path) -> None:
    """However deep it is: `rm` does not recurse on the stack."""
    if shutil.which("rm"):
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def last_words(log: Path) -> str:
    """The last line of a log that may be of any length."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - END_OF_LOG))
        lines = file.read(END_OF_LOG).decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""
