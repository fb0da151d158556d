"""Stepped trimming: a frontier that moves rarely and far, and is the same after a restart."""

from __future__ import annotations

import gc
import json
import os
import random
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import (
    Exact,
    Group,
    InvalidInput,
    Message,
    Profile,
    Slots,
    Stepped,
    ToolCall,
    Window,
    assistant,
    system,
    tool,
    user,
)
from muntin.core.planning.frontier import Frontier, Start
from muntin.core.planning.past import locate
from muntin.core.planning.step import cost, least_kept
from muntin.core.profile import Caching
from muntin.errors import InvalidType

EXAMPLES = int(os.environ.get("MUNTIN_EXAMPLES", "60"))
CACHED = Profile("test/model", caching=Caching(50, 1.25, 0.1, breakpoints=4, lookback=20))


def size(text: str) -> int:
    return len(text)


def talk(turns: int, each: int = 10) -> list[Message]:
    """Turns of a user's and an assistant's message, each of so many characters, all different."""
    messages = []
    for number in range(turns):
        messages.append(user(f"u{number}".ljust(each, ".")))
        messages.append(assistant(f"a{number}".ljust(each, ".")))
    return messages


def compose(
    history: Sequence[Message],
    previous: Window | Frontier | None = None,
    *,
    budget: int = 1_000,
    trimming: Stepped | Exact = Stepped(),  # noqa: B008
    docs: str | None = None,
    text: str = "hello",
    **options: Any,
) -> Window:
    slots = Slots(budget, tokenizer=size, profile=CACHED, trimming=trimming, previous=previous)
    slots.add("system", "s" * 100)
    slots.add("history", history, **options)
    slots.add("docs", docs, max_tokens=200)
    slots.add("input", text)
    return slots.render()


def first(window: Window) -> int:
    return window.frontier.starts[0].first


def kept(window: Window) -> int:
    return next(slot.tokens_kept for slot in window.report.slots if slot.name == "history")


def again(window: Window) -> Frontier:
    """What a new process reads of a stored session."""
    return Frontier.from_dict(json.loads(json.dumps(window.frontier.to_dict())))


# What 1,000 tokens leave: 100 of system text, 200 for docs; the input counts as history.
HIGH = 700
ASKED = 5


def test_a_history_grows_to_its_high_mark_and_then_steps_to_a_turn() -> None:
    history = talk(34)  # 680, and 5 of the input
    window = compose(history)
    assert first(window) == 0
    assert kept(window) == 680
    history += talk(1)
    stepped = compose(history, window)
    assert first(stepped) == 34  # 360 left: half of the high level, and half a turn
    assert stepped.messages[1] == history[34]
    assert kept(stepped) == 360
    assert stepped.report.slots[1].reason == "stepped"


def test_the_frontier_stays_until_the_high_mark_is_passed_again() -> None:
    window, moves, sizes = None, [], []
    for turn in range(200):
        before = first(window) if window else 0
        window = compose(talk(turn), window)
        sizes.append(kept(window) + ASKED)
        if first(window) != before:
            moves.append(turn)
    steps = [b - a for a, b in pairwise(moves)]
    assert set(steps) == {15, 17}  # by turns, for the average's sake
    assert max(sizes) <= HIGH
    whole = sizes[moves[0] : moves[-1]]
    assert 0.75 * HIGH <= sum(whole) / len(whole) <= 0.77 * HIGH


def test_a_fixed_low_mark_is_kept_to() -> None:
    window = compose(talk(40), trimming=Stepped(low=0.2))
    assert kept(window) == 120  # with the input, of 140
    assert kept(compose(talk(40), trimming=Stepped(low=0))) == 680  # no group is that small


def test_retaining_more_steps_less_far() -> None:
    sizes = [kept(compose(talk(40), trimming=Stepped(retain=r))) for r in (0.5, 0.75, 0.9, 1)]
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.1 * HIGH
    assert sizes[-1] > 0.95 * HIGH


def test_docs_of_any_size_do_not_move_the_frontier() -> None:
    def frontiers(seed: int) -> list[int]:
        sizes = random.Random(seed)
        window, found = None, []
        for turn in range(120):
            window = compose(talk(turn), window, docs="d" * sizes.randrange(260))
            assert window.tokens <= 1_000
            found.append(first(window))
        return found

    assert frontiers(1) == frontiers(2) == frontiers(3)


def random_session(trimming: Stepped) -> Iterator[tuple[Start, int]]:
    """400 turns with docs of random size and a restart before each: where the history begins, and
    how many tokens were said so far."""
    chance = random.Random(7)
    history: list[Message] = []
    window: Window | None = None
    said = 0
    for turn in range(400):
        docs = "d" * chance.randrange(250)
        before = again(window) if window else None
        window = compose(history, before, docs=docs, trimming=trimming)
        yield window.frontier.starts[0], said
        added = [user(f"{turn}?" + "u" * chance.randrange(40)), assistant("a" * 30)]
        history += added
        said += sum(size(message.text) for message in added)


