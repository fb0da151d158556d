"""What the inspector answers is what the reports say, and what the planner plans."""

from __future__ import annotations

import json
from datetime import timedelta

from muntin import Slots, assistant, tool, user
from muntin.core.parts import ToolCall
from muntin.inspector.data import (
    FEW,
    PAGE,
    messages,
    price_of,
    sessions,
    turns,
    window,
)
from muntin.inspector.plans import PLANS, Plans
from muntin.inspector.search import MOST_HITS, search_session
from muntin.runtime import read_plan
from muntin.timeline.items import SideWrites, draft_of
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import declare, keep, past, plain
from tests.inspector.sample import LONG

# Windows.


def test_sessions_are_listed_newest_first_and_found_by_a_part_of_their_id(plans):
    told = sessions(plans)
    assert told["total"] == 5
    assert told["store"] == plans.store.name
    times = [each["updated"] for each in told["sessions"]]
    assert times == sorted(times, reverse=True)
    assert [each["id"] for each in sessions(plans, search="MIA")["sessions"]] == [LONG]
    assert sessions(plans, search="nobody")["sessions"] == []


def test_every_kept_window_is_told_as_its_report_says(plans):
    for info in sessions(plans)["sessions"]:
        for each in turns(plans, info["id"])["windows"]:
            told = window(plans, info["id"], each["turn"], each["step"])
            record = plans.record(info["id"], each["turn"], each["step"])
            assert told["report"] == json.loads(record.report)
            assert told["note"] is None  # planned again, it is the same window
            assert each["tokens"] == told["report"]["tokens"]


def test_turns_have_the_question_as_title_and_come_in_pages(plans):
    told = turns(plans, LONG, first=3, count=2)
    assert {each["turn"] for each in told["windows"]} == {3, 4}
    assert all(each["title"] for each in told["windows"])
    assert all(each["price"] == {"input": 3.0, "read": 0.3} for each in told["windows"])


def test_turns_without_a_report_are_named():
    store = MemoryStore()
    keep(store, "s", declare(1_000, []))
    from muntin.timeline.session import Session

    Session("s", store=store).append(user("said, but never answered"))
    told = turns(Plans(store), "s")
    assert [each["turn"] for each in told["windows"]] == [1]
    assert told["unreported"] == [{"turn": 2, "status": "completed"}]


def test_what_was_given_up_is_listed_and_its_turn_says_so():
    store = MemoryStore()
    store.append("e/1", [draft_of(user("poison"), opens="inbox")])
    for _ in range(2):
        store.take("e/1", "dead", timedelta(seconds=-1), resumable=True, max_attempts=1)
    plans = Plans(store)
    assert sessions(plans)["gave_up"] == [{"session": "e/1", "turn": 1}]
    assert turns(plans, "e/1")["unreported"] == [
        {"turn": 1, "status": "failed", "reason": "gave_up"}
    ]


def test_lines_hold_the_window_in_order_and_all_that_was_left_out(plans):
    record = plans.record(LONG, 20)
    plan = json.loads(record.plan)
    direct = read_plan(plan, lambda key: plans.store.content(LONG, "report", key)).window()
    told = messages(plans, LONG, 20, limit=100)
    shown = [each for each in told["lines"] if each["place"] is not None]
    assert [each["place"] for each in shown] == list(range(len(direct.messages)))
    for each, message in zip(shown, direct.messages, strict=True):
        kept = "".join(piece["text"] for piece in each["pieces"] if not piece["cut"])
        assert kept == message.text
        assert each["role"] == message.role
        assert [call["name"] for call in each["calls"]] == [c.name for c in message.tool_calls]
    declared = sum(len(slot["messages"]) for slot in plan["slots"])
    joined = 1  # two slots that became one message
    assert told["every"] == declared - joined


def test_a_cut_text_is_told_in_what_was_kept_and_what_was_not(plans):
    told = messages(plans, LONG, 20)["lines"]
    cut = [each for each in told if each["state"] == "trimmed" and each["slot"] == 5]
    (search,) = cut
    assert [piece["cut"] for piece in search["pieces"]] == [False, True]
    assert search["reason"] == "over_cap"


