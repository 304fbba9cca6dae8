"""Result files of `mtmc bench`: rows that join, means as docs/bench.md defines them, tables, and two files compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_rows import DEGENERATE, SMALL, failed, row

from mtmc.bench import compare, figures, rows, tables
from mtmc.bench.figures import headline
from mtmc.bench.suite import cases
from mtmc.errors import BadInput

ROOT = Path(__file__).parents[2]


def level(number: int) -> figures.Level:
    return figures.levels(SMALL, DEGENERATE)[number]


@pytest.mark.parametrize(
    ("place", "baseline", "counts"),
    [
        (0, "eager", 4.0),
        (0, "compile-default", 2.0),
        (0, "best", 2.0),
        (1, "eager", 1.0),  # eager is handed back
        (1, "compile-default", 1.0),  # eager is ahead of torch.compile by 4, which is not ours
        (2, "eager", 1.0),
        (3, "compile-default", 1.0),
        (4, "compile-default", None),  # it failed there, or was not asked
        (4, "best", 9.0),
    ],
)
def test_what_counts_in_the_headline(place, baseline, counts):
    assert headline(SMALL[place], baseline, DEGENERATE) == counts


def test_eager_that_is_handed_back_is_not_worth_more_than_it_is():
    behind = row("1/9", eager=3.0, ours=4.0, compiled=1.5)
    assert headline(behind, "compile-default", ()) == 0.5 and headline(behind, "best", ()) == 0.5


def test_means_of_the_three_kinds():
    first, second, whole = figures.levels(SMALL, DEGENERATE)
    assert first.means["headline"]["eager"].geometric == pytest.approx(4 ** (1 / 4))
    assert first.means["headline"]["eager"].median == 1.0
    ours = first.means["heavy operations all ours"]["eager"]
    assert (ours.count, ours.geometric) == (2, pytest.approx((4 * 0.5) ** 0.5))
    assert not second.means["heavy operations all ours"]
    graphs = second.means["CUDA graphs on both sides"]
    assert list(graphs) == ["eager"] and graphs["eager"].geometric == pytest.approx(3.0)
    assert whole.name == "all levels" and whole.problems == 5


def test_fast_p_is_of_all_problems_of_the_level():
    assert figures.FAST == (1.0, 1.2, 2.0, 5.0)
    assert level(0).means["headline"]["eager"].fast == (0.25, 0.25, 0.25, 0.0)
    assert level(1).means["headline"]["eager"].fast == (1.0, 1.0, 1.0, 1.0)


def test_accuracy_counts_failures_and_opinions():
    first = level(0)
    assert (first.problems, first.verified, first.handed_back, first.opinions, first.agreed) == (4, 3, 2, 2, 1)


def test_costs_have_a_median_and_a_worst():
    spent = dict(
        figures.spent([row("1/1", seconds=10.0), row("1/2", seconds=30.0), row("1/3", seconds=20.0), failed("1/4")])
    )
    assert spent["seconds"] == figures.Spent(20.0, 30.0, "1/2")
    assert spent["peak_bytes"].median == 1 << 30


def test_a_problem_is_slower_only_beyond_noise():
    assert figures.slower([row("1/1", 0.995, 1.0), row("1/2", 0.9, 1.0)]) == [row("1/2", 0.9, 1.0)]


def test_heavy_operations_that_stay_pytorch_are_seen():
    assert row("1/1", fallback_calls=["aten.add.Tensor", "aten.reshape.default"]).all_ours
    assert not row("1/1", fallback_calls=["aten.max_pool2d.default"]).all_ours
    assert not row("1/1", units=0).all_ours


def test_rows_survive_a_file_and_a_torn_line_is_cut_off(tmp_path):
    file = tmp_path / "deep" / "rows.jsonl"
    for one in SMALL:
        rows.append(file, one)
    assert rows.read(file) == SMALL
    with file.open("a") as torn:
        torn.write('{"problem": "1/')
    assert rows.read(file) == SMALL
    rows.append(file, failed("2/2"))
    assert rows.read(file) == [*SMALL, failed("2/2")]
    file.write_bytes(file.read_bytes().removesuffix(b"\n"))  # as an editor leaves it
    assert rows.read(file) == [*SMALL, failed("2/2")]
    rows.append(file, failed("2/3"))
    assert rows.read(file) == [*SMALL, failed("2/2"), failed("2/3")]


@pytest.mark.parametrize("line", ["nonsense", '{"title": "x"}', "[1]", '{"problem": "first"}'])
def test_damage_is_named_with_its_line(tmp_path, line):
    file = tmp_path / "rows.jsonl"
    rows.append(file, SMALL[0])
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(BadInput, match="line 2"):
        rows.read(file)


def test_of_each_problem_the_last_result_counts_better_or_worse():
    joined = rows.join([row("2/1"), row("1/10", 4.0), row("1/9"), row("1/10", 3.0), failed("1/10", "skipped")])
    assert [(one.problem, one.eager_ms) for one in joined] == [("1/9", 2.0), ("1/10", 3.0), ("2/1", 2.0)]
    assert rows.join([row("1/1"), failed("1/1")])[0].status == "none"
    assert rows.join([failed("1/1", "infra"), failed("1/1", "skipped")])[0].status == "skipped"


def test_baselines_that_were_not_asked_again_are_borrowed_by_their_ratio():
    old = row("1/1", 2.0, 1.0, 1.5, baselines_ms={"compile-default": 1.5, "compile-max-autotune": 1.0}, date="2026-12-01")
    new = row("1/1", 4.0, 1.0, 3.0, date="2026-12-02")
    (joined,) = rows.join([old, new])
    assert joined.borrowed == {"compile-max-autotune": (2.0, "2026-12-01")}
    assert joined.best == "compile-max-autotune" and joined.over("best") == 2.0
    assert "| 1.33 | 2.00† | 2.00† |" in tables.text([joined], ())
    (other,) = rows.join([old, row("1/1", 4.0, 1.0, 3.0, torch="2.13.0")])
    assert not other.borrowed


def test_the_measured_rows_of_the_project_can_be_read_and_summed_up():
    joined = rows.join(rows.read(ROOT / "benchmarks/h200/kernelbench.jsonl"))
    known = rows.degenerate(ROOT / "benchmarks/degenerate.jsonl")
    assert len(joined) >= 63 and all(one.date and one.torch and one.triton for one in joined)
    assert {"2/9", "3/3", "1/37"} <= known and len(known) == 23
    report = tables.text(joined, known)
    assert "| 1/1 Square_matrix_multiplication |" in report and report.count("(degenerate)") == len(
        known & {one.problem for one in joined}
    )


def test_the_report_names_what_failed_what_is_slower_and_what_was_not_asked():
    report = tables.text(SMALL, DEGENERATE)
    assert "- 1/4, none: wrong values" in report
    assert "Slower than eager beyond noise, so eager is handed back: 1/2 (0.50)." in report
    assert "3 of 4 verified, 2 ahead of eager beyond noise, 1 degenerate" in report
    assert "| 2/1 Some_kernel | 9.000 | 1.000 | 9.00 | 8.91–9.09 |  | 9.00 | 90% | 25% |" in report
    assert "no list of degenerate ones" in tables.text(SMALL, None)
    assert "| 1/3 Some_kernel (degenerate) |" in report


def test_each_memory_bound_problem_below_the_target_says_what_bounds_it():
    near = row("1/1", ours=1.0, passes_ms=0.95, floor_gb=4.0)
    times, traffic = {"norm": 1.9, "stats": 0.05}, {"norm": (6.0, "l2")}
    far = row("1/2", ours=2.0, passes_ms=1.0, floor_gb=4.0, kernels_ms=times, traffic=traffic)
    products = row("1/3", ours=2.0, passes_ms=1.0)
    report = tables.text([near, far, products], ())
    assert "below 92% of copy bandwidth" in report
    assert "- 1/2, 50%: moves 6.00 GB, the floor 4.00. norm 1.90 ms, 6.00 GB at 79% of copy bandwidth (l2)." in report
    assert "- 1/1," not in report and "- 1/3," not in report and "stats" not in report
    assert "copy bandwidth" not in tables.text([near, products], ())


def test_two_files_are_compared_by_intervals():
    before = [row("1/1", 2.0), row("1/2", 2.0), row("1/3", 2.0), row("1/4"), failed("1/5"), row("1/6")]
    after = [row("1/1", 3.0), row("1/2", 1.8), row("1/3", 2.02), failed("1/4"), row("1/5"), row("1/7")]
    found = {change.problem: change.word for change in compare.compare(before, after)}
    words = ("faster", "slower", "equal", "lost", "found", "only before", "only after")
    assert found == {f"1/{number}": word for number, word in enumerate(words, 1)}
    text = compare.text(compare.compare(before, after))
    assert "1 lost, 1 slower, 1 faster, 1 found, 1 equal" in text
    assert "| 1/1 | faster | 2.00 [1.98, 2.02] | 3.00 [2.97, 3.03] | 1.500 |" in text and "| 1/4 | lost |" in text
    assert f"changed by {(1.5 * 0.9 * 1.01) ** (1 / 3):.3f} (geometric mean of 3)" in text


@pytest.fixture
def checkout(tmp_path):
    for place in ("1/2_Two", "1/10_Ten", "1/1_One", "2/5_Five"):
        number, _, name = place.partition("/")
        folder = tmp_path / "KernelBench" / f"level{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text("class Model: ...\n")
    return tmp_path


def test_problems_are_chosen_by_level_name_and_number(checkout):
    def names(*arguments, **options):
        return [case.name for case in cases("kernelbench", checkout, *arguments, **options)]

    assert names() == ["1/1", "1/2", "1/10", "2/5"]
    assert (
        names((2,)) == ["2/5"] and names((), ("2/5", "1/10", "2/5")) == ["2/5", "1/10"] and names(every=5) == ["1/10", "2/5"]
    )
    for arguments, said in (
        (((3,),), "no level 3"),
        (((), ("1/9",)), "no problem 1/9"),
        (((), ("one",)), "level/number"),
        (((2,), ("1/1",)), "none in common"),
    ):
        with pytest.raises(BadInput, match=said):
            names(*arguments)
    with pytest.raises(BadInput, match="unknown suite 'triton'; known: kernelbench, folder"):
        cases("triton", checkout)


def test_any_folder_of_models_is_a_suite(tmp_path):
    (tmp_path / "b.py").write_text("class Model: ...\n")
    (tmp_path / "a.py").write_text("import torch\n\nclass Model(torch.nn.Module): ...\n")
    (tmp_path / "helper.py").write_text("x = 1\n")
    assert [(case.name, case.title) for case in cases("folder", tmp_path)] == [("0/1", "a"), ("0/2", "b")]
    with pytest.raises(BadInput, match="holds no problem of the suite kernelbench"):
        cases("kernelbench", tmp_path)


def test_a_list_of_degenerate_problems_must_be_one(tmp_path):
    (tmp_path / "list").write_text(json.dumps({"problem": "1/1"}) + "\n")
    with pytest.raises(BadInput, match="not a list of degenerate problems"):
        rows.degenerate(tmp_path / "list")
