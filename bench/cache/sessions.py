"""The sessions that are replayed: what was said, what was retrieved, how long users take."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

from muntin import Message, Profile, assistant, system, tool, user
from muntin.core.counting.counter import Counter
from muntin.core.counting.exact import openai_tokenizer
from muntin.core.parts import ToolCall
from muntin.simulator.replay import RETRIEVAL_RATIO, trace_of
from muntin.simulator.run import Pause, Replay

TRACES = Path(__file__).parents[2] / "tests" / "data" / "airline-traces.jsonl"
MODELS = ("anthropic/claude-sonnet-4-5", "openai/gpt-5")
TOKENIZER = openai_tokenizer("o200k_base")
BUDGET = 32_000
USUAL = "30 s"
LONG = 1_000


@cache
def _traces() -> list[list[dict[str, Any]]]:
    lines = TRACES.read_text("utf-8").splitlines()
    return [json.loads(line)["messages"] for line in lines]


@cache
def _words() -> list[str]:
    return "\n".join(m["content"] or "" for trace in _traces() for m in trace[1:]).split()


def recorded(turns: int) -> list[Message]:
    """Return recorded conversations, one after another, no text twice, with so many turns."""
    messages = [Message.from_dict(_traces()[0][0])]
    opened = 0
    for number in count():
        for given in _traces()[number % len(_traces())][1:]:
            message = {**given, "content": f"{given['content']} ({number})"}
            opened += given["role"] == "user" and messages[-1].role != "user"
            if opened > turns:
                return messages
            messages.append(Message.from_dict(message))
    raise AssertionError


def agent(turns: int, tokens: int = 1_500) -> list[Message]:
    """Return an agent's session: a request, three tool calls and an answer, `tokens` a turn."""
    words = _words()
    chance = random.Random(7)

    def text(size: float) -> str:
        start = chance.randrange(len(words) - 2 * int(size))
        taken = words[start : start + int(size)]
        while TOKENIZER.count(" ".join(taken)) > size:
            taken = taken[: len(taken) * 49 // 50]
        return " ".join(taken)

    messages = [system(text(1_200))]
    for turn in range(turns):
        messages.append(user(f"{turn}: {text(60)}"))
        share = (tokens - 250) / 3
        for number in range(3):
            call = ToolCall(f"{turn}.{number}", "search", json.dumps({"query": text(24)}))
            messages.append(assistant(tool_calls=[call]))
            messages.append(tool(call.id, text(share * chance.uniform(0.5, 1.5))))
        messages.append(assistant(text(100)))
    return messages


def schemas(number: int = 20) -> tuple[dict[str, Any], ...]:
    """Return the schemas of an agent's tools."""
    fields = ("name of the person", "date of the flight", "number of the booking", "class of seat")
    about = "The {} that is meant, as the user wrote it."
    properties = {
        field.replace(" ", "_"): {"type": "string", "description": about.format(field)}
        for field in fields
    }
    described = "Look something up in the records and return what was found, newest first."
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:2]}
    return tuple(
        {
            "type": "function",
            "function": {"name": f"look_{n}", "description": described, "parameters": parameters},
        }
        for n in range(number)
    )


def retrieved(turns: int, room: int) -> tuple[str, ...]:
    """Return a text a turn, of random size up to a quarter of the room."""
    words = _words()
    sizes = [TOKENIZER.count(f" {word}") for word in words]
    chance = random.Random(11)
    texts = []
    for turn in range(turns):
        start, left = chance.randrange(len(words)), chance.uniform(0, RETRIEVAL_RATIO * room) - 30
        taken = [f"({turn})"]
        while left > 0:
            taken.append(words[start % len(words)])
            left -= sizes[start % len(words)]
            start += 1
        texts.append(" ".join(taken))
    return tuple(texts)


def mixed(turns: int, median: float = 60, spread: float = 1.0) -> tuple[float, ...]:
    """Return how long a person takes, turn by turn: log-normal, so that most answers come within
    a minute or two, and one in twenty after more than five."""
    chance = random.Random(13)
    return tuple(median * chance.lognormvariate(0, spread) for _ in range(turns))


def pauses(turns: int) -> dict[str, Pause]:
    """Return all pauses between two turns that are measured, by name."""
    return {USUAL: 30, "1 min": 60, "2 min": 120, "3 min": 180, "4 min": 240, "mixed": mixed(turns)}


@dataclass(frozen=True)
class Session:
    """A session to replay: its messages, and how requests are made of it.

    Without `peers`, only prompt-poet and the optimum are measured beside Muntin. A `variant` is a
    setting that nobody asked for.
    """

    name: str
    messages: list[Message]
    steps: bool = False
    volatile: tuple[str, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    budget: int = BUDGET
    pauses: dict[str, Pause] = field(default_factory=lambda: {USUAL: 30})
    peers: bool = True
    variant: bool = False

    @property
    def long(self) -> bool:
        """Whether it is of the size that the aims are meant for."""
        return self.budget == BUDGET and len(self.messages) > LONG

    def replay(self, model: str) -> Replay:
        """Return the session, made ready for the rules of a model."""
        profile = Profile.for_model(model)
        assert profile.caching is not None
        assert profile.caching.read == 0.1
        return Replay(
            trace_of(self.messages, self.volatile),
            self.budget,
            profile=profile,
            rules=profile.caching,
            tokenizer=TOKENIZER,
            steps=self.steps,
            tools=self.tools,
            ladder=None,  # all policies drop; bench/long_runs.py measures the ladder
        )


def sessions(
    turns: int, budget: int, waits: Sequence[str] = (), names: Sequence[str] = ()
) -> list[Session]:
    """Return the sessions of so many turns with these names, or all; those with retrieval are
    measured with these pauses, or with all there are."""
    chat, tools = recorded(turns), agent(turns)
    room = budget - Counter(TOKENIZER).tools(schemas())
    given = {name: wait for name, wait in pauses(turns).items() if not waits or name in waits}
    chats, agents = partial(Session, messages=chat), partial(Session, messages=tools)
    found = [
        chats("recorded"),
        agents("agent", tools=schemas()),
        agents("agent, steps", steps=True, tools=schemas()),
        chats("recorded, retrieval", volatile=retrieved(turns, budget), pauses=given),
        agents("agent, retrieval", tools=schemas(), volatile=retrieved(turns, room), pauses=given),
        chats("recorded, steps", steps=True, variant=True),
        agents("agent, no tool schemas", peers=False, variant=True),
    ]
    return [replace(each, budget=budget) for each in found if not names or each.name in names]
