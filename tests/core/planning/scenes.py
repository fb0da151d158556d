"""Random windows and random conversations, and a count of them from scratch."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hypothesis import strategies as st

from muntin import (
    Attachment,
    Cut,
    Exact,
    Group,
    Input,
    Message,
    Pool,
    Reasoning,
    Slots,
    Stepped,
    Text,
    ToolCall,
    Window,
    assistant,
    tool,
    user,
)
from muntin.core.message import Role

FILE_TOKENS = {"document": 7, "image": 5, "audio": 3, "video": 2}
NO_RESULT = "(no result was recorded)"
OMITTED = "(earlier messages omitted)"
SCHEMA = {"name": "look", "parameters": {"type": "object"}}


Add = tuple[str, Any, dict[str, Any]]


# Counting.


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


# Single windows.


@dataclass
class Scene:
    """What was given: slots as (name, content, options), and everything `Slots` takes.

    A list behind the input is no run, and results have no ceiling, unless an option says so.
    """

    budget: int
    tokenizer: str
    adds: list[Add]
    options: dict[str, Any] = field(default_factory=dict)

    def slots(self, budget: int | None = None, **options: Any) -> Slots:
        given = {"results": None, "tokenizer": TOKENIZERS[self.tokenizer], **self.options}
        slots = Slots(
            self.budget if budget is None else budget,
            attachment_tokens=FILE_TOKENS,
            **{**given, **options},
        )
        for name, content, rules in self.adds:
            slots.add(name, content, **{"run": False, **rules})
        return slots

    def window(self, budget: int | None = None, **options: Any) -> Window:
        return self.slots(budget, **options).render()

    def without(self, *gone: int) -> Scene:
        """Return the scene without some of its slots."""
        return replace(self, adds=[add for n, add in enumerate(self.adds) if n not in gone])

    def given(self, index: int) -> list[Message]:
        """The messages of one slot as they were given."""
        name, content, _ = self.adds[index]
        role: Role = "system" if name == "system" else "user"
        if isinstance(content, str):
            return [Message(role, content)] if content else []
        if isinstance(content, Input):
            return [Message(role, content.text, attachments=content.attachments)]
        return [m if isinstance(m, Message) else Message.from_dict(m) for m in content]

    def is_input(self, index: int) -> bool:
        name, content, _ = self.adds[index]
        return name == "input" or isinstance(content, Input)

    @property
    def has_input(self) -> bool:
        return any(
            self.is_input(index) and (message.text or message.attachments)
            for index in range(len(self.adds))
            for message in self.given(index)
        )

    def is_run(self, index: int) -> bool:
        """Say whether a slot is the agent's work in this turn: a list behind the input."""
        _, content, options = self.adds[index]
        asked = any(self.is_input(n) for n in range(index))
        return isinstance(content, list) and asked and options.get("run", False) is None

    def is_joined(self, index: int) -> bool:
        group = self.adds[index][2].get("group")
        return group is not None and group.join is not None

    @property
    def is_calm(self) -> bool:
        """Whether every slot has priority 0 that is not blank; results without a call are not
        sent."""
        slots = [self.given(index) for index in range(len(self.adds))]
        called = {call.id for slot in slots for message in slot for call in message.tool_calls}
        return all(
            not options.get("priority")
            or all(is_blank(m) or (m.role == "tool" and m.tool_call_id not in called) for m in slot)
            for slot, (_, _, options) in zip(slots, self.adds, strict=True)
        )


def is_blank(message: Message) -> bool:
    reasons = isinstance(message.content, tuple)
    body = message.tool_calls or message.attachments or reasons
    return not body and not message.text.strip()


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
# Long enough for a result to be cut, short, or one line, and for an input to be cut.
LONG = st.integers(10, 120).map(lambda size: f"begin {'word ' * size}end")
FILES = st.builds(
    Attachment,
    st.just("id"),
    st.sampled_from(["a.pdf", "photo.png"]),
    st.just(10),
    st.sampled_from(sorted(FILE_TOKENS)),
)


def one_in(count: int) -> st.SearchStrategy[bool]:
    """Return True in one of so many cases, and False where an example becomes smaller."""
    return st.integers(1, count).map(lambda n: n == count)


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
def histories(
    draw: st.DrawFn, numbers: Numbers, waiting: list[str], texts: st.SearchStrategy[str] = TEXTS
) -> list[Any]:
    """Messages with tool groups, orphans, pending calls, parts, attachments; some as dicts."""
    found: list[Message] = []
    for _ in range(draw(st.integers(0, 10))):
        kind = draw(st.sampled_from("uuuaaascctollpf"))
        text = draw(texts)
        if kind == "c":
            ids = [f"c{numbers.last}.{n}" for n in range(draw(st.integers(1, 3)))]
            calls = [ToolCall(i, "look", {"q": draw(WORDS)}) for i in ids]  # type: ignore[arg-type]
            found.append(numbers(assistant(draw(st.none() | TEXTS), tool_calls=calls)))
            for call_id in ids:
                if draw(one_in(5)):
                    waiting.append(call_id)
                else:
                    found.append(numbers(tool(call_id, draw(texts))))
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
    return [m.to_dict() if draw(one_in(5)) else m for m in found]


