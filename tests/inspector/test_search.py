"""The search of a session in a real browser: the index that its windows recall from."""

from __future__ import annotations

from muntin import assistant, user
from muntin.inspector.search import MOST_HITS
from muntin.timeline.session import Session
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import declare, inspecting, keep, past, picture, until

FIELD = "form[data-search] input[type=search]"
HOSTILE = "My <img src=x onerror='window.pwned = 1'> locker is </pre><b>QX7731</b>."


def test_a_session_is_searched_and_a_hit_leads_to_its_window(page, scheme):
    store = MemoryStore()
    keep(store, "desk", declare(500, past(3)))
    session = Session("desk", store=store)
    session.append(user(HOSTILE), assistant("Noted."))
    for day in range(40):
        session.append(user(f"Day {day} in the locker room was quiet."))
    keep(store, "desk", declare(500, past(3)))
    page.emulate_media(color_scheme=scheme)
    with inspecting(store) as running:
        page.goto(running.link("desk"))
        page.wait_for_selector(".message")
        page.click("[data-view=session]")
        page.fill(FIELD, "Which locker is QX7731?")
        page.press(FIELD, "Enter")
        page.wait_for_selector("[data-hit]")
        picture(page, f"search-{scheme}")
        hits = page.locator("[data-hit]")
        assert hits.count() == MOST_HITS
        assert HOSTILE in hits.first.text_content()
        assert "qx7731" in hits.first.text_content()
        assert page.locator("[data-hit] img, [data-hit] b").count() == 0
        assert page.evaluate("window.pwned") is None
        page.fill(FIELD, "zzzzzz")
        page.press(FIELD, "Enter")
        until(page, "document.body.textContent.includes('Nothing of this session bears on that')")
        page.fill(FIELD, "  ")
        page.press(FIELD, "Enter")
        until(page, "!document.body.textContent.includes('Nothing of this session')")
        page.fill(FIELD, "asked")
        page.press(FIELD, "Enter")
        page.locator("[data-hit] button").first.click()
        page.wait_for_selector(".message")
