"""Facts about the owners of turns: owners, leases, the turn that is next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from muntin.core.message import assistant
from muntin.errors import TurnLost
from muntin.timeline.items import Claim, Draft, SideWrites, Turn
from muntin.timeline.store import Store
from tests.timeline.store.conformance.facts import at_once, fact, ids, info_of, said, same, statuses

HOUR = timedelta(hours=1)
OVER = timedelta(seconds=-1)


def claim(owner: str, attempt: int | None = None, lease: timedelta = HOUR) -> Claim:
    """Return a claim with a long lease."""
    return Claim(owner, attempt, lease)


def held(turn: Turn | None) -> tuple[object, ...] | None:
    """Return the fields of a turn that tell its owner."""
    return None if turn is None else (turn.number, turn.status, turn.owner, turn.attempt)


def lost(write: Callable[[], object], what: str) -> None:
    """Fail unless a write is refused to an owner that lost the turn."""
    try:
        write()
    except TurnLost:
        return
    raise AssertionError(f"{what} was written into a turn that was lost")


def lease_of(store: Store, turn: int) -> datetime:
    """Return when the lease of a turn ends."""
    found = store.turns("s", number=turn)[0]
    if found is None or found.until is None:
        raise AssertionError(f"turn {turn} has no lease: {found}")
    return found.until


@fact
def a_turn_has_an_owner_and_a_lease(store: Store) -> None:
    """The turns that an append begins are its owner's; only the owner renews and settles them."""
    me = claim("it's me: 100%", 1)
    store.append("s", said("a", ends="completed"))
    store.append("s", said("b", opens="turn"), claim=claim("it's me: 100%"))
    first, second = reversed(store.turns("s"))
    same((first.owner, first.until, first.attempt), (None, None, 0))
    same(held(second), (2, "open", "it's me: 100%", 1))
    until = lease_of(store, 2)
    same(store.renew("s", 2, claim("you", 1)), False, "renewed by another")
    same(store.renew("s", 2, claim("it's me: 100%", 2)), False, "renewed by another attempt")
    same(lease_of(store, 2), until, "renewed by none")
    same(store.renew("s", 2, claim("it's me: 100%", 1, 2 * HOUR)), True, "renewed by its owner")
    later = lease_of(store, 2) - until
    same(timedelta(minutes=59) < later < timedelta(minutes=61), True, "how much longer")
    same(store.settle("s", 2, "completed", claim=claim("you", 1)), False, "settled by another")
    same(store.settle("s", 2, "failed", claim=me, reason="cancelled"), True, "settled by its owner")
    gone = store.settle("s", 9, "failed"), store.renew("s", 9, me)
    same(gone, (False, False), "a turn that is not there")
    (turn, _) = store.turns("s")
    same((*(held(turn) or ()), turn.until), (2, "failed", None, 1, None))
    same(turn.reason, "cancelled", "why it failed")


@fact
def appending_renews_the_lease(store: Store) -> None:
    """An owner that appends to its turn renews the lease; an owner that lost it is refused."""
    store.append("s", said("a", opens="turn"), claim=claim("me"))
    store.append("s", said("b", opens="turn"), claim=claim("you"))
    until = lease_of(store, 1)
    store.append("s", said("c", turn=1), claim=claim("me", 1, 2 * HOUR))
    store.append("s", said("d", turn=1))
    same(lease_of(store, 1) - until > timedelta(minutes=59), True, "renewed")
    before = store.turns("s")
    for drafts in (said("x", turn=2), said("x", turn=1) + said("x", turn=2, ends="completed")):
        lost(partial(store.append, "s", drafts, claim=claim("me", 1)), "what is another's")
        same((store.turns("s"), len(store.read("s"))), (before, 4), "after it was told")


@fact
def a_settled_turn_is_never_opened_again(store: Store) -> None:
    """A settled turn is never changed again, not by its owner, its last taker or others."""
    store.append("s", said("a", opens="inbox"))
    store.take("s", "me", OVER, resumable=True)
    taken = store.take("s", "you", HOUR, resumable=True)
    same(held(taken), (1, "open", "you", 2), "taken over")
    store.append("s", said("b", turn=1, ends="completed"), claim=claim("you", 2))
    before = store.turns("s")
    for who in (claim("me", 1), claim("you", 2), claim("me"), claim("it")):
        lost(partial(store.append, "s", said("x", turn=1), claim=who), f"what {who.owner} says")
        same(store.settle("s", 1, "failed", claim=who), False, "settled again")
        same(store.renew("s", 1, who), False, "renewed")
        same(store.hand_back("s", 1, who), False, "handed back")
    same(store.settle("s", 1, "failed"), False, "settled by who has no claim")
    same(store.settle("s", 1, "open"), False, "opened")
    same((store.mend("s"), store.take("s", "me", HOUR, number=1)), ([], None))
    store.append("s", said("c", turn=1, ends="pending"))
    same((store.turns("s"), len(store.read("s"))), (before, 3), "all that was changed")


