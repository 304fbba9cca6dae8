"""Verification with the candidate in another process than the comparison.

    comparer (unconfined)                          host (confined)
    draws inputs, runs reference and oracle  ──▶   imports, builds and calls the candidate
    applies the rule to what comes back      ◀──   values and form of its outputs, as copies

The host can say what it likes: it is believed in nothing that the comparer can see for itself. What it could still lie about
are side effects (inputs or weights written, memory shared), which only its own process can see.
"""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mtmc.judge import candidate, forms
from mtmc.judge.device import tensors
from mtmc.judge.observed import Observed, observe
from mtmc.judge.parcels import Post, Strange
from mtmc.judge.verify import Verifier
from mtmc.judge.wire import plain
from mtmc.verdict import Accuracy, RuntimeFault, Verdict, Wrong

if TYPE_CHECKING:
    import torch

    from mtmc.judge.jobs import VerifyJob

FAREWELL = 0.3  # seconds: the line closes a moment before the process is gone, and the warden knows how it ended


class Failed(Exception):
    """The candidate's process has answered with a Verdict, or not as an honest one answers."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


@dataclass(frozen=True)
class Received(Observed):
    """What another process says of a call; `result` is the list of its leaves, `skeleton` the form they had."""

    skeleton: str = ""

    @property
    def form(self) -> str:
        return self.skeleton


class Partner:
    """The comparer's end of the line to the host. After a failure `spent`: the host is not to be used again."""

    def __init__(self, line: socket.socket) -> None:
        self.post, self.spent = Post(line), False

    def compare(self, job: VerifyJob) -> Any:
        """The job's outcome, or the Verdict that the candidate brought upon itself."""
        import torch

        self.device = torch.device(job.device)
        self.spent = True
        try:
            outcome = job.verify(lambda *given: RemoteVerifier(self, job, *given))
        except Failed as failed:
            return failed.verdict
        self.spent = not isinstance(outcome, Accuracy)
        return outcome

    def ask(self, command: str, value: Any = None, given: Iterable[torch.Tensor] = ()) -> tuple[Any, list[torch.Tensor]]:
        """The host's answer to a command. Raises Failed."""
        try:
            self.post.send(pickle.dumps((command, value)), list(given))
            said, found = self.post.receive(self.device)
            kind, answer = plain(said)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            time.sleep(FAREWELL)
            raise Failed(RuntimeFault("the candidate's process has ended", "died")) from None
        except (pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise Failed(RuntimeFault(f"the candidate's process does not keep to the protocol: {error}", "died")) from None
        if isinstance(answer, Verdict):
            raise Failed(answer)
        if kind != command:
            raise Failed(RuntimeFault(f"the candidate's process answers {kind!r} to {command}", "died"))
        return answer, found


class RemoteVerifier(Verifier):
    """A Verifier whose candidate is called by the host."""

    def __init__(self, partner: Partner, job: VerifyJob, *given: Any) -> None:
        super().__init__(*given)
        self.partner, self.job = partner, job

    def verify(
        self, source: str, sizes: candidate.Sizes | None, names: Iterable[str], repeat: bool = True
    ) -> Accuracy | Wrong:
        notes, _ = self.partner.ask("open", (self.job, self._state_names()), [*self._state(), *tensors(self.inputs)])
        built = candidate.Built(self.reference, self.reference, tuple(map(str, notes)))
        found = self._all(built, names, repeat)
        self.partner.ask("close")  # a candidate that has meddled with its process is rejected, whatever its values are
        return found

    def _adopt(self, built: candidate.Built) -> None:
        self.partner.ask("state", self._state_names(), self._state())

    def _observe(self, built: candidate.Built, seed: int, fill: float) -> Observed:
        answer, found = self.partner.ask("observe", (seed, fill), tensors(self.inputs))
        try:
            return _received(answer, found)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise Failed(RuntimeFault(f"the candidate's process describes no call: {error}", "died")) from None

    def _state(self) -> list[torch.Tensor]:
        return [value for _, value in _named(self.reference)]

    def _state_names(self) -> list[str]:
        return [name for name, _ in _named(self.reference)]


def _named(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _leaf(leaf: Any) -> tuple[str, Any]:
    """A leaf and how it travels: as a tensor, as a plain value, or only by what it is."""
    import torch

    if type(leaf) in (torch.Tensor, torch.nn.Parameter):
        return "tensor", leaf
    if isinstance(leaf, torch.Tensor):
        return "kind", type(leaf).__name__
    return ("value", leaf) if leaf is None or type(leaf) in (bool, int, float, str) else ("kind", repr(leaf)[:200])


def _described(seen: Observed) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """A call as plain values and tensors: what `_received` reads."""
    leaves = [_leaf(leaf) for leaf in forms.leaves(seen.result)]
    said = {
        "form": seen.form,
        "leaves": [(kind, None if kind == "tensor" else value) for kind, value in leaves],
        "buffers": list(seen.buffers),
        "written": list(seen.written),
        "shared": list(seen.shared),
        "parameters": list(seen.parameters),
        "updated": list(seen.updated),
    }
    return said, [v for kind, v in leaves if kind == "tensor"] + [*seen.buffers.values(), *seen.written.values()]


def _received(said: dict[str, Any], found: list[torch.Tensor]) -> Received:
    """The call that another process describes. Raises what a description that is none leads to; Failed for an odd leaf."""
    rest = iter(found)
    result: list[Any] = []
    for number, (kind, value) in enumerate(said["leaves"]):
        if kind == "kind":
            raise Failed(Wrong(f"output {number} is {value}", "type"))
        result.append(next(rest) if kind == "tensor" else value)
    buffers = {str(name): next(rest) for name in said["buffers"]}
    written = {int(number): next(rest) for number in said["written"]}
    shared = frozenset((int(number), str(whose)) for number, whose in said["shared"])
    parameters, updated = tuple(map(str, said["parameters"])), frozenset(map(str, said["updated"]))
    return Received(result, buffers, written, shared, parameters, updated, str(said["form"]))


class Host:
    """The candidate's side: serves one comparer, candidate after candidate of one tenant."""

    def __init__(self, line: socket.socket, device: str) -> None:
        import torch

        self.post, self.device = Post(line), torch.device(device)

    def serve(self) -> None:
        """Until the comparer is gone."""
        while (message := self._next()) is not None:
            _, (job, names), given = message
            self._session(job, names, given)

    def _next(self) -> tuple[str, Any, list[torch.Tensor]] | None:
        try:
            value, given = self.post.receive(self.device)
        except EOFError:
            return None
        command, said = pickle.loads(value)  # from the comparer, which is trusted
        return command, said, given

    def _answer(self, command: str, value: Any = None, given: Iterable[torch.Tensor] = ()) -> None:
        self.post.send(pickle.dumps((command, value)), list(given))

    def _session(self, job: VerifyJob, names: list[str], given: list[torch.Tensor]) -> None:
        """One candidate, from its import to the last call; what it raises is answered as a Verdict."""
        from mtmc.judge.worker import attempt

        verdict, _ = attempt(_Call(job, lambda: self._calls(job, names, given)))  # type: ignore[arg-type]
        self._answer("close", verdict)

    def _calls(self, job: VerifyJob, names: list[str], given: list[torch.Tensor]) -> None:
        with _Candidate.opened(job, names, given) as held:
            self._answer("open", list(held.built.notes))
            while (message := self._next()) is not None:
                command, value, given = message
                if command == "close":
                    return
                if command == "state":
                    held.adopt(value, given)
                    self._answer("state")
                else:
                    self._answer("observe", *_described(held.call(value, given)))


@dataclass(frozen=True)
class _Call:
    """Something to attempt in the place of a job."""

    job: VerifyJob
    call: Any

    @property
    def stage(self) -> str:
        return self.job.stage

    @property
    def source(self) -> str:
        return self.job.source

    def run(self) -> Any:
        return self.job.watch(self.call)


class _Candidate(Verifier):
    """The candidate with inputs and state that come from the comparer; nothing is compared here."""

    built: candidate.Built

    @staticmethod
    @contextmanager
    def opened(job: VerifyJob, names: list[str], given: list[torch.Tensor]) -> Iterator[_Candidate]:
        made: _Candidate = job.verifier(_Candidate)
        made.load(names, given)
        made.inputs = made.replaced(given[len(names) :])
        with candidate.imported(job.source, job.sizes, made._pretence()) as module:
            made.build(module)
            yield made

    def build(self, module: ModuleType) -> None:
        self.built = self._built(module)

    def load(self, names: list[str], values: list[torch.Tensor]) -> None:
        """The comparer's state for the reference on this side, from which the candidate gets its own."""
        import torch

        own = dict(_named(self.reference))
        with torch.no_grad():
            for name, value in zip(names, values, strict=False):
                own[name].copy_(value)

    def adopt(self, names: list[str], values: list[torch.Tensor]) -> None:
        self.load(names, values)
        self._adopt(self.built)

    def replaced(self, values: list[torch.Tensor]) -> Any:
        """The inputs with these tensors in the place of theirs, in order."""
        import torch
        from torch.utils._pytree import tree_map

        rest = iter(values)
        return tree_map(lambda leaf: next(rest) if isinstance(leaf, torch.Tensor) else leaf, self.inputs)

    def call(self, how: tuple[int, float], values: list[torch.Tensor]) -> Observed:
        seed, fill = how
        self.inputs = self.replaced(values)
        return observe(lambda: self._call(self.built), self.built.model, self.inputs, seed, fill)


__all__ = ["Failed", "Host", "Partner", "RemoteVerifier", "Strange"]
