"""The law of counts: what is expected of a request, and what reports change about it."""

from __future__ import annotations

import json
import random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Slots
from muntin.core.caching.frontier import Frontier
from muntin.core.counting.book import CountBook, CountedRequest
from muntin.core.counting.counter import Counter
from muntin.core.counting.law import Anchor, Law, Size
from muntin.core.message import Message, answered, assistant, tool, user
from muntin.core.parts import Other, Reasoning, Text, ToolCall
from muntin.core.profile import Profile
from muntin.core.report import Reported
from muntin.core.usage import AnswerTokens, Usage
from muntin.core.window import Window
from muntin.errors import InvalidInput

LOOK: dict[str, Any] = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
THOUGHT = Reasoning("", signature="c2lnbmVk" * 400)


def called(number: int, *, output: int, reasoning: int, in_run: bool = True) -> Message:
    """Return an answer that thought, and calls a tool."""
    call = ToolCall(f"c{number}", "look", '{"at":"the harbour"}')
    message = Message("assistant", (THOUGHT,), tool_calls=(call,))
    return answered(message, AnswerTokens(output, reasoning, in_run))


def window_of(*messages: Message, model: str, previous: Window | Frontier | None = None) -> Window:
    slots = Slots(100_000, profile=model, tools=[LOOK], previous=previous)
    slots.add("input", [messages[0]])
    slots.add("run", list(messages[1:]), run=True)
    return slots.render()


def counted_in(window: Window) -> int:
    counts = window.report.counts
    assert counts is not None
    return counts.counted


# recorded cases: what a provider reported, and what the law says


@pytest.mark.parametrize(
    ("first", "output", "reasoning", "expected", "reported"),
    [(124, 1_926, 1_792, 2_056, 2_087), (37, 272, 256, 314, 379)],
)
def test_hidden_reasoning_is_read_again_in_a_tool_loop(
    first: int, output: int, reasoning: int, expected: int, reported: int
) -> None:
    question, result = user("What is at the harbour?"), tool("c1", "ok")
    sent = window_of(question, model="openai/gpt-5")
    sent.enter_reported(Reported(first))
    answer = called(1, output=output, reasoning=reasoning)
    following = window_of(question, answer, result, model="openai/gpt-5", previous=sent)
    new = Counter.of(Profile.for_model("openai/gpt-5")).message(result)
    assert following.tokens == first + output + new
    assert abs(following.tokens - expected) <= 3  # the recorded result had six tokens
    assert abs(following.tokens - reported) < 70


def test_the_reasoning_of_an_earlier_turn_counts_where_it_is_read_again() -> None:
    answer = called(1, output=1_926, reasoning=1_792, in_run=False)
    result = tool("c1", "ok")
    sizes = {}
    for model in ("openai/gpt-5", "openai/gpt-5.6", "anthropic/claude-sonnet-4-5"):
        counter = Counter.of(Profile.for_model(model))
        sizes[model] = counter.message(answer) + counter.message(result)
    assert sizes["openai/gpt-5.6"] - sizes["openai/gpt-5"] >= 1_792
    assert sizes["anthropic/claude-sonnet-4-5"] < 200


@pytest.mark.parametrize(
    ("model", "keeps"),
    [
        ("anthropic/claude-sonnet-4-5", False),
        ("anthropic/claude-sonnet-4-5-20250929", False),
        ("anthropic/claude-sonnet-4-6", True),
        ("anthropic/claude-opus-4-1", False),
        ("anthropic/claude-opus-4-5", True),
        ("anthropic/claude-haiku-4-5", False),
        ("anthropic/claude-haiku-5-5", True),
        ("anthropic/claude-fable-5-1", True),
        ("openrouter/anthropic/claude-opus-5.5", True),
        ("openai/gpt-5.1", False),
        ("openai/gpt-5.6", True),
        ("ollama/qwen3", False),
    ],
)
def test_models_that_read_earlier_reasoning_again(model: str, keeps: bool) -> None:
    profile = Profile.of(model)
    assert profile is not None
    assert profile.keeps_thoughts is keeps


def test_claude_adds_a_prompt_of_its_own() -> None:
    model = "anthropic/claude-sonnet-4-5"
    with_tools = window_of(user("What is at the harbour?"), model=model)
    assert with_tools.tokens - counted_in(with_tools) == 520
    slots = Slots(1_000, profile=model)
    slots.add("input", "What is at the harbour?")
    window = slots.render()
    assert window.report.provider_tokens == 30
    assert "(provider)" in str(window.report)
    slots = Slots(1_000, profile="ollama/qwen3", tools=[LOOK])
    slots.add("input", "What is at the harbour?")
    assert slots.render().report.provider_tokens == 0