def test_long_runs_of_what_was_left_out_are_folded_and_can_be_opened(plans):
    whole = messages(plans, LONG, 30)
    told = messages(plans, LONG, 30, fold=True)
    folds = [each for each in told["lines"] if "fold" in each]
    assert folds
    assert all(each["fold"]["count"] > FEW for each in folds)
    assert told["total"] < whole["total"]
    first = folds[0]
    inside = messages(plans, LONG, 30, offset=first["line"], limit=first["fold"]["count"])["lines"]
    assert len(inside) == min(first["fold"]["count"], PAGE)
    assert all(each["place"] is None and each["state"] == "dropped" for each in inside)


def test_a_tokenizer_that_cannot_be_found_again_is_said():
    store = MemoryStore()
    slots = Slots(500, tokenizer=len)
    slots.add("input", "hello")
    kept = keep(store, "s", slots)
    told = window(Plans(store), "s", 1)
    assert told["report"] == plain(kept.report.to_dict())
    assert "'len'" in told["note"]
    assert "'estimate'" in told["note"]


def test_a_window_whose_contents_are_gone_still_shows_its_report(monkeypatch):
    store = MemoryStore()
    kept = keep(store, "s", declare(1_000, past(3)))
    plans = Plans(store)
    monkeypatch.setattr(store, "content", lambda session, kind, name: None)
    told = window(plans, "s", 1)
    assert told["report"] == plain(kept.report.to_dict())
    assert "no longer kept" in told["note"]


def test_no_more_plans_are_held_than_a_few(plans):
    for turn in range(1, 30):
        window(plans, LONG, turn)
    assert len(plans._plans) == PLANS


def test_breakpoints_and_prefix_are_told_where_a_report_has_them():
    """A report of a planner that knows caching has more fields than this one's."""
    store = MemoryStore()
    keep(store, "s", declare(1_000, past(3)))
    plans = Plans(store)
    record = plans.record("s", 1)
    report = {**json.loads(record.report), "prefix": {"tokens": 40, "share": 0.5, "moved": None}}
    from dataclasses import replace

    changed = replace(record, report=json.dumps(report))
    names = [name for slot in json.loads(record.plan)["slots"] for name in slot["messages"]]
    store.put("s", SideWrites(changed, names=names, keep=10))
    assert window(plans, "s", 1)["report"]["prefix"]["tokens"] == 40
    assert turns(plans, "s")["windows"][0]["prefix"]["share"] == 0.5


def test_prices_are_those_of_small_windows_or_unknown():
    assert price_of("anthropic/claude-sonnet-4-5") == {"input": 3.0, "read": 0.3}
    assert price_of("nobody/nothing") is None
    assert price_of(None) is None


# Large ones.


def test_a_window_of_2000_messages_is_told_in_pages():
    store = MemoryStore()
    call = ToolCall("c", "look", "{}")
    history = [*past(1_000), assistant("", tool_calls=[call]), tool("c", "found")]
    kept = keep(store, "s", declare(200_000, history))
    plans = Plans(store)
    assert len(kept.messages) == 2_005
    seen: list[int] = []
    while len(seen) < 2_005:
        told = messages(plans, "s", 1, offset=len(seen))
        assert len(told["lines"]) <= 100
        seen += [line["place"] for line in told["lines"]]
    assert seen == list(range(2_005))


# Searching.


def test_a_session_is_searched_and_each_hit_names_its_turn():
    from muntin.timeline.session import Session

    store = MemoryStore()
    session = Session("s", store=store)
    session.append(user("Nothing yet."), assistant("Well."))
    session.append(user("My <locker> is QX7731."), assistant("Noted."))
    session.append(
        *[draft_of(user(f"Day {n} in the locker room"), opens="turn") for n in range(60)]
    )
    told = search_session(Plans(store), "s", "QX7731")
    first = told["found"][0]
    assert (first["turn"], first["positions"]) == (2, [3])
    assert "<locker> is QX7731" in first["text"]
    assert "qx7731" in first["words"]
    assert len(search_session(Plans(store), "s", "locker")["found"]) == MOST_HITS
    assert search_session(Plans(store), "s", "")["found"] == []
    json.dumps(told, allow_nan=False)
