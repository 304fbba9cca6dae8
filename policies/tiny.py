"""A language model of two layers with random weights and a tokenizer of bytes, made on the spot.

It knows nothing. Tests and `--tiny` runs take it where the real weights would be too slow or are not there.
"""

from __future__ import annotations

import json
from pathlib import Path

from mtmc.policies.menu import LABELS

WIDTH, LAYERS, CONTEXT = 64, 2, 8192
END = "<|end|>"


def write(folder: Path, seed: int = 0) -> Path:
    """The model as a folder that transformers loads; a folder that is there is left as it is."""
    if folder.is_dir():
        return folder
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder.mkdir(parents=True)
    vocabulary = _tokenizer(folder)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=vocabulary - 1,
        pad_token_id=vocabulary - 1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def _tokenizer(folder: Path) -> int:
    """Bytes, and each label with the space before it, for labels must be one token. Returns the size of the vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    space = "Ġ"  # what ByteLevel makes of a space
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(space + label for label in LABELS)]
    vocabulary = {name: place for place, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[(space, label) for label in LABELS]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "model_max_length": CONTEXT}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocabulary) + 1
