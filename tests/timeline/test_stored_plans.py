"""Stored plans: written, read again, and read as earlier versions wrote them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from muntin import Group, Input, Slots, Stepped, ToolCall, assistant, tool, user
from muntin.composer import Composer
from muntin.core.planning import Ladder, Pool, Results
from muntin.core.planning.plan import Plan
from muntin.errors import InvalidInput
from muntin.timeline.markers import Earlier, EntryRest, Rest, read_marker, write_marker
from muntin.timeline.stored_plans import read_plan, write_plan
from tests.paths import DATA

WRITTEN: dict[str, dict[str, Any]] = json.loads((DATA / "plans-0.2.0.json").read_text("utf-8"))
MARKERS = [
    Earlier("talk", 40, "", 3, 2),
    Rest("docs", 900, 400, "head", "k1"),
    EntryRest("plan", 900, 4, True),
]


def read(name: str) -> Plan:
    """Read a plan that 0.2.0 wrote."""
    stored = WRITTEN[name]
    contents = {key: json.dumps(value) for key, value in stored["contents"].items()}
    return read_plan(stored["plan"], contents.get, report=stored["report"])


def again(plan: Plan) -> Plan:
    contents: dict[str, str] = {}
    written = json.loads(json.dumps(write_plan(plan, contents)))
    return read_plan(written, contents.get)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_plan_of_0_2_is_read(name: str) -> None:
    plan, stored = read(name), WRITTEN[name]
    report = stored["report"]
    window = plan.window()
    assert window.report.budget == report["budget"]
    assert window.tokens <= report["budget"]
    assert {slot.name for slot in window.report.slots} == {s["name"] for s in report["slots"]}
    assert again(plan) == plan


def test_a_conversation_of_0_2_goes_on_at_its_levels_so_it_shows_the_same_bytes() -> None:
    window = read("conversation").window()
    shown = [[message.role, message.text] for message in window.messages]
    assert shown == WRITTEN["conversation"]["shown"]
    statuses = [each.status for each in window.report["timeline"].decisions if each.count == 2]
    assert statuses == ["stubbed", "stubbed", "stubbed", "stubbed", "kept"]


def test_the_rules_of_slots_of_0_2_are_read() -> None:
    slots = {slot.name: slot for slot in read("slots").declared.slots}
    assert [slots[name].kind for name in ("a", "history", "input")] == ["text", "list", "input"]
    assert slots["more"].place.group == Group("rules", join="\n\n")
    assert slots["a"].trim.frame == ("<a>", "</a>")
    assert (slots["a"].trim.behavior, slots["a"].trim.keep) == ("char", "head")
    assert slots["b"].size.max_tokens == 60
    assert slots["history"].size.min_tokens == 20
    assert (slots["notes"].required, slots["notes"].place.breakpoint) == (True, True)
    assert slots["notes"].place.tier == "stable"
    assert slots["vouchers"].excluded == "condition_false"
    assert [slot.priority for slot in slots.values()] == [9, 9, 3, 2, 2, 0, 0, 0, 0]
    runs = [slot.kind for slot in read("conversation").declared.slots]
    assert runs == ["list", "list", "input", "run"]


@pytest.mark.parametrize(
    ("written", "low"), [([None, 0.75], 0.5), ([None, 0.9], 0.8), ([0.6, 0.75], 0.6)]
)
def test_how_rarely_a_history_of_0_2_moves_is_read(written: list[Any], low: float) -> None:
    stored = WRITTEN["conversation"]
    contents = {key: json.dumps(value) for key, value in stored["contents"].items()}
    slots = [
        {**slot, "stepped": written} if "stepped" in slot else slot
        for slot in stored["plan"]["slots"]
    ]
    plan = read_plan({**stored["plan"], "slots": slots}, contents.get)
    trimming = plan.declared.slots[1].trim.trimming
    assert isinstance(trimming, Stepped)
    assert trimming.low_mark == pytest.approx(low)


def declared() -> Slots:
    """Slots with every rule that is written."""
    slots = Slots(400, tokenizer="chars/4", ladder=Ladder(64, 2), results=Results(0.5, ("tail",)))
    pool = Pool("sources", 300)
    slots.add("system", "Be kind.", role="system", position=1)
    slots.add("docs", "d " * 400, trim_behavior="char", keep="head", max_ratio=0.5, pool=pool)
    talk = [
        message
        for n in range(8)
        for message in (
            user(f"question {n}"),
            assistant(tool_calls=[ToolCall(f"c{n}", "look", "{}")]),
            tool(f"c{n}", f"row {n} " * 40),
        )
    ]
    history = Group("talk", interleave=True, share=True)
    slots.add("history", talk, trimming=Stepped(low=0.6), group=history, pool=pool, min_ratio=0.1)
    slots.add("input", Input("What now?"), priority=2)
    slots.add("run", talk[-2:], run=True)
    return slots


def test_a_stored_plan_expects_what_claude_adds_and_one_of_0_2_does_not() -> None:
    slots = Composer.of("anthropic/claude-sonnet-4-5", budget=1_000).slots()
    slots.add("input", [user("hello")])
    plan, contents = slots.plan(), dict[str, str]()
    written = write_plan(plan, contents)
    assert read_plan(written, contents.get).window().report.provider_tokens == 30
    del written["law"]
    assert read_plan(written, contents.get).window().report.provider_tokens == 0


def test_a_stored_plan_is_the_same() -> None:
    plan = declared().plan()
    assert again(plan).declared == replace(
        plan.declared,
        slots=tuple(replace(each, messages=tuple(each.messages)) for each in plan.declared.slots),
    )
    assert again(plan).window() == plan.window()
    assert again(plan).at(200).window() == plan.at(200).window()


@pytest.mark.parametrize("marker", MARKERS, ids=lambda marker: type(marker).__name__)
def test_a_marker_of_ours_is_stored_with_its_slot(marker: Any) -> None:
    assert read_marker(json.loads(json.dumps(write_marker(marker)))) == marker
    slots = Slots(60, tokenizer="chars/4")
    slots.add("docs", "d " * 400, trim_behavior="char", marker=marker)
    plan = slots.plan()
    assert again(plan).window() == plan.window()


def test_a_plan_whose_contents_are_gone_says_so() -> None:
    with pytest.raises(InvalidInput, match="is no longer kept"):
        read_plan(WRITTEN["slots"]["plan"], lambda key: None)
