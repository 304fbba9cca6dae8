"""Tree: the programs of a run, merged by key (so in truth a DAG), with Steps on its edges.

It is rebuilt from the steps whenever it is needed and never stored.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from mtmc.action import Action
from mtmc.step import Step
from mtmc.verdict import Infra, Timing, Verdict, Verified

GAIN = 1.005
"""A predicted time counts as better only when it is better by more than 0.5 %."""
REPAIRS = 2  # repairs tried in a row


def better(new: Timing, old: Timing) -> bool:
    """Is `new` faster beyond noise? Predicted: by more than 0.5 %. Measured: each estimate outside the other's interval."""
    if new.kind == "predicted":
        return new.speedup > GAIN * old.speedup
    return new.low > old.speedup and new.speedup > old.high


def faster_than_reference(verdict: Verdict) -> bool:
    """Verified, and faster than the reference: by more than 0.5 % when predicted, by the decision when measured."""
    if not isinstance(verdict, Verified):
        return False
    timing = verdict.timing
    return timing.speedup > GAIN if timing.kind == "predicted" else timing.decision == "faster"


def candidate_ms(timing: Timing) -> float:
    """The program's time; of a prediction the host's, where launching takes longer than the kernels do."""
    return max(timing.candidate_ms, timing.host_ms or 0.0) if timing.kind == "predicted" else timing.candidate_ms


def reference_ms(timing: Timing) -> float:
    """The same of the reference."""
    return max(timing.reference_ms, timing.reference_host_ms or 0.0) if timing.kind == "predicted" else timing.reference_ms


def offered(proposed: Iterable[Action], verdict: Verdict, first: bool) -> list[Action]:
    """Of the actions proposed for a program those that make sense there, tried or not, `stop` left out.

    A failed program is only repaired; the `first` one of a tree may also be given back to the library.
    """
    actions = [action for action in proposed if action.family != "stop"]
    if verdict.correct:
        return actions
    families = ("repair", "library") if first else ("repair",)
    return [action for action in actions if action.family in families]


class Tree:
    """`graph` has program keys as nodes (attribute `verdict`) and edges with the list `steps`, oldest first."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.graph = nx.DiGraph()
        self.root = ""
        for step in steps:
            self.add(step)

    def __contains__(self, key: str) -> bool:
        return key in self.graph

    def add(self, step: Step) -> None:
        """Take in a step. A verdict replaces an earlier one of the same program only when that was the machine's fault."""
        if step.child not in self.graph or isinstance(self.verdict(step.child), Infra):
            self.graph.add_node(step.child, verdict=step.verdict)
        if not step.parent:
            self.root = step.child
        elif self.graph.has_edge(step.parent, step.child):
            self.graph.edges[step.parent, step.child]["steps"].append(step)
        else:
            self.graph.add_edge(step.parent, step.child, steps=[step])

    @property
    def keys(self) -> tuple[str, ...]:
        """Programs in the order of their discovery."""
        return tuple(self.graph)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps on edges, oldest first; the root's own step has no edge."""
        return tuple(sorted((s for _, _, steps in self.graph.edges(data="steps") for s in steps), key=lambda s: s.index))

    def verdict(self, key: str) -> Verdict:
        verdict: Verdict = self.graph.nodes[key]["verdict"]
        return verdict

    def timing(self, key: str) -> Timing | None:
        """The program's times; None unless it was verified."""
        verdict = self.verdict(key)
        return verdict.timing if isinstance(verdict, Verified) else None

    def tried(self, key: str) -> frozenset[str]:
        """Ids of the actions already taken from this program."""
        edges = self.graph.out_edges(key, data="steps")
        return frozenset(step.action.id for _, _, steps in edges for step in steps if step.action)

    def untried(self, key: str, proposed: Iterable[Action]) -> list[Action]:
        """Of the actions offered at a program those that were not taken yet."""
        tried = self.tried(key)
        return [action for action in offered(proposed, self.verdict(key), key == self.root) if action.id not in tried]

    def repairable(self, key: str) -> bool:
        """A failed program, not yet repaired, at the end of fewer than REPAIRS repairs and with fewer tried from it."""
        if self.verdict(key).correct:
            return False
        children = [self.verdict(child) for child in self.graph.successors(key)]
        kinds = [step.action.family for step in self.path(key) if step.action]
        return (
            len(children) < REPAIRS
            and not any(child.correct for child in children)
            and kinds[-REPAIRS:] != ["repair"] * REPAIRS
        )

    def failures(self, key: str) -> int:
        """Tries from a program in a row, up to the last one, that gained nothing."""
        here = self.timing(key)
        tries = [step for step in self.steps if step.parent == key]
        gained = [isinstance(s.verdict, Verified) and (not here or better(s.verdict.timing, here)) for s in tries]
        return (gained[::-1] + [True]).index(True)

    @property
    def ranking(self) -> tuple[str, ...]:
        """Verified programs: the best beyond noise (the earliest of equals) first, then the others by speed-up."""
        timings = {key: timing for key in self.graph if (timing := self.timing(key))}
        best = ""
        for key, timing in timings.items():
            if not best or better(timing, timings[best]):
                best = key
        others = sorted((key for key in timings if key != best), key=lambda key: -timings[key].speedup)
        return (best, *others) if best else ()

    @property
    def best(self) -> str:
        """Key of the best verified program; empty when there is none."""
        return self.ranking[0] if self.ranking else ""

    def path(self, key: str) -> tuple[Step, ...]:
        """The steps by which a program was first reached, from the root on; the root's path is empty."""
        path: list[Step] = []
        while key != self.root:
            arrivals = (step for _, _, steps in self.graph.in_edges(key, data="steps") for step in steps)
            path.append(min(arrivals, key=lambda step: step.index))
            key = path[-1].parent
        return tuple(reversed(path))
