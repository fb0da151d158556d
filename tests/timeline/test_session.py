"""Turns and windows: each sentence of the rule, with values to check by eye, on every store."""

from dataclasses import replace
from pathlib import Path

import pytest

from muntin import App, InvalidInput, ToolCall, assistant, system, tool, user
from muntin.errors import InvalidType
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import Draft, Item, Visibility
from muntin.timeline.session import Session
from muntin.timeline.store import open_store
from muntin.timeline.store.memory import MemoryStore
from tests.timeline.words import Words
from tests.words import texts


@pytest.fixture
def session(store):
    return Session("s", store=store, tokenizer=Words())


def shown(session, limit=None):
    return texts(session.messages(limit))


def talk(session, *names):
    """Append a completed turn of 2 tokens for each name: "a" asks "a?" and hears "a!"."""
    for name in names:
        session.append(user(f"{name}?"), assistant(f"{name}!"))


def fail(session, request, *rest, error=RuntimeError):
    def work():
        with session.turn() as turn:
            turn.append(user(request), *rest)
            raise error

    with pytest.raises(error):
        work()


# A turn is one user request and everything the assistant did for it.


def test_a_turn_is_a_request_and_everything_done_for_it(session):
    talk(session, "a")
    session.append(user("b?"))
    session.append(assistant(None, tool_calls=[ToolCall("c", "look")]))
    session.append(tool("c", "found"))
    session.append(assistant("b!"))
    assert [item.turn for item in session.items.all()] == [1, 1, 2, 2, 2, 2]
    assert shown(session, Turns(1)) == ["b?", "", "found", "b!"]


def test_messages_of_the_user_in_a_row_are_one_request(session):
    items = session.append(user("a"), user("b"), assistant("c"), user("d"), assistant("e"))
    assert [item.turn for item in items] == [1, 1, 1, 2, 2]


def test_what_comes_before_the_first_request_belongs_to_it(session):
    session.append(system("be brief"), user("a?"), assistant("a!"))
    assert shown(session, Turns(1)) == ["be brief", "a?", "a!"]


def test_an_appended_message_comes_back_at_its_position(session):
    items = session.append(user("a"), {"role": "assistant", "content": "b"})
    assert [(item.position, item.kind, item.role) for item in items] == [
        (1, "message", "user"),
        (2, "message", "assistant"),
    ]
    assert [(message.at, message.text) for message in session.messages()] == [(1, "a"), (2, "b")]


# `Turns(n)`: the last n completed turns, tool traffic included, n ≤ 0 → none.


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (1, ["c?", "c!"]),
        (2, ["b?", "b!", "c?", "c!"]),
        (3, ["a?", "a!", "b?", "b!", "c?", "c!"]),
        (99, ["a?", "a!", "b?", "b!", "c?", "c!"]),
        (0, []),
        (-1, []),
    ],
)
def test_turns_are_the_last_completed_ones(session, count, wanted):
    talk(session, "a", "b", "c")
    assert shown(session, Turns(count)) == wanted


def test_a_turn_with_much_tool_traffic_is_still_one_turn(session):
    talk(session, "a")
    calls = [ToolCall(f"c{n}", "look") for n in range(4)]
    session.append(user("b?"), assistant("", tool_calls=calls))
    session.append(*(tool(f"c{n}", f"found {n}") for n in range(4)))
    session.append(assistant("b!"))
    assert shown(session, Turns(2))[:2] == ["a?", "a!"]
    assert len(session.messages(Turns(1))) == 7


# `Tokens(t)`: whole turns from the newest back while the sum ≤ t, stop at the first misfit.


@pytest.fixture
def uneven(session):
    """Turns of 2, 9, 3 and 4 tokens."""
    session.append(user("a"), assistant("a"))
    session.append(user("b"), assistant("b b b b b b b b"))
    session.append(user("c"), assistant("c c"))
    session.append(user("d d"), assistant("d d"))
    return session


@pytest.mark.parametrize(
    ("tokens", "turns"), [(4, 1), (6, 1), (7, 2), (15, 2), (16, 3), (17, 3), (18, 4), (10**6, 4)]
)
def test_tokens_take_whole_turns_while_they_fit(uneven, tokens, turns):
    assert sorted({i.turn for i in uneven.items.history(Tokens(tokens))}) == [1, 2, 3, 4][-turns:]