@fact
def each_take_is_an_attempt_and_an_old_one_is_refused(store: Store) -> None:
    """A claim with an older attempt neither appends to a turn nor renews or settles it."""
    store.append("s", said("a", opens="inbox"))
    first = store.turns("s", number=1)[0]
    same(first and (first.attempt, first.tries), (0, 0), "before it was taken")
    for attempt in (1, 2):
        taken = store.take("s", "me", OVER, resumable=True)
        same(held(taken), (1, "open", "me", attempt), "taken")
        same(store.turns("s", number=1)[0], taken, "taken, and read")
    beside = SideWrites(notes={("frontier", "window"): "old"})
    old = claim("me", 1)
    lost(partial(store.append, "s", said("x", turn=1), claim=old, beside=beside), "an old attempt")
    same(store.settle("s", 1, "failed", claim=old, beside=[beside]), False, "settled")
    same((store.renew("s", 1, old), store.hand_back("s", 1, old)), (False, False))
    same(
        (store.content("s", "frontier", "window"), len(store.read("s"))), (None, 1), "what it left"
    )
    new = claim("me", 2)
    store.append("s", said("b", turn=1), claim=new)
    same(store.settle("s", 1, "completed", claim=new, beside=[beside]), True, "settled by the last")
    same(store.content("s", "frontier", "window"), "old", "what was put with it")


@fact
def one_turn_is_taken_at_a_time(store: Store) -> None:
    """Turns that wait are taken in their order, one at a time; waiting sessions are listed."""
    store.append("b", said("x", opens="turn", ends="completed"))
    store.append("a", said("p", opens="inbox"))
    store.append("a", said("q", opens="inbox"))
    store.append("a", said("r", opens="queue"), claim=claim("me"))
    same([item.turn for item in store.read("a")], [1, 1, 2], "what arrives is one turn")
    same(
        (ids(store.sessions(waiting=True)), ids(store.sessions(waiting=True, after="a"))),
        (["a"], []),
        "waiting",
    )
    same(held(store.take("a", "me", HOUR)), (1, "open", "me", 1))
    same(store.take("a", "you", HOUR), None, "while one is worked on")
    same(store.take("a", "me", HOUR, number=2), None, "the next")
    store.settle("a", 1, "completed", claim=claim("me", 1))
    same(store.take("a", "you", HOUR), None, "a turn that waits for its own")
    same(held(store.take("a", "me", HOUR, number=2)), (2, "open", "me", 1))
    store.settle("a", 2, "completed", claim=claim("me", 1))
    same(
        (ids(store.sessions(waiting=True)), store.take("b", "me", HOUR)),
        ([], None),
        "nothing waits",
    )


@fact
def many_who_take_a_turn_at_once_get_it_once(store: Store) -> None:
    """Of several owners that take a turn at once, one gets it, and its attempt rises by one."""
    store.append("s", said("a", opens="inbox"))
    taken: list[Turn] = []

    def take(owner: str) -> None:
        turn = store.take("s", owner, HOUR, resumable=True)
        if turn is not None:
            taken.append(turn)

    at_once([partial(take, f"owner {number}") for number in range(8)])
    same([(turn.number, turn.attempt) for turn in taken], [(1, 1)])
    same([store.turns("s", number=1)[0]], taken)


@fact
def a_resumable_turn_is_taken_up_again(store: Store) -> None:
    """A turn whose owner is gone is taken again if it was resumable, and is failed if not."""
    for id, resumable in (("a", True), ("b", False)):
        store.append(id, said("first", opens="inbox"))
        taken = store.take(id, "you", OVER, resumable=resumable)
        same(taken and (taken.number, taken.resumable), (1, resumable), id)
        store.append(id, said("reply", turn=1), claim=claim("you", 1, OVER))
        store.append(id, said("second", opens="inbox"))
        turn = store.turns(id, number=1)[0]
        same(turn, store.turns(id)[-1], "read alone, and among all")
        same(turn and turn.resumable, resumable, "while it is worked on")
    taken = store.take("a", "me", HOUR)
    same(taken and (taken.number, taken.owner, taken.resumable), (1, "me", False), "taken again")
    same(store.turns("a", number=1)[0], taken, "taken again, read")
    taken = store.take("b", "me", HOUR, resumable=True)
    same(taken and (taken.number, taken.resumable), (2, True), "the next")
    same(statuses(store, "b"), [(1, "failed"), (2, "open")])
    failed = store.turns("b", number=1)[0]
    same(failed and failed.reason, "abandoned", "why it failed")


