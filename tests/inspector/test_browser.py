"""The page in a real browser: what it shows is what the reports say, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muntin import Slots, assistant, user
from muntin.inspector.plans import Plans
from muntin.runtime import read_plan
from muntin.timeline.store.memory import MemoryStore
from tests.fitting.test_client import client_of
from tests.fitting.traffic import request, traffic
from tests.gateway.running import TOKEN, running, soon
from tests.inspector import hostile
from tests.inspector.conftest import Inspector, inspecting, keep, picture, until
from tests.inspector.sample import LONG

TURN = 20
# The text of a cell, in one line, as the page writes numbers.
CELLS = """rows => rows.map(row => Object.fromEntries([
    ["index", Number(row.dataset.slot)],
    ...[...row.querySelectorAll("[data-cell]")].map(cell => [
        cell.dataset.cell, cell.dataset.reason ?? cell.querySelector(".status")?.dataset.status
            ?? cell.querySelector("b")?.textContent ?? cell.textContent,
    ]),
]))"""


def number(value: int | None) -> str:
    return "–" if not value and value != 0 else f"{value:,}"


def look(page: Any, inspector: Inspector, session: str = LONG, rest: str = f"/{TURN}.1") -> None:
    page.goto(inspector.link(session, rest))
    page.wait_for_selector(".message")


def what_if(page: Any, budget: int) -> None:
    """Type a budget."""
    page.locator("#budget-number").fill(str(budget))
    page.locator("#budget-number").press("Enter")


def kept_report(inspector: Inspector, turn: int = TURN, step: int = 1) -> Any:
    return json.loads(Plans(inspector.store).record(LONG, turn, step).report)


def planned(inspector: Inspector, budget: int, turn: int = TURN) -> Any:
    """Plan a kept window again, without the inspector."""
    record = Plans(inspector.store).record(LONG, turn, 1)
    store = inspector.store
    plan = read_plan(json.loads(record.plan), lambda key: store.content(LONG, "report", key))
    return plan.at(budget).window()


def assert_shown(page: Any, report: Any) -> None:
    """Compare the bar and the table with a report."""
    assert page.locator(".figures .big").text_content() == number(report["tokens"])
    panes = page.eval_on_selector_all(
        ".picture > .bar .pane",
        "all => all.map(p => [p.dataset.pane, Number(p.dataset.tokens)])",
    )
    slots = [(slot["name"], slot["tokens_kept"]) for slot in report["slots"]]
    expected = [
        ("(tools)", report["tools_tokens"]),
        *slots,
        ("(joined)", report["joined_tokens"]),
        ("(lead)", report["lead_tokens"]),
        ("(answer)", report["answer_tokens"]),
        ("(provider)", report["counts"]["estimated"] - report["counts"]["counted"]),
        ("free", max(0, report["budget"] - report["tokens"])),
    ]
    assert [tuple(pane) for pane in panes] == [pane for pane in expected if pane[1] > 0]
    rows = page.eval_on_selector_all("tr[data-slot]", CELLS)
    assert len(rows) == len(report["slots"])
    for row, slot in zip(rows, report["slots"], strict=True):
        about = "~" if slot["asked_is_estimate"] else ""
        assert row["index"] == slot["index"]
        assert row["name"] == slot["name"]
        assert row["status"] == slot["status"]
        assert row["tokens_kept"] == number(slot["tokens_kept"])
        assert row["tokens_asked"] == about + number(slot["tokens_asked"])
        assert row["messages"] == f"{slot['messages_kept']:,}/{slot['messages_asked']:,}"
        assert row["priority"] == str(slot["priority"])
        assert row["floor"] == (number(slot["floor"]) if slot["floor"] else "–")
        assert row["cap"] == ("–" if slot["cap"] is None else number(slot["cap"]))
        assert row["why"].startswith(slot["reason"] or "")


def test_sessions_lead_to_turns_and_turns_to_one_window(page, inspector):
    page.goto(inspector.address)
    page.wait_for_selector(".message")
    assert "token" not in page.url
    page.fill("#search", "mia")
    until(page, "document.querySelectorAll('.session').length === 1")
    page.click(f"[data-session='{LONG}']")
    until(page, "document.querySelector('.crumb').textContent.includes('mia')")
    first = page.locator("#turns .turn").first
    assert first.get_attribute("data-turn") == "33"
    page.locator("#turns .turn[data-turn='32']").first.click()
    until(page, "document.querySelector('.facts')?.textContent.includes('turn 32')")
    assert_shown(page, kept_report(inspector, 32, 1))


def test_the_table_adds_up_and_is_whole_on_a_screen_of_1280(page, inspector):
    page.set_viewport_size({"width": 1280, "height": 900})
    look(page, inspector)
    report = kept_report(inspector)
    extras = page.eval_on_selector_all(
        "tr[data-extra]",
        "all => all.map(r => [r.dataset.extra, Number(r.cells[2].textContent.replace(',', ''))])",
    )
    slots = sum(slot["tokens_kept"] for slot in report["slots"])
    assert ["(answer)", 3] in extras
    assert slots + sum(tokens for _, tokens in extras) == report["tokens"]
    wide = "e => e.scrollWidth - e.clientWidth"
    assert page.locator(".table .scroll").evaluate(wide) == 0


def test_the_window_shown_is_the_report_that_was_kept(page, inspector, scheme):
    page.emulate_media(color_scheme=scheme)
    look(page, inspector)
    assert_shown(page, kept_report(inspector))
    page.wait_for_selector("[data-prefix]")
    picture(page, f"window-{scheme}")


def test_pixels_of_the_bar_are_in_proportion_to_tokens(page, inspector):
    look(page, inspector)
    widths = page.eval_on_selector_all(
        ".picture > .bar .pane",
        "all => all.map(p => [Number(p.dataset.tokens), p.getBoundingClientRect().width])",
    )
    whole = page.locator(".picture > .bar").bounding_box()["width"]
    budget = kept_report(inspector)["budget"]
    for tokens, width in widths:
        assert abs(width - whole * tokens / budget) <= 0.02 * whole


def test_messages_are_those_the_model_saw_with_what_was_cut_struck_through(page, inspector):
    look(page, inspector)
    window = planned(inspector, kept_report(inspector)["budget"])
    shown = page.eval_on_selector_all(
        "article[data-place]",
        """all => all.map(a => [Number(a.dataset.place), a.dataset.role,
            [...a.querySelectorAll("pre:not(.call):not(.aside) > span")]
                .map(s => s.textContent).join("")])""",
    )
    assert [each[0] for each in shown] == list(range(len(window.messages)))
    for (_, role, text), message in zip(shown, window.messages, strict=True):
        assert role == message.role
        assert text == message.text
    assert page.locator("article[data-state=trimmed] del").count() >= 1
    decoration = page.eval_on_selector("del", "d => getComputedStyle(d).textDecorationLine")
    assert decoration == "line-through"
    folded = page.locator("details.fold").first
    folded.locator("summary").click()
    page.wait_for_selector("details.fold[open] article.out del")
    count = int(folded.get_attribute("data-fold"))
    assert folded.locator("article").count() == count
    page.locator(".tabs").scroll_into_view_if_needed()
    picture(page, "messages")


def test_tools_and_what_was_left_out_are_listed_with_reasons(page, inspector):
    look(page, inspector)
    window = planned(inspector, kept_report(inspector)["budget"])
    page.click("[data-tab=tools]")
    names = page.eval_on_selector_all("[data-tool]", "all => all.map(t => t.dataset.tool)")
    assert names == [tool["function"]["name"] for tool in window.tools]
    page.locator("[data-tool] summary").first.click()
    assert '"parameters"' in page.locator("[data-tool] pre").first.text_content()
    page.click("[data-tab=out]")
    report = kept_report(inspector)
    out = {slot["index"]: slot for slot in report["slots"] if slot["status"] != "kept"}
    assert out
    for index, slot in out.items():
        text = page.locator(f"[data-out='{index}']").text_content()
        assert slot["name"] in text
        assert (slot["detail"] or "") in text
        shown = page.locator(f"[data-out='{index}'] > p")
        assert shown.locator("[data-status]").get_attribute("data-status") == slot["status"]
        if slot["reason"]:
            assert shown.locator("[data-reason]").get_attribute("data-reason") == slot["reason"]
    picture(page, "left-out")


@pytest.mark.parametrize("budget", [2_500, 3_400, 9_000])
def test_the_slider_plans_again_on_the_server(page, inspector, budget):
    look(page, inspector)
    what_if(page, budget)
    page.wait_for_selector(f"[data-planned='{budget}']")
    window = planned(inspector, budget)
    assert_shown(page, json.loads(json.dumps(window.report.to_dict())))
    page.wait_for_selector(f".messages[data-budget='{budget}']:not([hidden]) .message")
    places = page.locator("article[data-place]").count()
    assert places == len(window.messages)
    own = planned(inspector, kept_report(inspector)["budget"])
    change = "came" if budget > own.report.budget else "went"
    assert int(page.locator(f"[data-change={change}]").get_attribute("data-count")) > 0
    page.locator(f"[data-change={change}] summary").click()
    assert page.locator(f"[data-change={change}] li").count() > 0
    picture(page, f"what-if-{budget}")
    page.click("#budget-reset")
    page.wait_for_selector("[data-planned]", state="detached")
    assert_shown(page, kept_report(inspector))


def test_many_quick_moves_of_the_slider_end_at_the_last(page, inspector):
    look(page, inspector)
    for place in range(500, 900, 10):
        page.locator("#budget").fill(str(place))
    last = int(page.locator("#budget-number").input_value())
    page.wait_for_selector(f"[data-planned='{last}']")
    assert_shown(page, json.loads(json.dumps(planned(inspector, last).report.to_dict())))


def test_the_smallest_budget_of_a_slot_is_found_and_holds(page, inspector):
    look(page, inspector)
    page.click("[data-find='2']")
    found = page.wait_for_selector("tr[data-slot='2'] [data-some]")
    smallest = int(found.get_attribute("data-some"))
    assert planned(inspector, smallest).report.slots[2].tokens_kept > 0
    assert planned(inspector, smallest - 1).report.slots[2].tokens_kept == 0


def test_two_turns_are_compared_and_the_slot_that_moved_the_prefix_is_named(
    page, inspector, scheme
):
    page.emulate_media(color_scheme=scheme)
    page.goto(inspector.link(LONG, f"/{TURN}.1?view=compare"))
    page.wait_for_selector("[data-parted]")
    other = page.locator("#other").input_value().split(".")
    told = inspector.ask(
        "difference", session=LONG, turn=TURN, step=1, other_turn=other[0], other_step=other[1]
    )
    shared = page.locator("[data-shared]").get_attribute("data-shared")
    assert int(shared) == told["shared_tokens"]
    parted = page.locator("[data-parted]")
    assert parted.get_attribute("data-by") == told["parted"]["name"]
    assert parted.get_attribute("data-parted") == str(told["parted"]["message"])
    before, now = kept_report(inspector, int(other[0]), int(other[1])), kept_report(inspector)
    for slot in now["slots"]:
        row = page.locator(f"tr[data-name='{slot['name']}']")
        assert row.locator("[data-cell=now]").text_content() == number(slot["tokens_kept"])
    was = {slot["name"]: slot["tokens_kept"] for slot in before["slots"]}
    for name, tokens in was.items():
        row = page.locator(f"tr[data-name='{name}']")
        assert row.locator("[data-cell=before]").text_content() == number(tokens)
    picture(page, f"compare-{scheme}")
    page.select_option("#other", "1.1")
    until(page, "document.querySelector('.pair').textContent.includes('turn 1.1')")


def test_the_session_is_drawn_with_tokens_shares_and_cost(page, inspector, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(inspector.link(LONG, f"/{TURN}.1?view=session"))
    page.wait_for_selector("[data-chart=cost]")
    windows = len(inspector.ask("turns", session=LONG)["windows"])
    for kind in ("slots", "share", "cost"):
        assert page.locator(f"[data-chart={kind}]").get_attribute("data-columns") == str(windows)
    assert float(page.locator("[data-cost]").get_attribute("data-cost")) > 0
    page.wait_for_timeout(1_500)  # the shares come in piece by piece, and draw the charts anew
    report = kept_report(inspector, 1, 1)
    wanted = f"{report['tokens']:,} of {report['budget']:,}"
    for _ in range(50):
        page.locator("[data-chart=slots]").focus()
        page.keyboard.press("Home")
        if wanted in page.text_content(".readout"):
            break
        page.wait_for_timeout(100)
    assert wanted in page.text_content(".readout")
    picture(page, f"session-{scheme}")
    page.locator("[data-chart=slots]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message")
    assert "/1.1" in page.url


def test_a_model_without_a_price_says_so(page, inspector):
    page.goto(inspector.link("trips/lima", "/1.1?view=session"))
    page.wait_for_selector("[data-nocost]")
    assert page.locator("[data-cost=unknown]").count() == 1


def test_the_keyboard_alone_goes_everywhere(page, inspector):
    look(page, inspector)
    shown = "name => document.querySelector('.facts').textContent.startsWith(name)"
    page.keyboard.press("ArrowLeft")
    until(page, shown, "turn 19, step 9")
    page.keyboard.press("ArrowRight")
    until(page, shown, "turn 20, step 1")
    page.wait_for_selector(".message")
    page.keyboard.press("[")
    page.wait_for_selector("[data-planned]")
    page.keyboard.press("0")
    page.wait_for_selector("[data-planned]", state="detached")
    page.keyboard.press("2")
    page.wait_for_selector("#other")
    page.keyboard.press("3")
    page.wait_for_selector("[data-chart]")
    page.keyboard.press("1")
    until(page, shown, "turn 20, step 1")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    page.keyboard.press("/")
    until(page, "document.activeElement.id === 'search'")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.matches('a.session')")
    page.keyboard.press("ArrowDown")
    chosen = page.evaluate("document.activeElement.dataset.session")
    page.keyboard.press("Enter")
    until(page, "name => document.querySelector('.crumb b').textContent === name", argument=chosen)


def test_every_control_can_be_reached_with_tab_and_has_a_name(page, inspector):
    look(page, inspector)
    unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, select, a")]
        .filter(e => !e.hidden && !e.closest("dialog:not([open])"))
        .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
        .map(e => e.outerHTML.slice(0, 100))""")
    assert unnamed == []
    reached = set()
    for _ in range(25):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"budget", "budget-number"} <= reached


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_script_in_every_field_stays_text_in_every_view(page, turn):
    store = MemoryStore()
    windows = hostile.fill(store)
    with inspecting(store) as running:
        look(page, running, hostile.SESSION, f"/{turn}.1")
        page.wait_for_selector("tr[data-slot]")
        names = page.eval_on_selector_all(
            "tr[data-slot] td:first-child b", "all => all.map(n => n.textContent)"
        )
        expected = [slot.name for slot in windows[turn - 1].report.slots]
        # A browser shows NUL as a sign of its own in text that is parsed; here nothing is.
        assert names == expected
        for tab in ("tools", "out", "messages"):
            page.click(f"[data-tab={tab}]")
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        what_if(page, 2_000)
        page.wait_for_selector("[data-planned='2000']")
        page.click("[data-find='0']")
        page.wait_for_selector("tr[data-slot='0'] [data-some]")
        picture(page, f"hostile-{turn}")
        for view, sign in (("compare", ".head h1"), ("session", "[data-chart]")):
            page.click(f"[data-view={view}]")
            page.wait_for_selector(sign)
        page.wait_for_timeout(300)
        assert page.evaluate("window.pwned") is None
        strangers = page.evaluate("""() => [...document.querySelectorAll(
            "script:not([src='static/app.js']), iframe, object, embed, " +
            "form:not([method]):not(.search), " +
            "img:not([src='static/icon.svg']), [onerror], [onload], [onclick], a:not([href^='#'])"
        )].map(e => e.outerHTML)""")
        assert strangers == []


