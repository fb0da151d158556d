"""Planner and oracle side by side over whole sessions whose history steps."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import Input, Message, Slots, Stepped, Window, assistant, user
from muntin.core.planning import Frontier
from tests.core.planning.beside import EXAMPLES, slow
from tests.core.planning.oracle_steps import Stage, play

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def render(stage: Stage, history: list[Message], previous: Window | Frontier | None) -> Window:
    slots = Slots(stage.budget, tokenizer=len, previous=previous)
    slots.add("system", stage.rules)
    slots.add("history", history, trimming=Stepped(low=stage.low))
    slots.add("docs", stage.docs, max_tokens=stage.ceiling, trim_behavior="char")
    slots.add("input", Input(stage.asked))
    return slots.render()


def agree(stages: list[Stage], growth: list[list[Message]]) -> None:
    """Play a session with both, and compare every turn."""
    history: list[Message] = []
    first, previous = 0, None
    for number, (stage, new) in enumerate(zip(stages, growth, strict=True)):
        history = [*history, *new]
        window = render(stage, history, previous)
        expected = play(stage, history, first)
        case = f"turn {number}: {stage}, {[(m.role, len(m.text)) for m in history]}, from {first}"
        assert window.messages == expected.messages, case
        assert window.over_budget == expected.over_budget, case
        (start,) = window.frontier.starts
        assert start.first == expected.first, case
        first = expected.first
        previous = window if number % 2 else window.frontier


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[Stage], list[list[Message]]]:
    """Turns that grow, with texts around them that change their size."""
    low = draw(st.sampled_from((0.0, 0.25, 0.5, 0.8)))
    ceiling = draw(st.integers(0, 12))
    rules = "R" * draw(st.integers(0, 8))
    budget = draw(st.integers(4, 60))
    stages, growth, used = [], [], 0
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.integers(0, 9)) == 0:
            budget = draw(st.integers(4, 60))
        docs = "D" * draw(st.sampled_from((0, 1, 3, 12, 30)))
        asked = "I" * draw(st.sampled_from((1, 3, 9, 25)))
        stages.append(Stage(budget, rules, docs, ceiling, asked, low))
        new = []
        for role in draw(st.lists(st.sampled_from("uua"), max_size=3)):
            text = LETTERS[used % 26] * draw(st.integers(1, 9))
            new.append(user(text) if role == "u" else assistant(text))
            used += 1
        growth.append(new)
    return stages, growth


@settings(slow, max_examples=EXAMPLES // 2)
@given(sessions())
def test_histories_step_as_the_oracle_demands(session: Any) -> None:
    agree(*session)


@pytest.mark.parametrize("low", [0.0, 0.5, 0.9])
def test_every_budget_of_a_session_is_stepped_as_the_oracle_demands(low: float) -> None:
    for budget, docs, asked in product(range(4, 50, 3), (0, 1, 10), (2, 12)):
        stage = Stage(budget, "RULES", "D" * docs, 8, "I" * asked, low)
        turn = [[user(LETTERS[n] * 3), assistant(LETTERS[n] * 4)] for n in range(8)]
        agree([stage] * 8, turn)
