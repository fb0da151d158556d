"""The conversations that are measured on: histories of recorded texts, and plain timelines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from muntin import Message, ToolCall, assistant, tool, user
from muntin.timeline.session import Session

TRACES = Path(__file__).parent.parent / "tests" / "data" / "airline-traces.jsonl"

# How long texts are. "recorded": as in the recorded conversations, whose tools answer in a few
# words (260 characters a message on average). "agent": as of agents that read files and search
# (some 1,100 on average); recorded texts are put together to these lengths, by turns.
TRAFFIC: dict[str, dict[str, tuple[int, ...]]] = {
    "recorded": {},
    "agent": {
        "user": (80, 160, 240, 400, 900),
        "assistant": (200, 400, 700, 1_200, 2_400),
        "tool": (400, 1_200, 2_500, 5_000, 9_000),
    },
}

Dict = dict[str, Any]


# Histories of real conversations, no text twice.


@cache
def _traces() -> list[list[Dict]]:
    lines = TRACES.read_text("utf-8").splitlines()
    return [json.loads(line)["messages"] for line in lines]


@cache
def _texts(role: str) -> str:
    """Return all that was recorded of a role, as one text."""
    messages = [message for trace in _traces() for message in trace]
    return "\n".join(m["content"] for m in messages if m["role"] == role and m["content"])


def _lengthen(text: str, role: str, number: int, traffic: str) -> str:
    """Return the text at the length this traffic has, filled up with others of its role."""
    lengths = TRAFFIC[traffic].get(role)
    if not lengths or not text:
        return text
    missing = max(0, lengths[number % len(lengths)] - len(text))
    start = 7_919 * number % max(1, len(_texts(role)) - missing)
    return text + _texts(role)[start : start + missing]


def _conversation(number: int, traffic: str) -> list[Dict]:
    """Return a recorded conversation without its system message, its texts and ids made unique."""
    trace = _traces()[number % len(_traces())]
    messages: list[Dict] = []
    call_id = ""
    for place, given in enumerate(trace[1:]):
        mark = f"{number}.{place}"
        role = given["role"]
        text = _lengthen(given.get("content") or "", role, 31 * number + place, traffic)
        message: Dict = {"role": role, "content": f"{text} ({mark})" if text else ""}
        if given.get("tool_calls"):
            function = given["tool_calls"][0]["function"]
            call_id = f"call_{mark}"
            arguments = json.dumps({**json.loads(function["arguments"]), "trace": mark})
            called = {"name": function["name"], "arguments": arguments}
            message["tool_calls"] = [{"id": call_id, "type": "function", "function": called}]
        elif role == "tool":
            message["tool_call_id"] = call_id
        messages.append(message)
    return messages


def history(size: int, traffic: str = "agent") -> list[Dict]:
    """Return a session of `size` messages; sessions of different sizes end alike."""
    newest_first: list[Dict] = []
    # From this conversation on, one in five is a tool result in the newest hundred too.
    for number in count(16):
        newest_first += reversed(_conversation(number, traffic))
        if len(newest_first) >= size - 1:
            break
    messages = newest_first[size - 2 :: -1]
    if messages[0]["role"] == "tool":  # its call was cut off
        messages[0] = {"role": "user", "content": messages[0]["content"]}
    return [_traces()[0][0], *messages]


def exchanges(traffic: str = "agent") -> Iterator[list[Dict]]:
    """Yield one exchange after another, a question and its answer, no text twice."""
    for number in count(1_000_000):
        said = {"user": f"And what about booking {number}?", "assistant": f"Booking {number}: yes."}
        yield [
            {"role": role, "content": _lengthen(text, role, number, traffic)}
            for role, text in said.items()
        ]


# Timelines of turns with a tool call, as long as wanted.

TEXT = "The flight from Boston to Seattle on May 20 is full; the next one leaves at 11:35. " * 4


def turn(number: int) -> list[Message]:
    """Return one turn: a question, a call, its result, an answer."""
    call = ToolCall(f"call-{number}", "search_flights", f'{{"origin":"BOS","day":{number}}}')
    return [
        user(f"{number}: {TEXT[:120]}"),
        assistant(tool_calls=[call]),
        tool(call.id, f"{number}: {TEXT}"),
        assistant(f"{number}: {TEXT[:200]}"),
    ]


def fill(session: Session, items: int) -> None:
    """Append turns until the session has so many items."""
    turns = items // 4
    for start in range(0, turns, 500):
        batch = [m for n in range(start, min(start + 500, turns)) for m in turn(n)]
        session.append(*batch)
