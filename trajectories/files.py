"""Files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def put(path: Path, content: bytes | str) -> None:
    """Replace a file in one step: readers see the old content or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
