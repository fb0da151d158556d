"""Answers of a given form: asking for an answer, reading it, and one attempt at repair.

Knows neither windows nor stores: the caller decides how the model is asked.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.agent.signatures import problems
from muntin.core.checks import compact_json
from muntin.core.message import Message, user
from muntin.errors import OutputInvalid
from muntin.providers.model import Event, Finished, Usage

if TYPE_CHECKING:
    from pydantic import BaseModel

# A fenced block; and all from the first fence to the last, if a text in the JSON has fences too.
_BLOCK = re.compile(r"```(?:[\w-]+\s)?(.*?)```", re.DOTALL)
_WIDEST = re.compile(r"```(?:[\w-]+\s)?(.*)```", re.DOTALL)

# Runs the model: first with no messages, then with its answer and the message about its mistake.
Attempt: TypeAlias = Callable[[tuple[Message, ...]], Awaitable[AsyncGenerator[Event, None]]]


async def answered(attempt: Attempt, output: type[BaseModel] | None) -> AsyncGenerator[Event, None]:
    """Run the model until its answer can be read as `output`; an invalid answer is repaired once.

    The last event is `Finished`, with the usage of both attempts.
    """
    repair_messages: tuple[Message, ...] = ()
    usage = Usage()
    while True:
        async with aclosing(await attempt(repair_messages)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    reply = event.reply
                else:
                    yield event
        usage += reply.usage
        reply = replace(reply, usage=usage)
        if output is None or reply.tool_calls:
            break
        value, problem = _read(output, reply.text)
        if problem is None:
            reply = replace(reply, output=value)
            break
        if repair_messages:
            raise OutputInvalid(output.__name__, problem, reply)
        repair = (
            f"Your answer is not a valid {output.__name__}: {problem}\n"
            "Answer again, with nothing but JSON that is valid for this schema:\n"
            f"{compact_json(output.model_json_schema())}"
        )
        repair_messages = (reply.message, user(repair))
    yield Finished(reply)


def asking_for(output: type[BaseModel] | None) -> dict[str, Any]:
    """Return the settings by which clients ask for an answer of this form."""
    if output is None:
        return {}
    return {"output_schema": output.model_json_schema(), "output_name": output.__name__}


def _read(output: type[BaseModel], text: str) -> tuple[BaseModel | None, str | None]:
    """Return the answer as an instance of `output`, or what is wrong with it."""
    from pydantic import ValidationError

    problem = "the answer is empty"
    # The whole answer, or a fenced block in it; an error of a block says more.
    for candidate in (text, *_WIDEST.findall(text), *_BLOCK.findall(text)):
        if candidate.strip():
            try:
                return output.model_validate_json(candidate), None
            except ValidationError as error:
                problem = problems(error, "answer")
    return None, problem
