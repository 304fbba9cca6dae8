"""One HTML page of joined rows that needs no network: levels, a chart of the ratios, and every problem with its figures.

Plotly draws. The page's frame and its script stand in `page.html` and `page.js`.
"""

from __future__ import annotations

import html
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from mtmc.bench import figures, tables
from mtmc.bench.figures import BEST, KINDS, Level
from mtmc.bench.rows import EAGER, Row
from mtmc.errors import BadInput
from mtmc.verdict import NEAR
from mtmc.viz import CONFIG, FONT
from mtmc.wording import milliseconds

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
OURS, THEIRS, LOST = "#2e8b57", "#a8b1ba", "#c2410c"


def page(rows: Sequence[Row], degenerate: Collection[str] | None) -> str:
    """The whole page. Raises BadInput without rows, or where plotly is not installed."""
    if not rows:
        raise BadInput("There is no row to draw.")
    known, columns = degenerate or frozenset(), figures.baselines(rows)
    levels = figures.levels(rows, known)
    data = {row.problem: _facts(row, columns, known) for row in rows}
    table = {"heads": tables.heads(columns), "rows": [[row.problem, *tables.cells(row, columns, known)] for row in rows]}
    return Template((HERE / "page.html").read_text()).substitute(
        title="Benchmark" + f" on {rows[-1].gpu}" * bool(rows[-1].gpu),
        subtitle=html.escape(tables.origin(rows, degenerate)),
        levels="\n".join(_level(level, columns) for level in levels),
        costs=_table(("cost of a problem", "median", "worst", "of"), [list(line) for line in tables.costs(rows)]),
        figure=_drawn(rows),
        facts=_json(data),
        table=_json(table),
    )


def _json(data: Any) -> str:
    """For a script element: nothing in it can end that."""
    return json.dumps(data).replace("<", "\\u003c")


def _level(level: Level, columns: Sequence[str]) -> str:
    lines = [[kind.name, *(tables.mean(level.means[kind.name].get(column)) for column in columns)] for kind in KINDS]
    means = _table(("geometric mean (median), problems", *map(tables.over, columns)), lines)
    fast = [[tables.over(column), *shares] for column, shares in tables.fast(level, columns)]
    return (
        f"<section><h2>{html.escape(level.name)}</h2><p>{html.escape(tables.accuracy(level))}</p>{means}"
        f"{_table(('', *tables.FAST_HEADS, 'problems'), fast)}</section>"
    )


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(cells, "td") for cells in lines)
    return f"<table><thead>{line(heads, 'th')}</thead><tbody>{body}</tbody></table>"


def _facts(row: Row, columns: Sequence[str], degenerate: Collection[str]) -> dict[str, Any]:
    """What the side panel shows of a problem."""
    baselines = [(name, f"{milliseconds(ms)}{_from(row, name)}") for name, ms in row.times.items()]
    parts = sorted(row.kernels_ms.items(), key=lambda part: -part[1])
    kernels = [(f"kernel {name}", milliseconds(ms)) for name, ms in parts]
    found = [
        ("ours", milliseconds(row.ours_ms) if row.ours_ms else ""),
        *baselines,
        *((f"floor, {name}", milliseconds(ms) if ms else "") for name, ms in _floors(row)),
        ("under CUDA-graph replay", _graphs(row)),
        *kernels,
        ("stays PyTorch", ", ".join(row.fallback_calls)),
        ("steps", "; ".join(row.path)),
        ("ended", row.reason),
        ("checked", ", ".join(row.checked)),
        ("not checked", "; ".join(row.skipped)),
        ("notes", "; ".join(row.notes)),
        ("KernelBench", row.kernelbench_note),
        ("made", f"{row.date}, run {row.run}, torch {row.torch}, triton {row.triton}"),
    ]
    return {
        "title": tables.name(row, degenerate),
        "status": row.status,
        "good": row.won,
        "message": row.message,
        "figures": [(name, value) for name, value in found if value],
    }


def _from(row: Row, name: str) -> str:
    return f" (by its ratio to eager on {row.borrowed[name][1]})" if name in row.borrowed else ""


def _floors(row: Row) -> tuple[tuple[str, float | None], ...]:
    return ("bytes by passes", row.passes_ms), ("data sheet", row.floor_ms)


def _graphs(row: Row) -> str:
    if not (row.graph_ms and row.eager_graph_ms):
        return ""
    return f"{milliseconds(row.graph_ms)} (eager: {milliseconds(row.eager_graph_ms)})"


def _drawn(rows: Sequence[Row]) -> str:
    """The chart as an HTML fragment, plotly's own code included."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise BadInput("The page needs plotly: pip install 'mtmc[viz]'.") from error
    shown = [row for row in rows if row.verified and row.over(EAGER)]
    figure = go.Figure(_traces(shown))
    figure.add_hline(y=1, line={"color": "#667380", "width": 1, "dash": "dot"})
    figure.update_layout(
        template="simple_white",
        margin={"l": 50, "r": 20, "t": 30, "b": 40},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        yaxis={"type": "log", "title": {"text": "times as fast as eager"}},
        xaxis={"type": "category", "title": {"text": "problem"}},
        hovermode="closest",
        font=FONT,
    )
    script = (HERE / "page.js").read_text()
    text: str = figure.to_html(full_html=False, include_plotlyjs=True, post_script=script, config=CONFIG)
    return text


def _traces(rows: Sequence[Row]) -> list[go.Scatter]:
    """The best other baseline and ours over eager, ours with its interval; red where behind it by over 1 %."""
    import plotly.graph_objects as go

    names = [row.problem for row in rows]
    ours = [row.over(EAGER) or 1.0 for row in rows]
    best = [ratio / (row.over(BEST) or ratio) for row, ratio in zip(rows, ours, strict=True)]
    spread = [((row.high or ratio) - ratio, ratio - (row.low or ratio)) for row, ratio in zip(rows, ours, strict=True)]
    behind = [LOST if (row.over(BEST) or 1.0) < 1.0 - NEAR else OURS for row in rows]
    bars = {"type": "data", "array": [up for up, _ in spread], "arrayminus": [down for _, down in spread], "color": THEIRS}
    hover = [f"{html.escape(tables.name(row, ()))}<br>{ratio:.2f} over eager" for row, ratio in zip(rows, ours, strict=True)]
    return [
        go.Scatter(
            x=names, y=best, mode="markers", name="best baseline", hoverinfo="skip", marker=_marker(THEIRS, "line-ew")
        ),
        go.Scatter(
            x=names,
            y=ours,
            customdata=names,
            error_y=bars,
            mode="markers",
            name="ours (red: behind the best baseline)",
            hovertext=hover,
            hoverinfo="text",
            marker=_marker(behind, "circle"),
        ),
    ]


def _marker(colour: str | list[str], symbol: str) -> dict[str, Any]:
    line = {"width": 2, "color": colour} if symbol == "line-ew" else {"width": 0}
    return {"size": 9, "color": colour, "symbol": symbol, "line": line}
