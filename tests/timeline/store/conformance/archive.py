"""Facts about the data beside the timeline: reports, their contents, sources, frontiers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from muntin.errors import MuntinError, Overtaken, StoreError
from muntin.timeline.items import Claim, NoteKey, Pruned, Record, SideWrites
from muntin.timeline.store import Store
from tests.timeline.store.conformance.facts import fact, info_of, said, same, statuses

_NOW = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
_WINDOW: NoteKey = ("frontier", "window")
_OTHER: NoteKey = ("summary", "window")


def _put(store: Store, turn: int, names: Sequence[str], *, keep: int, plan: str = "{}") -> None:
    """Store a report with contents of these names."""
    contents = {name: f"content {name}" for name in names}
    record = Record(turn, 1, _NOW, f'{{"turn":{turn}}}', plan)
    store.put("s", SideWrites(record, contents, names, keep))


@fact
def reports_are_kept_up_to_a_number(store: Store) -> None:
    """The newest reports are kept, one for each step, and go with their session."""
    store.append("s", said("a", ends="completed"))
    for turn in range(1, 6):
        _put(store, turn, [f"h{turn}", "all"], keep=2, plan=f'["h{turn}"]')
    kept = store.reports("s")
    same([(each.turn, each.time, each.plan) for each in kept[-1:]], [(5, _NOW, '["h5"]')])
    same([each.turn for each in kept], [4, 5], "reports")
    same([each.turn for each in store.reports("s", first=5, last=9)], [5], "reports of some turns")
    same(
        (store.content("s", "report", "h5"), store.content("s", "report", "all")),
        ("content h5", "content all"),
    )
    same(
        (store.content("t", "report", "h5"), store.content("s", "report", "h9")),
        (None, None),
        "no such content",
    )
    _put(store, 5, ["other"], keep=2, plan="new")
    same([(each.turn, each.plan) for each in store.reports("s")][1:], [(5, "new")], "put again")
    store.put("s", SideWrites(notes={_WINDOW: "one"}, turn=5, originals={"docs": "text"}))
    store.delete("s")
    store.append("s", said("a"))
    left = (store.reports("s"), store.content("s", "report", "all"), store.content("s", *_WINDOW))
    same((*left, store.content("s", "source", "docs")), ([], None, None, None))


@fact
def contents_are_kept_while_a_report_names_them(store: Store) -> None:
    """Contents that a stored report names stay, whatever its plan says; others are deleted."""
    store.append("s", said("a", ends="completed"))
    _put(store, 1, ["a", "b", "it's: 100%"], keep=2)
    _put(store, 2, ["c"], keep=2)
    store.put("s", SideWrites(Record(3, 1, _NOW, "{}", '["a"]'), {}, ["b"], keep=2))
    _put(store, 4, ["d"], keep=2)
    got = [store.content("s", "report", name) for name in ("a", "b", "it's: 100%", "c", "d")]
    same(got, [None, "content b", None, None, "content d"])
    _put(store, 4, ["e"], keep=2)  # put again, it names something else
    _put(store, 5, ["f"], keep=2)
    _put(store, 6, ["g"], keep=2)
    got = [store.content("s", "report", name) for name in "bdefg"]
    same(got, [None, None, None, "content f", "content g"])


@fact
def sources_are_kept_apart_from_contents_of_reports(store: Store) -> None:
    """An original is found by name and kind until its turn is old, whatever reports name."""
    store.append("s", said("a", ends="completed"))
    store.put("s", SideWrites(turn=1, originals={"x": "source x", "y": "source y"}))
    _put(store, 1, ["x"], keep=1)
    store.put("s", SideWrites(turn=2, originals={"x": "another", "z": "source z"}))
    same(
        (store.content("s", "report", "x"), store.content("s", "report", "y")),
        ("content x", None),
        "of reports",
    )
    _put(store, 2, ["w"], keep=1)
    same(
        (store.content("s", "report", "x"), store.content("s", "report", "w")),
        (None, "content w"),
        "no longer named",
    )
    got = [store.content("s", "source", name) for name in "wxyz"]
    same(got, [None, "source x", "source y", "source z"], "of sources")
    store.put("s", SideWrites(turn=3, forget=2))
    got = [store.content("s", "source", name) for name in "xyz"]
    same(got, [None, None, "source z"], "first kept before a turn")
    same(store.content("s", "report", "w"), "content w", "of a report")


@fact
def the_frontier_of_each_line_is_kept(store: Store) -> None:
    """The frontier of a window is stored by session and line, with a report or alone."""
    store.append("s", said("a", ends="completed"))
    store.append("t", said("a", ends="completed"))
    store.put("s", SideWrites(notes={_WINDOW: "one", ("frontier", "it's"): "100%"}))
    store.put("s", SideWrites(notes={_WINDOW: "two"}))
    store.put("t", SideWrites(notes={_WINDOW: "other"}))
    same(
        (store.content("s", *_WINDOW), store.content("s", "frontier", "it's")),
        ("two", "100%"),
    )
    same(
        (store.content("s", "frontier", "x"), store.content("u", *_WINDOW)),
        (None, None),
        "no such line",
    )
    record = Record(1, 1, _NOW, "{}", "{}")
    store.put("s", SideWrites(record, keep=1, notes={_WINDOW: "three"}))
    same(
        (store.content("s", *_WINDOW), store.content("s", "frontier", "it's")),
        ("three", "100%"),
    )
    same(store.content("t", *_WINDOW), "other", "another session's")


@fact
def what_was_made_from_an_old_note_is_refused(store: Store) -> None:
    """A write that names the notes it was made from is refused if one of them has changed."""
    first = SideWrites(
        notes={_WINDOW: "one"},
        seen={_WINDOW: None, _OTHER: None},
    )
    store.append("s", said("a", ends="completed"), beside=first)
    for seen in ({_WINDOW: None}, {_WINDOW: "two"}, {_WINDOW: "one", _OTHER: "x"}):
        late = SideWrites(Record(1, 1, _NOW, "{}", "{}"), keep=1, notes={_WINDOW: "x"}, seen=seen)
        refused = (
            lambda late=late: store.append("s", said("b", ends="completed"), beside=late),
            lambda late=late: store.put("s", late),
        )
        for write in refused:
            try:
                write()
            except Overtaken as error:
                same(error.session, "s")
            else:
                raise AssertionError(f"what was made by {seen} was written")
    same(
        (len(store.read("s")), store.reports("s"), store.content("s", *_WINDOW)),
        (1, [], "one"),
    )
    store.append(
        "s",
        said("b"),
        beside=SideWrites(notes={_WINDOW: "two"}, seen={_WINDOW: "one"}),
    )
    store.put(
        "s",
        SideWrites(
            notes={_WINDOW: "three"},
            seen={_WINDOW: "two", _OTHER: None},
        ),
    )
    same(
        (len(store.read("s")), store.content("s", *_WINDOW)),
        (2, "three"),
        "as it was read",
    )


@fact
def a_session_that_is_not_there_keeps_nothing(store: Store) -> None:
    """Reports, frontiers and contents of an unknown session are refused, and do not make it."""
    record = Record(1, 1, _NOW, "{}", "[]")
    puts = {
        "a report": SideWrites(record, keep=1),
        "a frontier": SideWrites(notes={_WINDOW: "one"}),
        "a content": SideWrites(turn=1, originals={"x": "text"}),
    }
    for what, beside in puts.items():
        try:
            store.put("s", beside)
        except StoreError as error:
            same("'s'" in str(error), True, f"the error names the session of {what}")
        else:
            raise AssertionError(f"{what} of an unknown session was kept")
    same((info_of(store, "s"), store.reports("s")), (None, []))


@fact
def what_is_put_with_an_append_is_put_with_it_or_not_at_all(store: Store) -> None:
    """A report, originals and frontiers are there when the items are, and only then."""
    store.append("s", said("a", opens="turn"), claim=Claim("me"))
    record = Record(1, 1, _NOW, "{}", "{}")
    beside = SideWrites(record, {"n": "text"}, ["n"], 9, 1, {"o": "whole"}, 0, {_WINDOW: "one"})
    unfit = {
        "an item that is refused": (said("x", turn=99), "me"),
        "a turn that is another's": (said("x", turn=1), "you"),
    }
    for what, (drafts, owner) in unfit.items():
        try:
            store.append("s", drafts, claim=Claim(owner, 1), beside=beside)
        except MuntinError:
            got = (
                store.reports("s"),
                store.content("s", "report", "n"),
                store.content("s", *_WINDOW),
            )
            same((*got, store.content("s", "source", "o")), ([], None, None, None), what)
        else:
            raise AssertionError(f"{what} was appended")
    store.append("s", said("b", turn=1, ends="completed"), claim=Claim("me", 1), beside=beside)
    got = (store.reports("s"), store.content("s", "report", "n"), store.content("s", *_WINDOW))
    same((*got, store.content("s", "source", "o")), ([record], "text", "one", "whole"))
    same((len(store.read("s")), statuses(store)), (2, [(1, "completed")]), "what it came with")


@fact
def reports_are_forgotten_by_age_and_by_size_over_the_whole_store(store: Store) -> None:
    """The oldest reports go first, in any session, with the contents that only they need."""
    texts = dict.fromkeys("abcd", "x" * 100)
    for number, (session, name) in enumerate((("s", "a"), ("t", "b"), ("s", "c"), ("t", "d")), 1):
        store.append(session, said(name, ends="completed"))
        record = Record(number, 1, _NOW + timedelta(days=number), "{}", "{}")
        store.put(session, SideWrites(record, {name: texts[name]}, [name], 10))

    def kept() -> list[tuple[str, int]]:
        return [(each, record.turn) for each in "st" for record in store.reports(each)]

    same(store.prune(), Pruned(0, 0), "nothing was asked for")
    same(store.prune(before=_NOW + timedelta(days=2)), Pruned(1, 104), "by age")
    same(kept(), [("s", 3), ("t", 2), ("t", 4)], "by age")
    same(
        (store.content("s", "report", "a"), store.content("t", "report", "b")),
        (None, texts["b"]),
        "contents",
    )
    same(store.prune(most=210), Pruned(1, 104), "by size")
    same(kept(), [("s", 3), ("t", 4)], "by size")
    store.vacuum()
    same(
        (kept(), store.content("s", "report", "c")),
        ([("s", 3), ("t", 4)], texts["c"]),
        "room given back",
    )
    same(store.prune(most=0).reports, 2, "all of them")
    same([len(store.read(each)) for each in "st"], [2, 2], "what was said stays")
