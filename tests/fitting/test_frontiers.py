"""What a request leaves to the next: small, checked, and found again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from muntin import InvalidInput, Message, user
from muntin.core.digests import digest
from muntin.core.planning.memory import ConversationState
from muntin.fitting import fit
from muntin.fitting.frontiers import (
    ConversationTable,
    RequestTrace,
    digests_of_beginnings,
    first_new,
)
from tests.fitting.talks import chat_call, chat_result, growing, words


class LazyMessages:
    """A list of messages without an opening."""

    def __init__(self, *texts: str) -> None:
        self.past = [user(text) for text in texts]

    @property
    def first_digest(self) -> str:
        return digest(self.past[0]) if self.past else ""

    @property
    def pasts(self) -> list[str]:
        return digests_of_beginnings(self.past)


def left(talk: LazyMessages, start: ConversationState | None = None) -> RequestTrace:
    return RequestTrace.of(start, talk.past, talk.first_digest)


def at(talk: LazyMessages, place: int) -> ConversationState:
    return ConversationState("history", 0, place, None, digest(talk.past[place]))


def test_it_is_plain_json_and_small() -> None:
    for talk in growing(30):
        told = fit(talk, 2_000, model="openai/gpt-4o", previous={}).frontier
        assert json.loads(json.dumps(told)) == told
        assert len(json.dumps(told)) < 400
        assert RequestTrace.from_dict(told).to_dict() == told


def told_0_2() -> dict[str, Any]:
    """What 0.2.0 left after the 22nd turn of the talk below, in a window of 250 tokens. The history
    began with turn 17; its results were stubs but for the newest."""
    start = {"slot": "history", "number": 0, "first": 68, "digest": "d42ff4502bd8bffa", "base": 130}
    start |= {"requests": 1, "surplus": -81, "stubs": 83, "shorts": 83, "asked": 0, "asks": 0}
    return {
        "version": 1,
        "start": start,
        "opening": "4d45a46c90f54318",
        "behind": "53335e8c9e040df4",
        "count": 89,
        "last": "ddc1e01c22e7d518",
    }


def looked(turns: int) -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for turn in range(turns):
        talk.append({"role": "user", "content": f"question {turn} ".ljust(40, "q")})
        talk.append(chat_call(f"c{turn}", f'{{"n":{turn}}}'))
        talk.append(chat_result(f"c{turn}", f"row {turn} ".ljust(200, "r")))
        talk.append({"role": "assistant", "content": f"answer {turn} ".ljust(40, "a")})
    return [*talk, {"role": "user", "content": f"question {turns} ".ljust(40, "q")}]


def test_a_list_of_0_2_goes_on_where_it_began_at_its_levels() -> None:
    fitted = fit(looked(22), 250, tokenizer="chars/4", previous=told_0_2())
    assert fitted.fresh is None
    asked = [each["content"].split()[1] for each in fitted.kept if each["role"] == "user"]
    assert asked == ["17", "18", "19", "20", "21", "22"]
    results = [each["content"] for each in fitted.kept if each["role"] == "tool"]
    assert results == ["[look: 50 tokens, left out]"] * 4 + ["row 21 ".ljust(200, "r")]


def test_a_list_of_0_2_moves_on_from_there() -> None:
    told, first = told_0_2(), 68
    for turns in range(23, 40):
        fitted = fit(looked(turns), 250, tokenizer="chars/4", previous=told)
        assert fitted.fresh is None
        told = fitted.frontier
        assert told["start"]["first"] >= first
        first = told["start"]["first"]
    assert first > 68


WRITTEN: dict[str, Any] = {
    "version": 1,
    "start": {},
    "opening": "",
    "behind": "",
    "count": 1,
    "last": "",
}


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({**WRITTEN, "version": 2}, "version 2 cannot be read"),
        ({"starts": []}, "version None cannot be read"),
        ({"version": 1}, "no frontier that was written here"),
        ({**WRITTEN, "start": "x"}, "no frontier that was written here"),
        ({**WRITTEN, "start": {"what": 1}}, "no frontier that was written here"),
        ({**WRITTEN, "count": -1}, "no frontier that was written here"),
    ],
)
def test_what_is_none_is_refused(told: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^previous: .*{why}"):
        fit([{"role": "user", "content": "x"}], 100, previous=told)


def test_it_belongs_to_a_list_that_begins_alike() -> None:
    talk = LazyMessages("a", "b", "c", "d")
    assert left(talk).why_not(LazyMessages("a", "b", "c", "d", "e")) is None
    assert "another conversation" in str(left(talk).why_not(LazyMessages("x", "b", "c", "d")))


def test_the_message_at_the_frontier_must_be_there() -> None:
    talk = LazyMessages("a", "b", "c", "d")
    mine = left(talk, at(talk, 2))
    assert mine.why_not(LazyMessages("a", "b", "c", "d")) is None
    assert "not in the list" in str(mine.why_not(LazyMessages("a", "b", "x", "d")))


def test_a_list_that_lost_its_beginning_is_known_by_two_messages() -> None:
    talk = LazyMessages("a", "b", "ok", "d")
    mine = left(talk, at(talk, 2))
    assert mine.why_not(LazyMessages("ok", "d", "e")) is None
    assert "another conversation" in str(mine.why_not(LazyMessages("x", "y", "ok", "z")))


def test_the_table_is_bounded() -> None:
    table = ConversationTable()
    for number in range(5_000):
        talk = LazyMessages(f"opening {number}")
        table.put(None, talk.pasts[-1], left(talk), _FRONTIER)
    assert found(table, LazyMessages("opening 0")) is None
    newest = LazyMessages("opening 4999")
    assert found(table, newest) == left(newest)


_FRONTIER = fit([], 100).window.frontier


def found(
    table: ConversationTable, talk: LazyMessages, name: str | None = None
) -> RequestTrace | None:
    return table.take(name, talk.pasts.__getitem__, talk)


def test_a_list_goes_on_with_the_longest_of_its_beginnings_and_no_other_list_does() -> None:
    table = ConversationTable()
    short, long = LazyMessages("a", "b"), LazyMessages("a", "b", "c", "d")
    for talk in (long, short):
        table.put(None, talk.pasts[-1], left(talk), _FRONTIER)
    assert found(table, LazyMessages("a", "b", "c", "d", "e")) == left(long)
    assert found(table, LazyMessages("a", "b", "c", "d", "f")) == left(short)
    assert found(table, LazyMessages("a", "b", "c", "d", "g")) is None


def test_a_past_that_two_recorded_conversations_have_is_neither_s() -> None:
    table, talk = ConversationTable(), LazyMessages("Hello")
    for session in ("one", "two"):
        table.put(None, talk.pasts[-1], replace(left(talk), session=session), _FRONTIER)
    assert found(table, LazyMessages("Hello", "a", "b")) is None


def test_a_conversation_with_a_name_is_found_by_it_when_its_list_was_changed() -> None:
    table, talk = ConversationTable(), LazyMessages("a", "b", "c", "d")
    table.put("name", talk.pasts[-1], left(talk, at(talk, 2)), _FRONTIER)
    assert found(table, LazyMessages("a", "x", "c", "d"), "name") == left(talk, at(talk, 2))
    assert found(table, LazyMessages("a", "x", "c", "d")) is None


def test_only_what_is_new_is_recorded() -> None:
    talk = LazyMessages(*(words(3, n) for n in range(6)))
    before = left(talk)
    assert first_new(None, [], talk) == (0, True)
    assert first_new(before, [], talk) == (6, True)
    talk.past += [Message("assistant", "x"), user("y")]
    assert first_new(before, [], talk) == (6, True)
    recorded = talk.pasts
    talk.past[5] = user("edited")
    assert first_new(before, [], talk) == (7, False)
    assert first_new(before, recorded, talk) == (5, False), "behind what both have"
    del talk.past[4:]
    assert first_new(before, recorded, talk) == (4, True), "a late list has nothing new"
    many = LazyMessages(*(str(n) for n in range(3_000)))
    assert first_new(None, [], many) == (2_000, True)
