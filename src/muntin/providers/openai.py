"""OpenAI Chat Completions: a window as the keyword arguments of the official call.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from muntin.core.message import NO_RESULT, Message, tool
from muntin.core.parts import Reasoning, Text, part_to_dict
from muntin.core.tokens import file_hint
from muntin.core.window import Window
from muntin.errors import BudgetExceeded


def encode(window: Window, *, strict: bool = True) -> dict[str, Any]:
    """Return `messages` (and `tools`, if any) for `client.chat.completions.create(...)`.

    Results stand right after their calls; a call without one gets a fixed result. Attachments
    are named by a `File: name` line. Reasoning parts are left out: this API takes none.
    """
    if strict and window.over_budget:
        raise BudgetExceeded(window.tokens, window.report.budget, window.report)
    encoded = [_encode(message) for message in _in_order(window.messages)]
    # A message whose parts this API cannot carry has nothing left; a result stays, though empty.
    sent = [m for m in encoded if m["content"] or m.get("tool_calls") or m["role"] == "tool"]
    request: dict[str, Any] = {"messages": sent}
    if window.tools:
        request["tools"] = [dict(schema) for schema in window.tools]
    return request


def _in_order(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with each call's results, or the fixed one, right behind it."""
    open_calls: dict[str, int] = {}
    results: dict[tuple[int, str], Message] = {}
    for index, message in enumerate(messages):
        if message.tool_call_id in open_calls:
            results[open_calls.pop(message.tool_call_id), message.tool_call_id] = message
        open_calls.update((call.id, index) for call in message.tool_calls)
    answers = {id(message) for message in results.values()}
    for index, message in enumerate(messages):
        if id(message) not in answers:
            yield message
            for call in message.tool_calls:
                yield results.get((index, call.id)) or tool(call.id, NO_RESULT)


def _encode(message: Message) -> dict[str, Any]:
    data = message.to_dict()
    data.pop("at", None)
    data.pop("attachments", None)
    if message.role == "tool" and message.tool_call_id is None:
        data["role"] = "user"  # a result of nothing: the API would refuse it
    content = message.content
    if isinstance(content, tuple):
        carried = [p for p in content if not isinstance(p, Reasoning)]
        data["content"] = [part_to_dict(p) for p in carried]
    hints = [file_hint(item.name) for item in message.attachments]
    if hints:
        if isinstance(content, tuple):
            data["content"].append(part_to_dict(Text("\n".join(hints))))
        else:
            data["content"] = "\n".join([content, *hints] if content else hints)
    if data["content"] == []:  # the API refuses an empty list
        data["content"] = None if message.tool_calls else ""
    return data
