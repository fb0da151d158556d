"""The page at a glance, in a real browser: rows, answers, levels, live, narrow, two sessions."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations, pairwise
from math import dist
from typing import Any

import pytest

from muntin import Slots, user
from muntin.core.parts import ToolCall
from muntin.inspector.data import turns
from muntin.inspector.plans import Plans
from muntin.inspector.search import MOST_HITS
from muntin.runtime.app import App
from muntin.testing import ScriptedModel
from muntin.timeline.items import Record, SideWrites
from muntin.timeline.session import Session
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import (
    Inspector,
    apart,
    declare,
    inspecting,
    keep,
    past,
    picture,
    until,
)
from tests.inspector.sample import LONG
from tests.inspector.test_browser import kept_report, look, what_if
from tests.inspector.test_step_details import call, live
from tests.paths import DATA, ROOT

STATIC = ROOT / "src" / "muntin" / "inspector" / "static"
NARROW = {"width": 420, "height": 900}


@pytest.fixture(scope="module")
def agent() -> MemoryStore:
    """A store with an agent's session: results of all sizes, a repeated step."""
    answers: list[Any] = [call(1, "look", n=1), call(2, "look", n=6), call(3, "look", n=6), "Seen."]
    return live([*answers, "Goodbye."], "Look at page six.", "Thanks, that was all.")


@pytest.fixture(scope="module")
def opened(agent: MemoryStore) -> Iterator[Inspector]:
    with inspecting(agent) as running:
        yield running


def lines_of(page: Any, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_text_contents()]


