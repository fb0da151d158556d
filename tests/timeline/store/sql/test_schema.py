"""Versions of the tables: recorded, brought forward, never back."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from threading import Event, Thread

import psycopg
import pytest

from muntin import StoreError, user
from muntin.timeline.items import SideWrites
from muntin.timeline.session import Session
from muntin.timeline.store import open_store
from muntin.timeline.store.sql import schema
from tests.timeline.store.conformance.facts import at_once

pytestmark = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)


def past(url):
    """Connect past the store."""
    connect = sqlite3.connect if url.startswith("sqlite") else psycopg.connect
    return closing(connect(url.removeprefix("sqlite:///")))


def rows(url, statement):
    """Run a statement past the store and return its rows."""
    with past(url) as connection:
        return connection.execute(statement).fetchall()


def open_and_close(url):
    open_store(url).close()


OURS = schema.MIGRATIONS


def version(later):
    """The version of the tables with so many migrations after ours."""
    return str(len(OURS) + later)


add_table = ("CREATE TABLE muntin_extra (x INTEGER)", "INSERT INTO muntin_extra VALUES (7)")
add_column = ("ALTER TABLE muntin_extra ADD COLUMN y INTEGER",)
breaks = ("CREATE TABLE muntin_half (x INTEGER)", "INSERT INTO nowhere VALUES (1)")


def migrations(monkeypatch, *more):
    monkeypatch.setattr(schema, "MIGRATIONS", (*OURS, *more))


def test_the_version_is_recorded(store_url):
    open_and_close(store_url)
    assert rows(store_url, "SELECT key, value FROM muntin_meta") == [
        ("version", str(len(schema.MIGRATIONS)))
    ]


def test_an_older_store_is_brought_forward_and_keeps_what_it_has(store_url, monkeypatch):
    with closing(open_store(store_url)) as store:
        Session("s", store=store).append(user("kept"))
    migrations(monkeypatch, add_table, add_column)
    with closing(open_store(store_url)) as store:
        assert [m.text for m in Session("s", store=store).messages()] == ["kept"]
        Session("s", store=store).append(user("more"))
    assert rows(store_url, "SELECT x, y FROM muntin_extra") == [(7, None)]
    assert rows(store_url, "SELECT value FROM muntin_meta") == [(version(2),)]


# What the first version wrote: a turn, and a wake of a machine that is gone.
FIRST = (
    "INSERT INTO muntin_sessions VALUES (1, 's', 1, 2, 0, 0, 0)",
    "INSERT INTO muntin_turns VALUES (1, 1, 'completed', 1, NULL, NULL)",
    "INSERT INTO muntin_turns VALUES (1, 2, 'open', 2, 'gone:1:2:wake-3', 0)",
    """INSERT INTO muntin_items VALUES (1, 1, 1, 'message', NULL, TRUE, TRUE, FALSE, 0, 0, '{}',
        '{"message":{"role":"user","content":"kept"}}')""",
)


def test_a_store_of_the_first_version_is_brought_to_ours(store_url, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(schema, "MIGRATIONS", OURS[:1])
        open_and_close(store_url)
    with past(store_url) as connection:
        for statement in FIRST:
            connection.execute(statement)
        connection.commit()
    assert rows(store_url, "SELECT value FROM muntin_meta") == [("1",)]
    with closing(open_store(store_url)) as store:
        store.put("s", SideWrites(notes={("frontier", "window"): "new"}))
        assert store.content("s", "frontier", "window") == "new"
        assert [m.text for m in Session("s", store=store).messages()] == ["kept"]
        assert [(turn.status, turn.resumable) for turn in store.turns("s")] == [
            ("open", True),
            ("completed", False),
        ]


def test_a_store_is_brought_forward_once_and_from_where_it_is(store_url, monkeypatch):
    open_and_close(store_url)
    migrations(monkeypatch, add_table)
    open_and_close(store_url)
    open_and_close(store_url)
    assert rows(store_url, "SELECT x FROM muntin_extra") == [(7,)]
    migrations(monkeypatch, breaks, add_column)  # the second one was done, and is not done again
    open_and_close(store_url)
    assert rows(store_url, "SELECT x, y FROM muntin_extra") == [(7, None)]


def test_a_new_store_gets_the_newest_tables_at_once(store_url, monkeypatch):
    migrations(monkeypatch, add_table, add_column)
    open_and_close(store_url)
    assert rows(store_url, "SELECT x, y FROM muntin_extra") == [(7, None)]
    assert rows(store_url, "SELECT value FROM muntin_meta") == [(version(2),)]


def test_a_newer_store_is_refused_with_its_name_and_left_as_it_is(store_url, monkeypatch):
    with monkeypatch.context() as newer:
        migrations(newer, add_table, add_column)
        with closing(open_store(store_url)) as store:
            name = store.name
            Session("s", store=store).append(user("kept"))
    with pytest.raises(StoreError) as refused:
        open_store(store_url)
    assert str(refused.value) == (
        f"{name}: written by a newer Muntin (version {version(2)} of its tables, this one knows "
        f"{version(0)}); "
        "upgrade with: pip install -U muntin"
    )
    migrations(monkeypatch, add_table, add_column)
    with closing(open_store(store_url)) as store:
        assert [m.text for m in Session("s", store=store).messages()] == ["kept"]


WRITES = {
    "append": lambda store: Session("s", store=store).append(user("refused")),
    "put": lambda store: store.put("s", SideWrites(notes={("frontier", "x"): "refused"})),
    "hide": lambda store: store.hide("s", 1),
    "rename": lambda store: store.rename({"s": "refused"}),
    "delete": lambda store: store.delete("s"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_process_whose_tables_a_newer_version_changes_writes_no_more(
    store_url, monkeypatch, write
):
    with closing(open_store(store_url)) as store:
        Session("s", store=store).append(user("kept"))
        with monkeypatch.context() as newer:
            migrations(newer, add_table, add_column)
            with closing(open_store(store_url)) as new_store:
                Session("s", store=new_store).append(user("new"))
        for _ in range(2):
            with pytest.raises(StoreError, match="restart it with that version") as refused:
                WRITES[write](store)
            assert str(refused.value) == (
                f"{store.name}: another version of Muntin has changed the tables under this "
                f"process (version '{version(2)}', this one knows {version(0)}); restart it with "
                "that version. Nothing of this was written"
            )
            assert not refused.value.passing
        assert [m.text for m in Session("s", store=store).messages()] == ["kept", "new"]


def test_a_writer_in_flight_is_waited_for_before_the_tables_are_changed(store_url, monkeypatch):
    """The migration comes between a look at the version and the write."""
    inside, done = Event(), []

    def slow(tx):
        rows = tx.all("SELECT count(*) FROM muntin_sessions")
        inside.set()
        time.sleep(0.5)
        done.append("write")
        return rows

    with closing(open_store(store_url)) as store, monkeypatch.context() as newer:
        writer = Thread(target=store.database.transact, args=(slow,))
        writer.start()
        assert inside.wait(30)
        migrations(newer, add_table)
        open_store(store_url).close()
        done.append("migration")
        writer.join(30)
    assert done == ["write", "migration"]


def test_a_migration_that_fails_changes_nothing(store_url, monkeypatch):
    open_and_close(store_url)
    with monkeypatch.context() as broken:
        migrations(broken, add_table, breaks)
        with pytest.raises(StoreError, match="nowhere"):
            open_store(store_url)
    assert rows(store_url, "SELECT value FROM muntin_meta") == [(version(0),)]
    migrations(monkeypatch, add_table)
    open_and_close(store_url)
    assert rows(store_url, "SELECT x FROM muntin_extra") == [(7,)]


def test_threads_that_open_a_new_store_at_once_all_get_it(store_url):
    opened = []

    def work():
        store = open_store(store_url)
        opened.append(store)
        Session("s", store=store).append(user("x"))

    at_once([work] * 6)
    assert [len(store.read("s")) for store in opened] == [6] * 6
    for store in opened:
        store.close()
    assert rows(store_url, "SELECT value FROM muntin_meta") == [(str(len(schema.MIGRATIONS)),)]


OPEN = """
import sys
import time
from muntin.timeline.store import open_store
from muntin.timeline.items import Draft
print("ready", flush=True)
sys.stdin.read()
open_store(sys.argv[1]).append("s", [Draft("wake", payload=1)])
"""


def test_processes_that_open_a_new_store_at_once_all_get_it(store_url):
    program = [sys.executable, "-c", OPEN, store_url]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(program, stdin=pipe, stdout=pipe) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:  # all stand before the door, and it is opened
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    with closing(open_store(store_url)) as store:
        assert [item.position for item in store.read("s")] == [1, 2, 3]


def test_a_store_brought_forward_by_many_at_once_is_brought_forward_once(store_url, monkeypatch):
    open_and_close(store_url)
    migrations(monkeypatch, add_table)
    at_once([lambda: open_and_close(store_url)] * 6)
    assert rows(store_url, "SELECT x FROM muntin_extra") == [(7,)]


def test_sessions_are_compared_by_code_point(store_url):
    with closing(open_store(store_url)) as store:
        for id in ("b", "B", "é", "z", "_"):
            Session(id, store=store).append(user("x"))
        assert [info.id for info in store.sessions()] == ["B", "_", "b", "z", "é"]
