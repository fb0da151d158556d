"""Owners: which process works on a turn, whether it still lives, and which turn is next.

An owner's name tells machine and process. On the same machine a dead process is known at once. A
process that hangs, or runs on another machine, is taken for dead when its lease was not renewed.
Times are the store's: `now` is by the clock that wrote the lease.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

from muntin.timeline.items import Turn

# Owners of this process that still work on their turn, each with its event loop.
_working: dict[str, asyncio.AbstractEventLoop | None] = {}


@dataclass(frozen=True, slots=True)
class Owner:
    """A process and one of its tasks; `started` tells it from other processes of its number."""

    machine: str
    pid: int
    started: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return the owner that a text names; None if the text has another form."""
        match text.split(":"):
            case [machine, pid, started, name] if pid.isdecimal():
                return cls(machine, int(pid), started, name)
        return None

    def __str__(self) -> str:
        return f"{self.machine}:{self.pid}:{self.started}:{self.name}"


def new_owner() -> str:
    """Return a new owner in this process; `done` ends it."""
    pid = os.getpid()
    owner = str(Owner(_machine(), pid, _own_start(pid), uuid.uuid4().hex))
    try:
        _working[owner] = asyncio.get_running_loop()
    except RuntimeError:
        _working[owner] = None
    return owner


def done(owner: str) -> None:
    """Say that an owner no longer works on its turn, even if the store could not be told."""
    _working.pop(owner, None)


def _works(owner: str) -> bool:
    """Say whether an owner of this process still works: not if its event loop is closed."""
    try:
        loop = _working[owner]
    except KeyError:
        return False
    return loop is None or not loop.is_closed()


def abandoned(turn: Turn, now: datetime) -> bool:
    """Say whether an open turn has lost its owner; a turn without an owner has not lost it."""
    return turn.owner is not None and is_gone(turn.owner, turn.until, now)


def is_lost(turn: Turn, now: datetime) -> bool:
    """Say whether an open turn has lost its owner and will not be resumed."""
    return turn.status == "open" and abandoned(turn, now) and not turn.resumable


def is_gone(name: str, until: datetime | None, now: datetime) -> bool:
    """Say whether an owner is gone: its process has ended, or its lease ended at `until`."""
    owner = Owner.parse(name)
    if owner is not None and os.name == "posix":
        if owner.machine == _machine():
            if owner.pid == os.getpid():
                if not _works(name):
                    return True
            elif _started(owner.pid) != owner.started:
                return True
        elif _rebooted(owner.machine):
            return True
    return until is not None and until < now


@dataclass(frozen=True, slots=True)
class Choice:
    """Which turn may be worked on now, and which turns are to be failed.

    The owners of `abandoned` turns are gone and the turns are not resumed; `gave_up` turns were
    taken too often without getting further. `taken` says that the turn is the owner's already.
    """

    turn: Turn | None
    abandoned: Sequence[int] = ()
    gave_up: Sequence[int] = ()
    taken: bool = False


def choose(
    unsettled: Sequence[Turn],
    owner: str,
    now: datetime,
    *,
    number: int | None = None,
    wakes: bool = True,
    max_attempts: int | None = None,
    most_tries: int | None = None,
    sure: bool = False,
) -> Choice:
    """Choose which turn may be worked on now.

    `unsettled` are the open and pending turns, the oldest first. One turn of a session is worked
    on at a time, in order. With a `number` only that turn is wanted; without one, a resumable turn
    whose owner is gone, or the inbox. A turn that is the owner's already stays the owner's.
    For a wake (`wakes`) no turn comes before turns that waited longer; others pass these by.
    A turn with more than `most_tries` waits, and with `max_attempts` tries it is given up.
    `sure` says that no other process handles the session: then a resumable turn is taken from its
    owner even if the owner seems alive.
    """
    for turn in unsettled:
        if turn.number == number and turn.status == "open" and turn.owner == owner:
            return Choice(turn, taken=True)
    alive = {turn.number for turn in unsettled if turn.owner and not abandoned(turn, now)}
    alive -= {turn.number for turn in unsettled if sure and turn.resumable}
    if any(turn.status == "open" and turn.number in alive for turn in unsettled):
        return Choice(None)
    lost: list[int] = []
    gave_up: list[int] = []
    for turn in unsettled:
        if turn.number in alive:
            # Pending, and its owner waits for it: turns are worked on in order.
            return Choice(turn if turn.number == number else None, lost, gave_up)
        if not _for_anyone(turn):
            if turn.owner is not None:
                lost.append(turn.number)
        elif number not in (None, turn.number):
            if wakes:
                return Choice(None, lost, gave_up)
        elif max_attempts is not None and turn.tries >= max_attempts:
            gave_up.append(turn.number)
        else:
            waits = turn.after is not None and turn.after > now
            waits = waits or (most_tries is not None and turn.tries > most_tries)
            return Choice(None if waits else turn, lost, gave_up)
    return Choice(None, lost, gave_up)


def _for_anyone(turn: Turn) -> bool:
    """Say whether any process may take an unowned turn."""
    if turn.status == "pending":
        return turn.owner is None
    return turn.resumable


def why_waiting(turn: Turn, now: datetime) -> str:
    """Return why an unsettled turn cannot be taken now."""
    if turn.owner is not None and not abandoned(turn, now):
        return f"turn {turn.number} is handled by another process"
    if turn.after is not None and turn.after > now:
        died = f": a process died with it, {turn.tries} times in a row" if turn.tries > 0 else ""
        after = turn.after.isoformat(sep=" ", timespec="seconds")
        return f"turn {turn.number} is tried again after {after}{died}"
    return f"turn {turn.number} waits for others to be over"


def pause(tries: int) -> timedelta:
    """Return how long after the beginning of a failed try the next try may begin.

    After the first try there is no pause: most processes die of something else than their turn.
    """
    return timedelta(seconds=0 if tries < 2 else min(60, 2 ** (tries - 2)))


def gave_up_text(turn: Turn) -> str:
    """Return the error of a turn that was taken too often without getting further."""
    return (
        f"gave_up: the turn was taken {turn.tries} times and got no further; each time its process "
        "died or hung"
    )


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return a name shared by all processes that see each other's numbers, until the next boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.readlink("/proc/self/ns/pid")  # containers number their processes anew
    except OSError:
        return f"{uuid.getnode():x}"
    return f"{uuid.getnode():x}-{boot}-{space.strip('pid:[]')}"


def _rebooted(machine: str) -> bool:
    """Say whether a name is of this machine before its last boot."""
    ours, theirs = _machine().split("-", 1), machine.split("-", 1)
    if len(ours) < 2 or len(theirs) < 2 or ours[0] != theirs[0]:
        return False
    return ours[1].rpartition("-")[0] != theirs[1].rpartition("-")[0]


def _started(pid: int) -> str:
    """Return when a process began, or "gone"; "alive" where the system does not tell."""
    try:
        # After the name, which may hold anything, comes ")" and field 3; the start is field 22.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = stat.rpartition(")")[2].split()
        return "gone" if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return "gone"
    except OSError:
        return "gone"  # it ended meanwhile
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass
    return "alive"


# When this process began does not change.
_own_start = lru_cache(maxsize=1)(_started)
