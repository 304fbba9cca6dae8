"""A crew: processes that grow one tree after the other, each on one GPU, watched by the process that gives out the problems.

A process is started anew after some problems, and when it has grown too large or overstays its time: neither a leak nor a
hang costs more than the problem at hand.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from mtmc import collecting
from mtmc.collecting import Order, Outcome, Plan
from mtmc.errors import InfraError
from mtmc.judge.jobs import WakeCompile, WakeGpu, WakeInterpret, wake
from mtmc.judge.processes import available_bytes, resident_bytes

RECYCLED = 25  # problems, after which a process is replaced
LARGE = 6 << 30  # bytes of a process' own memory, from which on it is replaced
OVERSTAY = 180.0  # seconds past a problem's time, after which its process is killed
HOPELESS = 5  # problems in a row, for each process, whose failing is no accident
SCARCE = 4 << 30  # bytes of free memory, below which nothing new is begun while something runs


@dataclass
class _Hand:
    """One process, and what it is at. A `lost` one has ended, or is to be ended: it does not answer."""

    gpu: str
    process: Any
    pipe: Connection
    order: Order | None = None
    began: float = 0.0
    served: int = 0
    lost: bool = False


@dataclass
class Crew:
    """`jobs` processes over `gpus` (none: times are predicted). `doing` is told who does what."""

    plan: Plan
    jobs: int
    gpus: tuple[str, ...] = ()
    doing: Callable[[str, str], None] = lambda _name, _what: None
    _hands: list[_Hand] = field(default_factory=list)

    def run(self, orders: Iterator[Order], count: int) -> Iterator[Outcome]:
        """Outcomes as they come, until `count` problems have a tree, the orders end, or the time is over.

        What is excluded or fails is made up for by the next order, so which problems have trees depends on no timing. Raises
        InfraError where one after the other fails.
        """
        gpus = self.gpus or ("",)
        self._hands = [self._hire(gpus[number % len(gpus)]) for number in range(self.jobs)]
        good = failed = 0
        try:
            while self._give_out(orders, count - good):
                for outcome in self._heard():
                    good += outcome.good
                    failed = 0 if outcome.good else failed + (outcome.kind == "failed")
                    yield outcome
                    if failed >= HOPELESS * self.jobs:
                        raise InfraError(f"{failed} problems in a row failed, {outcome.name} last: {outcome.note}.")
        finally:
            for hand in self._hands:
                self._dismiss(hand)

    def _give_out(self, orders: Iterator[Order], wanted: int) -> int:
        """Orders to idle hands, until so many problems are under way; how many are."""
        busy = sum(hand.order is not None for hand in self._hands)
        for number in [number for number, hand in enumerate(self._hands) if hand.order is None]:
            order = next(orders, None) if busy < wanted and self._may_begin(busy) else None
            if order is None:
                break
            self._hands[number] = self._handed(self._hands[number], order)
            busy += 1
        return busy

    def _handed(self, hand: _Hand, order: Order) -> _Hand:
        """The hand that has the order: a new one where this one has ended while it was idle."""
        try:
            hand.pipe.send(order)
        except OSError:
            hand.lost = True
            self._dismiss(hand)
            hand = self._hire(hand.gpu)
            hand.pipe.send(order)
        hand.order, hand.began = order, time.monotonic()
        return hand

    def _may_begin(self, busy: int) -> bool:
        if self.plan.until and self.plan.left() <= 0:
            return False
        return not busy or available_bytes() > SCARCE

    def _hire(self, gpu: str) -> _Hand:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.plan, gpu), daemon=True)
        process.start()
        theirs.close()
        return _Hand(gpu, process, ours)

    def _heard(self) -> Iterator[Outcome]:
        """What the hands report within a second, and what the lost ones leave."""
        ready = wait([hand.pipe for hand in self._hands if hand.order], timeout=1.0)
        for number, hand in enumerate(self._hands):
            if hand.order is None:
                continue
            name, outcome, overdue = hand.order.problem.name, None, self._overdue(hand)
            if hand.pipe in ready:
                outcome = self._message(hand)
            if overdue and outcome is None:
                outcome = Outcome(name, "failed", "it took far longer than allowed; its process was killed")
            if outcome is None:
                continue
            hand.lost |= overdue
            hand.order, hand.served = None, hand.served + 1
            if hand.lost or hand.served >= RECYCLED or resident_bytes(hand.process.pid) > LARGE:
                self._dismiss(hand)
                self._hands[number] = self._hire(hand.gpu)
            yield outcome

    def _message(self, hand: _Hand) -> Outcome | None:
        assert hand.order
        name = hand.order.problem.name
        try:
            said = hand.pipe.recv()
        except (EOFError, OSError):
            hand.lost = True
            return Outcome(name, "failed", "its process ended")
        if isinstance(said, str):
            self.doing(name, said)
            return None
        assert isinstance(said, Outcome)
        return said

    def _overdue(self, hand: _Hand) -> bool:
        spent = time.monotonic() - hand.began
        late = bool(self.plan.until) and time.time() > self.plan.until + OVERSTAY / 3
        return late or spent > 60 * self.plan.problem_minutes + OVERSTAY

    def _dismiss(self, hand: _Hand) -> None:
        """Tell a process to end; an idle one closes its workers, a busy one is killed."""
        if not hand.lost and hand.order is None:
            with suppress(OSError):
                hand.pipe.send(None)
            hand.process.join(timeout=15.0)
        hand.pipe.close()
        if hand.process.is_alive():
            hand.process.kill()
        hand.process.join()


def _serve(pipe: Connection, plan: Plan, gpu: str) -> None:
    """A hand's life: one order after the other until there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that gives out the problems decides what an interrupt means
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    with collecting.executor(plan.cores) as workers:
        wake(workers, WakeCompile(), WakeInterpret(), *([WakeGpu()] if gpu else []))
        while True:
            try:
                order = pipe.recv()
            except (EOFError, OSError):
                return
            if order is None:
                return
            pipe.send(collecting.collect(order, plan, workers, pipe.send))
