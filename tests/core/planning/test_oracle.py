"""The planner and the oracle agree, on small windows of every kind.

`MUNTIN_EXAMPLES` sets how many random windows each test draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muntin import Input, Message, ToolCall, assistant, system, tool, user
from tests.core.planning.beside import Texts, agree, budgets, render, slow
from tests.core.planning.oracle_slots import Given, arrange

# -- small windows ---------------------------------------------------------------------------


KINDS = ("user", "user", "assistant", "system", "call", "call", "tool", "late")


@st.composite
def talks(draw: st.DrawFn, texts: Texts, calls: list[str], *, most: int = 4) -> list[Message]:
    """Plain messages, tool groups (also parallel, pending, split), orphans. `calls` is shared."""
    messages: list[Message] = []
    wanted = draw(st.integers(0, most))
    while len(messages) < wanted:
        length = draw(st.integers(1, 6))
        kind = draw(st.sampled_from(KINDS))
        if kind == "call":
            ids = [f"{texts.used}.{n}" for n in range(draw(st.integers(1, 2)))]
            texts(0)
            calls += ids
            arguments = "1" * draw(st.integers(0, 3))
            text = draw(st.sampled_from((None, "", texts(length), texts(length))))
            messages.append(assistant(text, tool_calls=[ToolCall(i, "t", arguments) for i in ids]))
            for call_id in ids:
                if draw(st.integers(0, 3)):
                    messages.append(tool(call_id, texts(draw(st.integers(0, 4)))))
                    calls.remove(call_id)
        elif kind == "late" and calls:
            messages.append(tool(calls.pop(0), texts(length)))
        elif kind in ("tool", "late"):
            messages.append(tool(f"nobody{texts.used}", texts(length)))
        else:
            messages.append(Message(kind, texts(length)))  # type: ignore[arg-type]
    return messages


RATIOS = st.sampled_from((0.0, 0.1, 0.29, 0.3, 0.5, 0.7, 1.0))


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Any mixture of the options of `add` that the oracle knows."""
    chosen: dict[str, Any] = {}
    if draw(st.booleans()):
        chosen["priority"] = draw(st.integers(-1, 3))
    behavior = draw(st.sampled_from(("message", "message", "char", "char", "slot")))
    chosen["trim_behavior"] = behavior
    if draw(st.booleans()):
        if draw(st.booleans()):
            chosen["max_ratio"] = draw(RATIOS)
        if draw(st.booleans()):
            chosen["max_tokens"] = draw(st.integers(0, 20))
    if behavior != "slot" and draw(st.booleans()):
        if draw(st.booleans()):
            chosen["min_ratio"] = draw(RATIOS)
        if draw(st.booleans()):
            most = chosen.get("max_tokens", 20)
            chosen["min_tokens"] = draw(st.integers(0, most))
    if draw(st.integers(0, 4)) == 0:
        chosen["keep"] = "head"
    if draw(st.integers(0, 5)) == 0:
        chosen["required"] = True
    if draw(st.integers(0, 4)) == 0:
        chosen["position"] = draw(st.integers(-1, 2))
    if draw(st.integers(0, 6)) == 0:
        chosen["tier"] = draw(st.sampled_from(("pinned", "stable", "slow-changing", "volatile")))
    return chosen


@st.composite
def small(draw: st.DrawFn) -> tuple[list[Given], int, int]:
    """A few slots, a budget and an overhead."""
    texts, calls = Texts(), list[str]()
    slots: list[Given] = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("list", "list", "text", "system", "input", "input")))
        chosen = draw(options())
        if kind == "list":
            most = 4 if number < 2 else 2
            slots.append(Given(f"list{number}", draw(talks(texts, calls, most=most)), **chosen))
        elif kind == "text":
            slots.append(Given(f"text{number}", texts(draw(st.integers(0, 6))), **chosen))
        elif kind == "system":
            slots.append(Given("system", texts(draw(st.integers(0, 6))), **chosen))
        else:
            text = texts(draw(st.integers(1, 6)))
            name = draw(st.sampled_from(("input", "now")))
            slots.append(Given(name, Input(text), **chosen))
    assume(said(slots))
    overhead = draw(st.sampled_from((0, 0, 1, 2)))
    return slots, draw(budgets(slots, overhead)), overhead


