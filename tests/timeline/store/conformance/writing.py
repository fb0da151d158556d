"""Facts about appending, entries and sessions, by one writer and by many at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from muntin.core.message import Message, user
from muntin.errors import InvalidInput, StoreError
from muntin.timeline.items import Draft, SideWrites
from muntin.timeline.store import Store
from tests.timeline.store.conformance.facts import (
    ALIKE,
    at_once,
    entry,
    fact,
    ids,
    info_of,
    positions,
    reach,
    refused,
    said,
    same,
    statuses,
)


@fact
def an_unknown_session_has_nothing(store: Store) -> None:
    """A session without items is empty, and reading does not make it."""
    store.delete("s")
    store.settle("s", 1, "failed")
    found = (
        store.read("s"),
        store.turns("s"),
        store.read("s", live=True),
        store.read("s", entry="e"),
    )
    same(found, ([], [], [], []))
    same((reach(store, "s", weight=10), info_of(store, "s"), store.sessions()), (None, None, []))
    same(store.append("s", []), [])
    same((info_of(store, "s"), store.sessions()), (None, []), "after appending nothing")


@fact
def positions_count_up_from_one(store: Store) -> None:
    """Positions are 1, 2, 3 and so on in each session, however many an append brings."""
    got = [positions(store.append("s", said(*"x" * n))) for n in (1, 3, 2)]
    same(got, [[1], [2, 3, 4], [5, 6]])
    same(positions(store.append("other", said("x"))), [1], "of another session")
    same(positions(store.read("s")), [1, 2, 3, 4, 5, 6])


@fact
def positions_never_shift(store: Store) -> None:
    """An item stays at its position, whatever happens to turns, entries and counts."""
    before = store.append("s", [*said("a", "b"), entry("e", "1")])
    store.append("s", [entry("e", "2"), Draft("context_removed", payload={"id": "e"})])
    store.append("s", said("c", turn=1, ends="failed"))
    store.settle("s", 1, "completed")
    store.put("s", SideWrites(counts={2: {"words": 1}}))
    same(store.read("s")[:3], before)
    same(positions(store.read("s")), [1, 2, 3, 4, 5, 6])


@fact
def a_refused_append_leaves_nothing(store: Store) -> None:
    """An append with one item that cannot be kept keeps none of its items."""
    unfit = {
        "a turn that does not exist": Draft("message", user("x"), turn=99),
        "an entry without an id": Draft("context_inserted", payload={"name": "n"}),
        "an entry whose payload is no object": Draft("context_removed", payload="e"),
        "a field that is not JSON": Draft("message", Message("user", "x", extra={"f": {1, 2}})),
        "a number that is not JSON": Draft("message", Message("user", "", extra={"f": 1e999})),
    }
    good = [said("a", opens="turn", ends="completed")[0], entry("new")]
    for what, draft in unfit.items():
        refused(partial(store.append, "s", [*good, draft]), what)
        same((info_of(store, "s"), store.sessions()), (None, []), f"a new session after {what}")
    store.append("s", [*said("first"), entry("old")])
    info = info_of(store, "s")
    for what, draft in unfit.items():
        refused(partial(store.append, "s", [*good, draft]), what)
        same((info_of(store, "s"), statuses(store)), (info, [(1, "completed")]), what)
        same(positions(store.read("s", live=True)), [2], what)
    same(positions(store.append("s", said("next"))), [3])


@fact
def an_entry_lives_until_replaced_or_removed(store: Store) -> None:
    """For each id only the newest version is live, at its own position; all stay readable."""
    store.append("s", [entry("a", "1"), entry("b", "1"), *said("x")])
    store.append("s", [entry("a", "2")])
    same(
        [(i.position, i.payload["content"]) for i in store.read("s", live=True)],
        [(2, "1"), (4, "2")],
    )
    gone = Draft("context_removed", payload={"id": "a"})
    store.append("s", [gone, Draft("context_removed", payload={"id": "unknown"})])
    same(positions(store.read("s", live=True)), [2])
    same([item.payload["content"] for item in store.read("s", entry="a")], ["1", "2"])
    store.append("s", [gone, entry("a", "3"), entry("a", "4")])
    same(positions(store.read("s", live=True)), [2, 9])
    same(positions(store.read("s", entry="a")), [1, 4, 8, 9])
    same(store.read("s", entry="unknown"), [])
    same([item.kind for item in store.read("s", after=7)], ["context_inserted"] * 2)


@fact
def entries_are_kept_apart(store: Store) -> None:
    """Entries are told apart by their whole id and by session, whatever the id holds."""
    store.append("s", [entry(id, id) for id in ALIKE])
    store.append("other", [entry("a", "other"), Draft("context_removed", payload={"id": "ab"})])
    store.append("s", [Draft("context_removed", payload={"id": "%"}), entry("A", "new")])
    left = [id for id in ALIKE if id not in ("%", "A")]
    same([item.payload["content"] for item in store.read("s", live=True)], [*left, "new"])
    for id in ALIKE:
        versions = [item.payload["content"] for item in store.read("s", entry=id)]
        same(versions, ["A", "new"] if id == "A" else [id], id)


@fact
def sessions_are_listed_by_code_point(store: Store) -> None:
    """Pages of sessions follow the code points of their ids and meet without gap or overlap."""
    names = [*ALIKE, "\U00010000", "\ue000", "B", "b", "-", "~", "é"]
    for name in names:
        store.append(name, said("x"))
    found: list[str] = []
    while page := store.sessions(after=found[-1] if found else None, limit=4):
        found += [info.id for info in page]
        same(len(page) <= 4, True, "the size of a page")
    same(found, sorted(names))
    same(ids(store.sessions(after="A!", limit=1)), ["B"])
    same(store.sessions(limit=0), [])
    refused(partial(store.sessions, limit=-1), "a limit of -1")


@fact
def a_session_is_described(store: Store) -> None:
    """The facts about a session: its items, its turns, the times of its first and last item."""
    old = datetime(2000, 1, 1, tzinfo=UTC)
    store.append("s", said("a", "b", opens="turn", time=old) + said("c"))
    first = info_of(store, "s")
    store.append("s", said("d", time=old + timedelta(days=1)))
    second = info_of(store, "s")
    if first is None or second is None:
        raise AssertionError("the session is not known")
    times = [item.time for item in store.read("s")]
    same((first.id, first.items, first.turns), ("s", 3, 2))
    same((first.created, first.updated), (old, times[2]))
    same((second.items, second.turns), (4, 2))
    same((second.created, second.updated), (old, times[3]))
    same(store.sessions(), [second])


@fact
def sessions_get_other_ids_together_or_not_at_all(store: Store) -> None:
    """A session is found under its new id with all it has; an id that is taken is refused."""
    for name in "abc":
        store.append(name, said(name, opens="turn"))
    for names, error in (({"a": "z", "b": "c"}, InvalidInput), ({"a": "z", "n": "y"}, StoreError)):
        try:
            store.rename(names)
        except error:
            continue
        raise AssertionError(f"{names} were not refused")
    same(ids(store.sessions()), ["a", "b", "c"], "nothing happened")
    store.rename({"a": "y", "b": "x"})
    same(ids(store.sessions()), ["c", "x", "y"])
    same([len(store.read(name)) for name in "abcxy"], [0, 0, 1, 1, 1], "items")
    same(
        (statuses(store, "x"), ids(store.sessions(waiting=True))),
        ([(1, "open")], ["c", "x", "y"]),
        "turns",
    )


@fact
def a_deleted_session_is_gone(store: Store) -> None:
    """Nothing of a deleted session is left, and the same id begins anew."""
    for id in ("s", "other"):
        store.append(id, [Draft("message", user("x"), weight=3), entry("e", id)])
    store.delete("s")
    store.delete("s")
    found = (
        store.read("s"),
        store.turns("s"),
        store.read("s", live=True),
        store.read("s", entry="e"),
    )
    same(found, ([], [], [], []))
    same((info_of(store, "s"), reach(store, "s", weight=9)), (None, None))
    same(ids(store.sessions()), ["other"])
    store.append("s", [Draft("message", user("y"), weight=1)])
    same([(item.position, item.turn) for item in store.read("s")], [(1, 1)])
    same(positions(store.read("s", live=True) + store.read("s", entry="e")), [])
    same(positions(store.read("other", live=True)), [2])


@fact
def a_store_has_a_name(store: Store) -> None:
    """Errors can name the store."""
    same(isinstance(store.name, str) and bool(store.name), True)


@fact
def writers_at_once_lose_nothing(store: Store) -> None:
    """Threads on one session: positions stay dense, appends whole, each writer in order."""
    writers, appends = 6, 15

    def writer(number: int) -> Callable[[], None]:
        def write() -> None:
            for index in range(appends):
                drafts = [Draft("wake", payload=[number, index, half]) for half in (0, 1)]
                items = store.append("s", drafts)
                same(items[1].position, items[0].position + 1, "positions of one append")

        return write

    at_once([writer(number) for number in range(writers)])
    items = store.read("s")
    same(positions(items), list(range(1, 2 * writers * appends + 1)))
    for number in range(writers):
        got = [item.payload[1:] for item in items if item.payload[0] == number]
        same(got, [[index, half] for index in range(appends) for half in (0, 1)], "one writer's")
    for first, second in zip(items[::2], items[1::2], strict=True):
        same(second.payload, [*first.payload[:2], 1], "what follows a first half")


@fact
def turns_begun_at_once_are_different(store: Store) -> None:
    """Threads that begin turns, reply and replace an entry get a turn of their own each."""

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(5):
                (item,) = store.append("s", [Draft("wake", payload=number, opens="turn")])
                replies = [entry("e", str(item.turn)), *said("x", ends="completed")]
                store.append("s", [replace(draft, turn=item.turn) for draft in replies])

        return run

    at_once([work(number) for number in range(5)])
    same(statuses(store), [(number, "completed") for number in range(1, 26)])
    firsts = [turn.first for turn in store.turns("s")]
    same(firsts, sorted(set(firsts), reverse=True), "where the turns begin")
    for number in range(1, 26):
        kinds = [i.kind for i in store.read("s", first_turn=number, last_turn=number)]
        same(kinds, ["wake", "context_inserted", "message"], f"turn {number}")
    versions = store.read("s", entry="e")
    same((len(versions), store.read("s", live=True)), (25, versions[-1:]), "one version is live")


@fact
def a_reader_sees_whole_appends(store: Store) -> None:
    """A reader sees all items of an append or none, also while others write."""
    writing = [True]

    def write() -> None:
        try:
            for _ in range(40):
                store.append("s", said("a", "b", "c"))
        finally:
            writing.clear()

    def read() -> None:
        seen = 0
        while writing:
            found = positions(store.read("s"))
            same(found, list(range(1, len(found) + 1)))
            same((len(found) % 3, len(found) >= seen), (0, True), "whole, and never less")
            seen = len(found)

    at_once([write, read, read])
    same(len(store.read("s")), 120)
