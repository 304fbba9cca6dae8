"""How well the time model ranks programs: prints Markdown.

    python benchmarks/ranking.py                              what was predicted during the searches of the benchmark
    python benchmarks/ranking.py --trees trajectories/h200    today's model on the programs of measured trees; compiles each

The first reads benchmarks/h200/predictions.jsonl, one line a program: predicted and measured time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

from fit_model import spearman  # the script beside this one

PREDICTIONS = Path(__file__).parent / "h200" / "predictions.jsonl"
SEEN = ("1/1", "2/12")  # the time model was tuned with programs of these in view: they are no test of it
FITTED = 2  # first run with the fitted model
LEAST = 8  # programs of one problem from which on a rank correlation inside it says something

Row = tuple[str, float, float]  # problem, predicted ms, measured ms


def searched() -> Iterator[Row]:
    """What the model said while the benchmark's searches went on."""
    for line in PREDICTIONS.read_text().splitlines():
        r = json.loads(line)
        if r["run"] >= FITTED and r["problem"] not in SEEN:
            yield f"{r['problem']} ({r['run']})", r["predicted_ms"], r["measured_ms"]


def stored(folder: Path) -> Iterator[Row]:
    """What it says now of the programs of measured trees, by device time. Raises BadInput without trees."""
    from mtmc.hardware_profiles import load
    from mtmc.judge.executor import LocalProcesses
    from mtmc.judge.jobs import Compiled, CompileJob
    from mtmc.trajectories import archive
    from mtmc.verdict import Verified

    with LocalProcesses(trusting=True) as executor:
        for tree in archive.load(folder):
            profile, problem = load(tree.provenance.gpu), tree.question.problem
            times = {
                n.program: n.verdict.timing.candidate_ms for n in tree.nodes.values() if isinstance(n.verdict, Verified)
            }
            jobs = [CompileJob(problem=problem, source=program.source, profile=profile) for program in times]
            outcomes = [future.result() for future in [executor.submit(job) for job in jobs]]
            for measured, found in zip(times.values(), outcomes, strict=True):
                if isinstance(found, Compiled):
                    yield tree.question.name, found.prediction.device_ms, measured


def table(rows: Iterable[Row]) -> Iterator[str]:
    rows = list(rows)
    overall = spearman([r[1] for r in rows], [r[2] for r in rows])
    yield f"Time model, {len(rows)} programs, none used to fit it: Spearman {overall:.3f}.\n"
    yield "| problem (run) | programs | Spearman | model's favourite over the best |\n|---|---|---|---|"
    inside, regrets = [], []
    for name in dict.fromkeys(row[0] for row in rows):
        predicted, measured = zip(*(row[1:] for row in rows if row[0] == name), strict=True)
        if len(predicted) < LEAST:
            continue
        inside.append(spearman(predicted, measured))
        regrets.append(measured[predicted.index(min(predicted))] / min(measured))
        yield f"| {name} | {len(predicted)} | {inside[-1]:.2f} | {regrets[-1]:.3f} |"
    yield f"\nMedian inside a problem {median(inside):.2f}."
    yield f"Favourite over best: median {median(regrets):.3f}, worst {max(regrets):.3f}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trees", type=Path, help="a folder of measured trees")
    options = parser.parse_args()
    for line in table(stored(options.trees) if options.trees else searched()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