@pytest.mark.parametrize("trimming", [Stepped(), Stepped(retain=0.9), Stepped(low=0.5)])
def test_400_turns_with_random_retrieval_move_at_most_once_per_high_less_low_mark(
    trimming: Stepped,
) -> None:
    before, at, moves, allowed = Start("history"), 0, 0, 0
    for start, said in random_session(trimming):
        assert start.first >= before.first
        if start.first != before.first:
            # The low level is the one that was given, or what the last step left.
            low = before.base if trimming.low is None else int(trimming.low * HIGH)
            assert said - at > HIGH - low
            moves, allowed, at = moves + 1, allowed + HIGH - low, said
            before = start
    assert moves > 30
    assert allowed < said


TURNS = st.lists(
    st.tuples(
        st.integers(1, 120),  # user
        st.lists(st.integers(0, 80), max_size=3),  # tool results
        st.integers(0, 120),  # answer
        st.integers(0, 300),  # docs
        st.booleans(),  # a restart
    ),
    min_size=1,
    max_size=40,
)


def session(turns: Sequence[Any], restart: bool | None, **options: Any) -> Iterator[Window]:
    history: list[Message] = []
    window: Window | None = None
    for number, (asked, results, answered, docs, flag) in enumerate(turns):
        again_now = flag if restart is None else restart
        before = again(window) if window and again_now else window
        text = f"{number}?".ljust(asked, "u")
        window = compose(history, before, docs="d" * docs or None, text=text, **options)
        yield window
        history.append(user(text))
        for n, result in enumerate(results):
            call = ToolCall(f"{number}.{n}", "look", "{}")
            history += [assistant(tool_calls=[call]), tool(call.id, "r" * result)]
        if answered:
            history.append(assistant("a" * answered))


@settings(max_examples=EXAMPLES, deadline=None)
@given(TURNS)
def test_a_restart_between_any_two_turns_changes_no_byte(turns: Any) -> None:
    runs = [list(session(turns, restart)) for restart in (False, True, None)]
    sent = [[(w.messages, w.tools, w.breakpoints, w.tokens) for w in run] for run in runs]
    assert sent[0] == sent[1] == sent[2]
    told = [[w.report.to_dict() for w in run] for run in runs]
    assert told[0] == told[1] == told[2]
    assert [w.frontier for w in runs[0]] == [w.frontier for w in runs[1]]


@settings(max_examples=EXAMPLES, deadline=None)
@given(TURNS, st.integers(360, 1_500))  # the system text and 256 tokens of the question fit
def test_the_frontier_never_moves_backward_and_the_budget_holds(turns: Any, budget: int) -> None:
    last = 0
    for window in session(turns, False, budget=budget):
        assert first(window) >= last
        last = first(window)
        assert window.tokens <= budget
        assert not window.over_budget
        assert window.messages[0] == system("s" * 100)
        assert window.report.tokens == window.tokens
        assert len(window.messages[-1].text) >= 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(TURNS)
def test_the_history_is_always_whole_from_its_frontier_on(turns: Any) -> None:
    """And the question of a run that it begins in stays in front of it."""
    for window in session(turns, False):
        report = window.report.slots[1]
        asks = window.frontier.starts[0].asks
        assert report.messages_kept == report.messages_asked - first(window) + asks
        assert window.origins.count(1) == report.messages_kept


@settings(max_examples=EXAMPLES, deadline=None)
@given(TURNS, st.booleans())
def test_exact_trimming_does_not_look_at_the_turn_before(turns: Any, restart: bool) -> None:
    exact = list(session(turns, restart, trimming=Exact()))
    history: list[Message] = []
    for window, (_, results, answered, docs, _flag) in zip(exact, turns, strict=True):
        text = window.messages[-1].text
        alone = compose(history, None, trimming=Exact(), docs="d" * docs or None, text=text)
        assert alone.messages == window.messages
        assert alone.tokens == window.tokens
        history.append(user(text))
        number = sum(m.role == "user" for m in history) - 1
        for n, result in enumerate(results):
            call = ToolCall(f"{number}.{n}", "look", "{}")
            history += [assistant(tool_calls=[call]), tool(call.id, "r" * result)]
        if answered:
            history.append(assistant("a" * answered))


