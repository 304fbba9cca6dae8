"""vLLM chooses as transformers does: the default model with an adapter, fp32, in process and through a server.

The adapter is random: large enough to change choices, so a run without it would be noticed. `.ci/vllm` runs this.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from itertools import chain, islice, zip_longest
from random import Random

import pytest

from mtmc.errors import InfraError
from mtmc.policies import decisions, scoring, vllm
from mtmc.policies.llm import LlmPolicy
from mtmc.policies.replay import Replay
from mtmc.policies.weights import Source, default_folder
from mtmc.trajectories import archive

pytestmark = pytest.mark.vllm
TREES = decisions.trees([archive.SAMPLES])
PROMPTS = 50
CLOSE = 2e-3  # nat, of fp32 sums in another order
STARTING = 300  # seconds


@pytest.fixture(scope="module")
def questions():
    """Prompts as prefix and menu, at programs of the samples, from all trees in turn."""
    found = [decisions.stages(tree, decisions.Expert(everywhere=True)) for tree in TREES]
    turns = chain.from_iterable(zip_longest(*found))
    return list(islice(((stage.prefix, stage.menu) for stage in turns if stage), PROMPTS))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The default model with an adapter of random weights."""
    import peft
    import torch

    torch.manual_seed(0)
    base = scoring.load(Source(str(default_folder())), "cpu", "float32").model
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    folder = tmp_path_factory.mktemp("adapter")
    model = peft.get_peft_model(base, config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data *= 0.3
    model.save_pretrained(str(folder))
    return Source(str(default_folder()), folder)


@pytest.fixture(scope="module")
def expected(tuned, questions):
    scorer = scoring.load(tuned, "cpu", "float32")
    return [scorer.by_label(before, [options])[0] for before, options in questions]


@pytest.fixture(scope="module")
def engine(tuned):
    return vllm.start(tuned, "float32")


def check(by_label, questions, expected):
    assert len(questions) == PROMPTS
    found = [by_label(before, [options])[0] for before, options in questions]
    assert [int(row.argmax()) for row in found] == [int(row.argmax()) for row in expected]
    assert max(float((one - other).abs().max()) for one, other in zip(found, expected, strict=True)) < CLOSE


def test_the_adapter_changes_choices(tuned, questions, expected):
    bare = scoring.load(Source(tuned.base), "cpu", "float32")
    some = list(zip(questions, expected, strict=True))[::5]
    assert any(int(bare.by_label(before, [o])[0].argmax()) != int(row.argmax()) for (before, o), row in some)


def test_the_engine_chooses_as_transformers_does(engine, questions, expected):
    check(engine.by_label, questions, expected)


def test_a_whole_decision_has_the_same_probabilities(engine, tuned):
    seen = decisions.view(Replay(TREES[0]), TREES[0].root)
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
    check(connected(server).by_label, questions, expected)
