"""Drafts and items are values that cannot be wrong."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from muntin import InvalidInput, Message, Text, ToolCall, assistant, system, tool, user
from muntin.timeline.items import KINDS, MAX_ID, Draft, Item, Visibility, check_session_id, draft_of
from muntin.timeline.store.rows import from_microseconds, to_microseconds


def test_these_are_the_kinds_of_items():
    assert KINDS == (
        "message",
        "tool_call",
        "tool_result",
        "reasoning",
        "run",
        "wake",
        "signal",
        "context_inserted",
        "context_removed",
        "error",
        "summary",
    )


def test_an_item_is_seen_by_client_and_history_unless_told_otherwise():
    draft = Draft("message", user("hi"))
    assert (draft.visibility.client, draft.visibility.history) == (True, True)
    assert (draft.transient, draft.run, draft.turn, draft.opens, draft.ends) == (
        *(False, None, None, None, None),
    )
    assert Visibility(history=False) == Visibility(True, False)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (user("u"), "message"),
        (system("s"), "message"),
        (assistant("a"), "message"),
        (assistant(None), "message"),
        (assistant("a", tool_calls=[ToolCall("c", "t")]), "tool_call"),
        (tool("c", "r"), "tool_result"),
    ],
)
def test_a_message_is_a_draft_of_the_kind_it_is(message, kind):
    draft = draft_of(message)
    assert (draft.kind, draft.message) == (kind, message)


def test_a_draft_forgets_where_its_message_stood_before():
    assert draft_of(Message("user", "u", at=7)).message == user("u")


WRONG = {
    "an unknown kind": lambda: Draft("note", payload="x"),  # type: ignore[arg-type]
    "a wake that speaks": lambda: Draft("wake", user("x")),
    "a tool call without a message": lambda: Draft("tool_call"),
    "a tool result without a message": lambda: Draft("tool_result", payload="x"),
    "reasoning without a message": lambda: Draft("reasoning", payload="x"),
    "a dict for a message": lambda: Draft("message", {"role": "user"}),  # type: ignore[arg-type]
    "a message with a payload": lambda: Draft("message", user("x"), "y"),
    "a message with nothing": lambda: Draft("message"),
    "a payload that is not JSON": lambda: Draft("wake", payload={1, 2}),
    "a payload with a key that is no text": lambda: Draft("wake", payload={1: 2}),
    "a payload with NaN": lambda: Draft("wake", payload=[float("nan")]),
    "a time without a zone": lambda: Draft("wake", time=datetime(2024, 1, 1)),
    "a time beyond the calendar": lambda: Draft(
        "wake", time=datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))
    ),
    "a time that is none": lambda: Draft("wake", time=5),  # type: ignore[arg-type]
    "an unknown status": lambda: Draft("wake", ends="done"),  # type: ignore[arg-type]
    "an unknown way to begin": lambda: Draft("wake", opens="door"),  # type: ignore[arg-type]
    "a turn that is no number": lambda: Draft("wake", turn="1"),  # type: ignore[arg-type]
    "a negative run": lambda: Draft("wake", run=-1),
    "a weight beyond every timeline": lambda: Draft("wake", weight=2**70),
    "a negative weight": lambda: Draft("wake", weight=-1),
    "a count that is no number": lambda: Draft("wake", tokens={"a": "x"}),  # type: ignore[dict-item]
    "a visibility that is none": lambda: Draft("wake", visibility=None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_a_wrong_draft_cannot_exist(make):
    with pytest.raises(InvalidInput) as refused:
        make()
    assert str(refused.value)


def test_a_payload_is_copied():
    payload = {"list": [1]}
    draft = Draft("wake", payload=payload)
    payload["list"].append(2)
    assert draft.payload == {"list": [1]}


def test_an_item_knows_its_role_and_content():
    assert Item(1, "message", 1, assistant("a")).role == "assistant"
    assert Item(1, "message", 1, assistant("a")).content == "a"
    assert Item(1, "message", 1, Message("user", (Text("a"),))).content == (Text("a"),)
    assert Item(1, "message", 1, payload={"text": "hi"}).role == "user"  # from an inbox
    assert Item(1, "message", 1, payload={"text": "hi"}).content == {"text": "hi"}
    assert Item(1, "wake", 1, payload=[1]).role is None


@pytest.mark.parametrize("id", ["a", "🎈" * MAX_ID, "'; --", "a\nb", " "])
def test_a_session_id_may_hold_any_text(id):
    assert check_session_id(id) == id


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("", "must not be empty"),
        ("a" * (MAX_ID + 1), "501 characters; at most 500"),
        ("a\0b", r"must not hold a NUL character: 'a\x00b'"),
        ("a\ud83d", "lone surrogate (U+D83D) at character 1"),
        (5, "must be a str, not int"),
        (None, "must be a str, not NoneType"),
    ],
)
def test_an_unfit_session_id_is_refused_with_the_reason(id, why):
    with pytest.raises(InvalidInput) as refused:
        check_session_id(id)
    assert why in str(refused.value)
    assert "a session id" in str(refused.value)


@pytest.mark.parametrize(
    ("time", "microseconds"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 1, 2, tzinfo=UTC), 1_000_002),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), 253_402_300_799_999_999),
    ],
)
def test_a_time_is_a_whole_number_of_microseconds(time, microseconds):
    assert to_microseconds(time) == microseconds
    assert from_microseconds(microseconds) == time
