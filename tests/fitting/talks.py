"""Lists of messages as apps send them: random ones for properties, and long ones that grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from muntin.fitting import FittedMessages, fit
from tests.wire.rules import check_anthropic, check_chat

WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "elitr", "sed", "diam", "nonumy", "eirmod")


def words(count: int, seed: int = 0) -> str:
    return " ".join(WORDS[(seed + n * 7) % len(WORDS)] for n in range(count))


def chat_call(call_id: str, arguments: str = '{"n": 1}', text: str | None = None) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def chat_result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def growing(
    turns: int, steps: int = 3, *, result: int = 200, asked: int = 30
) -> Iterator[list[dict[str, Any]]]:
    """Yield one list before each request of a long conversation with tools; it only grows."""
    talk: list[dict[str, Any]] = [{"role": "system", "content": "You are a clerk."}]
    for turn in range(turns):
        talk.append({"role": "user", "content": f"question {turn} {words(asked, turn)}"})
        yield talk
        for step in range(steps):
            name = f"call_{turn}_{step}"
            talk += [chat_call(name), chat_result(name, f"seen {name} {words(result, step)}")]
            yield talk
        talk.append({"role": "assistant", "content": f"answer {turn} {words(20, turn)}"})


def as_anthropic(talk: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a list of Chat Completions in Anthropic's form, without its system messages."""
    found: list[dict[str, Any]] = []
    for each in talk:
        role, content = each["role"], each.get("content")
        if role == "tool":
            block = {"type": "tool_result", "tool_use_id": each["tool_call_id"], "content": content}
            results = found[-1]["content"] if found and found[-1]["role"] == "user" else None
            if isinstance(results, list):
                results.append(block)
            else:
                found.append({"role": "user", "content": [block]})
        elif each.get("tool_calls"):
            blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
            for call in each["tool_calls"]:
                given = json.loads(call["function"]["arguments"])
                name = call["function"]["name"]
                blocks.append({"type": "tool_use", "id": call["id"], "name": name, "input": given})
            found.append({"role": role, "content": blocks})
        elif role != "system":
            found.append({"role": role, "content": content})
    return found


def check_chat_list(messages: Sequence[Any]) -> None:
    """Check that Chat Completions takes a list."""
    check_chat({"messages": [dict(each) for each in messages]})


def check_anthropic_list(messages: Sequence[dict[str, Any]]) -> None:
    """Check that Anthropic takes a list: the API joins messages of one role that follow."""
    turns: list[dict[str, Any]] = []
    for each in messages:
        content = each["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if turns and turns[-1]["role"] == each["role"]:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": each["role"], "content": list(blocks)})
    check_anthropic({"messages": turns})


texts = st.integers(1, 60).flatmap(lambda n: st.integers(0, 9).map(lambda s: words(n, s)))


@st.composite
def talks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Make a conversation of Chat Completions: some calls are not answered, some answered by
    several, some results answer nothing."""
    found: list[dict[str, Any]] = []
    if draw(st.booleans()):
        found.append({"role": "system", "content": draw(texts)})
    number = 0
    for _ in range(draw(st.integers(1, 12))):
        found.append({"role": "user", "content": draw(texts)})
        for _ in range(draw(st.integers(0, 4))):
            names = [f"call_{number}_{n}" for n in range(draw(st.integers(1, 3)))]
            number += 1
            calls = [chat_call(name)["tool_calls"][0] for name in names]
            for call in calls:
                if draw(st.integers(0, 5)) == 0:
                    call["function"]["arguments"] = json.dumps({"text": words(150)})
            text = draw(st.none() | texts)
            found.append({"role": "assistant", "content": text, "tool_calls": calls})
            answered = [name for name in names if draw(st.integers(0, 9))]
            found += [chat_result(name, draw(texts) * draw(st.integers(1, 9))) for name in answered]
            if draw(st.integers(0, 19)) == 0:
                found.append(chat_result("of nothing", "lost"))
        if draw(st.booleans()):
            found.append({"role": "assistant", "content": draw(texts)})
    return found


def requests(talk: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the lists of the requests of a conversation: each ends with what is answered."""
    for end in range(1, len(talk) + 1):
        following = talk[end]["role"] if end < len(talk) else None
        if talk[end - 1]["role"] in ("user", "tool") and following != "tool":
            yield talk[:end]


def run(talk: Sequence[Any], budget: int, **given: Any) -> list[FittedMessages]:
    """Fit all requests of a conversation, each after the one before."""
    found: list[FittedMessages] = []
    previous: dict[str, Any] = {}
    for each in requests(talk):
        found.append(fit(each, budget, previous=previous, **given))
        previous = json.loads(json.dumps(found[-1].frontier))
    return found