def test_tokens_stop_at_the_first_turn_that_does_not_fit(uneven):
    # 4 + 3 + 9 do not fit into 12, and the older turn of 2 is not taken in its place.
    assert shown(uneven, Tokens(12)) == ["c", "c c", "d d", "d d"]


@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_the_newest_turn_is_kept_even_if_it_alone_is_too_large(uneven, tokens):
    assert shown(uneven, Tokens(tokens)) == ["d d", "d d"]


@pytest.mark.parametrize("empty", ["hidden", "run", "removed", "transient"])
def test_the_newest_turn_that_has_messages_is_kept_even_if_it_is_too_large(uneven, empty):
    drafts = {
        "hidden": Draft("message", assistant("x"), visibility=Visibility(history=False)),
        "run": Draft("run", payload={"id": 1}),
        "removed": Draft("context_removed", payload={"id": "e"}),
        "transient": Draft("message", assistant("working"), transient=True),
    }
    uneven.append(replace(drafts[empty], opens="turn", ends="completed"))
    assert shown(uneven, Tokens(1)) == ["d d", "d d"]


def test_turns_are_never_split(session):
    session.append(user("one two three"), assistant("four five"))
    session.append(user("six"), assistant("seven"))
    for tokens in range(8):
        assert len(session.messages(Tokens(tokens))) in (2, 4)


def test_what_a_message_costs_beside_its_text_counts(store):
    class Costly(Words):
        name = "costly"
        message_overhead = 3

    session = Session("s", store=store, tokenizer=Costly())
    session.append(user("a"), assistant("a"))
    session.append(user("b"), assistant("b"))
    assert shown(session, Tokens(15)) == ["b", "b"]
    assert shown(session, Tokens(16)) == ["a", "a", "b", "b"]


# A turn that contributes no messages still counts against `Turns`.


def test_a_turn_without_messages_counts_against_turns(session):
    talk(session, "a", "b")
    hidden = Visibility(history=False)
    session.append(Draft("message", user("sub"), opens="turn", ends="completed", visibility=hidden))
    assert shown(session, Turns(2)) == ["b?", "b!"]
    assert shown(session, Turns(1)) == []


# Items of the turn in flight are always included, outside the limit.


@pytest.mark.parametrize(
    "limit", [Turns(0), Turns(-5), 0, Turns(1), Tokens(0), Tokens(2), Tokens(3)]
)
def test_the_turn_in_flight_is_always_included(session, limit):
    talk(session, "a", "b")
    with session.turn() as turn:
        turn.append(user("now we ask"))
        turn.append(assistant("thinking of it"))
        past = [] if limit in (Turns(0), Turns(-5), 0) else ["b?", "b!"]
        assert shown(session, limit) == [*past, "now we ask", "thinking of it"]


def test_the_turn_in_flight_takes_no_tokens_from_the_limit(session):
    talk(session, "a", "b")
    with session.turn() as turn:
        turn.append(user("a very long question of nine words it is"))
        assert shown(session, Tokens(4))[:4] == ["a?", "a!", "b?", "b!"]


def test_a_turn_in_flight_is_included_when_a_later_one_was_completed(session):
    talk(session, "a")
    with session.turn() as turn:
        turn.append(user("long work"))
        talk(session, "b", "c")
        for limit in (None, Turns(1), Turns(0), Tokens(0)):
            assert "long work" in shown(session, limit), limit
        assert shown(session, Turns(1)) == ["long work", "c?", "c!"]
    assert shown(session, Turns(3)) == ["long work", "b?", "b!", "c?", "c!"]


def test_messages_that_wait_for_their_wake_are_in_flight(session):
    talk(session, "a")
    session.append(Draft("message", payload="wake up", opens="inbox"))
    session.append(Draft("message", payload={"to": "you"}, opens="inbox"))
    assert shown(session, Turns(0)) == ["wake up", '{"to":"you"}']


# Failed turns after the last completed one count as in flight; older ones are gone.


def test_a_failed_turn_is_shown_until_a_later_one_completes(session):
    talk(session, "a")
    fail(session, "b?")
    assert shown(session, Turns(0)) == ["b?"]
    assert shown(session) == ["a?", "a!", "b?"]
    talk(session, "c")
    assert shown(session) == ["a?", "a!", "c?", "c!"]


