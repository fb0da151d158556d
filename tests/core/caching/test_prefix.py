"""Prefix tracking: what stayed, what moved it, and what may."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from muntin import Exact, Message, Profile, Slots, Stepped, Text, ToolCall, Window, assistant, user
from muntin.core.caching.frontier import Frontier
from muntin.core.digests import digest
from muntin.core.profile import Caching
from muntin.core.report import Moved
from tests.stability import unexplained_move

CACHED = Profile("test/model", caching=Caching(50, 1.25, 0.1, breakpoints=4, lookback=20))


def talk(turns: int) -> list[Message]:
    return [m for n in range(turns) for m in (user(f"u{n:09}"), assistant(f"a{n:09}"))]


def render(
    history: list[Message],
    previous: Window | Frontier | None = None,
    *,
    rules: str | None = "r" * 60,
    notes: str | None = None,
    docs: str | None = None,
    budget: int = 1_000,
    trimming: Stepped | Exact | None = None,
    tools: list[dict[str, Any]] | None = None,
    profile: Profile | None = CACHED,
) -> Window:
    slots = Slots(
        budget,
        tokenizer=len,
        profile=profile,
        trimming=trimming or Stepped(),
        previous=previous,
        tools=tools or (),
    )
    slots.add("rules", rules, tier="pinned", role="system")
    slots.add("notes", notes, tier="slow-changing")
    slots.add("history", history)
    slots.add("docs", docs, max_tokens=100)
    slots.add("input", "hello")
    return slots.render()


def moved(window: Window) -> Moved | None:
    assert window.report.prefix is not None
    return window.report.prefix.moved


def test_a_growing_conversation_does_not_move() -> None:
    before = render(talk(2), docs="d" * 50)
    after = render(talk(3), before, docs="e" * 70)
    assert moved(after) is None
    assert moved(before) is None
    prefix = after.report.prefix
    assert prefix is not None
    assert prefix.tokens == 100
    assert prefix.share == 100 / after.tokens
    assert prefix.expected == 120
    first = before.report.prefix
    assert first is not None
    assert (first.tokens, first.share, first.expected) == (0, 0.0, 100)


def test_equal_windows_have_equal_hashes() -> None:
    first, second = render(talk(2)), render(talk(2))
    assert first.report.prefix == second.report.prefix
    assert first.frontier == second.frontier
    other = render(talk(2), tools=[{"name": "look"}])
    assert other.frontier.hash != first.frontier.hash


def test_a_move_says_what_it_cost() -> None:
    before = render(talk(46))
    after = render(talk(47), before)
    assert moved(after) == Moved(1, "history", "moved", 920)
    assert "the prefix moved at message 1: slot history (moved), 920 tokens" in str(after.report)
    assert after.report["history"].detail == "23 turns left the window"


def test_exact_trimming_moves_the_prefix_every_turn() -> None:
    before = render(talk(60), trimming=Exact())
    after = render(talk(61), before, trimming=Exact())
    assert moved(after) == Moved(1, "history", "trimmed", 930)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rules": "R" * 60}, Moved(0, "rules", "changed", 160)),
        ({"rules": None}, Moved(0, "rules", "absent", 160)),
        ({"notes": "N" * 60}, Moved(1, "notes", "changed", 100)),
        ({"notes": None}, Moved(1, "notes", "absent", 100)),
    ],
)
def test_the_slot_that_moved_it_is_named(changes: dict[str, Any], expected: Moved) -> None:
    before = render(talk(3), notes="n" * 40)
    assert moved(render(talk(3), before, **{"notes": "n" * 40, **changes})) == expected


def test_a_slot_that_is_new_is_named() -> None:
    before = render(talk(3))
    assert moved(render(talk(3), before, notes="n" * 40)) == Moved(1, "notes", "added", 60)


def test_tools_stand_before_everything() -> None:
    before = render(talk(3), tools=[{"name": "look"}])
    after = render(talk(3), before, tools=[{"name": "see"}])
    assert moved(after) == Moved(0, "(tools)", "tools", 135)


def test_an_edited_message_of_the_history_is_found() -> None:
    history = talk(5)
    before = render(history)
    history[4] = user("edited")
    assert moved(render(history, before)) == Moved(5, "history", "changed", 60)


def test_positions_and_marks_are_no_part_of_the_bytes() -> None:
    before = render(talk(3))
    dated = [replace(message, at=1.0 * n) for n, message in enumerate(talk(3))]
    mark = {"cache_control": {"type": "ephemeral"}}
    dated[2] = replace(dated[2], extra=mark)
    assert moved(render(dated, before)) is None
    assert digest(Message("user", (Text("text", extra=mark),))) == digest(user("text"))


def test_the_same_is_told_after_a_restart() -> None:
    for history in (talk(46), talk(47), talk(3)):
        before = render(talk(46))
        stored = Frontier.from_dict(json.loads(json.dumps(before.frontier.to_dict())))
        assert render(history, stored).report == render(history, before).report


def test_a_slot_that_claims_to_be_stable_is_told_when_it_is_not() -> None:
    before = render(talk(3), rules="r" * 60, notes="n")
    after = render(talk(3), before, rules="r" * 61, notes="m")
    prefix = after.report.prefix
    assert prefix is not None
    assert prefix.unstable == ("rules",)  # notes may change slowly
    assert "slot rules claims to be stable, but changed" in str(after.report)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("It is 2026-03-01T12:30Z.", "a date with a time"),
        ("Today: 2026-03-01 12:30", "a date with a time"),
        ("Sunday, March 1, 2026 at 12:30", "a date with a time"),
        ("12:30:59 UTC", "a clock time"),
        ("Current time: 9:41", "a clock time"),
        ("The time is 9:41", "a clock time"),
        ("request 6f1b3c9e-0d2a-4c55-9f0e-aa12bb34cc56", "a UUID"),
    ],
)
def test_clocks_and_ids_in_lasting_text_get_a_warning(text: str, what: str) -> None:
    prefix = render(talk(1), rules=text).report.prefix
    assert prefix is not None
    assert [what in warning and "'rules'" in warning for warning in prefix.warnings] == [True]


@pytest.mark.parametrize(
    "text", ["Open from 9:00 to 17:30.", "Founded on 2026-03-01.", "Ratio 16:9", "a-b-c-d"]
)
def test_opening_hours_and_dates_are_no_clocks(text: str) -> None:
    prefix = render(talk(1), rules=text).report.prefix
    assert prefix is not None
    assert prefix.warnings == ()


def test_volatile_text_may_hold_the_time() -> None:
    prefix = render([user("at 12:30:59")], docs="now 12:30:59").report.prefix
    assert prefix is not None
    assert prefix.warnings == ()


def test_below_the_minimum_nothing_is_cacheable() -> None:
    short = render(talk(1), rules="r")
    prefix = short.report.prefix
    assert prefix is not None
    assert (prefix.tokens, prefix.share, prefix.expected) == (0, 0.0, 0)


def test_without_caching_or_a_window_before_there_is_nothing_to_tell() -> None:
    window = render(talk(1), profile=None, trimming=Exact())
    assert window.report.prefix is None
    assert window.report.to_dict()["prefix"] is None
    following = render(talk(2), window, profile=None, trimming=Exact())
    assert moved(following) is None


def test_a_report_with_its_prefix_is_json() -> None:
    report = render(talk(47), render(talk(46))).report
    data = json.loads(json.dumps(report.to_dict()))["prefix"]
    assert data["moved"] == {"message": 1, "slot": "history", "reason": "moved", "tokens": 920}
    assert list(data) == [
        *("hash", "tokens", "share", "moved", "unstable", "warnings", "expected", "reported")
    ]


def test_a_window_comes_back_from_pickle_with_its_frontier() -> None:
    window = render(talk(47), render(talk(46)))
    copy = pickle.loads(pickle.dumps(window))
    assert copy == window
    assert copy.frontier == window.frontier
    assert render(talk(48), copy) == render(talk(48), window)


@pytest.mark.parametrize(
    "other",
    [
        assistant("text"),
        user("texts"),
        user(""),
        replace(user("text"), name="ann"),
        replace(user("text"), extra={"key": 1}),
        Message("tool", "text", tool_call_id="1"),
        assistant("text", tool_calls=[ToolCall("1", "look", "{}")]),
        assistant("text", tool_calls=[ToolCall("1", "loo", "k{}")]),
        assistant("text", tool_calls=[ToolCall("1", "look", "{}", extra={"key": 1})]),
    ],
)
def test_different_messages_have_different_digests(other: Message) -> None:
    assert digest(other) != digest(user("text"))
    assert digest(other) == digest(Message.from_dict(other.to_dict()))


def test_the_check_over_all_tests_finds_a_move_that_is_not_told() -> None:
    before, after = render(talk(46)), render(talk(47))
    silent = render(talk(46), before)
    assert unexplained_move(silent, before, CACHED) is None
    liar = replace(silent, messages=after.messages, origins=after.origins)
    assert "does not say so" in (unexplained_move(liar, before, CACHED) or "")
    assert "does not say so" in (unexplained_move(liar, before.frontier, CACHED) or "")
    told = render(talk(47), before)
    honest = replace(told, messages=silent.messages)
    assert "report says" in (unexplained_move(honest, before, CACHED) or "")


def test_tools_given_in_another_order_are_the_same_bytes() -> None:
    schemas: list[dict[str, Any]] = [
        {"name": "look"},
        {"type": "function", "function": {"name": "ask"}},
    ]
    before = render(talk(2), tools=schemas)
    after = render(talk(2), before, tools=schemas[::-1])
    assert after == before
    assert moved(after) is None
    mark = {"type": "ephemeral"}
    marked: list[dict[str, Any]] = [{"name": "see"}, {"name": "ask", "cache_control": mark}]
    assert render(talk(2), tools=marked).tools == tuple(marked)
    assert render(talk(2), tools=schemas, profile=None).tools == tuple(schemas)