def fits(page: Any) -> bool:
    """Say whether nothing is wider than the screen."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


# Rows and answers.


def test_rows_say_what_happened_and_a_repeated_step_is_flagged(page, opened, scheme):
    page.emulate_media(color_scheme=scheme)
    look(page, opened, "s", "/1.3")
    rows = {
        step: page.locator(f"#turns [data-turn='1'][data-step='{step}']") for step in (1, 2, 3, 4)
    }
    assert re.search(r"look\(n=1\) → [\d,]+ tokens$", rows[1].locator(".did").text_content())
    assert re.search(r"look\(n=6\) → [\d,]+ tokens, cut to [\d,]+", rows[2].text_content())
    assert rows[3].locator("[data-repeats]").text_content() == "repeats"
    assert rows[2].locator("[data-repeats]").count() == 0
    assert "makes the same calls as the step before" in page.text_content(".head [data-repeats]")
    assert "Seen." in rows[4].text_content()
    picture(page, f"agent-{scheme}")


def test_the_answer_its_bill_and_the_claim_are_under_the_window(page, opened):
    look(page, opened, "s", "/1.4")
    told = opened.ask("window", session="s", turn=1, step=4)
    assert page.text_content("[data-answer] .said") == "Seen."
    bill = page.locator("[data-bill]")
    assert int(bill.get_attribute("data-bill")) == told["usage"]["input"]
    assert float(bill.get_attribute("data-cost")) == pytest.approx(told["cost"])
    cells = lines_of(page, ".claim td")
    assert cells[:2] == [f"{told['claim']['input']:,}", f"{told['claim']['reported']['input']:,}"]
    assert lines_of(page, "[data-differs]") == (told["claim"]["differs"] or ["Both agree."])
    look(page, opened, "s", "/1.1")
    assert lines_of(page, "[data-call]")[0].startswith("look(n=1) → ")


def test_recalled_turns_are_drawn_with_the_words_that_brought_them_back(page):
    store = MemoryStore()

    async def main() -> None:
        model = ScriptedModel(lambda window: "Noted.", budget=2_000)
        async with App(store, model=model) as app:
            chat = app.conversation("s", recall=True)
            await chat.send("My locker is QX7731, remember that.")
            for day in range(24):
                await chat.send(f"Day {day} was quiet. " + "Nothing happened at the desk. " * 15)
            await chat.send("Which locker is QX7731?")

    apart(lambda: asyncio.run(main()))
    slots = json.loads(store.reports("s")[-1].report)["slots"]
    (slot,) = [each for each in slots if each["name"] == "recalled"]
    assert slot["tokens_kept"]
    with inspecting(store) as running:
        look(page, running, "s", "")
        assert f"{slot['tokens_kept']:,} tokens" in page.text_content("[data-level=recalled]")
        first = page.locator("[data-recalled]").first
        assert slot["detail"].startswith(f"{first.get_attribute('data-recalled')} (")
        assert "qx7731" in page.text_content(".recalls")
        assert page.locator(".groups .recalled").count() == 1
        cell = page.locator("td.why", has_text="qx7731").text_content()
        assert re.match(r"item \d+ for [\w, ]*qx7731", cell)
        picture(page, "recalled")


# Wording, the slider, loading.


def test_what_was_left_out_is_told_in_plain_words(page, inspector):
    look(page, inspector)
    report = kept_report(inspector)
    page.click("[data-tab=out]")
    for slot in report["slots"]:
        for each in slot["decisions"]:
            if slot["status"] == "kept" or not each["rank"]:
                continue
            told = page.text_content(
                f"[data-out='{slot['index']}'] [data-decision='{each['first']}']"
            )
            assert re.search(rf"was (dropped|cut) {each['rank']:,}(st|nd|rd|th)$", told)
    what_if(page, 2_500)
    page.wait_for_selector("[data-planned='2500']")
    page.click("[data-tab=out]")
    assert re.search(r"would be (dropped|cut) 1st", page.text_content(".body"))
    for code in ("over_budget", "fits_with", "whole with +", "cut as number"):
        assert code not in page.text_content("#main")


@pytest.mark.parametrize("name", ["conversation", "slots"])
def test_a_window_of_0_2_is_shown_as_its_report_says(page, name):
    written = json.loads((DATA / "plans-0.2.0.json").read_text("utf-8"))[name]
    report = written["report"]
    store = MemoryStore()
    (item,) = Session("s", store=store).append(user("asked"))
    contents = {key: json.dumps(value) for key, value in written["contents"].items()}
    record = Record(
        item.turn, 1, datetime(2026, 1, 2, tzinfo=UTC), *map(json.dumps, (report, written["plan"]))
    )
    store.put("s", SideWrites(record, contents, contents.keys(), 1_000_000))
    (row,) = turns(Plans(store), "s")["windows"]
    assert row["title"] == {"conversation": "Where is row 5?", "slots": "What now?"}[name]
    with inspecting(store) as running:
        look(page, running, "s", "")
        assert page.locator(".figures .big").text_content() == f"{report['tokens']:,}"
        page.click("[data-tab=out]")
        told = page.text_content(".body")
        if name == "conversation":
            assert "made shorter ahead of need, for several turns" in told
        for slot in report["slots"]:
            for each in slot["decisions"]:
                if each["fits_with"] and each["rank"] and each["reason"] != "over_cap":
                    assert f"kept from {report['budget'] + each['fits_with']:,} tokens on" in told
        what_if(page, 5_000)
        page.wait_for_selector("[data-planned='5000']")


def test_the_slider_is_logarithmic_and_says_its_value(page, inspector):
    look(page, inspector)
    seen = []
    for place in (200, 400, 600, 800):
        page.locator("#budget").fill(str(place))
        seen.append(int(page.locator("#budget-number").input_value()))
        assert page.get_attribute("#budget", "aria-valuetext") == f"{seen[-1]:,} tokens"
    steps = [after / before for before, after in pairwise(seen)]
    assert max(steps) / min(steps) < 1.1
    page.click("#budget-reset")
    page.wait_for_selector("[data-planned]", state="detached")
    assert int(page.locator("#budget-number").input_value()) == kept_report(inspector)["budget"]


def test_nothing_is_shown_as_zero_while_it_loads(page, inspector):
    waiting = threading.Event()

    def slowly(route: Any) -> None:
        waiting.wait(0.5)
        route.continue_()

    page.route("**/api/turns*", slowly)
    page.goto(inspector.link(LONG, "/20.1"))
    page.wait_for_selector("[data-loading]")
    assert page.text_content("#turns-title") == "Windows …"
    assert not re.search(r"\b0\b", page.text_content(".top") + page.text_content("#stage"))
    page.wait_for_selector(".message")
    page.unroute("**/api/turns*")
    page.route("**/api/shares*", lambda route: None)  # it waits until nobody holds it
    page.click("[data-view=session]")
    page.wait_for_selector("[data-waiting]")
    assert page.locator("[data-cost]").count() == 0
    assert not re.search(r"\$0(\.0+)?(?![.\d])", page.text_content("#stage"))
    page.unroute("**/api/shares*")
    page.wait_for_selector("[data-cost]")


# Many slots, colours.


def test_many_slots_of_one_name_are_one_group_with_one_colour(page):
    store = MemoryStore()
    slots = Slots(4_000, tokenizer="chars/4")
    slots.add("system", "You are brief.")
    for number in range(30):
        slots.add(f"doc {number}", f"Text of document {number}. " * 8, role="system")
    slots.add("input", "what now?")
    window = keep(store, "s", slots)
    docs = [slot for slot in window.report.slots if slot.name.startswith("doc ")]
    kept = sum(slot.tokens_kept for slot in docs)
    with inspecting(store) as running:
        look(page, running, "s", "/1.1")
        pane = page.locator(".picture .pane[data-pane=doc]")
        assert (pane.get_attribute("data-slots"), pane.get_attribute("data-tokens")) == (
            "30",
            str(kept),
        )
        assert lines_of(page, "tr[data-group]")[0].startswith("doc30 slots")
        assert not page.locator("#slot-5").is_visible()
        page.click("tr[data-group] button")
        assert page.locator("#slot-5").is_visible()
        assert page.get_attribute("tr[data-group] button", "aria-expanded") == "true"
        shown = page.locator("tr[data-slot]").count()
        assert shown == len(window.report.slots)
        picture(page, "groups")


def test_colours_of_slots_do_not_collide(page):
    store = MemoryStore()
    slots = Slots(9_000, tokenizer="chars/4")
    names = [f"slot {chr(97 + n)}" for n in range(24)]
    for name in names:
        slots.add(name, f"The text of {name}. " * 9, role="system")
    keep(store, "s", slots)
    with inspecting(store) as running:
        look(page, running, "s", "/1.1")
        seen = page.eval_on_selector_all(
            "tr[data-slot] .dot",
            "all => all.map(d => { const s = getComputedStyle(d);"
            " return s.backgroundColor + s.backgroundImage; })",
        )
    assert len(seen) == len(set(seen)) == len(names)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_two_colours_are_told_apart_and_text_on_them_is_read(scheme):
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    light, dark = style.split("@media (prefers-color-scheme: dark)")[:2]
    chosen = light if scheme == "light" else dark.partition("\n}")[0]
    colours = dict(re.findall(r"--(c\d|on): (#[0-9a-f]{3,6})", chosen))
    on = colours.pop("on")
    assert len(colours) == 10
    for name, colour in colours.items():
        assert contrast(colour, on) >= 4.5, name
    for one, other in combinations(colours.values(), 2):
        assert dist(lab(one), lab(other)) >= 25, (one, other)


def linear(colour: str) -> list[float]:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    return [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]


def light_of(colour: str) -> float:
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: str, other: str) -> float:
    """Contrast as WCAG defines it."""
    low, high = sorted((light_of(one), light_of(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str) -> tuple[float, float, float]:
    """CIE L*a*b*: in it, distances are how different colours look."""
    r, g, b = linear(colour)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


# Searching, comparing, watching.


def test_search_finds_names_and_what_was_said_in_any_session(page):
    store = MemoryStore()
    for name in ("desk", "gate", "lounge"):
        Session(name, store=store).append(user(f"Nothing special at the {name}."))
        keep(store, name, declare(500, past(2)))
    Session("gate", store=store).append(user("The <b>code</b> is QX7731."))
    with inspecting(store) as running:
        look(page, running, "desk", "")
        page.fill("#search", "QX7731")
        until(page, "document.querySelector('#sessions').textContent.includes('No session')")
        page.press("#search", "Enter")
        page.wait_for_selector("#hits [data-hit]")
        hits = page.locator("#hits [data-hit]")
        assert hits.first.get_attribute("data-in") == "gate"
        assert "The <b>code</b> is QX7731." in hits.first.text_content()
        assert "3 of 3 sessions" in page.text_content("[data-looked]")
        assert hits.count() <= MOST_HITS
        picture(page, "find")
        hits.first.click()
        until(page, "document.querySelector('.crumb b').textContent === 'gate'")
        page.fill("#search", "zzzzzz")
        page.click("#find")
        until(page, "document.querySelector('#hits').textContent.includes('Nothing found')")
        page.fill("#search", "")
        until(page, "document.querySelectorAll('#sessions a').length === 3")
        assert page.text_content("#hits") == ""


def test_two_sessions_are_compared(page, inspector):
    page.goto(inspector.link("trips/oslo", "/2.1?view=compare"))
    page.wait_for_selector("#other-session")
    page.select_option("#other-session", "trips/lima")
    page.wait_for_selector("[data-sessions]")
    told = {
        name: inspector.ask("turns", session=name)["windows"]
        for name in ("trips/oslo", "trips/lima")
    }
    cells = lines_of(page, "[data-total='tokens sent'] td")
    sent = [sum(each["tokens"] for each in told[name]) for name in ("trips/lima", "trips/oslo")]
    assert cells == [f"{each:,}" for each in sent]
    assert page.locator("#other").input_value() == "2.1"
    apart = inspector.ask(
        "difference",
        session="trips/oslo",
        turn=2,
        step=1,
        other_turn=2,
        other_step=1,
        other_session="trips/lima",
    )
    assert int(page.get_attribute("[data-shared]", "data-shared")) == apart["shared_tokens"]
    page.select_option("#other", "1.1")
    until(page, "document.querySelector('.pair').textContent.includes('trips/lima 1.1')")
    assert "of=trips%2Flima" in page.url
    page.reload()
    page.wait_for_selector("[data-sessions]")
    picture(page, "sessions")


def test_the_windows_of_a_running_agent_appear_without_reloading(page):
    store = MemoryStore()
    go = threading.Event()

    def wait(n: int) -> str:
        """Wait for the test."""
        assert go.wait(60)
        return "done"

    def answer(window: Any) -> Any:
        step = sum(message.role == "tool" for message in window.messages)
        return ToolCall(f"c{step}", "wait", json.dumps({"n": step})) if step < 3 else "All done."

    async def main() -> None:
        async with App(store, model=ScriptedModel(answer, budget=4_000)) as app:
            await app.conversation("s", tools=[wait]).send("Go on.")

    with inspecting(store) as running:
        page.goto(running.address)
        page.wait_for_selector(".welcome")
        page.evaluate("window.mark = 1")
        agent = threading.Thread(target=asyncio.run, args=(main(),))
        agent.start()
        try:
            until(page, "document.querySelector('.crumb')?.textContent.includes('window 1 of 1')")
            assert page.get_attribute("#live", "aria-pressed") == "true"
            assert "no result yet" in page.text_content("#turns")
        finally:
            go.set()
            agent.join(60)
        until(page, "document.querySelector('.crumb').textContent.includes('window 4 of 4')")
        until(page, "document.querySelector('[data-answer]').textContent.includes('All done.')")
        assert page.evaluate("window.mark") == 1
        picture(page, "live")
        page.locator("#turns [data-step='1']").click()
        until(page, "document.querySelector('.crumb').textContent.includes('window 1 of 4')")
        assert page.get_attribute("#live", "aria-pressed") == "false"
        keep(store, "s", declare(500, past(1)))
        until(page, "document.getElementById('turns-title').textContent.startsWith('5')")
        assert "window 1 of 5" in page.text_content(".crumb")
        page.keyboard.press("l")
        until(page, "document.querySelector('.crumb').textContent.includes('window 5 of 5')")


@pytest.mark.parametrize("question", ["shares", "turns"])
def test_a_question_without_an_answer_is_told_and_what_is_shown_stays(
    page, problems, opened, question
):
    lost = question == "shares"
    page.route(f"**/api/{question}?*", lambda route: route.abort() if lost else route.continue_())
    page.goto(opened.link("s", "/1.3"))
    page.wait_for_selector(".facts")
    lost = True
    until(page, "!document.getElementById('gone').hidden")
    assert "no longer answers" in page.text_content("#gone")
    assert page.text_content(".facts").startswith("turn 1, step 3")
    lost = False
    until(page, "document.getElementById('gone').hidden")
    assert all("ERR_FAILED" in each for each in problems)
    problems.clear()


# Narrow screens.


def test_every_view_fits_a_screen_of_420_pixels(page, opened, inspector, scheme):
    page.set_viewport_size(NARROW)
    page.emulate_media(color_scheme=scheme)
    look(page, opened, "s", "/1.3")
    assert fits(page)
    picture(page, f"narrow-{scheme}")
    assert not page.locator("#sessions").is_visible()
    page.click("#side-open")
    assert page.get_attribute("#side-open", "aria-expanded") == "true"
    assert fits(page)
    picture(page, f"narrow-list-{scheme}")
    page.locator("#turns [data-step='2']").first.click()
    until(page, "document.querySelector('.facts').textContent.startsWith('turn 1, step 2')")
    assert not page.locator("#sessions").is_visible()
    for view, sign in (("compare", "[data-shared]"), ("session", "[data-chart]")):
        page.goto(inspector.link(LONG, f"/20.1?view={view}"))
        page.wait_for_selector(sign)
        assert fits(page), view
        picture(page, f"narrow-{view}-{scheme}")


def test_a_pane_shows_its_number_whole_or_not_at_all(page, opened):
    page.set_viewport_size(NARROW)
    look(page, opened, "s", "/1.3")
    widen = """width => document.querySelectorAll('.pane:has(span)').forEach((pane) =>
        pane.style.cssText = `width: ${width}px; flex: none; transition: none`)"""
    cut = """[...document.querySelectorAll('.pane .n')].filter((number) =>
        number.scrollWidth > number.clientWidth).map((number) => number.textContent)"""
    for width in (20, 40, 60, 70, 80, 120):
        page.evaluate(widen, width)
        assert page.evaluate(cut) == [], width
    assert page.locator(".pane .n").first.is_visible()


def test_contents_of_any_session_are_searched_by_the_index_of_recall():
    store = MemoryStore()
    Session("s", store=store).append(user("The parcel weighs 12 kilograms."))
    from muntin.inspector.search import search_sessions

    (hit,) = search_sessions(Plans(store), "How heavy is the parcel?")["found"]
    assert hit["session"] == "s"
