"""Timing logic on a clock of the test's own: rounds, stopping, statistics and the split by unit."""

import random
from collections import Counter
from types import ModuleType

import numpy as np
import pytest
import torch

from mtmc.judge import baselines
from mtmc.judge.measure import Bench, Extras, GpuTimeJob, Looks, written
from mtmc.judge.shares import Shares, shares
from mtmc.judge.timing import Budget, Call, host_times, interleave, ratio_interval, roll, warm_up
from mtmc.problem import Problem
from mtmc.verdict import Rejected, Timing


class Simulated:
    """Calls set `cost`; the clock returns it with noise and a slow drift, and counts time with it."""

    def __init__(self, noise: float = 0.0, drift: float = 0.0) -> None:
        self.random, self.noise, self.drift = random.Random(0), noise, drift
        self.cost, self.elapsed, self.order = 0.0, 0.0, ""

    def call(self, name: str, cost: float):
        def run() -> None:
            self.order += name
            self.cost = cost

        return run

    def device_ms(self, call) -> float:
        call()
        value = self.cost * (1 + self.noise * self.random.gauss(0, 1)) * (1 + self.drift * self.elapsed)
        self.elapsed += value / 1e3
        return value

    host_ms = launch_ms = device_ms

    def now(self) -> float:
        return self.elapsed


def test_rounds_are_interleaved_in_random_order() -> None:
    clock = Simulated(noise=0.05)
    times = interleave({"a": clock.call("a", 2.0), "b": clock.call("b", 1.0)}, clock, Budget(0.2), now=clock.now)
    rounds = clock.order[-2 * len(times["a"]) :]
    pairs = Counter(rounds[i : i + 2] for i in range(0, len(rounds), 2))
    assert set(pairs) == {"ab", "ba"}
    assert len(times["a"]) == len(times["b"]) >= 10


def test_the_budget_holds_but_never_below_the_least_rounds() -> None:
    clock = Simulated(noise=0.3)
    calls = {"a": clock.call("a", 100.0), "b": clock.call("b", 100.0)}
    assert len(interleave(calls, clock, Budget(0.01), now=clock.now)["a"]) == 10
    clock = Simulated(noise=0.3)
    calls = {"a": clock.call("a", 10.0), "b": clock.call("b", 10.0)}
    count = len(interleave(calls, clock, Budget(2.0), now=clock.now)["a"])
    assert 80 < count < 120


def test_a_clear_case_stops_early() -> None:
    clock = Simulated(noise=1e-4)
    calls = {"a": clock.call("a", 2.0), "b": clock.call("b", 1.0)}
    assert len(interleave(calls, clock, Budget(100.0), now=clock.now)["a"]) == 10


def test_the_interval_covers_the_truth_and_says_when_there_is_no_verdict() -> None:
    rng = np.random.default_rng(1)
    drift = 1 + 0.3 * np.linspace(0, 1, 60)
    slow, fast = (cost * drift * (1 + 0.01 * rng.standard_normal(60)) for cost in (2.0, 1.0))
    found = ratio_interval(slow, fast)
    assert found.low < 2.0 < found.high and found.decision == "faster"
    assert found.high - found.low < 0.3
    same = ratio_interval(fast, fast * (1 + 0.02 * rng.standard_normal(60)))
    assert same.low < 1.0 < same.high and same.decision == "no verdict"
    assert ratio_interval(slow, fast) == found


def test_warm_up_waits_until_calls_take_as_long() -> None:
    costs = iter([90.0, 30.0, 10.0, 5.0, 1.0, 1.01, 1.0])
    clock = Simulated()

    def settling() -> None:
        clock.cost = next(costs)

    warm_up(settling, clock)
    assert next(costs) == 1.0


def test_something_may_be_done_between_rounds() -> None:
    clock, fresh = Simulated(noise=0.1), []
    calls = {"a": clock.call("a", 1.0), "b": clock.call("b", 1.0)}
    times = interleave(calls, clock, Budget(0.0, rounds=20), between=fresh.append, now=clock.now)
    assert len(times["a"]) == 20 and fresh == list(range(1, 21))


