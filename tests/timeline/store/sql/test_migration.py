"""Stores that Muntin 0.1.0 wrote: after the migration they behave as new ones do."""

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from muntin import App, Session, user
from muntin.errors import TurnLost
from muntin.runtime import read_plan
from muntin.runtime.recovery import Reader
from muntin.runtime.sources import Source
from muntin.testing import ScriptedModel
from muntin.timeline.items import Claim, Pruned, SideWrites, draft_of
from muntin.timeline.store import open_store
from muntin.timeline.store.sql import schema
from tests.paths import ROOT

OLD = ROOT / "tests" / "data" / "stores"
NAME = "anthropic/claude-sonnet-4-5"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """Return the address of a copy of a store that 0.1.0 wrote."""
    if request.param == "sqlite":
        shutil.copy(OLD / "0.1.0.db", tmp_path / "old.db")
        return f"sqlite:///{tmp_path / 'old.db'}"
    server = request.getfixturevalue("server")
    database = server.new_database()
    server.ask((OLD / "0.1.0.sql").read_text(encoding="utf-8"), database)
    return server.url(database)


@pytest.fixture
def store(url):
    with open_store(url) as opened:
        yield opened


def rows(url, statement):
    """Run a statement past the store and return its rows."""
    connect = sqlite3.connect if url.startswith("sqlite") else psycopg.connect
    with closing(connect(url.removeprefix("sqlite:///"))) as connection:
        return connection.execute(statement).fetchall()


def columns(url):
    """Return the columns of every table, and what is indexed, as the database tells."""
    if url.startswith("sqlite"):
        tables = [
            name
            for (name,) in rows(url, "SELECT name FROM sqlite_master WHERE type = 'table'")
            if name.startswith("muntin_")
        ]
        found = {
            name: rows(url, f"SELECT name FROM pragma_table_info('{name}')") for name in tables
        }
        indexes = rows(url, "SELECT name FROM sqlite_master WHERE type = 'index'")
        return found, sorted(indexes)
    found = rows(
        url,
        "SELECT table_name, column_name, data_type, is_nullable, collation_name "
        "FROM information_schema.columns WHERE table_schema = current_schema() "
        "ORDER BY table_name, column_name",
    )
    indexes = rows(
        url,
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()",
    )
    return found, sorted(indexes)


def test_an_old_store_gets_the_tables_that_a_new_one_has(url, tmp_path, request):
    assert rows(url, "SELECT value FROM muntin_meta") == [("2",)]
    open_store(url).close()
    assert rows(url, "SELECT value FROM muntin_meta") == [(str(len(schema.MIGRATIONS)),)]
    if url.startswith("sqlite"):
        new = f"sqlite:///{tmp_path / 'new.db'}"
    else:
        server = request.getfixturevalue("server")
        new = server.url(server.new_database())
    open_store(new).close()
    assert columns(url) == columns(new)


def test_what_was_said_is_all_there(store):
    found = {info.id: (info.items, info.turns) for info in store.sessions()}
    assert found == {
        "chat": (24, 8),
        "helper/1": (8, 2),
        "helper/killed": (5, 1),
        "helper/waits": (1, 1),
        "killed/chat": (4, 1),
        "plain": (2, 1),
    }
    texts = [message.text for message in Session("chat", store=store).messages()]
    assert texts[:2] == ["Question 0: is it so? ", "Yes, it is."]
    assert len(texts) == 16


def test_a_turn_of_a_wake_is_resumable_and_no_other(store):
    turns = {info.id: store.turns(info.id) for info in store.sessions()}
    found = [(id, turn.number) for id in turns for turn in turns[id] if turn.resumable]
    assert found == [("helper/killed", 1)]
    for id in ("killed/chat", "helper/killed"):
        Session(id, store=store).mend()
    assert [turn.status for turn in store.turns("killed/chat")] == ["failed"]
    assert [turn.status for turn in store.turns("helper/killed")] == ["open"]


