"""The auditor against a server of our own: what is sent, what is believed, and that it never decides."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mtmc.errors import BadInput
from mtmc.judge import auditor
from mtmc.judge.auditor import Endpoint, NoAnswer
from mtmc.problem import Problem
from mtmc.verdict import Infra, Rejected
from mtmc.verification import Verification, _audited

GOOD = {"verdict": "cheating", "reason": "It copies.", "findings": [{"line": 3, "kind": "no_work", "why": "a copy"}]}


class Server(HTTPServer):
    """Answers every request alike and remembers the last one."""

    status, reply = 200, ""
    seen: dict = {}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen = {"path": self.path, "key": self.headers["Authorization"], "body": json.loads(body)}
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.reply.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def says(server, content):
    server.reply = json.dumps({"choices": [{"message": {"content": content}}]})
    return Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "small", "secret")


def test_the_question_carries_both_files_and_the_answer_becomes_warnings(server):
    advice = auditor.ask(says(server, json.dumps(GOOD)), "REFERENCE {candidate}", "CANDIDATE {reference}")
    assert advice.opinion == "cheating"
    (finding,) = advice.findings
    assert (finding.rule, finding.line, finding.level, finding.certainty) == ("auditor.no_work", 3, "warn", "likely")
    assert server.seen["path"] == "/v1/chat/completions" and server.seen["key"] == "Bearer secret"
    text = server.seen["body"]["messages"][0]["content"]
    assert "<reference>\nREFERENCE {candidate}\n</reference>\n<candidate>\nCANDIDATE {reference}\n</candidate>" in text
    assert server.seen["body"]["model"] == "small"


@pytest.mark.parametrize(
    "content",
    [
        "It is honest.",
        "```json\n" + json.dumps(GOOD) + "\n```",
        json.dumps([GOOD]),
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "verdict": "fine"}),
        json.dumps({**GOOD, "verdict": ["honest"]}),
        json.dumps({**GOOD, "reason": None}),
        json.dumps({**GOOD, "findings": {}}),
        json.dumps({**GOOD, "findings": ["no"]}),
        json.dumps({**GOOD, "findings": [{"line": True, "kind": "memory", "why": "x"}]}),
        json.dumps({**GOOD, "findings": [{"line": -1, "kind": "memory", "why": "x"}]}),
        json.dumps({**GOOD, "findings": [{"line": 1, "kind": "evil", "why": "x"}]}),
        None,
        7,
    ],
)
def test_anything_but_the_schema_is_no_answer(server, content):
    with pytest.raises(NoAnswer):
        auditor.ask(says(server, content), "a", "b")


@pytest.mark.parametrize(("status", "reply"), [(500, "{}"), (200, "no json"), (200, "{}"), (200, '{"choices": []}')])
def test_a_broken_server_is_no_answer(server, status, reply):
    where = says(server, "")
    server.status, server.reply = status, reply
    with pytest.raises(NoAnswer):
        auditor.ask(where, "a", "b")


def test_nobody_there_and_files_too_long():
    with pytest.raises(NoAnswer, match="ConnectError"):
        auditor.ask(Endpoint("http://127.0.0.1:9/v1", "small"), "a", "b")
    with pytest.raises(NoAnswer, match="too long"):
        auditor.prompt("a" * auditor.LIMIT, "b")


def test_the_endpoint_comes_from_the_environment():
    full = {"MTMC_LLM_URL": "http://x/v1/", "MTMC_LLM_MODEL": "m", "MTMC_LLM_KEY": "k"}
    assert auditor.endpoint(full) == Endpoint("http://x/v1", "m", "k")
    assert auditor.endpoint({**full, "MTMC_LLM_KEY": ""}).key == ""
    for name in ("MTMC_LLM_URL", "MTMC_LLM_MODEL"):
        with pytest.raises(BadInput, match=name):
            auditor.endpoint({**full, name: ""})


@pytest.mark.parametrize("verdict", [Rejected("static.copy", "no"), Infra("no GPU")])
def test_advice_never_changes_a_verdict(server, monkeypatch, verdict):
    where = says(server, json.dumps({**GOOD, "verdict": "honest", "findings": []}))
    monkeypatch.setattr(auditor, "endpoint", lambda: where)
    before = Verification("p", "class", "h100", False, verdict)
    after = _audited(before, Problem("p", "text", "p.py"), "candidate")
    assert after.verdict == verdict and after.opinion == "honest: It copies."
    server.status = 500
    assert "of no use" in _audited(before, Problem("p", "text", "p.py"), "candidate").notes[0]
