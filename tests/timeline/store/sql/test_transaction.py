"""Transactions of PostgreSQL: statements are answered together, and fail as if they were not."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from muntin.errors import StoreError
from muntin.timeline.store.sql.database import Database
from muntin.timeline.store.sql.transaction import Transaction
from tests.reliability.server import Server

WRONG = "INSERT INTO muntin_meta (key, value) VALUES (:key, NULL)"
RIGHT = "INSERT INTO muntin_meta (key, value) VALUES (:key, :value)"


@pytest.fixture(params=[True, False], ids=["together", "one by one"])
def database(request, server: Server, monkeypatch) -> Any:
    if not request.param:  # as with a libpq older than 14
        monkeypatch.setattr(psycopg.Pipeline, "is_supported", classmethod(lambda _: False))
    made = Database(server.url(server.new_database()))
    yield made
    made.close()


def values(database: Database) -> list[str]:
    rows = database.query("SELECT value FROM muntin_meta WHERE key <> 'version' ORDER BY key")
    return [value for (value,) in rows]


def test_what_is_written_is_there_when_the_transaction_returns(database):
    def work(tx: Transaction) -> int:
        tx.run(RIGHT, key="x1", value="one")
        tx.many("INSERT INTO muntin_meta (key, value) VALUES (?, ?)", [("x2", "two"), ("x3", "3")])
        count: int = tx.scalar("SELECT count(*) FROM muntin_meta WHERE key <> 'version'")
        tx.run("DELETE FROM muntin_meta WHERE key = :key", key="x3")
        return count

    assert database.transact(work) == 3
    assert values(database) == ["one", "two"]


@pytest.mark.parametrize("asks", [False, True])
def test_a_statement_that_fails_undoes_the_transaction_and_the_connection_is_used_again(
    database, asks
):
    def work(tx: Transaction) -> None:
        tx.run(RIGHT, key="x1", value="one")
        tx.run(WRONG, key="x2")
        if asks:
            tx.scalar("SELECT 1")

    with pytest.raises(StoreError, match="null value") as caught:
        database.transact(work)
    assert not caught.value.in_doubt  # the server said what is wrong
    assert values(database) == []
    database.transact(lambda tx: tx.run(RIGHT, key="x1", value="again"))
    assert values(database) == ["again"]


def test_an_error_of_the_work_itself_undoes_the_transaction(database):
    def work(tx: Transaction) -> None:
        tx.run(RIGHT, key="x1", value="one")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        database.transact(work)
    assert values(database) == []
    database.transact(lambda tx: tx.run(RIGHT, key="x1", value="again"))
    assert values(database) == ["again"]


def test_connections_that_died_at_rest_are_replaced_and_nothing_is_in_doubt(database, server):
    for _ in range(2):
        database.transact(lambda tx: tx.run("DELETE FROM muntin_meta WHERE key <> 'version'"))
        name = database.options["dbname"]
        server.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        )
        database.transact(lambda tx: tx.run(RIGHT, key="x1", value="one"))
        assert values(database) == ["one"]
