"""Best-first search over the Tree of programs, under a budget.

Three stages: the whole program's structure (fusion) as far as it gains much, then kernel by kernel by their share of the
time, then everything again, library calls included; a policy that does not go by stages has only the third. What was
measured to help kernels like the one at hand (see `policies.experience`) waits for no stage. Within a stage the best program
that still has something to try is looked at; the policy picks the action. Every decision draws from a generator seeded by
(seed, number of the decision) and every verdict that is already known is taken from `known`, so running the loop again over
a recorded run replays it, and then goes on.
"""

from __future__ import annotations

import difflib
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Protocol

from mtmc import reward
from mtmc.action import Action, Edit
from mtmc.errors import Illegal
from mtmc.hardware_profiles import Profile
from mtmc.policies.experience import Experience
from mtmc.policies.greedy import GAIN
from mtmc.policies.policy import NEUTRAL, Choice, Policy, View
from mtmc.program import Program
from mtmc.step import Step
from mtmc.tree import Tree, candidate_ms, reference_ms
from mtmc.verdict import Infra, Verdict

NEAR_FLOOR = 1.05  # a program within 5 % of what good kernels come down to has nothing left to win
LOOKAHEAD = 12  # actions predicted for one decision
DISCOURAGING = 1.05  # what was predicted to cost more than 5 % waits for another best program to be predicted again
PROVEN = 0.02  # an expected log gain, by measured outcomes alone, that makes an action come first
SLIGHT = 0.02  # a fusion that is predicted to gain less waits until the kernels that take most of the time are tuned
NOTHING = 0.001  # what is predicted to gain less waits for the last stage: it is tried only because the model may be wrong
MINOR = 0.02  # kernels with less than this share of the time are not tuned by a guided search


class Moves(Protocol):
    """The rules: what can be done to a program, and doing it."""

    def propose(self, program: Program, verdict: Verdict) -> tuple[Action, ...]:
        """Every legal action, `stop` last; repairs answer a failed verdict."""
        ...

    def apply(self, program: Program, action: Action) -> Edit:
        """The gated edit. Raises Illegal."""
        ...


class Evaluator(Protocol):
    """The judge, as far as the search needs it."""

    def predict(self, programs: Sequence[Program]) -> Sequence[float | None]:
        """Compile (in parallel) and model the time (ms) of each program; None where it cannot run."""
        ...

    def judge(self, program: Program) -> Verdict:
        """Compile, verify, and time or predict."""
        ...


@dataclass(frozen=True)
class Limits:
    """`candidates` judged besides the first program; `seconds` of wall time, counted anew when a run is resumed.

    Time in which other processes held the GPU does not count, where the search is told of it. Within 5 % of `attainable_ms`,
    the time that good kernels come down to, nothing is left to win (0: unknown).
    `keep_going` searches on where PyTorch itself is already there.
    """

    candidates: int = 40
    seconds: float = math.inf
    attainable_ms: float = 0.0
    keep_going: bool = False


@dataclass(frozen=True)
class Scope:
    """The actions of one stage: of the whole program's structure (`model`), of one unit, or all (empty).

    Giving a region back to a library waits for the last stage: it would win against every kernel that is not tuned yet.
    """

    name: str = ""

    def holds(self, action: Action) -> bool:
        if not self.name or action.family == "library":
            return not self.name
        return structural(action) if self.name == "model" else not structural(action) and action.region == self.name


def structural(action: Action) -> bool:
    """Does an action change which kernels there are?"""
    return action.family in ("fusion", "library") or action.region == "model" or action.kind.startswith("split_")


