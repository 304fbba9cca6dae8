"""Scores of the options of a menu under a causal language model, over transformers.

By label: the logits of the labels as the next token, one forward pass. By sentence: the mean log-probability of each
option's text, all texts packed in one row behind the shared prefix; a tree mask lets each see the prefix and itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from mtmc.errors import BadInput
from mtmc.policies import prompt
from mtmc.policies.menu import LABELS, Menu
from mtmc.policies.weights import Source

if TYPE_CHECKING:
    from torch import Tensor

ROW = 4096  # packed tokens of one forward pass


@dataclass(frozen=True)
class Scorer:
    """A model with its tokenizer. `labels` holds the token ids of ` A` … ` Z`, int64 [26].

    The keys and values of the last prefix are kept, for the next menu of a decision goes on from there.
    """

    model: Any
    tokenizer: Any
    labels: Tensor
    _kept: dict[tuple[int, ...], Any] = field(default_factory=dict)

    def by_label(self, prefix: str, menus: Sequence[Menu]) -> list[Tensor]:
        """Log-probabilities over each menu's options, float32 [options], on the CPU; one menu is one forward pass."""
        questions = [self.ids(prompt.text(menu)) for menu in menus]
        before = self.ids(prefix)
        last = [self._once(before, questions[0])] if len(questions) == 1 else self._ends(before, questions)
        logits = [row[self.labels[: len(menu)]] for row, menu in zip(last, menus, strict=True)]
        return [row.log_softmax(-1).cpu() for row in logits]

    def by_sentence(self, prefix: str, menus: Sequence[Menu]) -> list[Tensor]:
        """The same from the options' texts: softmax over the mean log-probability of a text's tokens."""
        return [self._sentences(self.ids(prefix + prompt.text(menu)), menu).log_softmax(-1).cpu() for menu in menus]

    def ids(self, text: str) -> list[int]:
        return tokens(self.tokenizer, text)

    @torch.inference_mode()
    def _once(self, prefix: list[int], question: list[int]) -> Tensor:
        """Logits after prefix and question, float32 [vocabulary]."""
        cache = self._empty()
        logits: Tensor = self._logits(prefix + question, cache, logits_to_keep=1)[-1]
        cache.crop(-len(question))
        self._keep(prefix, cache)
        return logits

    @torch.inference_mode()
    def _ends(self, prefix: list[int], branches: list[list[int]]) -> list[Tensor]:
        """Logits after each branch behind the shared prefix, float32 [vocabulary] each."""
        found: list[Tensor] = []
        for part in _parts(branches):
            last = (torch.tensor([len(branch) for branch in part]).cumsum(0) - 1).to(self.model.device)
            found += self._packed(prefix, part, logits_to_keep=last).unbind()
        return found

    @torch.inference_mode()
    def _sentences(self, prefix: list[int], menu: Menu) -> Tensor:
        """Mean log-probability of the tokens of each option's text behind the prefix, float32 [options]."""
        cache = self._empty()
        first = self._logits(prefix, cache, logits_to_keep=1)
        self._keep(prefix, cache)
        means: list[Tensor] = []
        for part in _parts([self.ids(f" {option.text}") for option in menu]):
            rows = self._packed(prefix, part).split_with_sizes([len(text) for text in part])
            for text, after in zip(part, rows, strict=True):
                logits = torch.cat([first, after[:-1]]).log_softmax(-1)
                means.append(logits.gather(-1, torch.tensor(text, device=logits.device)[:, None]).mean())
        return torch.stack(means)

    def _packed(self, prefix: list[int], branches: list[list[int]], **options: Any) -> Tensor:
        """Logits at the tokens of all branches, packed in one row behind the prefix, float32 [tokens, vocabulary]."""
        cache = self._kept.get(tuple(prefix))
        if cache is None:
            cache = self._empty()
            self._logits(prefix, cache, logits_to_keep=1)
            self._keep(prefix, cache)
        lengths = [len(branch) for branch in branches]
        device, places = self.model.device, [len(prefix) + at for length in lengths for at in range(length)]
        mask = _tree_mask(len(prefix), lengths, self.model.dtype).to(device)
        positions = torch.tensor([places], device=device)
        rows = self._logits([*chain(*branches)], cache, attention_mask=mask, position_ids=positions, **options)
        cache.crop(-sum(lengths))
        return rows

    def _logits(self, ids: list[int], cache: Any, **options: Any) -> Tensor:
        """One row through the model behind what `cache` holds, which grows by it; float32 [tokens kept, vocabulary]."""
        named = "cache" if "cache" in signature(self.model.forward).parameters else "past_key_values"  # before 5.24
        row = torch.tensor([ids], device=self.model.device)
        logits: Tensor = self.model(input_ids=row, use_cache=True, **{named: cache}, **options).logits[0]
        return logits.float()

    def _empty(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    def _keep(self, prefix: list[int], cache: Any) -> None:
        self._kept.clear()
        self._kept[tuple(prefix)] = cache


def load(source: Source, device: str = "", dtype: str = "") -> Scorer:
    """The model on the GPU in bf16, or on the CPU in the better of bf16 and fp32 there, with its adapter merged.

    Raises BadInput for what transformers cannot load, and for a tokenizer without labels of one token.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    chosen = getattr(torch, dtype) if dtype else precision(place)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.base)
        model = AutoModelForCausalLM.from_pretrained(source.base, dtype=chosen, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise BadInput(f"{source.base} cannot be loaded as a causal language model: {_first_line(error)}") from error
    if source.adapter:
        from peft import PeftModel

        try:
            model = PeftModel.from_pretrained(model, str(source.adapter)).merge_and_unload()
        except (OSError, ValueError, RuntimeError) as error:
            raise BadInput(f"{source.adapter} is no adapter of {source.base}: {_first_line(error)}") from error
    return Scorer(model.eval().to(place), tokenizer, labels(lambda text: tokens(tokenizer, text)).to(place))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def tokens(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text, without the tokens that some models want at its ends."""
    found: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return found


def labels(ids: Callable[[str], list[int]]) -> Tensor:
    """Token ids of the labels as they follow `Answer:`, int64 [26]. Raises BadInput where one is not one token."""
    stem = ids("Answer:")
    found = [ids(f"Answer: {label}") for label in LABELS]
    if any(row[:-1] != stem for row in found) or len({row[-1] for row in found}) < len(LABELS):
        raise BadInput("This model's tokenizer has no single tokens for the labels A to Z.")
    return torch.tensor([row[-1] for row in found])


def precision(place: str) -> torch.dtype:
    """bf16, but fp32 on a CPU that is slower with bf16."""
    return torch.bfloat16 if place != "cpu" or _fast_bf16() else torch.float32


def _fast_bf16() -> bool:
    """Does this CPU multiply bf16 itself? Without it fp32 is faster."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _parts(branches: list[list[int]]) -> list[list[list[int]]]:
    """The branches in runs of at most ROW tokens, as long as one branch is not longer itself."""
    parts: list[list[list[int]]] = []
    room = 0
    for branch in branches:
        if not parts or len(branch) > room:
            parts.append([])
            room = ROW
        parts[-1].append(branch)
        room -= len(branch)
    return parts


def _tree_mask(size: int, lengths: list[int], dtype: torch.dtype) -> Tensor:
    """Additive mask [1, 1, T, size + T] of T packed tokens: each sees the prefix, and its own branch up to itself."""
    total = sum(lengths)
    branch = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    own = (branch[:, None] == branch[None, :]).tril()
    seen = torch.cat([torch.ones(total, size, dtype=torch.bool), own], dim=1)
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[None, None]
