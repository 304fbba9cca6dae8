"""What a training run tells of itself: `metrics.jsonl`, TensorBoard events and `curves.png`, all of them while it runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from mtmc.trajectories.files import put

WIDTH, HEIGHT = 4.5, 3.0  # inches of one plot
ACROSS = 3


def tell(text: str) -> None:
    """One line of progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def sentence(figures: Mapping[str, float]) -> str:
    """`loss 0.12, accuracy 0.9`."""
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


class Curves:
    """Rows of figures by step. A resumed run goes on after step `start`: what was written of later steps is dropped."""

    def __init__(self, folder: Path, start: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = folder
        self.rows = [row for row in read(folder) if row["step"] <= start]
        put(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in self.rows))
        self._events = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """One row; figures of one name make one curve."""
        row = {"step": step, **figures}
        self.rows.append(row)
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        for name, value in figures.items():
            self._events.add_scalar(name, value, step)

    def draw(self) -> None:
        """`curves.png`, one plot a figure: names that differ after a `/` share one."""
        self._events.flush()
        plot(self.rows, self.folder / "curves.png")

    def close(self) -> None:
        self.draw()
        self._events.close()


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows written so far; a torn last line is left out."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Every figure over the steps, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for row in rows for name in row if name != "step"))
    plots = list(dict.fromkeys(name.partition("/")[0] for name in names))
    if not plots:
        return
    down = -(-len(plots) // ACROSS)
    figure = Figure(figsize=(WIDTH * ACROSS, HEIGHT * down), layout="constrained")
    for place, title in enumerate(plots, 1):
        axes = figure.add_subplot(down, ACROSS, place)
        for name in names:
            if name.partition("/")[0] == title:
                points = [(row["step"], row[name]) for row in rows if name in row]
                axes.plot(*zip(*points, strict=True), label=name.partition("/")[2] or None)
        axes.set_title(title)
        axes.grid(alpha=0.3)
        if any(name.startswith(f"{title}/") for name in names):
            axes.legend()
    drawn = BytesIO()
    FigureCanvasAgg(figure).print_png(drawn)
    put(path, drawn.getvalue())