@dataclass
class Search:
    """One search. `reason` says in a sentence why it ended; `tree` and `programs` hold what it found.

    `known` maps program keys to verdicts of an earlier part of the run; `notify` is told what takes time just now. `profile`
    is the target, for policies that look at it. `experience` is what was measured before on the GPU that measures, by which
    predicted times are corrected; the search adds what it measures itself. `waited` tells the seconds spent so far
    on waiting for others at the GPU.
    """

    moves: Moves
    evaluator: Evaluator
    policy: Policy
    limits: Limits = Limits()
    seed: int = 0
    known: Mapping[str, Verdict] = field(default_factory=dict)
    notify: Callable[[str], None] = lambda _: None
    profile: Profile | None = None
    experience: Experience = field(default_factory=Experience)
    waited: Callable[[], float] = lambda: 0.0

    def __post_init__(self) -> None:
        self.tree, self.reason = Tree(), ""
        self.programs: dict[str, Program] = {}
        self._deadline = time.monotonic() + self.limits.seconds - self.waited()
        self._decisions = self._index = 0
        self._proposals: dict[str, tuple[Action, ...]] = {}
        self._edits: dict[tuple[str, str], Edit | None] = {}
        self._predicted: dict[str, float | None] = {}
        self._hints: dict[str, float] = {}

    def steps(self, first: Program) -> Iterator[Step]:
        """Run the search from the first program; each step is yielded as soon as it is judged."""
        self.notify("judging the first program")
        yield self._judged("", first, None)
        for scope in self._scopes():
            yield from self._explore(scope)
            if self.reason:
                return
        self.reason = "No action is left that is predicted or measured to help."

    @property
    def spent(self) -> int:
        """Candidates judged so far, the first program not counted."""
        return len(self.programs) - 1

    def _scopes(self) -> Iterator[Scope]:
        if self.policy.staged:
            yield Scope("model")
            yield from (Scope(unit) for unit in self._units())
        yield Scope()

    def _units(self) -> tuple[str, ...]:
        """Units of the program at the front, the one with the largest share of the time first."""
        front = self._front()
        timing = self.tree.timing(front[0]) if front else None
        shares = timing.kernels_ms if timing else {}
        return tuple(sorted(self.programs[front[0]].units, key=lambda unit: -shares.get(unit, 0.0))) if front else ()

    def _explore(self, scope: Scope) -> Iterator[Step]:
        """One stage. No stage but the last may use more than half of the candidates that are left."""
        left = self.limits.candidates - self.spent
        allowance = self.spent + (math.ceil(left / 2) if scope.name else left)
        closed: set[str] = set()
        while not self._over() and self.spent < allowance:
            key = self._select(scope, closed)
            if not key:
                return
            choice = self._choose(key, scope)
            if choice.action.family == "stop":
                closed.add(key)
            else:
                yield from self._take(key, choice)

    def _over(self) -> bool:
        """Is there a reason to end? It is noted in `reason`."""
        timing = self.tree.timing(self.tree.best) if self.tree.best else None
        if time.monotonic() > self._deadline + self.waited():
            self.reason = "The time given is used up."
        elif self.spent >= self.limits.candidates:
            self.reason = f"The budget of {self.limits.candidates} candidates is used up."
        elif timing and timing.high >= 1.0 and candidate_ms(timing) <= NEAR_FLOOR * self.limits.attainable_ms:
            self.reason = "The best program is within 5 % of the best that this GPU does: nothing is left to win."
        elif timing and reference_ms(timing) <= NEAR_FLOOR * self.limits.attainable_ms and not self.limits.keep_going:
            self.reason = "Not worth it: PyTorch itself is within 5 % of the best that this GPU does."
        return bool(self.reason)

    def _select(self, scope: Scope, closed: set[str]) -> str:
        """The program to go on from: a failed one that can be repaired, else one of the front; empty when none is left."""
        failed = [key for key in reversed(self.tree.keys) if self.tree.repairable(key)]
        keys = (*failed, *self._front())
        return next((key for key in keys if key not in closed and self._legal(key, scope)), "")

    def _front(self) -> list[str]:
        """Verified programs to go on from, in order: by speed, and of those a guided search only takes the best one.

        The end of the fusions after it that gain nothing yet comes first: they pay when the kernels are tuned.
        """
        ranking = list(self.tree.ranking)
        if not ranking:
            return []
        chain = ranking[:1]
        while fused := [key for key in self._fused(chain[-1]) if key not in chain]:
            chain.append(fused[-1])
        return list(dict.fromkeys((chain[-1], *(ranking[:1] if self.policy.guided else ranking))))

    def _fused(self, key: str) -> list[str]:
        """Programs one fusion after this one that are as fast as the best, oldest first."""
        best = self.tree.timing(self.tree.best)
        steps = [s for s in self.tree.steps if s.parent == key and s.action and s.action.family == "fusion"]
        timings = [(step.child, self.tree.timing(step.child)) for step in steps]
        return [child for child, timing in timings if best and timing and best.speedup <= NEUTRAL * timing.speedup]

    def _legal(self, key: str, scope: Scope) -> list[Action]:
        """Untried actions of a program in this scope, `stop` left out; what was found refused is left out too."""
        verdict = self.tree.verdict(key)
        if key not in self._proposals:
            self._proposals[key] = self.moves.propose(self.programs[key], verdict)
        actions = [a for a in self.tree.untried(key, self._proposals[key]) if self._edits.get((key, a.id), True)]
        if not verdict.correct:
            return actions
        minor = self._minor(key)
        fitting = [a for a in actions if not (a.region in minor and not structural(a))]
        return [a for a in fitting if scope.holds(a) or self._expected(key, a) >= PROVEN]

    def _minor(self, key: str) -> frozenset[str]:
        """Units of a program whose share of its time is too small to be worth a candidate."""
        timing = self.tree.timing(key)
        shares = timing.kernels_ms if timing and self.policy.guided else {}
        return frozenset(unit for unit, ms in shares.items() if ms < MINOR * sum(shares.values()))

    def _weighed(self, key: str, actions: list[Action]) -> list[Action]:
        """The same actions, those first that are about the kernels with most of the time: what is fused away, or tuned."""
        timing = self.tree.timing(key)
        shares = timing.kernels_ms if timing else {}

        def reach(action: Action) -> float:
            named = {str(value) for _, value in action.params} if action.family == "fusion" else {action.region}
            return sum(shares.get(name, 0.0) for name in named)

        return sorted(actions, key=reach, reverse=True)

    def _choose(self, key: str, scope: Scope) -> Choice:
        legal = self._legal(key, scope)
        predicted = self._predictions(key, self._weighed(key, legal)) if self.policy.guided else {}
        legal = [action for action in legal if self._edits.get((key, action.id), True)]
        best = self.tree.best
        best_ms = self._predict([self.programs[best]])[0] if best and self.policy.guided else None
        view = View.at(self.tree, self.programs[key], (*legal, self._proposals[key][-1]), predicted, best_ms)
        self._decisions += 1
        seen = frozenset(action.id for action in legal if action.id in predicted and self._gain(key, action) is not None)
        view = replace(view, profile=self.profile, seen=seen)
        choice = self.policy.choose(view, random.Random(f"{self.seed}:{self._decisions}"))
        least = {"": -math.inf, "model": SLIGHT}.get(scope.name, NOTHING)
        waits = view.verdict.correct and view.gains.get(choice.action.id, math.inf) < least
        return Choice(view.stop) if waits else choice

    def _predictions(self, key: str, legal: list[Action]) -> dict[str, float]:
        """Predicted times (ms) of at most LOOKAHEAD actions: those that looked good before, then new ones kind by kind.

        What measured outcomes alone make a gain comes before all.
        """
        expected = {action.id: self._expected(key, action) for action in legal}
        telling = {name: math.exp(-gain) for name, gain in expected.items() if not -math.log(DISCOURAGING) <= gain < PROVEN}
        hints = self._hints | telling
        hopeful = [action for action in _in_turn(legal) if hints.get(action.id, 1.0) <= DISCOURAGING]
        hopeful.sort(key=lambda action: _rank(hints.get(action.id)))
        hopeful.sort(key=lambda action: expected[action.id] < PROVEN)
        return self._informed(key, hopeful[:LOOKAHEAD])

    def _informed(self, key: str, actions: list[Action]) -> dict[str, float]:
        """Predicted times (ms) of the programs that actions lead to, as measured outcomes correct them."""
        edits = {action: edit for action in actions if (edit := self._edit(key, action))}
        here, *times = self._predict([self.programs[key], *(edit.after for edit in edits.values())])
        found: dict[str, float] = {}
        for action, ms in zip(edits, times, strict=True):
            if ms and here and (gain := self._gain(key, action, math.log(here / ms))) is not None:
                ms = here * math.exp(-gain)
            self._hints |= {action.id: ms / here if ms else math.inf} if here else {}
            found |= {action.id: ms} if ms is not None else {}
        return found

    def _gain(self, key: str, action: Action, predicted: float | None = None) -> float | None:
        """The log gain that measured outcomes make us expect; None where there are none."""
        return self.experience.gain(self.programs[key], self.tree.verdict(key), action, predicted)

    def _expected(self, key: str, action: Action) -> float:
        """The same where nothing is predicted yet; without outcomes 0."""
        return self._gain(key, action) or 0.0

    def _predict(self, programs: Sequence[Program]) -> list[float | None]:
        new = {program.key: program for program in programs if program.key not in self._predicted}
        if new:
            self.notify(f"compiling {len(new)} candidate{'s' * (len(new) > 1)} to predict their times")
            self._predicted.update(zip(new, self.evaluator.predict(list(new.values())), strict=True))
        return [self._predicted[program.key] for program in programs]

    def _edit(self, key: str, action: Action) -> Edit | None:
        """The edit of an action, made once; None when the rule or the gate refuses it, or it changes nothing."""
        if (key, action.id) not in self._edits:
            try:
                edit = self.moves.apply(self.programs[key], action)
                self._edits[key, action.id] = edit if edit.after.key != key else None
            except Illegal:
                self._edits[key, action.id] = None
        return self._edits[key, action.id]

    def _take(self, key: str, choice: Choice) -> Iterator[Step]:
        edit = self._edit(key, choice.action)
        if edit:
            self.notify(choice.action.sentence)
            yield self._judged(key, edit.after, choice, edit)

    def _judged(self, parent: str, program: Program, choice: Choice | None, edit: Edit | None = None) -> Step:
        """Judge a program, unless its verdict is known, and put the step into the tree."""
        started = time.monotonic()
        met = self.tree.verdict(program.key) if program.key in self.tree else None
        met = None if isinstance(met, Infra) else met
        verdict = met or self.known.get(program.key) or self.evaluator.judge(program)
        step = Step(
            index=self._index,
            parent=parent,
            child=program.key,
            action=choice.action if choice else None,
            verdict=verdict,
            reward=reward.graded(verdict),
            policy=self.policy.name if choice else "",
            patch=_patch(edit) if edit else "",
            changed_lines=edit.changed_lines if edit else 0,
            library=edit.library if edit else (),
            assertions=edit.assertions if edit else (),
            predicted_ms=self._predicted.get(program.key),
            seconds=time.monotonic() - started,
            cached=met is not None,
            probabilities=dict(choice.probabilities) if choice else {},
        )
        self._index += 1
        self.programs.setdefault(program.key, program)
        before = self.tree.best
        self.tree.add(step)
        if edit:
            self.experience.learn((edit.before, self.tree.verdict(parent), self._predicted.get(parent)), step)
        if self.tree.best != before:  # what cost time there may pay here
            self._hints = {name: ratio for name, ratio in self._hints.items() if ratio <= DISCOURAGING}
        return step


def _rank(hint: float | None) -> float:
    """Order of a hint: what looked like a gain, then what nobody looked at, then what looked like none."""
    return 1.0 if hint is None else hint if hint < GAIN else 1.0 + hint


def _in_turn(actions: list[Action]) -> list[Action]:
    """The same actions, so ordered that every kind of rule comes before any kind comes twice."""
    kinds = {kind: [a for a in actions if a.kind == kind] for kind in dict.fromkeys(a.kind for a in actions)}
    return [action for row in zip_longest(*kinds.values()) for action in row if action]


def _patch(edit: Edit) -> str:
    before, after = (program.source.splitlines(keepends=True) for program in (edit.before, edit.after))
    return "".join(difflib.unified_diff(before, after, "before.py", "after.py"))
