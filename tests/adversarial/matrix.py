"""Judge the corpus and print the confusion matrix: `python tests/adversarial/matrix.py [KIND …] [--json FILE]`.

Exits with 1 when a case did not end as it should. On a machine with a GPU every case is judged on it, else those that need
none in the interpreter.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import corpus


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="kinds, or names of cases")
    parser.add_argument("--json", type=Path, help="write every result there")
    options = parser.parse_args()
    every = corpus.cases()
    chosen = corpus.runnable(c for c in every if not options.names or {c.kind, c.name} & set(options.names))
    results = []
    with tempfile.TemporaryDirectory() as folder, corpus.benches(Path(folder)) as executors:
        for result in corpus.judged(chosen, executors):
            results.append(result)
            mark = "ok " if result.right else "BAD"
            print(f"{mark} {result.seconds:6.1f} s  {result.case.kind}/{result.case.name}: {result.outcome}", flush=True)
        spent = sum((Counter(executor.spent) for executor in executors), Counter())
        print("seconds:", ", ".join(f"{what} {seconds:.0f}" for what, seconds in sorted(spent.items())))
    print(corpus.matrix(results))
    if options.json:
        options.json.write_text(json.dumps([_facts(result) for result in results], indent=1))
    return 0 if all(result.right for result in results) else 1


def _facts(result: corpus.Result) -> dict[str, object]:
    case = result.case
    return {
        "case": f"{case.kind}/{case.name}",
        "honest": case.honest,
        "expect": case.expect,
        "outcome": result.outcome,
        "right": result.right,
        "message": result.message,
        "warnings": result.warnings,
        "seconds": round(result.seconds, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
