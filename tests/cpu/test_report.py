"""The report says what the steps and verdicts say."""

from __future__ import annotations

from dataclasses import replace

from fakes import FIRST, FakeEvaluator

from mtmc import report, wording
from mtmc.action import Action
from mtmc.program import Program
from mtmc.step import Step
from mtmc.trajectories.store import Ending, Run, RunInfo
from mtmc.verdict import CompileError, Timing, Verified

INFO = RunInfo(
    "mlp", "abc", "mlp.py", "Model", "h200", "greedy", 7, 40, 3.0, "strict", "measured",
    {"title": "NVIDIA H200"}, {"torch": "2.13.0"}, ("aten.lstm stays a PyTorch call: no template.",),
)  # fmt: skip
BETTER = Program(FIRST.source.replace("BLOCK = 16", "BLOCK = 64", 1) + "\nimport einops, math\n")
TILE = Action("tile", "tiling", "gemm", (("BLOCK", 64),), "Use a tile of 64 | in gemm.")


def written(folder, ending=None, final=None):
    """A run of two programs; the second is the answer unless another ending is given."""
    run = Run.create(folder, INFO)
    evaluator = FakeEvaluator("measured", noise=0.02)
    run.append(Step(0, "", FIRST.key, None, evaluator.judge(FIRST), 0.5, ""), FIRST)
    verdict = evaluator.judge(BETTER)
    step = Step(
        1, FIRST.key, BETTER.key, TILE, verdict, 0.6, "greedy", "--- a", 2, ("split",), ("tl.static_assert(BLOCK > 0)",)
    )
    run.append(step, BETTER)
    failed = Step(2, FIRST.key, "dead", TILE, CompileError("too large", "shared_memory"), 0.0, "greedy")
    run.append(failed, Program("broken"))
    run.finish(ending or Ending("The budget is used up.", BETTER.key, final or verdict))
    return report.text(run), verdict.timing


def test_the_report_carries_the_figures_of_the_final_verdict(tmp_path):
    verdict = FakeEvaluator("measured", noise=0.02).judge(BETTER)
    final = replace(verdict, timing=replace(verdict.timing, speedup=3.21, low=3.1, high=3.3, compiled_ms=1.0))
    text, _ = written(tmp_path / "r", final=final)
    assert "**3.21× faster than PyTorch eager, measured** (95 % interval 3.10 to 3.30)." in text
    assert "| torch.compile | 1 ms | 10.00× |" in text
    assert "torch.compile is faster than this program here." in text
    assert "in a fresh process" in text


def test_the_report_lists_steps_needs_and_what_was_not_checked(tmp_path):
    text, timing = written(tmp_path / "r")
    figure = f"{timing.speedup:.2f}× [{timing.low:.2f}, {timing.high:.2f}]"
    assert f"| [1](patches/001.patch) | Use a tile of 64 \\| in gemm. | 2 | verified | {figure} | +66.7 % |" in text
    assert "Also judged, and not on this path: 1 did not compile." in text
    assert "from your own imports: einops." in text
    assert "`split`" in text and "`tl.static_assert(BLOCK > 0)`" in text
    assert "- Checked: odd sizes." in text and "- Not checked: fp64 oracle at full size." in text
    assert "aten.lstm stays a PyTorch call: no template." in text
    assert "policy greedy, seed 7, at most 40 candidates, 3 minutes" in text


def test_the_report_says_when_there_is_no_speedup(tmp_path):
    text, _ = written(tmp_path / "r", Ending("Nothing helped.", discarded=("x did not hold.",)))
    assert "**No speed-up.**" in text and "x did not hold." in text
    assert "faster than PyTorch eager" not in text


def test_the_report_says_when_nothing_could_be_verified(tmp_path):
    run = Run.create(tmp_path / "r", INFO)
    run.append(Step(0, "", FIRST.key, None, CompileError("no such op"), 0.0, ""), FIRST)
    run.finish(Ending("No action is left."))
    text = report.text(run)
    assert "**No program could be verified**" in text and "no such op" in text
    assert "Everything, as there is no program of ours." in text


def test_an_interrupted_run_is_not_said_to_be_judged_again(tmp_path):
    text, _ = written(tmp_path / "r", Ending("Interrupted.", BETTER.key))
    assert "faster than PyTorch eager, measured" in text
    assert "in a fresh process" not in text


def test_predicted_figures_are_called_so(tmp_path):
    predicted = FakeEvaluator().judge(BETTER)
    assert isinstance(predicted, Verified)
    text, _ = written(tmp_path / "r", final=predicted)
    assert "faster than PyTorch eager, predicted.**" in text and "device time, predicted" in text


def test_what_is_measured_beside_the_time_is_said() -> None:
    timing = Timing(
        "measured",
        1.0,
        0.5,
        2.0,
        1.9,
        2.1,
        floor_ms=0.25,
        guard_us=12.0,
        launch_us=34.5,
        graph_ms=0.03,
        reference_graph_ms=0.06,
        clocks={"sm_mhz": [1700, 1980], "celsius": [40, 45], "throttled": ["software power cap"]},
    )
    assert dict(wording.beside(timing)) == {
        "share of the hardware's floor": "50%",
        "guard of the program": "12 µs",
        "launching": "34.5 µs",
        "under CUDA-graph replay": "30 µs (eager: 60 µs)",
        "sm": "1700 to 1980 MHz",
        "celsius": "40 to 45 °C",
        "throttled": "software power cap",
    }
    assert wording.speedup(timing) == "2.00× [1.90, 2.10]"
    assert wording.speedup(replace(timing, speedup=1.0, low=0.98, high=1.02)) == "1.00× [0.98, 1.02], no verdict"
    assert wording.speedup(replace(timing, speedup=1.0, low=0.998, high=1.002)) == "1.00× [1.00, 1.00], equal"


def test_the_choice_of_a_step_is_shown_with_the_probability_of_every_legal_action(tmp_path):
    run = Run.create(tmp_path / "r", INFO)
    evaluator = FakeEvaluator("measured", noise=0.02)
    run.append(Step(0, "", FIRST.key, None, evaluator.judge(FIRST), 0.5, ""), FIRST)
    others = {f"tile(relu, BLOCK={i})": 0.05 for i in range(7)}
    chances = {TILE.id: 0.5, "stop(model)": 0.15, **others}
    verdict = evaluator.judge(BETTER)
    run.append(Step(1, FIRST.key, BETTER.key, TILE, verdict, 0.6, "llm", probabilities=chances), BETTER)
    run.finish(Ending("Done.", BETTER.key, verdict))
    text = report.text(run)
    assert "Step 1, 9 legal actions:" in text
    assert f"| **`{TILE.id}`** (chosen) | 50.0% |" in text and "| `stop(model)` | 15.0% |" in text
    assert "the other 4" in text and all(name in text for name in chances)
