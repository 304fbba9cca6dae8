"""Write the fingerprints of KernelBench's problems (levels 1 to 3), which generated problems must not equal.

    python benchmarks/structures.py --path KernelBench --output mtmc/generator/kernelbench.txt

Each line holds a hash of operators and wiring, a hash of everything, and the problem's level and number: figures only. A
problem that cannot be captured whole has `-` in the place of its hashes, with the reason on stderr.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from mtmc import fingerprint
from mtmc.capture import capture
from mtmc.errors import BadInput
from mtmc.problem import load

LEVELS = (1, 2, 3)


def line(file: Path, level: int) -> str:
    """`structure exact level/number` of one problem file."""
    number = file.name.partition("_")[0]
    try:
        found = capture(load(file))
        reason = found.reason
    except BadInput as error:
        found, reason = None, str(error)
    if found is None or found.graph is None:
        print(f"{level}/{number}: {reason}", file=sys.stderr)
        return f"- - {level}/{number}"
    return f"{fingerprint.structure(found.graph)} {fingerprint.exact(found.graph)} {level}/{number}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, required=True, help="a checkout of KernelBench")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    lines = []
    for level in LEVELS:
        files = [f for f in (arguments.path / "KernelBench" / f"level{level}").glob("*.py") if re.match(r"\d+_", f.name)]
        for file in sorted(files, key=lambda f: int(f.name.partition("_")[0])):
            lines.append(line(file, level))
            print(lines[-1], flush=True)
    arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
