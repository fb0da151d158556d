"""Context entries give after volatile content and before all else, and keep nobody from waking."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import App, Source, Window, user
from muntin.agent.tools import tool_name
from muntin.core.counting.counter import Counter
from muntin.runtime.ctx import Ctx
from muntin.testing import ScriptedModel
from tests.products import NAMES
from tests.runtime.conftest import memory, run, texts, wakes

COUNT = Counter(len)
every_name = pytest.mark.parametrize("name", NAMES)
TIERS = ("pinned", "stable", "slow-changing")


def frame(id: str) -> int:
    return len(f'<context-entry id="{id}" name="n"></context-entry>')


def woken(
    name: str, entries: dict[str, str], budget: int, sources: Any = None, payload: str = "wake"
) -> Window:
    app = memory()
    for id, content in entries.items():
        app.session("e/1").insert_context(id, name="n", content=content)
    model = ScriptedModel(["ok"], name=name)

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=budget, sources=sources or {"a": Source("")})
        ctx.use_agent(model=model)
        await ctx.agent.run()

    run(wakes(app, handler, payload))
    (window,) = model.windows
    assert sum(COUNT.message(message) for message in window.messages) <= budget
    return window


def status(window: Window, name: str) -> str:
    return window.report[name].status


@every_name
def test_an_entry_larger_than_all_there_is_keeps_nobody_from_waking(name):
    window = woken(name, {"big": "e" * 5_000}, 300)
    assert window.messages[-1].text == "wake"
    assert status(window, "entries/big") == "trimmed"
    assert texts(window)[0].startswith('<context-entry id="big" name="n">eee')


@every_name
def test_a_cut_entry_keeps_its_tags_and_says_how_to_read_it(name):
    window = woken(name, {"big": "e" * 1_000 + "<&>" * 50}, 400)
    (text, wake) = texts(window)
    assert wake == "wake"
    assert text.count("<context-entry") == text.count("</context-entry>") == 1
    assert re.search(
        r'</context-entry>\n\[entry "big": characters \d+ to \d+ are not shown; '
        r'load_context_history\("big", 1\) reads it\]$',
        text,
    )


@every_name
def test_the_oldest_entry_goes_first_and_each_is_named(name):
    entries = {"one": "1" * 100, "two": "2" * 100, "three": "3" * 100}
    whole = sum(100 + frame(id) for id in entries) + 2
    assert "1" * 100 in texts(woken(name, entries, whole + 4))[0]
    # One token short: the oldest is cut. Much shorter: it is dropped, and the next is cut.
    window = woken(name, entries, whole + 3)
    assert [status(window, f"entries/{id}") for id in entries] == ["trimmed", "kept", "kept"]
    window = woken(name, entries, 280)
    assert [status(window, f"entries/{id}") for id in entries] == ["dropped", "trimmed", "kept"]
    assert "3" * 100 in texts(window)[0]
    window = woken(name, entries, 20)
    assert [status(window, f"entries/{id}") for id in entries] == ["dropped"] * 3
    assert texts(window) == ["wake"]
    assert all(f"entries/{id}" in str(window.report) for id in entries)


@every_name
def test_entries_are_one_message_also_when_some_are_cut(name):
    window = woken(name, {"one": "1" * 300, "two": "2" * 100}, 400)
    assert len(window.messages) == 2
    assert window.messages[0].role == "system"


@every_name
def test_volatile_content_gives_before_entries(name):
    volatile = {"v": Source([user("v" * 10) for _ in range(50)], max=500)}
    window = woken(name, {"e": "e" * 100}, 104 + frame("e"), volatile)
    assert "e" * 100 in texts(window)[0]
    assert "v" not in "".join(texts(window))


@every_name
@pytest.mark.parametrize("tier", TIERS)
def test_entries_give_before_all_that_is_not_volatile(tier, name):
    docs = {"docs": Source("d" * 200, max=200, cache=tier)}
    window = woken(name, {"e": "e" * 100}, 210, docs)
    assert "d" * 200 in texts(window)
    assert status(window, "entries/e") == "dropped"


@every_name
def test_slow_changing_gives_before_stable_and_stable_before_pinned(name):
    sources = {
        tier: Source(tier[:2] * 50, max=100, cache=tier)  # type: ignore[arg-type]
        for tier in TIERS
    }
    for room, kept in ((300, 3), (260, 2), (160, 1), (60, 0)):
        window = woken(name, {}, 301, sources, "w" * (301 - room))
        whole = [tier for tier in TIERS if tier[:2] * 50 in texts(window)]
        assert whole == list(TIERS[:kept]), room
        if room == 60:
            assert status(window, "pinned") == "trimmed"


def test_a_cut_entry_is_read_whole_by_its_tool():
    app: App = memory()
    content = "a <fact> " * 100
    app.session("e/1").insert_context("big", name="n", content=content)
    read: list[str] = []

    async def handler(ctx: Ctx) -> None:
        ctx.use_context(source_budget=300, sources={"a": Source("")})
        reader: Any = next(t for t in ctx.tools if tool_name(t) == "load_context_history")
        read.append(await reader("big", 1))

    run(wakes(app, handler, "wake"))
    assert read == [content]


@given(
    sizes=st.lists(st.integers(0, 400), max_size=5),
    budget=st.integers(4, 900),
    docs=st.integers(0, 300),
    volatile=st.integers(0, 300),
    name=st.sampled_from(NAMES),
)
def test_whatever_the_entries_are_the_entity_wakes_and_the_newest_stay(
    sizes, budget, docs, volatile, name
):
    entries = {f"i{n}": "e" * size for n, size in enumerate(sizes)}
    sources: dict[str, Any] = {"v": Source("v" * volatile, max=400)}
    if docs and docs <= budget:
        sources["docs"] = Source("d" * docs, max=docs, cache="stable")
    window = woken(name, entries, budget, sources)
    assert window.messages[-1].text == "wake"
    kept = [status(window, f"entries/{id}") for id in entries]
    # Dropped ones first, at most one is cut, the rest is whole.
    assert re.fullmatch("(dropped )*(trimmed )?(kept )*", "".join(f"{each} " for each in kept))
    for text in texts(window):
        assert text.count("<context-entry") == text.count("</context-entry>")
