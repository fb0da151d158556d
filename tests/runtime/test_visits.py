"""How often a turn visits its store, in every door that keeps what happens.

The question is durable before the model is asked, an answer before anything comes of it. Besides
that nothing is written twice, and a report costs no visit of its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from muntin import App, Session, assistant, user
from muntin.testing import ScriptedModel
from muntin.timeline.store import open_store
from muntin.timeline.store.sql.database import Database
from muntin.timeline.store.sql.transaction import Transaction
from tests.faults.proxy import Proxy, proxy_of
from tests.interfaces import DURABLE
from tests.products import THREE, sample
from tests.runtime.conftest import run
from tests.words import call, look

# Writing transactions and thread hops of a turn with one model call. A conversation writes the
# question, the begin of the run, the answer with the end of the turn. A generator also records that
# it was called. A turn in which a user's function runs is settled when the function returns. An
# entity takes its turn, which may have been sent by another process; the entry it inserts is
# written with the begin of the run. One that returns its agent is settled with the answer. That
# with sources awaits its entry.
VISITS = {
    "conversation": (3, 3),
    "instructed": (3, 3),
    "strategy": (3, 3),
    "timeline": (3, 3),
    "generator": (4, 5),
    "generator_prompt": (4, 4),
    "flow": (4, 6),
    "entity": (5, 5),
    "returned": (4, 4),
    "sources": (6, 6),
}


# Statements of a turn with one model call, BEGIN and COMMIT left out, at most: one of them keeps
# what the conversation must remember for its next window.
STATEMENTS = {
    "conversation": 20,
    "instructed": 21,
    "strategy": 26,
    "timeline": 26,
    "generator": 26,
    "generator_prompt": 21,
    "flow": 32,
    "entity": 32,
    "returned": 30,
    "sources": 38,
}
# Round trips of such a turn to PostgreSQL, at most: statements whose answers nobody waits for go
# together, with the begin and the end of their transaction.
TRIPS = {
    "conversation": 15,
    "instructed": 15,
    "strategy": 21,
    "timeline": 21,
    "generator": 21,
    "generator_prompt": 16,
    "flow": 28,
    "entity": 26,
    "returned": 23,
    "sources": 30,
}
# An engine's look at what waits may fall into the turn of an entity.
LOOK = dict.fromkeys(("entity", "returned", "sources"), 4)
# What is asked when a store is opened, and again and again with time.
BESIDE = ("muntin_meta", "muntin_clock", "min(due)", "FROM muntin_timers")


class Visits:
    """Counts the writing transactions of all stores, and the hops to threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes = self.hops = 0
        transact, to_thread = Database.transact, asyncio.to_thread

        def counted(database: Database, work: Callable[[Any], Any]) -> Any:
            self.writes += 1
            return transact(database, work)

        def hop(work: Callable[..., Any], *given: Any, **named: Any) -> Any:
            # Looks at what waits and what is due come with time alone.
            looks = ("waiting", "Timers.release")
            self.hops += not any(name in repr(work) for name in looks)
            return to_thread(work, *given, **named)

        monkeypatch.setattr(Database, "transact", counted)
        monkeypatch.setattr(asyncio, "to_thread", hop)

    def __sub__(self, other: tuple[int, int]) -> tuple[int, int]:
        return self.writes - other[0], self.hops - other[1]


def asked(
    door: str, model: ScriptedModel, url: str, visits: Visits, tools: list[Any], **given: Any
) -> tuple[int, int]:
    """Ask a door, and return the visits of the second turn: the first makes what is made once."""

    async def work() -> tuple[int, int]:
        for text in ("the first question", "the second question"):
            before = (visits.writes, visits.hops)
            app = App(url, model=model, **given)  # an entity has one handler
            await DURABLE[door](app, model, text, tools)
            counted = visits - before
            await app.close()
        return counted

    return run(work())


