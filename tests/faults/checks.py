"""What holds after every fault: nothing lost, nothing doubled, in order, one at a time, settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from muntin.timeline.store import Store


def wait_until(fact: Callable[[], bool], what: str, within: float = 60) -> None:
    """Wait until something is so; what takes too long is an error."""
    end = time.monotonic() + within
    while not fact():
        assert time.monotonic() < end, f"after {within} s: not {what}"
        time.sleep(0.05)


def settled(store: Store, sessions: Iterable[str]) -> bool:
    """Say whether nothing waits or is worked on."""
    states = [turn.status for session in sessions for turn in store.turns(session)]
    return all(state in ("completed", "failed") for state in states)


def check_entity(store: Store, entity: str, sent: list[str], *, answers: bool = True) -> None:
    """Check what an entity was sent against what its timeline has."""
    items = store.read(entity)
    assert [item.position for item in items] == list(range(1, len(items) + 1))
    asked = [item.message.text for item in items if item.role == "user" and item.message]
    assert asked == sent, "lost, doubled or out of order"
    if not answers:
        return
    turns = {turn.number: turn for turn in store.turns(entity)}
    assert {turn.status for turn in turns.values()} == {"completed"}, turns
    assert all(turn.owner is None for turn in turns.values()), turns
    answered = [item.turn for item in items if item.role == "assistant"]
    assert sorted(answered) == sorted(turns), "each turn has one answer"


def check_one_at_a_time(log: Path) -> None:
    """Check that no two handlers of an entity ran at once, by what they wrote down."""
    running: dict[str, str] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        what, entity, _, pid, _ = line.rsplit(" ", 4)
        if what == "begin":
            assert entity not in running, f"{entity} is handled by {running[entity]} and {pid}"
            running[entity] = pid
        else:
            del running[entity]
