"""The decision rule on a clock with the noise of a real GPU: how often it sees what is not there, and misses what is.

The clock: jitter of 0.5 to 1 % a measurement, a random walk of the GPU's clock within ± 5 %, one outlier in a hundred (20 %
more on average), and, between two identical copies, a lasting difference of 0.2 % (where their memory happens to lie).
"""

import random
from collections import Counter

import pytest

from mtmc.judge.timing import DECISIVE, Budget, interleave, ratio_interval
from mtmc.verdict import decide

TRIALS = 25
TRIAL = Budget(seconds=0.3, precise=DECISIVE)  # as benchmarks/timing_honesty.py has it on a GPU
KERNEL_MS, AROUND_MS = 0.3, 0.2  # a kernel, and the flush and the wait around it


class Noisy:
    def __init__(self, seed: int, jitter: float) -> None:
        self.random, self.jitter = random.Random(seed), jitter
        self.level, self.cost, self.elapsed = self.random.uniform(-0.05, 0.05), 0.0, 0.0

    def call(self, cost: float):
        def run() -> None:
            self.cost = cost

        return run

    def device_ms(self, call) -> float:
        call()
        self.level = max(-0.05, min(0.05, self.level + self.random.gauss(0, 1e-3)))
        value = self.cost * (1 + self.level) * (1 + self.random.gauss(0, self.jitter))
        if self.random.random() < 0.01:
            value *= 1 + self.random.expovariate(5)
        self.elapsed += (value + AROUND_MS) / 1e3
        return value

    host_ms = launch_ms = device_ms

    def now(self) -> float:
        return self.elapsed


def decisions(slower: float, jitter: float) -> Counter[str]:
    """The decisions of trials in which the second call takes so much more of the time."""
    found: Counter[str] = Counter()
    for seed in range(TRIALS):
        clock = Noisy(seed, jitter)
        place = 1 + random.Random(seed).choice((-1, 1)) * 0.002
        calls = {"a": clock.call(KERNEL_MS), "b": clock.call(KERNEL_MS * (1 + slower) * place)}
        times = interleave(calls, clock, TRIAL, seed=seed, now=clock.now)
        found[ratio_interval(times["a"], times["b"], seed).decision] += 1
    return found


@pytest.mark.parametrize("jitter", [0.005, 0.01])
def test_two_copies_are_equal(jitter: float) -> None:
    """Simulated: no false difference and no undecided trial in 25."""
    found = decisions(0.0, jitter)
    assert found["faster"] + found["slower"] == 0 and found["no verdict"] <= 1, found


@pytest.mark.parametrize("jitter", [0.005, 0.01])
def test_a_planted_slow_down_of_three_percent_is_found(jitter: float) -> None:
    """Simulated: 25 of 25."""
    assert decisions(0.03, jitter)["slower"] >= TRIALS - 1


def test_noise_that_no_budget_can_average_out_is_no_verdict() -> None:
    assert decisions(0.0, 0.2)["no verdict"] >= TRIALS // 2


@pytest.mark.parametrize(
    ("ratio", "low", "high", "decision"),
    [
        (1.0, 0.995, 1.005, "equal"),
        (1.005, 1.003, 1.007, "equal"),  # a difference, but none that matters
        (1.0, 0.98, 1.02, "no verdict"),
        (1.02, 1.0001, 1.04, "no verdict"),  # the 95 % interval excludes 1, the 99 % interval does not
        (1.02, 1.01, 1.03, "faster"),
        (0.97, 0.96, 0.98, "slower"),
        (1.5, 1.5, 1.5, "faster"),
    ],
)
def test_what_an_interval_says(ratio: float, low: float, high: float, decision: str) -> None:
    assert decide(ratio, low, high) == decision
