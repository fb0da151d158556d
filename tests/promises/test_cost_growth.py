"""Cost grows with what is shown, and not with what is not: counted in lines run, not in seconds."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from bench import scale
from bench.conversations import fill, turn
from muntin import App, Recall, Slots, Tokens, context, prompt, user
from muntin.testing import ScriptedModel
from muntin.timeline.session import Session
from muntin.timeline.store import Store, open_store
from tests.products import cover


def steps(work: Callable[[], object]) -> int:
    """Return how many lines a work runs when nothing is made for the first time any more."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    work()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


STORES = ("memory", "sqlite")


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'one.db'}"
    with open_store(url) as opened:
        yield opened


def timeline(store: Store, items: int) -> Session:
    session = Session(f"of {items}", store=store, tokenizer="chars/4")
    fill(session, items)
    return session


def test_a_window_costs_the_same_on_a_long_timeline(store):
    def window(session: Session) -> Callable[[], object]:
        return lambda: scale.compose(session.messages(Tokens(2_000)), 2_000)

    short, long = (steps(window(timeline(store, items))) for items in (400, 8_000))
    assert long <= 1.05 * short


def test_appending_costs_the_same_on_a_long_timeline(store):
    def append(session: Session) -> Callable[[], object]:
        return lambda: session.append(user("And then?"))

    short, long = (steps(append(timeline(store, items))) for items in (400, 8_000))
    assert long <= 1.05 * short


def test_the_newest_items_are_read_without_looking_at_all(store):
    session = timeline(store, 8_000)
    few = steps(lambda: session.items.all(8))
    assert few < 8_000 / 4


@pytest.mark.parametrize(("store", "recall"), cover(STORES, [None, Recall()]), indirect=["store"])
def test_a_turn_costs_the_same_however_many_came_before(store, recall):
    """Counted in calls, on all threads, once the window is full."""
    model, is_counted, calls = ScriptedModel(lambda window: "It leaves at nine."), False, 0
    talk = App(store, model=model).conversation("c", budget=1_000, recall=recall)

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += is_counted and event == "call"

    async def count(turns: int) -> int:
        """Send so many messages, and return the calls of the last twenty turns."""
        nonlocal is_counted, calls
        calls = 0
        for number in range(turns):
            is_counted = number >= turns - 20
            await talk.send(f"And when does flight {number % 30} leave?")
        is_counted = False
        return calls

    async def work() -> tuple[int, int]:
        return await count(80), await count(160)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        early, late = asyncio.run(work())
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    assert late <= 1.1 * early


def test_a_page_of_sessions_costs_the_same_among_many(store):
    def page() -> object:
        return store.sessions(after="s 00020", limit=20)

    costs = []
    for start, number in ((0, 60), (60, 600)):
        for n in range(start, number):
            Session(f"s {n:05}", store=store, tokenizer="chars/4").append(user("Hi"))
        costs.append(steps(page))
    assert costs[1] <= 1.05 * costs[0]


def shown(number: int) -> Callable[[], object]:
    messages = [message for n in range(number // 4) for message in turn(n)]
    return lambda: scale.compose(messages, 1_000 * number)


def halved(number: int) -> Callable[[], object]:
    messages = [message for n in range(number // 4) for message in turn(n)]
    return lambda: scale.compose(messages, 30 * number)


def slots(number: int) -> Callable[[], object]:
    return lambda: scale.declared(number, 0.5).render().report


def linked(number: int) -> Callable[[], object]:
    """Return a window whose calls and results stand in slots of their own."""
    talk = [turn(n)[1:3] for n in range(number)]

    def work() -> object:
        made = Slots(60 * number, tokenizer="chars/4")
        for n, (called, _) in enumerate(talk):
            made.add(f"call {n}", [called], priority=n % 7)
        for n, (_, result) in enumerate(talk):
            made.add(f"result {n}", [result], priority=n % 5)
        return made.render()

    return work


def contexts(number: int) -> Callable[[], object]:
    used = [context(id=f"c{n}", priority=n % 90, system="A rule. " * 9) for n in range(number)]
    bot = prompt(system="You are an assistant.", use=used)
    return lambda: bot.inspect_sync(tokenizer="chars/4", token_budget=9 * number)


@pytest.mark.parametrize("make", [shown, halved, slots, linked, contexts])
def test_a_window_costs_at_most_in_proportion_to_what_it_shows(make):
    small, large = steps(make(240)), steps(make(960))
    assert large <= 4 * 1.1 * small
