"""A language model of two layers with random weights and a small tokenizer, made on the spot.

It knows nothing. Tests and `--tiny` runs take it where the real weights would be too slow or are not there.
"""

from __future__ import annotations

import json
from pathlib import Path

from mtmc import actions
from mtmc.policies.menu import LABELS
from mtmc.trajectories import files

WIDTH, LAYERS, CONTEXT, WORDS = 64, 2, 8192, 2000
ACTIONS = Path(actions.__file__).parent
SPACE = "Ġ"  # what ByteLevel makes of a space
END = "<|end|>"


def write(folder: Path, seed: int = 0) -> Path:
    """The model as a folder that transformers loads; a folder that is there is left as it is."""
    if folder.is_dir():
        return folder
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    files.folder(folder)
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
    """BPE learnt from our own words; a label with the space before it is one token. Returns the size of the vocabulary."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=WORDS, initial_alphabet=alphabet, show_progress=False)
    learnt.train_from_iterator([path.read_text() for path in sorted(ACTIONS.glob("*.py"))], trainer)
    known = json.loads(learnt.to_str())["model"]
    vocabulary, merges = known["vocab"], [tuple(merge) for merge in known["merges"]]
    for label in LABELS:  # the last merges: words go before
        vocabulary.setdefault(f"{SPACE}{label}", len(vocabulary))
        merges += [(SPACE, label)] if (SPACE, label) not in merges else []
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END, "model_max_length": CONTEXT}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocabulary) + 1
