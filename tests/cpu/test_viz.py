"""The page of `mtmc viz`, as text and in a browser."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from fakes import FIRST, FakeEvaluator, FakeMoves

from mtmc import policies, viz
from mtmc.errors import BadInput
from mtmc.search import Limits, Search
from mtmc.trajectories.store import Run, RunInfo
from mtmc.tree import Tree

pytest.importorskip("plotly", reason="the extra viz is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
HOSTILE = "</script><img src=https://example.invalid/x.png onerror=alert(1)>"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with failures, merged programs, and names that would break a careless page."""
    info = RunInfo(HOSTILE, "abc", "m.py", "Model", "h100", "random", 3, 25, 0.0, "strict", "predicted")
    run = Run.create(tmp_path_factory.mktemp("viz") / "run", info)
    first = FIRST.replace("launch_relu", FIRST.text("launch_relu") + f"# {HOSTILE}\n")
    search = Search(FakeMoves(True), FakeEvaluator(), policies.load("random"), Limits(25), 3)
    for step in search.steps(first):
        run.append(step, search.programs[step.child])
    return run


def facts(page):
    return json.loads(re.search(r'<script type="application/json" id="steps">(.*?)</script>', page, re.S)[1])


def test_every_program_has_its_figures_and_diff(run):
    tree, found = Tree(run.steps()), facts(viz.page(run))
    assert found.keys() == set(tree.keys)
    best = found[tree.best]
    assert dict(best["figures"])["speed-up"] == f"{tree.timing(tree.best).speedup:.2f}× predicted"
    assert any(line.startswith("+    ") for line in best["patch"])
    assert {fact["status"] for fact in found.values()} >= {"verified", "wrong (values)"}


def test_the_best_path_is_a_straight_line_and_nothing_overlaps(run):
    tree = Tree(run.steps())
    places = viz.layout(tree)
    path = [tree.root, *(step.child for step in tree.path(tree.best))]
    assert [places[key] for key in path] == [(float(i), 0.0) for i in range(len(path))]
    assert len(set(places.values())) == len(tree.keys)


def test_user_text_is_escaped(run):
    page = viz.page(run)
    assert HOSTILE not in page and "&lt;/script&gt;&lt;img" in page


def test_a_run_without_steps_is_refused(tmp_path):
    info = RunInfo("m", "abc", "m.py", "Model", "h100", "greedy", 0, 25, 0.0, "strict", "predicted")
    with pytest.raises(BadInput, match="no finished step"):
        viz.page(Run.create(tmp_path / "run", info))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_in_a_browser_a_click_shows_the_step_and_nothing_is_requested(run, tmp_path):
    from playwright.sync_api import sync_playwright

    page_file = tmp_path / "page.html"
    page_file.write_text(viz.page(run))
    tree, found = Tree(run.steps()), facts(page_file.read_text())
    told, asked = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(tmp_path / "profile", executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.as_uri())
        page.wait_for_selector("#panel h2")
        assert page.inner_text("#panel h2") == found[tree.best]["sentence"]
        wrong = next(key for key in tree.keys if tree.verdict(key).status == "wrong")
        x, y = page.evaluate(POSITION, wrong)
        page.mouse.move(x, y)
        page.wait_for_selector(".hoverlayer .hovertext")
        page.mouse.down()
        page.mouse.up()
        page.wait_for_selector("#panel .message")
        assert page.inner_text("#panel h2") == found[wrong]["sentence"]
        assert "MASK = 0" in page.inner_text("#panel .added") and "MASK = 1" in page.inner_text("#panel .removed")
        browser.close()
    assert told == []
    assert asked == [page_file.as_uri()]


POSITION = """key => {
  const plot = document.querySelector(".js-plotly-plot");
  const trace = plot.data.find(trace => (trace.customdata || []).includes(key));
  const index = trace.customdata.indexOf(key), box = plot.getBoundingClientRect(), { xaxis, yaxis } = plot._fullLayout;
  return [box.x + xaxis._offset + xaxis.d2p(plot.calcdata[trace.index ?? plot.data.indexOf(trace)][index].x),
          box.y + yaxis._offset + yaxis.d2p(plot.calcdata[plot.data.indexOf(trace)][index].y)];
}"""
