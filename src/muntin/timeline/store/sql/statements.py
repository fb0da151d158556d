"""The statements of the SQL stores, written once for both databases.

Values are named `:name`, values of whole rows are `?`, and the clock of leases is `muntin_now()`; a
transaction translates them for its driver.
"""

from __future__ import annotations

from functools import cache

from muntin.timeline.items import View


def _insert(table: str, columns: str) -> str:
    marks = ", ".join("?" for _ in columns.split(","))
    return f"INSERT INTO muntin_{table} ({columns}) VALUES ({marks})"


# Ids are values, never SQL.
_SID = "(SELECT id FROM muntin_sessions WHERE name = :session)"
_ITEM = (
    "i.position, i.turn, i.kind, i.run, i.client, i.history, i.transient, i.time, i.tokens, i.data"
)
_COLUMNS = (
    "number, status, first, owner, until, resumable, attempt, returned, after, reason, progress"
)
_TURN = f"SELECT {_COLUMNS} FROM muntin_turns"
_INFO = "SELECT name, head, turn, created, updated FROM muntin_sessions"
_UNSETTLED = "status IN ('open', 'pending')"

# Sessions.

# Locked against other writers.
SESSION_ID = "SELECT id FROM muntin_sessions WHERE name = :session FOR UPDATE"
# Makes room for n items in a session that may not exist yet, and locks it.
EXTEND = """
INSERT INTO muntin_sessions (name, head, turn, total, created, updated)
VALUES (:name, :n, :opened, :weight, :created, :updated)
ON CONFLICT (name) DO UPDATE SET
    head = muntin_sessions.head + excluded.head, turn = muntin_sessions.turn + excluded.turn,
    total = muntin_sessions.total + excluded.total, updated = excluded.updated
RETURNING id, head, turn, total"""
# Returns no row if the new name is taken.
RENAME = """
UPDATE muntin_sessions SET name = :new WHERE name = :session
    AND NOT EXISTS (SELECT 1 FROM muntin_sessions WHERE name = :new) RETURNING id"""
SET_TURN = "UPDATE muntin_sessions SET turn = :turn WHERE id = :sid"
_PARTS = (
    *("items", "turns", "entries", "reports", "report_contents", "contents", "notes"),
    "frontiers",  # what 0.2 left
)
TABLES = [f"muntin_{part}" for part in (*_PARTS, "sessions")]
DELETES = [
    *(f"DELETE FROM muntin_{part} WHERE session = {_SID}" for part in _PARTS),
    "DELETE FROM muntin_timers WHERE session = :session",
    "DELETE FROM muntin_sessions WHERE name = :session",
]

# Items and entries.

INSERT_ITEMS = _insert(
    "items",
    "session, position, turn, kind, run, client, history, transient, time, total, tokens, data",
)
RECOUNT = "UPDATE muntin_items SET tokens = :counted WHERE session = :sid AND position = :at"
_SEEN = "session = :sid AND position = :at AND (client OR history)"
IS_SEEN = f"SELECT 1 FROM muntin_items WHERE {_SEEN}"
HIDE = f"UPDATE muntin_items SET client = FALSE, history = FALSE WHERE {_SEEN}"
HIDE_ERRORS = f"""
UPDATE muntin_items SET client = FALSE, history = FALSE
WHERE session = {_SID} AND turn = :turn AND kind = 'error'"""
INSERT_ENTRY = _insert("entries", "session, entry, position, ended")
END_ENTRY = """
UPDATE muntin_entries SET ended = :at WHERE session = :sid AND entry = :name AND ended IS NULL"""


