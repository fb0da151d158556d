"""A summary in front of a history, and the guess when the next step comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muntin.core.message import Message
from muntin.core.planning.coming import coming_step
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.plan import Plan
from muntin.core.planning.shapes import Ladder
from muntin.core.planning.slot import Recap, Stepped
from muntin.core.planning.slots import Slots
from muntin.core.planning.stored import read_plan, write_plan
from muntin.core.planning.window import Window

RECAP = Recap("<summary>All that was said.</summary>", 4)


def past(turns: int) -> list[Message]:
    found = []
    for turn in range(turns):
        found.append(Message("user", f"question {turn} " + "word " * 20, at=2 * turn + 1))
        found.append(Message("assistant", f"answer {turn} " + "word " * 20, at=2 * turn + 2))
    return found


def window(
    turns: int, previous: Any = None, recap: Recap | None = None, budget: int = 1_000
) -> Window:
    slots = Slots(
        budget,
        profile="anthropic/claude-sonnet-4-5",
        trimming=Stepped(),
        previous=previous,
        recap=recap,
        ladder=Ladder(),
    )
    slots.add("system", "You are a clerk.")
    slots.add("history", past(turns))
    slots.add("input", "And now?")
    return slots.render()


def plan_of(made: Window) -> Plan:
    assert isinstance(made.explained, Plan)
    return made.explained


def talk(turns: int, recap: Recap | None = None, again: bool = False) -> list[Window]:
    made: list[Window] = []
    for turn in range(1, turns + 1):
        before: Any = made[-1] if made else None
        if before is not None and again:
            before = Frontier.from_dict(before.frontier.to_dict())
        made.append(window(turn, before, recap))
    return made


def told(made: Window) -> bool:
    return any("<summary>" in message.text for message in made.messages)


def begins(made: Window) -> str:
    return next(m.text for m in made.messages if m.text.startswith("question"))


def test_a_summary_is_put_in_when_the_history_steps_and_not_before() -> None:
    windows = talk(40, RECAP)
    first = next(n for n, each in enumerate(windows) if begins(each) != begins(windows[0]))
    assert [told(each) for each in windows] == [n >= first for n in range(40)]
    assert windows[first].messages[1] == RECAP.message
    assert all(each.tokens <= 1_000 for each in windows)


def test_a_newer_summary_waits_for_the_next_step() -> None:
    windows = talk(30, RECAP)
    newer = Recap("<summary>More.</summary>", 30)
    after, number = windows[-1], 30
    was = begins(after)
    while begins(after) == was:
        assert RECAP.message in after.messages
        number += 1
        after = window(number, after, newer)
    assert newer.message in after.messages
    assert RECAP.message not in after.messages


def test_without_a_newer_one_the_summary_stays() -> None:
    windows = talk(30, RECAP)
    after = windows[-1]
    for number in range(31, 60):
        after = window(number, after)
        assert after.messages[1] == RECAP.message


def test_the_frontier_remembers_which_summary_is_shown() -> None:
    through, again = talk(40, RECAP), talk(40, RECAP, again=True)
    assert [each.messages for each in through] == [each.messages for each in again]
    start = through[-1].frontier.starts[0]
    assert start.recap == RECAP
    with pytest.raises(Exception, match="no frontier"):
        Frontier.from_dict(
            {**through[-1].frontier.to_dict(), "starts": [{"slot": "x", "recap": {"a": 1}}]}
        )


def test_the_totals_add_up_and_a_stored_plan_gives_the_same_window() -> None:
    made = talk(40, RECAP)[-1]
    report = made.report
    beside = report.lead_tokens + report.answer_tokens
    assert sum(slot.tokens_kept for slot in report.slots) + beside == report.tokens
    history = report["history"]
    kept = sum(decision.tokens_kept for decision in history.decisions)
    assert kept == history.tokens_kept
    assert [d.reason for d in history.decisions if d.count == 0] == ["summary"]
    contents: dict[str, str] = {}
    written = write_plan(plan_of(made), contents)
    assert read_plan(written, contents.get).window().messages == made.messages
    assert plan_of(made).at(600).window().tokens <= 600


def test_a_summary_that_has_no_room_is_left_out() -> None:
    long = Recap("<summary>" + "word " * 400 + "</summary>", 4)
    assert not any(told(each) for each in talk(40, long))
    shown = talk(40, RECAP)[-1]
    small = window(40, shown, RECAP, budget=60)
    assert not told(small)
    assert small.tokens <= 60


def test_the_summary_is_the_users_and_spares_the_lead() -> None:
    slots = Slots(200, profile="anthropic/claude-sonnet-4-5", trimming=Stepped(), recap=RECAP)
    slots.add("history", [*past(20)[:-1], Message("assistant", "word " * 60, at=40)])
    made = slots.render()
    assert told(made)
    assert made.report.lead_tokens == 0


def test_the_coming_step_is_known_before_it_comes() -> None:
    windows = talk(40)
    seen = [begins(each) for each in windows]
    first = next(n for n in range(40) if seen[n] != seen[0])
    found = [coming_step(plan_of(each)) for each in windows[:first]]
    reached = [each.reached for each in found if each is not None]
    assert reached == sorted(reached)
    assert reached[0] == 0
    assert 0.9 <= reached[-1] <= 1
    # From 70 % on, the guess is where the history begins then.
    begun = int(seen[first].split()[1])
    near = [each.until for each in found if each is not None and each.reached >= 0.7]
    assert near
    assert all(abs((until or 0) - 2 * begun) <= 4 for until in near)


def test_where_nothing_steps_nothing_comes() -> None:
    slots = Slots(1_000)
    slots.add("history", past(3))
    assert coming_step(slots.plan()) is None
    empty = Slots(1_000, trimming=Stepped())
    empty.add("history", [])
    found = coming_step(empty.plan())
    assert found is not None
    assert found.until is None


def test_a_summary_goes_to_the_last_history_that_is_no_run() -> None:
    slots = Slots(400, trimming=Stepped(), recap=RECAP)
    slots.add("documents", past(2))
    slots.add("history", past(30))
    slots.add("input", "And now?")
    slots.add("run", [Message("assistant", "Well.")], run=True)
    made = slots.render()
    places = [made.origins[n] for n, m in enumerate(made.messages) if m == RECAP.message]
    assert places == [1]
    assert replace(RECAP, until=5) != RECAP