def test_other_volatile_slots_give_first_whatever_their_priority() -> None:
    slots = Slots(200, tokenizer=size, trimming=Stepped())
    slots.add("history", talk(7), priority=1)  # 140 and 120; the high level is 200 - 50
    slots.add("docs", [user("d" * 10) for _ in range(9)], priority=9, trimming=Exact())
    slots.add("input", "i" * 120)
    window = slots.render()
    rows = {slot.name: slot for slot in window.report.slots}
    assert rows["history"].tokens_kept == 20
    assert rows["docs"].tokens_kept == 60
    assert rows["input"].tokens_kept == 120


def test_a_history_that_must_give_more_steps_and_stays_there() -> None:
    history = talk(20)  # 400 of 700
    window = compose(history)
    squeezed = compose(history, window, text="i" * 800)
    assert squeezed.tokens <= 1_000
    assert kept(squeezed) <= 100
    assert not squeezed.over_budget
    after = compose(history, squeezed)
    assert first(after) == first(squeezed) > 0


def test_a_long_turn_is_cut_between_its_tool_groups() -> None:
    history = [user("go")]
    for number in range(40):
        call = ToolCall(str(number), "look", "{}")
        history += [assistant(tool_calls=[call]), tool(call.id, "r" * 20)]
    window = compose(history)
    assert 0 < kept(window) <= HIGH
    assert window.messages[1] == history[0]  # what was asked for stays
    assert window.messages[2].tool_calls
    assert first(window) % 2 == 1


def test_a_group_larger_than_the_low_mark_is_kept_below_the_high_mark() -> None:
    history = [*talk(20), user("u" * 600), assistant("a" * 20)]
    assert kept(compose(history)) == 620
    nothing = compose([*talk(20), user("u" * 800)])
    assert kept(nothing) == 0
    assert first(nothing) == 41
    assert kept(compose([*talk(20), user("u" * 800), *talk(2)], nothing)) == 40


def test_a_list_that_lost_its_beginning_is_found_again() -> None:
    history = talk(40)
    window = compose(history)
    begin = window.messages[1]
    shorter = compose([*history[10:], *talk(1)], window)
    assert shorter.messages[1] == begin
    assert first(shorter) == first(window) - 10
    longer = compose([*talk(3), *history], window)
    assert longer.messages[1] == begin


def test_positions_find_the_frontier_even_if_its_message_is_gone_or_edited() -> None:
    history = [replace(message, at=float(n)) for n, message in enumerate(talk(30))]
    window = compose(history)
    at = first(window)
    edited = [*history[:at], replace(history[at], content="edited"), *history[at + 1 :]]
    assert compose(edited, window).messages[1].text == "edited"
    gone = [*history[5:at], *history[at + 1 :]]
    assert compose(gone, window).messages[1] == history[at + 1]


def test_another_conversation_begins_anew_and_the_report_says_so() -> None:
    window = compose(talk(40))
    other = [user(f"other {n}") for n in range(30)]
    fresh = compose(other, window)
    assert first(fresh) == 0
    assert kept(fresh) == sum(len(message.text) for message in other)
    assert fresh.report.prefix is not None
    assert any("begins anew" in warning for warning in fresh.report.prefix.warnings)
    assert "begins anew" in str(fresh.report)
    dated = [replace(message, at=float(n)) for n, message in enumerate(talk(40))]
    restarted = compose(dated[:4], compose(dated))
    assert kept(restarted) == 40


def test_two_histories_of_one_name_have_frontiers_of_their_own() -> None:
    def both(turns: int, previous: Window | None = None) -> Window:
        slots = Slots(1_000, tokenizer=size, trimming=Stepped(), previous=previous)
        slots.add("talk", talk(turns))
        slots.add("talk", [user(f"n{n:03}") for n in range(turns)], max_tokens=100)
        slots.add("input", "?")
        return slots.render()

    window = both(60)
    starts = window.frontier.starts
    assert [(start.slot, start.number) for start in starts] == [("talk", 0), ("talk", 1)]
    rows = window.report.slots
    assert rows[0].tokens_kept <= 650
    assert rows[1].tokens_kept <= 100
    assert both(60, window).messages == window.messages


def test_interleaved_histories_step_and_stay() -> None:
    group = Group("all", interleave=True)

    def both(turns: int, previous: Window | Frontier | None = None) -> Window:
        slots = Slots(600, tokenizer=size, trimming=Stepped(), previous=previous)
        said = [replace(m, at=float(n)) for n, m in enumerate(talk(turns))]
        noted = [replace(user(f"n{n:03}"), at=2.0 * n + 1.5) for n in range(turns)]
        slots.add("talk", said, group=group)
        slots.add("notes", noted, group=group)
        slots.add("input", "?")
        return slots.render()

    window, moves = both(1), 0
    for turns in range(2, 90):
        following = both(turns, again(window))
        moves += following.frontier.starts[0].first != window.frontier.starts[0].first
        assert following.tokens <= 600
        window = following
    assert 0 < moves < 18