@cache
def read(view: View, parameters: frozenset[str]) -> str:
    """Return the statement that reads the items within a combination of limits."""
    # With a bound on positions, `+ 0` keeps the database from the index on turns.
    turn = "i.turn + 0" if "after" in parameters else "i.turn"
    limits = {
        "after": "i.position > :after",
        "before": "i.position < :before",
        "first_turn": f"{turn} >= :first_turn",
        "last_turn": f"{turn} <= :last_turn",
        "settled": "(t.status != 'failed' OR i.turn >= :settled)",
        "places": "i.position IN (SELECT CAST(value AS BIGINT) FROM json_each(:places))",
        "weight": "total > (SELECT total FROM muntin_sessions WHERE name = :session) - :weight",
        "entry": f"e.session = {_SID} AND e.entry = :entry",
        "live": f"e.session = {_SID} AND e.ended IS NULL",
    }
    wanted = [f"i.session = {_SID}"]
    wanted += [clause for name, clause in limits.items() if name in parameters]
    if view != "all":
        wanted.append(view)  # the view is a column
    joined = order = ""
    if "settled" in parameters:
        joined = " JOIN muntin_turns t ON t.session = i.session AND t.number = i.turn"
    if not parameters.isdisjoint(("entry", "live")):
        joined += " JOIN muntin_entries e ON e.session = i.session AND e.position = i.position"
    first = "total, i.position" if "weight" in parameters else "i.position"  # as the index has them
    if "newest" in parameters:
        order = " ORDER BY i.position DESC LIMIT :newest"
    elif "oldest" in parameters:
        order = f" ORDER BY {first} LIMIT :oldest"
    return f"SELECT {_ITEM} FROM muntin_items i{joined} WHERE {' AND '.join(wanted)}{order}"


# Turns and leases.

INSERT_TURNS = """
INSERT INTO muntin_turns (session, number, status, first, owner, attempt, until)
VALUES (?, ?, ?, ?, ?, ?, muntin_now() + ?)"""
TURN_STATUS = "SELECT status FROM muntin_turns WHERE session = :sid AND number = :turn"
# With the time of the leases' clock. Chosen by number; otherwise SQLite reads all turns of the
# session in order.
UNSETTLED = f"""
SELECT {_COLUMNS}, muntin_now() FROM muntin_turns WHERE session = {_SID} AND number IN (
    SELECT number FROM muntin_turns WHERE session = {_SID} AND {_UNSETTLED})
ORDER BY number"""
ANY_UNSETTLED = f"SELECT number FROM muntin_turns WHERE session = :sid AND {_UNSETTLED} LIMIT 1"
NOW = "SELECT muntin_now()"
PENDING = f"""
SELECT count(*) FROM (
    SELECT 1 FROM muntin_items WHERE session = {_SID} AND turn = (
        SELECT max(number) FROM muntin_turns WHERE session = {_SID} AND status = 'pending')
    LIMIT :most) AS found"""
TAKE = """
UPDATE muntin_turns
SET status = 'open', owner = :holder, until = muntin_now() + :lease, resumable = :resumable,
    attempt = attempt + 1, after = muntin_now() + :pause
WHERE session = :sid AND number = :turn RETURNING until, attempt, after"""
# Only the last owner and attempt may write into a turn, and only until it is settled.
_MINE = f"""
number = :turn AND {_UNSETTLED} AND owner = :holder AND attempt = COALESCE(:attempt, attempt)"""
HOLD = f"""
UPDATE muntin_turns SET until = muntin_now() + :lease,
    progress = CASE WHEN :is_new THEN attempt ELSE progress END,
    returned = CASE WHEN :is_new THEN 0 ELSE returned END
WHERE session = :sid AND {_MINE} RETURNING number"""
IS_WRITTEN = """
SELECT 1 FROM muntin_items
WHERE session = :sid AND turn = :turn AND kind = :kind AND data = :written LIMIT 1"""
RENEW = f"""
UPDATE muntin_turns SET until = muntin_now() + :lease
WHERE session = {_SID} AND {_MINE} RETURNING number"""
_SETTLED = "SET status = :state, owner = NULL, until = NULL, after = NULL, reason = :reason"
# Nothing settles a turn twice, and nothing but `reopen` opens a settled turn again.
SETTLE = f"""
UPDATE muntin_turns {_SETTLED}
WHERE session = :sid AND number = :turn AND {_UNSETTLED} RETURNING number"""
SETTLE_OWN = f"UPDATE muntin_turns {_SETTLED} WHERE session = :sid AND {_MINE} RETURNING number"
HAND_BACK = f"""
UPDATE muntin_turns
SET owner = NULL, until = NULL, after = muntin_now() + :pause,
    returned = returned + CASE WHEN attempt > progress THEN 1 ELSE 0 END
WHERE session = {_SID} AND {_MINE} AND status = 'open' AND resumable RETURNING number"""
# Only the newest turn: what came behind an older one would stand in front of what it writes now.
REOPEN = f"""
UPDATE muntin_turns
SET status = 'open', owner = NULL, until = NULL, after = NULL, reason = NULL, resumable = TRUE,
    progress = attempt, returned = 0
WHERE session = {_SID} AND number = :turn AND status = 'failed'
    AND number = (SELECT max(number) FROM muntin_turns WHERE session = {_SID}) RETURNING number"""
