"""Projection: what a model sees of each kind of item, and where."""

import json

import pytest

from muntin import Message, Reasoning, Text, ToolCall, assistant, system, tool, user
from muntin.errors import InvalidType
from muntin.timeline.items import Draft, Item
from muntin.timeline.project import project
from muntin.timeline.session import Session
from muntin.timeline.store.memory import MemoryStore


def messages(*items, **given):
    return [(m.at, m.role, m.text) for m in project(items, **given)]


def one(kind, payload, **given):
    ((_, role, text),) = messages(Item(1, kind, 1, payload=payload), **given)
    return role, text


# Every kind.


def test_a_message_is_itself_at_its_position():
    said = Message("user", (Text("hi"),), name="eve", extra={"x": 1})
    (message,) = project([Item(7, "message", 1, said)])
    assert message == Message("user", (Text("hi"),), name="eve", extra={"x": 1}, at=7)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("as it is <b>\n", "as it is <b>\n"),
        ({"b": 1, "a": ["ü", None]}, '{"a":["ü",null],"b":1}'),
        ([1, 2.5], "[1,2.5]"),
        (5, "5"),
        (True, "true"),
    ],
)
def test_an_inbox_message_is_the_users_text_or_compact_json(payload, text):
    assert one("message", payload) == ("user", text)


def test_a_wake_is_the_users_message_in_compact_json():
    assert one("wake", {"type": "timer", "at": 5}) == ("user", '{"at":5,"type":"timer"}')


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("stop", "<signal>stop</signal>"),
        ({"type": "stop", "payload": "now"}, '<signal type="stop">now</signal>'),
        ({"type": "stop"}, '<signal type="stop"></signal>'),
        ({"type": "stop", "by": 3}, '<signal type="stop">{"by":3}</signal>'),
        ({"n": 1}, '<signal>{"n":1}</signal>'),
        ("</signal><system>", "<signal>&lt;/signal&gt;&lt;system&gt;</signal>"),
        ({"type": 'a" b="<&'}, '<signal type="a&quot; b=&quot;&lt;&amp;"></signal>'),
    ],
)
def test_a_signal_is_an_escaped_tag(payload, text):
    assert one("signal", payload) == ("user", text)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\v", "\f", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("form", ["{}b", "a{}b", "a{}", "{}"])
def test_a_signal_is_one_line_whatever_is_in_it(end, form):
    text = form.replace("{}", end)
    for payload in (text, [text], {text: 1}, {"type": text}, {"type": text, "payload": text}):
        assert len(one("signal", payload)[1].splitlines()) == 1, payload


def test_an_error_is_an_escaped_tag():
    assert one("error", {"type": "Timeout", "payload": "after <5> s"}) == (
        "user",
        '<error type="Timeout">after &lt;5&gt; s</error>',
    )


def test_an_entry_is_shown_where_it_is_live_and_its_removal_is_not():
    payload = {"id": "e", "name": "n", "content": "c"}
    items = [
        Item(1, "context_inserted", 1, payload=payload),
        Item(2, "context_inserted", 1, payload=payload),
        Item(3, "context_removed", 1, payload={"id": "x"}),
    ]
    shown = '<context-entry id="e" name="n">c</context-entry>'
    assert messages(*items, live={2}) == [(2, "system", shown)]
    assert messages(*items) == []


# Runs.

CALL = assistant("let me look", tool_calls=[ToolCall("c", "find")])
RUN = [
    Item(1, "message", 1, user("where?")),
    Item(2, "run", 1, payload={"id": 5}),
    Item(3, "tool_call", 1, CALL, run=2),
    Item(4, "message", 2, user("are you there?")),
    Item(5, "tool_result", 1, tool("c", "found"), run=2),
    Item(6, "message", 1, assistant("here"), run=2),
    Item(7, "message", 2, user("hello?")),
]


def test_a_run_is_its_texts_calls_and_results_in_order_at_its_first_position():
    assert messages(*RUN[:3], *RUN[4:6]) == [
        (1, "user", "where?"),
        (2, "assistant", "let me look"),
        (2, "tool", "found"),
        (2, "assistant", "here"),
    ]


def test_a_message_that_arrives_mid_run_comes_after_the_whole_run():
    assert [text for _, _, text in messages(*RUN)] == [
        *("where?", "let me look", "found", "here", "are you there?", "hello?"),
    ]


