"""How strong is the judge? Break a correct program on purpose, many times, and count what the judge lets pass.

A mutant that survives is either a gap of the judge or computes the same: `Trial.equal` tells whether its outputs were, bit
for bit, those of the original on everything that was judged. That is needed for calling a mutant equivalent, not enough: an
argument why must be added by a person.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from mtmc.errors import BadInput
from mtmc.judge.accuracy import RULES
from mtmc.judge.jobs import InterpretJob, Sizes
from mtmc.judge.judge import Judge
from mtmc.judge.mutations import KINDS
from mtmc.judge.sites import Change, Code
from mtmc.problem import Problem
from mtmc.program import Program, canonical_key
from mtmc.verdict import Infra, Rejected, RuntimeFault, Verdict, Verified, Wrong

COUNT = 24


@dataclass(frozen=True)
class Mutant:
    """A broken program: its text, the kind of defect (a key of `mutations.KINDS`), the line changed and a sentence."""

    source: str
    kind: str
    line: int
    what: str


@dataclass(frozen=True)
class Trial:
    """What the judge said of a mutant. `by` names what killed it: the check, rule or cause of the verdict, else its status.

    `equal`: a survivor gave the original's bits everywhere (None: not tried).
    """

    mutant: Mutant
    verdict: Verdict
    equal: bool | None = None

    @property
    def decided(self) -> bool:
        return not isinstance(self.verdict, Infra)

    @property
    def killed(self) -> bool:
        return self.decided and not isinstance(self.verdict, Verified)

    def to_json(self) -> dict[str, Any]:
        """Without the text of the mutant."""
        mutant = self.mutant
        facts = {"kind": mutant.kind, "line": mutant.line, "what": mutant.what, "killed": self.killed, "by": self.by}
        return facts if self.killed else {**facts, "equal": self.equal}

    @property
    def by(self) -> str:
        match self.verdict:
            case Wrong(check=name) | RuntimeFault(cause=name) | Rejected(rule=name):
                return name
        return self.verdict.status


def mutants(source: str, seed: int = 0, count: int = COUNT, kinds: Iterable[str] = tuple(KINDS)) -> tuple[Mutant, ...]:
    """Up to `count` different mutants of a Triton program: kinds in turn, their order and the places drawn from the seed.

    Raises SyntaxError for a text that does not parse, BadInput (listing the known ones) for an unknown kind.
    """
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise BadInput(f"unknown kind of mutant '{min(unknown)}'; known: {', '.join(KINDS)}")
    code, key = Code(source), canonical_key(source)
    drawn = random.Random(f"{seed} {key}")
    waiting = {kind: _shuffled(KINDS[kind](code), drawn) for kind in _order(kinds, drawn)}
    seen, made = {key}, list[Mutant]()
    while any(waiting.values()) and len(made) < count:
        for kind, changes in waiting.items():
            while changes and len(made) < count:
                mutant = _apply(source, kind, changes.pop())
                if mutant and (key := canonical_key(mutant.source)) not in seen:
                    seen.add(key)
                    made.append(mutant)
                    break
    return tuple(made)


def _order(kinds: Iterable[str], drawn: random.Random) -> list[str]:
    wanted = set(kinds)
    return drawn.sample([kind for kind in KINDS if kind in wanted], len(wanted))


def _shuffled(changes: Iterable[Change], drawn: random.Random) -> list[Change]:
    found = sorted(changes, key=lambda change: (change.start, change.end, change.text))
    drawn.shuffle(found)
    return found


def _apply(source: str, kind: str, change: Change) -> Mutant | None:
    """None for a change that leaves no valid Python."""
    data = source.encode()
    text = (data[: change.start] + change.text.encode() + data[change.end :]).decode()
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return None
    return Mutant(text, kind, change.line, change.what)


def tried(
    made: Sequence[Mutant], judge: Callable[[str], Verdict], same: Callable[[str], bool] | None = None
) -> tuple[Trial, ...]:
    """Every mutant judged; `same` tells of a survivor's text whether it gives the original's bits."""
    trials = []
    for mutant in made:
        trial = Trial(mutant, judge(mutant.source))
        survived = isinstance(trial.verdict, Verified)
        trials.append(Trial(mutant, trial.verdict, same(mutant.source)) if survived and same else trial)
    return tuple(trials)


def rates(trials: Iterable[Trial]) -> dict[str, tuple[int, int, int]]:
    """Kind → how many were killed, how many survived with the original's bits, how many were decided; `all` is the sum."""
    found = {kind: [t for t in trials if t.mutant.kind == kind and t.decided] for kind in KINDS}
    counts = {k: (sum(t.killed for t in ts), sum(t.equal is True for t in ts), len(ts)) for k, ts in found.items() if ts}
    killed, equal, decided = (sum(column) for column in zip(*counts.values(), strict=True)) if counts else (0, 0, 0)
    return {**counts, "all": (killed, equal, decided)}


@dataclass(frozen=True, kw_only=True)
class BitsJob(InterpretJob):
    """Fingerprints of what a program gives on one variant and several draws, in the interpreter."""

    stage = "bits"
    paired = False

    def run(self) -> list[Any]:
        from mtmc.judge.verify import Verifier

        return Verifier(self.problem, self.device, RULES[self.precision], self.seed, self.door).bits(
            self.source, self.sizes, self.draws
        )


def verdicts(judge: Judge) -> Callable[[str], Verdict]:
    """The judge's verdict on a text, the cheap part first: what fails on the first small variant is not tried further."""

    def found(source: str) -> Verdict:
        if judge.variants and not judge.measure:
            job = _job(InterpretJob, judge, source, *judge.variants[0])
            outcome = judge.executor.submit(job).result()
            if isinstance(outcome, Verdict) and getattr(outcome, "cause", "") != "refused":
                return outcome
        return judge.judge(Program(source), thorough=True)

    return found


def _job(kind: type[InterpretJob], judge: Judge, source: str, problem: Problem, sizes: Sizes) -> InterpretJob:
    return kind(
        problem=problem,
        source=source,
        sizes=sizes,
        door=judge.door,
        draws=judge.draws,
        precision=judge.precision,
        seed=judge.seed,
        repeat=False,
        seconds=judge.deadlines.verify,
    )


def same_bits(judge: Judge, original: str) -> Callable[[str], bool]:
    """Whether a program gives the original's bits wherever the interpreter looks; no where one of them does not run."""
    targets = [*judge.variants, *[(judge.problem, None)] * judge.small]

    @cache
    def bits(source: str) -> list[Any]:
        jobs = [_job(BitsJob, judge, source, problem, sizes) for problem, sizes in targets]
        return [future.result() for future in [judge.executor.submit(job) for job in jobs]]

    def same(source: str) -> bool:
        found = bits(source)
        return bool(found) and all(isinstance(part, list) for part in found) and found == bits(original)

    return same


def strength(judge: Judge, source: str, seed: int = 0, count: int = COUNT) -> tuple[Trial, ...]:
    """Mutants of a program that the judge has verified, each judged. Raises SyntaxError for a text that does not parse."""
    return tried(mutants(source, seed, count), verdicts(judge), same_bits(judge, source))
