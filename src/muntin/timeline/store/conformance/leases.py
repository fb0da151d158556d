"""Facts about who works on a turn: owners, leases, the turn that is next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from muntin.errors import TurnLost
from muntin.timeline.store import Store
from muntin.timeline.store.conformance.facts import fact, said, same, statuses


@fact
def a_turn_has_an_owner_and_a_lease(store: Store) -> None:
    """The turns an append begins are its owner's, who alone renews and settles them as such."""
    until = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    store.append("s", said("a", ends="completed"))
    store.append("s", said("b", opens="turn"), owner="it's me: 100%", until=until)
    first, second = reversed(store.turns("s"))
    same((first.owner, first.until), (None, None))
    same((second.owner, second.until), ("it's me: 100%", until))
    later = until.astimezone(timezone(timedelta(hours=-3))) + timedelta(seconds=1)
    same(store.renew("s", 2, "you", later), False, "renewed by another")
    same(store.renew("s", 2, "it's me: 100%", later), True, "renewed by its owner")
    (turn, _) = store.turns("s")
    same((turn.status, turn.owner, turn.until), ("open", "it's me: 100%", later))
    same(store.settle("s", 2, "completed", by="you"), False, "settled by another")
    same(store.settle("s", 2, "failed", by="it's me: 100%"), True, "settled by its owner")
    gone = store.settle("s", 9, "failed"), store.renew("s", 9, "me", until)
    same(gone, (False, False), "a turn that is not there")
    (turn, _) = store.turns("s")
    same((turn.number, turn.status, turn.owner, turn.until), (2, "failed", None, None))


@fact
def appending_renews_the_lease(store: Store) -> None:
    """An owner that appends to its turn renews the lease; one that lost it is told, in vain."""
    until = datetime(2030, 1, 1, tzinfo=UTC)
    later = until + timedelta(seconds=30)
    store.append("s", said("a", opens="turn"), owner="me", until=until)
    store.append("s", said("b", opens="turn"), owner="you", until=until)
    store.append("s", said("c", turn=1), owner="me", until=later)
    store.append("s", said("d", turn=1))
    before = store.turns("s")
    same([(turn.owner, turn.until) for turn in before], [("you", until), ("me", later)])
    for drafts in (said("x", turn=2), said("x", turn=1) + said("x", turn=2, ends="completed")):
        try:
            store.append("s", drafts, owner="me", until=later + timedelta(seconds=1))
        except TurnLost:
            same((store.turns("s"), len(store.read("s"))), (before, 4), "after it was told")
        else:
            raise AssertionError("an owner appended to the turn of another")
    store.settle("s", 1, "failed")  # another took it for dead
    store.append("s", said("e", turn=1), owner="me", until=later)
    turn = store.turns("s")[1]
    same(
        (turn.status, turn.owner, turn.until), ("open", "me", later), "of one that lives after all"
    )


@fact
def one_turn_is_taken_at_a_time(store: Store) -> None:
    """Turns that wait are taken in their order, one at a time; what waits is listed."""
    until = datetime(2090, 1, 1, tzinfo=UTC)
    store.append("b", said("x", opens="turn", ends="completed"))
    store.append("a", said("p", opens="inbox"))
    store.append("a", said("q", opens="inbox"))
    store.append("a", said("r", opens="queue"), owner="me", until=until)
    same([item.turn for item in store.read("a")], [1, 1, 2], "what arrives is one turn")
    same((store.waiting(), store.waiting(after="a")), (["a"], []), "waiting")
    taken = store.take("a", "me", until)
    same(taken and (taken.number, taken.status, taken.owner), (1, "open", "me"))
    same(store.take("a", "you", until), None, "while one is worked on")
    same(store.take("a", "me", until, number=2), None, "the next")
    store.settle("a", 1, "completed", by="me")
    same(store.take("a", "you", until), None, "a turn that waits for its own")
    taken = store.take("a", "me", until, number=2)
    same(taken and taken.number, 2)
    store.settle("a", 2, "completed", by="me")
    same((store.waiting(), store.take("b", "me", until)), ([], None), "nothing waits")


