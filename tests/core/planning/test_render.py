"""Slots whose messages are merged by date stand in one order, tool groups in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    Group,
    Message,
    ToolCall,
    assistant,
    tool,
    user,
)
from tests.core.planning.scenes import (
    TEXTS,
    Numbers,
    Scene,
    by_slot,
    number,
)


@st.composite
def timelines(draw: st.DrawFn) -> Scene:
    """Slots whose dated messages are merged; some undated, some in tool groups."""
    numbers, adds = Numbers(), list[tuple[str, Any, dict[str, Any]]]()
    group = Group("timeline", interleave=True)
    in_order = draw(st.booleans())
    for place in range(draw(st.integers(1, 3))):
        messages: list[Message] = []
        dates: Sequence[int | None] = draw(st.lists(st.none() | st.integers(0, 9), max_size=6))
        if in_order:
            dates = sorted(d for d in dates if d is not None)
        for at in dates:
            if draw(st.integers(0, 3)):
                messages.append(numbers(replace(user(draw(TEXTS) or "x"), at=at)))
            else:
                call_id = f"c{numbers.last}"
                call = assistant("", tool_calls=[ToolCall(call_id, "look", "{}")])
                messages.append(numbers(replace(call, at=at)))
                messages.append(numbers(replace(tool(call_id, draw(TEXTS)), at=at)))
        behavior = draw(st.sampled_from(("message", "char")))
        adds.append((f"s{place}", messages, {"group": group, "trim_behavior": behavior}))
    return Scene(draw(st.integers(0, 200)), "characters", adds)


def merged(sources: Sequence[Sequence[Message]]) -> list[int]:
    """Merge by the running maximum of `at` inside each source; a result stays with its call."""
    keyed = []
    for place, messages in enumerate(sources):
        latest, key = -inf, -inf
        for order, message in enumerate(messages):
            latest = latest if message.at is None else max(latest, message.at)
            key = key if message.tool_call_id is not None else latest
            keyed.append((key, place, order, number(message)))
    return [last for *_, last in sorted(keyed)]


@given(timelines())
def test_interleaved_slots_are_merged_by_date_in_their_own_order(scene: Scene) -> None:
    full = [number(m) for m in scene.window(10**6).messages]
    assert full == merged([scene.given(i) for i in range(len(scene.adds))])


@given(timelines())
def test_interleaving_keeps_tool_groups_in_one_piece(scene: Scene) -> None:
    window = scene.window()
    for index, messages in by_slot(window):
        numbers = [number(m) for m in messages]
        assert numbers == sorted(numbers), scene.adds[index][0]
    for before, message in pairwise((None, *window.messages)):
        if message is not None and message.tool_call_id is not None:
            assert before is not None
            assert [call.id for call in before.tool_calls] == [message.tool_call_id]
