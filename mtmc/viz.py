"""`mtmc viz`: one HTML page that needs no network, with the tree of programs and every step's sentence, diff and figures.

Plotly draws, networkx lays out. The page's frame and its script stand in `viz_page.html` and `viz_page.js`.
"""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from mtmc.errors import BadInput
from mtmc.step import Step
from mtmc.trajectories.store import Run
from mtmc.tree import Tree
from mtmc.verdict import Timing, Verified
from mtmc.wording import KINDS, details, gain, milliseconds, outcome, result, speedup

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
COLOURS = {
    "verified": "#2e8b57",
    "wrong": "#c2410c",
    "compile_error": "#b4304a",
    "runtime_fault": "#8b3fa8",
    "timeout": "#a1781c",
    "rejected": "#4a3f8f",
    "infra": "#8a949e",
}
BEST = "#f2a900"
Places = dict[str, tuple[float, float]]
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "responsive": True,
    "scrollZoom": True,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],  # the last would leave the machine
}
FONT = {"family": 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif', "size": 13}
LABELLED = 40  # trees with more programs carry labels on the best path only


def page(run: Run) -> str:
    """The whole page. Raises BadInput for a run without steps, or where plotly is not installed."""
    steps = run.steps()
    if not steps:
        raise BadInput(f"{run.folder} has no finished step yet, so there is nothing to draw.")
    tree = Tree(steps)
    arrivals = {step.child: step for step in reversed(steps)}
    facts = {key: _facts(arrivals[key], tree) for key in tree.keys}
    title = f"{run.info.problem} on {run.info.profile.get('title', run.info.gpu)}"
    best = tree.timing(tree.best) if tree.best else None
    found = f"Best program: {speedup(best)} over PyTorch eager." if best else "No program could be verified."
    return Template((HERE / "viz_page.html").read_text()).substitute(
        title=html.escape(title),
        subtitle=html.escape(f"{found} Times are {run.info.timing}. Click a program to see the step that led to it."),
        figure=_drawn(tree, arrivals),
        steps=json.dumps(facts).replace("<", "\\u003c"),
    )


def _facts(step: Step, tree: Tree) -> dict[str, Any]:
    """What the side panel shows of a step."""
    return {
        "sentence": step.action.sentence if step.action else "First program: one plain kernel an operation.",
        "status": outcome(step.verdict),
        "colour": COLOURS[step.verdict.status],
        "message": details(step.verdict),
        "figures": [(name, value) for name, value in _figures(step, tree) if value],
        "patch": step.patch.splitlines(),
    }


def _figures(step: Step, tree: Tree) -> list[tuple[str, str]]:
    found = [
        ("gain of this step", gain(step, tree)),
        ("family", step.action.family if step.action else ""),
        ("region", step.action.region if step.action else ""),
        ("lines changed", str(step.changed_lines or "")),
        ("library", ", ".join(step.library)),
        ("checks added", "; ".join(step.assertions)),
        ("reward", "" if step.reward is None else f"{step.reward:.3f}"),
        ("step", f"{step.index}, {step.seconds:.1f} s" + f", policy {step.policy}" * bool(step.policy)),
        ("program", step.child),
    ]
    if not isinstance(step.verdict, Verified):
        return found
    accuracy = step.verdict.accuracy
    errors = f"{accuracy.candidate_error:.1e} (PyTorch {accuracy.reference_error:.1e})"
    return [*_times(step.verdict.timing), ("error against fp64", errors), *found]


def _times(timing: Timing) -> list[tuple[str, str]]:
    return [
        ("speed-up", speedup(timing)),
        ("time", f"{milliseconds(timing.candidate_ms)} ({timing.kind})"),
        ("PyTorch eager", milliseconds(timing.reference_ms)),
        ("torch.compile", milliseconds(timing.compiled_ms) if timing.compiled_ms else ""),
        ("hardware floor", milliseconds(timing.floor_ms) if timing.floor_ms else ""),
    ]


def _drawn(tree: Tree, arrivals: dict[str, Step]) -> str:
    """The figure as an HTML fragment, plotly's own code included."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise BadInput("mtmc viz needs plotly: pip install 'mtmc[viz]'.") from error
    places = layout(tree)
    traces = [
        _edges(tree, places),
        _best_line(tree, places),
        _ring(places[tree.best or tree.root]),
        *_nodes(tree, arrivals, places),
    ]
    figure = go.Figure([trace for trace in traces if trace.x])
    figure.update_layout(
        template="simple_white",
        margin={"l": 30, "r": 30, "t": 30, "b": 10},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis={"visible": False},
        yaxis={"visible": False},
        hovermode="closest",
        hoverlabel={"bgcolor": "white", "align": "left"},
        font=FONT,
        annotations=list(_families(tree, places)),
        meta={"selected": tree.best or tree.root},
    )
    script = (HERE / "viz_page.js").read_text()
    text: str = figure.to_html(full_html=False, include_plotlyjs=True, post_script=script, config=CONFIG)
    return text


def layout(tree: Tree) -> Places:
    """Position of each program: a column for each number of steps from the root, the best path straight along y = 0."""
    paths = {key: [step.index for step in tree.path(key)] for key in tree.keys}
    best = {*_best_path(tree), tree.root}
    columns: dict[int, list[str]] = {}
    for key in sorted(paths, key=lambda key: paths[key]):
        columns.setdefault(len(paths[key]), []).append(key)
    places = {}
    for column, keys in columns.items():
        others, middle = [key for key in keys if key not in best], [key for key in keys if key in best]
        half = len(others) // 2
        order = [*others[:half], *middle, *others[half:]]
        places.update({key: (float(column), float(half - index)) for index, key in enumerate(order)})
    return places


def _best_path(tree: Tree) -> list[str]:
    return [tree.root, *(step.child for step in tree.path(tree.best))] if tree.best else []


def _edges(tree: Tree, places: Places) -> go.Scatter:
    import plotly.graph_objects as go

    x: list[float | None] = []
    y: list[float | None] = []
    for parent, child in tree.graph.edges:
        x += [places[parent][0], places[child][0], None]
        y += [places[parent][1], places[child][1], None]
    return go.Scatter(x=x, y=y, mode="lines", line={"color": "#c9d1d9", "width": 1}, hoverinfo="skip", showlegend=False)


def _best_line(tree: Tree, places: Places) -> go.Scatter:
    import plotly.graph_objects as go

    x, y = zip(*(places[key] for key in _best_path(tree)), strict=True) if tree.best else ((), ())
    line = {"color": BEST, "width": 7}
    return go.Scatter(x=x, y=y, mode="lines", line=line, opacity=0.55, hoverinfo="skip", name="best path")


def _ring(place: tuple[float, float]) -> go.Scatter:
    """Marks the program that the side panel shows; the page's script moves it by its name."""
    import plotly.graph_objects as go

    marker = {"size": 31, "color": "rgba(0,0,0,0)", "line": {"color": "#1f2933", "width": 2}}
    return go.Scatter(
        x=[place[0]], y=[place[1]], mode="markers", marker=marker, hoverinfo="skip", showlegend=False, name="shown"
    )


def _nodes(tree: Tree, arrivals: dict[str, Step], places: Places) -> Iterator[go.Scatter]:
    """One trace a verdict status, so that the legend names them."""
    import plotly.graph_objects as go

    best = set(_best_path(tree))
    for status, colour in COLOURS.items():
        keys = [key for key in tree.keys if tree.verdict(key).status == status]
        yield go.Scatter(
            x=[places[key][0] for key in keys],
            y=[places[key][1] for key in keys],
            customdata=keys,
            mode="markers+text",
            name=KINDS[status],
            text=[_label(tree.timing(key), key in best or len(places) <= LABELLED) for key in keys],
            textposition="bottom center",
            hovertext=[_hover(arrivals[key], tree) for key in keys],
            hoverinfo="text",
            marker={
                "opacity": 1,
                "color": colour,
                "size": [22 if key in best else 14 for key in keys],
                "line": {"color": [BEST if key in best else "white" for key in keys], "width": 3},
            },
        )


def _label(timing: Timing | None, shown: bool) -> str:
    return f"{timing.speedup:.2f}×" if timing and shown else ""


def _hover(step: Step, tree: Tree) -> str:
    sentence = step.action.sentence if step.action else "First program"
    lines = [*textwrap.wrap(sentence, 48), result(step.verdict), gain(step, tree)]
    return "<br>".join(html.escape(line) for line in lines if line)


def _families(tree: Tree, places: Places) -> Iterator[dict[str, Any]]:
    """The family of each step of the best path, written above its edge."""
    for step in tree.path(tree.best) if tree.best else ():
        (x0, y0), (x1, y1) = places[step.parent], places[step.child]
        text = step.action.family if step.action else ""
        yield {"x": (x0 + x1) / 2, "y": (y0 + y1) / 2, "text": text, "showarrow": False, "yshift": 14, "font": {"size": 12}}
