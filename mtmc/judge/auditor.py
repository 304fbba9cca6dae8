"""The auditor: a language model that reads reference and candidate and says whether the work looks honest.

Its answer is advice: warnings beside the verdict, never the verdict. It may be fooled (the candidate's text can speak to it)
and it may be wrong, so nothing it says saves a candidate that failed, nor rejects one that passed.

Any server with OpenAI's chat completions will do: MTMC_LLM_URL (up to `/v1`), MTMC_LLM_MODEL, and MTMC_LLM_KEY where it
wants one. The answer must be the JSON object that `prompts/auditor.txt` asks for, whole and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from mtmc.errors import BadInput
from mtmc.verdict import Finding

OPINIONS = ("honest", "suspicious", "cheating")
KINDS = ("no_work", "reference_call", "memory", "hard_coded", "precision", "timing", "environment", "other")
CERTAINTY = {"honest": "possible", "suspicious": "possible", "cheating": "likely"}
SECONDS = 120.0
LIMIT = 1 << 20  # characters of a reply, and of the two files together, that are read

STRING, LINE = {"type": "string"}, {"type": "integer", "minimum": 0}
ITEM = {"line": LINE, "kind": {"enum": list(KINDS)}, "why": STRING}
FIELDS: dict[str, Any] = {
    "verdict": {"enum": list(OPINIONS)},
    "reason": STRING,
    "findings": {
        "type": "array",
        "items": {"type": "object", "properties": ITEM, "required": list(ITEM), "additionalProperties": False},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": FIELDS,
    "required": list(FIELDS),
    "additionalProperties": False,
}


class NoAnswer(Exception):
    """The server or its answer is of no use; the text says why."""


@dataclass(frozen=True)
class Endpoint:
    """Where to ask: the URL up to `/v1`, the model's name there, the key (may be empty)."""

    url: str
    model: str
    key: str = ""


@dataclass(frozen=True)
class Advice:
    """`opinion` is one of OPINIONS; `findings` are warnings with rules `auditor.KIND`."""

    opinion: str
    reason: str
    findings: tuple[Finding, ...] = ()


def endpoint(environment: Mapping[str, str] = os.environ) -> Endpoint:
    """The configured endpoint. Raises BadInput where a variable or the HTTP client is missing."""
    missing = [name for name in ("MTMC_LLM_URL", "MTMC_LLM_MODEL") if not environment.get(name)]
    if missing:
        raise BadInput(f"--auditor needs the environment variable {missing[0]} (see docs/verify.md).")
    try:
        import httpx  # noqa: F401
    except ImportError as error:
        raise BadInput("--auditor needs httpx: pip install 'mtmc[llm]'.") from error
    url, key = environment["MTMC_LLM_URL"].rstrip("/"), environment.get("MTMC_LLM_KEY", "")
    return Endpoint(url, environment["MTMC_LLM_MODEL"], key)


def ask(where: Endpoint, reference: str, candidate: str) -> Advice:
    """The model's opinion on a candidate's text. Raises NoAnswer."""
    return parse(_reply(where, prompt(reference, candidate)))


def prompt(reference: str, candidate: str) -> str:
    """What is asked. Raises NoAnswer for files too long to be read."""
    if len(reference) + len(candidate) > LIMIT:
        raise NoAnswer("the files are too long to be read")
    text = files("mtmc.judge").joinpath("prompts/auditor.txt").read_text(encoding="utf-8")
    head, _, rest = text.partition("{reference}")
    middle, _, tail = rest.partition("{candidate}")
    return head + reference + middle + candidate + tail


def parse(text: str) -> Advice:
    """The answer's one JSON object. Raises NoAnswer for anything else than the schema says."""
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise NoAnswer("the answer is no JSON object") from error
    if not isinstance(answer, dict) or answer.keys() != FIELDS.keys():
        raise NoAnswer(f"the answer is not an object of {', '.join(FIELDS)}")
    opinion, reason, items = (answer[name] for name in FIELDS)
    if opinion not in OPINIONS or not isinstance(reason, str) or not isinstance(items, list):
        raise NoAnswer("the answer's verdict, reason or findings are not of the schema")
    return Advice(opinion, reason, tuple(_finding(item, CERTAINTY[opinion]) for item in items))


def _finding(item: Any, certainty: str) -> Finding:
    good = isinstance(item, dict) and item.keys() == ITEM.keys() and item["kind"] in KINDS
    if not good or type(item["line"]) is not int or item["line"] < 0 or not isinstance(item["why"], str):
        raise NoAnswer("a finding of the answer is not of the schema")
    return Finding(f"auditor.{item['kind']}", item["line"], item["why"], certainty, "warn")


def _reply(where: Endpoint, question: str) -> str:
    """Text of the first choice. Raises NoAnswer for whatever goes wrong on the way."""
    import httpx

    body = {
        "model": where.model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "audit", "strict": True, "schema": SCHEMA}},
    }
    headers = {"Authorization": f"Bearer {where.key}"} if where.key else {}
    try:
        response = httpx.post(f"{where.url}/chat/completions", json=body, headers=headers, timeout=SECONDS)
        response.raise_for_status()
        text = response.json()["choices"][0]["message"]["content"] if len(response.content) <= LIMIT else None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(f"{type(error).__name__} from {where.url}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise NoAnswer("the reply is not one of a chat completion") from error
    if not isinstance(text, str):
        raise NoAnswer("the reply holds no text, or too much")
    return text