@fact
def what_is_abandoned_is_mended_and_nothing_else(store: Store) -> None:
    """Mending fails open turns whose owner is gone, unless they are resumable, and nothing more."""
    store.append("s", said("a", opens="turn"), claim=claim("me", lease=OVER))
    store.append("s", said("b", opens="turn", ends="completed"), claim=claim("me", lease=OVER))
    store.append("s", said("c", opens="turn"), claim=claim("me"))
    store.append("s", said("d", opens="queue"), claim=claim("me", lease=OVER))
    store.append("s", said("e", opens="turn"))
    store.append("t", said("f", opens="inbox"))
    store.take("t", "me", OVER, resumable=True)
    same((store.mend("s"), store.mend("t"), store.mend("s")), ([1], [], []))
    stand = [(1, "failed"), (2, "completed"), (3, "open"), (4, "pending"), (5, "open")]
    same((statuses(store), statuses(store, "t")), (stand, [(1, "open")]))


@fact
def a_wake_passes_no_turn_that_waited_longer(store: Store) -> None:
    """By its number a wake's turn is taken when the turns before it are over, and not before."""
    store.append("s", said("a", opens="inbox"))
    store.take("s", "me", OVER, resumable=True)
    store.append("s", said("b", opens="inbox"))
    same(store.take("s", "you", HOUR, number=2, resumable=True), None, "behind one left open")
    same(held(store.take("s", "you", HOUR, number=1, resumable=True)), (1, "open", "you", 2))
    store.settle("s", 1, "completed", claim=claim("you", 2))
    same(held(store.take("s", "you", HOUR, number=2, resumable=True)), (2, "open", "you", 1))


@fact
def a_turn_handed_back_is_taken_again_and_was_no_try(store: Store) -> None:
    """A turn that is handed back may be taken by others, after some time; only tries count."""
    store.append("s", said("a", opens="inbox"))
    for number in (1, 2, 3):
        taken = store.take("s", "me", HOUR, resumable=True, max_attempts=1)
        same(taken and (taken.attempt, taken.tries), (number, 1), "taken")
        same(store.hand_back("s", 1, claim("you", number)), False, "by another")
        same(store.hand_back("s", 1, claim("me", number)), True, "by its owner")
        turn = store.turns("s", number=1)[0]
        same((*(held(turn) or ()), turn and turn.until), (1, "open", None, number, None))
        lost(partial(store.append, "s", said("x", turn=1), claim=claim("me", number)), "afterwards")
    store.append("s", said("b", opens="inbox"))
    same([item.turn for item in store.read("s")], [1, 2], "what arrives meanwhile")
    store.take("s", "me", HOUR, resumable=True)
    same(store.hand_back("s", 1, claim("me", 4), after=HOUR), True, "for later")
    same(store.take("s", "you", HOUR, resumable=True), None, "before it is time")


@fact
def a_turn_that_was_taken_too_often_is_given_up(store: Store) -> None:
    """A turn taken `max_attempts` times and never settled is failed, says so, and is listed."""
    store.append("s", said("a", opens="inbox"))
    store.append("t", said("a", opens="inbox"))
    for _ in range(2):
        store.take("s", "me", OVER, resumable=True, max_attempts=2)
    store.append("s", said("b", opens="inbox"))
    turn = store.turns("s", number=1)[0]
    if turn is not None and turn.after is not None and turn.until is not None:
        same(turn.after > turn.until, True, "there is a pause before the next attempt")
    taken = store.take("s", "me", HOUR, resumable=True, max_attempts=2)
    same(held(taken), (2, "open", "me", 1), "the next turn")
    same(statuses(store), [(1, "failed"), (2, "open")])
    turn = store.turns("s", number=1)[0]
    same(turn and (turn.reason, turn.owner), ("gave_up", None), "why it failed")
    (error,) = [item for item in store.read("s") if item.kind == "error"]
    same((error.turn, str(error.payload).startswith("gave_up: ")), (1, True), "what it says")
    listed = store.sessions(gave_up=True), store.sessions(gave_up=True, after="s")
    same(tuple(map(ids, listed)), (["s"], []), "the list")


@fact
def an_attempt_counts_only_without_progress(store: Store) -> None:
    """A turn that got something new since it was taken has no try; the same again is not new."""
    store.append("s", said("a", opens="inbox"))
    payload = {"id": "e", "name": "E", "content": "x"}
    entry, begins = (Draft(kind, payload=payload, turn=1) for kind in ("context_inserted", "run"))
    answer = Draft("message", assistant("reply"), turn=1, run=4)
    for attempt, (drafts, tries) in enumerate((([entry], 0), ([entry, begins], 1), ([answer], 0))):
        taken = store.take("s", "me", OVER, resumable=True, max_attempts=9)
        same(taken and taken.attempt, attempt + 1, "taken")
        store.append("s", drafts, claim=claim("me", attempt + 1, OVER))
        same(store.turns("s", number=1)[0].tries, tries, f"after attempt {attempt + 1}")
    same(store.turns("s", number=1)[0].progress, 3, "the last that got further")


