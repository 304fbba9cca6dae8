"""Interleaved timing: several calls in one process, in random order, each after an L2 flush, with an interval on the ratio.

The clock is a protocol, so that the rounds, the stopping rule and the statistics run anywhere. On CUDA a measurement is:
flush (write at least twice the L2, as often as it takes), start event, call, an event on the stream, a wait for the whole
device, the end event; docs/timing.md says why. Device time holds no launch cost, because the flush keeps the GPU busy until
the call has returned; `host_ms` measures wall time per call, without flush, after synchronisation.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mtmc.verdict import decide

if TYPE_CHECKING:
    from numpy.typing import NDArray

Call = Callable[[], object]
RESAMPLES = 2000
FLUSH = 512 << 20  # bytes written at least: 0.13 ms on an H200, a head start for the host
FLUSHES = 256  # at most, 34 ms: a network of a hundred kernels takes 10 ms to launch on busy cores
STABLE = 0.05  # warm-up ends when two calls in a row differ by less
WARM_CALLS = (3, 25)  # least and most warm-up calls of each contestant
PRECISE = 0.005  # half width of the interval, relative, at which more rounds are not worth their time in a search
DECISIVE = 0.0025  # the same where differences of a few percent must be told from none
GLANCE = 300  # resamples of the interval that is watched while measuring
GLANCES = 1.25  # rounds from one look to the next, as a factor: few looks, and none depends on which side is ahead
CALIBRATIONS = 20
HOPELESS = 5.0  # where one of the first two is so many times slower, and a round takes long, three rounds tell enough
FRESH_EVERY = 5  # rounds between new input contents


class Clock(Protocol):
    """Measures one call."""

    def device_ms(self, call: Call) -> float:
        """Device time of one call with a cold L2, in milliseconds."""
        ...

    def host_ms(self, call: Call) -> float:
        """Wall time of one call from an idle device to an idle device, in milliseconds."""
        ...

    def launch_ms(self, call: Call) -> float:
        """Wall time until one call returns, its work enqueued but not waited for, in milliseconds."""
        ...

    def anew(self) -> Clock:
        """The same clock, with nothing learned of the calls before: for calls of another kind."""
        ...


class CudaClock:
    """CUDA events on the stream that is current when the clock is made. Make it before a candidate is imported.

    The time of a call is that of its stream, or, where more, that until the whole device is idle less what waiting costs
    (`waiting_ms`, found by timing calls that do nothing): so work on other streams counts. The flush is repeated, for all
    calls, until the host has enqueued a call before the GPU begins with it; once a call is seen that never has (it waits for
    the GPU), one flush is all that any call gets.
    """

    def __init__(self) -> None:
        import torch

        self.cuda: Any = torch.cuda
        self.stream = torch.cuda.current_stream()
        self.event: Any = torch.cuda.Event
        self.synchronize = torch.cuda.synchronize
        self.flushes, self.most = 1, FLUSHES
        size = 2 * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.flushed = torch.empty(max(size, FLUSH), dtype=torch.int8, device="cuda")
        waits = [late - early for early, late in (self._times(lambda: None) for _ in range(CALIBRATIONS))]
        self.waiting_ms = 2 * float(np.median(waits))

    def device_ms(self, call: Call) -> float:
        early, late = self._times(call)
        return max(early, late - self.waiting_ms)

    def _times(self, call: Call) -> tuple[float, float]:
        """Milliseconds until the stream has done the call, and until the device is seen idle."""
        start, early, late = (self.event(enable_timing=True) for _ in range(3))
        for number in count(1):
            for _ in range(self.flushes):
                self.flushed.zero_()
            start.record(self.stream)
            call()
            early.record(self.stream)
            ahead = not start.query()
            self.synchronize()
            late.record(self.stream)
            self.synchronize()
            if ahead or self.flushes >= self.most:
                break
            if number % 2 == 0:  # not for one late call: it may have compiled
                self.flushes *= 2
        if not ahead:
            self.flushes = self.most = 1
        return float(start.elapsed_time(early)), float(start.elapsed_time(late))

    def host_ms(self, call: Call) -> float:
        self.synchronize()
        before = time.perf_counter()
        call()
        self.synchronize()
        return (time.perf_counter() - before) * 1e3

    def launch_ms(self, call: Call) -> float:
        self.synchronize()
        before = time.perf_counter()
        call()
        spent = time.perf_counter() - before
        self.synchronize()
        return spent * 1e3

    def anew(self) -> CudaClock:
        """One flush before a call again, until one is late: a network's head start would go before each of its kernels."""
        other = copy(self)
        other.flushes, other.most = 1, FLUSHES
        return other


