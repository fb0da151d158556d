"""The numbers in a `BudgetExceeded` add up: the parts that it names are what the window needs."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import assume, given

from muntin import BudgetExceeded, Group, assistant
from tests.core.planning.scenes import Scene, scenes
from tests.promises.composing import compose, slot


def numbers(text: str) -> list[int]:
    return [int(each.replace(",", "")) for each in re.findall(r"(?<= )-?\d[\d,]*(?=[ ,.;])", text)]


def check(error: BudgetExceeded) -> None:
    text = str(error)
    if error.needed <= error.available:
        assert "has room for nothing" in text
        return
    told = re.search(r"could not shrink further: (.*)\. Raise", text, re.DOTALL)
    assert told is not None
    assert sum(numbers(told.group(1) + ".")) == error.needed
    assert numbers(text)[:2] == [error.needed, error.available]


def test_every_part_is_named_with_its_tokens() -> None:
    window = compose(
        60,
        slot("rules", "R" * 30, role="system", required=True, group=Group("text", join="--")),
        slot("more", "M" * 20, role="system", required=True, group=Group("text", join="--")),
        slot("talk", [assistant("a" * 40)], required=True),
        tools=[{"name": "look"}],
        profile="anthropic/claude-sonnet-4-5",
    )
    with pytest.raises(BudgetExceeded) as caught:
        window.anthropic()
    text = str(caught.value)
    for part in ("'rules' 30", "'more' 20", "'talk' 40", "the tools 15", "what joins texts 2"):
        assert part in text
    assert "the user message that must come first 26" in text
    check(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_a_window_without_room_says_what_was_asked() -> None:
    with pytest.raises(BudgetExceeded, match=r"0 tokens has room for nothing.*'docs' 7"):
        compose(0, slot("docs", "D" * 7)).openai()


@given(scenes(tokenizers=("characters", "characters and 3 a message", "words", "chars/4")))
def test_the_parts_add_up_to_what_is_needed(scene: Scene) -> None:
    window = scene.window(scene.budget // 3)
    assume(window.over_budget)
    with pytest.raises(BudgetExceeded) as caught:
        window.openai()
    check(caught.value)