def test_what_claude_adds_is_kept_free() -> None:
    slots = Slots(1_000, profile="anthropic/claude-sonnet-4-5", tools=[LOOK])
    slots.add("history", [user("a " * 60) for _ in range(30)])
    window = slots.render()
    assert window.messages
    assert counted_in(window) <= 480
    assert window.tokens <= 1_000


def test_no_ciphertext_counts_by_its_length() -> None:
    counter = Counter.of(Profile.for_model("openai/gpt-5"))
    sealed = "QUJD" * 4_000
    parts: list[Other | Reasoning] = [
        Other({"type": "compaction", "encrypted_content": sealed}),
        Other({"type": "program", "code": "run()", "fingerprint": sealed}),
        Other({"type": "redacted_thinking", "data": sealed}),
        Reasoning("", extra={"encrypted_content": sealed}),
    ]
    for part in parts:
        assert counter.message(Message("assistant", (part,))) <= 310


# the planner in the loop


class Provider:
    """A provider that adds a prompt, counts otherwise, and reads hidden reasoning again."""

    def __init__(self, seed: int, *, factor: float = 1.22, added: int = 520) -> None:
        self._random = random.Random(seed)
        self._factor, self._added = factor, added
        self._hidden: dict[str, int] = {}
        self._plain = Counter("estimate")

    def reported(self, window: Window) -> int:
        hidden = 0
        for message in window.messages:
            thinks = isinstance(message.content, tuple) and THOUGHT in message.content
            if thinks and message.tool_calls:
                hidden += self._hidden[message.tool_calls[0].id]
        ours = sum(self._plain.message(_unknown(message)) for message in window.messages)
        ours += self._plain.tools(window.tools)
        return round(self._added + self._factor * ours) + hidden

    def answer(self, number: int) -> Message:
        """Return an answer that thinks, and calls a tool, with what is reported of it."""
        hidden = self._hidden[f"c{number}"] = self._random.randint(150, 900)
        message = called(number, output=0, reasoning=0)
        visible = round(self._factor * self._plain.message(message))
        return answered(message, AnswerTokens(visible + hidden, hidden, True))

    def result(self, number: int) -> Message:
        words = self._random.randint(20, 400)
        return tool(f"c{number}", " ".join(["harbour"] * words))


def _unknown(message: Message) -> Message:
    """Return a message of which nothing was reported."""
    copy = Message(message.role, message.content, tool_calls=message.tool_calls)
    if message.tool_call_id:
        copy = tool(message.tool_call_id, message.text)
    return copy


@pytest.mark.parametrize("stored", [False, True])
def test_two_hundred_steps_stay_within_the_budget(stored: bool) -> None:
    """With `stored`, each step begins from the JSON that the step before left."""
    provider, budget = Provider(7), 20_000
    question, run, book = user("Look at every ship."), list[Message](), CountBook()
    previous: Window | Frontier | None = None
    over, errors, largest = 0, list[int](), 0
    for number in range(200):
        first = Law((30, 520), keeps_thoughts=True)
        counter = Counter.of(Profile.for_model("anthropic/claude-opus-4-6"))
        slots = Slots(
            budget,
            profile="anthropic/claude-opus-4-6",
            tools=[LOOK],
            previous=previous,
            counter=counter.with_law(book.law("opus", first)),
        )
        slots.add("input", [question])
        slots.add("run", run, run=True, ladder=True)
        window = slots.render()
        reported = provider.reported(window)
        largest = max(largest, reported)
        over += reported > budget
        errors.append(abs(reported - window.tokens))
        sent = window.counted
        assert sent is not None
        book.enter("opus", sent, reported)
        window.enter_reported(Reported(reported))
        previous = window
        if stored:
            previous = Frontier.from_dict(json.loads(json.dumps(window.frontier.to_dict())))
            book = CountBook.from_dict(json.loads(json.dumps(book.to_dict())))
        run += [provider.answer(number), provider.result(number)]
    assert over == 0
    assert largest > 15_000  # the budget is used
    assert median(errors[2:]) <= 15


# bounds


sizes = st.integers(0, 200_000)


