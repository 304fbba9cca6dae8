"""The page of `mtmc bench`, as text and in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from bench_rows import DEGENERATE, SMALL
from test_viz import CHROMIUM, FLAGS, HOSTILE

from mtmc.bench import page as pages
from mtmc.errors import BadInput

pytest.importorskip("plotly", reason="the extra viz is not installed")
ROWS = [replace(SMALL[0], title=f"1_{HOSTILE}", reason=HOSTILE), *SMALL[1:]]


def data(page: str, name: str):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)[1])


def test_every_problem_has_its_figures_and_a_line():
    page = pages.page(ROWS, DEGENERATE)
    facts, table = data(page, "facts"), data(page, "table")
    assert list(facts) == [row.problem for row in ROWS] == [line[0] for line in table["rows"]]
    figures = dict(facts["2/1"]["figures"])
    assert figures["ours"] == "1 ms" and figures["under CUDA-graph replay"] == "0.1 ms (eager: 0.3 ms)"
    assert facts["1/4"]["message"] == "wrong values" and not facts["1/2"]["good"]
    assert all(len(line) == len(table["heads"]) + 1 for line in table["rows"])
    assert "fast_1.2" in page and "3 of 4 verified" in page


def test_text_of_others_is_escaped():
    page = pages.page(ROWS, None)
    assert HOSTILE not in page and "no list of degenerate ones" in page


def test_nothing_to_draw_is_refused():
    with pytest.raises(BadInput, match="no row"):
        pages.page([], None)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_in_a_browser_it_sorts_filters_shows_and_asks_for_nothing(tmp_path):
    from playwright.sync_api import sync_playwright

    file = tmp_path / "page.html"
    file.write_text(pages.page(ROWS, DEGENERATE))
    told, asked = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=CHROMIUM, args=FLAGS, viewport={"width": 1500, "height": 1200}
        )
        page = browser.new_page()
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector("#panel h2")
        names = "rows => rows.filter(row => !row.hidden).map(row => row.dataset.problem)"
        assert page.eval_on_selector_all("#problems tbody tr", names) == ["1/1", "1/2", "1/3", "1/4", "2/1"]
        page.click("#problems th >> text=/^ours over eager$/")
        assert page.eval_on_selector_all("#problems tbody tr", names) == ["2/1", "1/3", "1/1", "1/2", "1/4"]
        page.click("#problems th >> text=/^problem$/")
        assert page.eval_on_selector_all("#problems tbody tr", names) == ["1/1", "1/2", "1/3", "1/4", "2/1"]
        page.fill("#filter", "hard")
        assert page.eval_on_selector_all("#problems tbody tr", names) == ["1/4"]
        page.click('#problems tr[data-problem="1/4"]')
        assert page.inner_text("#panel h2") == "1/4 Hard" and page.inner_text("#panel .message") == "wrong values"
        x, y = page.evaluate(POSITION, "2/1")
        page.mouse.move(x, y)
        page.wait_for_selector(".hoverlayer .hovertext")
        page.mouse.down()
        page.mouse.up()
        page.wait_for_function("document.querySelector('#panel h2').textContent.startsWith('2/1')")
        assert "9 ms" in page.inner_text("#panel dl")
        browser.close()
    assert told == []
    assert asked == [file.as_uri()]


POSITION = """key => {
  const plot = document.querySelector(".js-plotly-plot");
  const place = plot.data.findIndex(trace => (trace.customdata || []).includes(key));
  const point = plot.calcdata[place][plot.data[place].customdata.indexOf(key)];
  const box = plot.getBoundingClientRect(), { xaxis, yaxis } = plot._fullLayout;
  return [box.x + xaxis._offset + xaxis.d2p(point.x), box.y + yaxis._offset + yaxis.l2p(yaxis.d2l(point.y))];
}"""