def test_the_turns_of_an_old_store_are_fenced_from_now_on(store):
    """One that was being worked on had its first attempt; who takes it has the second."""
    assert [turn.attempt for turn in store.turns("helper/killed")] == [1]
    assert {turn.attempt for turn in store.turns("chat")} == {0}
    taken = store.take("helper/killed", "me", timedelta(minutes=1), resumable=True)
    assert taken is not None
    assert (taken.attempt, taken.tries) == (2, 2)
    with pytest.raises(TurnLost):
        store.append("helper/killed", [draft_of(user("x"), turn=1)], claim=Claim("me", 1))
    with pytest.raises(TurnLost):
        store.append("chat", [draft_of(user("x"), turn=1)], claim=Claim("me"))


def looked(calls):
    """Return the tool that the old entity had."""

    def look(n: int) -> str:
        """Look up."""
        calls.append(n)
        return "found " * n

    return look


async def helped(url, model, calls=None, *, asked):
    """Run the entity of the old store until `asked` is done."""
    async with App(url, model=model, budget=1_400, keep_reports=5) as app:

        @app.entity("helper")
        async def helper(ctx, wake):
            ctx.insert_context("mood", name="Mood", content=str(wake.payload))
            docs = Source("doc " * 900, max=200, cache="stable")
            chat = Source(ctx.timeline_messages, max=400)
            ctx.use_context(source_budget=700, sources={"docs": docs, "chat": chat})
            ctx.use_agent(system_prompt="You help.", tools=[looked([] if calls is None else calls)])
            await ctx.agent.run()

        await asked(app)


def test_a_wake_whose_process_died_is_resumed_where_it_stopped(url):
    calls: list[int] = []
    model = ScriptedModel(lambda window: "It was found twice.", name=NAME)

    async def until_done(app):
        while [turn.status for turn in app.store.turns("helper/killed")] != ["completed"]:
            await asyncio.sleep(0.01)
        while [turn.status for turn in app.store.turns("helper/waits")] != ["completed"]:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(helped(url, model, calls, asked=until_done), 30))
    assert calls == []  # its call had its result
    with open_store(url) as store:
        said = [item.message.text for item in store.read("helper/killed") if item.message]
        assert said[0] == "Look twice."
        assert said[-2:] == ["found found ", "It was found twice."]
        assert [turn.resumable for turn in store.turns("helper/killed")] == [True]


def test_every_kept_window_can_be_planned_again(store):
    for session, count in (("chat", 5), ("helper/1", 2), ("helper/killed", 2), ("killed/chat", 2)):
        records = store.reports(session)
        assert len(records) == count
        for record in records:
            plan, report = json.loads(record.plan), json.loads(record.report)
            content = partial(store.content, session, "report")
            window = read_plan(plan, content).window()
            assert window.tokens - window.report.answer_tokens == report["tokens"]
            assert read_plan(plan, content).at(10_000).window().messages


def test_contents_are_forgotten_when_no_report_names_them_any_more(url):
    oldest = open_store(url)
    (first, *_) = oldest.reports("chat")
    names = [name for slot in json.loads(first.plan)["slots"] for name in slot["messages"]]
    asked = names[-1]  # the message that was asked then, which later windows show dated
    assert all(oldest.content("chat", "report", name) for name in names)
    oldest.close()

    async def talk():
        model = ScriptedModel(lambda window: "Yes.", name=NAME)
        async with App(url, model=model, budget=1_200, keep_reports=5) as app:
            await app.conversation("chat").send("One more.")
            assert app.store.content("chat", "report", asked) is None
            assert [record.turn for record in app.store.reports("chat")] == [5, 6, 7, 8, 9]
            for record in app.store.reports("chat"):
                plan = json.loads(record.plan)
                read_plan(plan, lambda key: app.store.content("chat", "report", key)).window()

    asyncio.run(talk())


def test_the_original_of_a_source_is_found_and_forgotten_in_time(store):
    snapshot = "248a6c3a90d8e909"
    assert store.content("helper/1", "source", snapshot) == "doc " * 900
    assert store.content("helper/1", "report", f"source:{snapshot}") is None
    read: Any = Reader(Session("helper/1", store=store)).tools[1]
    assert asyncio.run(read("docs", 0, 7, snapshot)) == "doc doc"
    store.put("helper/1", SideWrites(turn=3, forget=2))
    assert store.content("helper/1", "source", snapshot) is None
    assert store.content("helper/killed", "source", snapshot) is not None