def test_all_failed_turns_after_the_last_completed_one_are_shown(session):
    talk(session, "a")
    fail(session, "b?")
    fail(session, "b again?")
    for limit in (Turns(1), Tokens(0), Tokens(2)):
        assert shown(session, limit) == ["a?", "a!", "b?", "b again?"]


def test_a_retry_sees_the_request_and_the_finished_tool_calls(session):
    fail(session, "weather?", assistant(None, tool_calls=[ToolCall("c", "t")]), tool("c", "sunny"))
    with session.turn() as turn:
        turn.append(user("try again"))
        assert shown(session, Turns(1)) == ["weather?", "", "sunny", "try again"]


def test_older_failed_turns_are_neither_shown_nor_counted(session):
    talk(session, "a")
    fail(session, "b?")
    fail(session, "b? " * 100)
    talk(session, "c")
    assert shown(session, Turns(2)) == ["a?", "a!", "c?", "c!"]
    assert shown(session, Tokens(4)) == ["a?", "a!", "c?", "c!"]


def test_a_session_with_only_failed_turns_shows_them(session):
    fail(session, "a?")
    for limit in (None, Turns(0), Tokens(0), 3):
        assert shown(session, limit) == ["a?"]


# A bare number counts turns in `history`, items in the other two.


def test_a_bare_number_counts_turns_in_history_and_items_elsewhere(session):
    talk(session, "a", "b", "c")
    assert [item.position for item in session.items.history(2)] == [3, 4, 5, 6]
    assert [item.position for item in session.items.all(3)] == [4, 5, 6]
    assert [item.position for item in session.items.client(1)] == [6]
    assert shown(session, 1) == ["c?", "c!"]
    assert session.items.all(0) == session.items.client(0) == []


def test_turns_and_tokens_limit_the_other_views_too(session):
    talk(session, "a", "b", "c")
    for view in (session.items.all, session.items.client):
        assert [item.position for item in view(Turns(2))] == [3, 4, 5, 6]
        assert [item.position for item in view(Tokens(3))] == [5, 6]
        assert [item.position for item in view(Turns(2), before=6)] == [3, 4, 5]


@pytest.mark.parametrize("limit", ["5", 1.5, True, [1], Visibility()])
def test_a_limit_of_another_type_is_refused(session, limit):
    for view in (session.items.history, session.items.all, session.items.client):
        with pytest.raises(InvalidType):
            view(limit)


def test_a_negative_number_of_items_is_refused(session):
    for view in (session.items.all, session.items.client):
        with pytest.raises(InvalidInput):
            view(-1)


def test_numbers_beyond_every_timeline_are_as_good_as_infinite(store):
    huge = 10**30
    session = Session("s", store=store, tokenizer=Words(), window=Turns(huge))
    talk(session, "a")
    for limit in (None, huge, Turns(huge), Tokens(huge)):
        assert shown(session, limit) == ["a?", "a!"]
        assert len(session.items.all(limit)) == 2
    assert len(session.items.all(before=huge)) == 2
    assert session.items.all(after=huge) == []
    assert session.timeline_messages(since=huge) == []


# The window caps what is loaded at the store query; a limit narrows within it, never widens it.


def test_history_reaches_the_whole_session_unless_told_otherwise(session):
    talk(session, *map(str, range(60)))
    assert shown(session)[0] == "0?"
    assert shown(session, 55)[0] == "5?"
    assert len(session.messages()) == 120


@pytest.mark.parametrize(
    ("window", "limit", "wanted"),
    [
        (Turns(2), None, 4),
        (Turns(2), Turns(1), 2),
        (Turns(2), Turns(9), 4),
        (Turns(2), Tokens(10**6), 4),
        (Turns(2), Tokens(3), 2),
        (Turns(0), Turns(9), 0),
        (Turns(0), Tokens(9), 0),
        (Tokens(5), None, 4),
        (Tokens(5), Turns(9), 4),
        (Tokens(5), Turns(1), 2),
        (Tokens(5), Tokens(7), 4),
        (Tokens(5), Tokens(3), 2),
        (Tokens(0), Tokens(9), 2),
    ],
)
def test_a_limit_narrows_the_window_and_never_widens_it(store, window, limit, wanted):
    session = Session("s", store=store, tokenizer=Words(), window=window)
    talk(session, "a", "b", "c", "d", "e")
    assert len(session.messages(limit)) == wanted