@pytest.mark.parametrize("keep", [0, 1_000])
@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
def test_a_turn_with_one_answer_visits_its_store_so_often(door, keep, lasting_url, monkeypatch):
    model = ScriptedModel(lambda window: "Hi.")
    visits = Visits(monkeypatch)
    assert asked(door, model, lasting_url, visits, [], keep_reports=keep) == VISITS[door]


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
def test_a_step_more_is_an_answer_and_its_result(door, lasting_url, monkeypatch):
    def reply(window: Any) -> Any:
        called = window.messages[-1].role != "tool"
        return assistant(tool_calls=[call("look")]) if called else "Hi."

    model = ScriptedModel(reply)
    visits = Visits(monkeypatch)
    writes, hops = VISITS[door]
    assert asked(door, model, lasting_url, visits, [look]) == (writes + 2, hops + 2)


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
def test_the_question_and_the_run_are_durable_when_the_model_is_asked(door, tmp_path):
    path = tmp_path / "s.db"
    seen: list[tuple[int, int, int]] = []

    def reply(window: Any) -> str:
        other = sqlite3.connect(path)
        try:
            question = "SELECT count(*) FROM muntin_items WHERE data LIKE '%second question%'"
            runs = "SELECT count(*) FROM muntin_items WHERE kind = 'run'"
            reports = "SELECT count(*) FROM muntin_reports"
            row = [other.execute(each).fetchone()[0] for each in (question, runs, reports)]
        finally:
            other.close()
        seen.append((row[0], row[1], row[2]))
        return "Hi."

    with pytest.MonkeyPatch.context() as patch:
        asked(door, ScriptedModel(reply), f"sqlite:///{path}", Visits(patch), [])
    # No report before the answer to its window.
    assert seen == [(0, 1, 0), (1, 2, 1)]


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
def test_a_turn_with_one_answer_runs_no_more_statements(door, lasting_url, monkeypatch):
    ran: list[str] = []

    def count(kind: type, name: str) -> None:
        run = getattr(kind, name)

        def counted(self: Any, statement: str, *given: Any, **values: Any) -> Any:
            if not any(each in statement for each in BESIDE):
                ran.append(" ".join(statement.split()))
            return run(self, statement, *given, **values)

        monkeypatch.setattr(kind, name, counted)

    for name in ("run", "many", "all", "text"):
        count(Transaction, name)
    count(Database, "query")
    model = ScriptedModel(lambda window: "Hi.")

    async def work() -> None:
        for text in ("the first question", "the second question"):
            ran.clear()
            async with App(lasting_url, model=model) as app:
                await DURABLE[door](app, model, text, [])
                seen.append(len(ran))

    seen: list[int] = []
    run(work())
    assert seen[-1] <= STATEMENTS[door] + LOOK.get(door, 0), "\n".join(ran)
    assert seen[-1] > 10


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
def test_a_turn_with_one_answer_makes_no_more_round_trips(door, server):
    model = ScriptedModel(lambda window: "Hi.")

    async def work(proxy: Proxy) -> list[int]:
        made, store = [], open_store(proxy.url(server.new_database()))
        for number in range(9):  # the driver prepares a statement that comes again and again
            async with App(store, model=model) as app:
                proxy.trips = 0
                await DURABLE[door](app, model, f"question {number}", [])
                made.append(proxy.trips)
        return made

    with proxy_of(server) as proxy:
        made = run(work(proxy))
    assert 5 < min(made[1:]) <= TRIPS[door]


class Steps:
    """Counts what SQLite does, in steps of its own machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = sqlite3.connect

        def watched(*given: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*given, **options)
            connection.set_progress_handler(self.tick, 20)
            return connection

        for module in (sqlite3, sqlite3.dbapi2):
            monkeypatch.setattr(module, "connect", watched)

    def tick(self) -> int:
        self.count += 1
        return 0


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
def test_what_sqlite_does_for_a_turn_does_not_grow_with_the_timeline(door, tmp_path, monkeypatch):
    model, steps = ScriptedModel(lambda window: "Hi."), Steps(monkeypatch)
    text = "It is a fine day. " * 4

    async def ask(url: str, turns: int) -> int:
        # The index of recall is made by each process anew.
        async with App(url, model=model, budget=6_000, recall=False) as app:
            await DURABLE[door](app, model, "the first question", [])
            for known in app.store.sessions():
                said = [each for _ in range(turns) for each in (user(text), assistant(text))]
                Session(known.id, store=app.store).append(*said)
        for _ in range(2):  # the first has more to write
            async with App(url, model=model, budget=6_000, recall=False) as app:
                steps.count = 0
                await DURABLE[door](app, model, "one more question", [])
        return steps.count

    few, many = (run(ask(f"sqlite:///{tmp_path / str(n)}.db", n)) for n in (300, 3_000))
    assert 20 < many < 1.4 * few + 20
