"""Which owner works on which turn, in SQL: taking, renewing, settling, handing back.

Every change of a turn names its owner and attempt in the same statement, so that an owner that lost
the turn changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from muntin.timeline.items import Backlog, Claim, Draft, SideWrites, Status, Turn
from muntin.timeline.owner import Choice, choose, gave_up_text, is_gone, is_lost, pause
from muntin.timeline.store.rows import from_microseconds, to_ascii_json, to_turn
from muntin.timeline.store.sql import statements as sql
from muntin.timeline.store.sql.appending import Appending, claim_values
from muntin.timeline.store.sql.archive import Archive, check
from muntin.timeline.store.sql.transaction import Transaction

_MICROSECOND = timedelta(microseconds=1)


class Leases(Archive):
    """Which owner works on which turn: one owner at a time, as long as its lease is renewed.

    Leases are written and compared by one clock: the server's, or the machine's.
    """

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
        """Settle a turn and release it; with a `claim`, only if the claim is still valid.

        In the same transaction `beside` is put. False, and nothing is written, if there is no such
        turn, it has another owner, or it is settled already.
        """
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
            for writes in beside:
                self._put_within(tx, session, sid, writes)
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
        most_tries: int | None = None,
        sure: bool = False,
    ) -> Turn | None:
        """Take the next turn that may be worked on, and become its owner; its attempt rises.

        One turn of a session is worked on at a time; see `muntin.timeline.owner.choose`. A
        `resumable` turn may be taken again when its owner died: `max_attempts` times without
        getting further, then it is failed, with an error item that says so; and with more than
        `most_tries` such times it is left where it is. A turn that is the owner's already is
        returned unchanged. If nothing can be taken, nothing is written. An engine that is `sure` to
        run alone takes a resumable turn at once, whatever its lease says.
        """
        check(session)

        def chosen(turns: Sequence[Turn], now: datetime) -> Choice:
            return choose(
                turns,
                owner,
                now,
                number=number,
                wakes=resumable,
                max_attempts=max_attempts,
                most_tries=most_tries,
                sure=sure,
            )

        def write(tx: Transaction) -> Turn | None:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            turns, now = _unsettled(tx.all(sql.UNSETTLED, session=session))
            choice = chosen(turns, now)
            for number in choice.abandoned:
                _fail(tx, sid, number, "abandoned")
            for turn in turns:
                if turn.number in choice.gave_up:
                    error = Draft("error", payload=gave_up_text(turn), turn=turn.number)
                    Appending(session, [error]).write(tx)
                    _fail(tx, sid, turn.number, "gave_up")
            if choice.turn is None or choice.taken:
                return choice.turn
            return _take(tx, sid, choice.turn, owner, lease, resumable)

        # Mostly there is no turn to take: a transaction is begun only if one can be taken.
        choice = chosen(*_unsettled(self._ask(sql.UNSETTLED, session)))
        mends = choice.abandoned or choice.gave_up
        if not mends and (choice.turn is None or choice.taken):
            return choice.turn
        return self.database.transact(write)

    def renew(self, session: str, turn: int, claim: Claim) -> bool:
        """Renew the lease of a turn; False if the claim is no longer valid."""
        values = {"session": check(session), "turn": turn, **claim_values(claim)}
        return bool(self.database.transact(lambda tx: tx.all(sql.RENEW, **values)))

    def hand_back(
        self, session: str, turn: int, claim: Claim, *, after: timedelta = timedelta(0)
    ) -> bool:
        """Let other owners take a resumable turn, after some time; this does not count as a try.

        False if the claim is no longer valid.
        """
        values = {"session": check(session), "turn": turn, "pause": after // _MICROSECOND}
        values |= {"holder": claim.owner, "attempt": claim.attempt}
        return bool(self.database.transact(lambda tx: tx.all(sql.HAND_BACK, **values)))

    def reopen(self, session: str, turn: int) -> bool:
        """Let owners take a failed turn again; False unless it is the newest turn of its session.

        What says that it failed is hidden from now on.
        """
        check(session)

        def write(tx: Transaction) -> bool:
            if not tx.all(sql.REOPEN, session=session, turn=turn):
                return False
            tx.run(sql.HIDE_ERRORS, session=session, turn=turn)
            return True

        return self.database.transact(write)

    def mend(self, session: str) -> list[int]:
        """Fail the open turns that lost their owner and are not resumable; return their numbers."""

        def lost(rows: list[Any]) -> list[int]:
            turns, now = _unsettled(rows)
            return [turn.number for turn in turns if is_lost(turn, now)]

        def write(tx: Transaction) -> list[int]:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            lost_turns = lost(tx.all(sql.UNSETTLED, session=session))
            for number in lost_turns:
                _fail(tx, sid, number, "abandoned")
            return lost_turns

        lost_turns = lost(self._ask(sql.UNSETTLED, session))
        return self.database.transact(write) if lost_turns else []

    def hold(self, session: str, name: str, owner: str, lease: timedelta) -> bool:
        """Hold a name of a session for an owner, or hold it longer; False while another holds it.

        With no time it is held no longer. A name held by an owner that is gone
        (`muntin.timeline.owner.is_gone`) is free. No name of a session that does not exist can be
        held.
        """
        check(session)

        def write(tx: Transaction) -> bool:
            sid = tx.scalar(sql.SESSION_ID, session=session)
            if sid is None:
                return False
            held = tx.scalar(sql.NOTE, session=session, kind="held", name=name)
            now = tx.scalar(sql.NOW)
            if held is not None:
                holder, until = json.loads(held)
                if holder != owner and not is_gone(
                    holder, from_microseconds(until), from_microseconds(now)
                ):
                    return False
            note = {"sid": sid, "kind": "held", "name": name}
            if lease:
                until = now + lease // _MICROSECOND
                tx.run(sql.PUT_NOTE, **note, data=to_ascii_json([owner, until]))
            else:
                tx.run(sql.DROP_NOTE, **note)
            return True

        return self.database.transact(write)

    def backlog(self, session: str | None = None, *, most: int = 0) -> Backlog:
        """Return how many turns wait and how many are worked on, in all sessions or in one.

        Of one session also how many messages wait in its inbox; counting ends at `most`.
        """
        values = {} if session is None else {"session": check(session)}
        count, oldest = sql.backlog(of_one=session is not None)
        turns = dict(self.database.query(count, **values))
        ((time,),) = self.database.query(oldest, **values)
        since = None if time is None else from_microseconds(time)
        messages = 0
        if session is not None:
            ((messages,),) = self.database.query(sql.PENDING, session=session, most=most)
        return Backlog(turns.get("pending", 0), turns.get("open", 0), since, messages)


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
