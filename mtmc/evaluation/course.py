"""Courses: one policy on one stored tree, candidate by candidate.

Every policy works under the same conditions: it sees all legal actions of the program at hand (no stages, no look-ahead,
with predicted times where it asks for them), and which program that is follows from the same rule. By default it is the
rule of `mtmc optimize`: a failed program that can be repaired, else the best verified one that still has something to try.
`walk` stays with the last program that was verified or can be repaired, as the environment does. `stop` closes a program;
when all are closed, nothing is legal any more, or the tree's best is found, the course is over.

After a choice that nobody tried a policy is asked again, without that action. One that says how likely it holds each action,
and draws nothing, is not: its next most likely action is taken, which spares a language model most of its work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from mtmc.action import Action
from mtmc.evaluation.settings import Order
from mtmc.policies.policy import Policy, View
from mtmc.policies.replay import Replay, Untried
from mtmc.step import Step
from mtmc.trajectories.trees import StoredTree

UNTRIED, KNOWN, FAILED = "untried", "known", "failed"
Outcome = float | str


@dataclass(frozen=True)
class Course:
    """What a policy's choices came to, in order.

    Each outcome is the log speed-up of a program met for the first time, FAILED for one that was not verified, KNOWN for a
    program met before (it costs nothing), or UNTRIED. `first` is the first program's log speed-up, 0 where it failed. `drew`
    tells whether the policy used its random numbers; `blind` is the part of the actions shown that had no predicted time
    (of a policy that asks for them, else 0).
    """

    first: float
    outcomes: tuple[Outcome, ...]
    drew: bool = False
    blind: float = 0.0

    def curve(self, budget: int, untried: Untried) -> tuple[float, ...]:
        """Log speed-up of the best program after 0, 1, …, `budget` candidates; 0 while none beats the reference."""
        levels = [max(self.first, 0.0)]
        for outcome in self.outcomes:
            cost = untried.cost if outcome == UNTRIED else int(outcome != KNOWN)
            levels += [max(levels[-1], outcome if isinstance(outcome, float) else 0.0)] * cost
        return tuple((levels + levels[-1:] * budget)[: budget + 1])

    @property
    def untried(self) -> float:
        """The part of the choices (up to the best) whose outcome nobody knows."""
        return self.outcomes.count(UNTRIED) / max(len(self.outcomes), 1)


@dataclass
class Runner:
    """Runs one course; `budget` counts candidates where untried choices are free."""

    stored: StoredTree
    policy: Policy
    rng: Random
    budget: int
    order: Order = Order.best
    replay: Replay = field(init=False)
    closed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.replay, self._last = Replay(self.stored), self.stored.root
        self._found = self.stored.nodes[self.stored.root].verdict.log_speedup or 0.0
        self._ranking: list[Action] = []

    def run(self) -> Course:
        """The whole course."""
        before, outcomes, shown, blind = self.rng.getstate(), [], 0, 0
        for view, outcome in self.choices():
            shown += len(view.moves)
            blind += sum(action.id not in self.stored.nodes[view.program.key].predicted for action in view.moves)
            outcomes.append(outcome)
        return Course(
            first=self.stored.nodes[self.stored.root].verdict.log_speedup or 0.0,
            outcomes=tuple(outcomes),
            drew=self.rng.getstate() != before,
            blind=blind / max(shown, 1) if self.policy.guided else 0.0,
        )

    def choices(self) -> Iterator[tuple[View, Outcome]]:
        """Every decision that was not `stop`, and what it came to."""
        spent, best = 0, best_gain(self.stored)
        ranked = ""  # the program that the ranking is about
        while spent < self.budget and self._found < best and (key := self._at_hand()):
            if key != ranked:  # exhausted: what is left of its ranking, `stop`, must not close the next program
                self._ranking, ranked = [], key
            view = self.replay.view(key, self.policy.guided)
            action = self._ranking.pop(0) if self._ranking else self._asked(view)
            if action.family == "stop":
                self.closed.add(key)
                self._ranking = []
                continue
            step = self.replay.take(key, action)
            outcome = UNTRIED if step is None else outcome_of(step)
            self._ranking = self._ranking if step is None else []
            spent += outcome not in (UNTRIED, KNOWN)
            if step and step.verdict.correct:
                self._last, self._found = step.child, max(self._found, step.verdict.log_speedup or 0.0)
            yield view, outcome

    def _asked(self, view: View) -> Action:
        """The policy's choice; what it would choose next is kept where it says so."""
        before = self.rng.getstate()
        choice = self.policy.choose(view, self.rng)
        likely = choice.probabilities
        if self.rng.getstate() == before and all(action.id in likely for action in view.legal):
            others = (action for action in view.legal if action is not choice.action)
            self._ranking = sorted(others, key=lambda action: -likely[action.id])
        return choice.action

    def _at_hand(self) -> str:
        """The program to decide about; empty when the course is over."""
        last = self._last if self.order is Order.walk else ""
        return self.replay.at_hand(self.closed, lambda key: bool(self.replay.moves(key)), last)


def limit(stored: StoredTree, budget: int) -> tuple[float, ...]:
    """Log speed-up of the best program that 0, 1, …, `budget` candidates can lead to: nobody can do better in this tree.

    The known step graph is gone through breadth first, for a program n steps from the first one costs n candidates.
    """
    level, met = [stored.root], {stored.root}
    levels = [max(stored.nodes[stored.root].verdict.log_speedup or 0.0, 0.0)]
    for _ in range(budget):
        level = list(dict.fromkeys(s.child for key in level for s in stored.edges(key).values() if s.child not in met))
        met.update(level)
        levels.append(max([levels[-1], *(stored.nodes[key].verdict.log_speedup or 0.0 for key in level)]))
    return tuple(levels)


def best_gain(stored: StoredTree) -> float:
    """The highest log speed-up in a tree; 0 where none beats the reference."""
    return max(0.0, *(node.verdict.log_speedup or 0.0 for node in stored.nodes.values()))


def outcome_of(step: Step) -> Outcome:
    """What a step came to, for a Course."""
    if step.cached:
        return KNOWN
    found = step.verdict.log_speedup
    return FAILED if found is None else found


def courses(stored: StoredTree, policy: Policy, seeds: Sequence[int], budget: int, order: Order) -> list[Course]:
    """A course for each seed; where a policy draws nothing, the first one stands for all."""
    found: list[Course] = []
    for seed in seeds:
        if not found or found[-1].drew:
            found.append(Runner(stored, policy, Random(f"{seed}:{stored.question.name}"), budget, order).run())
        else:
            found.append(found[-1])
    return found
