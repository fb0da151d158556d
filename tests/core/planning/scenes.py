"""Larger random windows, and a count of them from scratch.

`MUNTIN_EXAMPLES` sets how many examples each property draws.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from muntin import (
    Attachment,
    Input,
    Message,
    Reasoning,
    Slots,
    Text,
    ToolCall,
    Window,
    assistant,
    tool,
    user,
)
from muntin.core.message import Role
from muntin.core.report import SlotReport

EXAMPLES = int(os.environ.get("MUNTIN_EXAMPLES", "120"))
FILE_TOKENS = {"document": 7, "image": 5, "audio": 3, "video": 2}
NO_RESULT = "(no result was recorded)"
OMITTED = "(earlier messages omitted)"

many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass(frozen=True)
class Counting:
    """A tokenizer made of a function."""

    name: str
    function: Callable[[str], int]
    message_overhead: int = 0

    def count(self, text: str) -> int:
        return self.function(text)


TOKENIZERS: dict[str, Counting | str] = {
    "characters": Counting("characters", len),
    "characters and 3 a message": Counting("characters+3", len, 3),
    "words": Counting("words", lambda text: len(text.split()), 1),
    "chars/4": "chars/4",
    "jagged": Counting("jagged", lambda text: len(text) // 2 + (5 if len(text) % 3 == 1 else 0)),
    "wild": Counting("wild", lambda text: zlib.crc32(text.encode()) % 23, 1),
}
STEADY = ("characters", "characters and 3 a message")


def count_text(tokenizer: Any, text: str) -> int:
    return -(-len(text) // 4) if tokenizer == "chars/4" else int(tokenizer.count(text))


def overhead(tokenizer: Any) -> int:
    return getattr(tokenizer, "message_overhead", 0)


def recount(messages: Sequence[Message], tokenizer: Any, *, user_first: bool = False) -> int:
    """Count a window from scratch, with all that the wire adds."""
    total = 0
    answered = {message.tool_call_id for message in messages}
    for message in messages:
        total += overhead(tokenizer)
        if isinstance(message.content, str):
            total += count_text(tokenizer, message.content)
        for part in message.content if isinstance(message.content, tuple) else ():
            assert isinstance(part, Text | Reasoning)
            total += count_text(tokenizer, part.text)
        for call in message.tool_calls:
            total += count_text(tokenizer, call.name) + count_text(tokenizer, call.arguments)
            if call.id not in answered:
                total += overhead(tokenizer) + count_text(tokenizer, NO_RESULT)
        for item in message.attachments:
            total += FILE_TOKENS[item.modality] + count_text(tokenizer, f"File: {item.name}")
        if message.name:
            total += count_text(tokenizer, message.name)
    roles = [message.role for message in messages if message.role != "system"]
    if user_first and roles and roles[0] != "user":
        total += overhead(tokenizer) + count_text(tokenizer, OMITTED)
    return total


# -- larger windows --------------------------------------------------------------------------


@dataclass
class Scene:
    """What was given: slots as (name, content, options), and everything `Slots` takes."""

    budget: int
    tokenizer: str
    adds: list[tuple[str, Any, dict[str, Any]]]
    options: dict[str, Any] = field(default_factory=dict)

    def slots(self, budget: int | None = None) -> Slots:
        slots = Slots(
            self.budget if budget is None else budget,
            tokenizer=TOKENIZERS[self.tokenizer],
            attachment_tokens=FILE_TOKENS,
            results=None,
            **self.options,
        )
        for name, content, options in self.adds:
            slots.add(name, content, run=False, **options)
        return slots

    def window(self, budget: int | None = None) -> Window:
        return self.slots(budget).render()

    def given(self, index: int) -> list[Message]:
        """The messages of one slot as they were given."""
        name, content, _ = self.adds[index]
        role: Role = "system" if name == "system" else "user"
        if isinstance(content, str):
            return [Message(role, content)] if content else []
        if isinstance(content, Input):
            return [Message(role, content.text, attachments=content.attachments)]
        return [m if isinstance(m, Message) else Message.from_dict(m) for m in content]


WORDS = st.sampled_from(
    [
        "a",
        "to",
        "fit",
        "this",
        "window",
        "context",
        "e\u0301clair",
        "日本語",
        "👩\u200d🚀",
        "\n\n",
        "🇩🇪🇫🇷",
    ]
)
TEXTS = st.lists(WORDS, max_size=8).map(" ".join)
FILES = st.builds(
    Attachment,
    st.just("id"),
    st.sampled_from(["a.pdf", "photo.png"]),
    st.just(10),
    st.sampled_from(sorted(FILE_TOKENS)),
)


class Numbers:
    """Gives every message a number in `extra`, by which it is known again after a cut."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self, message: Message) -> Message:
        self.last += 1
        return replace(message, extra={"number": self.last})


def number(message: Message) -> int:
    return int((message.extra or {"number": 0})["number"])


