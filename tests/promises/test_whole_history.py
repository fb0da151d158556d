"""`ctx.history` is the whole history, read as far as it is looked at, never on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import App, History, Message, Session, Tokens, Turns, assistant, flow, generator, user
from muntin.runtime import Action, Ctx
from muntin.testing import MemoryStore, ScriptedModel
from muntin.timeline.store import Store
from tests.interfaces import LOOKING
from tests.products import NAMES, PRICED, cover, sample
from tests.runtime.conftest import run, texts

LONG = 130


def talk(session: Session, turns: int) -> list[str]:
    """Put turns on a timeline, and return what was said."""
    said = [text for n in range(turns) for text in (f"question {n}", f"answer {n}")]
    for question, answer in zip(said[::2], said[1::2], strict=True):
        session.append(user(question), assistant(answer))
    return said


def app_on(store: str, tmp_path: Path) -> App:
    url = "memory:" if store == "memory" else f"sqlite:///{tmp_path / 'm.db'}"
    return App(url, model=ScriptedModel(lambda window: "ok", name=PRICED), budget=100_000)


LOOKS: dict[str, tuple[Callable[[Any], Any], Callable[[list[str]], Any]]] = {
    "len": (len, len),
    "list": (lambda history: texts(list(history)), lambda said: said),
    "recent": (lambda history: texts(history.recent(200)), lambda said: said[-200:]),
    "range": (lambda history: texts(history.range(220, 210)), lambda said: said[-220:-210]),
    "by_tokens": (lambda history: texts(history.by_tokens(10**7)), lambda said: said),
    "turns": (lambda history: texts(history.window(Turns(120))), lambda said: said[-240:]),
    "tokens": (lambda history: texts(history.window(Tokens(10**7))), lambda said: said),
    "recent_text": (
        lambda history: history.recent_text(150).count("\n"),
        lambda said: 149,
    ),
}


READING = ["strategy", "sync_strategy", "entity", "generator"]


@pytest.mark.parametrize(
    ("look", "interface", "store"),
    cover(LOOKS, sample(READING, "strategy", "entity", "generator"), ["memory", "sqlite"]),
)
def test_every_look_reaches_as_far_as_it_asks(store, interface, look, tmp_path):
    ask, wanted = LOOKS[look]

    async def work() -> None:
        async with app_on(store, tmp_path) as app:
            said = talk(app.session("s/1"), LONG)
            found = await LOOKING[interface](app, lambda ctx: ask(ctx.history))
            assert found == wanted(said)

    run(work())


@pytest.mark.parametrize("interface", sample(READING, "strategy", "entity", "generator"))
def test_the_last_of_a_role_is_found_however_far_back(interface, tmp_path):
    async def work() -> None:
        async with app_on("sqlite", tmp_path) as app:
            session = app.session("s/1")
            session.append(user("the only question"))
            for n in range(LONG):
                with session.turn() as turn:
                    turn.append(assistant(f"note {n}"))
            found = await LOOKING[interface](app, lambda ctx: ctx.history.last_user())
            assert found is not None
            assert found.text == "the only question"

    run(work())


@pytest.mark.parametrize("interface", ["strategy", "entity", "generator"])
def test_the_store_is_never_used_on_the_event_loop(interface, tmp_path, monkeypatch):
    used: list[str] = []

    async def work() -> None:
        async with app_on("sqlite", tmp_path) as app:
            talk(app.session("s/1"), LONG)
            loop = threading.get_ident()

            def watched(name: str, method: Any) -> Any:
                def calling(*args: Any, **named: Any) -> Any:
                    if threading.get_ident() == loop:
                        used.append(name)
                    return method(*args, **named)

                return calling

            for name in ("read", "turns", "append", "take", "renew", "settle"):
                method = getattr(app.store, name)

                monkeypatch.setattr(app.store, name, watched(name, method))

            def look(ctx: Ctx) -> None:
                assert len(ctx.history) == 2 * LONG
                assert ctx.list_context() == []
                assert ctx.get_context("x") is None
                ctx.insert_context("x", name="X", content="text")
                ctx.remove_context("x")
                assert len(ctx.timeline_messages()) >= 2 * LONG

            await LOOKING[interface](app, look)

    run(work())
    assert used == []


def test_a_history_can_be_loaded_without_holding_up_the_loop(tmp_path):
    async def work() -> None:
        async with app_on("sqlite", tmp_path) as app:
            talk(app.session("s/1"), LONG)
            seen: list[int] = []

            @app.entity("s")
            async def handler(ctx: Ctx, wake: object) -> None:
                seen.append(len(await ctx.history.load()))

            await app.ask("s/1", "now")
            assert seen == [2 * LONG]

    run(work())


@pytest.mark.parametrize("size", [10, 1_000])
def test_no_more_is_read_than_is_looked_at(size):
    """A look at the newest costs the same in a long history, and no look costs nothing."""
    read: list[int] = []

    class Watched(MemoryStore):
        def read(self, *args: Any, **named: Any) -> Any:
            items = super().read(*args, **named)
            read.append(len(items))
            return items

    async def work() -> None:
        app = App(Watched(), model=ScriptedModel([], name=PRICED))
        talk(app.session("s/1"), size)
        seen: list[Message | None] = []

        @app.entity("s")
        async def handler(ctx: Ctx, wake: Any) -> None:
            read.clear()
            if wake.payload == "look":
                seen.append(ctx.history.last_assistant())
            assert sum(read) <= (110 if wake.payload == "look" else 0)

        read.clear()
        await app.ask("s/1", "do not look")
        assert sum(read) <= 10
        await app.ask("s/1", "look")
        assert seen[0] is not None
        await app.close()

    run(work())


# What the window shows of it, and what the receipt says.


def test_a_strategy_that_shows_all_shows_all(tmp_path):
    class Strategy:
        async def on_context_build(self, ctx: Ctx) -> Any:
            ctx.slots.add("history", ctx.history.recent(10_000))
            ctx.slots.add("input", ctx.message)
            return ctx.slots.render()

    async def work() -> None:
        async with app_on("sqlite", tmp_path) as app:
            said = talk(app.session("c"), LONG)
            await app.conversation("c", strategy=Strategy()).send("now")
            assert isinstance(app.model, ScriptedModel)
            window = app.model.windows[-1]
            assert texts(window) == [*said, "now"]
            assert window.report["history"].messages_kept == 2 * LONG

    run(work())


@pytest.mark.parametrize("name", NAMES)
def test_a_generator_with_all_history_shows_all_that_fits(name, tmp_path):
    async def work() -> None:
        async with app_on("sqlite", tmp_path) as app:
            said = talk(app.session("g"), LONG)
            model = ScriptedModel(["ok", "ok"], name=name)
            made = generator(model=model, user="now", history=True)
            await made.run(app=app, session="g")
            assert texts(model.windows[0]) == [*said, "now"]
            tight = generator(model=model, user="then", history=True, budget=1_000)
            await tight.run(app=app, session="g")
            window = model.windows[1]
            assert window.tokens <= 1_000
            assert texts(window)[-3:] == ["now", "ok", "then"]
            dropped = [slot for slot in window.report.slots if slot.name == "history"]
            cut = [slot for slot in dropped if slot.messages_kept < slot.messages_asked]
            assert cut, "and the receipt says so"

    run(work())


def test_a_flow_has_its_window(tmp_path):
    async def work() -> None:
        async with app_on("sqlite", tmp_path) as app:
            said = talk(app.session("f"), LONG)
            model = ScriptedModel(lambda window: "ok", name=PRICED)
            seen: list[int] = []
            made = generator(model=model, history=True)

            async def block(given: object, ctx: Ctx) -> Any:
                seen.append(len(ctx.history))
                return await ctx.run(made, given)

            action = Action(block, user_message=lambda given: given)
            await flow("f", actions={"ask": action}).run("ask", "now", app=app, session="f")
            assert seen == [100]
            assert texts(model.windows[0]) == [*said[-100:], "now"]

    run(work())


@given(
    turns=st.integers(0, 220),
    n=st.integers(0, 500),
    span=st.tuples(st.integers(1, 500), st.integers(0, 499)).filter(lambda pair: pair[0] > pair[1]),
    tokens=st.integers(0, 5_000),
)
def test_a_history_read_page_by_page_is_the_same_as_one_read_at_once(turns, n, span, tokens):
    store: Store = MemoryStore()
    session = Session("s", store=store, tokenizer=len)
    said = talk(session, turns)
    whole = History(map_messages(said), tokenizer=len)

    def looks() -> Iterator[tuple[Any, Any]]:
        def fresh() -> Any:
            return _history(store, turns + 1)

        yield texts(fresh().recent(n)), texts(whole.recent(n))
        yield texts(fresh().range(*span)), texts(whole.range(*span))
        yield texts(fresh().by_tokens(tokens)), texts(whole.by_tokens(tokens))
        yield texts(fresh().window(Turns(n))), texts(whole.window(Turns(n)))
        yield texts(fresh().window(Tokens(tokens))), texts(whole.window(Tokens(tokens)))
        yield fresh().recent_text(n), whole.recent_text(n)
        yield len(fresh()), len(whole)
        yield list(fresh().turns()), list(whole.turns())

    for found, wanted in looks():
        assert found == wanted


def map_messages(said: Sequence[str]) -> list[Message]:
    return [user(text) if n % 2 == 0 else assistant(text) for n, text in enumerate(said)]


def _history(store: Store, turn: int) -> Any:
    """Return the history that a strategy sees in the turn after `turn - 1` others."""
    from muntin.timeline.past import PastHistory

    return PastHistory(Session("s", store=store, tokenizer=len), turn)


def test_looks_side_by_side_see_the_same(tmp_path):
    """Sync functions of one generator look from several threads at once."""
    seen: list[int] = []

    def look(given: object, ctx: Ctx) -> str:
        seen.append(len(ctx.history))
        return "x"

    async def work() -> None:
        async with app_on("sqlite", tmp_path) as app:
            talk(app.session("g"), LONG)
            context = dict.fromkeys("abcd", look)
            made = generator(user="now", context=context)
            await asyncio.gather(made.run(app=app, session="g"))

    run(work())
    assert seen == [2 * LONG] * 4


def test_two_threads_that_look_at_once_read_the_store_once():
    """The one that looks while the other reads waits, and neither sees a page torn."""
    started, proceed = threading.Event(), threading.Event()
    reads: list[int] = []

    class Slow(MemoryStore):
        def read(self, *args: Any, **named: Any) -> Any:
            started.set()
            assert proceed.wait(10)
            items = super().read(*args, **named)
            reads.append(len(items))
            return items

    store = Slow()
    said = talk(Session("s", store=store, tokenizer=len), 60)
    history = _history(store, 61)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(history.recent, 2)
        assert started.wait(10)
        second = pool.submit(history.recent, 3)
        proceed.set()
        assert texts(first.result()) == said[-2:]
        assert texts(second.result()) == said[-3:]
    assert sum(reads) == 100
