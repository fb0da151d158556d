"""Facts about turns and about reading: which turn an item joins, what a reader sees."""

from __future__ import annotations

from functools import partial
from typing import Any

from muntin.core.message import user
from muntin.timeline.items import Draft, SideWrites, Visibility
from muntin.timeline.store import Store
from tests.timeline.store.conformance.facts import (
    fact,
    positions,
    reach,
    refused,
    said,
    same,
    statuses,
    texts,
)


@fact
def an_item_joins_the_newest_turn(store: Store) -> None:
    """An item that names no turn joins the newest; the very first begins a completed turn."""
    store.append("s", said("a", "b"))
    same(statuses(store), [(1, "completed")], "of what was noted before anyone asked")
    store.append("s", [*said("c"), *said("d", opens="turn"), *said("e")])
    store.append("s", said("f"))
    same([item.turn for item in store.read("s")], [1, 1, 1, 2, 2, 2])
    same(statuses(store), [(1, "completed"), (2, "open")])
    same([turn.first for turn in store.turns("s")], [4, 1], "where the turns begin")


@fact
def what_comes_before_the_first_request_belongs_to_it(store: Store) -> None:
    """In the append that begins a session, items before the first request join its turn."""
    store.append("s", [*said("a", "b"), *said("c", "d", opens="turn")])
    same([item.turn for item in store.read("s")], [1, 1, 1, 2])
    store.append("s", [*said("e"), *said("f", opens="turn")])
    same([item.turn for item in store.read("s")], [1, 1, 1, 2, 2, 3])


@fact
def an_inbox_message_joins_the_pending_turn(store: Store) -> None:
    """Messages gather in a pending turn until it is taken up; the next begins another."""
    store.append("s", said("a", opens="inbox"))
    store.append("s", said("b", "c", opens="inbox"))
    same(statuses(store), [(1, "pending")])
    store.settle("s", 1, "open")
    store.append("s", said("d", opens="inbox"))
    store.append("s", said("e", turn=1))
    store.append("s", said("f", opens="inbox"))
    same([item.turn for item in store.read("s")], [1, 1, 1, 2, 1, 2])
    same(statuses(store), [(1, "open"), (2, "pending")])
    store.append("s", [*said("g", opens="turn"), *said("h", opens="inbox")])
    same(statuses(store)[2:], [(3, "open"), (4, "pending")])


@fact
def an_item_joins_the_turn_it_names(store: Store) -> None:
    """A named turn gets the item wherever it stands; naming one does not change its status."""
    store.append("s", said("a", ends="completed"))
    store.append("s", said("b", opens="turn"))
    store.append("s", [*said("c", turn=1), *said("d", turn=2), *said("e", turn=1)])
    same([item.turn for item in store.read("s")], [1, 2, 1, 2, 1])
    same(statuses(store), [(1, "completed"), (2, "open")])
    for number in (0, 4, 99):
        refused(partial(store.append, "s", said("x", turn=number)), f"turn {number}")
    same(len(store.read("s")), 5)


@fact
def an_item_may_end_its_turn(store: Store) -> None:
    """`ends` settles the turn of its item with the append; the last `ends` of an append counts."""
    store.append("s", [*said("a"), *said("b", ends="failed"), *said("c", ends="completed")])
    store.append("s", [*said("d", opens="turn", ends="failed"), *said("e", opens="turn")])
    same(statuses(store), [(1, "completed"), (2, "failed"), (3, "open")])
    store.append("s", [*said("f", turn=3, ends="completed"), *said("g", turn=1, ends="failed")])
    same(statuses(store), [(1, "failed"), (2, "failed"), (3, "completed")])


@fact
def turns_come_newest_first(store: Store) -> None:
    """Turns are listed from the newest, filtered by status, as many as asked for."""
    states: Any = ("completed", "failed", "completed", "pending", "open", "completed", "open")
    for status in states:
        store.append("s", said("x", opens="turn", ends=status))
    asked: Any = ((None, None), (None, 2), ("completed", None), ("completed", 2), ("pending", 9))
    got = [[t.number for t in store.turns("s", status=s, newest=n)] for s, n in asked]
    same(got, [[7, 6, 5, 4, 3, 2, 1], [7, 6], [6, 3, 1], [6, 3], [4]])
    same(store.turns("s", newest=0), [])


@fact
def a_view_shows_what_may_be_seen(store: Store) -> None:
    """The client's view and the model's leave out items hidden from them; `all` leaves out none."""
    hidden = ((True, True), (False, True), (True, False), (False, False))
    for client, history in hidden:
        store.append("s", said("x", visibility=Visibility(client, history)))
    views: Any = ("all", "client", "history")
    got = [positions(store.read("s", view=view)) for view in views]
    same(got, [[1, 2, 3, 4], [1, 3], [1, 2]])
    same(positions(store.read("s", view="client", newest=1)), [3])
    same(positions(store.read("s", view="history", after=1, oldest=1)), [2])


