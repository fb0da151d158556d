"""A text is tokenised when it is appended, and never again: not in another process either."""

import pytest

from muntin import Input, Message, Reasoning, Slots, ToolCall, assistant, system, tool, user
from muntin.core.counting.counter import Counter
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import Draft
from muntin.timeline.session import Session
from tests.timeline.words import Words, words

HISTORY = [
    user("where is my order"),
    assistant("let me look", tool_calls=[ToolCall("c", "find", '{"order": 5}')]),
    tool("c", "it left on monday"),
    assistant("it is on its way"),
]


def compose(session, question, limit=None):
    """Compose the next turn as an application does, and return the texts of the window."""
    slots = Slots(10_000, tokenizer=session.counter.tokenizer)
    slots.add("history", session.messages(limit))
    slots.add("input", Input(question))
    return [message.text for message in slots.render().messages]


@pytest.mark.parametrize("limit", [None, Turns(8), Tokens(8_000), Tokens(1)])
def test_the_next_turn_tokenises_only_what_is_new(store, limit):
    first = Words()
    Session("s", store=store, tokenizer=first).append(*HISTORY)
    assert {"where is my order", "it left on monday", '{"order": 5}'} <= set(first.asked)
    tokenizer = Words()  # as in a new process: nothing is remembered
    shown = compose(Session("s", store=store, tokenizer=tokenizer), "when does it come", limit)
    assert shown == [*(message.text for message in HISTORY), "when does it come"]
    assert tokenizer.asked == ["when does it come"]


def test_each_text_is_tokenised_once_over_many_turns(store):
    asked = []
    for number in range(5):
        tokenizer = Words()
        session = Session("s", store=store, tokenizer=tokenizer)
        compose(session, f"question {number}")
        session.append(user(f"question {number}"), assistant(f"answer {number}"))
        assert tokenizer.asked == [f"question {number}", f"answer {number}"]
        asked += tokenizer.asked
    assert len(asked) == 10


def test_runs_reasoning_wakes_signals_and_entries_are_tokenised_once(store):
    session = Session("s", store=store, tokenizer=Words())
    session.append(user("go"))
    (run,) = session.append(Draft("run"))
    at = run.position
    session.append(
        Draft("reasoning", Message("assistant", (Reasoning("hm hm", signature="x"),)), run=at),
        Draft("tool_call", assistant("look", tool_calls=[ToolCall("c", "find")]), run=at),
        Draft("tool_result", tool("c", "found it"), run=at),
        Draft("reasoning", Message("assistant", (Reasoning("so so"),)), run=at),
        Draft("message", assistant("done"), run=at),
        Draft("wake", payload={"timer": 1}),
        Draft("signal", payload="stop now"),
        Draft("error", payload="it broke"),
    )
    session.insert_context("e", name="n", content="a fact")
    tokenizer = Words()
    again = Session("s", store=store, tokenizer=tokenizer)
    messages = again.messages() + again.timeline_messages()
    counted = [again.counter.message(message) for message in messages]
    assert tokenizer.asked == []
    anew = Counter(Words())
    assert counted == [anew.message(Message.from_dict(m.to_dict())) for m in messages]


def test_a_plain_function_counts_too(store):
    session = Session("s", store=store, tokenizer=words)
    session.append(user("one two"), assistant("three"))
    session.append(user("four"), assistant("five"))
    assert [m.text for m in session.messages(Tokens(4))] == ["four", "five"]
    assert [m.text for m in session.messages(Tokens(5))] == ["one two", "three", "four", "five"]
    # Its name tells nothing of how it counts: nothing is kept under it.
    assert [dict(item.tokens) for item in session.items.all()] == [{}, {}, {}, {}]
    assert compose(session, "six")[-1] == "six"


def test_counts_of_one_tokenizer_are_not_taken_for_those_of_another(store):
    Session("s", store=store, tokenizer="chars/4").append(user("one two three"), assistant("four"))
    tokenizer = Words()
    session = Session("s", store=store, tokenizer=tokenizer)
    assert sum(session.counter.message(message) for message in session.messages()) == 4
    assert tokenizer.asked == ["one two three", "four"]


def test_what_another_tokenizer_counts_is_kept_beside(store):
    Session("s", store=store, tokenizer="chars/4").append(user("one two three"), assistant("four"))
    first, second = Words(), Words()
    Session("s", store=store, tokenizer=first).messages(Tokens(100))
    assert first.asked == ["one two three", "four"]
    Session("s", store=store, tokenizer=second).messages(Tokens(100))
    assert second.asked == []
    counts = [sorted(item.tokens.values()) for item in Session("s", store=store).items.all()]
    assert counts == [[3, 4], [1, 1]]


def test_a_message_that_a_projection_changed_is_counted_anew(store):
    Session("s", store=store, tokenizer=Words()).append(user("one two three"))
    tokenizer = Words()
    session = Session("s", store=store, tokenizer=tokenizer)
    (message,) = session.timeline_messages(projection=lambda item: [system("short")])
    assert session.counter.message(message) == 1
    assert tokenizer.asked == ["short"]


@pytest.mark.parametrize("profile", ["openai/gpt-4o", "anthropic/claude-sonnet-4-5"])
def test_counts_of_texts_hold_for_every_profile(store, profile):
    Session("s", store=store, tokenizer=Words()).append(*HISTORY)
    tokenizer = Words()
    slots = Slots(10_000, tokenizer=tokenizer, profile=profile)
    slots.add("history", Session("s", store=store, tokenizer=tokenizer).messages())
    slots.add("input", Input("when does it come"))
    slots.render()
    assert tokenizer.asked == ["when does it come"]
