"""The language model in training: LoRA on a frozen base, label probabilities of many menus at once, a value head.

The base is held in bf16 on a GPU and computes in bf16, with weights that hold the adapter (`merged`); LoRA and the value
head are fp32 masters. On the CPU everything is fp32.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtmc.errors import BadInput, InfraError, OutOfTime
from mtmc.policies import scoring
from mtmc.policies.menu import LABELS
from mtmc.policies.merged import Merged
from mtmc.policies.weights import Source

NEVER = -1e9  # logit of an option without a say
TEXTS = 1 << 16  # whose tokens are kept: 2 kB each
EVERYWHERE: dict[str, Any] = {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}
ALONE: dict[str, Any] = {"save_embedding_layers": False}  # else peft asks the network for the base model's vocabulary
TRAINED = "default"  # peft's name of the adapter in training
REFERENCE = "reference"  # name of the frozen adapter that a policy is kept close to


@dataclass(frozen=True)
class Lora:
    """`r` is the rank of each linear layer's update; 16 makes 4.9 M parameters of the default model, 9.8 MB in bf16."""

    r: int = 16
    lora_alpha: int = 32


class Policy(nn.Module):
    """Rows of tokens in, log-probabilities of the labels and a value out. `model` is a peft model, `head` [width] -> 1."""

    def __init__(self, source: Source, lora: Lora, device: str, seed: int) -> None:
        super().__init__()
        import peft

        torch.manual_seed(seed)
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = "bfloat16" if place.startswith("cuda") else "float32"
        scorer = scoring.load(Source(source.base), place, dtype)
        self.tokenizer, self.labels = scorer.tokenizer, scorer.labels
        self.model: Any
        if source.adapter:
            self.model = peft.PeftModel.from_pretrained(scorer.model, str(source.adapter), is_trainable=True)
        else:
            self.model = peft.get_peft_model(scorer.model, peft.LoraConfig(**asdict(lora), **EVERYWHERE))
        for parameter in self.trained():
            parameter.data = parameter.data.float()
        self._merged = Merged(self.model)
        self.head = nn.Linear(scorer.model.config.hidden_size, 1).to(place)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._ids = lru_cache(maxsize=TEXTS)(lambda text: array("i", scorer.ids(text)))
        self._ends, self._last = torch.empty(0), torch.empty(0)
        self.model.get_output_embeddings().register_forward_pre_hook(self._keep_ends)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def trained(self) -> list[nn.Parameter]:
        """The adapter's parameters, without the value head's."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def forward(self, rows: Sequence[Sequence[int]], known: Tensor, adapter: str = TRAINED) -> tuple[Tensor, Tensor]:
        """Log-probabilities float32 [rows, 26] of the labels where `known` (bool [rows, 26]), and values float32 [rows].

        Rows are padded at their ends, which no token before sees: plain causal attention, without a mask.
        """
        width = max(map(len, rows))
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
        if self.device.type == "cuda":  # from unpinned memory the copy would wait for all work before it
            ids = ids.pin_memory().to(self.device, non_blocking=True)
        self._ends = torch.tensor([len(row) - 1 for row in rows], device=self.device)
        with self._merged.of(adapter):
            self.model(input_ids=ids, use_cache=False)
        ends, vocabulary = self._last.float(), self.model.get_output_embeddings().weight
        logits = functional.linear(ends, vocabulary[self.labels].float()).masked_fill(~known, NEVER)  # bf16 has steps of 1/8
        values = self.head(ends)[:, 0]
        return logits.log_softmax(-1), values

    def _keep_ends(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Of the hidden states [rows, tokens, width] that the vocabulary is to see, only each row's last."""
        (hidden,) = inputs
        self._last = hidden[torch.arange(len(hidden), device=hidden.device), self._ends]
        return (self._last[:, None],)

    def ids(self, text: str) -> list[int]:
        """Tokens of a text; those of the last texts are kept, for epochs and walks come back to them."""
        return list(self._ids(text))

    def keep_reference(self) -> None:
        """Freeze a copy of the adapter as it is now, for `reference`."""
        import peft

        state = peft.get_peft_model_state_dict(self.model, **ALONE)
        self.model.add_adapter(REFERENCE, self.model.peft_config["default"])
        peft.set_peft_model_state_dict(self.model, {name: t.clone() for name, t in state.items()}, REFERENCE)
        self.model.set_adapter(TRAINED)

    @torch.no_grad()
    def reference(self, rows: Sequence[Sequence[int]], known: Tensor) -> tuple[Tensor, Tensor]:
        """The same by the frozen copy; its values are of no use."""
        found: tuple[Tensor, Tensor] = self(rows, known, REFERENCE)
        return found

    def state(self) -> dict[str, Any]:
        """Masters of adapter and value head, on the CPU."""
        import peft

        masters = peft.get_peft_model_state_dict(self.model, **ALONE)
        adapter = {name: t.detach().cpu().clone() for name, t in masters.items()}
        return {"adapter": adapter, "head": {name: t.cpu().clone() for name, t in self.head.state_dict().items()}}

    def restore(self, state: dict[str, Any]) -> None:
        import peft

        peft.set_peft_model_state_dict(self.model, state["adapter"])
        self.head.load_state_dict(state["head"])

    def save(self, folder: Path) -> None:
        """The adapter in bf16, as a folder that peft reads; an older one in its place is replaced."""
        import peft

        draft = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        state = {name: t.detach().bfloat16() for name, t in peft.get_peft_model_state_dict(self.model, **ALONE).items()}
        self.model.save_pretrained(str(draft), state_dict=state, selected_adapters=[TRAINED], **ALONE)
        (draft / "README.md").unlink(missing_ok=True)  # a model card of placeholders
        config = json.loads((draft / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = Path(config["base_model_name_or_path"]).name  # not where it lies on this machine
        (draft / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)


@contextmanager
def fitting(rows: int) -> Iterator[None]:
    """Training with so many menus in memory at once; a GPU that cannot hold them is an InfraError."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        less = f"--rows {rows // 2}" if rows > 1 else "a GPU with more"
        raise InfraError(f"The GPU has no memory for {rows} menus at once: try {less}; what is done is kept.") from error


class Answers:
    """What a network that does not change says, each row asked once: walks come back to the same menus.

    `ask` takes rows and `known` as `Policy.forward` does.
    """

    def __init__(
        self, ask: Callable[[Sequence[Sequence[int]], Tensor], tuple[Tensor, Tensor]], device: torch.device
    ) -> None:
        self._ask, self._device = ask, device
        self._kept: dict[tuple[bytes, tuple[bool, ...]], tuple[Tensor, float]] = {}

    @torch.no_grad()
    def __call__(self, rows: Sequence[Sequence[int]], known: Sequence[Sequence[bool]]) -> list[tuple[Tensor, float]]:
        """Of each row the log-probabilities, float32 [26] on the CPU, and the value."""
        keys = [(array("i", row).tobytes(), tuple(says)) for row, says in zip(rows, known, strict=True)]
        new = {key: at for at, key in enumerate(keys) if key not in self._kept}
        if new:
            found, values = self._ask(
                [rows[at] for at in new.values()], masks([known[at] for at in new.values()], self._device)
            )
            self._kept.update(zip(new, zip(found.cpu(), values.tolist(), strict=True), strict=True))
        return [self._kept[key] for key in keys]


def masks(known: Sequence[Sequence[bool]], device: torch.device) -> Tensor:
    """Rows of options with a say as bool [rows, 26]."""
    return torch.tensor([[*row, *[False] * (len(LABELS) - len(row))] for row in known], device=device)


@dataclass(frozen=True)
class Until:
    """Where a training stops for now: after a `step` (0: the last), or after the one at a `moment` of `time.monotonic`."""

    step: int = 0
    moment: float = math.inf

    @staticmethod
    def of(step: int, minutes: float) -> Until:
        """`minutes` from now on, 0 for no limit."""
        return Until(step, time.monotonic() + 60 * minutes if minutes else math.inf)

    @property
    def over(self) -> bool:
        """Has the moment come?"""
        return time.monotonic() >= self.moment

    def check(self, step: int, steps: int) -> None:
        """Raises OutOfTime where the training ended earlier than asked for."""
        if step < (self.step or steps):
            raise OutOfTime


END = Until()


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Replace a checkpoint in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    torch.save(content, draft)
    draft.replace(path)


def read_checkpoint(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """A checkpoint of the same settings, None where there is none. Raises BadInput where settings differ."""
    if not path.exists():
        return None
    found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    changed = [name for name, value in settings.items() if found["settings"].get(name) != value]
    if changed:
        then, now = found["settings"].get(changed[0]), settings[changed[0]]
        raise BadInput(f"{path.parent} cannot be resumed: {changed[0]} was {then}, now it is {now}; name another folder.")
    return found
