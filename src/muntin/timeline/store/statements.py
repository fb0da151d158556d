"""The statements of the SQL stores, made with SQLAlchemy Core and compiled once per dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import (
    Select,
    Table,
    Update,
    and_,
    bindparam,
    delete,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.expression import ClauseElement

from muntin.timeline.store import View
from muntin.timeline.store.schema import (
    contents,
    entries,
    items,
    meta,
    reports,
    sessions,
    states,
    turns,
)

_ITEM = (
    items.c.position,
    items.c.turn,
    items.c.kind,
    items.c.run,
    items.c.client,
    items.c.history,
    items.c.transient,
    items.c.time,
    items.c.tokens,
    items.c.data,
)
_INFO = (sessions.c.name, sessions.c.head, sessions.c.turn, sessions.c.created, sessions.c.updated)
_TURN = (turns.c.number, turns.c.status, turns.c.first, turns.c.owner, turns.c.until)
_UNSETTLED = turns.c.status.in_([literal_column("'open'"), literal_column("'pending'")])
# Both know "insert or update"; the types of the two are not related.
_UPSERT: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Statement:
    """One statement as the driver wants it, and the order of its values."""

    __slots__ = ("_fixed", "_names", "text")

    def __init__(self, clause: ClauseElement, dialect: Dialect) -> None:
        compiled = clause.compile(dialect=dialect)
        self.text = str(compiled)
        # By position for drivers that take values so, by name for the others.
        self._names: list[str] | None = getattr(compiled, "positiontup", None)
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}

    def bind(self, values: Mapping[str, Any]) -> Any:
        """Return the values as the driver wants them."""
        known = {**self._fixed, **values} if self._fixed else values
        return known if self._names is None else [known[name] for name in self._names]


def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def _of_session(name: str = "session") -> Any:
    """Return the number of the session with this id: ids are values, never SQL."""
    return select(sessions.c.id).where(sessions.c.name == bindparam(name)).scalar_subquery()


class Statements:
    """Every statement, for one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.read: Callable[[View, frozenset[str]], Statement] = lru_cache(maxsize=None)(self._read)
        self.insert_items = self._insert(items)
        self.insert_turns = self._insert(turns)
        self.insert_entry = self._insert(entries)
        self.insert_meta = self._insert(meta)
        self.insert_contents = f"{self._insert(contents)} ON CONFLICT DO NOTHING"
        self._turns: dict[tuple[bool, bool], Statement] = {}

    def _insert(self, table: Table) -> str:
        """Insert whole rows, their values in the order of the columns with every driver."""
        mark = "%s" if self._dialect.name == "postgresql" else "?"
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        marks = ", ".join(mark for _ in table.columns)
        return f"INSERT INTO {table.name} ({names}) VALUES ({marks})"

    def _make(self, clause: ClauseElement) -> Statement:
        return Statement(clause, self._dialect)

    @cached_property
    def version(self) -> Statement:
        """The version of the tables."""
        return self._make(select(meta.c.value).where(meta.c.key == "version"))

    @cached_property
    def forget_version(self) -> Statement:
        """Remove the version, to write another."""
        return self._make(delete(meta).where(meta.c.key == "version"))

    @cached_property
    def extend(self) -> Statement:
        """Make room for n items in a session that may not exist yet, and lock it."""
        insert = _UPSERT[self._dialect.name](sessions).values(
            name=bindparam("name"),
            head=bindparam("n"),
            turn=bindparam("opened"),
            total=bindparam("weight"),
            created=bindparam("created"),
            updated=bindparam("updated"),
        )
        return self._make(
            insert.on_conflict_do_update(
                index_elements=["name"],
                set_={
                    "head": sessions.c.head + insert.excluded.head,
                    "turn": sessions.c.turn + insert.excluded.turn,
                    "total": sessions.c.total + insert.excluded.total,
                    "updated": insert.excluded.updated,
                },
            ).returning(sessions.c.id, sessions.c.head, sessions.c.turn, sessions.c.total)
        )

    @cached_property
    def session_id(self) -> Statement:
        """The number of a session, locked against other writers."""
        found = select(sessions.c.id).where(sessions.c.name == bindparam("session"))
        return self._make(found.with_for_update())

    @cached_property
    def set_turn(self) -> Statement:
        """Record the newest turn."""
        found = update(sessions).where(sessions.c.id == bindparam("sid"))
        return self._make(found.values(turn=bindparam("turn")))

    @cached_property
    def turn_status(self) -> Statement:
        """The status of a turn while its session is locked."""
        return self._make(
            select(turns.c.status).where(
                turns.c.session == bindparam("sid"), turns.c.number == bindparam("turn")
            )
        )

    @cached_property
    def hold(self) -> Statement:
        """Renew the lease of a turn that is the owner's, or nobody's; tell whether it is."""
        found = update(turns).where(
            turns.c.session == bindparam("sid"),
            turns.c.number == bindparam("turn"),
            or_(turns.c.owner.is_(None), turns.c.owner == bindparam("holder")),
        )
        held = found.values(
            status=literal_column("'open'"), owner=bindparam("holder"), until=bindparam("lease")
        )
        return self._make(held.returning(turns.c.number))

    @cached_property
    def turn(self) -> Statement:
        """One turn of a session."""
        return self._make(
            select(*_TURN).where(
                turns.c.session == _of_session(), turns.c.number == bindparam("turn")
            )
        )

    @cached_property
    def unsettled(self) -> Statement:
        """The turns of a session that wait or are worked on, the oldest first."""
        found = select(*_TURN).where(turns.c.session == bindparam("sid"), _UNSETTLED)
        return self._make(found.order_by(turns.c.number))

    @cached_property
    def take(self) -> Statement:
        """Give a turn an owner and a lease."""
        found = update(turns).where(
            turns.c.session == bindparam("sid"), turns.c.number == bindparam("turn")
        )
        return self._make(
            found.values(
                status=literal_column("'open'"), owner=bindparam("holder"), until=bindparam("lease")
            )
        )

    @cached_property
    def renew(self) -> Statement:
        """Renew the lease of a turn that is still its owner's, and tell whether it was."""
        found = update(turns).where(
            turns.c.session == _of_session(),
            turns.c.number == bindparam("turn"),
            turns.c.owner == bindparam("holder"),
        )
        return self._make(found.values(until=bindparam("lease")).returning(turns.c.number))

    @cached_property
    def settle_own(self) -> Statement:
        """Settle a turn that is still its owner's, and tell whether it was."""
        found = update(turns).where(
            turns.c.session == _of_session(),
            turns.c.number == bindparam("turn"),
            turns.c.owner == bindparam("holder"),
        )
        settled = found.values(status=bindparam("state"), owner=null(), until=null())
        return self._make(settled.returning(turns.c.number))

    @cached_property
    def waiting(self) -> Statement:
        """The sessions that have a turn that waits or is worked on."""
        found = select(sessions.c.name).where(
            sessions.c.id.in_(select(turns.c.session).where(_UNSETTLED)),
            sessions.c.name > bindparam("last"),
        )
        return self._make(found.order_by(sessions.c.name).limit(bindparam("newest")))

    @cached_property
    def put_report(self) -> Statement:
        """Keep a report, in place of an earlier one of the same step."""
        values: dict[str, Any] = {name: bindparam(name) for name in _names(reports)}
        insert = _UPSERT[self._dialect.name](reports).values(**values)
        changed = {name: insert.excluded[name] for name in ("time", "report", "plan")}
        return self._make(
            insert.on_conflict_do_update(index_elements=["session", "turn", "step"], set_=changed)
        )

    @cached_property
    def reports(self) -> Statement:
        """The reports of some turns of a session."""
        columns = (reports.c.turn, reports.c.step, reports.c.time, reports.c.report, reports.c.plan)
        found = select(*columns).where(
            reports.c.session == _of_session(),
            reports.c.turn >= bindparam("first"),
            reports.c.turn <= bindparam("last"),
        )
        return self._make(found.order_by(reports.c.turn, reports.c.step))

    @cached_property
    def nth_report(self) -> Statement:
        """Turn and step of the n-th newest report."""
        columns = (reports.c.turn, reports.c.step)
        found = select(*columns).where(reports.c.session == bindparam("sid"))
        newest = found.order_by(reports.c.turn.desc(), reports.c.step.desc())
        return self._make(newest.limit(1).offset(bindparam("n")))

    @cached_property
    def newest_report(self) -> Statement:
        """Turn, step and time of the newest report."""
        columns = (reports.c.turn, reports.c.step, reports.c.time)
        found = select(*columns).where(reports.c.session == bindparam("sid"))
        return self._make(found.order_by(reports.c.turn.desc(), reports.c.step.desc()).limit(1))

    @cached_property
    def drop_reports(self) -> Statement:
        """Forget the reports up to a step of a turn."""
        same = and_(reports.c.turn == bindparam("turn"), reports.c.step <= bindparam("step"))
        return self._make(
            delete(reports).where(
                reports.c.session == bindparam("sid"),
                or_(reports.c.turn < bindparam("turn"), same),
            )
        )

    @cached_property
    def plans(self) -> Statement:
        """The plans of all reports of a session."""
        return self._make(select(reports.c.plan).where(reports.c.session == bindparam("sid")))

    @cached_property
    def old_contents(self) -> Statement:
        """The contents first kept up to a turn."""
        return self._make(
            select(contents.c.hash).where(
                contents.c.session == bindparam("sid"), contents.c.turn <= bindparam("turn")
            )
        )

    @cached_property
    def drop_content(self) -> Statement:
        """Forget one content."""
        return self._make(
            delete(contents).where(
                contents.c.session == bindparam("sid"), contents.c.hash == bindparam("key")
            )
        )

    @cached_property
    def drop_named(self) -> Statement:
        """Forget the contents no report names, of old turns."""
        return self._make(
            delete(contents).where(
                contents.c.session == bindparam("sid"),
                contents.c.turn < bindparam("turn"),
                contents.c.hash.contains(":"),
            )
        )

    @cached_property
    def put_state(self) -> Statement:
        """Set a state of a session."""
        values: dict[str, Any] = {name: bindparam(name) for name in _names(states)}
        insert = _UPSERT[self._dialect.name](states).values(**values)
        changed = {"value": insert.excluded["value"]}
        return self._make(
            insert.on_conflict_do_update(index_elements=["session", "key"], set_=changed)
        )

    @cached_property
    def state(self) -> Statement:
        """One state of a session."""
        return self._make(
            select(states.c.value).where(
                states.c.session == _of_session(), states.c.key == bindparam("name")
            )
        )

    @cached_property
    def content(self) -> Statement:
        """One content by its hash."""
        return self._make(
            select(contents.c.data).where(
                contents.c.session == _of_session(), contents.c.hash == bindparam("key")
            )
        )

    @cached_property
    def end_turn(self) -> Statement:
        """Set the status of a turn while its session is locked."""
        return self._make(self._end_turn())

    @cached_property
    def end_free_turn(self) -> Statement:
        """The same, unless someone works on the turn: it is not for others to end."""
        free = or_(turns.c.owner.is_(None), turns.c.status != literal_column("'open'"))
        return self._make(self._end_turn().where(free))

    def _end_turn(self) -> Update:
        found = update(turns).where(
            turns.c.session == bindparam("sid"), turns.c.number == bindparam("turn")
        )
        return found.values(status=bindparam("state"))

    @cached_property
    def settle(self) -> Statement:
        """Settle a turn, whoever has it, and tell whether it is there."""
        found = update(turns).where(
            turns.c.session == _of_session(), turns.c.number == bindparam("turn")
        )
        settled = found.values(status=bindparam("state"), owner=null(), until=null())
        return self._make(settled.returning(turns.c.number))

    @cached_property
    def recount(self) -> Statement:
        """Replace the token counts of an item."""
        found = update(items).where(
            items.c.session == bindparam("sid"), items.c.position == bindparam("at")
        )
        return self._make(found.values(tokens=bindparam("counted")))

    @cached_property
    def end_entry(self) -> Statement:
        """End the live version of an entry."""
        found = update(entries).where(
            entries.c.session == bindparam("sid"),
            entries.c.entry == bindparam("name"),
            entries.c.ended.is_(None),
        )
        return self._make(found.values(ended=bindparam("at")))

    @cached_property
    def reach(self) -> Statement:
        """The oldest item that the newest items of a weight reach back to."""
        total = select(sessions.c.total).where(sessions.c.name == bindparam("session"))
        return self._make(
            select(*_ITEM)
            .where(
                items.c.session == _of_session(),
                items.c.total > total.scalar_subquery() - bindparam("weight"),
            )
            .order_by(items.c.total, items.c.position)
            .limit(1)
        )

    @cached_property
    def live(self) -> Statement:
        """The items of the live entries."""
        return self._make(self._versions().where(entries.c.ended.is_(None)))

    @cached_property
    def versions(self) -> Statement:
        """The items of all versions of an entry."""
        return self._make(self._versions().where(entries.c.entry == bindparam("name")))

    def _versions(self) -> Select[Any]:
        joined = and_(items.c.session == entries.c.session, items.c.position == entries.c.position)
        return (
            select(*_ITEM)
            .select_from(entries.join(items, joined))
            .where(entries.c.session == _of_session())
            .order_by(entries.c.position)
        )

    @cached_property
    def list_sessions(self) -> Statement:
        """A page of sessions."""
        page = select(*_INFO).where(sessions.c.name > bindparam("last"))
        return self._make(page.order_by(sessions.c.name).limit(bindparam("newest")))

    @cached_property
    def one_session(self) -> Statement:
        """One session."""
        return self._make(select(*_INFO).where(sessions.c.name == bindparam("session")))

    @cached_property
    def deletes(self) -> list[Statement]:
        """All that removes a session, the session itself last."""
        made = [
            self._make(delete(table).where(table.c.session == _of_session()))
            for table in (items, turns, entries, reports, contents, states)
        ]
        return [*made, self._make(delete(sessions).where(sessions.c.name == bindparam("session")))]

    def turns(self, *, state: bool = False, newest: bool = False) -> Statement:
        """The turns of a session, the newest first."""
        if (state, newest) not in self._turns:
            found = select(*_TURN).where(turns.c.session == _of_session())
            if state:
                found = found.where(turns.c.status == bindparam("state"))
            found = found.order_by(turns.c.number.desc())
            if newest:
                found = found.limit(bindparam("newest"))
            self._turns[state, newest] = self._make(found)
        return self._turns[state, newest]

    def _read(self, view: View, given: frozenset[str]) -> Statement:
        """The items that a combination of limits leaves."""
        # With a bound on positions, that on turns must not lure the database to the other index.
        turn = items.c.turn + literal_column("0") if "after" in given else items.c.turn
        limits = {
            "after": items.c.position > bindparam("after"),
            "before": items.c.position < bindparam("before"),
            "first_turn": turn >= bindparam("first_turn"),
            "last_turn": turn <= bindparam("last_turn"),
        }
        found = select(*_ITEM).where(
            items.c.session == _of_session(),
            *(clause for name, clause in limits.items() if name in given),
        )
        if view == "client":
            found = found.where(items.c.client)
        if view == "history":
            found = found.where(items.c.history)
        if "settled" in given:
            owner = and_(turns.c.session == items.c.session, turns.c.number == items.c.turn)
            found = found.select_from(items.join(turns, owner)).where(
                or_(turns.c.status != "failed", items.c.turn >= bindparam("settled"))
            )
        if "newest" in given:
            found = found.order_by(items.c.position.desc()).limit(bindparam("newest"))
        elif "oldest" in given:
            found = found.order_by(items.c.position).limit(bindparam("oldest"))
        return self._make(found)