def torn(messages: Sequence[Message]) -> bool:
    """Say whether other messages stand between a call and its results."""
    for number, message in enumerate(messages):
        ids = {call.id for call in message.tool_calls}
        results = [n for n, other in enumerate(messages) if other.tool_call_id in ids]
        if results != list(range(number + 1, number + 1 + len(results))):
            return True
    return False


def apart(messages: Sequence[Message], slots: Sequence[Given]) -> bool:
    """Say whether results of one message's calls, made in any slot, have others between them."""
    for slot in slots:
        for caller in slot.messages():
            ids = {call.id for call in caller.tool_calls}
            places = [n for n, message in enumerate(messages) if message.tool_call_id in ids]
            if places and places[-1] - places[0] >= len(places):
                return True
    return False


def said(slots: Sequence[Given]) -> bool:
    """Say whether the contract says what becomes of these slots.

    It is silent on whether a slot of system messages and orphans is a system slot; where slots
    that share a tool group have floors, more than one ceiling, or a ceiling met by characters; on
    whole-slot dropping of part of a group; and on characters of a group that other messages stand
    between.
    """
    for slot in slots:
        rest = [m for m in slot.messages() if not (m.tool_call_id or "").startswith("nobody")]
        if len(rest) < len(slot.messages()) and all(m.role == "system" for m in rest):
            return False
        if slot.trim_behavior == "char" and torn(slot.messages()):
            return False
        if slot.trim_behavior == "char" and apart(slot.messages(), slots):
            return False
    owners: dict[str, set[int]] = {}
    for number, slot in enumerate(slots):
        for message in slot.messages():
            for call_id in (*(c.id for c in message.tool_calls), message.tool_call_id or ""):
                owners.setdefault(call_id, set()).add(number)
    for call_id, numbers in owners.items():
        sharing = [slots[n] for n in numbers]
        capped = [s for s in sharing if s.max_ratio < 1 or s.max_tokens is not None]
        if call_id and len(sharing) > 1:
            if len(capped) > 1 or any(s.trim_behavior == "char" for s in capped):
                return False
            if any(s.trim_behavior == "slot" or s.is_input for s in sharing):
                return False
            if any(s.min_tokens or s.min_ratio for s in sharing):
                return False
    return True


@slow
@given(small())
def test_the_planner_composes_what_the_oracle_demands(case: tuple[list[Given], int, int]) -> None:
    slots, budget, overhead = case
    agree(slots, budget, overhead)


@st.composite
def split(draw: st.DrawFn) -> tuple[list[Given], int, int]:
    """Tool groups whose calls stand in one slot and whose results in others."""
    texts = Texts()
    sizes = st.integers(0, 3)
    slots: list[Given] = []
    open_calls: list[str] = []
    for number in range(draw(st.integers(2, 3))):
        messages: list[Message] = []
        for _ in range(draw(st.integers(0, 3))):
            if draw(st.booleans()) and open_calls:
                call_id = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
                messages.append(tool(call_id, texts(draw(sizes))))
            elif draw(st.booleans()):
                ids = [f"{texts.used}.{n}" for n in range(draw(st.integers(1, 2)))]
                open_calls += ids
                calls = [ToolCall(call_id, "t", "x" * draw(sizes)) for call_id in ids]
                messages.append(assistant(texts(draw(sizes)), tool_calls=calls))
            else:
                messages.append(user(texts(1 + draw(sizes))))
        chosen: dict[str, Any] = {
            "priority": draw(st.integers(0, 1)),
            "trim_behavior": draw(st.sampled_from(("message", "char"))),
            "min_tokens": draw(st.sampled_from((0, 0, 0, 2, 5))),
            "required": draw(st.sampled_from((False,) * 5 + (True,))),
        }
        slots.append(Given(f"slot{number}", messages, **chosen))
    if draw(st.booleans()):
        slots.append(Given("input", texts(draw(st.integers(1, 4)))))
    assume(said(slots))
    overhead = draw(st.integers(0, 1))
    return slots, draw(budgets(slots, overhead)), overhead