@pytest.mark.parametrize("window", [5, "5", True])
def test_a_window_is_turns_or_tokens(store, window):
    with pytest.raises(InvalidType):
        Session("s", store=store, window=window)


class Watched(MemoryStore):
    """Notes how many items and turns it hands out."""

    def __init__(self):
        super().__init__()
        self.read_items = 0

    def read(self, session, **asked):
        found = super().read(session, **asked)
        self.read_items += len(found)
        return found

    def turns(self, session, **asked):
        found = super().turns(session, **asked)
        self.read_items += len(found)
        return found


@pytest.mark.parametrize("window", [Turns(50), Tokens(10**6)])
@pytest.mark.parametrize("limit", [Turns(8), Turns(0), 3, Tokens(16), Tokens(1), Tokens(0)])
def test_as_much_is_read_from_a_long_session_as_from_a_short_one(window, limit):
    read = []
    for turns in (60, 1_000):
        store = Watched()
        session = Session("s", store=store, tokenizer=Words(), window=window)
        talk(session, *map(str, range(turns)))
        store.read_items = 0
        session.items.history(limit)
        read.append(store.read_items)
    assert read[0] == read[1]
    assert read[1] < 120


# `all()` and `client()` are paged and reach the whole session.


def test_all_and_client_reach_the_whole_session(store):
    session = Session("s", store=store, window=Turns(1))
    talk(session, *map(str, range(60)))
    fail(session, "failed?")
    talk(session, "last")
    assert [item.position for item in session.items.all()] == list(range(1, 124))
    assert [item.position for item in session.items.client()] == list(range(1, 124))


def test_pages_meet_without_gap_or_overlap(session):
    talk(session, *"abcdefg")
    found: list[Item] = []
    before = None
    while page := session.items.all(4, before=before):
        found = page + found
        before = page[0].position
    assert [item.position for item in found] == list(range(1, 15))
    assert [item.position for item in session.items.all(after=12)] == [13, 14]
    assert [item.position for item in session.items.client(after=3, before=6)] == [4, 5]


# Who sees what.


def test_an_item_is_shown_only_to_those_who_may_see_it(session):
    talk(session, "a")
    session.append(
        Draft("message", assistant("for the client"), visibility=Visibility(history=False)),
        Draft("message", assistant("for the model"), visibility=Visibility(client=False)),
        Draft("message", assistant("for nobody"), visibility=Visibility(False, False)),
    )
    assert [item.position for item in session.items.history()] == [1, 2, 4]
    assert [item.position for item in session.items.client()] == [1, 2, 3]
    assert [item.position for item in session.items.all()] == [1, 2, 3, 4, 5]
    assert shown(session)[2:] == ["for the model"]
    assert texts(session.timeline_messages())[2:] == ["for the model"]


def test_what_the_model_cannot_see_takes_none_of_its_tokens(session):
    talk(session, "a")
    session.append(user("b?"), assistant("b!"))
    hidden = Visibility(history=False)
    session.append(Draft("message", assistant("x " * 500), visibility=hidden))
    assert shown(session, Tokens(4)) == ["a?", "a!", "b?", "b!"]


def test_a_transient_item_is_shown_while_its_turn_is_in_flight(session):
    talk(session, "a")
    with session.turn() as turn:
        turn.append(user("b?"), Draft("message", assistant("half done"), transient=True))
        assert shown(session, Turns(0)) == ["b?", "half done"]
        turn.append(assistant("b!"))
    assert shown(session, Turns(1)) == ["b?", "b!"]
    assert texts(session.timeline_messages()) == ["a?", "a!", "b?", "b!"]
    assert len(session.items.all()) == 5


# Turns that may fail.


def test_a_turn_is_completed_at_the_end_of_its_block(session):
    with session.turn() as turn:
        assert turn.number == 0
        turn.append(user("a?"))
        assert turn.number == 1
        assert [t.status for t in session.store.turns("s")] == ["open"]
        turn.append(assistant("a!"))
    assert [t.status for t in session.store.turns("s")] == ["completed"]
    assert [item.turn for item in session.items.all()] == [1, 1]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_fails_the_turn_and_passes_on(session, error):
    fail(session, "a?", error=error)
    assert [t.status for t in session.store.turns("s")] == ["failed"]
    assert shown(session) == ["a?"]


