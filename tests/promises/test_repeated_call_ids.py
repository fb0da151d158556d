"""Calls and results are paired by position: ids may repeat, a call may have no result, a result no
call. Such a session can always be read, in every interface, and what is sent is valid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import App, Message, Session, Slots, ToolCall, Window, assistant, tool, user
from muntin.core.caching.wire_order import arrange
from muntin.runtime.recovery import Reader
from muntin.testing import ScriptedModel
from muntin.timeline.store.memory import MemoryStore
from tests.interfaces import DURABLE
from tests.products import THREE, sample
from tests.runtime.conftest import run
from tests.wire.rules import CHECKS
from tests.wire.windows import PROVIDERS, encode

# The sessions that the interfaces write to.
SESSIONS = {
    "conversation": "c",
    "instructed": "c",
    "strategy": "c",
    "timeline": "c",
    "entity": "plain/1",
    "returned": "returned/1",
    "sources": "sourced/1",
    "generator": "g",
    "generator_prompt": "p",
    "flow": "f",
}


def calling(n: int) -> Message:
    return assistant("", tool_calls=[ToolCall("x", "look", f'{{"n":{n}}}')])


PASTS: dict[str, list[Message]] = {
    "no result, then the id again": [user("1"), calling(1), user("2"), calling(2), tool("x", "r2")],
    "two results": [user("1"), calling(1), tool("x", "r1"), tool("x", "extra")],
    "twice without a result": [user("1"), calling(1), user("2"), calling(2)],
    "a result before its call": [user("1"), tool("x", "extra"), calling(1)],
    "nested": [user("1"), calling(1), calling(2), tool("x", "r2"), tool("x", "r1")],
}


def look(n: int) -> str:
    """Look something up."""
    return f"r{n}"


def paired(messages: Iterable[Message]) -> list[tuple[str, str | None]]:
    """Pair calls and results by hand: a result answers the nearest call that waits for it."""
    found: list[tuple[str, str | None]] = []
    waiting: dict[str, list[int]] = {}
    for message in messages:
        numbers = range(len(found), len(found) + len(message.tool_calls))
        found += [(call.arguments, None) for call in message.tool_calls]
        for number, call in zip(numbers, message.tool_calls, strict=True):
            waiting.setdefault(call.id, []).append(number)
        if message.tool_call_id is not None and waiting.get(message.tool_call_id):
            number = waiting[message.tool_call_id].pop()
            found[number] = found[number][0], message.text
    return found


def check(window: Window, past: Sequence[Message]) -> None:
    """Whether calls have their own results, and every provider takes the request."""
    whole = dict(paired(past))
    for _, _, answers in arrange(window.messages):
        for call, result, _ in answers:
            if call.arguments in whole:
                assert (None if result is None else result.text) == whole[call.arguments]
    assert not any(m.tool_call_id for _, m, _ in arrange(window.messages)), "no result alone"
    for provider in PROVIDERS:
        CHECKS[provider](encode(window, provider, strict=False))


@pytest.mark.parametrize("past", PASTS.values(), ids=PASTS)
@pytest.mark.parametrize("interface", sample(DURABLE, *THREE))
def test_a_session_with_such_calls_is_read_in_every_interface(
    interface: str, past: list[Message]
) -> None:
    app = App(MemoryStore(), budget=8_000)
    Session(SESSIONS[interface], store=app.store).append(*past)
    model = ScriptedModel([ToolCall("x", "look", '{"n":7}'), "done"], name="openai/gpt-4o")
    run(DURABLE[interface](app, model, "And now?", [look]))
    assert len(model.windows) == 2
    for window in model.windows:
        check(window, past)
    assert ('{"n":7}', "r7") in paired(model.windows[-1].messages)


@st.composite
def traffic(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 12))):
        kind, id = draw(st.sampled_from("ucccrrrr")), draw(st.sampled_from("ab"))
        if kind == "u":
            messages.append(user(f"question {number}"))
        elif kind == "r":
            messages.append(tool(id, f"r{number}"))
        else:
            ids = draw(st.sampled_from(["a", "b", "ab"]))
            calls = [ToolCall(e, "look", f'{{"n":{number}{n}}}') for n, e in enumerate(ids)]
            messages.append(assistant("", tool_calls=calls))
    return messages


@given(traffic(), st.integers(0, 200), st.integers(0, 12), st.integers(0, 12))
def test_whatever_is_left_out_pairs_stay_as_they_were(
    past: list[Message], budget: int, first: int, second: int
) -> None:
    slots = Slots(budget, tokenizer=len)
    cuts = sorted((first, second))
    for number, part in enumerate((past[: cuts[0]], past[cuts[0] : cuts[1]], past[cuts[1] :])):
        slots.add(f"past {number}", part, priority=number)
    window = slots.render()
    assert window.tokens <= budget
    for provider in PROVIDERS:
        CHECKS[provider](encode(window, provider, strict=False))
    whole = dict(paired(past))
    for call, result in paired(window.messages):
        assert result == whole[call]


@pytest.mark.parametrize("keep", ["head", "tail"])
def test_a_call_left_without_a_result_takes_none_of_a_later_one(keep: Any) -> None:
    past = [calling(1), *[user("x" * 50)] * 5, calling(2), tool("x", "r2")]
    slots = Slots(200, tokenizer=len)
    slots.add("past", past, trim_behavior="char", keep=keep)
    assert dict(paired(slots.render().messages)).get('{"n":1}') is None


def test_of_several_results_with_one_id_the_newest_is_loaded() -> None:
    session = Session("s", store=MemoryStore())
    session.append(user("1"), calling(1), tool("x", "old"), calling(2), tool("x", "new"))
    load: Any = Reader(session).tools[3]
    assert run(load("x")) == "new"