def test_roll_changes_contents_at_the_same_address() -> None:
    x, ids, expanded = torch.arange(6.0).reshape(2, 3), torch.tensor([1, 2, 3]), torch.zeros(1).expand(4)
    place = x.data_ptr()
    roll((x, [ids], expanded, 3))
    assert x.data_ptr() == place and x.tolist() == [[5.0, 0.0, 1.0], [2.0, 3.0, 4.0]]
    assert ids.tolist() == [3, 1, 2]


@pytest.mark.parametrize("library", [False, True])
def test_units_are_summed_over_calls_operators_beside_them_counted_and_launchers_put_back(library: bool) -> None:
    clock = Simulated()
    module = ModuleType("candidate")
    exec(
        "def launch_relu(x):\n    work(1.0)\n    return x + 1\n"
        "def launch_mm(x):\n    work(3.0)\n    return x * 2\n"
        "def run(x):\n    y = launch_relu(launch_mm(launch_relu(x)))\n    work(0.5)\n    return (y[None] - 1).exp()[0]\n",
        module.__dict__,
    )
    module.work = lambda cost: setattr(clock, "cost", cost)
    before = module.launch_relu
    x, outputs = torch.ones(1), []
    found = shares(module, lambda: outputs.append(module.run(x)), clock, library=library)
    assert found == Shares({"mm": 3.0, "relu": 2.0}, 1.0 * library)  # two operators; the views are free
    assert outputs[0] == torch.exp(torch.tensor(4.0)) and module.launch_relu is before


def test_a_launcher_called_by_another_is_part_of_it() -> None:
    clock, module = Simulated(), ModuleType("candidate")
    exec(
        "def launch_join(x):\n    return x + 1\n"
        "def launch_sum(x):\n    y = launch_join(x)\n    work(4.0)\n    return y * 2\n"
        "def run(x):\n    return launch_sum(x)\n",
        module.__dict__,
    )
    module.work = lambda cost: setattr(clock, "cost", cost)
    x = torch.ones(1)
    assert shares(module, lambda: module.run(x), clock, library=True) == Shares({"sum": 4.0}, 0.0)


def test_host_times() -> None:
    clock = Simulated()
    assert host_times({"a": clock.call("a", 2.0), "b": clock.call("b", 1.0)}, clock.host_ms) == {"a": 2.0, "b": 1.0}


JOB = GpuTimeJob(
    problem=Problem("p", "", "p.py"), source="", floor_ms=0.5, baselines=("compile-default", "compile-max-autotune")
)
TIMES = {"reference": np.full(10, 2.0), "candidate": np.full(10, 1.0), "compile-default": np.full(10, 1.5)}
EXTRAS = Extras({"reference": 2.5, "candidate": 1.2}, {"relu": 0.9}, 0.1, 4096, 0.3)


def test_times_become_a_timing() -> None:
    timing = JOB.timing(TIMES, EXTRAS)
    assert timing == Timing(
        "measured",
        2.0,
        1.0,
        2.0,
        2.0,
        2.0,
        0.5,
        1.2,
        2.5,
        1.5,
        4096,
        0.3,
        {"relu": 0.9},
        {"compile-default": 1.5},
        library_ms=0.1,
        rounds=10,
    )
    assert timing.decision == "faster" and timing.floor_share == 0.5 and timing.kernel_share == 0.9


def test_faster_than_the_hardware_is_rejected() -> None:
    rejected = JOB.timing({**TIMES, "candidate": np.full(10, 0.4)}, EXTRAS)
    assert isinstance(rejected, Rejected) and rejected.rule == "faster_than_hardware"


@pytest.mark.parametrize(
    ("name", "free", "out"),
    [("eager-graph", 3 << 30, False), ("eager-graph", (3 << 30) - 1, True), ("compile-default", 1, False)],
)
def test_a_baseline_that_keeps_memory_is_left_out_where_others_would_miss_it(name: str, free: int, out: bool) -> None:
    assert bool(baselines.crowded(name, 1 << 30, free)) == out


