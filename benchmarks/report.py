"""Tables of what was measured: `python benchmarks/report.py` reads benchmarks/h200/*.jsonl and prints Markdown.

Of each problem the last run counts, be it better or worse than earlier ones. Means are geometric. "Over the best" compares
with the faster of eager and torch.compile. Where no program of ours beats eager, eager is handed back and counts as 1.0.
"""

from __future__ import annotations

import json
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from fit_model import spearman  # the script beside this one

FOLDER = Path(__file__).parent / "h200"
SEEN = ("1/1", "2/12")  # the time model was tuned with programs of these in view: they are no test of it
FITTED = 2  # first run with the fitted model
LEAST = 8  # programs of one problem from which on a rank correlation inside it says something


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def geometric(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def last_rows() -> list[dict[str, Any]]:
    """The last row of each problem, in order of level and number."""
    rows = {row["problem"]: row for row in lines("kernelbench.jsonl")}
    return sorted(rows.values(), key=lambda row: [int(part) for part in row["problem"].split("/")])


def problems(rows: list[dict[str, Any]]) -> None:
    heads = [
        "problem",
        "eager ms",
        "compile ms",
        "ours ms",
        "over eager",
        "interval",
        "over the best",
        "steps",
        "KernelBench",
    ]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for row in rows:
        name = f"{row['problem']} {row['title'].partition('_')[2] or row['title']}" + (
            " (PyTorch's own)" if row.get("units") == 0 else ""
        )
        if row["status"] != "verified":
            print(f"| {name} | | | | none: {row['status']} | | | | {_word(row)} |")
            continue
        best = min(row["eager_ms"], row["compiled_ms"] or row["eager_ms"]) / row["ours_ms"]
        cells = [f"{row[k]:.3f}" for k in ("eager_ms", "compiled_ms", "ours_ms")]
        cells += [
            f"{row['over_eager']:.2f}",
            f"{row['low']:.2f}–{row['high']:.2f}",
            f"{best:.2f}",
            str(len(row["path"])),
            _word(row),
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def _word(row: dict[str, Any]) -> str:
    return {True: "correct", False: "not accepted", None: "not asked"}[row["kernelbench_correct"]]


def summary(rows: list[dict[str, Any]]) -> None:
    verified = [row for row in rows if row["status"] == "verified" and row["units"]]
    print(f"\n{len(rows)} problems, {len(verified)} with a verified program of our kernels.\n")
    print("| | over eager, as handed back | over eager, our kernels | over torch.compile, our kernels |\n|---|---|---|---|")
    for level in ("1", "2"):
        mine = [row for row in rows if row["problem"].startswith(level)]
        ours = [row for row in verified if row["problem"].startswith(level)]
        handed = [max(1.0, row.get("over_eager", 1.0)) for row in mine]
        compiled = [row["compiled_ms"] / row["ours_ms"] for row in ours]
        cells = [f"{geometric(v):.2f} (median {median(v):.2f})" for v in (handed, [r["over_eager"] for r in ours], compiled)]
        print(f"| level {level}: {len(mine)} | {' | '.join(cells)} |")


def ranking() -> None:
    rows = [r for r in lines("predictions.jsonl") if r["run"] >= FITTED and r["problem"] not in SEEN]
    overall = spearman([r["predicted_ms"] for r in rows], [r["measured_ms"] for r in rows])
    print(f"\nTime model, {len(rows)} programs of these searches, none used to fit it: Spearman {overall:.3f}.\n")
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
    rows = last_rows()
    problems(rows)
    summary(rows)
    ranking()
