"""What is left out, and from which budget on it is kept: slots of one name together."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from muntin import Slots
from muntin.inspector.changes import survival
from muntin.inspector.plans import Plans
from muntin.runtime import read_plan
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import inspecting, keep
from tests.inspector.test_browser import look, what_if


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    """A window with forty documents, of which about half fit, and three small slots."""
    store = MemoryStore()
    slots = Slots(3_000, tokenizer="chars/4")
    slots.add("rules", "Answer from the documents.", role="system", priority=100)
    for number in range(1, 41):
        text = f"Document {number}. " + "Facts about bikes. " * 27
        slots.add(f"doc {number}", text, role="system", priority=number % 5)
    for name in ("profile", "weather", "style"):
        slots.add(name, f"{name}: " + "x " * 130, role="system")
    slots.add("input", "What is a bike?", priority=99)
    keep(store, "s", slots)
    return store


def dropped(store: MemoryStore) -> list[dict[str, Any]]:
    report = json.loads(store.reports("s")[-1].report)
    return [slot for slot in report["slots"] if slot["status"] == "dropped"]


def kept_at(store: MemoryStore, slot: int, budget: int) -> bool:
    plan = json.loads(store.reports("s")[-1].plan)
    window = read_plan(plan, lambda key: store.content("s", "report", key)).at(budget).window()
    return bool(window.report.slots[slot].tokens_kept)


def test_a_slot_that_is_dropped_is_kept_from_a_larger_budget_on(store):
    plans = Plans(store)
    for slot in dropped(store):
        edge = survival(plans, "s", 1, None, slot["index"])["some_from"]
        assert edge > 3_000
        assert kept_at(store, slot["index"], edge)
        assert not kept_at(store, slot["index"], edge - 1)


def test_the_table_also_tells_a_smaller_budget_that_keeps_a_dropped_slot(page):
    """A large slot of higher priority takes the room as soon as it fits."""
    store = MemoryStore()
    slots = Slots(1_550, tokenizer="chars/4")
    slots.add("large", "y " * 3_000, role="system", priority=5)
    slots.add("small", "x " * 200, role="system")
    slots.add("input", "What is a bike?", priority=99)
    keep(store, "s", slots)
    (slot,) = dropped(store)
    told = survival(Plans(store), "s", 1, None, slot["index"])
    assert told["some"] < 1_550 < told["some_from"]
    assert all(kept_at(store, slot["index"], told[name]) for name in ("some", "some_from"))
    with inspecting(store) as running:
        look(page, running, "s", "")
        page.click(f"[data-find='{slot['index']}']")
        cell = page.wait_for_selector(f"tr[data-slot='{slot['index']}'] [data-some]")
        assert cell.text_content() == f"{told['some_from']:,} also at {told['some']:,}"


def test_many_slots_of_one_name_that_are_left_out_are_folded(page, store):
    out = dropped(store)
    docs = [slot for slot in out if slot["name"].startswith("doc ")]
    assert 4 <= len(docs) < len(out)
    with inspecting(store) as running:
        look(page, running, "s", "")
        page.click("[data-tab=out]")
        group = page.locator("[data-out-group]")
        assert group.locator("summary").text_content() == f"doc {len(docs)} slots"
        assert not page.locator(f"[data-out='{docs[0]['index']}']").is_visible()
        group.locator("summary").click()
        line = page.locator(f"[data-out='{docs[0]['index']}']")
        assert line.is_visible()
        assert line.locator("li").count() == 0
        said = r"doc \d+ dropped .* 0 of [\d,]+ tokens kept was dropped \d+(st|nd|rd|th)"
        assert re.fullmatch(said, line.text_content())
        assert "message 0" not in page.text_content(".body")


def test_many_slots_of_one_name_that_come_in_are_one_line(page, store):
    with inspecting(store) as running:
        look(page, running, "s", "")
        what_if(page, 20_000)
        page.wait_for_selector("[data-planned='20000']")
        count = sum(slot["name"].startswith("doc ") for slot in dropped(store))
        moved = page.locator("[data-moved=doc]")
        assert moved.count() == 1
        assert moved.text_content() == f"doc ({count} slots) dropped → whole"
        assert page.locator("[data-moved=weather]").count() == 1
