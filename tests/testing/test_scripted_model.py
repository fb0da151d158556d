"""`ScriptedModel`: it says what it is told to, and remembers what it was asked."""

from __future__ import annotations

import asyncio

import pytest

from muntin import Budget, Message, Reasoning, Slots, Text, ToolCall, Window, assistant
from muntin.errors import InvalidType
from muntin.providers.model import (
    Event,
    Finished,
    Model,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCalled,
    Usage,
)
from muntin.testing import ScriptedModel

CALL = ToolCall("c1", "find", '{"text":"x"}')


def window(text: str = "hi") -> Window:
    slots = Slots(1_000, tokenizer=len)
    slots.add("input", text)
    return slots.render()


def say(model: Model, asked: Window | None = None) -> Reply:
    return asyncio.run(model.complete(asked or window(), settings={}))


def stream(model: Model) -> list[Event]:
    async def read() -> list[Event]:
        return [event async for event in model.stream(window(), settings={})]

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("scripted", "message", "reason"),
    [
        ("hello", assistant("hello"), "stop"),
        (CALL, assistant(tool_calls=[CALL]), "tool_calls"),
        ([CALL], assistant(tool_calls=[CALL]), "tool_calls"),
        (assistant("a", tool_calls=[CALL]), assistant("a", tool_calls=[CALL]), "tool_calls"),
        (Reply(assistant("cut"), finish_reason="length"), assistant("cut"), "length"),
        (lambda asked: asked.messages[-1].text.upper(), assistant("HI"), "stop"),
        (lambda asked: lambda asked: "twice", assistant("twice"), "stop"),
    ],
)
def test_a_reply_may_be_scripted_in_many_forms(scripted, message, reason):
    asked = window()
    reply = say(ScriptedModel([scripted]), asked)
    assert (reply.message, reply.finish_reason, reply.window) == (message, reason, asked)
    last = stream(ScriptedModel([scripted]))[-1]
    assert isinstance(last, Finished)
    assert last.reply.message == message


def test_a_function_answers_every_time_and_may_be_async():
    async def answer(asked: Window) -> str:
        await asyncio.sleep(0)
        return f"{len(asked.messages)} message"

    model = ScriptedModel(answer)
    assert [say(model).text, say(model).text] == ["1 message", "1 message"]


def test_windows_and_settings_are_remembered_in_order():
    model = ScriptedModel(["a", "b"])
    first, second = window("one"), window("two")
    asyncio.run(model.complete(first, settings={"temperature": 1}))
    asyncio.run(model.complete(second, settings={}))
    assert model.windows == [first, second]
    assert model.settings == [{"temperature": 1}, {}]


def test_running_out_of_replies_says_how_many_there_were():
    model = ScriptedModel(["only"])
    say(model)
    with pytest.raises(AssertionError, match=r"given 1 replies and is asked for number 2"):
        say(model)


def test_usage_counts_the_window_and_the_answer():
    assert say(ScriptedModel(["hello"])).usage.input == window().tokens == 2
    assert say(ScriptedModel(["hello"])).usage.output > 0
    given = Reply(assistant("x"), usage=Usage(input=7, cache_read=5))
    assert say(ScriptedModel([given])).usage == Usage(input=7, cache_read=5)


@pytest.mark.parametrize("error", [ConnectionError("gone"), ConnectionError])
def test_an_exception_is_raised(error):
    with pytest.raises(ConnectionError):
        say(ScriptedModel([error]))
    with pytest.raises(ConnectionError):
        stream(ScriptedModel([error]))


def test_a_stream_comes_in_pieces_and_ends_with_the_whole():
    thought = (Reasoning("hm, well"), Text("one two\nthree"))
    message = Message("assistant", thought, tool_calls=(CALL,))
    *pieces, last = stream(ScriptedModel([message]))
    assert pieces == [
        ReasoningDelta("hm, "),
        ReasoningDelta("well"),
        TextDelta("one "),
        TextDelta("two\n"),
        TextDelta("three"),
        ToolCalled(CALL),
    ]
    assert isinstance(last, Finished)
    assert last.reply == say(ScriptedModel([message]))


def test_a_stream_may_be_scripted_and_broken_off():
    async def read(model: Model) -> tuple[str, str]:
        text = ""
        try:
            async for event in model.stream(window(), settings={}):
                text += event.text if isinstance(event, TextDelta) else ""
        except ConnectionError as error:
            return text, str(error)
        return text, ""

    whole = [ReasoningDelta("hm"), TextDelta("he"), TextDelta("llo"), ToolCalled(CALL)]
    assert asyncio.run(read(ScriptedModel([whole]))) == ("hello", "")
    assert say(ScriptedModel([whole])).message == Message(
        "assistant", (Reasoning("hm"), Text("hello")), tool_calls=(CALL,)
    )
    broken = [TextDelta("he"), ConnectionError("cut")]
    assert asyncio.run(read(ScriptedModel([broken]))) == ("he", "cut")
    with pytest.raises(ConnectionError, match="cut"):
        say(ScriptedModel([broken]))


@pytest.mark.parametrize("scripted", [7, None, [CALL, "text"], {"role": "assistant"}])
def test_what_is_no_reply_is_an_error_naming_it(scripted):
    with pytest.raises(InvalidType, match="reply 1 of a script"):
        say(ScriptedModel([scripted]))


@pytest.mark.parametrize("replies", ["text", 7, None])
def test_replies_are_a_list_or_a_function(replies):
    with pytest.raises(InvalidType, match="a list of replies"):
        ScriptedModel(replies)


def test_the_budget_is_for_those_who_ask():
    assert ScriptedModel([], budget=90).budget == Budget(90)
    assert ScriptedModel([]).budget is None
