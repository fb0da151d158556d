"""A turn of very many steps, a store of very many sessions: what is asked stays small."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import assistant, user
from muntin.inspector.changes import shares
from muntin.inspector.data import turns
from muntin.inspector.plans import Plans
from muntin.timeline.receipts import report_of
from muntin.timeline.session import Session
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import declare, inspecting, keep, past, until
from tests.inspector.test_browser import look


@pytest.fixture
def long_turn() -> MemoryStore:
    """A session with one turn of 40 steps."""
    store = MemoryStore()
    (item,) = Session("s", store=store).append(user("Look at forty pages."))
    for step in range(1, 41):
        window = declare(2_000, past(step, 20)).render()
        store.put("s", report_of(window, item.turn, step, 1_000))
        Session("s", store=store).append(assistant(f"Step {step}, and then on to the next one."))
    return store


# The API.


def test_windows_of_a_turn_are_told_from_a_step_on_as_in_the_whole(long_turn):
    plans = Plans(long_turn)
    whole = turns(plans, "s")["windows"]
    assert turns(plans, "s", first=1, step=39)["windows"] == whole[38:]
    assert turns(plans, "s", first=1, step=50)["windows"] == []


def test_how_many_turns_there_are_is_told_without_any_window(long_turn):
    told = turns(Plans(long_turn), "s", count=0)
    assert (told["turns"], told["windows"], told["unreported"]) == (1, [], [])


def test_shares_of_a_long_turn_come_in_pieces_that_make_the_whole(long_turn, monkeypatch):
    plans = Plans(long_turn)
    monkeypatch.setattr("muntin.inspector.changes.SECONDS", 600.0)
    whole = shares(plans, "s", first=1)
    assert (len(whole["windows"]), whole["next"]) == (40, None)
    monkeypatch.setattr("muntin.inspector.changes.SECONDS", -1.0)
    found: list[Any] = []
    at: dict[str, int] | None = {"turn": 1, "step": 1}
    while at is not None:
        told = shares(plans, "s", first=at["turn"], step=at["step"])
        found += told["windows"]
        at = told["next"]
    assert found == whole["windows"]


def test_the_share_of_one_window_is_asked_for_alone(long_turn, monkeypatch):
    monkeypatch.setattr("muntin.inspector.changes.SECONDS", 600.0)
    told = shares(Plans(long_turn), "s", first=1, step=17, count=1, most=1)["windows"]
    assert told == shares(Plans(long_turn), "s", first=1)["windows"][16:17]


# The page.


def test_the_page_asks_for_little_of_a_long_turn_again_and_again(page, long_turn):
    asked: list[str] = []
    with inspecting(long_turn) as running:
        look(page, running, "s", "")
        page.on("request", lambda each: asked.append(each.url))
        until(page, "performance.now() > 5000")
        news = [url for url in asked if "/api/turns" in url]
        assert news
        assert all("step=39" in url for url in news)
        wide = "row => row.scrollWidth <= row.clientWidth"
        row = page.locator("#turns [data-step='40'] .no")
        assert row.evaluate(wide)
        page.click("[data-view=session]")
        page.wait_for_selector("[data-chart=share]")
        until(page, "!document.querySelector('#stage').textContent.includes('comparing')")


def test_a_step_with_four_digits_does_not_cover_its_row(page):
    store = MemoryStore()
    (item,) = Session("s", store=store).append(user("Go."))
    for step in (1, 2_000):
        store.put("s", report_of(declare(900, past(2)).render(), item.turn, step, 1_000))
    with inspecting(store) as running:
        look(page, running, "s", "")
        boxes = [
            page.locator(f"#turns [data-step='2000'] .{name}").bounding_box()
            for name in ("no", "what")
        ]
        width = "e => { const r = document.createRange(); r.selectNodeContents(e);"
        end = page.locator("#turns [data-step='2000'] .no").evaluate(
            width + " return r.getBoundingClientRect().right; }"
        )
        assert end <= boxes[1]["x"]


@pytest.mark.parametrize("view", ["session", "compare"])
def test_a_window_that_comes_late_does_not_take_the_place_of_another_view(page, long_turn, view):
    held: list[Any] = []
    with inspecting(long_turn) as running:
        look(page, running, "s", "")
        page.route("**/api/window?*", lambda route: held.append(route))
        page.keyboard.press("ArrowLeft")
        until(page, "document.querySelector('.crumb').textContent.includes('window 39')")
        while not held:
            page.wait_for_timeout(20)
        page.click(f"[data-view={view}]")
        page.wait_for_selector("svg.chart" if view == "session" else "[data-shared]")
        held[0].continue_()
        page.wait_for_timeout(800)
        assert page.locator("svg.chart" if view == "session" else "[data-shared]").count()
        assert page.locator("#budget").count() == 0


def test_what_has_most_of_the_words_is_found_first_in_whichever_session(page, monkeypatch):
    monkeypatch.setattr("muntin.inspector.search.SECONDS", -1.0)  # one session a piece
    store = MemoryStore()
    for number in range(12):
        Session(f"s{number}", store=store).append(user(f"My locker is QX77{number:02}."))
    keep(store, "shown", declare(500, past(2)))
    with inspecting(store) as running:
        look(page, running, "shown", "")
        page.fill("#search", "locker QX7701")
        page.press("#search", "Enter")
        until(page, "document.querySelector('[data-looked]')?.textContent.includes('13 of 13')")
        hits = page.locator("#hits [data-hit]")
        assert hits.count() == 12
        assert hits.first.get_attribute("data-in") == "s1"
        assert page.text_content("[data-looked]") == "12 found in 13 of 13 sessions"


@pytest.mark.parametrize("list_", ["sessions", "turns"])
def test_a_row_keeps_the_focus_while_sessions_and_windows_come(page, list_):
    store = MemoryStore()
    for name in ("one", "two"):
        for _ in range(3):
            keep(store, name, declare(500, past(2)))
    with inspecting(store) as running:
        look(page, running, "one", "")
        page.locator(f"#{list_} a").nth(1).focus()
        focused = "document.activeElement.getAttribute('href')"
        row = page.evaluate(focused)
        assert row
        keep(store, "one", declare(500, past(2)))
        keep(store, "three", declare(500, past(2)))
        until(page, "document.querySelectorAll('#sessions a').length === 3")
        until(page, "document.querySelectorAll('#turns a').length === 4")
        assert page.evaluate(focused) == row
