"""Planner and oracle side by side where it matters whose turn it is: shares and markers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import Group, Input, Message, assistant, user
from muntin.core.message import Role
from muntin.core.planning.limits import allocate
from tests.core.planning.beside import EXAMPLES, Texts, agree, budgets, slow
from tests.core.planning.oracle_slots import Given
from tests.core.planning.oracle_turns import fair_shares, judge_in_turn

Case = tuple[list[Given], int, int]
some = settings(slow, max_examples=EXAMPLES // 4)


@st.composite
def contents(draw: st.DrawFn, texts: Texts) -> str | list[Message]:
    if draw(st.booleans()):
        return texts(draw(st.integers(1, 9)))
    roles: tuple[Role, ...] = ("user", "user", "assistant", "system")
    return [
        Message(draw(st.sampled_from(roles)), texts(draw(st.integers(1, 4))))
        for _ in range(draw(st.integers(1, 3)))
    ]


@st.composite
def cases(draw: st.DrawFn, *, shared: bool, marked: bool) -> Case:
    texts = Texts()
    slots: list[Given] = []
    # Slots that share have one priority, as in the doors: what others would mean is nowhere said.
    priorities = {name: draw(st.integers(0, 2)) for name in ("one", "two")}
    for number in range(draw(st.integers(1, 4))):
        options: dict[str, Any] = {
            "priority": draw(st.integers(0, 2)),
            "trim_behavior": draw(st.sampled_from(("message", "char", "slot"))),
            "max_tokens": draw(st.sampled_from((None, None, 3, 7))),
            "keep": draw(st.sampled_from(("tail", "tail", "head"))),
        }
        if shared and draw(st.integers(0, 3)):
            name = draw(st.sampled_from(("one", "one", "two")))
            options.update(group=Group(name, share=True), priority=priorities[name])
        if marked and draw(st.integers(0, 3)):
            options["marker"] = draw(st.sampled_from(("!", "<>", "[cut]")))
        if not shared and not marked and draw(st.integers(0, 5)) == 0:
            options["required"] = True
        slots.append(Given(f"slot{number}", draw(contents(texts)), **options))
    if draw(st.booleans()):
        slots.append(Given("input", Input(texts(draw(st.integers(1, 4))))))
    overhead = draw(st.integers(0, 2))
    return slots, draw(budgets(slots, overhead)), overhead


@some
@given(cases(shared=False, marked=False))
def test_both_oracles_demand_the_same_of_plain_slots(case: Case) -> None:
    agree(*case)
    agree(*case, oracle=judge_in_turn)


@some
@given(cases(shared=True, marked=False))
def test_slots_share_as_the_oracle_demands(case: Case) -> None:
    agree(*case, oracle=judge_in_turn)


def is_read_to_its_ceiling(case: Case) -> bool:
    """Say whether no text with a marker has a ceiling that the budget does not reach.

    Such a text is read only as far as it could fit. Whether the rest of it is over the ceiling, so
    that the marker needs room below it, the oracle knows and the planner does not ask: where the
    text may not be dropped, the window is over budget by at most the marker more.
    """
    slots, budget = case[0], case[1]
    return all(
        slot.marker is None or slot.max_tokens is None or slot.max_tokens <= budget
        for slot in slots
        if slot.trim_behavior == "char"
    )


@some
@given(cases(shared=False, marked=True).filter(is_read_to_its_ceiling))
def test_markers_stand_where_the_oracle_demands(case: Case) -> None:
    agree(*case, oracle=judge_in_turn)


@some
@given(cases(shared=True, marked=True).filter(is_read_to_its_ceiling))
def test_markers_of_slots_that_share_stand_where_the_oracle_demands(case: Case) -> None:
    agree(*case, oracle=judge_in_turn)


@settings(slow, max_examples=EXAMPLES)
@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=1, max_size=4),
)
def test_shares_are_those_of_the_water_level(pot: int, given: list[tuple[int, int]]) -> None:
    asks, weights = [ask for ask, _ in given], [weight for _, weight in given]
    assert allocate(pot, asks, weights) == fair_shares(pot, asks, weights)


@pytest.mark.parametrize("behavior", ["message", "char", "slot"])
@pytest.mark.parametrize("content", ["abcdefgh", [user("abc"), assistant("de"), user("fgh")]])
def test_every_budget_of_a_slot_with_a_marker_is_composed_as_the_oracle_demands(
    content: Any, behavior: str
) -> None:
    for budget, line, overhead in product(range(16), ("!", "[cut]"), (0, 1)):
        slots = [
            Given("slot", content, trim_behavior=behavior, marker=line),
            Given("other", "xy", priority=1),
        ]
        agree(slots, budget, overhead, oracle=judge_in_turn)
