"""Facts about waiting: the call for a turn that waits, how much waits, and timers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from muntin.errors import MuntinError
from muntin.timeline.items import Claim, Draft
from muntin.timeline.store import Store
from muntin.timeline.timers import Released, Timer
from tests.timeline.store.conformance.facts import (
    ALIKE,
    at_once,
    fact,
    info_of,
    said,
    same,
    statuses,
)

_PAST = datetime(2020, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


@fact
def a_turn_that_begins_to_wait_is_told_of_once(store: Store) -> None:
    """`begun` is called for each inbox turn that an append begins, not for items that join it."""
    told: list[tuple[str, int]] = []

    def begun(tx: Any, session: str, turn: int) -> None:
        told.append((session, turn))

    store.append("s", said("a", "b", opens="inbox"), begun=begun)
    store.append("s", said("c", opens="inbox"), begun=begun)
    same(told, [("s", 1)], "joined")
    store.take("s", "me", timedelta(minutes=1), resumable=True)
    store.append("s", said("d", opens="inbox"), begun=begun)
    store.append("t", said("a", opens="turn", ends="completed"), begun=begun)
    same(told, [("s", 1), ("s", 2)])


@fact
def what_begun_raises_undoes_the_append(store: Store) -> None:
    """An append whose `begun` raises leaves nothing."""

    def begun(tx: Any, session: str, turn: int) -> None:
        raise MuntinError("no room")

    try:
        store.append("s", said("a", opens="inbox"), begun=begun)
    except MuntinError as error:
        same(str(error), "no room")
    else:
        raise AssertionError("what begun raised was swallowed")
    same((info_of(store, "s"), statuses(store)), (None, []))


@fact
def who_is_sure_takes_a_wake_from_a_living_owner(store: Store) -> None:
    """A `sure` engine takes a wake's turn at once, but no turn that cannot be resumed."""
    hour = timedelta(hours=1)
    store.append("s", said("a", opens="inbox"))
    store.take("s", "elsewhere", hour, resumable=True)
    same(store.take("s", "me", hour, resumable=True), None, "not sure")
    taken = store.take("s", "me", hour, resumable=True, sure=True)
    same(taken and (taken.number, taken.attempt, taken.owner), (1, 2, "me"))
    store.append("t", said("a", opens="turn"), claim=Claim("elsewhere", lease=hour))
    store.append("t", said("b", opens="inbox"))
    same(store.take("t", "me", hour, resumable=True, sure=True), None, "a conversation's")


@fact
def what_waits_is_counted(store: Store) -> None:
    """`backlog` counts the turns that wait and run, `pending` the messages of one inbox."""
    same((store.backlog().waiting, store.backlog().running, store.backlog().since), (0, 0, None))
    for session in ("s", "t", "u"):
        items = store.append(session, said("a", "b", opens="inbox"))
        store.append(session, said("c", opens="inbox"))
        if session == "s":
            first = items[0].time
    store.take("t", "me", timedelta(minutes=1), resumable=True)
    found = store.backlog()
    same((found.waiting, found.running, found.since), (2, 1, first))
    same(
        [store.backlog(name, most=10).messages for name in ("s", "t", "none")], [3, 0, 0], "pending"
    )
    same(store.backlog("s", most=2).messages, 2, "a limit")


@fact
def timers_are_kept_replaced_and_removed(store: Store) -> None:
    """A timer is the entity's, by its id; it goes with its entity."""
    late = _PAST.replace(year=2040)
    kept = Timer("e/1", "a", late, {"x": [1, None]}, {"sender": "é"}, "5m")
    same(store.put_timer(kept), kept)
    store.put_timer(Timer("e/1", "b", _PAST, "p"))
    same([each.id for each in store.timers("e/1")], ["b", "a"], "by their time")
    same(store.timers("e/1")[1], kept, "as it was put")
    store.put_timer(Timer("e/1", "b", late, "new"), new=True)
    same([each.payload for each in store.timers("e/1")], ["p", kept.payload], "new stays")
    store.put_timer(Timer("e/1", "b", _PAST, "other"))
    same(store.timers("e/1")[0].payload, "other", "replaced")
    same([store.drop_timer("e/1", "b"), store.drop_timer("e/1", "b")], [True, False], "dropped")
    store.put_timer(Timer("e/2", "a", late, "p"))
    store.delete("e/1")
    same([len(store.timers(entity)) for entity in ("e/1", "e/2")], [0, 1], "deleted")
    for name in ALIKE:
        store.put_timer(Timer("e/3", name, late, name))
    same({(each.id, each.payload) for each in store.timers("e/3")}, {(n, n) for n in ALIKE})


@fact
def a_due_timer_is_released_once_and_in_one_transaction(store: Store) -> None:
    """If many release at once, each due timer is appended once; a repeated timer is moved on."""
    for number in range(40):
        store.put_timer(Timer(f"e/{number % 5}", f"t{number}", _PAST, number))
    store.put_timer(Timer("e/1", "again", _PAST, "again", every="5m"))
    store.put_timer(Timer("e/1", "not yet", _PAST, "late"), after=timedelta(minutes=10))
    store.put_timer(Timer("f/1", "unknown", _PAST, "other"))
    told: list[tuple[str, int]] = []

    def release(timer: Timer, now: datetime) -> Released:
        draft = Draft("wake", payload=timer.payload, opens="inbox")
        return Released(draft, now + timedelta(minutes=5) if timer.every else None)

    def work() -> None:
        def begun(tx: Any, session: str, turn: int) -> None:
            told.append((session, turn))

        while store.release(["e"], release, most=7, begun=begun) == 0:
            pass

    at_once([work, work, work])
    payloads = [item.payload for n in range(5) for item in store.read(f"e/{n}")]
    same(sorted(payloads, key=str), sorted([*range(40), "again"], key=str), "released")
    same(set(told), {(f"e/{number}", 1) for number in range(5)}, "turns that were told of")
    same([each.id for each in store.timers("e/1")], ["again", "not yet"], "left")
    same([each.id for each in store.timers("f/1")], ["unknown"], "of another type")
    soon, never = (store.release([kind], release, most=7) for kind in "eg")
    same((soon is not None and 200 < soon < 400, never), (True, None), "next")
