"""vLLM chooses as transformers does: the default model with an adapter, fp32, in process and through a server.

The adapter is random. Choices depend on it, and differ from prompt to prompt, so that neither a forgotten adapter nor a
forgotten prompt would go unnoticed. `.ci/vllm` runs this.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from itertools import chain, zip_longest
from random import Random

import pytest

from mtmc.errors import InfraError
from mtmc.policies import decisions, prompt, scoring, vllm
from mtmc.policies.llm import LlmPolicy
from mtmc.policies.menu import menu
from mtmc.policies.replay import Replay
from mtmc.policies.weights import Source, default_folder
from mtmc.trajectories import archive

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]
TREES = decisions.trees([archive.SAMPLES])
PROMPTS = 50
CLOSE = 1e-3  # nat, of fp32 sums in another order
STARTING = 300  # seconds


def views(tree):
    """Decisions along the best path of a tree."""
    for key in (tree.root, *(step.child for step in tree.tree.path(tree.best))):
        replay = Replay(tree)
        yield replay.view(replay.follow(tree.tree.path(key)))


def menus(options, rng):
    """A menu and those behind it, options in another order."""
    yield tuple(rng.sample(options, len(options)))
    for option in options:
        if len(option.actions) > 1:
            yield from menus(menu(option.actions), rng)


@pytest.fixture(scope="module")
def questions():
    """Decisions, each a prefix and its menus: PROMPTS menus, from all trees in turn."""
    rng, asked, left = Random(0), [], PROMPTS
    for view in filter(None, chain.from_iterable(zip_longest(*map(views, TREES)))):
        asked.append((prompt.prefix(view), list(menus(menu(view.legal), rng))[:left]))
        left -= len(asked[-1][1])
        if not left:
            return asked
    raise AssertionError("the samples have too few decisions")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The default model with an adapter of random weights."""
    import peft
    import torch

    torch.manual_seed(0)
    base = scoring.load(Source(str(default_folder())), "cpu", "float32").model
    config = peft.LoraConfig(r=4, lora_alpha=32, target_modules="all-linear", init_lora_weights=False)
    folder = tmp_path_factory.mktemp("adapter")
    peft.get_peft_model(base, config).save_pretrained(str(folder))
    return Source(str(default_folder()), folder)


def rows(by_label, questions):
    return [row for before, asked in questions for row in by_label(before, asked)]


@pytest.fixture(scope="module")
def expected(tuned, questions):
    return rows(scoring.load(tuned, "cpu", "float32").by_label, questions)


@pytest.fixture(scope="module")
def engine(tuned):
    return vllm.start(tuned, "float32")


def check(found, expected):
    assert len(found) == len(expected) == PROMPTS
    assert [int(row.argmax()) for row in found] == [int(row.argmax()) for row in expected]
    assert max(float((one - other).abs().max()) for one, other in zip(found, expected, strict=True)) < CLOSE


def test_neither_prompts_nor_the_adapter_could_be_forgotten_unnoticed(tuned, questions, expected):
    assert len({int(row.argmax()) for row in expected}) > 2
    bare = rows(scoring.load(Source(tuned.base), "cpu", "float32").by_label, questions[:1])
    assert all(float((one - other).abs().max()) > 100 * CLOSE for one, other in zip(bare, expected, strict=False))


def test_the_engine_chooses_as_transformers_does(engine, questions, expected):
    check(rows(engine.by_label, questions), expected)


def test_a_whole_decision_has_the_same_probabilities(engine, tuned):
    seen = Replay(TREES[0]).view(TREES[0].root)
    one = LlmPolicy(engine.by_label).choose(seen, Random(0))
    other = LlmPolicy(scoring.load(tuned, "cpu", "float32").by_label).choose(seen, Random(0))
    assert one.action == other.action and one.probabilities == pytest.approx(other.probabilities, abs=CLOSE)


@pytest.fixture(scope="module")
def server(tuned):
    """A running `vllm serve`, as `URL+NAME` of the adapter."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--dtype", "float32", "--enforce-eager", "--enable-lora", "--max-lora-rank", "8"]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", tuned.base, *options]
    command += ["--lora-modules", f"tuned={tuned.adapter}", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2"}) as running:
        yield f"http://127.0.0.1:{port}/v1+tuned"
        running.terminate()


def connected(address):
    began = time.monotonic()
    while True:
        try:
            return vllm.connect(address)
        except InfraError:
            if time.monotonic() - began > STARTING:
                raise
            time.sleep(1.0)


def test_a_server_chooses_as_transformers_does(server, questions, expected):
    check(rows(connected(server).by_label, questions), expected)