@st.composite
def rules(draw: st.DrawFn, *, limits: bool = True, places: bool = True) -> dict[str, Any]:
    """Options of a slot, with or without shares of the budget, and with or without places."""
    chosen: dict[str, Any] = {}
    if draw(st.booleans()):
        chosen["priority"] = draw(st.integers(-2, 5))
    chosen["trim_behavior"] = draw(st.sampled_from(("message", "char", "slot")))
    chosen["keep"] = draw(st.sampled_from(("tail", "tail", "head")))
    if draw(one_in(4)):
        chosen["max_tokens"] = draw(st.integers(0, 60))
    if limits and draw(one_in(4)):
        chosen["max_ratio"] = draw(st.floats(0, 1))
    if limits and draw(one_in(4)):
        chosen["min_ratio"] = draw(st.floats(0, 1))
    if limits and draw(one_in(4)):
        chosen["min_tokens"] = draw(st.integers(0, chosen.get("max_tokens", 60)))
    if draw(one_in(6)):
        chosen["required"] = True
    if places and draw(one_in(5)):
        chosen["position"] = draw(st.integers(0, 3))
    if places and draw(one_in(5)):
        chosen["tier"] = draw(st.sampled_from(("pinned", "stable", "slow-changing", "volatile")))
    return chosen


@st.composite
def scenes(
    draw: st.DrawFn,
    *,
    limits: bool = True,
    places: bool = True,
    profiles: bool = True,
    shapes: bool = False,
    ties: bool = True,
    tokenizers: Sequence[str] = tuple(TOKENIZERS),
) -> Scene:
    """Several slots of every kind of content, with any options.

    With `shapes`, texts may be long, conversations may be stepped, results may have a ceiling and
    become compact, and lists behind the input are the agent's run. Without `ties`, results stand in
    the slot of their call.
    """
    numbers, waiting = Numbers(), list[str]()
    texts = TEXTS | LONG if shapes else TEXTS
    adds: list[Add] = []
    for place in range(draw(st.integers(1, 5))):
        chosen = draw(rules(limits=limits, places=places))
        if shapes:
            chosen["run"] = None
        kind = draw(st.sampled_from(("history", "history", "text", "system", "input")))
        if kind == "history":
            open_calls = waiting if ties else []
            adds.append((f"h{place}", draw(histories(numbers, open_calls, texts)), chosen))
        elif kind == "input":
            files = tuple(draw(st.lists(FILES, max_size=1)))
            name = draw(st.sampled_from(("input", "now")))
            adds.append((name, Input(draw(texts), files), chosen))
        else:
            adds.append(("system" if kind == "system" else f"t{place}", draw(texts), chosen))
    options: dict[str, Any] = {}
    if draw(one_in(4)):
        options["tools"] = [SCHEMA]
    if profiles and draw(one_in(4)):
        options["profile"] = "anthropic/claude-sonnet-4-5"
    if shapes:
        options["trimming"] = draw(st.sampled_from((Exact(), Stepped())))
        options["results"] = draw(st.sampled_from((None, True)))
        options["ladder"] = draw(st.booleans())
    scene = Scene(10**6, draw(st.sampled_from(list(tokenizers))), adds, options)
    scene.budget = draw(st.integers(0, scene.window().tokens + 5))
    return scene


def missing(cut: Cut) -> str:
    return f"[{cut.messages} messages, {cut.characters} characters of {cut.slot} are missing]"


@st.composite
def grouped_scenes(draw: st.DrawFn) -> Scene:
    """Slots that are joined, merged by date or share their room, some with a marker, and some with
    a smaller budget together."""
    numbers, adds = Numbers(), list[Add]()
    pool = Pool("sources", draw(st.integers(0, 400)))
    rules, passages = Group("rules", join="\n\n"), Group("passages", share=True)
    timeline = Group("timeline", interleave=True, share=draw(st.booleans()))
    for place in range(draw(st.integers(1, 6))):
        group = draw(st.sampled_from((rules, passages, timeline)))
        chosen: dict[str, Any] = {"group": group, "priority": draw(st.integers(0, 3))}
        if draw(one_in(3)):
            chosen["max_tokens"] = draw(st.integers(0, 200))
        chosen["trim_behavior"] = draw(st.sampled_from(("message", "char")))
        is_list = group is timeline or (group is passages and draw(st.booleans()))
        marked = draw(st.booleans()) and (group is not rules or chosen["trim_behavior"] == "char")
        chosen["marker"] = missing if marked else None
        chosen["pool"] = pool if draw(one_in(3)) else None
        if is_list:
            dates = sorted(draw(st.lists(st.integers(0, 9), max_size=6)))
            messages = [numbers(replace(user(draw(TEXTS) or "x"), at=at)) for at in dates]
            adds.append((f"l{place}", messages, chosen))
        else:
            role = "system" if group is rules else None
            adds.append((f"t{place}", draw(TEXTS | LONG), {**chosen, "role": role}))
    adds.append(("input", Input(draw(TEXTS)), {}))
    return Scene(draw(st.integers(0, 800)), draw(st.sampled_from(list(TOKENIZERS))), adds)


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


