"""Scores of labels by vLLM: an engine in this process, or a running server.

Both are asked for one token and the log-probabilities of the labels' token ids (`logprob_token_ids`): one forward pass a
menu behind a cached prefix. Sentences are not scored here, for `prompt_logprobs` switches prefix caching off.

vLLM pins versions of torch and triton, so the engine wants an environment of its own (`.ci/vllm` makes one); a server is
asked over HTTP from any.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtmc.errors import BadInput, InfraError
from mtmc.policies import prompt, scoring
from mtmc.policies.menu import Menu
from mtmc.policies.weights import Source, source

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # sizes for which vLLM makes room
SECONDS = 120.0  # for an answer of the server
QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # it logs to stdout, where results go
CPU_CACHE = "2"  # GiB of keys and values: 90,000 tokens of the default model in bf16


@dataclass(frozen=True)
class Engine:
    """A `vllm.LLM` with its tokenizer; `labels` are the token ids of ` A` … ` Z`, `adapter` a LoRARequest or None."""

    model: Any
    tokenizer: Any
    labels: list[int]
    adapter: Any = None

    def by_label(self, prefix: str, menus: Sequence[Menu]) -> list[Tensor]:
        """Log-probabilities over each menu's options, float32 [options]; all menus are one batch."""
        from vllm import SamplingParams

        before = scoring.tokens(self.tokenizer, prefix)
        rows = [{"prompt_token_ids": before + scoring.tokens(self.tokenizer, prompt.text(menu))} for menu in menus]
        wanted = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False, logprob_token_ids=self.labels)
        found = self.model.generate(rows, wanted, lora_request=self.adapter, use_tqdm=False)
        after = [answer.outputs[0].logprobs[0] for answer in found]
        return [
            _shares([row[label].logprob for label in self.labels[: len(menu)]])
            for row, menu in zip(after, menus, strict=True)
        ]


@dataclass(frozen=True)
class Server:
    """A vLLM server with OpenAI's completions at `url` (without `/v1`); `model` is a model's or an adapter's name there."""

    url: str
    model: str
    labels: list[int]

    def by_label(self, prefix: str, menus: Sequence[Menu]) -> list[Tensor]:
        """Log-probabilities over each menu's options, float32 [options]; all menus are one request. Raises InfraError."""
        body = {
            "model": self.model,
            "prompt": [prefix + prompt.text(menu) for menu in menus],
            "max_tokens": 1,
            "temperature": 0,
            "add_special_tokens": False,
            "logprobs": 1,
            "logprob_token_ids": self.labels,
            "return_tokens_as_token_ids": True,
        }
        answer = _asked(self.url, "/v1/completions", body)
        try:
            ordered = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
            after = [choice["logprobs"]["top_logprobs"][0] for choice in ordered]
            return [
                _shares([row[f"token_id:{label}"] for label in self.labels[: len(menu)]])
                for row, menu in zip(after, menus, strict=True)
            ]
        except (LookupError, TypeError, ValueError) as error:
            raise InfraError(f"{self.url} did not answer with the labels' scores; is it a vLLM server?") from error


def load(text: str, doing: Callable[[str], None] = lambda _: None) -> Engine | Server:
    """What `PATH[+ADAPTER]` or `http://HOST:PORT[/v1][+NAME]` names; the empty text is the default model, in process.

    Raises BadInput where vLLM or the server's client is missing, or the model cannot be loaded; NoWeights; InfraError.
    """
    if text.startswith(("http://", "https://")):
        doing("asking the vLLM server for its models")
        return connect(text)
    found = source(text, doing)
    doing("starting vLLM")
    return start(found)


def start(found: Source, dtype: str = "") -> Engine:
    """The engine in this process, with the adapter as a LoRA request. Raises BadInput."""
    on_gpu = torch.cuda.is_available()
    for name, value in {**QUIET, **({} if on_gpu else {"VLLM_CPU_KVCACHE_SPACE": CPU_CACHE})}.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import LLM
        from vllm.lora.request import LoRARequest
    except ImportError as error:
        raise BadInput(f"vLLM cannot be loaded here ({error}): see docs/policy.md for its environment.") from error
    lora = {"enable_lora": True, "max_lora_rank": _room(found.adapter)} if found.adapter else {}
    precision = dtype or str(scoring.precision("cuda" if on_gpu else "cpu")).removeprefix("torch.")
    try:
        model = LLM(found.base, dtype=precision, enforce_eager=not on_gpu, **lora)
    except (OSError, ValueError) as error:
        raise BadInput(f"{found.base} cannot be loaded by vLLM: {error}") from error
    tokenizer = model.get_tokenizer()
    labels = scoring.labels(lambda text: scoring.tokens(tokenizer, text))
    adapter = LoRARequest("adapter", 1, str(found.adapter.resolve())) if found.adapter else None
    return Engine(model, tokenizer, labels.tolist(), adapter)


def connect(text: str) -> Server:
    """The server of `URL[+NAME]`, by default the first model that it serves. Raises BadInput and InfraError."""
    address, _, name = text.partition("+")
    url = address.rstrip("/").removesuffix("/v1")
    try:
        served = [str(model["id"]) for model in _asked(url, "/v1/models")["data"]]
        name = name or served[0]
    except (LookupError, TypeError) as error:
        raise InfraError(f"{url} did not answer with its models; is it a vLLM server?") from error
    if name not in served:
        raise BadInput(f"{url} serves no {name}; it serves {', '.join(served)}.")
    return Server(url, name, scoring.labels(lambda text: _tokens(url, name, text)).tolist())


def _tokens(url: str, model: str, text: str) -> list[int]:
    """The server's tokens of a text."""
    answer = _asked(url, "/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})
    try:
        return [int(token) for token in answer["tokens"]]
    except (LookupError, TypeError, ValueError) as error:
        raise InfraError(f"{url} did not answer with tokens; is it a vLLM server?") from error


def _asked(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """The server's JSON answer, to a question or to none. MTMC_LLM_KEY is its key where it wants one. Raises InfraError."""
    try:
        import httpx
    except ImportError as error:
        raise BadInput("A vLLM server needs httpx to be asked: pip install 'mtmc[llm]'.") from error
    key = os.environ.get("MTMC_LLM_KEY", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        method = "GET" if body is None else "POST"
        response = httpx.request(method, f"{url}{path}", json=body, headers=headers, timeout=SECONDS)
        response.raise_for_status()
        return response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise InfraError(f"the vLLM server {url} cannot be asked: {error or type(error).__name__}") from error


def _shares(logits: Sequence[float]) -> Tensor:
    return torch.tensor(logits, dtype=torch.float32).log_softmax(-1)


def _room(adapter: Path) -> int:
    """The least rank that vLLM makes room for and the adapter fits into. Raises BadInput."""
    rank = int(json.loads((adapter / "adapter_config.json").read_text())["r"])
    if rank > RANKS[-1]:
        raise BadInput(f"{adapter} has rank {rank}; vLLM takes at most {RANKS[-1]}.")
    return next(room for room in RANKS if room >= rank)
