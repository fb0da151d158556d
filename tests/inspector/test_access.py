"""Everyone can use the page: the rules that axe-core checks, by hand, in every view.

Names of controls, texts that are read against what is behind them, what scrolls and can be reached,
lists, tables, headings. axe-core itself is not run here.
"""

from __future__ import annotations

from typing import Any

import pytest

from muntin import Slots
from muntin.timeline.store.memory import MemoryStore
from tests.inspector.conftest import declare, inspecting, keep, past, until
from tests.inspector.test_browser import look, what_if

# What is wrong with what is shown, as a list of words: a rule, and the element that breaks it.
RULES = """() => {
    const found = [];
    const wrong = (rule, e) => found.push(rule + ": " + e.outerHTML.slice(0, 160));
    const all = (selector) => [...document.querySelectorAll(selector)].filter((e) =>
        e.getClientRects().length && !e.closest("[aria-hidden=true]") && !e.closest("[hidden]"));
    const flat = (text) => text.replace(/\\s+/g, " ").trim().toLowerCase();
    const name = (e) => flat(e.getAttribute("aria-label")
        || [...(e.labels ?? [])].map((l) => l.textContent).join(" ") || e.textContent || e.title);
    const controls = "button, a, input, select, summary, "
        + "[role=img], [role=region], [role=application]";

    if (!document.documentElement.lang) wrong("html-has-lang", document.documentElement);
    if (!document.title.trim()) wrong("document-title", document.head);
    if (document.querySelectorAll("main").length !== 1) wrong("landmark-one-main", document.body);
    for (const e of all(controls)) if (!name(e)) wrong("name", e);
    for (const e of all("button[aria-label], a[aria-label]")) {
        const shown = flat(e.innerText);
        const missed = /[a-z]/.test(shown) && !name(e).includes(shown);
        if (missed) wrong("label-content-name-mismatch", e);
    }
    for (const e of all("button, a")) {
        if (e.querySelector("button, a, input, select")) wrong("nested-interactive", e);
    }
    for (const e of all("[tabindex]")) if (e.tabIndex > 0) wrong("tabindex", e);
    for (const e of all("[aria-controls]")) {
        if (!document.getElementById(e.getAttribute("aria-controls"))) wrong("aria-controls", e);
    }
    for (const e of all("aside, section, nav")) if (!name(e)) wrong("region", e);
    const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
    ids.filter((id, n) => ids.indexOf(id) !== n).forEach((id) => found.push("duplicate-id: " + id));
    for (const e of all("ul, ol")) {
        if ([...e.children].some((child) => child.tagName !== "LI")) wrong("list", e);
    }
    for (const e of all("li")) if (!e.closest("ul, ol")) wrong("listitem", e);
    for (const e of all("th")) {
        if (!e.textContent.trim() || !e.scope) wrong("empty-table-header", e);
    }
    let last = 0;
    for (const e of all("h1, h2, h3, h4")) {
        const level = Number(e.tagName[1]);
        if (e.closest("main") && last && level > last + 1) wrong("heading-order", e);
        if (e.closest("main")) last = level;
    }
    for (const e of all("*")) {
        const style = getComputedStyle(e);
        const scrolls = /auto|scroll/.test(style.overflowY + style.overflowX)
            && (e.scrollHeight > e.clientHeight + 12 || e.scrollWidth > e.clientWidth + 12);
        const inside = "a, button, input, select, [tabindex='0']";
        const reached = e.tabIndex >= 0 || e.querySelector(inside);
        if (scrolls && !reached && e.id !== "main") wrong("scrollable-region-focusable", e);
    }

    const rgba = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    const light = (rgb) => rgb.slice(0, 3).map((x) => x / 255)
        .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
        .reduce((sum, x, n) => sum + x * [0.2126, 0.7152, 0.0722][n], 0);
    const over = (top, below) => {
        const a = top[3] ?? 1;
        return [0, 1, 2].map((n) => top[n] * a + below[n] * (1 - a));
    };
    const behind = (e) => {
        const layers = [];
        for (let at = e; at; at = at.parentElement) {
            const style = getComputedStyle(at);
            if (style.backgroundImage !== "none") return null;
            const colour = rgba(style.backgroundColor);
            if (style.backgroundColor.startsWith("color")) return null;
            layers.push(colour);
            if ((colour[3] ?? 1) === 1) break;
        }
        return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
    };
    for (const e of all("body *")) {
        const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!own || e.closest(":disabled, .hide, svg")) continue;
        const ground = behind(e);
        if (!ground) continue;
        const style = getComputedStyle(e);
        let faint = 1;
        for (let at = e; at; at = at.parentElement) faint *= Number(getComputedStyle(at).opacity);
        const colour = rgba(style.color);
        const text = over([colour[0], colour[1], colour[2], (colour[3] ?? 1) * faint], ground);
        const [low, high] = [light(text), light(ground)].sort((a, b) => a - b);
        const size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        const ratio = (high + 0.05) / (low + 0.05);
        if (ratio < (large ? 3 : 4.5)) wrong(`color-contrast ${ratio.toFixed(2)}`, e);
    }
    return found.slice(0, 40);
}"""


def filled() -> MemoryStore:
    """A store with windows that show everything: cut, dropped, grouped, compared, searched."""
    store = MemoryStore()
    for _ in range(2):
        keep(store, "one", declare(400, past(12)))
    slots = Slots(700, tokenizer="chars/4")
    slots.add("system", "You are brief.", priority=9)
    for number in range(14):
        slots.add(f"doc {number}", f"The text of document {number}. " * 6, role="system")
    slots.add("long", "A line of a long text.\n" * 60, trim_behavior="char", priority=3)
    slots.add("input", "what now?", priority=8)
    keep(store, "two", slots)
    return store


def check(page: Any, where: str) -> None:
    assert page.evaluate(RULES) == [], where


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_obeys_the_rules(page, scheme):
    page.emulate_media(color_scheme=scheme)
    with inspecting(filled()) as running:
        look(page, running, "two", "/1.1")
        page.wait_for_selector("[data-prefix], .legend")
        check(page, "a window")
        page.click("tr[data-group] button")
        for tab in ("tools", "out", "messages"):
            page.click(f"[data-tab={tab}]")
            check(page, tab)
        what_if(page, 500)
        page.wait_for_selector("[data-planned='500']")
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        check(page, "another budget")
        page.fill("#search", "document")
        page.press("#search", "Enter")
        page.wait_for_selector("[data-looked]")
        check(page, "a search")
        page.goto(running.link("one", "/2.1?view=compare&of=two"))
        page.wait_for_selector("[data-sessions]")
        check(page, "two sessions")
        page.click("[data-view=session]")
        page.wait_for_selector("[data-chart]")
        check(page, "a session")
        page.set_viewport_size({"width": 420, "height": 900})
        check(page, "a session, narrow")
        page.click("#side-open")
        check(page, "the lists, narrow")


def test_what_happens_is_said_to_those_who_cannot_see_it(page):
    with inspecting(filled()) as running:
        look(page, running, "two", "/1.1")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        what_if(page, 500)
        page.wait_for_selector("[data-planned='500']")
        until(page, "document.querySelector('#status').textContent.startsWith('At 500')")
        assert page.get_attribute("#budget", "aria-valuetext") == "500 tokens"
