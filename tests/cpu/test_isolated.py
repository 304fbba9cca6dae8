"""Tensors and calls between two processes: what arrives is what was sent, and what no honest sender sends is refused."""

import pickle
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mtmc.judge.executor import Limits, LocalProcesses
from mtmc.judge.isolated import Failed, Received, _described, _received
from mtmc.judge.jobs import InterpretJob
from mtmc.judge.observed import Observed
from mtmc.judge.parcels import Post, Slot, Strange
from mtmc.judge.wire import plain
from mtmc.problem import load
from mtmc.verdict import RuntimeFault, Verdict, Wrong

sys.path.insert(0, str(Path(__file__).parents[1] / "adversarial"))
import corpus

from mtmc.judge.door import Door

CPU = torch.device("cpu")
TENSORS = [
    torch.arange(12.0).reshape(3, 4),
    torch.arange(12, dtype=torch.int64).reshape(3, 4).t(),
    torch.zeros(0, 3),
    torch.tensor(True),
    torch.randn(2, 1, 3).expand(2, 5, 3),
    torch.randn(4, 6)[:, ::2],
    torch.randn(3, dtype=torch.complex64),
    torch.randn(5).bfloat16(),
    torch.tensor([float("nan"), float("inf"), -0.0]),
]


@pytest.fixture
def ends() -> Iterator[tuple[Post, Post]]:
    near, far = socket.socketpair()
    with near, far:
        yield Post(near), Post(far)


def test_tensors_arrive_with_their_layout(ends: tuple[Post, Post]) -> None:
    near, far = ends
    for sent in (TENSORS, TENSORS[:1], [], TENSORS * 2):
        near.send(b"value", sent)
        value, found = far.receive(CPU)
        assert value == b"value" and len(found) == len(sent)
        for mine, theirs in zip(found, sent, strict=True):
            assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
            assert torch.equal(mine.nan_to_num(7.0), theirs.nan_to_num(7.0))


def test_what_was_received_does_not_change_any_more(ends: tuple[Post, Post]) -> None:
    near, far = ends
    near.send(b"", [torch.ones(100)])
    (found,) = far.receive(CPU)[1]
    near.send(b"", [torch.zeros(100)])
    assert torch.equal(found, torch.ones(100))


@pytest.mark.parametrize(
    "slot",
    [
        Slot("float32", (1 << 40,), (1,), 0),
        Slot("float32", (4, 4), (1 << 30, 1), 0),
        Slot("float32", (-4,), (1,), 0),
        Slot("float32", (4,), (-1,), 0),
        Slot("float32", (4,), (1,), 1 << 20),
        Slot("float32", (4,), (1,), -64),
        Slot("float32", (4, 4), (1,), 0),
        Slot("load", (4,), (1,), 0),
    ],
)
def test_strange_descriptions_are_refused(slot: Slot) -> None:
    with pytest.raises(Strange):
        slot.checked(1024)


def test_a_call_arrives_as_it_was_seen() -> None:
    y = torch.randn(3)
    seen = Observed(
        (y, {"a": 1, "b": None}), {"mean": torch.ones(2)}, {0: torch.zeros(1)}, frozenset({(0, "input 0")}), ("w",)
    )
    said, given = _described(seen)
    found = _received(plain(pickle.dumps(said)), given)
    assert isinstance(found, Received) and found.form == seen.form
    assert [name for name, _ in found.leaves()] == [name for name, _ in seen.leaves()]
    assert all(a is b or a == b for (_, a), (_, b) in zip(found.leaves(), seen.leaves(), strict=True))
    assert (found.written.keys(), found.shared, found.parameters) == ({0}, seen.shared, ("w",))


def test_leaves_that_are_no_tensors_are_told_by_their_kind() -> None:
    class Lazy(torch.Tensor):
        pass

    for leaf, words in ((torch.zeros(1).as_subclass(Lazy), "Lazy"), (object(), "object")):
        said, given = _described(Observed(leaf, {}, {}, frozenset(), ()))
        with pytest.raises(Failed) as failed:
            _received(said, given)
        assert isinstance(failed.value.verdict, Wrong) and words in failed.value.verdict.message


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_cheats_on_the_sandbox_fail_where_no_static_check_reads_them(tmp_path: Path) -> None:
    """Each is judged without the checks on its text, its honest twin after it in the same lane."""
    chosen = {case.name: case for case in corpus.cases() if case.kind == "sandbox"}
    with LocalProcesses(tmp_path, Limits(workers={"compile": 1, "interpret": 1, "gpu": 1})) as running:
        for case in chosen.values():
            if case.honest:
                continue
            problem = load(corpus.FOLDER / "references" / f"{case.reference}.py")
            found, twin = (
                running.submit(InterpretJob(problem=problem, source=source, door=Door("class"), seconds=150)).result()
                for source in (case.source, chosen[case.twin].source)
            )
            assert isinstance(found, (RuntimeFault, Wrong)), (case.name, found)
            assert not isinstance(twin, Verdict), (case.twin, twin)
