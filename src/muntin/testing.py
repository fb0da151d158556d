"""For users' own tests: a scripted model, a store in memory, proof that contexts survive."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

from muntin.calls import settle
from muntin.core.budget import Budget, as_budget
from muntin.core.checks import check_text, shown
from muntin.core.counting.counter import Counter, TokenizerLike
from muntin.core.message import Message, assistant
from muntin.core.parts import File, Reasoning, Text, ToolCall
from muntin.core.planning.plan import Plan
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.definition import Prompt
from muntin.providers.model import (
    Event,
    Finished,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCalled,
    ToolFinished,
    Usage,
)
from muntin.timeline.store.memory import MemoryStore

__all__ = ["MemoryStore", "ScriptedModel", "assert_survives"]

# The entries of a script: a reply in one of its forms, an error to raise, the events of a stream
# (an error among them breaks it off), or a function of the window that returns one of these.
Scripted: TypeAlias = Any

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_STREAMED = (TextDelta, ReasoningDelta, ToolCalled, ToolFinished, Finished, BaseException)
_WORDS = re.compile(r"\S+\s*|\s+")


class ScriptedModel:
    """A model that gives scripted replies, and remembers its requests.

    `replies` is a list, or a function of the window that answers every time. A reply is a str, a
    `ToolCall` or a list of them, a `Message`, a `Reply`, an exception (it is raised), a list of
    events (they are streamed as they are), or a function of the window, sync or async, that
    returns one of these. `.windows`, `.settings` and `.files` hold the arguments of each request.

    `budget` is the size of the model's window for a runtime.
    """

    def __init__(
        self,
        replies: Sequence[Scripted] | Callable[[Window], Scripted],
        *,
        name: str = "scripted",
        budget: Budget | int | None = None,
    ) -> None:
        if not callable(replies) and (
            not isinstance(replies, Sequence) or isinstance(replies, str | bytes)
        ):
            raise InvalidType(f"ScriptedModel needs a list of replies, not {shown(replies)}")
        check_text(name, "ScriptedModel.name")
        self.name = name
        self.budget = None if budget is None else as_budget(budget)
        self.windows: list[Window] = []
        self.settings: list[dict[str, Any]] = []
        self.files: list[dict[str, File]] = []
        self._replies = replies if callable(replies) else tuple(replies)

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name!r} asked={len(self.windows)}>"

    async def complete(
        self,
        window: Window,
        *,
        settings: Mapping[str, Any] = _NOTHING,
        files: Mapping[str, File] | None = None,
    ) -> Reply:
        """Return the next reply of the script, or raise it."""
        finished = None
        for event in await self._next(window, settings, files):
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, Finished):
                finished = event.reply
        if finished is None:
            raise AssertionError("a scripted stream ended neither with Finished nor with an error")
        return finished

    async def stream(
        self,
        window: Window,
        *,
        settings: Mapping[str, Any] = _NOTHING,
        files: Mapping[str, File] | None = None,
    ) -> AsyncIterator[Event]:
        """Yield the next reply of the script in small pieces."""
        for event in await self._next(window, settings, files):
            if isinstance(event, BaseException):
                raise event
            yield event

    async def _next(
        self, window: Window, settings: Mapping[str, Any], files: Mapping[str, File] | None
    ) -> list[Event | BaseException]:
        number = len(self.windows)
        self.windows.append(window)
        self.settings.append(dict(settings))
        self.files.append(dict(files or {}))
        if callable(self._replies):
            entry: Scripted = self._replies
        elif number < len(self._replies):
            entry = self._replies[number]
        else:
            raise AssertionError(
                f"ScriptedModel {self.name!r} was given {len(self._replies)} replies and is asked "
                f"for number {number + 1}"
            )
        while callable(entry) and not isinstance(entry, type):
            entry = await settle(entry(window))
        return _events(entry, window, number)


def _events(entry: Scripted, window: Window, number: int) -> list[Event | BaseException]:
    """Return an entry of a script as the events of a stream."""
    if isinstance(entry, type) and issubclass(entry, BaseException):
        entry = entry()
    if isinstance(entry, BaseException):
        return [entry]
    if isinstance(entry, list | tuple) and entry and isinstance(entry[0], _STREAMED):
        is_closed = isinstance(entry[-1], Finished | BaseException)
        return [*entry] if is_closed else [*entry, Finished(_reply_of(entry, window))]
    reply = _reply(entry, window, number)
    if reply.window is None:
        reply = replace(reply, window=window)
    return [*_deltas(reply.message), Finished(reply)]


def _reply(entry: Scripted, window: Window, number: int) -> Reply:
    if isinstance(entry, Reply):
        return entry
    if isinstance(entry, str):
        entry = assistant(entry)
    elif isinstance(entry, ToolCall):
        entry = assistant(tool_calls=[entry])
    elif isinstance(entry, list | tuple) and all(isinstance(call, ToolCall) for call in entry):
        entry = assistant(tool_calls=entry)
    if not isinstance(entry, Message):
        raise InvalidType(
            f"reply {number + 1} of a script must be a str, ToolCall, list of ToolCall, Message, "
            "Reply, exception, list of events, or a function giving one of these, not "
            f"{shown(entry)}"
        )
    plan = window.explained
    counter = plan.declared.counter if isinstance(plan, Plan) else Counter.of(None)
    return Reply(
        entry,
        usage=Usage(input=window.tokens, output=counter.message(entry)),
        finish_reason="tool_calls" if entry.tool_calls else "stop",
        window=window,
    )


def _reply_of(events: Sequence[Event], window: Window) -> Reply:
    """Return the reply that scripted events make up."""
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    calls = [event.call for event in events if isinstance(event, ToolCalled)]
    content = (Reasoning(reasoning), Text(text)) if reasoning else text
    return _reply(Message("assistant", content, tool_calls=tuple(calls)), window, 0)


def _deltas(message: Message) -> list[Event]:
    """Cut a message into the events of a stream."""
    parts = (Text(message.content),) if isinstance(message.content, str) else message.content or ()
    events: list[Event] = []
    for part in parts:
        if isinstance(part, Text | Reasoning):
            kind = TextDelta if isinstance(part, Text) else ReasoningDelta
            events += [kind(word) for word in _WORDS.findall(part.text)]
    return [*events, *(ToolCalled(call) for call in message.tool_calls)]


def assert_survives(
    prompt: Prompt,
    *ids: str,
    token_budget: int,
    inputs: Iterable[Any] = (None,),
    provider: str | None = None,
    model_id: str | None = None,
    tokenizer: TokenizerLike | None = None,
) -> None:
    """Fail, with the report, unless every context named is in the window for every input."""
    if not isinstance(prompt, Prompt):
        raise InvalidType(f"assert_survives needs a prompt, not {shown(prompt)}")
    if not isinstance(inputs, Iterable):
        raise InvalidType(f"inputs must be a list of inputs, not {shown(inputs)}")
    for name in ids:
        check_text(name, "the id of a context")
    ids_reached = {reached.context.id for reached in prompt.reached if reached.context.id}
    unknown = sorted(set(ids) - ids_reached)
    if unknown or not ids:
        raise InvalidInput(f"no context {unknown or 'named'}; the prompt has {sorted(ids_reached)}")
    values = list(inputs)
    if not values:
        raise InvalidInput("assert_survives needs inputs to try; without any it proves nothing")
    for value in values:
        inspection = prompt.inspect_sync(
            value,
            token_budget=token_budget,
            provider=provider,
            model_id=model_id,
            tokenizer=tokenizer,
        )
        sources = {part.source for part in inspection.system.parts if part.status == "kept"}
        lost = [name for name in ids if f"context:{name}" not in sources]
        if lost or inspection.over_budget:
            what = f"{', '.join(lost)} would be lost" if lost else "the prompt is over budget"
            raise AssertionError(
                f"{what} with input {shown(value)}\n{inspection}\n\n{inspection.report}"
            )
