"""Small things that a reader sees: sentences that are true, texts that are not covered or cut."""

from __future__ import annotations

import re
from typing import Any

import pytest

from muntin import assistant, user
from muntin.core.window import Window
from muntin.inspector.data import turns, window
from muntin.inspector.plans import Plans
from muntin.providers.model import Reply, Usage
from muntin.testing import ScriptedModel
from muntin.timeline.session import Session
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import declare, inspecting, keep, past, until
from tests.inspector.test_browser import look
from tests.inspector.test_glance import NARROW, lines_of
from tests.inspector.test_step_details import Billed, call, live

LONG = "As we agreed, be thorough. " * 400


# Claimed and reported.


def test_a_small_difference_is_not_called_agreement(page):
    store = live(["Yes."], "Well?", more=20)
    with inspecting(store) as running:
        look(page, running, "s", "")
        assert lines_of(page, "[data-differs]") == ["The difference is small."]
    with inspecting(live(["Yes."], "Well?")) as running:
        look(page, running, "s", "")
        assert lines_of(page, "[data-differs]") == ["Both agree."]


def test_what_is_read_from_a_cache_without_a_request_before_is_told(monkeypatch):
    async def complete(self: Any, window: Window, **given: Any) -> Reply:
        reply = await ScriptedModel.complete(self, window, **given)
        return Reply(reply.message, usage=Usage(window.tokens, 12, cache_read=2_000))

    monkeypatch.setattr(Billed, "complete", complete)
    claim = window(Plans(live(["Yes."], LONG)), "s", 1)["claim"]
    assert claim["shared"] == 0
    (sentence,) = claim["differs"]
    assert sentence.startswith(f"The provider read 2,000 of {claim['input']:,} tokens from its ")
    assert sentence.endswith("Muntin knows of no request before that begins like this one.")


def test_the_first_request_is_compared_with_none(page):
    store = live(["Yes.", "Yes, too."], "Well?", "And now?")
    with inspecting(store) as running:
        look(page, running, "s", "/1.1")
        until(page, "document.querySelector('.prefix').textContent.includes('No request before')")
        look(page, running, "s", "/2.1")
        until(page, "document.querySelector('.prefix').textContent.includes('The first')")
        assert "but a cache can read none of them" in page.text_content(".prefix")


# Texts.


def test_a_long_question_ends_with_dots_in_the_title():
    store = live(["Yes.", "Yes."], LONG, "Short.")
    first, second = [row["title"] for row in turns(Plans(store), "s")["windows"]]
    assert first.endswith("…")
    assert len(first) == 160
    assert second == "Short."


def test_what_the_model_saw_of_a_shortened_result_is_seen_without_scrolling(page):
    answers: list[Any] = [call(1, "look", n=9), "Seen."]
    with inspecting(live(answers, "Look at page nine.")) as running:
        look(page, running, "s", "/1.2")
        message = page.locator(".message[data-role=tool]")
        cut = message.locator("details.cut")
        assert cut.count()
        assert not cut.locator("del").first.is_visible()
        told = cut.locator("summary").first.text_content()
        assert re.fullmatch(r"instead of [\d,]+ characters", told)
        shown = message.locator("pre > span").first
        assert shown.is_visible()
        box, outer = shown.bounding_box(), message.bounding_box()
        assert box["y"] < outer["y"] + outer["height"]
        cut.locator("summary").first.click()
        assert cut.locator("del").first.is_visible()


def test_marks_of_breakpoints_do_not_cover_the_sentence_below_them(page):
    store = live(["Yes.", "Yes, too."], LONG, LONG)
    with inspecting(store) as running:
        look(page, running, "s", "/2.1")
        until(page, "document.querySelector('.prefix .mark')")
        text = "e => { const r = document.createRange(); r.selectNodeContents(e);"
        top = page.locator(".prefix > span").evaluate(
            f"{text} return r.getBoundingClientRect().top; }}"
        )
        mark = page.locator(".prefix .mark").first.bounding_box()
        assert mark["y"] + 17 <= top + 2  # with its arrow


def test_a_session_without_windows_and_one_that_is_not_there_say_so_under_a_heading(page, problems):
    store = MemoryStore()
    Session("imported", store=store).append(user("Hi"), assistant("Hello."))
    with inspecting(store) as running:
        page.goto(running.link("imported"))
        page.wait_for_selector("h1")
        assert page.text_content("h1") == "No windows"
        page.goto(running.link("nobody"))
        until(page, "document.querySelector('h1')?.textContent === 'This cannot be shown'")
        assert page.text_content("[role=alert].note:not([hidden])") == (
            "There is no session 'nobody'."
        )
        assert page.text_content("#turns-title") == "No windows"
        page.route(
            "**/api/turns*",
            lambda route: route.fulfill(status=503, json={"error": "sqlite:///a.db: is damaged"}),
        )
        page.goto(running.link("imported"))
        until(page, "document.querySelector('#stage .bad')?.textContent.startsWith('sqlite:///a')")
    problems.clear()


# Two sessions, narrow screens.


def test_two_sessions_are_there_and_here_not_before_and_now(page):
    store = MemoryStore()
    for name in ("one", "two"):
        keep(store, name, declare(900, past(3)))
    with inspecting(store) as running:
        page.goto(running.link("one", "/1.1?view=compare&of=two"))
        page.wait_for_selector("[data-sessions]")
        assert lines_of(page, "table.slots th") == ["slot", "there", "here", "change"]
        assert page.text_content("[data-change=came] h2").startswith("Only here")
        reach = page.locator(".pair .prefix .reach").bounding_box()
        bar = page.locator(".pair .bar").first.bounding_box()
        assert reach["x"] == pytest.approx(bar["x"], abs=1)


def test_a_very_long_name_takes_two_lines_of_a_narrow_screen(page):
    store = MemoryStore()
    name = "customer/" + "x" * 170
    keep(store, name, declare(900, past(3)))
    with inspecting(store) as running:
        page.set_viewport_size(NARROW)
        look(page, running, name, "")
        assert page.locator(".crumb").bounding_box()["height"] < 50
        assert page.locator("#live").is_visible()


def test_rows_of_slots_stay_low_on_a_narrow_screen(page):
    store = MemoryStore()
    keep(store, "s", declare(120, past(12), docs="d" * 900))
    with inspecting(store) as running:
        page.set_viewport_size(NARROW)
        look(page, running, "s", "")
        heights = page.eval_on_selector_all(
            "tr[data-slot]", "all => all.map(row => row.getBoundingClientRect().height)"
        )
        assert max(heights) < 85
