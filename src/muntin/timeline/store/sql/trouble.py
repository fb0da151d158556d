"""The meaning of the drivers' errors: whether they pass, and what to do about them."""

from __future__ import annotations

import sqlite3


def no_such_table(error: BaseException | None) -> bool:
    """Say whether a statement named a table that does not exist."""
    return "no such table" in str(error) or getattr(error, "sqlstate", None) == "42P01"


BUSY = "another process held it for too long"
DAMAGED = "the file is damaged, or is not a store; restore a copy"
_READ_ONLY = "it cannot be written; look at its permissions"
_FULL = "make room; nothing of this was written"
_SQLITE_ADVICE = {
    sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_LOCKED: BUSY,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "look at the disk; nothing of this was written",
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "does the folder exist, and may it be written?",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
# By the longest known prefix of the code; no code at all means no connection.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_POSTGRES_ADVICE = {
    "": (
        "is the server running, and are host, database, user and password right? The store works "
        "again when they are"
    ),
    "28": "look at the user and the password",
    "3D": "the database does not exist; create it",
    "42501": "the user lacks rights on the tables; grant them",
    "25006": "the server takes no writes",
    "53100": _FULL,
    "53300": "the server takes no more connections; close some, or raise its limit",
    "55P03": BUSY,
    "57014": "it took longer than a use of the store may take; look at what holds the server up",
}


def is_busy(error: BaseException) -> bool:
    """Say whether another process writes to the file."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF == sqlite3.SQLITE_BUSY


# For a connection that was being made the driver has only a text.
_DROPS = ("administrator command", "closed the connection", "reset by peer", "Broken pipe")
_WRONG = ("authentication failed", "does not exist", "no password", "pg_hba.conf", "host name")


def is_away(error: BaseException) -> bool:
    """Say whether a server could not be reached, or dropped the connection."""
    if isinstance(error, sqlite3.Error):
        return False
    state = getattr(error, "sqlstate", None)
    if state:
        return bool(state.startswith(("08", "57P")))
    return not any(text in str(error) for text in _WRONG)


def is_drop(error: BaseException) -> bool:
    """Say whether the server or the network ended the connection, even while it was being made."""
    state = getattr(error, "sqlstate", None)
    return state == "57P01" or (is_away(error) and any(text in str(error) for text in _DROPS))


def is_silent(error: BaseException) -> bool:
    """Say whether a server was reached and did not answer: waiting for it again takes as long."""
    return type(error).__name__ == "NoAnswer"


# Errors that do not pass: the file is damaged, or Muntin has a bug.
_LASTING_SQLITE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_TOOBIG,
)
_LASTING_POSTGRES = ("22", "23", "42", "XX")


def passes(error: BaseException) -> bool:
    """Say whether the same call may work later."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF not in _LASTING_SQLITE
    if isinstance(error, sqlite3.Error):
        return False
    state = getattr(error, "sqlstate", None) or ""
    return state == "42501" or not state.startswith(_LASTING_POSTGRES)


def advice(error: BaseException) -> str:
    """Return what to do about a failure."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return _SQLITE_ADVICE.get(code & 0xFF, "look at the file")
    if isinstance(error, sqlite3.Error):
        return DAMAGED  # invalid bytes in a text
    state = getattr(error, "sqlstate", None) or ""
    matches = [begin for begin in _POSTGRES_ADVICE if state.startswith(begin)]
    if state and max(matches, key=len) == "" and not state.startswith(("08", "57P")):
        return "this should not happen; please report it"
    return _POSTGRES_ADVICE[max(matches, key=len)]
