"""The shared beginning of two requests, measured from what is sent and from nothing else.

It reads the encoded requests as a provider hashes them: tools, system text, messages, each cut
into the blocks it is made of. Breakpoints are no part of what is hashed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

# A block: what tells its bytes from others', and the text that costs tokens.
Block = tuple[str, str]

_MARKS = ("cache_control", "prompt_cache_breakpoint")


def shared(now: Mapping[str, Any], before: Mapping[str, Any], *, within: bool) -> int:
    """Return the characters of the blocks that two requests begin with.

    With `within`, also of the text at which they part: a provider that caches by itself goes by
    tokens, not by blocks.
    """
    tokens = 0
    for new, old in zip(blocks(now), blocks(before), strict=False):
        if new == old:
            tokens += len(new[1])
            continue
        if within and new[0].split("\0")[0] == old[0].split("\0")[0]:
            tokens += common(new[1], old[1])
        break
    return tokens


def common(new: str, old: str) -> int:
    both = zip(new, old, strict=False)
    return next((n for n, (a, b) in enumerate(both) if a != b), min(len(new), len(old)))


def blocks(request: Mapping[str, Any]) -> list[Block]:
    """Cut a request of any of the four APIs into blocks."""
    if "contents" in request:
        return list(_google(request))
    if "input" in request:
        return [*_tools(request), *(b for item in request["input"] for b in _item(item))]
    return [
        *_tools(request),
        *(b for block in request.get("system", ()) for b in _block("system", block)),
        *(b for message in request["messages"] for b in _message(message)),
    ]


def _tools(request: Mapping[str, Any]) -> Iterator[Block]:
    for tool in request.get("tools", ()):
        yield f"tool\0{_json(tool)}", _json(tool.get("function", tool).get("name"))


def _message(message: Mapping[str, Any]) -> Iterator[Block]:
    content, role = message["content"], message["role"]
    if role == "tool":
        role = f"tool {message['tool_call_id']}"
    if isinstance(content, str):
        yield f"{role}\0{content}", content
    else:
        for block in content or ():
            yield from _block(role, block)
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield f"call\0{_json(call)}", function["name"] + function["arguments"]


def _item(item: Mapping[str, Any]) -> Iterator[Block]:
    if "role" in item:
        yield from _message(item)
    elif item["type"] == "function_call":
        yield f"call\0{_json(item)}", item["name"] + item["arguments"]
    else:
        yield from _message({"role": f"tool {item['call_id']}", "content": item["output"]})


def _block(role: str, block: Mapping[str, Any]) -> Iterator[Block]:
    if block["type"] in ("text", "input_text"):
        yield f"{role}\0{block['text']}", block["text"]
    elif block["type"] == "tool_use":
        yield f"call\0{_json(block)}", block["name"] + _json(block["input"])
    elif block["type"] == "tool_result":
        text = block.get("content", "")
        yield f"tool {block['tool_use_id']}\0{text}", text
    else:
        raise AssertionError(f"a block of type {block['type']!r} is not measured")


def _google(request: Mapping[str, Any]) -> Iterator[Block]:
    config = request["config"]
    for tool in config.get("tools", ()):
        for each in tool["function_declarations"]:
            yield f"tool\0{_json(each)}", _json(each["name"])
    for part in config.get("system_instruction", {}).get("parts", ()):
        yield f"system\0{part['text']}", part["text"]
    for content in request["contents"]:
        for part in content["parts"]:
            if "function_call" in part:
                call = part["function_call"]
                yield f"call\0{_json(call)}", call["name"] + _json(call["args"])
            elif "function_response" in part:
                answer = part["function_response"]
                yield f"tool {answer['id']}\0{_json(answer)}", answer["response"]["output"]
            else:
                yield f"{content['role']}\0{part['text']}", part["text"]


def _json(value: Any) -> str:
    if isinstance(value, Mapping):
        value = {key: each for key, each in value.items() if key not in _MARKS}
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