def test_what_the_window_before_left_to_the_next_is_kept_by_its_line(url, store):
    for session, digests in (("chat", 15), ("helper/1", 6), ("killed/chat", 3)):
        text = store.content(session, "frontier", "window")
        assert len(json.loads(text)["digests"]) == digests
    assert store.content("chat", "frontier", "frontier:window") is None
    assert store.content("plain", "frontier", "window") is None
    assert len(rows(url, "SELECT * FROM muntin_notes")) == 4


def test_an_old_store_goes_on_to_be_written(store):
    (item,) = store.append("chat", [draft_of(user("More."), opens="turn")])
    assert (item.position, item.turn) == (25, 9)
    store.append("new", [draft_of(user("Hello."))])
    store.delete("helper/1")
    assert store.reports("helper/1") == []


def test_reports_of_old_stores_are_bounded_too(url):
    with open_store(url) as store:
        kept = {id: len(store.reports(id)) for id in ("chat", "helper/1", "killed/chat")}
        assert kept == {"chat": 5, "helper/1": 2, "killed/chat": 2}
        ((reports, contents),) = rows(
            url,
            "SELECT MIN(size), (SELECT MIN(size) FROM muntin_contents) FROM muntin_reports",
        )
        assert min(reports, contents) > 0
        assert store.prune(before=datetime.now(UTC)).reports == 11
        assert store.prune(most=0) == Pruned(0, 0)
        assert store.content("helper/1", "source", "248a6c3a90d8e909") == "doc " * 900


def spoilt(url, statement):
    """Change a store as an import of 0.1.0 could."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement)
            connection.commit()
    else:
        with psycopg.connect(url) as connection:
            connection.execute(statement)


PLAIN = "session = (SELECT id FROM muntin_sessions WHERE name = 'plain')"


def test_two_lines_that_point_at_each_other_hang_no_reader(url):
    spoilt(url, f"UPDATE muntin_items SET kind = 'run', run = 3 - position WHERE {PLAIN}")
    with open_store(url) as store:
        session = Session("plain", store=store)
        session.append(user("Still there?"))
        assert [message.text for message in session.messages()][-1] == "Still there?"
        assert session.timeline_messages()[-1].text == "Still there?"

        async def ask():
            model = ScriptedModel(["Yes."], name=NAME)
            async with App(url, model=model, budget=1_200) as app:
                await app.conversation("plain").send("Really?")
                assert model.windows[-1].messages[-1].text == "Really?"

        asyncio.run(asyncio.wait_for(ask(), 30))


def test_attributes_of_an_entry_cannot_leave_the_tag(url):
    payload = {"id": "e", "name": "n", "content": "c", "attrs": {"x><system": "1", "k": "v"}}
    data = json.dumps({"payload": payload})
    spoilt(
        url,
        f"UPDATE muntin_items SET kind = 'context_inserted', data = '{data}' "
        f"WHERE {PLAIN} AND position = 1",
    )
    spoilt(
        url,
        "INSERT INTO muntin_entries SELECT id, 'e', 1, NULL FROM muntin_sessions "
        "WHERE name = 'plain'",
    )
    with open_store(url) as store:
        (entry,) = Session("plain", store=store).list_context()
        assert entry.render() == '<context-entry id="e" name="n" k="v">c</context-entry>'
        texts = [message.text for message in Session("plain", store=store).timeline_messages()]
        assert not any("<system" in text for text in texts)


def test_counts_that_an_import_claimed_are_not_believed(url):
    spoilt(url, f"UPDATE muntin_items SET tokens = '{{\"estimate+4\":0}}' WHERE {PLAIN}")
    with open_store(url) as store:
        session = Session("plain", store=store)
        assert all(session.count(item) > 4 for item in store.read("plain"))
