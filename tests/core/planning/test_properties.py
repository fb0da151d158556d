"""What holds for every window, whatever goes in: properties over larger random inputs.

`MUNTIN_EXAMPLES` sets how many examples each property draws.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf, log2
from typing import Any, SupportsIndex

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from muntin import (
    Attachment,
    Cut,
    Group,
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

EXAMPLES = int(os.environ.get("MUNTIN_EXAMPLES", "200"))
FILE_TOKENS = {"document": 7, "image": 5, "audio": 3, "video": 2}
REACH = 300  # how near the end of a long list may be read when some 50 messages fit
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
            **self.options,
        )
        for name, content, options in self.adds:
            slots.add(name, content, **options)
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


# -- what holds for all of them --------------------------------------------------------------


@many
@given(scenes())
def test_a_window_is_within_its_budget_or_says_that_it_is_not(scene: Scene) -> None:
    window = scene.window()
    assert window.over_budget == window.report.over_budget
    assert window.over_budget or window.tokens <= scene.budget
    if window.over_budget and scene.budget:
        assert window.tokens > scene.budget


@many
@given(scenes())
def test_only_what_may_not_be_dropped_is_left_in_a_window_over_budget(scene: Scene) -> None:
    window = scene.window()
    assume(window.over_budget)
    calm = all(
        # Empty messages and orphans are nothing that could be sent: they have no say.
        not options.get("priority")
        or all(decision.reason in ("empty", "orphaned") for decision in report.decisions)
        for report, (_, _, options) in zip(
            sorted(window.report.slots, key=lambda report: report.index), scene.adds, strict=True
        )
    )
    callers = {
        call.id: (origin, number(message))
        for message, origin in zip(window.messages, window.origins, strict=True)
        for call in message.tool_calls
    }
    firm, left = set(), set()
    for message, origin in zip(window.messages, window.origins, strict=True):
        assert origin is not None
        name, content, options = scene.adds[origin]
        group = callers.get(message.tool_call_id or "", (origin, number(message)))
        left.add(group)
        is_input = name == "input" or isinstance(content, Input)
        if options.get("required") or is_input or (calm and message.role == "system"):
            firm.add(group)
    assert left == firm


@many
@given(scenes())
def test_a_required_slot_without_a_ceiling_loses_nothing(scene: Scene) -> None:
    window = scene.window()
    left = dict(by_slot(window))
    called: set[str] = set()
    excused: set[str] = set()  # calls with a part in a slot that has a ceiling
    for index, (_, _, options) in enumerate(scene.adds):
        if "max_tokens" in options or "max_ratio" in options:
            for message in scene.given(index):
                excused |= {call.id for call in message.tool_calls} | {message.tool_call_id or ""}
    for index in range(len(scene.adds)):  # and with them all calls of the same message
        for message in scene.given(index):
            calls = {call.id for call in message.tool_calls}
            excused |= calls if calls & excused else set()
    for report in window.report.slots:  # in window order
        options = scene.adds[report.index][2]
        firm = options.get("required") and not {"max_tokens", "max_ratio"} & options.keys()
        for message in scene.given(report.index):
            calls = {call.id for call in message.tool_calls}
            called |= calls
            result = message.tool_call_id
            if result is None and not (message.text or calls or message.attachments):
                continue  # nothing to lose
            if result is not None and (result not in called or result in excused):
                continue  # an orphan, or gone with its call
            if firm and not calls & excused:
                assert message in left[report.index]


@many
@given(scenes())
def test_messages_keep_their_order_and_lose_only_an_end_of_their_text(scene: Scene) -> None:
    window = scene.window()
    places = [report.index for report in window.report.slots]
    origins = [origin for origin in window.origins if origin is not None]
    assert [places.index(origin) for origin in origins] == sorted(
        places.index(origin) for origin in origins
    )
    for index, messages in by_slot(window):
        originals = scene.given(index)
        keep = scene.adds[index][2].get("keep", "tail")
        if len(originals) > 1:
            assert all(a < b for a, b in pairwise(map(number, messages)))
        for message in messages:
            (original,) = (m for m in originals if number(m) == number(message))
            if message == original:
                continue
            assert replace(message, content=None) == replace(original, content=None)
            end = original.text.startswith if keep == "head" else original.text.endswith
            assert end(message.text)
            assert len(message.text) < len(original.text)
            assert reasoning(message) == reasoning(original)


def reasoning(message: Message) -> list[Reasoning]:
    parts = message.content if isinstance(message.content, tuple) else ()
    return [part for part in parts if isinstance(part, Reasoning)]


@many
@given(scenes())
def test_tool_groups_are_whole_and_no_result_stands_without_its_call(scene: Scene) -> None:
    window = scene.window()
    called: set[str] = set()
    for message in window.messages:
        called |= {call.id for call in message.tool_calls}
        assert message.tool_call_id is None or message.tool_call_id in called
    sent = {message.tool_call_id for message in window.messages}
    seen: set[str] = set()
    for report in window.report.slots:
        for message in scene.given(report.index):
            seen |= {call.id for call in message.tool_calls}
            if message.tool_call_id in called and message.tool_call_id in seen:
                assert message.tool_call_id in sent


@many
@given(scenes())
def test_the_same_slots_give_the_same_window_however_often(scene: Scene) -> None:
    slots = scene.slots()
    first, second, fresh = slots.render(), slots.render(), scene.window()
    assert first == second == fresh
    assert first.report == second.report == fresh.report
    assert first.report.to_dict() == fresh.report.to_dict()
    assert str(first.report) == str(fresh.report)


@many
@given(scenes())
def test_the_report_adds_up_to_what_is_sent(scene: Scene) -> None:
    window = scene.window()
    report = window.report
    parts = sum(slot.tokens_kept for slot in report.slots)
    wire = report.tools_tokens + report.joined_tokens + report.lead_tokens
    assert parts + wire == report.tokens == window.tokens
    tokenizer = TOKENIZERS[scene.tokenizer]
    messages = recount(window.messages, tokenizer, user_first="profile" in scene.options)
    assert messages + report.tools_tokens == window.tokens
    for slot in report.slots:
        assert sum(d.tokens_kept for d in slot.decisions) == slot.tokens_kept
        assert sum(d.tokens_asked for d in slot.decisions) == slot.tokens_asked
        assert sum(d.count for d in slot.decisions) == slot.messages_asked
        assert slot.messages_kept == window.origins.count(slot.index)


@many
@given(scenes())
def test_the_report_says_for_every_message_what_became_of_it(scene: Scene) -> None:
    window = scene.window()
    for slot in window.report.slots:
        covered = sorted(d.first for d in slot.decisions)
        assert len(set(covered)) == len(covered)
        for decision in slot.decisions:
            assert decision.status in ("kept", "trimmed", "dropped", "empty")
            assert (decision.reason is None) == (decision.status == "kept") or (
                decision.status == "empty"
            )
            assert decision.fits_with is None or decision.fits_with > 0
            if decision.status == "kept":
                assert decision.tokens_kept == decision.tokens_asked
            if decision.status in ("dropped", "empty"):
                assert decision.tokens_kept == 0
        statuses = {decision.status for decision in slot.decisions} - {"empty"}
        if slot.status == "kept":
            assert statuses == {"kept"}
        if slot.status == "dropped":
            assert statuses == {"dropped"}
        if slot.status == "empty":
            assert not statuses


@many
@given(scenes())
def test_nothing_that_was_given_is_changed(scene: Scene) -> None:
    before = deepcopy(scene.adds)
    window = scene.window()
    str(window.report)
    assert scene.adds == before
    for (_, content, _), (_, old, _) in zip(scene.adds, before, strict=True):
        assert type(content) is type(old)


@many
@given(scenes(limits=False, tokenizers=STEADY), st.integers(1, 40))
def test_a_larger_budget_never_keeps_less(scene: Scene, more: int) -> None:
    small, large = scene.window(), scene.window(scene.budget + more)
    assume(not small.over_budget and not large.over_budget)
    lengths = {
        (origin, number(message)): len(message.text)
        for message, origin in zip(large.messages, large.origins, strict=True)
    }
    for message, origin in zip(small.messages, small.origins, strict=True):
        assert len(message.text) <= lengths[origin, number(message)]


@many
@given(scenes())
def test_no_slot_is_larger_than_its_ceiling(scene: Scene) -> None:
    window = scene.window()
    for slot in window.report.slots:
        name, content, _ = scene.adds[slot.index]
        if not (name == "input" or isinstance(content, Input)) and slot.cap is not None:
            assert slot.tokens_kept <= slot.cap


# -- groups of slots -------------------------------------------------------------------------


@st.composite
def timelines(draw: st.DrawFn) -> Scene:
    """Slots whose dated messages are merged; some undated, some in tool groups."""
    numbers, adds = Numbers(), list[tuple[str, Any, dict[str, Any]]]()
    group = Group("timeline", interleave=True)
    in_order = draw(st.booleans())
    for place in range(draw(st.integers(1, 3))):
        messages: list[Message] = []
        dates: Sequence[int | None] = draw(st.lists(st.none() | st.integers(0, 9), max_size=6))
        if in_order:
            dates = sorted(d for d in dates if d is not None)
        for at in dates:
            if draw(st.integers(0, 3)):
                messages.append(numbers(replace(user(draw(TEXTS) or "x"), at=at)))
            else:
                call_id = f"c{numbers.last}"
                call = assistant("", tool_calls=[ToolCall(call_id, "look", "{}")])
                messages.append(numbers(replace(call, at=at)))
                messages.append(numbers(replace(tool(call_id, draw(TEXTS)), at=at)))
        behavior = draw(st.sampled_from(("message", "char")))
        adds.append((f"s{place}", messages, {"group": group, "trim_behavior": behavior}))
    return Scene(draw(st.integers(0, 200)), "characters", adds)


def merged(sources: Sequence[Sequence[Message]]) -> list[int]:
    """Merge by the running maximum of `at` inside each source; a result stays with its call."""
    keyed = []
    for place, messages in enumerate(sources):
        latest, key = -inf, -inf
        for order, message in enumerate(messages):
            latest = latest if message.at is None else max(latest, message.at)
            key = key if message.tool_call_id is not None else latest
            keyed.append((key, place, order, number(message)))
    return [last for *_, last in sorted(keyed)]


@many
@given(timelines())
def test_interleaved_slots_are_merged_by_date_in_their_own_order(scene: Scene) -> None:
    full = [number(m) for m in scene.window(10**6).messages]
    assert full == merged([scene.given(i) for i in range(len(scene.adds))])


@many
@given(timelines())
def test_interleaving_keeps_tool_groups_in_one_piece(scene: Scene) -> None:
    window = scene.window()
    for index, messages in by_slot(window):
        numbers = [number(m) for m in messages]
        assert numbers == sorted(numbers), scene.adds[index][0]
    for before, message in pairwise((None, *window.messages)):
        if message is not None and message.tool_call_id is not None:
            assert before is not None
            assert [call.id for call in before.tool_calls] == [message.tool_call_id]


@many
@given(st.data())
def test_shared_slots_get_fair_parts_in_proportion_to_their_ceilings(data: st.DataObject) -> None:
    group = Group("volatile", share=True)
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=4))
    caps = data.draw(
        st.lists(st.none() | st.integers(1, 60), min_size=len(sizes), max_size=len(sizes))
    )
    firm = data.draw(st.integers(0, 20))
    budget = data.draw(st.integers(firm + 1, 150))
    slots = Slots(budget, tokenizer=len)
    slots.add("rules", "r" * firm, required=True)
    for n, (size, cap) in enumerate(zip(sizes, caps, strict=True)):
        slots.add(f"s{n}", "x" * size, max_tokens=cap, trim_behavior="char", group=group)
    window = slots.render()
    kept = [slot.tokens_kept for slot in window.report.slots[1:]]
    room = budget - firm
    wanted = [s if c is None else min(s, c) for s, c in zip(sizes, caps, strict=True)]
    assert sum(kept) == min(room, sum(wanted))
    weights = [room if cap is None else cap for cap in caps]
    for mine, want, weight in zip(kept, wanted, weights, strict=True):
        assert mine <= want
        if mine < want:  # then nobody has more for his weight, but for the odd token
            for other, heavy in zip(kept, weights, strict=True):
                assert (other - 1) * weight <= mine * heavy or other * weight <= (mine + 1) * heavy


@many
@given(st.data())
def test_joined_texts_are_really_counted_and_as_few_as_possible_are_dropped(
    data: st.DataObject,
) -> None:
    separator = data.draw(st.sampled_from(("\n\n", " ", "")))
    counts: list[str] = []

    def count(text: str) -> int:
        counts.append(text)
        return len(text)

    tokenizer = Counting("recording", count, data.draw(st.integers(0, 2)))
    parts = data.draw(
        st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.booleans()), max_size=9)
    )
    texts = [chr(97 + n) * size for n, (size, _, _) in enumerate(parts)]
    group = Group("system text", join=separator)
    budget = data.draw(st.integers(1, 60))
    slots = Slots(budget, tokenizer=tokenizer)
    for n, (text, (_, priority, required)) in enumerate(zip(texts, parts, strict=True)):
        slots.add(
            f"s{n}", text, role="system", priority=priority + 1, required=required, group=group
        )
    window = slots.render()

    droppable = [n for n, part in enumerate(parts) if not part[2]]
    droppable.sort(key=lambda n: parts[n][1])
    for drops in range(len(droppable) + 1):
        gone = droppable[:drops]
        joined = separator.join(t for n, t in enumerate(texts) if n not in gone)
        expected = len(joined) + tokenizer.message_overhead if joined else 0
        if expected <= budget:
            break
    assert [message.text for message in window.messages] == ([joined] if joined else [])
    assert window.tokens == expected == window.report.tokens
    assert window.over_budget == (expected > budget)
    kept = sum(slot.tokens_kept for slot in window.report.slots)
    assert kept + window.report.joined_tokens == expected
    several = [text for text in counts if len(set(text) - set(separator)) > 1]
    assert len(several) <= 2 + ceil(log2(max(1, len(parts))))


@many
@given(scenes(limits=True), st.sampled_from(("[cut]", "[{0.messages} messages cut]", "")))
def test_a_marker_belongs_to_its_slot_and_never_pushes_it_over(scene: Scene, line: str) -> None:
    cuts: list[Cut] = []

    def marker(cut: Cut) -> str:
        cuts.append(cut)
        return line.format(cut)

    plain = scene.window()
    scene.adds = [(n, c, {**options, "marker": marker}) for n, c, options in scene.adds]
    window = scene.window()
    report = window.report
    assert window.over_budget or window.tokens <= scene.budget
    assert plain.over_budget or not window.over_budget
    wire = report.tools_tokens + report.lead_tokens
    assert sum(slot.tokens_kept for slot in report.slots) + wire == window.tokens
    messages = recount(
        window.messages, TOKENIZERS[scene.tokenizer], user_first="profile" in scene.options
    )
    assert messages + report.tools_tokens == window.tokens
    for slot in report.slots:
        name, content, _ = scene.adds[slot.index]
        if not (name == "input" or isinstance(content, Input)) and slot.cap is not None:
            assert slot.tokens_kept <= slot.cap
        if slot.status in ("kept", "empty"):
            left = [m for i, messages in by_slot(window) if i == slot.index for m in messages]
            assert not any(line and line[:4] in message.text for message in left)
    assert all(cut.messages or cut.characters for cut in cuts)


# -- texts and long lists --------------------------------------------------------------------

CLUSTERS = (
    "a",
    " ",
    "é",
    "e\u0301",
    "o\u0302\u0323",
    "👨\u200d👩\u200d👧",
    "🇩🇪",
    "🇯🇵",
    "👍🏽",
    "1\ufe0f\u20e3",
    "ก\u0e49",
    "\r\n",
    "각",
    "\u1100\u1161\u11a8",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "日",
)


@many
@given(
    st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=12),
    st.integers(0, 40),
    st.sampled_from(("head", "tail")),
    st.sampled_from(("x", "input")),
)
def test_a_cut_never_splits_what_a_person_sees_as_one_character(
    clusters: list[str], budget: int, keep: Any, name: str
) -> None:
    slots = Slots(budget, tokenizer=len)
    slots.add(name, "".join(clusters), trim_behavior="char", keep=keep)
    window = slots.render()
    pieces = range(len(clusters) + 1)
    legal = ["".join(clusters[:n] if keep == "head" else clusters[n:]) for n in pieces]
    text = "".join(message.text for message in window.messages)
    assert text in legal
    if not window.over_budget:
        assert len(text) == max(len(t) for t in legal if len(t) <= budget)


class Watched(list[Message]):
    """A list that allows reading only near its end and at its very beginning."""

    def __init__(self, items: Sequence[Message], reach: int) -> None:
        super().__init__(items)
        self.reach = reach
        self.reads = 0

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        self.reads += 1
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            if start < stop:
                assert start >= len(self) - self.reach or stop <= 1, "read what cannot fit"
        else:
            position = index.__index__() % len(self)
            assert position == 0 or position >= len(self) - self.reach, "read what cannot fit"
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Message]:
        raise AssertionError("read all of it")

    def __reversed__(self) -> Iterator[Message]:
        raise AssertionError("read it without an index")


@pytest.mark.parametrize("behavior", ["message", "char", "slot"])
@pytest.mark.parametrize("options", [{}, {"max_ratio": 0.5}, {"min_ratio": 0.5}, {"priority": 3}])
def test_what_cannot_fit_is_neither_read_nor_counted(
    behavior: Any, options: Mapping[str, Any]
) -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    messages = [Message("user" if n % 2 else "assistant", f"{n:010}") for n in range(20_000)]
    history = Watched(messages, REACH)
    slots = Slots(500, tokenizer=Counting("recording", count))
    slots.add("system", "s" * 20)
    slots.add("history", history, trim_behavior=behavior, **options)
    slots.add("input", "i" * 20)
    window = slots.render()
    room = {"max_ratio": 25, "priority": 48}.get(next(iter(options), ""), 46)
    kept = [] if behavior == "slot" else messages[-room:]
    assert [m.text for m in window.messages if len(m.text) == 10] == [m.text for m in kept]
    assert len(asked) <= 80
    assert len(set(asked)) == len(asked)
    assert history.reads <= 500
    report = window.report.slots[1]
    beyond = [d for d in report.decisions if d.reason == "beyond_fit"]
    assert len(beyond) == 1
    assert beyond[0].count > 19_900
    assert report.asked_is_estimate
    assert report.tokens_asked == 200_000
    assert report.messages_asked == 20_000


def test_of_a_list_that_keeps_its_beginning_the_end_is_not_counted() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    slots = Slots(500, tokenizer=Counting("recording", count))
    messages = [user(f"{n:010}") for n in range(5_000)]
    slots.add("document", messages, trim_behavior="char", keep="head")
    assert [m.text for m in slots.render().messages] == [m.text for m in messages[:50]]
    assert len(asked) <= 200


def test_each_message_is_counted_once_even_over_several_renders() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    slots = Slots(300, tokenizer=Counting("recording", count))
    slots.add("history", [user(f"{n:010}") for n in range(1_000)])
    slots.render()
    slots.render()
    assert len(asked) == len(set(asked)) <= 40


@many
@given(st.integers(0, 400), st.integers(1, 30))
def test_a_system_message_that_opens_a_long_list_stays(budget: int, size: int) -> None:
    talk = [Message("system", "S" * size), *(user(f"{n:05}") for n in range(500))]
    slots = Slots(budget, tokenizer=len)
    slots.add("history", talk)
    window = slots.render()
    assert window.messages[0].text == "S" * size
    assert window.over_budget == (size > budget)
    room = max(0, budget - size) // 5
    assert len(window.messages) == 1 + room