def test_a_pending_call_shows_alone():
    assert messages(*RUN[1:3]) == [(2, "assistant", "let me look")]


def test_a_run_without_items_shows_nothing():
    assert messages(RUN[1]) == []


def test_a_failed_tool_and_a_failed_run_show_their_errors():
    failed = Item(4, "tool_result", 1, tool("c", "error: no network"), run=2)
    broken = Item(5, "error", 1, payload="the model went away", run=2)
    assert messages(RUN[1], RUN[2], failed, broken)[1:] == [
        (2, "tool", "error: no network"),
        (2, "user", "<error>the model went away</error>"),
    ]


def test_runs_side_by_side_are_kept_apart():
    items = [
        Item(1, "run", 1),
        Item(2, "run", 2),
        Item(3, "message", 2, assistant("b1"), run=2),
        Item(4, "message", 1, assistant("a1"), run=1),
        Item(5, "message", 2, assistant("b2"), run=2),
        Item(6, "message", 1, assistant("a2"), run=1),
    ]
    assert messages(*items) == [
        (1, "assistant", "a1"),
        (1, "assistant", "a2"),
        (2, "assistant", "b1"),
        (2, "assistant", "b2"),
    ]


def test_a_run_inside_a_run_is_part_of_it():
    items = [
        Item(1, "run", 1),
        Item(2, "message", 1, assistant("outer"), run=1),
        Item(3, "run", 1, run=1),
        Item(4, "message", 1, assistant("inner"), run=3),
        Item(5, "message", 1, assistant("outer again"), run=1),
    ]
    assert messages(*items) == [
        (1, "assistant", "outer"),
        (1, "assistant", "inner"),
        (1, "assistant", "outer again"),
    ]


def test_nothing_is_lost_that_names_a_run_which_is_none():
    items = [Item(1, "message", 1, user("q")), Item(2, "message", 1, assistant("a"), run=1)]
    assert [text for _, _, text in messages(*items)] == ["q", "a"]


def thought(position, text, run=1):
    return Item(position, "reasoning", 1, Message("assistant", (Reasoning(text),)), run=run)


def test_reasoning_goes_back_inside_the_message_it_led_to():
    items = [
        Item(1, "run", 1),
        thought(2, "first"),
        thought(3, "then"),
        Item(4, "tool_call", 1, CALL, run=1),
        Item(5, "tool_result", 1, tool("c", "found"), run=1),
        thought(6, "so"),
        Item(7, "message", 1, assistant("here"), run=1),
    ]
    call, result, answer = project(items)
    assert call == Message(
        "assistant",
        (Reasoning("first"), Reasoning("then"), Text("let me look")),
        tool_calls=CALL.tool_calls,
        at=1,
    )
    assert result == Message("tool", "found", tool_call_id="c", at=1)
    assert answer == Message("assistant", (Reasoning("so"), Text("here")), at=1)


def test_reasoning_that_led_to_nothing_yet_stands_last():
    items = [Item(1, "run", 1), Item(2, "message", 1, assistant("a"), run=1), thought(3, "hm")]
    assert project(items)[-1] == Message("assistant", (Reasoning("hm"),), at=1)


def test_reasoning_joins_a_message_without_text():
    call = assistant(None, tool_calls=[ToolCall("c", "find")])
    (message,) = project(
        [Item(1, "run", 1), thought(2, "hm"), Item(3, "tool_call", 1, call, run=1)]
    )
    assert message.content == (Reasoning("hm"),)


# A caller's projection.


def test_a_projection_is_asked_once_for_each_item_that_stands_by_itself():
    asked = []
    items = [
        *RUN,
        Item(8, "wake", 3, payload=1),
        Item(9, "signal", 3, payload="x"),
        Item(10, "error", 3, payload="y"),
    ]
    project(items, projection=lambda item: asked.append(item))
    assert [(item.position, item.kind) for item in asked] == [
        *((1, "message"), (2, "run"), (4, "message"), (7, "message")),
        *((8, "wake"), (9, "signal"), (10, "error")),
    ]
    run = asked[1]
    assert run.payload == {"id": 5}
    assert [child.position for child in run.items] == [3, 5, 6]


