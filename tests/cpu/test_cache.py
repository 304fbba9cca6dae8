"""The evaluation cache: keys, age, damage and concurrent writers."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.judge.cache import DAY, Cache, Key, versions
from mtmc.verdict import Accuracy, Infra, Launch, Timeout, Timing, Verdict, Verified, Wrong

KEY = Key("p" * 16, "q" * 16, "h100-sxm 12ab", False, "strict", ("torch 2", "triton 3", "driver "))
VERIFIED = Verified(
    Timing("predicted", 2.0, 1.0, 2.0, 2.0, 2.0, kernels_ms={"relu": 1.0}),
    Accuracy(1e-7, 2e-7, ("own",), ("nothing",)),
    (Launch("relu_kernel", (4, 1, 1), 4, 1, 32, 0, 0, constants={"BLOCK": 1024}),),
)


def test_a_verdict_comes_back_as_it_was(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "sub" / "cache.sqlite")
    assert cache.get(KEY) is None
    cache.put(KEY, VERIFIED)
    assert cache.get(KEY) == VERIFIED
    cache.put(KEY, Wrong("off", "values", 1.0, 0.0))
    assert Cache(cache.path).get(KEY) == Wrong("off", "values", 1.0, 0.0)


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, program="other"),
        replace(KEY, problem="other"),
        replace(KEY, profile="a100"),
        replace(KEY, measure=True),
        replace(KEY, precision="tf32"),
        replace(KEY, versions=versions("570.1")),
    ],
)
def test_every_part_of_the_key_counts(tmp_path: Path, other: Key) -> None:
    cache = Cache(tmp_path / "c")
    cache.put(KEY, VERIFIED)
    assert cache.get(other) is None


def test_old_verdicts_are_forgotten_and_dropped(tmp_path: Path) -> None:
    clock = [1000.0]
    cache = Cache(tmp_path / "c", ttl_days=7, now=lambda: clock[0])
    cache.put(KEY, VERIFIED)
    clock[0] += 6.9 * DAY
    assert cache.get(KEY) == VERIFIED
    clock[0] += 0.2 * DAY
    assert cache.get(KEY) is None
    cache.put(replace(KEY, program="new"), VERIFIED)
    clock[0] = 1000.0
    assert cache.get(KEY) is None


@pytest.mark.parametrize("verdict", [Infra("no memory"), Timeout("verify", 60)])
def test_what_the_machine_may_have_caused_is_not_kept(tmp_path: Path, verdict: Verdict) -> None:
    cache = Cache(tmp_path / "c")
    cache.put(KEY, verdict)
    assert cache.get(KEY) is None


def test_a_damaged_file_is_set_aside_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"not a database at all, but long enough to be looked at as one" * 50)
    cache = Cache(path)
    with pytest.warns(UserWarning, match="is damaged"):
        assert cache.get(KEY) is None
    assert (tmp_path / "c.broken").exists()
    cache.put(KEY, VERIFIED)
    assert cache.get(KEY) == VERIFIED


def _write_many(path: Path, name: str) -> None:
    cache = Cache(path)
    for index in range(20):
        cache.put(replace(KEY, program=f"{name}{index}"), VERIFIED)


def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(tmp_path / "c", name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    cache = Cache(tmp_path / "c")
    assert all(cache.get(replace(KEY, program=f"{name}{index}")) for name in "ab" for index in range(20))
