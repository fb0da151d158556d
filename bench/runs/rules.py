"""Whether a request is one that the provider takes: the vendors' written rules, and nothing else.

Shares no code with Muntin. https://platform.openai.com/docs/api-reference/chat/create and
https://docs.claude.com/en/api/messages are what it holds requests against.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Request = Mapping[str, Any]


def faults(rules: str, request: Request) -> list[str]:
    """Return what is wrong with a request, in words; nothing if it is valid."""
    return list(_CHECKS[rules](request))


def _chat(request: Request) -> Iterator[str]:
    messages = request.get("messages") or ()
    if not messages:
        yield "there is no message"
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        if role == "tool":
            if message["tool_call_id"] in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                yield f"message {place}: a result without its call"
            if content is None:
                yield f"message {place}: a result without content"
            continue
        if waiting:
            yield f"message {place}: calls before it have no result"
            waiting = []
        called = [call["id"] for call in message.get("tool_calls") or ()]
        if not content and not called:
            yield f"message {place}: is empty"
        if called and role != "assistant":
            yield f"message {place}: only the assistant calls"
        if seen.intersection(called) or len(set(called)) < len(called):
            yield f"message {place}: an id comes twice"
        seen.update(called)
        waiting += called
    if waiting:
        yield "the last calls have no result"


def _anthropic(request: Request) -> Iterator[str]:
    messages = combined(request.get("messages") or ())
    if not messages:
        yield "there is no message"
        return
    if messages[0]["role"] != "user":
        yield "the first message is not the user's"
    called: Sequence[str] = ()
    seen: set[str] = set()
    for place, message in enumerate(messages):
        blocks = message["content"]
        if not blocks or any(b["type"] == "text" and not b["text"].strip() for b in blocks):
            yield f"message {place}: is empty, or has an empty text"
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if sorted(answered) != sorted(called):
            yield f"message {place}: its results are not those of the calls before it"
        if any(block["type"] != "tool_result" for block in blocks[: len(answered)]):
            yield f"message {place}: results stand first"
        called = [b["id"] for b in blocks if b["type"] == "tool_use"]
        if called and message["role"] != "assistant":
            yield f"message {place}: only the assistant calls"
        if seen.intersection(called):
            yield f"message {place}: an id comes twice"
        seen.update(called)
    if called:
        yield "the last calls have no result"


def combined(messages: Sequence[Request]) -> list[dict[str, Any]]:
    """Return messages as the provider reads them: neighbours of one role are one."""
    results: list[dict[str, Any]] = []
    for message in messages:
        blocks = blocks_of(message["content"])
        if results and results[-1]["role"] == message["role"] and blocks:
            results[-1]["content"] += blocks
        else:
            results.append({"role": message["role"], "content": blocks})
    return results


def blocks_of(content: Any) -> list[Any]:
    """Return a message's content as a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


_CHECKS = {"openai": _chat, "anthropic": _anthropic}