@given(sizes, sizes, sizes, st.floats(0.8, 1.6), sizes, sizes, st.booleans())
def test_no_estimate_leaves_its_bounds(
    counted: int, before: int, reported: int, factor: float, fixed: int, excess: int, tools: bool
) -> None:
    law = Law((30, 520), (fixed, fixed), factor, excess)
    law = law.after(Anchor(Size(before, 0, tools), reported))
    plain = counted + min(8_192, fixed)
    if counted:
        assert plain // 2 <= law.estimate(counted, tools) <= 2 * plain
    room = law.room(counted, tools)
    assert room <= counted
    assert room >= max(0, (counted - law.first[tools]) // 2)


@given(sizes, st.floats(0.8, 1.6), st.integers(0, 8_000), st.integers(0, 3_000), st.booleans())
def test_what_fits_into_a_room_is_expected_within_the_budget(
    budget: int, factor: float, fixed: int, excess: int, tools: bool
) -> None:
    law = Law((30, 520), (fixed, fixed), factor, excess)
    room = law.room(budget, tools)
    if room > max(0, (budget - law.first[tools]) // 2):
        assert law.estimate(room, tools) <= max(budget, (room + fixed) // 2)
    assert law.room(law.budget(room, tools), tools) >= room


def test_a_book_is_bounded() -> None:
    book = CountBook()
    for number in range(100):
        for _ in range(70):
            book.enter(f"model-{number}", CountedRequest(Size(1_000, 0, True), 1_520), 1_600)
    models = book.to_dict()["models"]
    assert len(models) == 64
    assert "model-99" in models
    assert {len(reports["with_tools"]) for reports in models.values()} == {64}
    assert {len(reports["exceeded"]) for reports in models.values()} == {16}


def test_a_factor_is_learned_from_three_requests_that_grew() -> None:
    book, first = CountBook(), Law((30, 520))
    before = None
    for number in range(4):
        size = Size(1_000 + 500 * number, 0, False)
        reported = 100 + round(1.3 * size.counted)
        book.enter("m", CountedRequest(size, size.counted, before), reported)
        law = book.law("m", first)
        assert law.factor == (1.3 if number == 3 else 1.0)
        before = Anchor(size, reported)
    assert law.fixed == (100, 520)


def test_a_factor_stays_between_its_bounds() -> None:
    book, before = CountBook(), None
    for number in range(8):
        size = Size(1_000 * (number + 1), 0, False)
        book.enter("m", CountedRequest(size, size.counted, before), 10 * size.counted)
        before = Anchor(size, 10 * size.counted)
    assert book.law("m", Law()).factor == 1.6


def test_another_book_is_refused() -> None:
    for data in ({}, {"version": 2}, {"version": 1, "models": {"m": {}}}, {"version": 1}):
        with pytest.raises(InvalidInput, match="no book of counts"):
            CountBook.from_dict(data)


def test_a_report_shows_what_was_counted_expected_and_reported() -> None:
    window = window_of(user("Hello."), model="anthropic/claude-sonnet-4-5")
    window.enter_reported(Reported(558))
    counts = window.report.counts
    assert counts is not None
    assert (counts.estimated - counts.counted, counts.reported) == (520, 558)
    assert f"counted {counts.counted} tokens, expected {counts.estimated}, reported 558" in str(
        window.report
    )
    assert window.report.to_dict()["counts"]["reported"] == 558


def test_usage_without_a_loop_is_its_own_window() -> None:
    usage = Usage(100, 20, reasoning=15)
    assert (usage.window, usage.request) == (100, 100)
    assert usage.answer(in_run=True) == AnswerTokens(20, 15, True)
    assert Usage.from_dict(json.loads(json.dumps(usage.to_dict()))) == usage


def test_a_text_answer_counts_as_reported() -> None:
    counter = Counter.of(Profile.for_model("openai/gpt-5"))
    text = assistant("Im Hafen liegen sieben Schiffe, und drei davon laden noch Kohle.")
    plain = counter.message(text)
    assert counter.message(answered(text, AnswerTokens(plain + 12))) == plain + 12
    absurd = answered(text, AnswerTokens(1_000_000))
    assert counter.message(absurd) == 4 * plain + 256
    assert counter.message(Message("assistant", (Text("Seven ships."),))) < 20


@pytest.mark.parametrize("reported", [0, 1, 11, 1_000_000])
def test_a_report_that_cannot_be_true_changes_nothing(reported: int) -> None:
    question = user("words " * 500)
    sent = window_of(question, model="openai/gpt-5")
    book = CountBook()
    counted = sent.counted
    assert counted is not None
    book.enter("openai/gpt-5", counted, reported)
    sent.enter_reported(Reported(reported))
    answer, plain = assistant("Yes."), window_of(question, assistant("Yes."), model="openai/gpt-5")
    following = window_of(question, answer, model="openai/gpt-5", previous=sent)
    assert following.tokens == plain.tokens
    assert book.to_dict()["models"] == {}
