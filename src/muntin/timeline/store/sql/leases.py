"""Which owner works on which turn, in SQL: taking, renewing, settling, handing back.

Every change of a turn names its owner and attempt in the same statement, so that an owner that lost
the turn changes nothing.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from muntin.timeline.items import Claim, Draft, SideWrites, Status, Turn, check_session_id
from muntin.timeline.owner import Choice, choose, gave_up_text, is_gone, is_lost, pause
from muntin.timeline.store.protocols import Backlog
from muntin.timeline.store.rows import from_microseconds, to_ascii_json, to_turn
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.appending import Appending, claim_values
from muntin.timeline.store.sql.database import Database
from muntin.timeline.store.sql.transaction import Transaction

_MICROSECOND = timedelta(microseconds=1)
# The owner that holds a name, and until when.
_Hold: TypeAlias = tuple[str, datetime]


@lru_cache(maxsize=1_000)
def _checked(session: str) -> str:
    return check_session_id(session)


def check(session: str) -> str:
    """Return a valid session id; an id that was checked lately is not checked again."""
    return _checked(session) if session.__class__ is str else check_session_id(session)


class SqlLeases(ABC):
    """The leases of an SQL store; `Leases` says what its methods promise."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def ask(self, statement: str, session: str, **values: Any) -> list[Any]:
        """Return the rows of one statement about a session."""
        check(session)
        return self.database.query(statement, session=session, **values)

    @abstractmethod
    def put_within(self, tx: Transaction, session: str, sid: int, beside: SideWrites) -> None:
        """Put data beside a session in an open transaction."""

    def settle(
        self,
        session: str,
        turn: int,
        status: Status,
        *,
        claim: Claim | None = None,
        reason: str | None = None,
        beside: Sequence[SideWrites] = (),
    ) -> bool:
        check(session)
        values: dict[str, Any] = {"turn": turn, "state": status, "reason": reason}
        statement = sql.SETTLE
        if claim is not None:
            statement = sql.SETTLE_OWN
            values |= {"holder": claim.owner, "attempt": claim.attempt}

        def write(tx: Transaction) -> bool:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            if sid is None or not tx.all(statement, sid=sid, **values):
                return False
            for each in beside:
                self.put_within(tx, session, sid, each)
            return True

        return self.database.transact(write)

    def take(
        self,
        session: str,
        owner: str,
        lease: timedelta,
        *,
        number: int | None = None,
        resumable: bool = False,
        max_attempts: int | None = None,
        sure: bool = False,
    ) -> Turn | None:
        check(session)

        def chosen(turns: Sequence[Turn], now: datetime) -> Choice:
            return choose(
                turns,
                owner,
                now,
                number=number,
                wakes=resumable,
                max_attempts=max_attempts,
                sure=sure,
            )

        def write(tx: Transaction) -> Turn | None:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            turns, now = _unsettled(tx.all(sql.UNSETTLED, session=session))
            choice = chosen(turns, now)
            for each in choice.abandoned:
                _fail(tx, sid, each, "abandoned")
            for turn in turns:
                if turn.number in choice.gave_up:
                    error = Draft("error", payload=gave_up_text(turn), turn=turn.number)
                    Appending(session, [error]).write(tx)
                    _fail(tx, sid, turn.number, "gave_up")
            if choice.turn is None or choice.taken:
                return choice.turn
            return _take(tx, sid, choice.turn, owner, lease, resumable)

        # Mostly there is no turn to take: a transaction is begun only if one can be taken.
        choice = chosen(*_unsettled(self.ask(sql.UNSETTLED, session)))
        mends = choice.abandoned or choice.gave_up
        if not mends and (choice.turn is None or choice.taken):
            return choice.turn
        return self.database.transact(write)

    def renew(self, session: str, turn: int, claim: Claim) -> bool:
        values = {"session": check(session), "turn": turn, **claim_values(claim)}
        return bool(self.database.transact(lambda tx: tx.all(sql.RENEW, **values)))

    def hand_back(
        self, session: str, turn: int, claim: Claim, *, after: timedelta = timedelta(0)
    ) -> bool:
        values = {"session": check(session), "turn": turn, "pause": after // _MICROSECOND}
        values |= {"holder": claim.owner, "attempt": claim.attempt}
        return bool(self.database.transact(lambda tx: tx.all(sql.HAND_BACK, **values)))

    def mend(self, session: str) -> list[int]:
        def lost(rows: list[Any]) -> list[int]:
            turns, now = _unsettled(rows)
            return [turn.number for turn in turns if is_lost(turn, now)]

        def write(tx: Transaction) -> list[int]:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            found = lost(tx.all(sql.UNSETTLED, session=session))
            for number in found:
                _fail(tx, sid, number, "abandoned")
            return found

        found = lost(self.ask(sql.UNSETTLED, session))
        return self.database.transact(write) if found else []

    def gave_up(self, *, after: str | None = None, limit: int = 100) -> list[tuple[str, int]]:
        page = {"last": after or "", "newest": limit}
        return [(name, turn) for name, turn in self.database.query(sql.GAVE_UP, **page)]

    def hold(self, session: str, name: str, owner: str, lease: timedelta) -> bool:
        def write(tx: Transaction, note: Mapping[str, Any], held: _Hold | None) -> bool:
            now = tx.scalar(sql.NOW)
            time = from_microseconds(now)
            if held is not None and held[0] != owner and not is_gone(*held, time):
                return False
            data = to_ascii_json([owner, now + lease // _MICROSECOND])
            tx.run(sql.PUT_NOTE, **note, data=data)
            return True

        return self._change_held(session, name, write)

    def let_go(self, session: str, name: str, owner: str) -> None:
        def write(tx: Transaction, note: Mapping[str, Any], held: _Hold | None) -> bool:
            if held is not None and held[0] == owner:
                tx.run(sql.DROP_NOTE, **note)
            return True

        self._change_held(session, name, write)

    def _change_held(self, session: str, name: str, write: Callable[..., bool]) -> bool:
        """Call `write` with the session locked, and with the owner that holds the name."""
        check(session)

        def change(tx: Transaction) -> bool:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            if sid is None:
                return False
            found = tx.scalar(sql.NOTE, session=session, kind="held", name=name)
            owner, lease = json.loads(found) if found is not None else (None, 0)
            note = {"sid": sid, "kind": "held", "name": name}
            held = None if owner is None else (owner, from_microseconds(lease))
            return write(tx, note, held)

        return self.database.transact(change)

    def waiting(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        page = {"last": after or "", "newest": limit}
        return [name for (name,) in self.database.query(sql.WAITING, **page)]

    def backlog(self) -> Backlog:
        found = dict(self.database.query(sql.BACKLOG))
        ((oldest,),) = self.database.query(sql.OLDEST)
        since = None if oldest is None else from_microseconds(oldest)
        return Backlog(found.get("pending", 0), found.get("open", 0), since)

    def pending(self, session: str, limit: int) -> int:
        return int(self.ask(sql.PENDING, session, most=limit)[0][0])


def _unsettled(rows: Sequence[Sequence[Any]]) -> tuple[list[Turn], datetime]:
    """Return the turns of rows, and the time that stands in each row."""
    now = from_microseconds(rows[0][-1] if rows else 0)
    return [to_turn(row[:-1]) for row in rows], now


def _take(
    tx: Transaction, sid: int, turn: Turn, owner: str, lease: timedelta, resumable: bool
) -> Turn:
    ((until, attempt, after),) = tx.all(
        sql.TAKE,
        sid=sid,
        turn=turn.number,
        holder=owner,
        lease=lease // _MICROSECOND,
        resumable=resumable,
        pause=pause(turn.tries + 1) // _MICROSECOND,
    )
    return replace(
        turn,
        status="open",
        owner=owner,
        until=from_microseconds(until),
        resumable=resumable,
        attempt=attempt,
        after=from_microseconds(after),
    )


def _fail(tx: Transaction, sid: int, turn: int, reason: str) -> None:
    tx.all(sql.SETTLE, sid=sid, turn=turn, state="failed", reason=reason)