@slow
@given(split())
def test_tool_groups_across_slots_are_composed_as_the_oracle_demands(
    case: tuple[list[Given], int, int],
) -> None:
    slots, budget, overhead = case
    agree(slots, budget, overhead)


# -- all windows of a kind -------------------------------------------------------------------

SPLIT = [assistant("cd", tool_calls=[ToolCall("1", "t", "x")]), tool("1", "ef")]
TALKS: dict[str, list[Message]] = {
    "plain": [user("abc"), assistant("de"), user("fgh")],
    "mixed": [user("ab"), system("xyz"), user("cd")],
    "calls": [user("ab"), *SPLIT, user("gh")],
    "begins with a result": [tool("0", "zz"), user("ab"), *SPLIT],
}


@pytest.mark.parametrize("behavior", ["message", "char", "slot"])
@pytest.mark.parametrize("talk", TALKS)
def test_every_budget_of_a_plain_chat_is_composed_as_the_oracle_demands(
    talk: str, behavior: str
) -> None:
    for budget, first, overhead in product(range(22), (-1, 0, 1), (0, 1)):
        slots = [
            Given("system", "SYS"),
            Given("history", TALKS[talk], priority=first, trim_behavior=behavior),
            Given("input", Input("ijk")),
        ]
        agree(slots, budget, overhead)


@pytest.mark.parametrize("behavior", ["message", "char"])
@pytest.mark.parametrize("keep", ["head", "tail"])
@pytest.mark.parametrize("talk", TALKS)
def test_every_floor_and_ceiling_is_kept_as_the_oracle_demands(
    talk: str, keep: str, behavior: str
) -> None:
    for budget, least, most, overhead in product(range(0, 18, 2), (0, 3, 6), (None, 5, 8), (0, 1)):
        if most is None or least <= most:
            slots = [
                Given(
                    "history",
                    TALKS[talk],
                    min_tokens=least,
                    max_tokens=most,
                    keep=keep,
                    trim_behavior=behavior,
                ),
                Given("notes", "pqrs", min_tokens=2, priority=1, trim_behavior="char"),
                Given("input", Input("ijk")),
            ]
            agree(slots, budget, overhead)


@pytest.mark.parametrize("behaviors", list(product(("message", "char"), repeat=2)))
def test_a_tool_group_across_slots_lives_and_dies_as_the_oracle_demands(
    behaviors: tuple[str, str],
) -> None:
    for budget, *priorities in product(range(22), (0, 1), (0, 1)):
        slots = [
            Given(
                "calls",
                [user("ab"), SPLIT[0]],
                trim_behavior=behaviors[0],
                priority=priorities[0],
            ),
            Given(
                "results",
                [SPLIT[1], user("gh")],
                trim_behavior=behaviors[1],
                priority=priorities[1],
            ),
            Given("input", "ijk"),
        ]
        agree(slots, budget)


@pytest.mark.parametrize("tiers", list(product((None, "pinned", "volatile"), repeat=2)))
def test_slots_stand_by_tier_then_position_then_as_added(
    tiers: tuple[str | None, str | None],
) -> None:
    for first, second in product((None, 0, 1), repeat=2):
        slots = [
            Given("a", "a", tier=tiers[0], position=first),
            Given("b", "b", tier=tiers[1], position=second),
            Given("c", "c"),
        ]
        expected = [slot.name for slot in arrange(slots)]
        assert [message.text for message in render(slots, 9).messages] == expected
