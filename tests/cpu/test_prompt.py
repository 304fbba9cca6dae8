"""The prompt as whole texts, and menus that reach every action.

MTMC_GOLDEN=write pytest tests/cpu/test_prompt.py      rewrites the texts: read the diff
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from policy_views import FUSE, GOLDEN, STAGES, STOP, history, tiles, view

from mtmc.action import Action
from mtmc.hardware_profiles import load
from mtmc.policies import prompt
from mtmc.policies.menu import LABELS, menu
from mtmc.program import Program
from mtmc.verdict import CompileError

VIEWS = {
    "short_list": view(),
    "long_list": view(20, history=()),
    "predicted": view(
        tried=history()[2:], predicted={FUSE.id: 0.09, STAGES.id: 0.1, tiles("softmax", 2)[1].id: 0.04}, best_ms=0.1
    ),
    "failed": view(0, verdict=history()[-1].verdict, history=history(), profile=load("v100")),
}


@pytest.mark.parametrize("name", VIEWS)
def test_the_prompt_is_what_the_golden_text_says(name):
    seen = VIEWS[name]
    text = prompt.prefix(seen) + prompt.text(menu(seen.legal, seen.gains)) + "\n"
    golden = GOLDEN / "prompts" / f"{name}.txt"
    if os.environ.get("MTMC_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


def test_equal_views_give_equal_prompts_and_the_card_can_be_left_out():
    assert prompt.prefix(view()) == prompt.prefix(view())
    bare = prompt.prefix(view(), hardware=False)
    assert "H100" in prompt.prefix(view()) and "H100" not in bare
    assert bare == prompt.prefix(replace(view(), profile=None))


def test_a_program_without_kernels_has_a_prompt():
    failed = CompileError("no such operator")
    text = prompt.prefix(view(program=Program("x = 1\n"), verdict=failed, history=()))
    assert "Kernels: none." in text and "no such operator" in text and "Last steps: none." in text


def reached(options):
    """Every action that a menu leads to, with the sizes of all menus on the way."""
    actions, sizes = [], [len(options)]
    for option in options:
        if len(option.actions) == 1:
            actions.append(option.actions[0])
        else:
            below, more = reached(menu(option.actions))
            actions, sizes = actions + below, sizes + more
    return actions, sizes


@pytest.mark.parametrize("regions", [1, 3, 30, 900])
@pytest.mark.parametrize("each", [1, 5, 40])
def test_every_action_is_reached_once_and_no_menu_is_longer_than_the_labels(regions, each):
    legal = (*(action for i in range(regions) for action in tiles(f"unit_{i}", each)), FUSE, STOP)
    actions, sizes = reached(menu(legal))
    assert sorted(a.id for a in actions) == sorted(a.id for a in legal)
    assert max(sizes) <= len(LABELS) and menu(legal)[-1].actions == (STOP,)


def test_a_short_list_is_one_stage_and_a_long_one_is_grouped_by_family_and_region():
    assert [option.actions for option in menu(view().legal)] == [(action,) for action in view().legal]
    groups = menu((*tiles("a", 9), *tiles("b", 9), STOP))
    assert [option.text for option in groups] == [
        "Tiling of a: tile_size (9 choices).",
        "Tiling of b: tile_size (9 choices).",
        STOP.sentence,
    ]
    assert [option.text for option in menu(groups[0].actions)] == [action.sentence for action in tiles("a", 9)]


def test_an_action_alone_in_its_group_is_shown_by_its_sentence():
    alone = Action("eviction", "reorder", "a", (), "Mark the loads of a.")
    assert menu((*tiles("b", 20), alone, STOP))[1].text == alone.sentence
