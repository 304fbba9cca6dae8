"""LoRA through merged weights: the same numbers and gradients as peft's own way, and nothing computed twice."""

from __future__ import annotations

from types import MethodType

import pytest
import torch

from mtmc.policies import scoring, tiny
from mtmc.policies.model import Answers, Lora, Policy, masks
from mtmc.policies.weights import Source

ROWS = [[5, 6, 7, 8, 9], [7, 8, 9]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Source(str(tiny.write(tmp_path_factory.mktemp("tiny") / "model")))


def policy(model, scale=0.3):
    made = Policy(model, Lora(4, 8), "cpu", 0)
    with torch.no_grad():
        for parameter in made.trained():
            parameter.normal_(0, scale)
    return made


def asked(made):
    """Log-probabilities and the gradients of their first column."""
    made.zero_grad()
    found, _ = made(ROWS, masks([[True] * 3] * 2, made.device))
    found[:, 0].sum().backward()
    return found.detach(), [parameter.grad.clone() for parameter in made.trained()]


def test_numbers_and_gradients_are_those_of_peft(model):
    from peft.tuners.lora import Linear

    made = policy(model)
    merged = asked(made)
    layers = [layer for layer in made.model.modules() if isinstance(layer, Linear)]
    assert layers
    for layer in layers:
        layer.forward = MethodType(Linear.forward, layer)
    plain = asked(made)
    torch.testing.assert_close(merged, plain, rtol=1e-4, atol=1e-5)


def test_the_reference_stays_and_the_trained_weights_are_seen_at_once(model):
    made, known = policy(model), masks([[True] * 3] * 2, torch.device("cpu"))
    made.keep_reference()
    with torch.no_grad():
        before = made(ROWS, known)[0]
        torch.testing.assert_close(made.reference(ROWS, known)[0], before)
        made.trained()[1].add_(0.5)
        after = made(ROWS, known)[0]
        assert (after - before).abs().max() > 1e-3
        torch.testing.assert_close(made.reference(ROWS, known)[0], before)


def test_a_row_is_asked_once(model):
    made, sizes = policy(model), []

    def ask(rows, known):
        sizes.append(len(rows))
        return made(rows, known)

    answers, says = Answers(ask, made.device), [True, True, False]
    twice = answers([ROWS[0], ROWS[1], ROWS[0]], [says] * 3)
    again = answers([ROWS[1], ROWS[0]], [says, [True] * 3])
    assert sizes == [2, 1] and twice[0] is twice[2] and again[0] is twice[1]
    with torch.no_grad():
        found, values = made([ROWS[0]], masks([says], made.device))
    torch.testing.assert_close(twice[0][0], found[0], rtol=1e-4, atol=1e-5)
    assert twice[0][1] == pytest.approx(float(values[0]), abs=1e-5)


def test_a_base_in_bf16_has_masters_in_fp32_and_gradients(model, monkeypatch):
    """As on a GPU: nothing is cast but the merged weights."""
    load = scoring.load
    monkeypatch.setattr(scoring, "load", lambda source, place, dtype: load(source, place, "bfloat16"))
    made = policy(model)
    found, gradients = asked(made)
    assert found.dtype == torch.float32 and {p.dtype for p in made.trained()} == {torch.float32}
    assert made.model.get_input_embeddings().weight.dtype == torch.bfloat16
    assert all(gradient.isfinite().all() for gradient in gradients) and any(gradient.any() for gradient in gradients)
    exact = policy(model)
    monkeypatch.undo()
    torch.testing.assert_close(found, asked(policy(model))[0], rtol=0.1, atol=0.1)
    torch.testing.assert_close(found, asked(exact)[0], rtol=0.0, atol=0.0)
