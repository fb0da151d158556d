"""Comparing windows: another budget, another turn; and where two part, as the reports say."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from muntin import Message, Slots, Stepped, ToolCall, assistant, system, tool, user
from muntin.core.caching.prefix import REASONS
from muntin.core.planning.slot import Exact, Group
from muntin.core.window import Window
from muntin.inspector.changes import difference, shares, survival, what_if
from muntin.inspector.data import messages, window
from muntin.inspector.plans import Plans
from muntin.runtime import read_plan
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import declare, keep, past, plain
from tests.inspector.sample import LONG


@pytest.mark.parametrize("budget", [2_000, 3_000, 4_000, 5_000, 7_000, 12_000])
def test_another_budget_is_what_the_planner_plans(plans, budget):
    record = plans.record(LONG, 20)
    plan = read_plan(json.loads(record.plan), lambda key: plans.store.content(LONG, "report", key))
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


# How small a budget may be.


@pytest.mark.parametrize("slot", range(4))
def test_the_smallest_budget_is_an_edge_and_none_below_it_will_do(slot):
    store = MemoryStore()
    keep(store, "s", declare(120, past(12)))
    plans = Plans(store)
    told = survival(plans, "s", 1, None, slot)
    plan = json.loads(plans.record("s", 1).plan)

    def kept(budget: int) -> Any:
        made = read_plan(plan, lambda key: store.content("s", "report", key)).at(budget).window()
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


def test_a_call_is_told_with_its_arguments():
    def asked(page: int) -> list[Message]:
        call = ToolCall(f"c{page}", "look", f'{{"page": {page}}}')
        return [user("Look."), assistant(tool_calls=[call]), tool(f"c{page}", "seen")]

    told = two(declare(2_000, asked(3)), declare(2_000, asked(4)))["parted"]
    assert (told["was"]["text"], told["now"]["text"]) == ("look(page=3)", "look(page=4)")


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


# The inspector and the reports go by one rule.

MARK = {"cache_control": {"type": "ephemeral"}}
CLAUDE = "anthropic/claude-sonnet-4-5"


def following(history: list[Message], previous: Window | None = None, **changes: Any) -> Slots:
    """Declare the window of a turn for a model whose cache is known."""
    told = {"budget": 5_000, "tool": "look", "rules": "r" * 60, "trimming": Stepped(), **changes}
    slots = Slots(
        told["budget"],
        tokenizer="chars/4",
        profile=CLAUDE,
        trimming=told["trimming"],
        previous=previous,
        tools=[{"name": told["tool"]}],
    )
    slots.add("rules", told["rules"], role="system", tier="pinned", required=True)
    slots.add("history", history)
    slots.add("input", "what now?", priority=9)
    return slots


def marked(history: list[Message], place: int) -> list[Message]:
    """Return a history with the cache mark of a user at one message."""
    each = history[place]
    return [*history[:place], Message(each.role, each.content, extra=MARK), *history[place + 1 :]]


@pytest.mark.parametrize(
    ("history", "after", "changes", "reason"),
    [
        (past(3), marked(past(4), 2), {}, None),
        (marked(past(3), 1), marked(past(4), 5), {}, None),
        (past(3), past(4), {"tool": "see"}, "tools"),
        (past(3), past(4), {"rules": "R" * 60}, "changed"),
        (past(3), past(4)[2:], {}, "trimmed"),
        # This provider is sent system text first, wherever it stands.
        ([*past(3), system("note")], [user("new"), *past(3)[1:], system("note")], {}, "changed"),
        (past(60), past(61), {"trimming": Exact(), "budget": 500}, "trimmed"),
        (past(21), past(22), {"budget": 500}, "moved"),
    ],
)
def test_the_inspector_and_the_report_agree_where_two_windows_part(history, after, changes, reason):
    store = MemoryStore()
    fixed = {key: value for key, value in changes.items() if key in ("trimming", "budget")}
    first = keep(store, "s", following(history, **fixed))
    second = keep(store, "s", following(after, first, **changes))
    assert second.report.prefix is not None
    moved = second.report.prefix.moved
    told = difference(Plans(store), "s", 2, None, 1, None)
    if moved is None:  # all that was expected to stay did stay
        assert reason is None
        assert told["shared_messages"] >= first.frontier.lasting
    else:
        assert moved.reason == reason
        found = told["parted"]["message"], told["parted"]["name"], told["parted"]["how"]
        assert found == (moved.message, moved.slot, REASONS[reason])
        assert first.frontier.lasting_tokens - told["shared_tokens"] == moved.tokens