@fact
def a_turn_with_tries_may_be_left_where_it_is(store: Store) -> None:
    """A turn with more than `most_tries` is not taken, and those behind it wait."""
    store.append("s", said("a", opens="inbox"))
    store.take("s", "me", OVER, resumable=True, most_tries=0)
    store.append("s", said("b", opens="inbox"))
    same(store.take("s", "me", HOUR, resumable=True, most_tries=0), None, "after a try")
    same(held(store.take("s", "me", HOUR, resumable=True, most_tries=1)), (1, "open", "me", 2))


@fact
def something_is_held_by_one_owner_at_a_time(store: Store) -> None:
    """A held name is free for others only when it is let go, or its holder is gone."""
    same(store.hold("s", "x", "me", HOUR), False, "of a session that is not there")
    store.hold("s", "x", "me", timedelta(0))
    same(info_of(store, "s"), None, "a session that is not there")
    store.append("s", said("a"))
    store.append("t", said("a"))
    same(store.hold("s", "x", "me", HOUR), True, "what is free")
    same(store.hold("s", "x", "me", HOUR), True, "held longer")
    same(store.hold("s", "x", "you", HOUR), False, "what another holds")
    same((store.hold("s", "y", "you", HOUR), store.hold("t", "x", "you", HOUR)), (True, True))
    store.hold("s", "x", "you", timedelta(0))
    same(store.hold("s", "x", "you", HOUR), False, "let go by another")
    store.hold("s", "x", "me", timedelta(0))
    same(store.hold("s", "x", "you", OVER), True, "let go")
    same(store.hold("s", "x", "me", HOUR), True, "after its holder was gone")
    same(store.content("s", "frontier", "x"), None, "the frontier of that name")


@fact
def only_its_owner_ends_a_turn_in_flight(store: Store) -> None:
    """`ends` in an append without a claim leaves alone an open turn that has an owner."""
    store.append("s", said("a", opens="turn"), claim=claim("me"))
    store.append("s", said("b", ends="completed"))
    same((statuses(store), len(store.read("s"))), ([(1, "open")], 2), "by another")
    store.append("s", said("c", turn=1, ends="failed"), claim=claim("me", 1))
    same(statuses(store), [(1, "failed")], "by its owner")
    store.append("s", said("d", ends="completed"))
    same(statuses(store), [(1, "completed")], "without an owner")


@fact
def a_turn_that_need_not_wait_is_its_owners_at_once(store: Store) -> None:
    """`opens="queue"` begins a turn that is taken already, unless one before it is unsettled."""
    store.append("s", said("a", opens="queue"), claim=claim("me"))
    first = store.turns("s", number=1)[0]
    same(held(first), (1, "open", "me", 1))
    same(store.take("s", "me", HOUR, number=1), first, "taken by its owner")
    store.append("s", said("b", opens="queue"), claim=claim("you"))
    same(held(store.turns("s", number=2)[0]), (2, "pending", "you", 0), "behind another")
    same(store.take("s", "you", HOUR, number=2), None, "before it is its turn")
    store.append("s", said("c", turn=1, ends="failed"), claim=claim("me", 1))
    store.append("s", said("d", opens="queue"), claim=claim("it"))
    same(statuses(store), [(1, "failed"), (2, "pending"), (3, "pending")], "the first comes first")
    same(held(store.take("s", "you", HOUR, number=2)), (2, "open", "you", 1))
    store.append("t", said("a", opens="queue"))
    same(statuses(store, "t"), [(1, "pending")], "without an owner")


@fact
def an_append_may_end_its_turn(store: Store) -> None:
    """`ends` settles and releases a turn with the items of the append; it is never taken again."""
    store.append("s", said("a", opens="inbox"))
    store.take("s", "me", HOUR, resumable=True)
    store.append("s", said("b", turn=1, ends="completed"), claim=claim("me", 1))
    turn = store.turns("s", number=1)[0]
    same(turn and (turn.status, turn.owner, turn.until), ("completed", None, None))
    same(
        (store.take("s", "you", HOUR), ids(store.sessions(waiting=True))), (None, []), "taken again"
    )
    same(store.settle("s", 1, "failed", claim=claim("me", 1)), False, "settled again")
    store.append("s", said("c", opens="turn", ends="completed"), claim=claim("me"))
    turn = store.turns("s", number=2)[0]
    same(turn and (turn.status, turn.owner), ("completed", None), "begun and ended at once")
