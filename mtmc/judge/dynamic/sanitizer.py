"""compute-sanitizer on demand: one call of the candidate, in a process of its own, under `memcheck`.

It sees every access outside an allocation, in Triton's kernels and in inline CUDA alike, at ten to a hundred times the run
time; so it gets a small variant where there is one. PyTorch's caching is off, so that every tensor is an allocation.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mtmc.judge.dynamic.subject import Source, opened
from mtmc.verdict import Finding

TOOL = "compute-sanitizer"
OPTIONS = ("--tool", "memcheck", "--report-api-errors", "no", "--print-limit", "3")
PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")  # beside PATH and CUDA_HOME
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
REPORT = re.compile(r"========= (Invalid [^\n]*)\n=========\s+at ([^\n+]*)")


def find() -> str | None:
    """The tool's path, or None."""
    home = os.environ.get("CUDA_HOME", "")
    path = os.pathsep.join((os.environ.get("PATH", ""), *([f"{home}/bin"] if home else []), *PLACES))
    return shutil.which(TOOL, path=path)


def sanitize(source: Source, seed: int, seconds: float) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Findings, and notes on why there are none. Raises TimeoutExpired past the deadline."""
    tool = find()
    if tool is None:
        return (), (f"{TOOL}: not installed here",)
    task = Path("sanitize.pickle")
    task.write_bytes(pickle.dumps((source, seed)))
    command = [tool, *OPTIONS, sys.executable, "-m", "mtmc.judge.dynamic.sanitizer", str(task)]
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", timeout=seconds)
    return read(done.stdout + done.stderr)


def read(output: str) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What the tool's report says."""
    summary = SUMMARY.search(output)
    if summary is None:
        said = [line for line in output.splitlines() if line.startswith("=========")]
        return (), (f"{TOOL} did not run: {said[-1].strip('= ') if said else 'it said nothing'}",)
    if summary[1] == "0":
        return (), ()
    where = REPORT.search(output)
    what = f"{where[1]} in {where[2].strip()}" if where else "an access outside an allocation"
    return (Finding("dynamic.sanitizer", 0, f"{TOOL}: {what} ({summary[1]} reports)"),), ()


def main(path: str) -> None:
    """One call, in the process that the tool watches."""
    source, seed = pickle.loads(Path(path).read_bytes())
    with opened(source, seed) as subject:
        subject.run()


if __name__ == "__main__":
    main(sys.argv[1])
