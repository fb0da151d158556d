"""The statements of every wake: none of them reads all turns of a session, or of a store."""

import sqlite3

import pytest

from muntin import Message, Session
from muntin.timeline.store.sql import SqlStore
from muntin.timeline.store.sql import statements as sql

VALUES = {"session": "s", "sid": 1, "turn": 1, "last": "", "newest": 1, "n": 5, "state": "open"}


@pytest.mark.parametrize(
    "statement",
    [
        sql.UNSETTLED,
        sql.ANY_UNSETTLED,
        sql.WAITING,
        sql.BACKLOG,
        sql.ONE_TURN,
        sql.turns(state=True, newest=False),
        sql.turns(state=True, newest=True),
    ],
)
def test_only_turns_are_read_that_are_asked_for(statement, tmp_path):
    with SqlStore(f"sqlite:///{tmp_path / 's.db'}") as store:
        Session("s", store=store).append(Message("user", "hi"))
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.create_function("muntin_now", 0, lambda: 0)
    try:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", VALUES).fetchall()
    finally:
        connection.close()
    looks = [step[3] for step in plan if "muntin_turns" in step[3]]
    for look in looks:
        narrow = ("number=?", "status=?", "USING INDEX muntin_turns_waiting")
        assert any(each in look for each in narrow), looks
    assert looks