_ENDED = "SET status = :state, owner = NULL, until = NULL, after = NULL"
END_OWN = f"UPDATE muntin_turns {_ENDED} WHERE session = :sid AND {_MINE} RETURNING number"
# A turn that its owner works on is not ended by others.
END_FREE_TURN = f"""
UPDATE muntin_turns {_ENDED}
WHERE session = :sid AND number = :turn AND (owner IS NULL OR status != 'open')"""
# A settled turn is not opened again.
OPEN_FREE_TURN = f"{END_FREE_TURN} AND {_UNSETTLED}"


@cache
def turns(parameters: frozenset[str]) -> str:
    """Return the statement that reads the turns of a session, the newest first."""
    most = " LIMIT :newest" if "newest" in parameters else ""
    chosen = f"session = {_SID}"
    if "number" in parameters:
        chosen += " AND number = :number"
    if "status" in parameters:  # by an index; else SQLite reads all turns of the session
        numbers = f"SELECT number FROM muntin_turns WHERE {chosen} AND status = :status"
        chosen += f" AND number IN ({numbers} ORDER BY number DESC{most})"
    return f"{_TURN} WHERE {chosen} ORDER BY number DESC{most}"


@cache
def backlog(*, of_one: bool) -> tuple[str, str]:
    """Return the statements that count unsettled turns and find since when the oldest waits."""
    chosen = f"t.session = {_SID}" if of_one else "TRUE"
    count = f"SELECT status, count(*) FROM muntin_turns t WHERE {chosen} AND t.{_UNSETTLED}"
    oldest = f"""
        SELECT min(i.time) FROM muntin_turns t
        JOIN muntin_items i ON i.session = t.session AND i.position = t.first
        WHERE {chosen} AND t.{_UNSETTLED} AND t.status = 'pending'"""
    return f"{count} GROUP BY status", oldest


@cache
def sessions(parameters: frozenset[str]) -> str:
    """Return the statement that lists sessions by their ids."""
    having = {
        "id": "name = :id",
        # With a column of the table; otherwise SQLite reads the index of all turns.
        "waiting": f"""
            id IN (SELECT session FROM muntin_turns WHERE {_UNSETTLED} AND first > 0)""",
        "gave_up": "id IN (SELECT session FROM muntin_turns WHERE reason = 'gave_up')",
    }
    chosen = [clause for name, clause in having.items() if name in parameters]
    where = " AND ".join(["name > :last", *chosen])
    return f"{_INFO} WHERE {where} ORDER BY name LIMIT :newest"


# Reports, their contents, notes. A held name is a note of the kind `held`.

PUT_REPORT = """
INSERT INTO muntin_reports (session, turn, step, time, report, plan, size)
VALUES (:sid, :turn, :step, :time, :report, :plan, :size)
ON CONFLICT (session, turn, step) DO UPDATE SET
    time = excluded.time, report = excluded.report, plan = excluded.plan, size = excluded.size"""
