"""Growth: one problem's tree made wide, to learn from.

Several searches share what they find: the guided one gives a path worth imitating, random ones what else there is, and the
last part of the budget goes to alternatives of the steps on the best path. Then every action is applied that led somewhere
in this tree, so that programs reached in several ways are joined, and pairs of actions whose order does not matter are
noted. All of that is text work: a program is compiled, verified and timed once.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mtmc import policies, reward
from mtmc.action import Action, Edit
from mtmc.errors import Illegal
from mtmc.policies.policy import Policy, View
from mtmc.program import Program
from mtmc.search import Evaluator, Limits, Moves, Search
from mtmc.step import Step
from mtmc.trajectories.trees import Node, StoredTree
from mtmc.tree import Tree
from mtmc.verdict import Infra, Verdict

ALTERNATIVES = "alternatives"
MIX = (("greedy", 0.3), ("random", 0.3), (ALTERNATIVES, 0.4))
"""Shares of the budget; what one way leaves over goes to the next."""
DENSE = (("greedy", 0.2), ("random", 0.1), (ALTERNATIVES, 0.7))
"""For trees that policies are compared on: with budget enough all steps from the programs on the best path are known."""
LOOKS = 3  # places at which two actions are exchanged before they are called independent


@dataclass
class Recorder:
    """Moves and Evaluator at once: asks the real ones each question once, keeps the answers (a machine's fault is none)."""

    moves: Moves
    evaluator: Evaluator
    proposals: dict[str, tuple[Action, ...]] = field(default_factory=dict)
    edits: dict[tuple[str, str], Edit | None] = field(default_factory=dict)
    predicted: dict[str, float | None] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    faults: int = 0

    def propose(self, program: Program, verdict: Verdict) -> tuple[Action, ...]:
        if program.key not in self.proposals:
            self.proposals[program.key] = self.moves.propose(program, verdict)
        return self.proposals[program.key]

    def apply(self, program: Program, action: Action) -> Edit:
        """Raises Illegal, also for an edit that changes nothing."""
        place = (program.key, action.id)
        if place not in self.edits:
            try:
                edit = self.moves.apply(program, action)
                self.edits[place] = edit if edit.after.key != program.key else None
            except Illegal:
                self.edits[place] = None
        found = self.edits[place]
        if found is None:
            raise Illegal("the rules or the gate refuse it, or it changes nothing")
        return found

    def predict(self, programs: Sequence[Program]) -> list[float | None]:
        new = list({program.key: program for program in programs if program.key not in self.predicted}.values())
        if new:
            self.predicted.update(zip((program.key for program in new), self.evaluator.predict(new), strict=True))
        return [self.predicted[program.key] for program in programs]

    def judge(self, program: Program) -> Verdict:
        if program.key in self.verdicts:
            return self.verdicts[program.key]
        began = time.monotonic()
        verdict = self.evaluator.judge(program)
        if isinstance(verdict, Infra):
            self.faults += 1
        else:
            self.verdicts[program.key] = verdict
            self.seconds[program.key] = round(time.monotonic() - began, 3)
        return verdict


@dataclass
class Growth:
    """One problem's tree while it grows.

    `budget` and `spent` count programs, the first included, also those whose verdict the recorder had; `seconds` is wall
    time. `whole` tells after `grow` that the budget is spent, or nothing is left to try: it was neither time nor a fault of
    the machine that ended it.
    """

    recorder: Recorder
    first: Program
    budget: int
    seed: int = 0
    seconds: float = math.inf
    notify: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.steps: list[Step] = []
        self.programs: dict[str, Program] = {}
        self.shares: dict[str, int] = {}
        self._deadline = time.monotonic() + self.seconds
        self._known: set[tuple[str, str]] = set()
        self.whole = False

    @property
    def spent(self) -> int:
        return len(self.programs)

    def grow(self, mix: Sequence[tuple[str, float]] = MIX) -> None:
        """Spend the budget in these ways, in shares of what the way before has left."""
        left = 1.0
        for number, (way, share) in enumerate(mix):
            before = self.spent
            allowance = math.ceil((self.budget - before) * min(share / left, 1.0))
            if allowance > 0 and not self._late():
                self._alternatives(allowance) if way == ALTERNATIVES else self._search(way, allowance, number)
            self.shares[way] = self.shares.get(way, 0) + self.spent - before
            left = max(left - share, 1e-9)
        self.whole = self.spent >= self.budget or not (self._late() or self.recorder.faults)

    def adopt(self, earlier: StoredTree) -> None:
        """Keep what an earlier tree knows, whose verdicts the recorder has, and this one did not meet again."""
        for step in earlier.steps:
            self.keep(step, earlier.nodes[step.child].program)

    def finish(self) -> frozenset[tuple[str, str]]:
        """Predict what was judged unpredicted, join programs, and return the pairs of independent actions."""
        self.notify("predicting what was judged")
        self.recorder.predict(list(self.programs.values()))
        self.steps = [replace(step, predicted_ms=self.recorder.predicted[step.child]) for step in self.steps]
        self.notify("joining what is the same")
        self._join()
        return self._independent()

    def nodes(self) -> dict[str, Node]:
        """The programs in the order of their discovery."""
        return {key: self._node(key) for key in self.programs}

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _search(self, policy: str, allowance: int, number: int) -> None:
        """One search as `optimize` makes it; what it meets again costs nothing but counts, and is left to the next way."""
        limits = Limits(allowance, self._deadline - time.monotonic(), keep_going=True)
        search = Search(self.recorder, self.recorder, policies.load(policy), limits, self.seed + number, notify=self.notify)
        for step in search.steps(self.first):
            self.keep(step, search.programs[step.child])

    def _alternatives(self, allowance: int) -> None:
        """Untried actions of the programs on the best path, the root first, one a program in turn, families at random."""
        end, chance = self.spent + allowance, random.Random(f"{self.seed}:{ALTERNATIVES}")
        policy = policies.load("random")
        while self.spent < end and not self._late():
            before = len(self.steps)
            for key in self._best_path():
                if self.spent < end and (step := self._alternative(key, policy, chance)):
                    self.keep(step, self.recorder.edits[key, step.action.id].after)  # type: ignore[union-attr]
            if len(self.steps) == before:
                return

    def _best_path(self) -> list[str]:
        """Programs from the root to the best one; to the root alone where nothing was verified."""
        tree = Tree(self.steps)
        path = tree.path(tree.best) if tree.best else ()
        return [tree.root, *(step.child for step in path)]

    def _alternative(self, key: str, policy: Policy, chance: random.Random) -> Step | None:
        program, verdict = self.programs[key], self.recorder.verdicts[key]
        while True:
            proposed = self.recorder.propose(program, verdict)
            known = [a.id for a in proposed if (key, a.id) in self._known or not self.recorder.edits.get((key, a.id), True)]
            legal = tuple(action for action in proposed if action.id not in known)
            action = policy.choose(View(program, verdict, legal), chance).action
            if action.family == "stop":
                return None
            self.notify(action.sentence)
            if step := self._step(key, action, policy.name):
                return step

    def _step(self, key: str, action: Action, policy: str = "") -> Step | None:
        """The step of an action, its program judged unless it is known; None where it is refused."""
        try:
            edit = self.recorder.apply(self.programs[key], action)
        except Illegal:
            return None
        cached = edit.after.key in self.programs
        step = step_of(action, edit, self.recorder.judge(edit.after))
        return replace(step, policy=policy, seconds=self.recorder.seconds.get(step.child, 0.0), cached=cached)

    def keep(self, step: Step, program: Program) -> None:
        """Note a step, unless it is known or says nothing of its program."""
        place = (step.parent, step.action.id if step.action else "")
        if isinstance(step.verdict, Infra) or place in self._known:
            return
        self._known.add(place)
        self.programs.setdefault(step.child, program)
        predicted = self.recorder.predicted.get(step.child)
        seconds = round(step.seconds, 3)
        kept = replace(step, index=len(self.steps), patch="", probabilities={}, predicted_ms=predicted, seconds=seconds)
        self.steps.append(kept)

    def _join(self) -> None:
        """Steps between known programs that nobody took: only actions that led somewhere in this tree are looked at."""
        led = {step.action.id for step in self.steps if step.action}
        for key, program in list(self.programs.items()):
            verdict = self.recorder.verdicts[key]
            for action in self.recorder.propose(program, verdict):
                sensible = verdict.correct or action.family == "repair"
                if (
                    sensible
                    and action.id in led
                    and (key, action.id) not in self._known
                    and self._leads_home(program, action)
                ):
                    step = self._step(key, action)
                    assert step is not None
                    self.keep(step, self.programs[step.child])

    def _leads_home(self, program: Program, action: Action) -> bool:
        after = self._after(program, action)
        return after is not None and after.key in self.programs

    def _after(self, program: Program, action: Action) -> Program | None:
        try:
            return self.recorder.apply(program, action).after
        except Illegal:
            return None

    def _independent(self) -> frozenset[tuple[str, str]]:
        """Pairs of actions in a row that lead to the same program in either order, at the first LOOKS places looked at."""
        said: dict[tuple[str, str], list[bool]] = {}
        for a, b, source in self._pairs():
            seen = said.setdefault((a.id, b.id) if a.id < b.id else (b.id, a.id), [])
            if all(seen) and len(seen) < LOOKS:
                seen.append(self._commute(source, a, b))
        return frozenset(pair for pair, seen in said.items() if all(seen))

    def _pairs(self) -> Iterator[tuple[Action, Action, Program]]:
        """Two steps in a row, with the program before them, where the second action was proposed as well."""
        for first in self.steps:
            proposed = {a.id for a in self.recorder.proposals.get(first.parent, ())} if first.action else set()
            for second in self.steps if first.action else ():
                if second.parent == first.child and second.action and second.action.id in proposed:
                    assert first.action
                    if first.action.id != second.action.id:
                        yield first.action, second.action, self.programs[first.parent]

    def _commute(self, program: Program, a: Action, b: Action) -> bool:
        ends: list[str] = []
        for one, other in ((a, b), (b, a)):
            middle = self._after(program, one)
            end = self._after(middle, other) if middle else None
            if end is None:
                return False
            ends.append(end.key)
        return ends[0] == ends[1]

    def _node(self, key: str) -> Node:
        recorder, program = self.recorder, self.programs[key]
        verdict = recorder.verdicts[key]
        legal = recorder.propose(program, verdict)
        edits = {action.id: recorder.edits[key, action.id] for action in legal if (key, action.id) in recorder.edits}
        predicted = {
            name: recorder.predicted[edit.after.key]
            for name, edit in edits.items()
            if edit and edit.after.key in recorder.predicted
        }
        return Node(
            program=program,
            verdict=verdict,
            legal=legal,
            refused=frozenset(name for name, edit in edits.items() if edit is None),
            predicted=predicted,
            predicted_ms=recorder.predicted.get(key),
            seconds=recorder.seconds.get(key, 0.0),
        )


def step_of(action: Action, edit: Edit, verdict: Verdict) -> Step:
    """The step of an edit that no policy chose."""
    return Step(
        index=0,
        parent=edit.before.key,
        child=edit.after.key,
        action=action,
        verdict=verdict,
        reward=reward.graded(verdict),
        policy="",
        changed_lines=edit.changed_lines,
        library=edit.library,
        assertions=edit.assertions,
    )