def test_a_turn_that_appends_nothing_is_none(session):
    with session.turn() as turn:
        assert turn.append() == []
    with pytest.raises(RuntimeError), session.turn():
        raise RuntimeError
    assert session.store.turns("s") == []


def test_what_is_appended_in_a_turn_joins_it_whatever_happens_meanwhile(session):
    with session.turn() as first, session.turn() as second:
        first.append(user("a?"))
        second.append(user("b?"))
        session.append(user("c?"), assistant("c!"))
        first.append(assistant("a!"))
        second.append(assistant("b!"))
    assert [item.turn for item in session.items.all()] == [1, 2, 3, 3, 1, 2]
    assert [turn.status for turn in session.store.turns("s")] == ["completed"] * 3


def test_a_word_in_between_does_not_complete_a_turn_in_flight(session):
    with session.turn() as turn:
        turn.append(user("a?"))
        session.append(assistant("by the way"))
        session.insert_context("e", name="n", content="c")
        assert [t.status for t in session.store.turns("s")] == ["open"]


def test_a_lease_is_renewed_by_saying_so_and_by_appending(session):
    with session.turn() as turn:
        turn.append(user("a?"))
        leases = [session.store.turns("s")[0].until]
        turn.renew()
        leases.append(session.store.turns("s")[0].until)
        turn.append(assistant("a!"))
        leases.append(session.store.turns("s")[0].until)
    assert leases == sorted(set(leases))


def test_a_turn_that_has_not_begun_cannot_be_renewed(session):
    with session.turn() as turn, pytest.raises(Exception, match="has not begun"):
        turn.renew()


# Opening.


def test_a_session_is_there_again_when_it_is_opened_again(store):
    talk(Session("s", store=store), "a")
    again = Session("s", store=store)
    talk(again, "b")
    assert [(m.at, m.text) for m in again.messages()] == [
        (1, "a?"),
        (2, "a!"),
        (3, "b?"),
        (4, "b!"),
    ]


def test_sessions_know_nothing_of_each_other(store):
    talk(Session("s", store=store), "a")
    assert Session("S", store=store).messages() == []
    assert Session("s%", store=store).items.all() == []


@pytest.mark.parametrize("id", ["", "a\0", "\ud800", 5, None])
def test_an_unfit_id_is_refused_when_the_session_is_opened(store, id):
    with pytest.raises(InvalidInput):
        Session(id, store=store)


def test_a_store_is_opened_by_its_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Session("s").store:
        talk(Session("s"), "a")
    assert (tmp_path / "muntin.db").exists()
    assert shown(Session("s", store="sqlite:///muntin.db")) == ["a?", "a!"]


@pytest.mark.parametrize(
    ("given", "advised"),
    [("shop.db", "sqlite:///shop.db"), ("a/b.sqlite3", "sqlite:///a/b.sqlite3")],
)
def test_a_file_instead_of_an_address_is_an_error_that_shows_the_address(given, advised):
    with pytest.raises(InvalidInput, match=f"unknown store '{given}'; use '{advised}', "):
        open_store(given)
    with pytest.raises(InvalidInput, match=r"use 'sqlite:///muntin\.db', "):
        open_store("mongo://shop.db")


def test_what_is_hidden_is_in_no_window_and_stays_in_the_timeline() -> None:
    session = Session("s", store=MemoryStore())
    session.append(user("a"), assistant("b"), user("c"))
    assert session.hide(3)
    assert not session.hide(3)
    assert [message.text for message in session.messages()] == ["a", "b"]
    assert [message.text for message in session.timeline_messages()] == ["a", "b"]
    assert [item.position for item in session.store.read("s")] == [1, 2, 3]


@pytest.mark.parametrize("wrong", [None, 3, Path("chat.db")])
def test_what_is_no_store_is_refused_at_once(wrong):
    for door in (lambda: App(wrong), lambda: Session("s", store=wrong)):
        with pytest.raises(InvalidType, match="store must be a store or its address") as refused:
            door()
    name = "chat" if isinstance(wrong, Path) else "muntin"
    assert f"an address is a str like 'sqlite:///{name}.db'" in str(refused.value)
