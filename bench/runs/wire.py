"""An encoded request as lines: what the provider hashes, piece by piece, in the order it is sent.

A line is a tool, a system text, or one block of a message, written as JSON without cache marks.
Equal lines are identical bytes. Tokens are counted over these lines with o200k_base, by the rule
of OpenAI's cookbook: the texts, and four for each message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from bench.runs.rules import blocks_of
from muntin.core.counting.exact import openai_tokenizer

ENCODING = openai_tokenizer("o200k_base")
FRAME = 4
_MARKS = ("cache_control", "prompt_cache_breakpoint")


@dataclass(frozen=True)
class Line:
    """One piece of a request."""

    text: str
    tokens: int
    source: str
    """`tools`, `system` or `history`."""
    message: int
    said: str = ""
    """The text of the block itself; of a result, what the tool returned."""
    result: str = ""
    """The id of the call, if this is its result."""
    marked: bool = field(default=False, compare=False)


def lines(rules: str, request: Mapping[str, Any]) -> list[Line]:
    """Return the lines of a request."""
    found = [_tool(schema) for schema in request.get("tools") or ()]
    system = blocks_of(request.get("system"))
    found += [_line("system", -1, "system", block, first=True) for block in system]
    for place, message in enumerate(request["messages"]):
        source = "system" if message["role"] == "system" else "history"
        parts = list(_parts(rules, message))
        for number, part in enumerate(parts):
            found.append(_line(source, place, message["role"], part, first=not number))
    return found


def _parts(rules: str, message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a message is made of; calls of OpenAI's form are one part."""
    if rules == "openai" and message["role"] == "tool":
        content = message["content"]
        yield {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
        return
    yield from blocks_of(message.get("content"))
    if message.get("tool_calls"):
        yield {"type": "tool_calls", "tool_calls": message["tool_calls"]}


def _tool(schema: Mapping[str, Any]) -> Line:
    plain = {key: value for key, value in schema.items() if key not in _MARKS}
    text = _json(plain)
    return Line(text, count(text) + FRAME, "tools", -1, marked=len(plain) < len(schema))


def _line(source: str, place: int, role: str, block: dict[str, Any], *, first: bool) -> Line:
    plain = {key: value for key, value in block.items() if key not in _MARKS}
    said = _said(plain)
    result = plain.get("tool_use_id", "") if plain["type"] == "tool_result" else ""
    text = _json({"role": role, **plain} if first else plain)
    tokens = sum(map(count, _texts(plain))) + FRAME * first
    marked = len(plain) < len(block)
    return Line(text, tokens, source, place, said, result, marked)


def _said(block: Mapping[str, Any]) -> str:
    """Return the text of a block that a model reads: no ids, no types."""
    kind = block["type"]
    if kind == "text":
        return str(block["text"])
    if kind == "tool_result":
        content = block.get("content") or ""
        return content if isinstance(content, str) else "".join(map(_said, content))
    if kind == "tool_calls":
        functions = [call["function"] for call in block["tool_calls"]]
        return "\n".join(f"{function['name']} {function['arguments']}" for function in functions)
    if kind == "tool_use":
        return f"{block['name']} {_json(block['input'])}"
    return _json(block)


def _texts(block: Mapping[str, Any]) -> list[str]:
    """Return the texts of a block that are counted, each by itself: no space between them."""
    if block["type"] == "tool_calls":
        functions = [call["function"] for call in block["tool_calls"]]
        return [part for call in functions for part in (call["name"], call["arguments"])]
    if block["type"] == "tool_use":
        return [block["name"], _json(block["input"])]
    return [_said(block)]


@lru_cache(maxsize=20_000)
def count(text: str) -> int:
    """Count the tokens of a text."""
    return ENCODING.count(text)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shared(before: Sequence[Line], after: Sequence[Line]) -> float:
    """Return how much of a request the next one begins with, as a share of its characters."""
    whole = sum(len(line.text) for line in before)
    same = 0
    for one, other in zip(before, after, strict=False):
        if one.text == other.text:
            same += len(one.text)
            continue
        same += _common(one.text, other.text)
        break
    return same / whole if whole else 1.0


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
