"""The way down: worked cases with sizes that can be added in the head, then any past."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Ladder
from muntin.core.planning.ladder import Rung, descend, newest_of
from muntin.core.planning.shapes import Level, Levels
from tests.core.planning.scenes import many

SIZES: dict[Level, int] = {"full": 100, "short": 30, "stub": 10}


class Fixed(Rung):
    """A rung whose sizes are given."""

    def size(self, level: Level) -> int:
        return self.sizes[level] if self.is_group else self.tokens


def past(kinds: str) -> list[Rung]:
    """A rung for each letter: a user's message of 20, an answer of 20, a group, the input of 5; in
    capitals, the newest group of the run. What follows the last user or the input is the run."""
    rungs: list[Rung] = []
    asked = max(kinds.rfind("u"), kinds.rfind("i"))
    for place, kind in enumerate(kinds):
        first = rungs[-1].end if rungs else 0
        grouped = kind in "gG"
        rungs.append(
            Fixed(
                first,
                first + (2 if grouped else 1),
                100 if grouped else 5 if kind == "i" else 20,
                is_group=grouped,
                opens_turn=kind in "ui",
                fixed=kind == "i",
                in_run=place > asked,
                stays=kind == "G",
                sizes=dict(SIZES),
            )
        )
    return rungs


def total(rungs: list[Rung], levels: Levels) -> int:
    return sum(
        rung.size(levels.of(rung.first))
        for rung in rungs
        if rung.fixed or rung.first >= levels.gone
    )


def down(rungs: list[Rung], target: int, must: int | None = None, **rules: Any) -> Levels:
    whole = total(rungs, Levels())
    return descend(rungs, Levels(), Ladder(**rules), whole, target, must)


# u g g a | i g g g G: 20 + 200 + 20 + 5 + 400 = 645
RUN = "ugga" + "i" + "gggG"


@pytest.mark.parametrize(
    ("target", "levels"),
    [
        (645, Levels()),
        (644, Levels(0, 0, 3)),  # the oldest group is short
        (575, Levels(0, 0, 3)),
        (574, Levels(0, 0, 5)),
        (504, Levels(0, 0, 9)),  # the first of the run; three are kept
        (434, Levels(0, 3, 9)),  # all older are short: now stubs
        (374, Levels(0, 9, 11)),  # 375 with three stubs: now the newest groups
        (304, Levels(0, 9, 13)),
        (234, Levels(0, 9, 15)),  # the very newest is short
        (164, Levels(0, 11, 15)),
        (144, Levels(0, 13, 15)),
        (124, Levels(1, 13, 15)),  # now units leave
        (0, Levels(13, 13, 15)),  # the newest never
    ],
)
def test_the_order_of_the_steps(target: int, levels: Levels) -> None:
    found = down(past(RUN), target)
    assert (found.stubs, found.shorts) == (levels.stubs, levels.shorts)
    assert found.gone == levels.gone or target == 124


def test_everything_is_a_stub_before_anything_leaves() -> None:
    rungs = past(RUN)
    for target in range(total(rungs, Levels())):
        levels = down(rungs, target)
        if levels.gone:
            assert levels.stubs == 13


def test_without_stubs_what_is_short_leaves() -> None:
    levels = down(past(RUN), 100, stubs=False)
    assert levels.stubs == 0
    assert levels.gone > 0


def test_no_group_is_kept_full_if_none_is_asked_for() -> None:
    assert down(past(RUN), 500, keep_groups=0) == Levels(0, 0, 9)
    assert down(past(RUN), 400, keep_groups=0) == Levels(0, 0, 11)


def test_newest_groups_go_down_only_as_far_as_they_must() -> None:
    levels = down(past(RUN), 100, 400)
    assert levels == Levels(0, 9, 9)
    assert down(past(RUN), 100, 350) == Levels(0, 9, 11)


def test_what_leaves_begins_at_a_turn_if_half_stays() -> None:
    levels = down(past("uaauaaua"), 100)  # 160 of six answers; a turn is 60
    assert levels.gone == 3
    long = down(past("uaaaaaaaaaua"), 200)  # the next turn would leave 40
    assert long.gone == 2


def test_most_of_the_stubs_that_may_leave_stay_and_half_of_texts_alone() -> None:
    rungs = past("uga" * 40 + "iG")  # as stubs 2,000, 5 of the input, 30 of the newest group
    levels = down(rungs, 0, 2_000)
    assert total(rungs, levels) == 2_035 - 350  # at most 85 % of 1,965 and the rest: seven turns
    texts = past("ua" * 50 + "iG")
    assert total(texts, down(texts, 0, 2_000)) == 2_035 - 1_040


def test_a_past_without_a_run_may_go_whole_but_for_the_input() -> None:
    rungs = past("ugai")
    assert newest_of(rungs) == 4
    assert down(rungs, 0).gone == 4
    assert newest_of([]) == 0


def test_levels_that_were_reached_are_kept() -> None:
    rungs = past(RUN)
    before = Levels(3, 5, 9)
    found = descend(rungs, before, Ladder(), total(rungs, before), 10)
    assert found.gone >= 3
    assert found.stubs >= 5
    assert found.shorts >= 9


@many
@given(
    st.text("uga", max_size=12),
    st.text("g", max_size=6),
    st.integers(0, 2_000),
    st.integers(0, 2_000),
    st.integers(0, 5),
    st.booleans(),
)
def test_levels_only_go_down_and_far_enough(
    history: str, run: str, target: int, later: int, keep: int, stubs: bool
) -> None:
    rungs = past(history + "i" + run + "G" * bool(run))
    rules = Ladder(keep_groups=keep, stubs=stubs)
    whole = total(rungs, Levels())
    first = descend(rungs, Levels(), rules, whole, target)
    left = total(rungs, first)
    newest = newest_of(rungs)
    assert left <= whole
    assert first.gone <= newest
    if left > target:  # nothing more may go
        assert first.gone == newest or all(
            rung.fixed or rung.first >= newest for rung in rungs if rung.first >= first.gone
        )
    second = descend(rungs, first, rules, left, min(target, later))
    assert second.gone >= first.gone
    assert second.stubs >= first.stubs
    assert second.shorts >= first.shorts
    assert second == first or left > min(target, later)
    assert descend(rungs, first, rules, left, left) == first
    assert replace(first) == first