def test_reading_stops_at_the_frontier() -> None:
    class Counted(list[Message]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            self.reads += 1
            return super().__getitem__(index)

    history = talk(5_000)
    window = compose(history)
    counted = Counted(history)
    compose(counted, window)
    assert counted.reads < 150


def test_a_marker_says_what_is_missing_and_stays_the_same() -> None:
    def line(cut: Any) -> str:
        return f"[{cut.messages} earlier]"

    window = compose(talk(40), marker=line)
    assert window.messages[1].text == f"[{first(window)} earlier]"
    following = compose(talk(41), window, marker=line)
    assert following.messages[: len(window.messages) - 1] == window.messages[:-1]


def test_system_messages_in_the_middle_do_not_come_and_go() -> None:
    history = talk(8)
    history.insert(3, system("note"))
    history += talk(200)
    window = compose(history)
    for turns in range(201, 215):
        following = compose([*history[:17], *talk(turns)], again(window))
        assert following.report.prefix is not None
        moved = following.report.prefix.moved
        assert moved is None or moved.reason == "stepped"
        window = following


def test_windows_do_not_keep_each_other_alive() -> None:
    window = compose(talk(1))
    oldest = weakref.ref(window)
    for turns in range(2, 5):
        window = compose(talk(turns), window)
    gc.collect()
    assert oldest() is None


def test_only_lists_of_messages_step() -> None:
    slots = Slots(100, tokenizer=size, trimming=Stepped())
    slots.add("system", [system("s")])
    slots.add("one", user("1"))
    slots.add("text", "2")
    slots.add("stable", [user("3")], tier="stable")
    slots.add("required", [user("4")], required=True)
    slots.add("cut", [user("5")], trim_behavior="char")
    slots.add("search", [user("6")], trimming=Exact())
    slots.add("history", [user("7")])
    slots.add("volatile", [user("8")], tier="volatile")
    slots.add("input", [user("9")])
    names = [start.slot for start in slots.render().frontier.starts]
    assert names == ["history", "volatile"]


def test_one_slot_alone_may_step() -> None:
    slots = Slots(100, tokenizer=size)
    slots.add("facts", [user("1")])
    slots.add("history", talk(9), tier="slow-changing", trimming=Stepped(low=0.5))
    window = slots.render()
    assert [start.slot for start in window.frontier.starts] == ["history"]


@pytest.mark.parametrize(
    "options",
    [
        {"content": "text"},
        {"content": [user("1")], "required": True},
        {"content": [user("1")], "trim_behavior": "char"},
        {"content": [user("1")], "name": "input"},
    ],
)
def test_what_cannot_step_is_refused_by_name(options: dict[str, Any]) -> None:
    slots = Slots(100)
    options = {"name": "it", **options}
    with pytest.raises(InvalidInput, match=f"slot {options['name']!r}: trimming"):
        slots.add(**options, trimming=Stepped())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"low": 1}, InvalidInput),
        ({"low": -0.1}, InvalidInput),
        ({"low": float("nan")}, InvalidInput),
        ({"low": "half"}, InvalidType),
        ({"retain": 1.1}, InvalidInput),
        ({"retain": None}, InvalidType),
    ],
)
def test_marks_out_of_range_are_refused(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="Stepped"):
        Stepped(**options)


def test_wrong_trimming_and_previous_are_refused() -> None:
    with pytest.raises(InvalidType, match="trimming"):
        Slots(100, trimming="stepped")  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="previous"):
        Slots(100, previous={"starts": []})  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="slot 'it': trimming"):
        Slots(100).add("it", [user("1")], trimming="stepped")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [[], {}, {"version": 2}, {"version": 1}, {"version": 1, "starts": [{"slot": 1, "no": 2}]}],
)
def test_a_frontier_that_was_not_written_here_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput, match="frontier"):
        Frontier.from_dict(data)


def test_the_low_mark_leaves_the_cache_minimum_where_that_is_cheaper() -> None:
    growth = 10
    rules = Caching(1_000, 1.25, 0.1)
    assert least_kept(Stepped(), 1_200) == 600
    # With nothing before it, 600 tokens would be sent uncached 40 times.
    assert cost(1_000, 1_200, growth, 0, rules) < cost(600, 1_200, growth, 0, rules)
    assert cost(600, 1_200, growth, 400, rules) < cost(1_000, 1_200, growth, 400, rules)


def test_locating_looks_near_where_the_message_was() -> None:
    items = talk(3_000)
    start = compose(items, budget=2_000).frontier.starts[0]
    assert locate(items, start) == start.first
    far = [*items[4_000:], *[user("new")] * 3_000]
    assert locate(far, start) is None  # too far to look
    assert locate(items[500:], start) == start.first - 500
    assert locate([], start) is None
