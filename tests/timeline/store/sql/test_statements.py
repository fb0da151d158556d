"""The statements of every wake: none of them reads all turns of a session, or of a store."""

import sqlite3

import pytest

from muntin import Message, Session
from muntin.timeline.store.sql import Store
from muntin.timeline.store.sql import statements as sql

VALUES = {
    "session": "s",
    "sid": 1,
    "turn": 1,
    "last": "",
    "newest": 1,
    "n": 5,
    "status": "open",
    "number": 1,
}


@pytest.mark.parametrize(
    "statement",
    [
        sql.UNSETTLED,
        sql.ANY_UNSETTLED,
        sql.sessions(frozenset({"waiting"})),
        sql.sessions(frozenset({"gave_up"})),
        sql.backlog(of_one=False)[0],
        sql.backlog(of_one=True)[0],
        sql.turns(frozenset({"number"})),
        sql.turns(frozenset({"status"})),
        sql.turns(frozenset({"status", "newest"})),
    ],
)
def test_only_turns_are_read_that_are_asked_for(statement, tmp_path):
    with Store(f"sqlite:///{tmp_path / 's.db'}") as store:
        Session("s", store=store).append(Message("user", "hi"))
    connection = sqlite3.connect(tmp_path / "s.db")
    connection.create_function("muntin_now", 0, lambda: 0)
    try:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", VALUES).fetchall()
    finally:
        connection.close()
    looks = [step[3] for step in plan if "muntin_turns" in step[3]]
    for look in looks:
        narrow = (
            "number=?",
            "status=?",
            "USING INDEX muntin_turns_waiting",
            "muntin_turns_gave_up",
        )
        assert any(each in look for each in narrow), looks
    assert looks
