"""Answers of a wanted form: read, repaired once, or an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from muntin import Message, assistant
from muntin.agent.answers import answered, asking_for
from muntin.agent.loop import last_reply
from muntin.errors import OutputInvalid
from muntin.providers.model import Event, Finished, Reply, TextDelta, Usage
from tests.words import Answer, call


class Asked:
    """A model that gives one answer after the other, and remembers what it was told."""

    def __init__(self, *answers: Message | str) -> None:
        self.answers = [assistant(each) if isinstance(each, str) else each for each in answers]
        self.told: list[tuple[Message, ...]] = []

    async def attempt(self, told: tuple[Message, ...]) -> AsyncGenerator[Event, None]:
        self.told.append(told)
        return self._events(self.answers[len(self.told) - 1])

    async def _events(self, message: Message) -> AsyncGenerator[Event, None]:
        yield TextDelta(message.text)
        yield Finished(Reply(message, usage=Usage(input=10, output=1)))


def test_without_a_form_the_first_answer_is_the_answer():
    asked = Asked("anything")
    reply = asyncio.run(last_reply(answered(asked.attempt, None)))
    assert (reply.text, reply.output, asked.told) == ("anything", None, [()])
    assert asking_for(None) == {}


def test_an_answer_that_cannot_be_read_is_repaired_once_and_both_are_paid_for():
    asked = Asked("no", '{"value": 3}')

    async def events() -> list[Any]:
        return [event async for event in answered(asked.attempt, Answer)]

    *seen, last = asyncio.run(events())
    assert [event.text for event in seen] == ["no", '{"value": 3}']
    assert last.reply.output == Answer(value=3)
    assert (last.reply.usage.input, last.reply.usage.output) == (20, 2)
    first, (answer, problem) = asked.told
    assert first == ()
    assert (answer.text, problem.role) == ("no", "user")
    assert "not a valid Answer" in problem.text


def test_an_answer_that_stays_wrong_is_an_error_with_the_usage_of_both():
    with pytest.raises(OutputInvalid) as caught:
        asyncio.run(last_reply(answered(Asked("no", "no").attempt, Answer)))
    assert caught.value.reply.usage.input == 20


def test_an_answer_that_calls_a_tool_is_not_read():
    asked = Asked(assistant(tool_calls=[call("look")]))
    reply = asyncio.run(last_reply(answered(asked.attempt, Answer)))
    assert reply.tool_calls
    assert len(asked.told) == 1