def test_markup_could_not_be_made_even_by_mistake(page, inspector, problems):
    """The policy of the page takes the tools away that would turn text into markup."""
    look(page, inspector)
    for attempt in (
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "document.body.innerHTML = 'x'",
        "document.createElement('script').textContent = 'window.pwned = 1'",
    ):
        refused = page.evaluate(
            f"() => {{ try {{ {attempt}; return false; }} catch {{ return true; }} }}"
        )
        assert refused, attempt
    assert page.evaluate("window.pwned") is None
    assert problems
    problems.clear()


def test_a_page_of_another_origin_learns_nothing(browser, inspector):
    """Another page on this machine: same site, so it has the cookie, but another origin."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(inspector.address)
    page.wait_for_selector(".message")
    with inspecting(MemoryStore()) as other:
        page.goto(other.address)
        told = page.evaluate(
            """async address => {
                const found = [];
                for (const mode of ["cors", "no-cors"]) {
                    try {
                        const answer = await fetch(address, { mode, credentials: "include" });
                        found.push([answer.type, await answer.text()]);
                    } catch (error) { found.push("refused"); }
                }
                return found;
            }""",
            f"http://127.0.0.1:{inspector.port}/api/sessions",
        )
    assert told == ["refused", "refused"]
    context.close()


def test_a_message_of_50_megabytes_leaves_the_page_usable(page, problems):
    store = MemoryStore()
    slots = Slots(8_000, tokenizer="chars/4")
    slots.add("document", "<b>lorem</b> " * 4_000_000, trim_behavior="char", keep="head")
    slots.add("input", "what does it say?")
    keep(store, "big", slots)
    with inspecting(store) as running:
        look(page, running, "big", "/1.1")
        hidden = page.locator("[data-hidden]").first.get_attribute("data-hidden")
        assert int(hidden) > 1_000
        page.click("[data-more]")
        until(page, "document.querySelector('article pre').textContent.length > 30000")
        size = page.evaluate("document.documentElement.textContent.length")
        assert size < 2_000_000
        what_if(page, 9_000)
        page.wait_for_selector(".changes .note")
        assert "too long" in page.locator(".changes .note").text_content()
        assert len(problems) == 1  # the browser notes that the server refused
        problems.clear()
        page.click("[data-tab=out]")
        page.wait_for_selector("[data-out]")


def test_a_thousand_turns_and_two_thousand_messages_stay_quick(page):
    store = MemoryStore()
    history = [each for n in range(1_000) for each in (user(f"question {n}"), assistant(f"a {n}"))]
    for turn in range(1, 1_001):
        slots = Slots(100_000, tokenizer="chars/4")
        slots.add("system", "You are brief.")
        slots.add("history", history if turn == 1_000 else history[: turn % 7])
        slots.add("input", f"question {turn}")
        keep(store, "long", slots)
    with inspecting(store) as running:
        page.goto(running.link("long"))
        page.wait_for_selector(".message", timeout=10_000)
        until(page, "document.getElementById('turns-title').textContent.startsWith('1,000')")
        assert page.locator("#turns .turn").count() < 60
        assert page.locator("article[data-place]").count() <= 300
        until(
            page,
            """() => {
                const main = document.getElementById("main");
                main.scrollTo(0, main.scrollHeight);
                return document.querySelectorAll("article[data-place]").length === 2002;
            }""",
            within=60,
        )
        page.locator("#turns").evaluate("t => t.scrollTo(0, t.scrollHeight)")
        page.locator("#turns .turn[data-turn='1']").click()
        until(page, "document.querySelector('.facts').textContent.includes('turn 1,')")
        page.click("[data-view=session]")
        page.wait_for_selector("[data-chart=slots][data-columns='1000']")
        picture(page, "thousand")


def test_new_turns_appear_while_the_page_is_open(page):
    store = MemoryStore()

    def say(text: str) -> None:
        slots = Slots(500, tokenizer="chars/4")
        slots.add("input", text)
        keep(store, "live", slots)

    say("first")
    with inspecting(store) as running:
        look(page, running, "live", "/1.1")
        say("second")
        page.wait_for_selector("#turns .turn[data-turn='2']", timeout=15_000)


def test_an_empty_store_says_what_to_do(page):
    with inspecting(MemoryStore()) as running:
        page.goto(running.address)
        page.wait_for_selector(".welcome")
        assert "muntin demo" in page.text_content(".welcome")
        assert page.text_content("#turns-title") == "No windows yet"


def test_the_saved_file_shows_the_window_and_nothing_in_it_runs(page, tmp_path, scheme):
    store = MemoryStore()
    (window, *_) = hostile.fill(store)
    trimmed = hostile.slots(3_000).render()
    for name, each in (("whole", window), ("trimmed", trimmed)):
        file = tmp_path / f"{name}.html"
        each.save_html(file)
        page.emulate_media(color_scheme=scheme)
        page.goto(file.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert page.evaluate("window.pwned") is None
        assert page.locator("script, iframe, img, svg, object").count() == 0
        assert page.locator("tbody tr").count() >= len(each.report.slots)
        picture(page, f"saved-{name}-{scheme}")


def test_the_page_works_under_the_path_of_a_gateway(browser):
    with traffic(1_200) as (server, _), running(server.url, 1_200) as gate:
        messages = [{"role": "user", "content": "A question through the gateway"}]
        client_of("chat", gate.url).chat.completions.create(**request("chat", messages))
        context = browser.new_context()
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda each: asked.append(each.url))
        soon(lambda: gate.store.sessions() and gate.store.reports(gate.store.sessions()[0].id))
        page.goto(f"{gate.url}/muntin/?token={TOKEN}")
        page.wait_for_selector("text=A question through the gateway")
        context.close()
        assert all(url.startswith(f"{gate.url}/muntin/") for url in asked)
