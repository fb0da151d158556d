"""The plan as a value: compared, pickled, stored, and asked for another budget."""

from __future__ import annotations

import gc
import json
import pickle
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Cut, Group, Input, Profile, Slots, Stepped, ToolCall, assistant, tool, user
from muntin.core.planning import carrying as declaring
from muntin.core.planning import explain, planner
from muntin.core.planning.draft import SlotPlan
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.profile import Caching
from muntin.core.report import NotCarried, SlotReport
from muntin.timeline.stored_plans import read_plan, write_plan
from tests.core.planning.scenes import Scene, scenes

CACHED = Profile("test/model", user_first=True, caching=Caching(20, 1.25, 0.1, breakpoints=4))
TALK = [
    each
    for n in range(12)
    for each in (
        user(f"question {n}"),
        assistant("", tool_calls=[ToolCall(f"c{n}", "look", "{}")]),
        tool(f"c{n}", f"found {n}"),
        assistant(f"answer {n}"),
    )
]


def told(cut: Cut) -> str:
    return f"[{cut.messages} messages, {cut.characters} characters cut]"


def declared(budget: int = 200, *, question: str = "now?", **options: Any) -> Slots:
    """Slots of every way of giving."""
    slots = Slots(budget, tokenizer=len, **options)
    rules = Group("rules", join="\n")
    slots.add("system", "Be kind.", role="system", group=rules)
    slots.add("more", "Be brief, and never promise anything.", role="system", group=rules)
    slots.add("history", TALK, trimming=Stepped(), marker=told)
    for name in ("a", "b"):
        slots.add(name, name * 60, trim_behavior="char", group=Group("both", share=True))
    slots.add("input", Input(question))
    return slots


def test_equal_slots_have_equal_plans_windows_and_reports() -> None:
    one, two = declared().plan(), declared().plan()
    assert one == two
    assert one.window() == two.window()
    assert one.report() == two.report()


@pytest.mark.parametrize(
    "other",
    [declared(199), declared(question="then?"), declared(profile=CACHED), Slots(200)],
    ids=["budget", "content", "profile", "nothing"],
)
def test_other_decisions_are_another_plan(other: Slots) -> None:
    assert declared().plan() != other.plan()


def test_a_plan_knows_the_turn_before_by_value() -> None:
    before = declared(150, profile=CACHED).render()
    same = declared(150, profile=CACHED).render()
    one = declared(180, profile=CACHED, previous=before).plan()
    assert one == declared(180, profile=CACHED, previous=same).plan()
    assert one == declared(180, profile=CACHED, previous=before.frontier).plan()
    assert one != declared(180, profile=CACHED).plan()


@given(scenes(), st.integers(0, 80))
def test_another_budget_is_planned_anew(scene: Scene, budget: int) -> None:
    asked, anew = scene.slots().plan().at(budget), scene.slots(budget).plan()
    assert asked == anew
    assert asked.window() == anew.window()
    assert asked.report() == anew.report()


@given(scenes(), st.integers(0, 80))
def test_a_plan_differs_where_its_window_does(scene: Scene, budget: int) -> None:
    one, two = scene.slots().plan(), scene.slots(budget).plan()
    if one.window() != two.window():
        assert one != two


@pytest.mark.parametrize("budget", [0, 60, 120, 200, 400, 10_000])
def test_another_budget_beside_a_turn_before_is_planned_anew(budget: int) -> None:
    before = declared(300, profile=CACHED).render()
    anew = declared(budget, profile=CACHED, previous=before).plan()
    assert declared(300, profile=CACHED, previous=before).plan().at(budget) == anew


@pytest.mark.parametrize("budget", [0, 60, 120, 200, 400, 10_000])
def test_a_pickled_plan_is_the_same(budget: int) -> None:
    before = declared(300, profile=CACHED).render()
    plan = declared(budget, profile=CACHED, previous=before).plan()
    plan.window()
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.window() == plan.window()
    assert again.report() == plan.report()
    assert again.fates() == plan.fates()
    assert again.at(90) == plan.at(90)


def test_a_pickled_plan_does_not_take_the_memo_along() -> None:
    secret = "a text that was counted before " * 100
    Slots(10, tokenizer="chars/4").counter.text(secret)
    slots = Slots(10, tokenizer="chars/4")
    slots.add("a", "b")
    assert secret.encode() not in pickle.dumps(slots.plan())


