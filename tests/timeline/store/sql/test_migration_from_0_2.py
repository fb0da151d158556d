"""Stores that 0.2.0 wrote: everything in them is read, and they go on to be written, even while a
process of 0.2 has them open."""

import asyncio
import json
import shutil
import sqlite3
import time
from contextlib import closing
from functools import partial

import psycopg
import pytest

from muntin import App, Session
from muntin.core.caching.frontier import Frontier
from muntin.fitting import Fitter
from muntin.runtime import read_plan
from muntin.runtime.summaries import State
from muntin.testing import ScriptedModel
from muntin.timeline.recall.packing import unpack
from muntin.timeline.recall.shelf import shelf_of
from muntin.timeline.store import open_store
from muntin.wire.lists import pieces_of
from tests.paths import ROOT

OLD = ROOT / "tests" / "data" / "stores"
NAME = "anthropic/claude-sonnet-4-5"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """Return the address of a copy of a store that 0.2.0 wrote."""
    if request.param == "sqlite":
        shutil.copy(OLD / "0.2.0.db", tmp_path / "old.db")
        return f"sqlite:///{tmp_path / 'old.db'}"
    server = request.getfixturevalue("server")
    database = server.new_database()
    server.ask((OLD / "0.2.0.sql").read_text(encoding="utf-8"), database)
    return server.url(database)


@pytest.fixture
def store(url):
    with open_store(url) as opened:
        yield opened


def test_what_was_said_is_all_there(store):
    sessions = {info.id: (info.items, info.turns) for info in store.sessions()}
    assert sessions == {"chat": (46, 14), "fit": (3, 2), "helper/1": (4, 1), "helper/waits": (1, 1)}
    texts = [message.text for message in Session("chat", store=store).messages()]
    assert texts[0].startswith("What about the flight to Oslo on day 0?")
    assert len(texts) == 28


def test_notes_are_found_by_kind_and_name(store):
    for session in ("chat", "helper/1"):
        text = store.content(session, "frontier", "window")
        assert Frontier.from_dict(json.loads(text)).digests
    assert (
        State.load(Session("chat", store=store), "window").text == "So far they spoke of flights."
    )
    assert json.loads(store.content("chat", "failed_summary_usage"))["input"] == 100
    assert store.content("chat", "recall_segment", "0").startswith("muntin-recall-1:")
    assert store.content("chat", "recall_vectors", "tiny:0") == "AAAA"
    assert json.loads(store.content("fit", "recorder_frontier"))["count"] == 3
    assert json.loads(store.content("fit", "recorder_steps")) == [4, {"1": 1, "2": 1}]
    assert store.content("chat", "frontier", "summary:window") is None


def test_a_segment_of_the_recall_index_is_made_again_when_it_is_needed(store):
    shelf_of(store).segment = 2  # as it was when the old segment was written
    session = Session("chat", store=store)
    (best,) = session.search("Bergen on day 3", limit=1)
    assert "day 3" in best.text  # the old segment said that Bergen is in item 2
    text = store.content("chat", "recall_segment", "0")
    assert text.startswith("muntin-recall-2:")
    (segment, _, _) = unpack(text) or (None, None, None)
    assert segment is not None
    assert "bergen" not in segment.terms


def test_failed_summaries_are_still_billed(store):
    usage = Session("chat", store=store).usage()
    made = sum(item.payload["usage"]["input"] for item in Session("chat", store=store).summaries())
    assert usage.summaries.input == made + 100


def test_every_kept_window_can_be_planned_again(store):
    records = store.reports("chat")
    assert len(records) == 5
    for record in records:
        window = read_plan(
            json.loads(record.plan), partial(store.content, "chat", "report")
        ).window()
        assert window.messages


def test_timers_and_turns_that_wait_are_still_there(store):
    assert [timer.id for timer in store.timers("helper/1")] == ["later"]
    assert [turn.status for turn in store.turns("helper/waits")] == ["pending"]


def test_conversations_go_on(url):
    model = ScriptedModel(lambda window: "Yes.", name=NAME, budget=1_200)

    async def talk():
        async with App(url, model=model) as app:

            @app.entity("helper")
            async def helper(ctx, wake):
                ctx.use_agent(system_prompt="You help.")
                await ctx.agent.run()

            await app.conversation("chat").send("And on day 14?")
            assert model.windows[-1].messages[-1].text == "And on day 14?"
            await app.resume()
            while [turn.status for turn in app.store.turns("helper/waits")] != ["completed"]:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(talk(), 60))


def test_a_recorded_list_goes_on_without_repeating_what_is_there(url):
    talk = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": "Here."},
        {"role": "user", "content": "And the other?"},
        {"role": "assistant", "content": "There."},
        {"role": "user", "content": "And the third?"},
    ]
    Fitter(2_000, model="openai/gpt-4o", store=url).fit(pieces_of(talk), conversation="fit")
    with open_store(url) as store:
        end = time.monotonic() + 10  # a slow store is written to behind the answer
        while len(items := store.read("fit")) < len(talk) and time.monotonic() < end:
            time.sleep(0.01)
    assert [item.message.text for item in items if item.message] == [m["content"] for m in talk]


# What 0.2.0 writes when a turn begins and when its window is stored.
LIVE = (
    """INSERT INTO muntin_sessions (name, head, turn, total, created, updated)
    VALUES ('chat', 1, 1, 0, 0, 0) ON CONFLICT (name) DO UPDATE SET
    head = muntin_sessions.head + 1, turn = muntin_sessions.turn + 1""",
    """INSERT INTO muntin_turns (session, number, status, first, owner, attempt, until)
    SELECT id, 15, 'completed', 47, NULL, 0, 0 FROM muntin_sessions WHERE name = 'chat'""",
    """INSERT INTO muntin_items (session, position, turn, kind, run, client, history, transient,
    time, total, tokens, data)
    SELECT id, 47, 15, 'message', NULL, TRUE, TRUE, FALSE, 0, 0, '{}',
        '{"message":{"role":"user","content":"live"}}' FROM muntin_sessions WHERE name = 'chat'""",
    """INSERT INTO muntin_frontiers (session, line, data)
    VALUES ((SELECT id FROM muntin_sessions WHERE name = 'chat'), 'window', '{}')
    ON CONFLICT (session, line) DO UPDATE SET data = excluded.data""",
)


def test_a_process_of_0_2_that_has_the_store_open_goes_on(url):
    connect = sqlite3.connect if url.startswith("sqlite") else psycopg.connect
    with closing(connect(url.removeprefix("sqlite:///"))) as old, open_store(url) as store:
        before = store.content("chat", "frontier", "window")
        for statement in LIVE:
            old.execute(statement)
        old.commit()
        assert [item.message.text for item in store.read("chat") if item.message][-1] == "live"
        assert store.content("chat", "frontier", "window") == before
        store.delete("chat")
        rows = old.execute("SELECT line FROM muntin_frontiers").fetchall()
        assert ("summary:window",) not in rows
