"""From the GGUF file of SmolLM2 to a folder that transformers loads: bf16 weights, tokenizer, configuration.

transformers reads GGUF, with three traps: the model it gives is marked as quantised and refuses to be saved; the tokenizer's
end token is the wrong one; and its pre-tokenizer no longer splits digits, so that numbers are tokenised otherwise than in
training. So the weights are moved into a clean model, and the tokenizer is built from the file's own tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL = (3, 4)  # token types of GGUF: control, user-defined
BEGIN, END, UNKNOWN = "<|im_start|>", "<|im_end|>", "<|endoftext|>"


def convert(gguf: Path, folder: Path) -> None:
    """Write the folder. Raises ImportError without transformers or gguf, ValueError for a file of another kind."""
    from gguf import GGUFReader

    fields = {name: field.contents() for name, field in GGUFReader(gguf).fields.items()}
    if fields.get("tokenizer.ggml.pre") != "smollm":
        raise ValueError(f"{gguf.name} is not SmolLM2's: its pre-tokenizer is {fields.get('tokenizer.ggml.pre')}")
    folder.mkdir(parents=True)
    _write_model(gguf, folder, {token: place for place, token in enumerate(fields["tokenizer.ggml.tokens"])})
    _write_tokenizer(fields, folder)


def _write_model(gguf: Path, folder: Path, vocabulary: dict[str, int]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = read.config
    for mark in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(config, mark):
            delattr(config, mark)
    config._name_or_path = ""
    tokens = {"bos_token_id": vocabulary[BEGIN], "eos_token_id": vocabulary[END], "pad_token_id": vocabulary[END]}
    config.update(tokens)
    clean = type(read)._from_config(config, dtype=torch.float32)
    clean.load_state_dict(read.state_dict())
    clean.generation_config = GenerationConfig(**tokens)
    clean.to(torch.bfloat16).save_pretrained(folder)


def _write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    names = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: place for place, token in enumerate(names)}, merges=merges))
    digits, bytes_ = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(names, fields["tokenizer.ggml.token_type"], strict=True)
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name, kind in kinds if kind in SPECIAL]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": fields["tokenizer.chat_template"],
        "bos_token": BEGIN,
        "eos_token": END,
        "unk_token": UNKNOWN,
        "pad_token": END,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))