def stored(plan: Plan, **options: Any) -> Plan:
    contents: dict[str, str] = {}
    return read_plan(json.loads(json.dumps(write_plan(plan, contents))), contents.get, **options)


@pytest.mark.parametrize("budget", [60, 120, 200, 10_000])
def test_a_stored_plan_is_the_same(budget: int) -> None:
    slots = declared(budget, profile=Profile.for_model("anthropic/claude-haiku-4-5"))
    plan = slots.plan()
    without_marker = Slots(budget, tokenizer=len, profile=slots.profile)
    for slot in slots.declared:  # a marker that is a function cannot be written
        trim = replace(slot.trim, marker=None)
        without_marker.take(replace(slot, trim=trim, messages=tuple(slot.messages)))
    again = stored(plan, tokenizer=len)
    assert again == without_marker.plan()
    assert stored(again, tokenizer=len) == again
    assert again.at(90) == without_marker.plan().at(90)


def test_a_plan_written_before_breakpoints_had_their_name_is_read() -> None:
    key = "115ea42add4c5be10293e2f3"
    content = {key: '{"role":"user","content":"hi"}'}
    written = {
        "previous": None,
        "budget": 100,
        "tokenizer": "chars/4",
        "profile": None,
        "tools": [],
        "slots": [{"name": "x", "messages": [key], "priority": 3, "mark": True, "made": True}],
    }
    (slot,) = read_plan(written, content.get).declared.slots
    assert slot.place.breakpoint
    assert slot.priority == 3
    assert slot.kind == "text"
    (again,) = write_plan(read_plan(written, content.get), {})["slots"]
    assert again == {"name": "x", "messages": [key], "kind": "text", "priority": 3, "mark": True}


def test_what_the_report_says_of_a_message_is_not_counted_again() -> None:
    asked: list[str] = []

    class Counting:
        name = "counting"
        message_overhead = 0

        def count(self, text: str) -> int:
            asked.append(text)
            return len(text)

    slots = Slots(100, tokenizer=Counting())
    slots.add("history", [user("a" * 20), assistant("b" * 20)])
    plan = slots.plan()
    contents: dict[str, str] = {}
    written = write_plan(plan, contents)
    asked.clear()
    report = plan.report().to_dict()
    again = read_plan(written, contents.get, tokenizer=Counting(), report=report)
    assert again.window() == plan.window()
    assert asked == []


def test_a_window_is_planned_once_whatever_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    plan_window = planner.plan_window

    def counting(declaration: Declaration) -> Plan:
        nonlocal made
        made += 1
        return plan_window(declaration)

    for module in (planner, declaring):
        monkeypatch.setattr(module, "plan_window", counting)
    before = declared(300, profile=CACHED).render()
    window = declared(130, profile=CACHED, previous=before).render()
    assert window.report.tokens == window.tokens
    assert window.fates
    assert window.frontier
    assert made == 2
    declared().plan().at(100)
    assert made == 4


def test_a_report_is_made_once_and_only_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    tell = explain.explain_slots

    def telling(plans: Sequence[SlotPlan], *, in_ranges: bool) -> tuple[SlotReport, ...]:
        made.append(plans)
        return tell(plans, in_ranges=in_ranges)

    monkeypatch.setattr("muntin.core.planning.plan.explain_slots", telling)
    window = declared().render()
    assert not made
    assert window.report is window.report
    assert len(made) == 1


def test_what_a_request_could_not_carry_is_in_the_report_of_its_window_alone() -> None:
    plan = declared().plan()
    one, two = plan.window(), plan.window()
    lost, other = NotCarried("a", 0, "name", "no field"), NotCarried("b", None, "x", "y")
    one.enter_not_carried("a", (lost,))
    one.enter_not_carried("b", (other,))
    assert one.report.not_carried == (lost, other)
    assert two.report.not_carried == ()
    assert plan.report().not_carried == ()
    assert one == two
    assert pickle.loads(pickle.dumps(one)).report.not_carried == (lost, other)
    one.enter_not_carried("a", ())
    assert list(one.report.not_carried) == [other]


def test_a_plan_keeps_the_turn_before_alive_but_none_before_that() -> None:
    first = declared(300, profile=CACHED).plan()
    gone = weakref.ref(first)
    window = first.window()
    for _ in range(2):
        window = declared(300, profile=CACHED, previous=window).render()
    del first
    gc.collect()
    assert gone() is None
