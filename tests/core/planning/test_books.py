"""The books: totals that stay true, and trials that leave no trace but their ranks."""

from __future__ import annotations

import pytest

from muntin import Group, Message, Slots, ToolCall, assistant, system, tool, user
from muntin.core.planning.books import Books
from muntin.core.planning.decide import apply_ceilings
from muntin.core.planning.intake import read_all
from muntin.core.planning.read import Reading, Unit
from muntin.core.planning.step import Ground

CALL = assistant("ask", tool_calls=[ToolCall("1", "t", "{}")])


def books(slots: Slots, budget: int = 1_000) -> Books:
    """Return the books of slots, all of them read."""
    return Books(read_all(slots.declared, {}, Ground(0, None), slots.counter, budget, budget))


def declared(**contents: list[Message]) -> Slots:
    slots = Slots(1_000, tokenizer=len)
    for name, content in contents.items():
        slots.add(name, content)
    return slots


def stand(made: Books) -> tuple[object, ...]:
    return made.total, dict(made.sizes), [made.now(u) for each in made.readings for u in each.units]


def first(made: Books) -> tuple[Reading, Unit]:
    return made.readings[0], made.readings[0].units[0]


def test_the_total_is_what_the_slots_have() -> None:
    made = books(declared(a=[user("abc"), assistant("de")], b=[user("f")]))
    _, unit = first(made)
    assert made.total == 6
    made.cut(unit, 0, user("c"), 1)
    assert (made.total, made.sizes, made.tokens(unit)) == (4, {0: 3, 1: 1}, 1)
    made.drop(unit)
    assert (made.total, made.sizes, made.tokens(unit)) == (3, {0: 2, 1: 1}, 0)


def test_a_trial_leaves_nothing_behind_unless_it_is_kept() -> None:
    made = books(declared(a=[user("abc"), assistant("de")]))
    _, unit = first(made)
    before = stand(made)
    with made.trial():
        made.cut(unit, 0, user("c"), 1)
        made.drop(unit)
        assert made.total == 2
    assert stand(made) == before
    assert not made.is_cut(made.readings[0])
    with made.trial() as keep:
        made.drop(unit)
        keep()
    assert made.is_dropped(unit)


def test_a_trial_inside_a_trial_is_taken_back_alone() -> None:
    made = books(declared(a=[user("abc"), assistant("de")]))
    one, two = made.readings[0].units
    with made.trial() as keep:
        made.cut(one, 0, user("c"), 1)
        before = stand(made)
        with made.trial():
            made.drop(one)
            made.drop(two)
        assert stand(made) == before
        keep()
    assert made.tokens(one) == 1


def test_ranks_go_on_after_a_trial() -> None:
    made = books(declared(a=[user("abc"), assistant("de")]))
    one, two = made.readings[0].units
    with made.trial():
        made.drop(one)
    made.drop(two)
    verdict = made.verdict(two)
    assert verdict is not None
    assert verdict.rank == 2


def test_a_unit_takes_its_parts_in_other_slots_with_it() -> None:
    made = books(declared(calls=[CALL], results=[tool("1", "found")]))
    _, unit = first(made)
    (mate,) = made.readings[1].units
    made.drop(unit)
    assert made.is_dropped(mate)
    assert made.total == 0


def test_what_slots_gave_comes_back_without_what_others_gave() -> None:
    slots = Slots(1_000, tokenizer=len)
    slots.add("talk", [user("abc")])
    slots.add("input", "def")
    made = books(slots)
    made.begin_taking()
    talk, asked = made.readings
    made.drop(talk.units[0])
    made.cut(asked.units[0], 0, user("f"), 1)
    made.give_back([asked])
    assert made.sizes == {0: 0, 1: 3}
    assert made.is_dropped(talk.units[0])


def test_what_a_ceiling_took_does_not_come_back() -> None:
    slots = Slots(1_000, tokenizer=len)
    slots.add("input", "abcdef" * 100, max_tokens=400)
    made = books(slots)
    apply_ceilings(made)
    made.begin_taking()
    made.give_back(made.readings)
    assert made.total == 400


def test_a_joined_text_counts_as_one() -> None:
    slots = Slots(1_000, tokenizer=len)
    for name in ("abc", "de"):
        slots.add(name, name, role="system", group=Group("rules", join=", "))
    made = books(slots)
    assert (made.total, made.added) == (7, 2)
    made.drop(made.readings[0].units[0])
    made.recount(Group("rules", join=", "))
    assert (made.total, made.added) == (2, 0)


@pytest.mark.parametrize(("priority", "held"), [(0, 1), (1, 0)])
def test_system_messages_are_held_while_no_slot_has_a_priority(priority: int, held: int) -> None:
    slots = Slots(1_000, tokenizer=len)
    slots.add("talk", [system("rules"), user("abc")], priority=priority)
    made = books(slots)
    assert len(made.held(made.readings[0])) == held