@fact
def a_resumable_turn_is_taken_up_again(store: Store) -> None:
    """A turn whose owner is gone is taken again if it was resumable, and is failed if not."""
    gone, until = datetime(2000, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)
    for id, resumable in (("a", True), ("b", False)):
        store.append(id, said("first", opens="inbox"))
        taken = store.take(id, "you", gone, resumable=resumable)
        same(taken and (taken.number, taken.resumable), (1, resumable), id)
        store.append(id, said("reply", turn=1), owner="you", until=gone)
        store.renew(id, 1, "you", gone)
        store.append(id, said("second", opens="inbox"))
        turn = store.turn(id, 1)
        same(turn, store.turns(id)[-1], "read alone, and among all")
        same(turn and turn.resumable, resumable, "while it is worked on")
    taken = store.take("a", "me", until)
    same(taken and (taken.number, taken.owner, taken.resumable), (1, "me", False), "taken again")
    same(store.turn("a", 1), taken, "taken again, read")
    taken = store.take("b", "me", until, resumable=True)
    same(taken and (taken.number, taken.resumable), (2, True), "the next")
    same(statuses(store, "b"), [(1, "failed"), (2, "open")])


@fact
def something_is_held_by_one_owner_at_a_time(store: Store) -> None:
    """What is held is another's neither until it is let go nor before its holder is gone."""
    gone, until = datetime(2000, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)
    same(store.hold("s", "x", "me", until), False, "of a session that is not there")
    store.let_go("s", "x", "me")
    same(store.session("s"), None, "a session that is not there")
    store.append("s", said("a"))
    store.append("t", said("a"))
    same(store.hold("s", "x", "me", until), True, "what is free")
    same(store.hold("s", "x", "me", until), True, "held longer")
    same(store.hold("s", "x", "you", until), False, "what another holds")
    same((store.hold("s", "y", "you", until), store.hold("t", "x", "you", until)), (True, True))
    store.let_go("s", "x", "you")
    same(store.hold("s", "x", "you", until), False, "let go by another")
    store.let_go("s", "x", "me")
    same(store.hold("s", "x", "you", gone), True, "let go")
    same(store.hold("s", "x", "me", until), True, "after its holder was gone")
    same(store.frontier("s", "x"), None, "the frontier of that name")


@fact
def only_its_owner_ends_a_turn_in_flight(store: Store) -> None:
    """`ends` in an append without an owner leaves alone an open turn that has one."""
    store.append("s", said("a", opens="turn"), owner="me")
    store.append("s", said("b", ends="completed"))
    same((statuses(store), len(store.read("s"))), ([(1, "open")], 2), "by another")
    store.append("s", said("c", turn=1, ends="completed"), owner="me")
    same(statuses(store), [(1, "completed")], "by its owner")
    store.settle("s", 1, "failed")
    store.append("s", said("d", ends="completed"))
    same(statuses(store), [(1, "completed")], "that nobody has")


@fact
def a_turn_that_need_not_wait_is_its_owners_at_once(store: Store) -> None:
    """`opens="queue"` begins a turn that is taken already, unless one before it is unsettled."""
    until = datetime(2090, 1, 1, tzinfo=UTC)
    store.append("s", said("a", opens="queue"), owner="me", until=until)
    first = store.turn("s", 1)
    same(first and (first.status, first.owner, first.until), ("open", "me", until))
    same(store.take("s", "me", until, number=1), first, "taken by its owner")
    store.append("s", said("b", opens="queue"), owner="you", until=until)
    second = store.turn("s", 2)
    same(second and (second.status, second.owner), ("pending", "you"), "behind another")
    same(store.take("s", "you", until, number=2), None, "before it is its turn")
    store.append("s", said("c", turn=1, ends="failed"), owner="me", until=until)
    store.append("s", said("d", opens="queue"), owner="it", until=until)
    same(statuses(store), [(1, "failed"), (2, "pending"), (3, "pending")], "the first comes first")
    taken = store.take("s", "you", until, number=2)
    same(taken and (taken.number, taken.status), (2, "open"))
    store.append("t", said("a", opens="queue"))
    same(statuses(store, "t"), [(1, "pending")], "that nobody has")


@fact
def an_append_may_end_its_turn(store: Store) -> None:
    """`ends` settles and releases a turn with the items it comes with; nobody takes it again."""
    until = datetime(2090, 1, 1, tzinfo=UTC)
    store.append("s", said("a", opens="inbox"))
    store.take("s", "me", until, resumable=True)
    store.append("s", said("b", turn=1, ends="completed"), owner="me", until=until)
    turn = store.turn("s", 1)
    same(turn and (turn.status, turn.owner, turn.until), ("completed", None, None))
    same((store.take("s", "you", until), store.waiting()), (None, []), "taken again")
    same(store.settle("s", 1, "failed", by="me"), False, "settled again by who was its owner")
    store.append("s", said("c", opens="turn", ends="completed"), owner="me", until=until)
    turn = store.turn("s", 2)
    same(turn and (turn.status, turn.owner), ("completed", None), "begun and ended at once")
