"""Scores of a model of two layers: what is packed in one row is what single rows give."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from policy_views import tiles, view

from mtmc import policies
from mtmc.errors import BadInput
from mtmc.policies import llm, prompt, scoring, tiny
from mtmc.policies.menu import menu
from mtmc.policies.weights import Source

SEEN = view(30)
BEFORE = prompt.prefix(SEEN)
MENU = menu(SEEN.legal)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def scorer(folder):
    return scoring.load(Source(str(folder)), "cpu", "float32")


def plain(scorer, text):
    """Logits of one row without a cache, float32 [tokens, vocabulary]."""
    with torch.inference_mode():
        return scorer.model(input_ids=torch.tensor([scorer.ids(text)]), use_cache=False).logits[0]


def test_label_scores_are_the_logits_of_the_labels(scorer):
    (found,) = scorer.by_label(BEFORE, [MENU])
    last = plain(scorer, BEFORE + prompt.text(MENU))[-1]
    expected = last[scorer.labels[: len(MENU)]].log_softmax(-1)
    assert torch.allclose(found, expected, atol=1e-4) and found.exp().sum() == pytest.approx(1.0, abs=1e-5)


def test_menus_packed_in_one_row_score_as_each_alone(scorer, monkeypatch):
    menus = [MENU, menu(tiles("softmax", 7)), menu(tiles("gelu", 26))]
    alone = [scorer.by_label(BEFORE, [options])[0] for options in menus]
    packed = scorer.by_label(BEFORE, menus)
    monkeypatch.setattr(scoring, "ROW", 600)
    in_parts = scorer.by_label(BEFORE, menus)
    for one, other, third in zip(alone, packed, in_parts, strict=True):
        assert torch.allclose(one, other, atol=1e-4) and torch.allclose(one, third, atol=1e-4)


def test_sentence_scores_are_the_mean_log_likelihoods(scorer):
    (found,) = scorer.by_sentence(BEFORE, [MENU])
    context = BEFORE + prompt.text(MENU)
    means, size = [], len(scorer.ids(context))
    for option in MENU:
        ids = scorer.ids(f" {option.text}")
        logits = plain(scorer, f"{context} {option.text}")[size - 1 : -1].log_softmax(-1)
        means.append(logits.gather(-1, torch.tensor(ids)[:, None]).mean())
    assert torch.allclose(found, torch.stack(means).log_softmax(-1), atol=1e-4)


@pytest.mark.parametrize("way", ["by_label", "by_sentence"])
def test_the_choice_is_legal_and_every_legal_action_has_its_probability(scorer, way):
    choice = llm.LlmPolicy(getattr(scorer, way)).choose(SEEN, Random(0))
    assert choice.action in SEEN.legal
    assert sorted(choice.probabilities) == sorted(action.id for action in SEEN.legal)
    assert sum(choice.probabilities.values()) == pytest.approx(1.0, abs=1e-4)


def test_the_probability_of_an_action_is_the_product_over_its_stages(scorer):
    choice = llm.LlmPolicy(scorer.by_label).choose(SEEN, Random(0))
    place, group = next((i, option) for i, option in enumerate(MENU) if len(option.actions) > 1)
    first, second = (scorer.by_label(BEFORE, [options])[0].exp() for options in (MENU, menu(group.actions)))
    assert choice.probabilities[group.actions[3].id] == pytest.approx(float(first[place] * second[3]), rel=1e-3)


def test_the_likeliest_action_is_taken_not_the_likeliest_group():
    place, group = next((i, option) for i, option in enumerate(MENU) if len(option.actions) > 1)

    def score(_: str, menus):
        found = [torch.ones(len(menu)) for menu in menus]
        if len(found[0]) == len(MENU):
            found[0][place], found[0][-1] = 3.0, 2.0  # the group has more, shared among many
        return [row.log_softmax(-1) for row in found]

    choice = llm.LlmPolicy(score).choose(SEEN, Random(0))
    assert len(group.actions) > 2 and choice.action == SEEN.stop
    assert max(choice.probabilities, key=choice.probabilities.__getitem__) == choice.action.id


def test_without_stops_it_goes_on_while_anything_else_is_legal() -> None:
    def stopping(_: str, menus):
        return [torch.tensor([0.0] * (len(menu) - 1) + [9.0]).log_softmax(-1) for menu in menus]

    assert llm.LlmPolicy(stopping).choose(SEEN, Random(0)).action.family == "stop"
    choice = llm.LlmPolicy(stopping, stops=False).choose(SEEN, Random(0))
    assert choice.action.family != "stop" and choice.probabilities[SEEN.stop.id] == 0.0
    assert sum(choice.probabilities.values()) == pytest.approx(1.0)
    done = replace(SEEN, legal=(SEEN.stop,))
    assert llm.LlmPolicy(stopping, stops=False).choose(done, Random(0)).action == SEEN.stop


def test_a_folder_names_a_policy_and_what_is_none_is_refused(folder, tmp_path):
    assert policies.load(f"llm:{folder}").choose(SEEN, Random(0)).action in SEEN.legal
    with pytest.raises(BadInput, match="cannot be loaded as a causal language model"):
        policies.load(f"llm:{tmp_path}")
    with pytest.raises(BadInput, match="no folder"):
        policies.load(f"llm:{tmp_path}/absent")
    with pytest.raises(BadInput, match="no adapter"):
        policies.load(f"llm:{folder}+{tmp_path}")
