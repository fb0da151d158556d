"""Owners: which process works on a turn, whether it still lives, and which turn is next.

A turn is held by a name that tells machine and process. On the same machine a dead process is
known at once; one that hangs, or is on another machine, is taken for dead when its lease was not
renewed. Times are the store's: `now` is by the clock that wrote the lease.
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

# Owners of this process that still work on their turn, each with the event loop that it needs.
_working: dict[str, asyncio.AbstractEventLoop | None] = {}


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, and one of its pieces of work; `started` tells it from others of its number."""

    machine: str
    pid: int
    started: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return the owner that a text names; None if the text is of another make."""
        match text.split(":"):
            case [machine, pid, started, name] if pid.isdecimal():
                return cls(machine, int(pid), started, name)
        return None

    def __str__(self) -> str:
        return f"{self.machine}:{self.pid}:{self.started}:{self.name}"


def new_owner() -> str:
    """Return an owner in this process, unlike any other, until `done` is said of it."""
    pid = os.getpid()
    owner = str(Owner(_machine(), pid, _own_start(pid), uuid.uuid4().hex))
    try:
        _working[owner] = asyncio.get_running_loop()
    except RuntimeError:
        _working[owner] = None
    return owner


def done(owner: str) -> None:
    """Say that an owner no longer works on its turn, whether or not that could be recorded."""
    _working.pop(owner, None)


def _works(owner: str) -> bool:
    """Say whether an owner of this process works on: nothing does whose event loop has ended."""
    try:
        loop = _working[owner]
    except KeyError:
        return False
    return loop is None or not loop.is_closed()


def abandoned(turn: Turn, now: datetime) -> bool:
    """Say whether an open turn has lost its owner; one that never had an owner has not."""
    return turn.owner is not None and is_gone(turn.owner, turn.until, now)


def is_lost(turn: Turn, now: datetime) -> bool:
    """Say whether an open turn has lost its owner, and nobody will resume it."""
    return turn.status == "open" and abandoned(turn, now) and not turn.resumable


def is_gone(name: str, until: datetime | None, now: datetime) -> bool:
    """Say whether an owner is gone that has something until then."""
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
    """Which turn may be worked on now, and which are to be failed.

    `abandoned` are those whose owner is gone and that nobody resumes, `gave_up` those that were
    taken too often. A turn that is the owner's already is `taken`.
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
    sure: bool = False,
) -> Choice:
    """Choose which turn may be worked on now.

    `unsettled` are the open and pending turns, the oldest first. One turn of a session is worked
    on at a time, in their order. With a `number` only that turn is wanted; without one, a
    resumable turn that its owner gave up, or the inbox. One that is the owner's already is.
    For a wake (`wakes`) no turn comes before those that waited longer; others pass them by.
    Who is `sure` that no other handles the session takes a resumable turn from a living owner.
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
            # Pending, and its owner waits for it: the first comes first.
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
            early = turn.after is not None and turn.after > now
            return Choice(None if early else turn, lost, gave_up)
    return Choice(None, lost, gave_up)


def _for_anyone(turn: Turn) -> bool:
    """Say whether a turn that nobody works on waits for whoever comes."""
    if turn.status == "pending":
        return turn.owner is None
    return turn.resumable


def pause(tries: int) -> timedelta:
    """Return how long after its beginning a try that dies is followed by the next.

    The first is followed at once: most processes die of something else than their turn.
    """
    return timedelta(seconds=0 if tries < 2 else min(60, 2 ** (tries - 2)))


def gave_up_text(turn: Turn) -> str:
    """Return the error of a turn that was taken too often."""
    return (
        f"gave_up: the turn was taken {turn.tries} times and never settled; each time its process "
        "died or hung"
    )


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return a name for all processes that can see each other's numbers, until the next boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.readlink("/proc/self/ns/pid")  # containers number their processes anew
    except OSError:
        return f"{uuid.getnode():x}"
    return f"{uuid.getnode():x}-{boot}-{space.strip('pid:[]')}"


def _rebooted(machine: str) -> bool:
    """Say whether a name is this machine's from before its last boot."""
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
        return "gone"  # it ended while we looked
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass
    return "alive"


# When this process began does not change.
_own_start = lru_cache(maxsize=1)(_started)
