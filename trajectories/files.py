"""Files that are replaced as a whole, in folders made where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtmc.errors import BadInput

NO_PLACE = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""What says that the user named a place where nothing can be written; a full disk does not."""


def folder(path: Path) -> Path:
    """The folder, made with those above it where it is not there. Raises BadInput where it cannot be."""
    with _usable(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def put(path: Path, content: bytes | str) -> None:
    """Replace a file in one step: readers see the old content or the new one, never a part.

    Raises BadInput where there can be no such file.
    """
    folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _usable(path):
            with draft.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except NO_PLACE as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.") from error