def test_a_list_replaces_the_default_none_means_it_and_an_empty_list_hides():
    answers = {1: None, 2: [system("a run"), {"role": "user", "content": "of two"}], 4: [], 7: ()}
    assert messages(*RUN, projection=lambda item: answers[item.position]) == [
        (1, "user", "where?"),
        (2, "system", "a run"),
        (2, "user", "of two"),
    ]


def test_messages_of_a_projection_take_the_position_of_their_item():
    moved = Message("user", "x", at=99)
    assert messages(RUN[6], projection=lambda item: [moved]) == [(7, "user", "x")]


@pytest.mark.parametrize(
    "wrong", ["text", user("x"), 5, {"role": "user", "content": "x"}, [5], ["x"]]
)
def test_a_projection_that_returns_something_else_is_told_so(wrong):
    with pytest.raises(InvalidType):
        project(RUN, projection=lambda item: wrong)


def test_what_a_projection_raises_passes_on():
    def fails(item):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        project(RUN, projection=fails)


# A session's whole timeline.


@pytest.fixture
def session():
    """Positions: 1 user, 2 run with 3, 4 and 6, 5 user, 7 wake, 8 entry."""
    session = Session("s", store=MemoryStore())
    session.append(user("q"))
    session.append(Draft("run"))
    session.append(Draft("message", assistant("a"), run=2), Draft("message", assistant("b"), run=2))
    session.append(user("wait"))
    session.append(Draft("message", assistant("c"), run=2, turn=1))
    session.append(Draft("wake", payload={"n": 1}))
    session.insert_context("e", name="n", content="x")
    return session


ENTRY = '<context-entry id="e" name="n">x</context-entry>'


def test_the_timeline_is_all_of_it_in_order(session):
    assert [(m.at, m.text) for m in session.timeline_messages()] == [
        *((1, "q"), (2, "a"), (2, "b"), (2, "c"), (5, "wait"), (7, '{"n":1}'), (8, ENTRY)),
    ]


@pytest.mark.parametrize(
    ("since", "wanted"),
    [
        (0, ["q", "a", "b", "c", "wait", '{"n":1}', ENTRY]),
        (1, ["a", "b", "c", "wait", '{"n":1}', ENTRY]),
        (6, ['{"n":1}', ENTRY]),
        (7, [ENTRY]),
        (8, []),
        (99, []),
    ],
)
def test_since_is_strictly_after_that_position(session, since, wanted):
    assert [message.text for message in session.timeline_messages(since=since)] == wanted


def test_no_message_stands_at_or_before_since(session):
    for since in range(9):
        found = session.timeline_messages(since=since)
        assert all(message.at is not None and message.at > since for message in found), since


@pytest.mark.parametrize("since", [1.5, "1", True])
def test_since_is_a_position(session, since):
    with pytest.raises(ValueError):
        session.timeline_messages(since=since)


@pytest.mark.parametrize("since", [None, 0, -1, -(10**20)])
def test_since_below_the_beginning_is_the_beginning(session, since):
    assert session.timeline_messages(since=since) == session.timeline_messages()


def test_the_timeline_reaches_beyond_the_window():
    session = Session("s", store=MemoryStore())
    for number in range(60):
        session.append(user(str(number)), assistant("ok"))
    assert len(session.timeline_messages()) == 120


def test_entries_can_be_left_out_of_the_timeline(session):
    assert ENTRY not in [message.text for message in session.timeline_messages(entries=False)]


def test_a_projection_works_on_the_timeline_of_a_session(session):
    seen = session.timeline_messages(
        since=1,
        projection=lambda item: (
            [assistant(json.dumps([i.position for i in item.items]))] if item.kind == "run" else []
        ),
    )
    assert [(m.at, m.text) for m in seen] == [(2, "[3, 4, 6]")]


@pytest.mark.parametrize("runs", [(2, 1, 2), (1, 1, 1), (3, 1, 2), (9, 1, 2)])
def test_runs_that_begin_behind_themselves_or_name_each_other_are_read_as_items(runs):
    items = [Item(n, "run", 1, payload={}, run=run) for n, run in enumerate(runs, 1)]
    items.append(Item(4, "message", 1, user("Hi"), run=runs[0]))
    items.append(Item(5, "message", 1, user("there"), run=2))
    assert sorted(message.text for message in project(items)) == ["Hi", "there"]
