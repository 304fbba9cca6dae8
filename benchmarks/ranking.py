"""How well the time model ranks the programs of a search: `python benchmarks/ranking.py` prints Markdown.

Reads benchmarks/h200/predictions.jsonl, one line a program: predicted and measured time. Problems by `mtmc bench show`.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from fit_model import spearman  # the script beside this one

PREDICTIONS = Path(__file__).parent / "h200" / "predictions.jsonl"
SEEN = ("1/1", "2/12")  # the time model was tuned with programs of these in view: they are no test of it
FITTED = 2  # first run with the fitted model
LEAST = 8  # programs of one problem from which on a rank correlation inside it says something


def main() -> None:
    there = [json.loads(line) for line in PREDICTIONS.read_text().splitlines()]
    rows = [r for r in there if r["run"] >= FITTED and r["problem"] not in SEEN]
    overall = spearman([r["predicted_ms"] for r in rows], [r["measured_ms"] for r in rows])
    print(f"Time model, {len(rows)} programs of these searches, none used to fit it: Spearman {overall:.3f}.\n")
    print("| problem (run) | programs | Spearman | model's favourite over the best |\n|---|---|---|---|")
    inside, regrets = [], []
    for key in dict.fromkeys((r["problem"], r["run"]) for r in rows):
        mine = [r for r in rows if (r["problem"], r["run"]) == key]
        if len(mine) < LEAST:
            continue
        predicted, measured = [r["predicted_ms"] for r in mine], [r["measured_ms"] for r in mine]
        inside.append(spearman(predicted, measured))
        regrets.append(measured[predicted.index(min(predicted))] / min(measured))
        print(f"| {key[0]} ({key[1]}) | {len(mine)} | {inside[-1]:.2f} | {regrets[-1]:.3f} |")
    print(f"\nMedian inside a problem {median(inside):.2f}.")
    print(f"Favourite over best: median {median(regrets):.3f}, worst {max(regrets):.3f}.")


if __name__ == "__main__":
    main()
