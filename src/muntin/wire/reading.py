"""Messages as other makers write them: Anthropic, Google, OpenAI's Responses, the SDKs' objects.

Owns which form a value has, and that reading loses nothing: a value that cannot be read is refused
by name. Each form has a module of its own; `Message.from_dict` reads OpenAI-style dicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muntin.core.checks import shown
from muntin.core.compaction import is_compaction
from muntin.core.message import Message
from muntin.core.parts import Other, as_plain
from muntin.errors import InvalidInput, InvalidType
from muntin.wire import anthropic, google, responses

# The types by which a content block is recognised where a message was expected.
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document")


def read_messages(
    items: Sequence[object],
    *,
    ids: google.Ids | None = None,
    where: str | None = None,
    first: int = 0,
) -> list[Message]:
    """Read items in any form; an error names the item as `where` says, by its number from `first`.

    `ids` are for calls of Google's without one; without them a call or response must have its own.
    """
    reader = _Reader(ids)
    number = first
    try:
        for item in items:
            reader.take(item)
            number += 1
        return reader.end()
    except InvalidInput as error:
        if where is None:
            raise
        raise type(error)(f"{where.replace('{}', str(number))}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        place = "" if where is None else f"{where.replace('{}', str(number))}: "
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidInput(f"{place}this cannot be read as a message: {why}") from error


class _Reader:
    """A conversation while it is read: messages so far, and items of an unfinished answer."""

    def __init__(self, ids: google.Ids | None) -> None:
        self.messages: list[Message] = []
        # Items of one answer of the Responses API, which is one message.
        self.answer: list[Mapping[str, Any]] = []
        self.ids = ids

    def end(self) -> list[Message]:
        self._close()
        return self.messages

    def take(self, item: object) -> None:
        if isinstance(item, Message):
            self._put([item])
            return
        if isinstance(item, dict) and len(item) == 2 and item.get("content").__class__ is str:
            self._put([Message.from_dict(item)])  # as most messages are: a plain text
            return
        data = as_plain(item)
        if not isinstance(data, Mapping):
            raise InvalidType(f"a message must be a Message or a dict, not {type(item).__name__}")
        if "parts" in data and "content" not in data:
            self._put(google.read_messages(data, self.ids))
        elif "role" in data and data.get("type") not in ("message", *responses.ITEMS):
            self._put(_with_role(data))
        elif responses.is_output(data):
            responses.check_item(data)
            if is_compaction(data):  # what stands before it leaves without it
                self._close()
            self.answer.append(data)
        elif "role" in data:
            self._put(_with_role(responses.as_input(data)))
        elif data.get("type") in responses.INPUTS:
            self._put([Message("user", (Other(data),))])
        elif data.get("type") in responses.RESULTS:
            self._put([responses.result(data)])
        else:
            for part in _inside(data):
                self.take(part)

    def _put(self, messages: Iterable[Message]) -> None:
        self._close()
        self.messages += messages

    def _close(self) -> None:
        if self.answer:
            self.messages.append(responses.answer(self.answer))
            self.answer = []


def _with_role(data: Mapping[str, Any]) -> list[Message]:
    """Read a dict with a role: Anthropic's if it holds one of its blocks, else OpenAI's."""
    if anthropic.has_blocks(data) or anthropic.is_response(data):
        return anthropic.read_messages(data)
    return [Message.from_dict(data)]


def _inside(data: Mapping[str, Any]) -> Sequence[object]:
    """Return the messages of a whole response; refuse a value that is no message."""
    if isinstance(data.get("output"), Sequence) and data.get("object") == "response":
        return list(data["output"])
    for key, inner in (("choices", "message"), ("candidates", "content")):
        values = data.get(key)
        if isinstance(values, Sequence) and not isinstance(values, str):
            if len(values) != 1:
                raise InvalidInput(
                    f"a response with {len(values)} {key} is not one message; "
                    f"give the {inner} of one of them"
                )
            return [as_plain(values[0]).get(inner)]
    kind = data.get("type")
    if kind in _BLOCKS:
        role = "user" if kind == "tool_result" else "assistant"
        raise InvalidInput(
            f"this is a content block of type {kind!r}, not a message; "
            f"write {{'role': {role!r}, 'content': [...]}} around it"
        )
    if isinstance(kind, str):
        raise InvalidInput(f"an item of type {kind!r} cannot be read as a message")
    keys = sorted(map(str, data))
    raise InvalidInput(f"a message dict needs a 'role'; its keys are {shown(keys)}")