@fact
def an_item_can_be_hidden(store: Store) -> None:
    """A hidden item is only in the view `all`, unchanged; positions stay the same."""
    store.append("s", said("a", "b", "c"))
    before = texts(store.read("s"))
    same([store.hide("s", 3), store.hide("s", 3)], [True, False])
    same([store.hide("s", 9), store.hide("other", 1)], [False, False])
    views: Any = ("all", "client", "history")
    got = [positions(store.read("s", view=view)) for view in views]
    same(got, [[1, 2, 3], [1, 2], [1, 2]])
    same(texts(store.read("s")), before)
    same(positions(store.read("s", view="history", newest=1)), [2])
    store.append("s", said("d"))
    same(positions(store.read("s", view="history", newest=2)), [2, 4])
    unfit: Any
    for unfit in (-1, 1.5, None):
        refused(partial(store.hide, "s", unfit), f"a position of {unfit}")


@fact
def a_page_is_the_oldest_or_newest_between_two_positions(store: Store) -> None:
    """`after` and `before` exclude themselves; every page is read the oldest first."""
    store.append("s", said(*"abcdefghi"))
    pages: dict[str, dict[str, Any]] = {
        "def": {"after": 3, "before": 7},
        "ghi": {"after": 6},
        "abc": {"before": 4},
        "fg": {"before": 8, "newest": 2},
        "hi": {"newest": 2},
        "ab": {"oldest": 2},
        "de": {"after": 3, "before": 9, "oldest": 2},
        "abcdefghi": {"after": -5, "before": 99, "newest": 99},
    }
    for wanted, asked in pages.items():
        same("".join(texts(store.read("s", **asked))), wanted, str(asked))
    empty: tuple[dict[str, Any], ...] = (
        *({"after": 9}, {"before": 1}, {"before": 0}, {"after": 4, "before": 5}),
        *({"after": 7, "before": 3}, {"newest": 0}, {"oldest": 0}),
    )
    for asked in empty:
        same(store.read("s", **asked), [], str(asked))


@fact
def reading_by_turns_takes_whole_turns(store: Store) -> None:
    """`first_turn` and `last_turn` include themselves, wherever their items stand."""
    store.append("s", said("a", "b", "c", opens="turn"))
    store.append("s", [*said("d", turn=1), *said("e", turn=2), *said("f", turn=3)])
    same(texts(store.read("s", first_turn=2)), ["b", "c", "e", "f"])
    same(texts(store.read("s", last_turn=2)), ["a", "b", "d", "e"])
    same(texts(store.read("s", first_turn=2, last_turn=2)), ["b", "e"])
    same(texts(store.read("s", first_turn=2, after=2, newest=2)), ["e", "f"])
    same(store.read("s", first_turn=4) + store.read("s", last_turn=0), [])


@fact
def settled_leaves_out_what_failed(store: Store) -> None:
    """Turns before `settled` are left out if they failed, and only then."""
    states: Any = ("completed", "failed", "open", "pending", "completed", "failed", "open")
    for name, status in zip("abcdefg", states, strict=True):
        store.append("s", [*said(name, opens="turn"), *said(name.upper(), ends=status)])
    store.append("s", said("1", turn=1) + said("2", turn=2))
    everything, one_less, two_less = "aAbBcCdDeEfFgG12", "aAcCdDeEfFgG1", "aAcCdDeEgG1"
    wanted = {0: everything, 2: everything, 3: one_less, 6: one_less, 7: two_less, 99: two_less}
    for settled, left in wanted.items():
        same("".join(texts(store.read("s", settled=settled))), left, f"settled={settled}")
    same("".join(texts(store.read("s", settled=8, first_turn=2, last_turn=6))), "cCdDeE")
    same("".join(texts(store.read("s", settled=7, newest=3))), "gG1")


@fact
def reach_finds_how_far_back_a_weight_goes(store: Store) -> None:
    """A `weight` leaves the newest items that have it together; the oldest may lie beyond it."""
    weights = (5, 0, 3, 0, 2, 4, 0)
    store.append("s", [Draft("message", user("x"), weight=weight) for weight in weights[:4]])
    store.append("s", [Draft("message", user("x"), weight=weight) for weight in weights[4:]])
    store.append("other", [Draft("message", user("x"), weight=1_000)])
    wanted = {1: 6, 4: 6, 5: 5, 6: 5, 7: 3, 9: 3, 10: 1, 14: 1, 15: 1, 10**6: 1}
    for weight, position in wanted.items():
        item = reach(store, "s", weight=weight)
        same(item and item.position, position, f"a weight of {weight}")
    unfit: Any
    for unfit in (-1, 1.5):
        refused(partial(store.read, "s", weight=unfit), f"a weight of {unfit}")


@fact
def counts_are_added_to_items(store: Store) -> None:
    """New counts are added to an item's counts, by tokenizer; nothing else changes."""
    store.append("s", said("a", "b", "c", tokens={"words": 1, "x": 2}))
    before = store.read("s")
    store.put(
        "s", SideWrites(counts={1: {"letters": 7}, 3: {"words": 9, "o'k": 0}, 99: {"words": 1}})
    )
    after = store.read("s")
    same(after, before, "all but the counts")
    got = [dict(item.tokens) for item in after]
    kept = {"words": 1, "x": 2}
    same(got, [{**kept, "letters": 7}, kept, {"words": 9, "x": 2, "o'k": 0}])
    store.put("s", SideWrites(counts={}))
    store.put("s", SideWrites(counts={1: {"letters": 8}}))
    same(dict(store.read("s")[0].tokens), {**kept, "letters": 8})
