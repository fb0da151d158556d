"""What the inspector answers is what the reports say, and what the planner plans."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from muntin import Message, Slots, assistant, tool, user
from muntin.core.parts import ToolCall
from muntin.core.planning.slot import Group
from muntin.inspector.changes import difference, shares, survival, what_if
from muntin.inspector.costs import price_of
from muntin.inspector.data import FEW, messages, sessions, turns, window
from muntin.inspector.plans import PLANS, Plans
from muntin.runtime import read_plan
from muntin.timeline.store import open_store
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import keep
from tests.inspector.sample import LONG


@pytest.fixture
def plans(sample_url):
    with open_store(sample_url, create=False) as store:
        yield Plans(store)


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def past(count: int, size: int = 40) -> list[Message]:
    return [
        each
        for n in range(count)
        for each in (user(f"q{n} " + "x" * size), assistant(f"a{n} " + "y" * size))
    ]


def declare(budget: int, history: list[Message], docs: str = "d" * 100) -> Slots:
    slots = Slots(budget, tokenizer="chars/4")
    slots.add("system", "You are brief.", priority=9)
    slots.add("docs", docs, role="system", priority=2)
    slots.add("history", history, priority=1)
    slots.add("input", "what now?", priority=8)
    return slots


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


@pytest.mark.parametrize("budget", [2_000, 3_000, 4_000, 5_000, 7_000, 12_000])
def test_another_budget_is_what_the_planner_plans(plans, budget):
    record = plans.record(LONG, 20)
    plan = read_plan(json.loads(record.plan), lambda key: plans.store.content(LONG, key))
    expected = plan.at(budget).window()
    told = what_if(plans, LONG, 20, None, budget)
    assert plain(told["report"]) == plain(expected.report.to_dict())
    lines = messages(plans, LONG, 20, budget=budget)
    assert lines["kept"] == len(expected.messages)


def test_what_comes_and_goes_is_the_difference_of_the_two_windows(plans):
    own = {each["line"]: each for each in messages(plans, LONG, 20)["lines"]}
    for budget in (3_000, 9_000):
        told = what_if(plans, LONG, 20, None, budget)["changes"]
        other = {each["line"]: each for each in messages(plans, LONG, 20, budget=budget)["lines"]}
        kept = sum(each["place"] is not None for each in own.values())
        then = sum(each["place"] is not None for each in other.values())
        assert told["came"]["count"] or told["went"]["count"]
        # A joined message counts once a slot, so the balance may be off by the slots joined.
        assert abs(then - kept - told["came"]["count"] + told["went"]["count"]) <= 2


def test_lines_hold_the_window_in_order_and_all_that_was_left_out(plans):
    record = plans.record(LONG, 20)
    plan = json.loads(record.plan)
    direct = read_plan(plan, lambda key: plans.store.content(LONG, key)).window()
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
    assert len(inside) == first["fold"]["count"]
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


def test_a_window_whose_contents_are_gone_still_shows_its_report():
    store = MemoryStore()
    kept = keep(store, "s", declare(1_000, past(3)))
    plans = Plans(store)
    plans.store.content = lambda session, key: None  # type: ignore[method-assign]
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
    store.put_report("s", changed, {}, keep=10)
    assert window(plans, "s", 1)["report"]["prefix"]["tokens"] == 40
    assert turns(plans, "s")["windows"][0]["prefix"]["share"] == 0.5


# How small a budget may be.


@pytest.mark.parametrize("slot", range(4))
def test_the_smallest_budget_is_an_edge_and_none_below_it_will_do(slot):
    store = MemoryStore()
    keep(store, "s", declare(120, past(12)))
    plans = Plans(store)
    told = survival(plans, "s", 1, None, slot)
    plan = json.loads(plans.record("s", 1).plan)

    def kept(budget: int) -> Any:
        made = read_plan(plan, lambda key: store.content("s", key)).at(budget).window()
        found = next(each for each in made.report.slots if each.index == slot)
        return None if made.over_budget else found

    lived = [n for n in range(700) if (each := kept(n)) and each.tokens_kept]
    whole = [n for n in range(700) if (each := kept(n)) and each.status == "kept"]
    assert told["some"] == lived[0]
    assert told["all"] == whole[0]
    assert told["tried"] < 200


def test_a_slot_that_no_budget_brings_in_says_why(plans):
    excluded = next(
        slot["index"]
        for slot in window(plans, LONG, 33)["report"]["slots"]
        if slot["status"] == "excluded"
    )
    told = survival(plans, LONG, 33, None, excluded)
    assert (told["some"], told["reason"]) == (None, "condition_false")


# Turn to turn.


def two(first: Slots, second: Slots) -> dict[str, Any]:
    store = MemoryStore()
    keep(store, "s", first)
    keep(store, "s", second)
    return difference(Plans(store), "s", 2, None, 1, None)


def test_a_window_that_only_goes_on_shares_all_of_the_one_before():
    first, second = Slots(1_000, tokenizer="chars/4"), Slots(1_000, tokenizer="chars/4")
    first.add("system", "You are brief.")
    first.add("history", past(2))
    second.add("system", "You are brief.")
    second.add("history", past(3))
    told = two(first, second)
    assert told["parted"] is None
    assert told["shared_messages"] == 5
    assert told["shared_tokens"] == told["other_tokens"]


def test_the_slot_whose_text_changed_is_named():
    told = two(declare(5_000, past(3)), declare(5_000, past(3), docs="e" * 90))
    assert told["parted"]["message"] == 1
    assert told["parted"]["name"] == "docs"
    assert told["parted"]["how"] == "its text changed"
    assert told["parted"]["was"]["text"].startswith("ddd")
    assert told["parted"]["now"]["text"].startswith("eee")
    assert told["came"]["count"] == told["went"]["count"] == 1


def test_a_history_that_lost_its_oldest_is_named():
    told = two(declare(5_000, past(3)), declare(5_000, past(3)[2:]))
    assert told["parted"]["message"] == 2
    assert told["parted"]["name"] == "history"
    assert "left out" in told["parted"]["how"]
    assert [line["name"] for line in told["went"]["lines"]] == ["history", "history"]


def test_a_slot_that_came_in_between_is_named():
    def slots(extra: bool) -> Slots:
        made = Slots(5_000, tokenizer="chars/4")
        made.add("system", "You are brief.")
        if extra:
            made.add("found", "results", role="system")
        made.add("history", past(2))
        return made

    told = two(slots(False), slots(True))
    assert (told["parted"]["message"], told["parted"]["name"]) == (1, "found")
    assert told["parted"]["how"].startswith("something was put in")


def test_of_joined_texts_the_one_that_moved_is_named():
    def slots(budget: int) -> Slots:
        made = Slots(budget, tokenizer="chars/4")
        group = Group("rules", join="\n")
        made.add("rules", "r" * 40, role="system", group=group, priority=5)
        made.add("style", "s" * 400, role="system", group=group, priority=-1)
        made.add("input", "what now?", priority=9)
        return made

    told = two(slots(1_000), slots(60))
    assert (told["parted"]["message"], told["parted"]["name"]) == (0, "style")
    assert told["parted"]["how"] == "it was left out"
    assert two(slots(60), slots(1_000))["parted"]["how"] == "it came in"


def test_changed_tools_part_two_windows_at_the_very_beginning():
    def slots(name: str) -> Slots:
        made = Slots(5_000, tokenizer="chars/4", tools=[{"name": name}])
        made.add("history", past(2))
        return made

    told = two(slots("look"), slots("see"))
    assert told["parted"]["name"] == "(tools)"
    assert told["shared_tokens"] == 0


def test_where_messages_stand_on_the_timeline_is_no_difference():
    """A message that was the input of one turn is dated in the history of the next."""
    dated = [Message("user", "hi", at=3.0)]
    told = two(declare(5_000, [user("hi")]), declare(5_000, dated))
    assert told["parted"] is None


def test_shares_are_those_of_the_differences(plans):
    told = shares(plans, LONG, first=1, count=10)["windows"]
    assert told[0]["shared_tokens"] is None
    for before, each in pairwise(told):
        expected = difference(
            plans, LONG, each["turn"], each["step"], before["turn"], before["step"]
        )
        assert each["shared_tokens"] == expected["shared_tokens"]


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
