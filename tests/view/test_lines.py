"""The lines of a window: its messages in order, what was left out where it would have stood."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muntin import Attachment, Input, Message, Slots, ToolCall, Window, assistant, tool, user
from muntin.core.parts import File, Image, Other, Reasoning, Text
from muntin.core.planning.slot import Group
from muntin.view.lines import DisplayedLine, TextPiece, lines, show


def told(window: Window) -> list[DisplayedLine]:
    return [show(window, line) for line in lines(window)]


def states(window: Window) -> list[tuple[str, str]]:
    return [(each.state, "".join(p.text for p in each.pieces)) for each in told(window)]


def test_what_was_dropped_stands_before_what_is_still_there():
    slots = Slots(40, tokenizer=len)
    slots.add("system", "s" * 10)
    slots.add("history", [user("a" * 10), assistant("b" * 10), user("c" * 10)])
    slots.add("input", Input("i" * 10))
    found = told(slots.render())
    assert [(each.place, each.slot, each.state) for each in found] == [
        (0, 0, "kept"),
        (None, 1, "dropped"),
        (1, 1, "kept"),
        (2, 1, "kept"),
        (3, 2, "kept"),
    ]
    assert found[1].pieces == (TextPiece("a" * 10, cut=True),)
    assert found[1].reason == "over_budget"


def test_a_text_cut_at_its_head_shows_the_cut_part_first():
    slots = Slots(30, tokenizer=len)
    slots.add("text", "a" * 20 + "b" * 30, trim_behavior="char")
    (found,) = told(slots.render())
    assert found.pieces == (TextPiece("a" * 20, cut=True), TextPiece("b" * 30))
    assert (found.state, found.reason) == ("trimmed", "over_budget")


def test_a_text_cut_at_its_end_shows_the_cut_part_last():
    slots = Slots(30, tokenizer=len)
    slots.add("text", "a" * 30 + "b" * 20, trim_behavior="char", keep="head")
    (found,) = told(slots.render())
    assert found.pieces == (TextPiece("a" * 30), TextPiece("b" * 20, cut=True))


def test_messages_too_old_to_be_looked_at_are_lines_too():
    slots = Slots(25, tokenizer=len)
    slots.add("history", [user(f"{n:010}") for n in range(50)])
    found = told(slots.render())
    assert len(found) == 50
    assert [each.place for each in found[-2:]] == [0, 1]
    assert {each.reason for each in found[:40]} == {"beyond_fit"}
    assert found[7].pieces == (TextPiece("0000000007", cut=True),)


def test_joined_texts_are_one_line_in_pieces_of_their_slots():
    group = Group("g", join="\n")
    slots = Slots(25, tokenizer=len)
    slots.add("a", "a" * 10, role="system", group=group, priority=2)
    slots.add("b", "b" * 30, role="system", group=group, priority=1)
    slots.add("c", "c" * 10, role="system", group=group, priority=2)
    (found,) = told(slots.render())
    assert found.slot is None
    assert [(p.text, p.cut, p.slot) for p in found.pieces] == [
        ("a" * 10, False, 0),
        ("b" * 30, True, 1),
        ("\n", False, None),
        ("c" * 10, False, 2),
    ]
    assert found.state == "trimmed"


def test_interleaved_slots_keep_the_order_of_the_window():
    group = Group("g", interleave=True)
    slots = Slots(35, tokenizer=len)
    first = [Message("user", c * 10, at=n) for n, c in ((0, "a"), (2, "c"))]
    second = [Message("user", c * 10, at=n) for n, c in ((1, "b"), (3, "d"))]
    slots.add("one", first, group=group)
    slots.add("two", second, group=group)
    window = slots.render()
    found = [each for each in told(window) if each.place is not None]
    assert [each.place for each in found] == list(range(len(window.messages)))


def test_a_marker_is_a_line_that_was_added():
    slots = Slots(60, tokenizer=len)
    slots.add("h", [user("a" * 30), user("b" * 30)], marker=lambda cut: f"[{cut.messages} gone]")
    slots.add("input", "i")
    assert [state for state, _ in states(slots.render())] == ["dropped", "added", "kept", "kept"]


def test_orphans_and_empty_messages_are_told():
    slots = Slots(1_000, tokenizer=len)
    slots.add("history", [tool("gone", "result"), user(""), user("hi")])
    assert [(each.state, each.reason) for each in told(slots.render())] == [
        ("dropped", "orphaned"),
        ("empty", "empty"),
        ("kept", None),
    ]


def test_calls_files_images_and_reasoning_are_told_beside_the_text():
    slots = Slots(100_000, tokenizer=len)
    parts = (
        Reasoning("hm"),
        Text("see"),
        Image("https://example.com/a.png"),
        File("f-1", name="b.pdf"),
        Other({"type": "video_url"}),
    )
    slots.add("history", [user("go"), Message("assistant", parts)])
    slots.add("input", Input("look", (Attachment("1", "c.txt", 1, "document"),)))
    call = assistant("", tool_calls=[ToolCall("c", "look_up", '{"n": 1}')])
    slots.add("run", [call, tool("c", "found")])
    _, thought, asked, called, answered = told(slots.render())
    assert [(kind, piece.text) for kind, piece in thought.notes] == [
        ("reasoning", "hm"),
        ("image", "https://example.com/a.png"),
        ("file", "b.pdf"),
        ("part", "video_url"),
    ]
    assert asked.notes == (("file", TextPiece("File: c.txt")),)
    assert called.calls == (("look_up", TextPiece('{"n": 1}')),)
    assert answered.answers == "c"


def test_long_texts_show_the_end_that_touches_the_cut():
    slots = Slots(5_000, tokenizer=len)
    slots.add("text", "a" * 30_000 + "b" * 5_000, trim_behavior="char")
    window = slots.render()
    shown = show(window, lines(window)[0], 1_000)
    cut, kept = shown.pieces
    assert (len(cut.text), cut.hidden, cut.end) == (1_000, 29_000, "head")
    assert (len(kept.text), kept.hidden, kept.end) == (1_000, 4_000, "tail")


def test_a_pickled_window_shows_what_it_still_has():
    slots = Slots(25, tokenizer=len)
    slots.add("history", [user("a" * 10), user("b" * 10), user("c" * 10)])
    again = pickle.loads(pickle.dumps(slots.render()))
    assert states(again) == [("kept", "b" * 10), ("kept", "c" * 10)]


def test_a_list_that_was_emptied_since_is_no_error():
    history = [user("a" * 10), user("b" * 10), user("c" * 10)]
    slots = Slots(25, tokenizer=len)
    slots.add("history", history)
    window = slots.render()
    history.clear()
    assert [text for _, text in states(window)] == ["b" * 10, "c" * 10]


def test_the_same_message_twice_is_two_lines():
    same = user("x" * 10)
    slots = Slots(20, tokenizer=len)
    slots.add("history", [same, same, same])
    assert [state for state, _ in states(slots.render())] == ["dropped", "kept", "kept"]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(1, 150),
    st.sampled_from(["message", "char"]),
    st.sampled_from(["head", "tail"]),
)
def test_lines_hold_every_message_of_the_window_and_every_declared_one_once(
    sizes: list[int], budget: int, trim: Any, keep: Any
):
    slots = Slots(budget, tokenizer=len)
    slots.add("system", "s" * 5)
    texts = [chr(97 + n) * size for n, size in enumerate(sizes)]
    slots.add("history", [user(text) for text in texts], trim_behavior=trim, keep=keep)
    slots.add("input", Input("i" * 5))
    window = slots.render()
    found = told(window)
    assert [each.place for each in found if each.place is not None] == list(
        range(len(window.messages))
    )
    assert len(found) == len(sizes) + 2
    whole = ["".join(piece.text for piece in each.pieces) for each in found if each.slot == 1]
    assert whole == texts
    for each in found:
        if each.place is not None:
            kept = "".join(piece.text for piece in each.pieces if not piece.cut)
            assert kept == window.messages[each.place].text
