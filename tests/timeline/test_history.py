"""The history helpers of the strategies' ctx."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    Attachment,
    File,
    History,
    InvalidInput,
    Message,
    Text,
    Tokens,
    ToolCall,
    Turns,
    assistant,
    system,
    tool,
    user,
)
from tests.words import texts

FIVE = [user("1"), assistant("2"), user("3"), assistant("4"), user("5")]
CALL = assistant("", tool_calls=[ToolCall("c1", "f", "{}")])


def test_last_user_and_last_assistant_are_the_newest_of_their_role():
    history = History([*FIVE, system("s")])
    assert history.last_user() == user("5")
    assert history.last_assistant() == assistant("4")
    assert History([]).last_user() is None
    assert History([user("u")]).last_assistant() is None


@pytest.mark.parametrize(
    ("from_end", "to_end", "expected"),
    [
        (3, 1, ["3", "4"]),
        (2, 0, ["4", "5"]),
        (1, 0, ["5"]),
        (5, 0, ["1", "2", "3", "4", "5"]),
        (9, 0, ["1", "2", "3", "4", "5"]),
        (9, 4, ["1"]),
        (9, 5, []),
        (9, 8, []),
    ],
)
def test_range_counts_both_ends_from_the_newest(from_end, to_end, expected):
    assert texts(History(FIVE).range(from_end=from_end, to_end=to_end)) == expected
    assert texts(History(FIVE).range(from_end, to_end)) == expected


@pytest.mark.parametrize(("from_end", "to_end"), [(1, 1), (1, 2), (1, -1), (-1, -2), (0, 0)])
def test_range_needs_from_end_beyond_to_end(from_end, to_end):
    with pytest.raises(ValueError, match="from_end > to_end >= 0"):
        History(FIVE).range(from_end, to_end)


def test_recent_is_exactly_the_latest_n():
    history = History(FIVE)
    assert [texts(history.recent(n)) for n in (0, 1, 3)] == [[], ["5"], ["3", "4", "5"]]
    assert texts(history.recent(99)) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("value", [-1, 1.5, "3", None, True])
@pytest.mark.parametrize("helper", ["recent", "by_tokens", "recent_text"])
def test_a_number_of_messages_or_tokens_is_an_integer_of_at_least_0(helper, value):
    with pytest.raises(ValueError):
        getattr(History(FIVE), helper)(value)


def test_by_tokens_walks_back_until_a_message_does_not_fit():
    history = History([user("a" * 5), assistant("b" * 50), user("c" * 10)], tokenizer=len)
    assert texts(history.by_tokens(9)) == []
    assert texts(history.by_tokens(10)) == ["c" * 10]  # an exact fit fits
    assert texts(history.by_tokens(59)) == ["c" * 10]  # it stops, and does not skip to "aaaaa"
    assert texts(history.by_tokens(60)) == ["b" * 50, "c" * 10]
    assert len(history.by_tokens(65)) == 3


def test_by_tokens_counts_attachments():
    photo = user("", attachments=[Attachment("1", "p.png", 1, "image")])
    history = History([photo, user("hi")], tokenizer=len, attachment_tokens={"image": 100})
    assert len(history.by_tokens(100)) == 1
    assert len(history.by_tokens(2 + 100 + len("File: p.png"))) == 2


def test_by_tokens_never_splits_a_tool_group():
    history = History([user("u"), CALL, tool("c1", "r" * 10), assistant("a")], tokenizer=len)
    assert texts(history.by_tokens(11)) == ["a"]
    assert texts(history.by_tokens(13)) == ["a"]  # the result fits, its call does not
    assert texts(history.by_tokens(14)) == ["", "r" * 10, "a"]


def test_by_tokens_keeps_a_result_whose_call_is_not_in_the_history():
    history = History([tool("gone", "r"), user("u")], tokenizer=len)
    assert texts(history.by_tokens(2)) == ["r", "u"]


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(0, 60))
def test_by_tokens_is_the_longest_tail_that_fits(sizes, limit):
    history = History([user("x" * size) for size in sizes], tokenizer=len)
    kept = history.by_tokens(limit)
    assert sum(len(message.text) for message in kept) <= limit
    if len(kept) < len(sizes):
        assert sum(sizes[len(sizes) - len(kept) - 1 :]) > limit


def test_recent_text_names_speakers_and_files():
    report = Attachment("1", "report.pdf", 9, "document")
    history = History(
        [
            system("Be brief."),
            user("Check this report", attachments=[report]),
            assistant("The report looks correct."),
            user("", attachments=[report, Attachment("2", "b.png", 1, "image")]),
            Message("user", (Text("and "), Text("this"), File("f", name="c.txt"))),
            tool("c", "42"),
            Message("assistant", None),
        ]
    )
    assert history.recent_text(9) == (
        "System: Be brief.\n"
        "User: Check this report\nFile: report.pdf\n"
        "Assistant: The report looks correct.\n"
        "User:\nFile: report.pdf\nFile: b.png\n"
        "User: and this\nFile: c.txt\n"
        "Tool: 42\n"
        "Assistant:"
    )
    assert history.recent_text(0) == ""


TALK = [
    assistant("hello"),
    user("q1"),
    CALL,
    tool("c1", "r"),
    assistant("a1"),
    user("q2"),
    user("q2b"),
    assistant("a2"),
    user("q3"),
]


@pytest.mark.parametrize(
    ("limit", "first"),
    [
        (Turns(-1), None),
        (Turns(0), None),
        (Turns(1), "q3"),
        (Turns(2), "q2"),
        (Turns(3), "hello"),
        (Turns(9), "hello"),
        (Tokens(0), "q3"),  # the newest turn stays even if it alone is too large
        (Tokens(2), "q3"),
        (Tokens(8), "q3"),
        (Tokens(9), "q2"),
        (Tokens(21), "q2"),
        (Tokens(22), "hello"),
    ],
)
def test_a_window_is_made_of_whole_turns(limit, first):
    window = History(TALK, tokenizer=len).window(limit)
    assert (window[0].text if window else None) == first
    assert window == TALK[len(TALK) - len(window) :]


def test_lists_are_the_callers_to_change():
    source = list(FIVE)
    history = History(source)
    history.recent(3).clear()
    source.clear()
    assert len(history) == len(history.recent(9)) == 5


def test_dicts_are_accepted():
    history = History([{"role": "user", "content": "hi"}])
    assert history.last_user() == user("hi")
    assert history.recent(1) == [user("hi")]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: History("hello"), "history must be a list of messages"),  # type: ignore[arg-type]
        (lambda: History(5), "history must be a list of messages"),  # type: ignore[arg-type]
        (lambda: History(FIVE).window(3), r"Turns\(n\) or Tokens\(n\)"),  # type: ignore[arg-type]
        (lambda: Turns("3"), "Turns must be an int"),  # type: ignore[arg-type]
        (lambda: Tokens(-1), "Tokens must not be negative"),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


@pytest.mark.parametrize("one", [{"role": "user", "content": "x"}, user("x")])
def test_one_message_is_not_a_history(one):
    with pytest.raises(InvalidInput, match="history must be a list of messages"):
        History(one)


@pytest.mark.parametrize(
    "read",
    [
        lambda history: history.recent(2),
        lambda history: history.range(2, 0),
        lambda history: history.last_assistant(),
        lambda history: history.by_tokens(100),
        lambda history: history.window(Turns(2)),
    ],
)
def test_an_error_names_the_message_of_the_history(read):
    with pytest.raises(InvalidInput, match=r"^history, message 1: a message must be"):
        read(History([user("a"), 1]))  # type: ignore[list-item]


def test_a_history_shows_itself_briefly():
    assert repr(History(FIVE, tokenizer=len)) == "<History messages=5 tokenizer='len'>"


def test_a_history_can_be_looped_over_oldest_first():
    history = History([{"role": "user", "content": "a"}, assistant("b")])
    assert [message.text for message in history] == ["a", "b"]
    assert list(history) == history.recent(2)
