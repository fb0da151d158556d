"""Recalling from a session, in every store: what a history hides is hidden, nothing is lost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import InvalidInput, Message, Session, Tokens, ToolCall, Turns, assistant, tool, user
from muntin.timeline import Draft, Visibility
from muntin.timeline.items import SideWrites, draft_of
from muntin.timeline.recall import choose
from muntin.timeline.recall import shelf as shelves
from muntin.timeline.recall.shelf import Shelf, shelf_of
from muntin.timeline.recall.stored import Scope, recall
from muntin.timeline.store import Store, open_store
from tests.timeline.recall.corpus import SAID

HIDDEN = Visibility(history=False)


def tell(session: Session, more: int = 0) -> None:
    """Append the corpus, each message a turn, then so many of no interest."""
    for name, day, text in SAID:
        time = None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
        session.append(draft_of(Message("user", text, name=name), time=time, opens="turn"))
    rest = [user(f"Nothing of note, {number}.") for number in range(more)]
    session.append(*[draft_of(each, opens="turn") for each in rest])


def test_a_session_is_searched_best_first(store):
    session = Session("a", store=store)
    tell(session)
    first, *_ = session.search("What happened to HAT023?", limit=3)
    assert first.positions == (17,)
    assert "HAT023" in first.text
    assert "hat023" in first.words
    with pytest.raises(InvalidInput, match="limit"):
        session.search("x", limit=0)
    assert session.search("") == Session("unknown", store=store).search("dog") == []


def test_what_is_appended_later_is_found_and_nothing_is_read_twice(store, monkeypatch):
    session = Session("a", store=store)
    tell(session, more=1_200)
    assert session.items.relevant("cello", tokens=300).positions
    session.append(user("The zeppelin lands at noon."))
    read: list[int] = []
    inner = store.read

    def counted(*given: Any, **options: Any) -> Any:
        found = inner(*given, **options)
        read.append(len(found))
        return found

    monkeypatch.setattr(store, "read", counted, raising=False)
    found = session.items.relevant("zeppelin", tokens=100, limit=1)
    assert found.positions == (len(SAID) + 1_201,)
    assert sum(read) < 100


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_a_restart_recalls_the_same_from_the_kept_segments(store_url, monkeypatch):
    with open_store(store_url) as store:
        shelf_of(store).segment = 16
        session = Session("a", store=store)
        tell(session, more=10)
        before = session.items.relevant("cello recital HAT023", tokens=300)
    with open_store(store_url) as store:
        shelf_of(store).segment = 16
        read: list[Any] = []
        inner = store.read

        def noted(*given: Any, **options: Any) -> Any:
            read.append(options.get("oldest") and options["after"])
            return inner(*given, **options)

        monkeypatch.setattr(store, "read", noted)
        again = Session("a", store=store).items.relevant("cello recital HAT023", tokens=300)
        assert again == before
        assert again.positions == before.positions
        assert [after for after in read if after is not None] == [48]


@pytest.mark.parametrize("damage", ["muntin-recall-0:abc", "", "muntin-recall-2:%%%"])
def test_an_index_of_another_version_is_made_again(store, damage):
    shelf_of(store).segment = 16
    session = Session("a", store=store)
    tell(session)
    before = session.items.relevant("cello", tokens=300)
    kept = store.content("a", "recall_segment", "1")
    store.put("a", SideWrites(notes={("recall_segment", "1"): damage}))
    shelves._shelves.pop(store)
    shelf_of(store).segment = 16
    assert session.items.relevant("cello", tokens=300) == before
    assert store.content("a", "recall_segment", "1") == kept


def test_memory_is_bounded_by_the_sessions_used_last(store):
    shelf = shelf_of(store)
    shelf.most = 1
    for name in "abc":
        session = Session(name, store=store)
        tell(session)
        assert session.search("cello")
    assert len(shelf) == 1


def test_a_session_that_was_deleted_is_forgotten(store):
    session = Session("a", store=store)
    tell(session)
    assert session.search("cello")
    store.delete("a")
    again = Session("a", store=store)
    assert again.search("cello") == []
    again.append(user("A zither is no cello."))
    assert [each.positions for each in again.search("cello")] == [(1,)]


def test_hidden_items_failed_turns_and_transient_ones_are_not_recalled(store):
    session = Session("a", store=store)
    session.append(user("The cello is in the cellar."))
    session.append(draft_of(user("A hidden cello."), visibility=HIDDEN, opens="turn"))
    session.append(
        draft_of(user("A passing cello."), transient=True, opens="turn", ends="completed")
    )
    with pytest.raises(RuntimeError), session.turn() as turn:  # noqa: PT012
        turn.append(user("A failed cello."))
        raise RuntimeError
    session.append(user("Something else."), assistant("Yes."))
    found = session.items.relevant("cello", tokens=300)
    shown = {message.text for message in session.messages()}
    assert "cellar" in found
    assert not any(word in found for word in ("hidden", "passing", "failed"))
    assert "A failed cello." not in shown


def test_a_projection_decides_what_is_recalled_and_in_which_words(store):
    session = Session("a", store=store)
    session.append(user("My card is 4417 1234, for the cello."), assistant("Noted the cello."))
    session.append(user("The cello of my aunt."))

    def projection(item: Any) -> Any:
        if "card" in item.message.text:
            return [user("My card is [removed], for the cello.")]
        return [] if "aunt" in item.message.text else None

    found = recall(session, "cello card 4417", 400, scope=Scope(projection=projection))
    assert "[removed]" in found
    assert "4417" not in found
    assert "aunt" not in found
    assert "4417" not in found.why


def test_a_projected_run_is_recalled_as_it_is_shown(store):
    session = Session("a", store=store)
    (asked,) = session.append(user("Play the cello."))
    (run,) = session.append(Draft("run", payload={}, turn=asked.turn))
    session.append(
        draft_of(assistant(tool_calls=[ToolCall("c", "play", "{}")]), run=run.position),
        draft_of(tool("c", "the secret cello score"), run=run.position),
        draft_of(assistant("Played."), run=run.position),
    )
    plain = recall(session, "secret score", 400, limit=1)
    assert "secret cello score" in plain
    assert plain.positions == (3, 4)
    told = Scope(projection=lambda item: [user("Something was played.")] if item.items else None)
    found = recall(session, "secret score", 400, scope=told)
    assert "secret" not in found
    assert "Something was played." in found
    hidden = Scope(projection=lambda item: [] if item.items else None)
    assert "play" not in recall(session, "secret score", 400, scope=hidden).lower().replace(
        "play the cello", ""
    )


@pytest.mark.parametrize(("window", "found"), [(Turns(2), (9, 10)), (Tokens(12), (10,)), (None, 1)])
def test_the_window_of_a_session_bounds_what_is_recalled(store, window, found):
    session = Session("a", store=store, window=window)
    for number in range(10):
        session.append(user(f"cello {number}"))
    positions = session.items.relevant("cello", tokens=1_000).positions
    assert positions == (found if window is not None else tuple(range(1, 11)))


def test_an_index_that_takes_too_long_is_made_over_several_questions(store):
    session = Session("a", store=store)
    tell(session, more=2_500)
    first = recall(session, "cello", 300, seconds=1e-9)
    assert not first
    assert first.trouble is not None
    assert "the index is being made: 1,000 of" in first.trouble
    recall(session, "cello", 300, seconds=1e-9)
    assert recall(session, "cello", 300, seconds=1e-9).positions


WORDS = st.sampled_from(["cello", "oslo", "HAT023", "nurse", "4417", "wedding"])
TALK = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=12)


@given(TALK, TALK, st.lists(WORDS, min_size=1, max_size=4).map(" ".join))
def test_nothing_crosses_from_one_session_to_another(ours, theirs, query):
    with open_store("memory:") as store:
        for name, said in (("tenant-1/chat", ours), ("tenant-2/chat", theirs)):
            Session(name, store=store).append(*[user(f"{name[7]}: {each}") for each in said])
        for name, other in (("tenant-1/chat", "2: "), ("tenant-2/chat", "1: ")):
            found = Session(name, store=store).items.relevant(query, tokens=2_000)
            mine = ours if name[7] == "1" else theirs
            assert other not in found
            assert len(found.positions) <= len(mine)
            lines = [each for line in found.splitlines() for each in line.split(": ", 1)[1:]]
            assert all(line.startswith(f"{name[7]}: ") for line in lines)


def test_a_shelf_of_any_store_can_be_gone(tmp_path):
    store: Store = open_store("memory:")
    assert isinstance(shelf_of(store), Shelf)


@pytest.mark.parametrize("results", [1, 3, 9])
@pytest.mark.parametrize("wanted", ["first", "last"])
def test_a_result_is_recalled_with_its_call_however_many_were_called(
    store, results, wanted, monkeypatch
):
    monkeypatch.setattr(choose, "_BATCH", 1)  # what is read for one may not help another
    session = Session("s", store=store)
    tell(session)
    calls = [ToolCall(f"c{n}", "look", "{}") for n in range(results)]
    place = 0 if wanted == "first" else results - 1
    said = ["a zeppelin over Lucerne" if n == place else f"cloud {n}" for n in range(results)]
    session.append(
        user("What is to be seen?"),
        assistant(tool_calls=calls),
        *(tool(f"c{n}", text) for n, text in enumerate(said)),
        assistant("Much."),
    )
    start = len(session.items.all()) - results - 1
    (best, *_) = recall(session, "zeppelin Lucerne", 500, limit=1).excerpts
    assert best.positions == tuple(range(start, start + results + 1))


def test_of_a_long_session_only_what_stands_around_the_best_is_read(store, monkeypatch):
    session = Session("s", store=store)
    said = [f"gate {n}" if n % 40 == 0 else f"ship {n}" for n in range(2_000)]
    session.append(*map(user, said))
    recall(session, "the gate", 100)
    found: list[int] = []
    read = store.read

    def counted(*given: Any, **options: Any) -> Any:
        items = read(*given, **options)
        found.append(len(items))
        return items

    monkeypatch.setattr(store, "read", counted)
    told = recall(session, "the gate", 100)
    assert len(told.excerpts) > 3
    assert sum(found) <= 5 * 24
