"""Owners: which process works on a turn, whether it still lives, and which turn is next.

A turn is held by a name that tells machine and process. On the same machine a dead process is
known at once; another machine's is taken for dead when its lease was not renewed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from muntin.timeline.items import Turn

# Owners of this process that still work on their turn.
_working: set[str] = set()


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
    _working.add(owner)
    return owner


def done(owner: str) -> None:
    """Say that an owner no longer works on its turn, whether or not that could be recorded."""
    _working.discard(owner)


def abandoned(turn: Turn, now: datetime) -> bool:
    """Say whether an open turn has lost its owner; one that never had an owner has not."""
    return turn.owner is not None and is_gone(turn.owner, turn.until, now)


def is_gone(name: str, until: datetime | None, now: datetime) -> bool:
    """Say whether an owner is gone that has something until then."""
    owner = Owner.parse(name)
    if owner is not None and owner.machine == _machine() and os.name == "posix":
        if owner.pid == os.getpid():
            return name not in _working
        return _started(owner.pid) != owner.started
    return until is not None and until < now


def choose(
    unsettled: Sequence[Turn], owner: str, number: int | None, now: datetime
) -> tuple[Turn | None, list[int]]:
    """Return which turn may be worked on now, and which were given up by their owners.

    `unsettled` are the open and pending turns, the oldest first. One turn of a session is worked
    on at a time, in their order. With a `number` only that turn is wanted; without one, a
    resumable turn that its owner gave up, or the inbox. One that is the owner's already is.
    """
    for turn in unsettled:
        if turn.number == number and turn.status == "open" and turn.owner == owner:
            return turn, []
    alive = {turn.number for turn in unsettled if turn.owner and not abandoned(turn, now)}
    if any(turn.status == "open" and turn.number in alive for turn in unsettled):
        return None, []
    failed: list[int] = []
    for turn in unsettled:
        if turn.owner is None:
            if turn.status == "pending" and (number is None or number == turn.number):
                return turn, failed
        elif turn.number not in alive:
            if turn.status == "open" and number is None and turn.resumable:
                return turn, failed
            failed.append(turn.number)
        else:
            # Pending, and its owner waits for it: the first comes first.
            return (turn if turn.number == number else None), failed
    return None, failed


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return a name for all processes that can see each other's numbers, until the next boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.readlink("/proc/self/ns/pid")  # containers number their processes anew
    except OSError:
        return f"{uuid.getnode():x}"
    return f"{uuid.getnode():x}-{boot}-{space.strip('pid:[]')}"


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