@dataclass(frozen=True)
class Interval:
    """Ratio of medians with its 95 % bootstrap interval."""

    ratio: float
    low: float
    high: float

    @property
    def decision(self) -> str:
        """What the interval says of the second call against the first: see `mtmc.verdict.decide`."""
        return decide(self.ratio, self.low, self.high)


@dataclass(frozen=True)
class Budget:
    """When to stop: never before `rounds`, then after `seconds`, or once the interval is narrower than ± `precise`."""

    seconds: float = 2.0
    rounds: int = 10
    most: int = 1000
    precise: float = PRECISE


def ratio_interval(a: NDArray[np.float64], b: NDArray[np.float64], seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """median(a) / median(b) of rounds measured together; the bootstrap resamples rounds, so common drift cancels."""
    picks = np.random.default_rng(seed).integers(0, len(a), (resamples, len(a)))
    ratios = np.median(a[picks], axis=1) / np.median(b[picks], axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Interval(float(np.median(a) / np.median(b)), float(low), float(high))


def warm_up(call: Call, clock: Clock, seconds: float = 1.0) -> float:
    """Call until two calls in a row take about as long (autotuning, graph capture and clocks have settled); the last time.

    A call that takes longer than `seconds` is not repeated for this.
    """
    least, most = WARM_CALLS
    last = clock.device_ms(call)
    for number in range(2, most + 1):
        if last > 1e3 * seconds:
            break
        now = clock.device_ms(call)
        if number >= least and abs(now - last) <= STABLE * max(now, last):
            return now
        last = now
    return last


def interleave(
    calls: Mapping[str, Call],
    clock: Clock,
    budget: Budget,
    *,
    between: Callable[[int], None] = lambda number: None,
    seed: int = 0,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, NDArray[np.float64]]:
    """Device times (ms) by round for each call, all measured in every round in random order.

    `between` is called with the number of each round (from 1) when it is over: to write new contents, to look at results.
    The interval watched for stopping is that of the first two calls; its width decides, never its place.
    """
    warm = [warm_up(call, clock) for call in calls.values()]
    compared = warm[:2]
    hopeless = max(compared) > HOPELESS * min(compared) and sum(warm) > 1e3 * budget.seconds
    least = 3 if hopeless else budget.rounds
    shuffler, names, began, look = random.Random(seed), list(calls), now(), float(least)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1, budget.most + 1):
        for name in shuffler.sample(names, len(names)):
            times[name].append(clock.device_ms(calls[name]))
        between(number)
        if number < least:
            continue
        if now() - began > budget.seconds or number >= look and _precise(times, budget.precise):
            break
        look = max(look, number * GLANCES) if number >= look else look
    return {name: np.array(values) for name, values in times.items()}


def _precise(times: dict[str, list[float]], wanted: float) -> bool:
    first, *others = (np.array(values) for values in times.values())
    if not others:
        return False
    found = ratio_interval(first, others[0], resamples=GLANCE)
    return (found.high - found.low) / 2 <= wanted * found.ratio


def host_times(calls: Mapping[str, Call], measure: Callable[[Call], float], rounds: int = 15) -> dict[str, float]:
    """Median of `measure` (a clock's `host_ms` or `launch_ms`) over each call, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(measure(call))
    return {name: float(np.median(values)) for name, values in times.items()}


def roll(inputs: tuple[Any, ...]) -> None:
    """New contents at the same addresses, drawn alike and as valid as before: every tensor is rolled by one element."""
    import torch

    from mtmc.judge.device import tensors

    with torch.no_grad():
        for x in tensors(inputs):
            if x.numel() > 1 and 0 not in x.stride():
                x.copy_(x.roll(1))