def opens_with_user(window: Window) -> bool:
    roles = [message.role for message in window.messages if message.role != "system"]
    return not roles or roles[0] == "user"


def check_requests(window: Window) -> None:
    """Fail unless requests can be made in which every call is followed by its results."""
    chat: Any = window.openai(strict=False)
    expected: list[str] = []
    for message in chat["messages"]:
        if message["role"] == "tool":
            expected.remove(message["tool_call_id"])
        else:
            assert not expected
            expected = [call["id"] for call in message.get("tool_calls") or ()]
    assert not expected
    messages: Any = window.anthropic(strict=False)["messages"]
    expected = []
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        for block in blocks:
            if block["type"] == "tool_result":
                expected.remove(block["tool_use_id"])
        assert not expected
        expected = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert not expected
    json.dumps(window.openai(api="responses", strict=False))
    assert window.google(strict=False)["contents"] is not None


# Conversations.


class Turn(NamedTuple):
    """Sizes of one turn: of its question, of the results of each step, of its answer and of the
    passages that were found for it."""

    question: int
    steps: tuple[tuple[int, ...], ...] = ()
    answer: int = 40
    passages: int = 0


class Moment(NamedTuple):
    """What one request is made of. `place` counts turns and steps."""

    place: tuple[int, int]
    history: list[Message]
    question: Message
    run: list[Message]
    passages: str

    @property
    def conversation(self) -> list[Message]:
        return [*self.history, self.question, *self.run]


@dataclass(frozen=True)
class Talk:
    """A conversation with tools: one character is one token, one request a step."""

    budget: int
    turns: tuple[Turn, ...]
    system: int = 30
    passages_priority: int = 50
    options: tuple[tuple[str, Any], ...] = (("trimming", Stepped()), ("ladder", True))

    def moments(self) -> Iterator[Moment]:
        history: list[Message] = []
        for number, turn in enumerate(self.turns):
            question = user(f"{number}? ".ljust(turn.question, "q"))
            found = f"{number}: ".ljust(turn.passages, "p") if turn.passages else ""
            run: list[Message] = []
            for step in range(len(turn.steps) + 1):
                yield Moment((number, step), list(history), question, list(run), found)
                if step < len(turn.steps):
                    run += group(f"{number}.{step}", turn.steps[step])
            answer = assistant(f"{number}! ".ljust(turn.answer, "a"))
            history += [question, *run, answer]

    def slots(self, moment: Moment, previous: Any = None, **options: Any) -> Slots:
        """Return the slots of a request: passages stand behind the history."""
        given = {**dict(self.options), **options}
        slots = Slots(self.budget, **{"tokenizer": len, "previous": previous, **given})
        if self.system:
            slots.add("system", "s" * self.system, priority=100)
        slots.add("history", moment.history, priority=10)
        slots.add("passages", moment.passages, priority=self.passages_priority)
        slots.add("input", [moment.question])
        slots.add("run", moment.run, run=True)
        return slots

    def windows(self, **options: Any) -> Iterator[tuple[Moment, Window]]:
        """Yield every request, each planned after the one before."""
        previous = None
        for moment in self.moments():
            previous = self.slots(moment, previous, **options).render()
            yield moment, previous


def group(name: str, sizes: Sequence[int]) -> list[Message]:
    """Return a message with calls, and a result of each of these sizes."""
    calls = [
        ToolCall(f"c{name}.{n}", "look", json.dumps({"row": f"{name}.{n}"}))
        for n in range(len(sizes))
    ]
    results = [
        tool(call.id, f"{call.id}: ".ljust(size, "r"))
        for call, size in zip(calls, sizes, strict=True)
    ]
    return [assistant(tool_calls=calls), *results]


@st.composite
def talks(
    draw: st.DrawFn,
    *,
    turns: int = 5,
    steps: int = 5,
    parallel: int = 1,
    passages: bool = True,
    large: bool = True,
) -> Talk:
    """Conversations in a window of some thousand tokens; questions and results have up to twice
    that size."""
    budget = draw(st.sampled_from((2_000, 3_000, 4_000)))
    sizes = st.integers(20, 300) | st.integers(20, budget * 2 if large else budget // 4)
    texts = st.integers(20, 200) | st.integers(20, budget // 3)
    questions = st.integers(20, 200) | st.integers(20, budget // 3) | st.integers(20, budget * 2)
    found = st.just(0) | st.integers(10, budget // 2) if passages else st.just(0)
    step = st.lists(sizes, min_size=1, max_size=parallel).map(tuple)
    made = [
        Turn(
            draw(questions),
            tuple(draw(st.lists(step, max_size=steps))),
            draw(texts),
            draw(found),
        )
        for _ in range(draw(st.integers(1, turns)))
    ]
    return Talk(budget, tuple(made))
