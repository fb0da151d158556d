"""The frontier: written, read again, and read as 0.2.0 wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muntin import InvalidInput, Message, Slots, Stepped, ToolCall, Window, assistant, tool, user
from muntin.core.caching.frontier import Frontier
from muntin.errors import InvalidType

# Written by 0.2.0 after the 22nd turn of the talk below, in a window of 1,000 tokens. The history
# began with turn 17, and all of its results were stubs.
WRITTEN: dict[str, Any] = json.loads(
    """
    {"version": 1, "starts": [{"slot": "history", "number": 0, "first": 68, "at": null,
    "digest": "d42ff4502bd8bffa", "base": 520, "requests": 0, "surplus": -429, "stubs": 83,
    "shorts": 83, "item": null, "recap": null, "asked": 0, "asks": 0, "question": null}],
    "marks": [], "tools": "", "digests": ["47274355243de3a4", "d42ff4502bd8bffa",
    "53335e8c9e040df4", "84249b63a8e0fe07", "b4bc402c916215d1", "4dd53bd30defbf72",
    "43f9d46e9e7fbae8", "bf0564975ac19b00", "9d15a268ddf98ad7", "0c16a276cbe48b75",
    "14a9f762211736b8", "ae3cb8f5338b572c", "e3b24de8f6c90ad6", "a75ff892d3b4d94d",
    "4c20096b6492f30a", "87118a6cc606f82f", "328060db5b5cc9f5", "e48f28bd59766b55"],
    "runs": [["system", 1], ["history", 16], ["input", 1]], "lasting": 17, "lasting_tokens": 489,
    "schemas": [], "trunk": 18, "blamed": [], "chunks": []}
    """
)


def turn(number: int) -> list[Message]:
    call = ToolCall(f"c{number}", "look", f'{{"n":{number}}}')
    return [
        user(f"question {number} ".ljust(40, "q")),
        assistant(tool_calls=[call]),
        tool(f"c{number}", f"row {number} ".ljust(200, "r")),
        assistant(f"answer {number} ".ljust(40, "a")),
    ]


def talk(turns: int) -> list[Message]:
    return [message for number in range(turns) for message in turn(number)]


def render(turns: int, previous: Window | Frontier | None, budget: int = 1_000) -> Window:
    slots = Slots(
        budget,
        tokenizer=len,
        trimming=Stepped(),
        ladder=True,
        previous=previous,
        profile="anthropic/claude-sonnet-4-5",
    )
    slots.add("system", "Be brief.", tier="pinned")
    slots.add("history", talk(turns))
    slots.add("input", f"question {turns} ".ljust(40, "q"))
    return slots.render()


def stored(frontier: Frontier) -> Frontier:
    return Frontier.from_dict(json.loads(json.dumps(frontier.to_dict())))


def test_a_history_of_0_2_goes_on_where_it_began_at_its_levels() -> None:
    window = render(22, Frontier.from_dict(WRITTEN))
    shown = [message.text for message in window.messages if message.role == "user"]
    assert [text.split()[1] for text in shown] == ["17", "18", "19", "20", "21", "22"]
    results = [message.text for message in window.messages if message.tool_call_id]
    assert results == ["[look: 200 tokens, left out]"] * 4 + ["row 21 ".ljust(200, "r")]
    prefix = window.report.prefix
    assert prefix is not None
    assert prefix.moved is None
    assert window.frontier.digests[:17] == tuple(WRITTEN["digests"][:17])


def test_a_history_of_0_2_that_outgrows_its_room_moves_on_from_there() -> None:
    window: Window | Frontier = Frontier.from_dict(WRITTEN)
    firsts = [68]
    for turns in range(22, 40):
        window = render(turns, window)
        assert not window.over_budget
        firsts.append(window.frontier.starts[0].first)
    assert firsts == sorted(firsts)
    assert firsts[-1] > 68


def test_a_frontier_of_0_2_is_written_in_the_new_form() -> None:
    frontier = Frontier.from_dict(WRITTEN)
    (start,) = frontier.starts
    assert (start.first, start.stubs, start.shorts, start.rooms) == (68, 83, 83, ())
    assert stored(frontier) == frontier
    (written,) = frontier.to_dict()["starts"]
    assert written == {
        "slot": "history",
        "first": 68,
        "digest": "d42ff4502bd8bffa",
        "stubs": 83,
        "shorts": 83,
    }


@pytest.mark.parametrize("turns", [1, 4, 9, 30])
def test_a_stored_frontier_is_the_same_and_gives_the_same_windows(turns: int) -> None:
    window = None
    for number in range(turns + 1):
        window = render(number, window)
    assert window is not None
    frontier = window.frontier
    assert json.loads(json.dumps(frontier.to_dict())) == frontier.to_dict()
    assert stored(frontier) == frontier
    assert render(turns + 1, stored(frontier)) == render(turns + 1, window)


@pytest.mark.parametrize(
    ("written", "error", "why"),
    [
        ([], InvalidType, "must be a mapping"),
        ({**WRITTEN, "version": 2}, InvalidInput, "version 2 cannot be read"),
        ({"version": 1}, InvalidInput, "no frontier that was written here"),
        ({**WRITTEN, "lasting": -1}, InvalidInput, "no frontier that was written here"),
        ({**WRITTEN, "starts": [{"first": -1}]}, InvalidInput, "no frontier"),
        ({**WRITTEN, "starts": [{"slot": "x", "rooms": [-1]}]}, InvalidInput, "no frontier"),
    ],
)
def test_what_is_no_frontier_is_refused(written: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        Frontier.from_dict(written)


@pytest.mark.parametrize("budget", [100, 300])
def test_a_window_over_its_budget_leaves_a_frontier_that_is_read_again(budget: int) -> None:
    slots = Slots(budget, tokenizer=len, trimming=Stepped())
    slots.add("system", "s" * 400, required=True)
    slots.add("history", [user("u" * 30), assistant("a" * 30)])
    slots.add("input", "i" * 50)
    frontier = slots.render().frontier
    assert frontier is not None
    assert Frontier.from_dict(frontier.to_dict()) == frontier
