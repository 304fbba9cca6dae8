"""The client of a vLLM server, against one of our own that answers as vLLM documents; `tests/vllm` has the real one."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest
from policy_views import view

from mtmc import policies
from mtmc.errors import BadInput, InfraError
from mtmc.policies import prompt, scoring, tiny, vllm
from mtmc.policies.llm import LlmPolicy
from mtmc.policies.menu import menu
from mtmc.policies.weights import Source

SEEN = view(30)


class Server(ThreadingHTTPServer):
    """Serves the tiny model under two names; `broken` leaves the scores out of its answers."""

    scorer: scoring.Scorer
    key = ""
    broken = False


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, {"data": [{"id": "base"}, {"id": "tuned"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(200, {"/tokenize": self.tokens, "/v1/completions": self.completions}[self.path](body))

    def tokens(self, body):
        assert body["add_special_tokens"] is False
        return {"tokens": self.server.scorer.ids(body["prompt"])}

    def completions(self, body):
        assert body["logprobs"] and body["return_tokens_as_token_ids"] and not body["add_special_tokens"]
        assert (body["model"], body["max_tokens"]) == ("tuned", 1) and "prompt_logprobs" not in body
        choices = [self.choice(*each, body["logprob_token_ids"]) for each in enumerate(body["prompt"])]
        return {"choices": choices[::-1]}

    def choice(self, index, text, wanted):
        logits = self.server.scorer._once([], self.server.scorer.ids(text)).log_softmax(-1)
        scores = {f"token_id:{token}": float(logits[token]) for token in wanted}
        return {"index": index, "logprobs": None if self.server.broken else {"top_logprobs": [scores]}}

    def answer(self, status, content):
        known = not self.server.key or self.headers["Authorization"] == f"Bearer {self.server.key}"
        self.send_response(status if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def scorer(tmp_path_factory):
    return scoring.load(Source(str(tiny.write(tmp_path_factory.mktemp("tiny") / "model"))), "cpu", "float32")


@pytest.fixture
def server(scorer):
    with Server(("127.0.0.1", 0), Handler) as running:
        running.scorer = scorer
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def url(server):
    return f"http://127.0.0.1:{server.server_port}/v1"


def test_a_server_is_a_policy_and_its_probabilities_are_the_models(server, scorer):
    found = policies.load(f"vllm:{url(server)}+tuned").choose(SEEN, Random(0))
    expected = LlmPolicy(scorer.by_label).choose(SEEN, Random(0))
    assert found.action == expected.action
    assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-4)


def test_the_first_model_is_the_one_that_is_asked_and_an_unknown_one_is_refused(server, scorer):
    found = vllm.connect(url(server))
    assert (found.model, found.labels) == ("base", scorer.labels.tolist())
    with pytest.raises(BadInput, match="serves no other; it serves base, tuned"):
        vllm.connect(f"{url(server)}+other")


def test_a_key_is_sent(server, monkeypatch):
    server.key = "secret"
    with pytest.raises(InfraError, match="cannot be asked: .*401"):
        vllm.connect(url(server))
    monkeypatch.setenv("MTMC_LLM_KEY", "secret")
    assert vllm.connect(url(server)).model == "base"


def test_a_server_that_is_not_there_or_is_no_vllm_is_the_machines_fault(server):
    asked = vllm.connect(f"{url(server)}+tuned")
    server.broken = True
    with pytest.raises(InfraError, match="is it a vLLM server"):
        asked.by_label(prompt.prefix(SEEN), [menu(SEEN.legal)])
    with pytest.raises(InfraError, match="cannot be asked"):
        vllm.connect("http://127.0.0.1:1")


def test_without_vllm_the_engine_says_where_to_get_it(scorer, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with pytest.raises(BadInput, match="vLLM cannot be loaded here"):
        policies.load(f"vllm:{scorer.model.config.name_or_path}")


@pytest.mark.parametrize(("rank", "room"), [(1, 1), (4, 8), (16, 16), (17, 32)])
def test_room_is_made_for_the_adapters_rank(rank, room, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": rank}))
    assert vllm._room(tmp_path) == room
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 1024}))
    with pytest.raises(BadInput, match="rank 1024"):
        vllm._room(tmp_path)
