"""Calls and results in different slots find each other, and joined texts share one role."""

from __future__ import annotations

import pytest

from muntin import Group, InvalidInput, Message, Slots, ToolCall, assistant, tool, user
from muntin.core.planning.groups import find, link
from muntin.core.planning.read import Reading, read
from muntin.core.planning.slot import Slot

MISSING = len("(no result was recorded)")


def calls(*ids: str) -> Message:
    return assistant("go", tool_calls=[ToolCall(each, "t", "") for each in ids])


def linked(*contents: list[Message], group: Group | None = None) -> list[Reading]:
    counter = Slots(1, tokenizer=len).counter
    slots = [Slot(f"s{n}", n, content, group=group) for n, content in enumerate(contents)]
    return link([read(slot, 1_000, counter) for slot in slots], counter)


def test_a_result_is_tied_to_the_call_before_it() -> None:
    one, two = linked([user("a"), calls("1")], [tool("1", "found"), user("b")])
    assert one.units[1].mates == ((1, 0),)
    assert two.units[0].mates == ((0, 1),)
    assert (one.tokens, two.tokens) == (1 + 3, 5 + 1)


def test_a_result_before_its_call_is_an_orphan_and_the_call_has_none() -> None:
    one, two = linked([tool("1", "found")], [calls("1")])
    assert one.units == ()
    assert one.left_out == ((0, "orphaned", 5),)
    assert two.tokens == 3 + MISSING
    assert two.units[0].missing == ("1",)


def test_among_interleaved_slots_any_call_will_do() -> None:
    one, two = linked([tool("1", "found")], [calls("1")], group=Group("all", interleave=True))
    assert one.units[0].mates == ((1, 0),)
    assert two.tokens == 3


def test_all_parts_of_a_group_know_each_other() -> None:
    one, two, three = linked([calls("1", "2")], [tool("2", "b")], [tool("1", "a")])
    assert one.units[0].mates == ((1, 0), (2, 0))
    assert two.units[0].mates == ((0, 0), (2, 0))
    assert three.units[0].mates == ((0, 0), (1, 0))


def test_the_nearest_call_without_a_result_is_answered() -> None:
    one, two, three = linked([calls("1"), tool("1", "a")], [calls("1")], [tool("1", "b")])
    assert one.units[0].mates == ()
    assert two.units[0].mates == ((2, 0),)
    assert three.units[0].mates == ((1, 0),)


def test_two_calls_of_one_id_without_a_result_both_miss_one() -> None:
    one, two = linked([calls("1")], [calls("1")])
    assert (one.units[0].missing, two.units[0].missing) == (("1",), ("1",))


def test_a_result_that_stands_before_a_call_of_its_slot_is_no_answer_to_it() -> None:
    (one,) = linked([tool("1", "a"), calls("1")])
    assert one.units[0].missing == ("1",)
    assert [reason for _, reason, _ in one.left_out] == ["orphaned"]


def test_what_was_not_read_is_searched_by_role_alone() -> None:
    counter = Slots(1, tokenizer=len).counter
    talk = [calls("1"), *(user("abc") for _ in range(50)), tool("2", "x"), *[user("d")] * 3]
    reading = read(Slot("talk", 0, talk), 2, counter)
    assert find(reading, {"1"}, set(), 100) == 0
    assert find(reading, {"1"}, set(), 10) is None
    assert find(reading, set(), {"2"}, 10) == 51


def test_joined_texts_of_two_roles_are_an_error() -> None:
    slots = Slots(100, tokenizer=len)
    slots.add("a", "a", role="system", group=Group("rules", join=" "))
    slots.add("b", "b", role="user", group=Group("rules", join=" "))
    with pytest.raises(InvalidInput, match="joined texts share one role"):
        slots.render()