def test_a_baseline_that_fails_or_has_no_room_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Call:
        raise RuntimeError("no such mode\nmore")

    monkeypatch.setattr(baselines, "BASELINES", {**baselines.BASELINES, "compile-default": broken, "eager-graph": broken})
    monkeypatch.setattr(baselines, "_kept_bytes", lambda *_: 1 << 62)
    notes: list[str] = []
    inputs = (torch.ones(2),)
    made = baselines.make(("eager-cudnn-benchmark", "compile-default", "eager-graph"), torch.nn.ReLU(), inputs, notes)
    assert list(made) == ["eager-cudnn-benchmark"]
    assert notes[0].startswith("baseline eager-graph: left out, it would keep")
    assert notes[1] == "baseline compile-default: no such mode"


def test_the_compiler_is_loaded_by_a_model_that_is_compiled_and_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    compiled = []
    monkeypatch.setattr(compile_fx, "compile_fx", lambda graph, inputs: compiled.append((graph, inputs)))
    baselines.load_compiler()
    ((graph, inputs),) = compiled
    assert any("softmax" in str(node.target) for node in graph.graph.nodes)
    assert all(isinstance(x, torch._subclasses.FakeTensor) for x in inputs), "they hold nothing"


def bench(reference, candidate, *inputs) -> Bench:
    return Bench(JOB, ModuleType("candidate"), reference, candidate, inputs, Simulated())


@pytest.mark.parametrize(("factor", "fails"), [(1.001, False), (1.1, True), (float("nan"), True)])
def test_a_candidate_that_remembers_is_caught_after_timing(factor: float, fails: bool) -> None:
    r = torch.randn(50)
    wrong = list(bench(lambda: r, lambda: r * factor)._at_last())
    assert [w.check for w in wrong] == ["after_timing"] * fails


def test_inputs_that_are_written_are_put_back_for_the_last_comparison() -> None:
    x = torch.arange(4.0)
    both = bench(lambda: x.mul_(2), lambda: x.mul_(2), x)
    both.writes = written((x,), both.reference)
    assert both.writes and not list(both._at_last())
    x.copy_(torch.arange(4.0))
    both._answer(both.candidate)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_timed_results_are_looked_at_in_rounds_that_cannot_be_foreseen() -> None:
    def rounds(seed: int) -> list[int]:
        looks = Looks(random.Random(seed))
        return [number for number in range(2, 1001) if looks.arm(number) or looks.armed]

    found = [rounds(seed) for seed in range(20)]
    assert all(2 <= some[0] <= 9 and 5 <= len(some) <= 10 for some in found)
    assert len({tuple(some) for some in found}) == 20


def test_a_search_looks_once() -> None:
    looks = bench(lambda: None, lambda: None).looks
    assert not JOB.whole and len([number for number in range(2, 1001) if looks.arm(number) or looks.armed]) == 1


def test_a_look_takes_the_result_of_the_timed_call_itself() -> None:
    answers = iter([torch.ones(3), torch.zeros(3)])
    both = bench(lambda: torch.ones(3), lambda: next(answers))
    both.looks.armed = True
    both._timed()
    assert not list(both._look(4))
    both._timed()
    (wrong,) = both._look(9)
    assert wrong.check == "after_timing" and "round 9" in wrong.message


def test_only_the_two_that_are_compared_cut_the_rounds_short() -> None:
    clock = Simulated()
    calls = {name: clock.call(name, cost) for name, cost in (("a", 1000.0), ("b", 990.0), ("c", 100.0))}
    assert len(interleave(calls, clock, Budget(seconds=2.0), now=clock.now)["a"]) == 10
    calls["a"], calls["b"] = clock.call("a", 3000.0), clock.call("b", 100.0)
    assert len(interleave(calls, clock, Budget(seconds=2.0), now=clock.now)["a"]) == 3


def test_a_clock_anew_has_the_head_start_of_one_flush() -> None:
    from mtmc.judge.timing import FLUSHES, CudaClock

    clock = CudaClock.__new__(CudaClock)  # without a GPU
    clock.flushes, clock.most = 128, 128
    other = clock.anew()
    assert (other.flushes, other.most) == (1, FLUSHES) and (clock.flushes, clock.most) == (128, 128)