REPORTS = f"""
SELECT turn, step, time, report, plan FROM muntin_reports
WHERE session = {_SID} AND turn >= :first AND turn <= :last ORDER BY turn, step"""
# The newest report, and the newest but n.
_NTH = """
SELECT turn, step, time FROM muntin_reports WHERE session = :sid
ORDER BY turn DESC, step DESC LIMIT 1 OFFSET"""
TWO_REPORTS = f"""
SELECT 0, turn, step, time FROM ({_NTH} 0) AS newest
UNION ALL SELECT 1, turn, step, time FROM ({_NTH} :n) AS older"""
# Compared as one value, which an index finds; with OR, all names of the session are read.
_UP_TO = "WHERE session = :sid AND (turn, step) <= (:turn, :step)"
DROP_REPORTS = f"DELETE FROM muntin_reports {_UP_TO}"
# All names in one statement: a window has hundreds.
INSERT_NAMES = """
INSERT INTO muntin_report_contents (session, turn, step, hash)
SELECT :sid, :turn, :step, value FROM json_each(:names)"""
# The names of one report, which is put again.
DROP_OWN_NAMES = """
DELETE FROM muntin_report_contents WHERE session = :sid AND turn = :turn AND step = :step"""
DROP_NAMES = f"DELETE FROM muntin_report_contents {_UP_TO}"
INSERT_CONTENTS = f"""
{_insert("contents", "session, kind, hash, turn, data, size")} ON CONFLICT DO NOTHING"""
CONTENT = f"""
SELECT data FROM muntin_contents WHERE session = {_SID} AND kind = :kind AND hash = :name"""
# Contents that only deleted reports named. With EXCEPT, because every other form is quadratic on
# one of the databases.
DROP_CONTENTS = """
DELETE FROM muntin_contents WHERE session = :sid AND kind = 'report' AND hash IN (
    SELECT hash FROM muntin_contents WHERE session = :sid AND kind = 'report' AND turn <= :turn
    EXCEPT SELECT hash FROM muntin_report_contents WHERE session = :sid)"""
# Over the whole store: the bytes of reports with their contents, and the oldest reports. A sum of
# whole numbers is a decimal on PostgreSQL.
REPORTS_SIZE = """
SELECT CAST(COALESCE((SELECT SUM(size) FROM muntin_reports), 0)
    + COALESCE((SELECT SUM(size) FROM muntin_contents WHERE kind = 'report'), 0) AS BIGINT)"""
COUNT_REPORTS = "SELECT COUNT(*) FROM muntin_reports"
OLDEST_REPORTS = """
SELECT session, turn, step FROM muntin_reports WHERE time < :before ORDER BY time LIMIT :newest"""
LOCK_SESSION = "SELECT id FROM muntin_sessions WHERE id = :sid FOR UPDATE"
DROP_SOURCES = """
DELETE FROM muntin_contents WHERE session = :sid AND kind = 'source' AND turn < :turn"""
PUT_NOTE = """
INSERT INTO muntin_notes (session, kind, name, data) VALUES (:sid, :kind, :name, :data)
ON CONFLICT (session, kind, name) DO UPDATE SET data = excluded.data"""
DROP_NOTE = "DELETE FROM muntin_notes WHERE session = :sid AND kind = :kind AND name = :name"
_AT_PAST = """
SELECT s.name, n.data FROM muntin_notes n JOIN muntin_sessions s ON s.id = n.session
WHERE n.kind = 'recorder_past' AND n.name = :past"""
ALL_AT_PAST = f"{_AT_PAST} LIMIT 100"
# Without the requests before a session began.
AT_PAST = f"{_AT_PAST} AND substr(n.data, 1, 1) <> '=' LIMIT 2"
AT_ANSWER = f"{_AT_PAST} AND n.data = :answer LIMIT 2"
NOTE = f"SELECT data FROM muntin_notes WHERE session = {_SID} AND kind = :kind AND name = :name"
