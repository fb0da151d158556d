"""Messages as OpenAI's Responses API writes them: items, of which one answer has several.

https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.checks import shown
from muntin.core.message import Message
from muntin.core.parts import (
    Image,
    Other,
    Part,
    Reasoning,
    Text,
    ToolCall,
    as_plain,
    joined,
    part_from_dict,
    put_before,
)
from muntin.errors import InvalidInput

# Items that the model made with tools that run at OpenAI; the API takes them back unchanged.
ITEMS = frozenset(
    {
        "apply_patch_call",
        "code_interpreter_call",
        "compaction",
        "computer_call",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "mcp_approval_request",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
RESULTS = ("function_call_output", "custom_tool_call_output")
# Calls, and the field of their arguments.
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
# Calls of OpenAI's own tools that the app runs, by the types of the app's answers.
_OWN = {
    f"{call}_output": call
    for call in ("apply_patch_call", "computer_call", "local_shell_call", "shell_call")
}
# The items of an answer; consecutive ones are one answer.
OUTPUTS = frozenset({*ITEMS, *CALLS, "reasoning", "message"})


def is_output(data: Mapping[str, Any]) -> bool:
    """Say whether an item is part of a model's answer."""
    if data.get("type") != "message":
        return data.get("type") in OUTPUTS
    content = data.get("content")
    if data.get("role") != "assistant" or isinstance(content, str) or "stop_reason" in data:
        return False
    kinds = [as_plain(part).get("type") for part in content or ()]
    return all(kind in ("output_text", "refusal") for kind in kinds)


def check(item: Mapping[str, Any]) -> None:
    """Refuse an item of an answer that lacks a field needed for reading."""
    kind = item["type"]
    needed = ["id"] if kind == "reasoning" else ["content"] if kind == "message" else []
    if kind in CALLS:
        needed = ["call_id", "name", CALLS[kind]]
    for key in needed:
        if item.get(key) is None:
            raise InvalidInput(f"an item of type {kind!r} needs {key!r}: {shown(dict(item))}")


def as_input(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message item of the user or the system as a dict without the API's own fields."""
    rest = {k: v for k, v in data.items() if k not in ("type", "id", "status")}
    return rest if data.get("id") is None else {**rest, "item_id": data["id"]}


def result(item: Mapping[str, Any]) -> Message:
    """Read the output of a call."""
    call_id = item.get("call_id")
    if not isinstance(call_id, str):
        raise InvalidInput(
            f"an item of type {item['type']!r} needs a 'call_id': {shown(dict(item))}"
        )
    output = item.get("output")
    if isinstance(output, Sequence) and not isinstance(output, str):
        output = tuple(part_from_dict(each) for each in output)
    known = ("type", "call_id", "output", "id", "status")
    extra = {k: v for k, v in item.items() if k not in known and v is not None}
    return Message("tool", output, tool_call_id=call_id, extra=extra or None)


def own_result(item: Mapping[str, Any]) -> Message | None:
    """Read an app's answer to a call of one of OpenAI's own tools; None if it is no such item.

    A screenshot cannot be written as text: it stays whole.
    """
    call_id, output = item.get("call_id"), item.get("output")
    if item.get("type") not in _OWN or not isinstance(call_id, str):
        return None
    if isinstance(output, Mapping):
        shot = Image(str(output.get("image_url") or ""))
        return Message("tool", (shot, Other({"type": "unread", "value": ""})), tool_call_id=call_id)
    if isinstance(output, Sequence) and not isinstance(output, str):
        streams = [each.get(key) for each in output for key in ("stdout", "stderr")]
        output = "\n".join(each for each in streams if each)
    return Message("tool", output, tool_call_id=call_id)


def shorter_output(item: Mapping[str, Any], text: str | None) -> Any:
    """Return the output of a result with another text, in the form of its type."""
    given = item.get("output")
    if item.get("type") == "shell_call_output" and isinstance(given, Sequence) and given:
        return [{**as_plain(given[-1]), "stdout": text, "stderr": ""}]
    return text


def with_own_calls(message: Message, answered: Collection[str]) -> Message:
    """Return an answer with the calls of OpenAI's own tools that these ids answer, so that calls
    and results stay together."""
    content = message.content if isinstance(message.content, tuple) else ()
    held = [part.data for part in content if isinstance(part, Other)]
    own = [
        ToolCall(each["call_id"], each["type"], "")
        for each in held
        if each["type"] in _OWN.values() and each.get("call_id") in answered
    ]
    return replace(message, tool_calls=(*message.tool_calls, *own)) if own else message


def own_answered(items: Iterable[Any]) -> frozenset[str]:
    """Return the ids of the calls of OpenAI's own tools that these items answer."""
    found = (as_plain(item) for item in items)
    return frozenset(
        item["call_id"]
        for item in found
        if isinstance(item, Mapping) and own_result(item) is not None
    )


def result_type(call: ToolCall) -> str:
    """Return the type of the item that answers a call."""
    custom = (call.extra or {}).get("type") == "custom"
    return "custom_tool_call_output" if custom else "function_call_output"


def answer(items: Sequence[Mapping[str, Any]], error: Any = None) -> Message:
    """Read the items of one answer."""
    # Ids of items are needed only beside the reasoning with which they must be sent.
    named = any(item.get("type") == "reasoning" for item in items)
    parts: list[Part] = []
    calls: list[ToolCall] = []
    placed: list[int] = []
    for item in items:
        kind = item.get("type")
        start = len(parts)
        if kind in CALLS:
            calls.append(call(item, named))
            for index in placed:  # the part stood between two calls
                parts[index] = put_before(parts[index], calls[-1].id)
            placed = []
            continue
        if kind == "message":
            parts += [_text(as_plain(part), item, named) for part in item["content"]]
        elif kind == "reasoning":
            parts.append(_reasoning(item))
        else:
            parts.append(Other(item))
        if calls:
            placed += range(start, len(parts))
    extra = {"error": error} if error else None
    return Message("assistant", joined(parts), tool_calls=tuple(calls), extra=extra)


def call(item: Mapping[str, Any], named: bool) -> ToolCall:
    """Read a call; with `named` the id of its item is kept."""
    custom = item["type"] == "custom_tool_call"
    extra = {"type": "custom"} if custom else {}
    if named and item.get("id"):
        extra["item_id"] = item["id"]
    if item.get("namespace"):
        extra["namespace"] = item["namespace"]
    body = item[CALLS[item["type"]]]
    return ToolCall(item["call_id"], item["name"], body, extra=extra or None)


def _text(part: Mapping[str, Any], item: Mapping[str, Any], named: bool) -> Part:
    if part.get("type") != "output_text":
        return Other(part)
    extra: dict[str, Any] = {"item_id": item.get("id")} if named else {}
    extra["phase"] = item.get("phase")
    extra["annotations"] = part.get("annotations")
    if named and item.get("status") != "completed":
        extra["status"] = item.get("status")
    extra = {key: value for key, value in extra.items() if value}
    return Text(part["text"], extra=extra or None)


def _reasoning(item: Mapping[str, Any]) -> Reasoning:
    summary, content = list(item.get("summary") or ()), list(item.get("content") or ())
    text = "\n\n".join(each["text"] for each in content or summary)
    extra = {"id": item["id"], "summary": summary}
    if content:
        extra["content"] = content
    return Reasoning(text, signature=item.get("encrypted_content"), extra=extra)
