"""Planner and oracle side by side where slots act together, and where a lead is needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import Group, Input, Message, ToolCall, assistant, tool, user
from muntin.core.message import Role
from tests.core.planning.beside import EXAMPLES, Texts, agree, budgets, slow
from tests.core.planning.oracle_slots import Given

Case = tuple[list[Given], int, int]
ROLES: tuple[Role, ...] = ("user", "assistant", "assistant", "system", "tool")
some = settings(slow, max_examples=EXAMPLES // 4)


@st.composite
def neighbours(draw: st.DrawFn, texts: Texts, most: int = 2) -> list[Given]:
    """Slots that stand beside those that act together."""
    found = []
    for number in range(draw(st.integers(0, most))):
        options: dict[str, Any] = {
            "priority": draw(st.integers(0, 2)),
            "trim_behavior": draw(st.sampled_from(("message", "char"))),
        }
        if draw(st.booleans()):
            talk = [user(texts(draw(st.integers(1, 4)))) for _ in range(draw(st.integers(1, 3)))]
            found.append(Given(f"talk{number}", talk, **options))
        else:
            found.append(Given(f"text{number}", texts(draw(st.integers(1, 6))), **options))
    if draw(st.booleans()):
        found.append(Given("input", Input(texts(draw(st.integers(1, 4))))))
    return found


# -- joined texts ----------------------------------------------------------------------------


@st.composite
def joined(draw: st.DrawFn) -> Case:
    texts = Texts()
    slots: list[Given] = []
    for number in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(("one", "one", "two")))
        group = Group(name, join={"one": "--", "two": ""}[name])
        options: dict[str, Any] = {
            "priority": draw(st.integers(0, 2)),
            "required": draw(st.integers(0, 5)) == 0,
            "trim_behavior": draw(st.sampled_from(("message", "char", "slot"))),
            "max_tokens": draw(st.sampled_from((None, None, 2, 4))),
        }
        size = draw(st.integers(0, 5))
        slots.append(Given(f"part{number}", texts(size), role="system", group=group, **options))
    slots += draw(neighbours(texts))
    slots = draw(st.permutations(slots))
    overhead = draw(st.integers(0, 2))
    return slots, draw(budgets(slots, overhead)) + draw(st.integers(0, 4)), overhead


@some
@given(joined())
def test_joined_texts_are_dropped_as_the_oracle_demands(case: Case) -> None:
    agree(*case)


@pytest.mark.parametrize("priorities", list(product((0, 1), repeat=3)))
def test_every_budget_of_joined_texts_is_composed_as_the_oracle_demands(
    priorities: tuple[int, ...],
) -> None:
    rules = Group("rules", join=", ")
    for budget, overhead in product(range(24), (0, 2)):
        slots = [
            Given("a", "aaa", role="system", group=rules, priority=priorities[0]),
            Given("talk", [user("bb"), assistant("cc")], priority=priorities[1]),
            Given("d", "dddd", role="system", group=rules, priority=priorities[2]),
            Given("e", "ee", role="system", group=rules, priority=1),
            Given("input", Input("ff")),
        ]
        agree(slots, budget, overhead)


# -- interleaved slots -----------------------------------------------------------------------


@st.composite
def interleaved(draw: st.DrawFn) -> Case:
    """Dated slots, with tool groups in one of them or across them."""
    texts = Texts()
    group = Group("timeline", interleave=True)
    waiting: list[Message] = []
    lists: list[list[Message]] = []
    for _ in range(draw(st.integers(1, 3))):
        messages: list[Message] = []
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.none() | st.integers(0, 5))
            if draw(st.integers(0, 2)):
                messages.append(replace(user(texts(draw(st.integers(1, 3)))), at=at))
                continue
            ids = [f"{texts.used}.{n}" for n in range(draw(st.integers(1, 2)))]
            calls = [ToolCall(each, "t", "x" * draw(st.integers(0, 2))) for each in ids]
            messages.append(replace(assistant(texts(1), tool_calls=calls), at=at))
            results = [replace(tool(each, texts(draw(st.integers(0, 2)))), at=at) for each in ids]
            if draw(st.booleans()):
                messages += results
            else:
                waiting += results
        lists.append(messages)
    # Results that were not given with their calls stand at the ends of other slots.
    for result in waiting:
        others = [each for each in lists if result.tool_call_id not in _called(each)]
        if others:
            draw(st.sampled_from(others)).append(result)
    slots = [
        Given(f"list{n}", messages, group=group, priority=draw(st.integers(0, 1)))
        for n, messages in enumerate(lists)
    ]
    slots += draw(neighbours(texts, most=1))
    overhead = draw(st.integers(0, 1))
    return slots, draw(budgets(slots, overhead)), overhead


def _called(messages: list[Message]) -> set[str]:
    return {call.id for message in messages for call in message.tool_calls}


@some
@given(interleaved())
def test_interleaved_slots_are_composed_as_the_oracle_demands(case: Case) -> None:
    agree(*case)


# -- leads -----------------------------------------------------------------------------------


@st.composite
def led(draw: st.DrawFn) -> Case:
    """Histories that may well begin with an answer once their oldest messages are gone."""
    texts = Texts()
    slots: list[Given] = []
    if draw(st.booleans()):
        slots.append(Given("system", texts(draw(st.integers(1, 5)))))
    for number in range(draw(st.integers(1, 2))):
        behavior = draw(st.sampled_from(("message", "message", "char")))
        talk: list[Message] = []
        for role in draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=4)):
            text = texts(draw(st.integers(1, 3 if behavior == "char" else 18)))
            if role == "tool":
                call = ToolCall(f"c{texts.used}", "t", "")
                talk += [assistant(text, tool_calls=[call]), tool(call.id, texts(2))]
            else:
                talk.append(Message(role, text))
        options: dict[str, Any] = {
            "trim_behavior": behavior,
            "priority": draw(st.integers(0, 1)),
        }
        slots.append(Given(f"list{number}", talk, **options))
    if draw(st.booleans()):
        slots.append(Given("input", Input(texts(draw(st.integers(1, 4))))))
    overhead = draw(st.integers(0, 2))
    return slots, draw(budgets(slots, overhead)) + draw(st.sampled_from((0, 10, 30))), overhead


@some
@given(led())
def test_room_for_a_lead_is_made_as_the_oracle_demands(case: Case) -> None:
    agree(*case, user_first=True)


@pytest.mark.parametrize("behavior", ["message", "char"])
def test_every_budget_of_a_chat_that_needs_a_lead_is_composed_as_the_oracle_demands(
    behavior: str,
) -> None:
    size = 2 if behavior == "char" else 12
    talk = [user("aa"), assistant("b" * size), user("cc"), assistant("d" * size)]
    for budget in range(40 + 2 * size):
        slots = [
            Given("system", "SYS"),
            Given("history", talk, trim_behavior=behavior),
            Given("input", Input("ijk")),
        ]
        agree(slots, budget, user_first=True)
