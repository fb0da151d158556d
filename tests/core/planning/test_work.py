"""The work of planning a step, in calls of functions: no clock, so no noise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import mean
from typing import Any

import pytest

from bench.runs.plan import Planned
from muntin import Ladder, Slots, Stepped, Window
from tests.core.planning.scenes import group


def calls(work: Callable[[], Any]) -> int:
    """Return how many functions a piece of work calls."""
    made = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def test_a_step_with_the_ladder_is_at_most_twice_the_work_of_one_without() -> None:
    taken = []
    for ladder in (Ladder(), None):
        planned = Planned(ladder)
        for _ in range(400):
            planned.step()
        taken.append(mean(calls(planned.step) for _ in range(10)))
        assert planned.window is not None
        assert len(planned.window.messages) == 822
    assert taken[0] <= 2 * taken[1]


@pytest.mark.parametrize("ladder", [None, Ladder(short_tokens=64)])
def test_the_work_of_a_step_does_not_grow_with_the_steps_before_it(ladder: Ladder | None) -> None:
    run = [message for number in range(2_400) for message in group(str(number), (100,))]
    window: Window | None = None

    def plan(count: int) -> None:
        nonlocal window
        slots = Slots(1_500, tokenizer=len, trimming=Stepped(), ladder=ladder, previous=window)
        slots.add("system", "s" * 10)
        slots.add("input", "i" * 10)
        slots.add("run", run[: 2 * count])
        window = slots.render()

    taken = {}
    for first in (200, 2_200):  # levels are found again from far away, then step by step
        for count in range(first, first + 100):
            plan(count)
        taken[first] = mean(calls(lambda n=n: plan(n)) for n in range(first + 100, first + 200))  # type: ignore[misc]
    assert taken[2_200] <= taken[200] * (2_300 / 300) ** 0.1
