"""The report of an evaluation: JSON with everything, Markdown to read, PNG of the curves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import BytesIO
from math import exp
from pathlib import Path
from typing import Any

from mtmc.evaluation.figures import BASE, LIMIT, MARKS, NEAR, Case, Estimate, Figures, areas, figures
from mtmc.evaluation.settings import Settings
from mtmc.policies.replay import Untried
from mtmc.trajectories.files import put

Table = Mapping[str, Figures]
SCOPES = {
    "all": "all of them",
    "open": f"those whose first program is below {NEAR:.0%} of the best",
}
CONVENTIONS = {
    Untried.free: "choices that nobody tried are skipped free of charge",
    Untried.charged: "choices that nobody tried cost a candidate",
}
WIDTH, HEIGHT = 5.5, 4.0  # inches of one plot


def tables(cases: Sequence[Case], budget: int) -> dict[str, dict[Untried, Table]]:
    """Figures by scope and convention; a scope without trees is left out; where all was tried there is one convention."""
    scopes = {"all": list(cases), "open": [case for case in cases if case.open]}
    conventions = [Untried.charged] if all(case.tried for case in cases) else list(Untried)
    return {
        scope: {untried: figures(found, budget, untried) for untried in conventions}
        for scope, found in scopes.items()
        if found
    }


def write(folder: Path, cases: Sequence[Case], settings: Settings) -> dict[str, Any]:
    """`evaluation.json`, `evaluation.md` and `evaluation.png`; what the first holds."""
    found = tables(cases, settings.budget)
    facts = as_json(cases, settings, found)
    put(folder / "evaluation.json", json.dumps(facts, indent=1))
    put(folder / "evaluation.md", as_markdown(cases, settings, found))
    draw(folder / "evaluation.png", found)
    return facts


def as_json(cases: Sequence[Case], settings: Settings, found: Mapping[str, Mapping[Untried, Table]]) -> dict[str, Any]:
    """Settings, every scope's figures, and every tree with each policy's mean area there."""
    return {
        "settings": asdict(settings),
        "scopes": {
            scope: {untried: {label: f.to_json() for label, f in table.items()} for untried, table in both.items()}
            for scope, both in found.items()
        },
        "trees": [_tree(case, settings.budget) for case in cases],
    }


def _tree(case: Case, budget: int) -> dict[str, Any]:
    return {
        "name": case.name,
        **case.facts,
        "best_speedup": round(exp(case.best), 4),
        "first_speedup": round(exp(case.limit[0]), 4),
        "areas": {
            untried: {label: round(area, 4) for label, area in areas(case, budget, untried).items()} for untried in Untried
        },
    }


def as_markdown(cases: Sequence[Case], settings: Settings, found: Mapping[str, Mapping[Untried, Table]]) -> str:
    """Tables with what they mean above them."""
    kinds = ", ".join(sorted({f"{case.facts['gpu']} ({case.facts['timing']})" for case in cases}))
    blocks = [
        "# Policies on searches of their own" if settings.online else "# Policies on stored trees",
        f"{len(cases)} {_kind(settings)}; best at least {settings.least:g}×, times of {kinds}.",
        "`at k`: geometric mean of the best speed-up after k candidates, the reference itself where nothing beats it. "
        f"`area`: mean share of the tree's best log speed-up over 1 to {settings.budget} candidates. `needed`: mean number "
        f"of candidates to {NEAR:.0%} of it, those that never arrive counted as {settings.budget}; then median, and the "
        f"part that arrives. `fewer`: {BASE}'s mean over this one's. `untried`: choices whose outcome nobody knows. In "
        "brackets: 95 % interval over trees.",
    ]
    for scope, both in found.items():
        count = len(cases) if scope == "all" else sum(case.open for case in cases)
        if scope != "all" and count == len(cases):
            blocks.append(f"All of them have something to find: {SCOPES[scope]}.")
            continue
        blocks.append(f"## {SCOPES[scope].capitalize()}: {count}")
        for untried, table in both.items():
            blocks += [f"### {CONVENTIONS[untried].capitalize()}"] * (len(both) > 1) + [_markdown(table)]
    blind = {label: f.blind for label, f in next(iter(found["all"].values())).items() if f.blind > 0}
    if blind:
        parts = ", ".join(f"{label}: {part:.0%}" for label, part in blind.items())
        blocks.append(f"Actions shown without a predicted time, which `mtmc predict` would fill in: {parts}.")
    return "\n\n".join(blocks) + "\n"


def _kind(settings: Settings) -> str:
    if settings.online:
        return f"problems, each searched by every policy, {settings.budget} candidates"
    seeds = f"{settings.seeds} seeds (a policy without chance has one)"
    return f"trees ({settings.side}), {seeds}, {settings.budget} candidates, next program by `{settings.order}`"


def _markdown(table: Table) -> str:
    marks = [mark for mark in MARKS if mark < len(next(iter(table.values())).share)]
    head = ["policy", *(f"at {mark}" for mark in marks), "area", "needed", "median", "arrives", "fewer", "untried"]
    rows = [head, ["---"] * len(head)]
    for label, f in table.items():
        middle = "–" if f.middle is None else f"{f.middle:g}"
        saved = "–" if f.saved is None else _shown(f.saved, "×")
        ours = label != LIMIT
        speedups = [f"{f.speedup[mark].value:.2f}×" for mark in marks]
        last = [f"{f.arrived:.0%}", saved, f"{f.untried:.0%}" if ours else "–"]
        rows.append([label, *speedups, _shown(f.area), _shown(f.needed), middle, *last])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shown(found: Estimate, unit: str = "") -> str:
    return f"{found.value:.2f}{unit} [{found.low:.2f}, {found.high:.2f}]"


def draw(path: Path, found: Mapping[str, Mapping[Untried, Table]]) -> None:
    """Share of the tree's best log speed-up over candidates: a plot for each convention, scopes below each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = len(found["all"])
    figure = Figure(figsize=(columns * WIDTH, HEIGHT * len(found)), layout="constrained")
    grid = figure.subplots(len(found), columns, squeeze=False, sharey=True)
    for row, (scope, both) in zip(grid, found.items(), strict=True):
        for axes, (untried, table) in zip(row, both.items(), strict=True):
            for label, f in table.items():
                reach = range(len(f.share))
                style = {"color": "black", "linestyle": ":"} if label == LIMIT else {}
                (line,) = axes.plot(reach, [e.value for e in f.share], label=label, **style)
                low, high = ([getattr(e, end) for e in f.share] for end in ("low", "high"))
                axes.fill_between(reach, low, high, alpha=0.12, color=line.get_color())
            axes.axhline(NEAR, color="grey", linewidth=0.6)
            axes.set_title(f"{SCOPES[scope]};\n{CONVENTIONS[untried]}" if columns > 1 else SCOPES[scope], fontsize=9)
            axes.set_xlabel("candidates")
            axes.grid(alpha=0.3)
        row[0].set_ylabel("share of the best log speed-up")
    grid[0][0].legend(fontsize=8)
    drawn = BytesIO()
    FigureCanvasAgg(figure).print_png(drawn)
    put(path, drawn.getvalue())