@st.composite
def histories(draw: st.DrawFn, numbers: Numbers, waiting: list[str]) -> list[Any]:
    """Messages with tool groups, orphans, pending calls, parts, attachments; some as dicts."""
    found: list[Message] = []
    for _ in range(draw(st.integers(0, 10))):
        kind = draw(st.sampled_from("uuuaaascctollpf"))
        text = draw(TEXTS)
        if kind == "c":
            ids = [f"c{numbers.last}.{n}" for n in range(draw(st.integers(1, 3)))]
            calls = [ToolCall(i, "look", {"q": draw(WORDS)}) for i in ids]  # type: ignore[arg-type]
            found.append(numbers(assistant(draw(st.none() | TEXTS), tool_calls=calls)))
            for call_id in ids:
                if draw(st.integers(0, 4)):
                    found.append(numbers(tool(call_id, draw(TEXTS))))
                else:
                    waiting.append(call_id)
        elif kind == "l" and waiting:
            found.append(numbers(tool(waiting.pop(), text)))
        elif kind == "o":
            found.append(numbers(tool(f"o{numbers.last}", text)))
        elif kind == "t":
            found.append(numbers(Message("tool", text)))
        elif kind == "p":
            parts = (Reasoning("so " + text), Text(text), Text("end"))
            found.append(numbers(Message("assistant", parts)))
        elif kind == "f":
            found.append(numbers(user(text, attachments=[draw(FILES)])))
        else:
            role: Any = {"s": "system", "a": "assistant"}.get(kind, "user")
            found.append(numbers(Message(role, text)))
    return [m.to_dict() if draw(st.integers(0, 4)) == 0 else m for m in found]


@st.composite
def rules(draw: st.DrawFn, *, limits: bool = True) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if draw(st.booleans()):
        chosen["priority"] = draw(st.integers(-2, 5))
    chosen["trim_behavior"] = draw(st.sampled_from(("message", "char", "slot")))
    chosen["keep"] = draw(st.sampled_from(("tail", "tail", "head")))
    if draw(st.integers(0, 3)) == 0:
        chosen["max_tokens"] = draw(st.integers(0, 60))
    if limits and draw(st.integers(0, 3)) == 0:
        chosen["max_ratio"] = draw(st.floats(0, 1))
    if limits and draw(st.integers(0, 3)) == 0:
        chosen["min_ratio"] = draw(st.floats(0, 1))
    if limits and draw(st.integers(0, 3)) == 0:
        chosen["min_tokens"] = draw(st.integers(0, chosen.get("max_tokens", 60)))
    if draw(st.integers(0, 5)) == 0:
        chosen["required"] = True
    if draw(st.integers(0, 4)) == 0:
        chosen["position"] = draw(st.integers(0, 3))
    if draw(st.integers(0, 4)) == 0:
        chosen["tier"] = draw(st.sampled_from(("pinned", "stable", "slow-changing", "volatile")))
    return chosen


@st.composite
def scenes(
    draw: st.DrawFn, *, limits: bool = True, tokenizers: Sequence[str] = tuple(TOKENIZERS)
) -> Scene:
    """Several slots of every kind of content, with any options."""
    numbers, waiting = Numbers(), list[str]()
    adds: list[tuple[str, Any, dict[str, Any]]] = []
    for place in range(draw(st.integers(1, 5))):
        chosen = draw(rules(limits=limits))
        kind = draw(st.sampled_from(("history", "history", "text", "system", "input")))
        if kind == "history":
            adds.append((f"h{place}", draw(histories(numbers, waiting)), chosen))
        elif kind == "input":
            files = tuple(draw(st.lists(FILES, max_size=1)))
            name = draw(st.sampled_from(("input", "now")))
            adds.append((name, Input(draw(TEXTS), files), chosen))
        else:
            adds.append(("system" if kind == "system" else f"t{place}", draw(TEXTS), chosen))
    options: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        options["tools"] = [{"name": "look", "parameters": {"type": "object"}}]
    if draw(st.integers(0, 3)) == 0:
        options["profile"] = "anthropic/claude-sonnet-4-5"
    scene = Scene(10**6, draw(st.sampled_from(list(tokenizers))), adds, options)
    scene.budget = draw(st.integers(0, scene.window().tokens + 5))
    return scene


def by_slot(window: Window) -> Iterator[tuple[int, list[Message]]]:
    """Yield each slot's index with its messages in the window."""
    assert len(window.origins) == len(window.messages)
    for index in sorted({origin for origin in window.origins if origin is not None}):
        yield (
            index,
            [
                m
                for m, origin in zip(window.messages, window.origins, strict=True)
                if origin == index
            ],
        )


def may_exceed(scene: Scene, slot: SlotReport) -> bool:
    """Say whether a slot over its ceiling holds something that may not vanish, and says so."""
    name, content, options = scene.adds[slot.index]
    firm = options.get("required") or name == "input" or isinstance(content, Input)
    given = scene.given(slot.index)
    tied = any(message.tool_calls or message.tool_call_id for message in given)
    system = any(message.role == "system" for message in given)
    over = slot.status != "kept" or slot.reason == "over_cap"
    return over and bool(firm or tied or system)
