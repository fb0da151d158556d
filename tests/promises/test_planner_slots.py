"""Priority decides what is in a window; a conversation moves only inside the room that leaves it.

The rules hold for every model's name: a name changes how tokens are counted and how a request is
written. Here one character is one token, and `run` is the agent's work in the current turn.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest

from muntin import Exact, Input, Message, Slots, Stepped, ToolCall, Window, assistant, tool, user
from tests.products import MODELS, NAMES, cover
from tests.promises.composing import Add, compose, slot, texts

every_profile = pytest.mark.parametrize("profile", MODELS)

# Returns the slots of a turn, from its history, its question and its number.
Declare = Callable[[list[Message], Message, int], Sequence[Add]]


def question(turn: int, size: int = 60) -> Message:
    return user(f"{turn} ".ljust(size, "q"))


def answer(turn: int, size: int = 60) -> Message:
    return assistant(f"{turn} ".ljust(size, "a"))


def chat(turns: int, size: int = 60) -> list[Message]:
    return [
        message for turn in range(turns) for message in (question(turn, size), answer(turn, size))
    ]


def steps(count: int, size: int, first: int = 0) -> list[Message]:
    """Return calls with results; a result has `size` characters after `row N: `."""
    messages: list[Message] = []
    for number in range(first, first + count):
        messages.append(assistant(tool_calls=[ToolCall(f"c{number}", "look", f'{{"n":{number}}}')]))
        messages.append(tool(f"c{number}", f"row {number}: " + "r" * size))
    return messages


def stepped(budget: int, *adds: Add, **options: Any) -> Window:
    """Compose a window as interfaces that show a conversation do."""
    return compose(budget, *adds, **{"trimming": Stepped(), "ladder": True, **options})


def talk(
    turns: int, budget: int, declare: Declare, profile: str | None, size: int = 60, first: int = 0
) -> list[Window]:
    """Hold a conversation; return the window of each turn, each planned after the one before."""
    windows: list[Window] = []
    for turn in range(first, first + turns):
        adds = declare(chat(turn, size), question(turn, size), turn)
        previous = windows[-1] if windows else None
        windows.append(stepped(budget, *adds, profile=profile, previous=previous))
    return windows


def sizes(window: Window, *names: str) -> list[int]:
    return [window.report[name].tokens_kept for name in names]


def statuses(window: Window, name: str) -> list[str]:
    return [decision.status for decision in window.report[name].decisions]


def calls_shown(window: Window) -> list[str]:
    return [call.id for message in window.messages for call in message.tool_calls]


# Priority comes before the conversation.


def rag(passages: Callable[[int], int]) -> Declare:
    def declare(history: list[Message], current: Message, turn: int) -> Sequence[Add]:
        return [
            slot("system", "s" * 30, priority=100),
            slot("history", history, priority=10),
            slot("passages", "p" * passages(turn), priority=50),
            slot("input", [current]),
        ]

    return declare


@every_profile
def test_a_history_moves_to_half_of_its_room_grows_to_all_of_it_and_moves_again(profile) -> None:
    windows = talk(10, 4_000, rag(lambda turn: 2_000), profile, first=40)
    history = [sizes(window, "history")[0] for window in windows]
    assert history == [960, 1_080, 1_200, 1_320, 1_440, 1_560, 1_680, 1_800, 960, 1_080]
    assert [sizes(window, "passages") for window in windows] == [[2_000]] * 10


@every_profile
def test_passages_of_a_higher_priority_are_in_every_window_of_a_conversation(profile) -> None:
    windows = talk(40, 4_000, rag(lambda turn: 2_000), profile)
    assert [sizes(window, "passages", "input") for window in windows] == [[2_000, 60]] * 40


@pytest.mark.parametrize(("share", "profile"), cover([0.3, 0.5, 0.9], MODELS))
def test_passages_of_any_changing_size_are_whole(share, profile) -> None:
    def size(turn: int) -> int:
        return int(4_000 * share * (0.4 + 0.06 * ((turn * 7) % 10)))

    windows = talk(25, 4_000, rag(size), profile)
    assert [sizes(window, "passages")[0] for window in windows] == [size(n) for n in range(25)]


@every_profile
def test_a_list_of_messages_with_a_higher_priority_is_whole_too(profile) -> None:
    def declare(history: list[Message], current: Message, turn: int) -> Sequence[Add]:
        passages = [user(f"{turn}.{number} ".ljust(300, "p")) for number in range(6)]
        return [
            slot("history", history, priority=10),
            slot("passages", passages, priority=50, trimming=Exact()),
            slot("input", [current]),
        ]

    windows = talk(40, 4_000, declare, profile)
    assert [window.report["passages"].messages_kept for window in windows] == [6] * 40


@every_profile
def test_between_two_moves_the_history_only_grows_at_its_end(profile) -> None:
    windows = talk(40, 4_000, rag(lambda turn: 2_000), profile)
    shown = [texts(window)[1:-2] for window in windows]
    moves = [
        turn
        for turn, (before, after) in enumerate(pairwise(shown), 1)
        if after[: len(before)] != before
    ]
    # The room holds 15 turns; a move leaves 8 of them.
    assert moves == [16, 24, 32]


@every_profile
def test_one_large_document_empties_the_history_for_one_turn_only(profile) -> None:
    windows = talk(24, 4_000, rag(lambda turn: 3_600 if turn == 20 else 200), profile)
    history = [sizes(window, "history")[0] for window in windows]
    assert history[19] == 19 * 120
    assert 0 < history[20] <= 340
    assert history[21:] == [21 * 120, 22 * 120, 23 * 120]
    assert sizes(windows[20], "passages") == [3_600]


@every_profile
@pytest.mark.parametrize("priority", [1, 10, 20])
def test_a_document_too_large_for_the_window_costs_the_history_nothing(priority, profile) -> None:
    def declare(with_docs: bool) -> Declare:
        def adds(history: list[Message], current: Message, turn: int) -> Sequence[Add]:
            docs = [slot("docs", "d" * 2_000, priority=priority)] if with_docs else []
            return [slot("history", history, priority=10), *docs, slot("input", [current])]

        return adds

    beside = talk(5, 1_000, declare(True), profile, size=16, first=40)
    alone = talk(5, 1_000, declare(False), profile, size=16, first=40)
    assert [window.messages for window in beside] == [window.messages for window in alone]


@every_profile
@pytest.mark.parametrize("ladder", [False, True])
def test_the_same_holds_where_tokens_are_estimated(ladder, profile) -> None:
    history = [
        message
        for turn in range(40)
        for message in (user(f"q{turn} " + "x" * 60), assistant("y" * 60))
    ]

    def shown(docs: str) -> list[str]:
        slots = Slots(
            1_000, tokenizer="chars/4", profile=profile, trimming=Stepped(), ladder=ladder
        )
        slots.add("history", history, priority=10)
        if docs:
            slots.add("docs", docs, priority=1)
        slots.add("input", Input("and?"))
        return texts(slots.render())

    assert shown("d" * 8_000) == shown("")


@every_profile
def test_small_notes_cost_a_history_no_more_than_they_have(profile) -> None:
    def declare(history: list[Message], current: Message, turn: int) -> Sequence[Add]:
        notes = [slot(f"note {number}", "n" * 10) for number in range(2)]
        return [
            slot("system", "s" * 30),
            slot("history", history),
            *notes,
            slot("input", [current]),
        ]

    fills = [window.tokens / 4_000 for window in talk(100, 4_000, declare, profile)][40:]
    assert mean(fills) >= 0.74
    assert max(fills) > 0.95


# Floors.


@every_profile
@pytest.mark.parametrize(("docs", "docs_shown"), [(700, 700), (900, 0)])
def test_a_floor_of_a_history_is_kept_before_a_higher_priority_takes(
    docs, docs_shown, profile
) -> None:
    window = stepped(
        2_000,
        slot("history", chat(40), min_ratio=0.6),
        slot("docs", "d" * docs, priority=5),
        slot("input", [question(40)]),
        profile=profile,
    )
    assert sizes(window, "history", "docs", "input") == [1_200, docs_shown, 60]


@every_profile
@pytest.mark.parametrize("notes", [0, 300])
def test_no_move_takes_a_history_below_its_floor(notes, profile) -> None:
    def declare(history: list[Message], current: Message, turn: int) -> Sequence[Add]:
        note = "n" * (notes and notes + 50 * (turn % 7))
        return [
            slot("history", history, min_ratio=0.6),
            slot("notes", note, priority=5),
            slot("input", [current]),
        ]

    for turn, window in enumerate(talk(80, 2_000, declare, profile, size=90)):
        assert sizes(window, "history")[0] >= min(1_200, 180 * turn), turn
        assert not window.report.fallback


FLOORS = [
    slot("memory", "m" * 340, min_tokens=300, trim_behavior="char", priority=5),
    slot("docs", "d" * 4_000, min_ratio=0.1, trim_behavior="char", priority=3),
    slot("history", [user("h" * 70)] * 12, min_tokens=500, priority=10),
    slot("input", Input("and?")),
]


@every_profile
@pytest.mark.parametrize("trimming", [Exact(), Stepped()])
@pytest.mark.parametrize("ratio", [0.1, 0.2])
def test_system_text_that_can_never_fit_costs_no_other_slot_anything(
    ratio, trimming, profile
) -> None:
    def composed(*first: Add) -> Window:
        docs = slot("docs", "d" * 4_000, min_ratio=ratio, trim_behavior="char", priority=3)
        adds = [*first, FLOORS[0], docs, *FLOORS[2:]]
        return compose(1_000, *adds, profile=profile, trimming=trimming)

    window, without = composed(slot("system", "S" * 1_500, priority=100)), composed()
    assert window.messages == without.messages
    assert window.report.fallback == without.report.fallback


@every_profile
@pytest.mark.parametrize("trimming", [Exact(), Stepped()])
def test_floors_that_fit_hold_beside_system_text_that_cannot_fit(trimming, profile) -> None:
    system = slot("system", "S" * 1_500, priority=100)
    window = compose(1_000, system, *FLOORS, profile=profile, trimming=trimming)
    assert not window.report.fallback
    assert sizes(window, "system", "memory", "docs", "history", "input") == [0, 336, 100, 560, 4]


@every_profile
@pytest.mark.parametrize("trimming", [Exact(), Stepped()])
def test_a_floor_that_a_slot_cannot_use_keeps_no_room_and_starts_no_fallback(
    trimming, profile
) -> None:
    window = compose(
        1_000,
        slot("docs", "d" * 900, min_tokens=700, trim_behavior="slot", priority=3),
        slot("memory", "m" * 400, min_tokens=400, priority=5),
        slot("history", chat(4), priority=1),
        slot("input", [question(4)]),
        profile=profile,
        trimming=trimming,
    )
    assert not window.report.fallback
    assert sizes(window, "docs", "memory", "history", "input") == [0, 400, 480, 60]


# System text.

OTHERS: list[dict[str, Any]] = [{"position": 10}, {"position": -1}, {"tier": "stable"}]


@every_profile
@pytest.mark.parametrize("options", OTHERS)
def test_no_option_of_another_slot_moves_leading_system_text(options, profile) -> None:
    window = compose(
        1_000,
        slot("system", "You are a clerk.", role="system", priority=100),
        slot("history", [user("hi"), assistant("hello")]),
        slot("style", "Answer in French.", **options),
        slot("input", Input("Who are you?")),
        profile=profile,
    )
    assert (window.messages[0].role, window.messages[0].text) == ("system", "You are a clerk.")
    to_anthropic: Any = window.anthropic()
    assert "You are a clerk." in str(to_anthropic.get("system"))
    assert "You are a clerk." not in str(to_anthropic["messages"])
    to_google: Any = window.google()
    assert "You are a clerk." in str(to_google["config"].get("system_instruction"))
    assert "You are a clerk." not in str(to_google["contents"])
    to_openai: Any = window.openai()
    assert to_openai["messages"][0]["content"] == "You are a clerk."


@every_profile
def test_positions_order_what_stands_behind_leading_system_text(profile) -> None:
    window = compose(
        1_000,
        slot("system", "rules"),
        slot("history", [user("hi"), assistant("hello")]),
        slot("second", "second", position=20),
        slot("first", "first", position=10),
        slot("input", Input("Who are you?")),
        profile=profile,
    )
    assert texts(window) == ["rules", "first", "second", "hi", "hello", "Who are you?"]


@every_profile
def test_of_equal_priorities_system_text_goes_last(profile) -> None:
    window = compose(
        2_000,
        slot("system", "s" * 71),
        slot("history", chat(40)),
        slot("docs", "d" * 100, priority=5),
        slot("input", [question(40)]),
        profile=profile,
    )
    assert sizes(window, "system", "docs", "input") == [71, 100, 60]


@every_profile
def test_a_blank_slot_with_a_priority_does_not_unprotect_system_text(profile) -> None:
    window = compose(
        500,
        slot("system", "s" * 480),
        slot("history", chat(4)),
        slot("blank", " ", priority=3),
        slot("input", [question(4, 30)]),
        profile=profile,
    )
    assert sizes(window, "system", "input") == [480, 30]
    assert window.over_budget


# A text over its ceiling.


@every_profile
def test_a_text_over_its_ceiling_is_dropped_and_a_warning_says_how_to_cut_it(profile) -> None:
    window = compose(2_300, slot("memory", "m" * 1_125, max_ratio=0.2), profile=profile)
    assert window.messages == ()
    assert window.report["memory"].reason == "over_cap"
    (warning,) = window.report.warnings
    assert "memory" in warning
    assert 'trim_behavior="char"' in warning
    assert warning in str(window.report)


@every_profile
def test_a_text_that_its_author_lets_be_cut_has_its_ceiling_and_no_warning(profile) -> None:
    window = compose(
        2_300,
        slot("memory", "m" * 1_125, max_ratio=0.2, trim_behavior="char"),
        slot("note", "n" * 100, max_ratio=0.2),
        profile=profile,
    )
    assert sizes(window, "memory", "note") == [460, 100]
    assert not window.report.warnings


# Plain chats.


@every_profile
@pytest.mark.parametrize("ladder", [False, True])
def test_shortening_never_keeps_less_than_dropping_would(ladder, profile) -> None:
    history = [user("a" * 2_000), assistant("b" * 2_000), user("c" * 1_800), assistant("d" * 200)]
    window = stepped(
        4_500,
        slot("history", history),
        slot("input", Input("q" * 500)),
        profile=profile,
        ladder=ladder,
    )
    assert texts(window) == ["c" * 1_800, "d" * 200, "q" * 500]


@every_profile
@pytest.mark.parametrize("trimming", [Exact(), Stepped()])
def test_a_text_is_not_cut_where_that_shows_no_more_messages(trimming, profile) -> None:
    window = stepped(
        8_000,
        slot("memory", "m" * 2_300, priority=50),
        slot("history", [*chat(3), question(3, 3_900), answer(3, 4_100)]),
        slot("input", [question(4)]),
        trimming=trimming,
        profile=profile,
    )
    assert sizes(window, "memory", "history", "input") == [2_300, 4_100, 60]


@every_profile
def test_a_conversation_that_moves_leaves_room_for_its_next_turns(profile) -> None:
    window = stepped(
        8_000,
        slot("memory", "m" * 2_300, priority=50),
        slot("history", [*chat(3), question(3, 3_900), answer(3, 5_000)]),
        slot("input", [question(4)]),
        trimming=Stepped(),
        profile=profile,
    )
    memory, history, _ = sizes(window, "memory", "history", "input")
    assert memory == 2_300
    assert 1_000 < history < 0.75 * (8_000 - 2_300 - 60)


@every_profile
@pytest.mark.parametrize("trimming", [Exact(), Stepped()])
def test_messages_behind_the_input_are_no_run_unless_the_assistant_speaks(
    trimming, profile
) -> None:
    passages = [user(f"{number} ".ljust(300, "p")) for number in range(6)]
    window = stepped(
        1_000,
        slot("history", chat(5), priority=10),
        slot("input", [question(5)]),
        slot("passages", passages),
        trimming=trimming,
        profile=profile,
    )
    assert sizes(window, "history", "input", "passages") == [600, 60, 300]
    assert texts(window)[-1] == passages[-1].text
    assert not window.over_budget


@every_profile
@pytest.mark.parametrize("share", [0.08, 0.16, 0.26, 0.32, 0.34, 0.4])
def test_the_newest_turn_is_in_every_window_of_a_plain_chat(share, profile) -> None:
    size = int(4_000 * share / 2)

    def declare(history: list[Message], current: Message, turn: int) -> Sequence[Add]:
        return [slot("history", history), slot("input", [current])]

    for turn, window in enumerate(talk(24, 4_000, declare, profile, size)):
        newest = [*chat(turn, size)[-2:], question(turn, size)]
        assert texts(window)[-len(newest) :] == texts(newest), turn


@every_profile
@pytest.mark.parametrize("share", [0.03, 0.08, 0.16, 0.25, 0.3])
def test_a_plain_chat_fills_most_of_its_window_whatever_the_size_of_its_turns(
    share, profile
) -> None:
    size = int(4_000 * share / 2)

    def declare(history: list[Message], current: Message, turn: int) -> Sequence[Add]:
        return [slot("history", history), slot("input", [current])]

    windows = talk(60, 4_000, declare, profile, size, first=30)
    assert mean(window.tokens / 4_000 for window in windows) >= 0.7


@every_profile
def test_a_long_answer_shows_its_ends_beside_the_turns_before_it(profile) -> None:
    long = "BEGIN " + "x" * 8_990 + " END"
    history = [*chat(10), user("Tell me everything."), assistant(long)]
    window = stepped(
        8_000, slot("history", history), slot("input", Input("shorter, please")), profile=profile
    )
    shown = texts(window)
    assert shown[:21] == texts(history[:21])
    assert shown[21].startswith("BEGIN ")
    assert shown[21].endswith(" END")
    assert len(shown[21]) <= 2_000
    assert shown[22:] == ["shorter, please"]


@every_profile
def test_results_of_answered_turns_become_stubs_before_any_turn_leaves(profile) -> None:
    history = [*chat(6), question(6), *steps(3, 300), answer(6)]
    adds = slot("system", "s" * 200), slot("history", history), slot("input", [question(7, 8)])
    window = stepped(1_200, *adds, trimming=Exact(), profile=profile)
    assert window.report["history"].messages_kept == len(history)
    assert statuses(window, "history") == ["kept"] * 13 + ["stubbed"] * 3 + ["kept"]


# The run.


@every_profile
def test_old_results_of_a_run_become_stubs_before_turns_of_the_history_leave(profile) -> None:
    window = stepped(
        6_000,
        slot("history", chat(10)),
        slot("input", [question(10)]),
        slot("run", steps(8, 1_000), run=True),
        profile=profile,
    )
    assert sizes(window, "history", "input") == [1_200, 60]
    assert statuses(window, "run") == ["stubbed"] * 5 + ["kept"] * 3


@every_profile
def test_old_results_of_a_run_become_stubs_before_a_slot_of_a_higher_priority_goes(profile) -> None:
    window = stepped(
        6_000,
        slot("history", chat(3), priority=10),
        slot("memory", "m" * 1_125, priority=50),
        slot("input", [question(3, 50)]),
        slot("run", steps(8, 1_000), run=True),
        profile=profile,
    )
    assert sizes(window, "history", "memory", "input") == [360, 1_125, 50]
    assert statuses(window, "run") == ["stubbed"] * 5 + ["kept"] * 3
    # Three groups of 1,018, and five stubs of one line each.
    assert 3_054 < sizes(window, "run")[0] < 3_054 + 5 * 60


@every_profile
def test_an_input_larger_than_the_window_leaves_half_of_it_to_the_run(profile) -> None:
    window = stepped(
        4_000,
        slot("history", chat(10)),
        slot("input", Input("BEGIN" + "i" * 4_992 + "END")),
        slot("run", steps(2, 100), run=True),
        profile=profile,
    )
    history, shown, run = sizes(window, "history", "input", "run")
    assert (history, run) == (1_200, 236)
    assert 1_900 < shown <= 2_000
    assert window.input_cut
    text = texts(window)[20]
    assert text.startswith("BEGIN")
    assert text.endswith("END")


@every_profile
def test_a_cut_input_stays_the_same_for_the_whole_turn(profile) -> None:
    previous = None
    shown = set()
    for count in range(6):
        previous = stepped(
            4_000,
            slot("history", chat(10)),
            slot("input", Input("BEGIN" + "i" * 4_992 + "END")),
            slot("run", steps(count, 500), run=True),
            profile=profile,
            previous=previous,
        )
        shown.add(next(text for text in texts(previous) if text.startswith("BEGIN")))
        assert calls_shown(previous) == [f"c{number}" for number in range(count)]
    assert len(shown) == 1
    assert len(shown.pop()) <= 2_000


@every_profile
def test_an_input_larger_than_the_window_has_all_of_it_where_there_is_no_run(profile) -> None:
    window = stepped(
        4_000, slot("history", chat(10)), slot("input", Input("i" * 5_000)), profile=profile
    )
    history, shown = sizes(window, "history", "input")
    assert history == 0
    assert 3_900 < shown <= 4_000


@every_profile
def test_an_agent_sees_every_call_of_its_run_and_the_newest_results_whole(profile) -> None:
    history: list[Message] = []
    previous = None
    for turn in range(8):
        first = turn * 4
        for count in range(5):
            run = steps(count, 600, first)
            previous = stepped(
                6_000,
                slot("system", "s" * 30, priority=100),
                slot("history", history, priority=10),
                slot("input", [question(turn)]),
                slot("run", run, run=True),
                profile=profile,
                previous=previous,
            )
            assert previous.tokens <= 6_000
            shown = calls_shown(previous)
            assert shown[len(shown) - count :] == [f"c{first + n}" for n in range(count)]
            assert texts(previous)[-len(run[-6:]) :] == texts(run[-6:]) or not run
        history += [question(turn), *run, answer(turn)]


@every_profile
def test_the_result_just_received_is_shown_in_a_run_many_times_the_size_of_the_window(
    profile,
) -> None:
    received = [2_000, 100, 1_500, 400, 6_000, 1_000, 100]
    history: list[Message] = []
    previous = None
    for turn in range(2):
        run: list[Message] = []
        for step in range(24):
            size = received[step % len(received)]
            run += steps(1, size, turn * 24 + step)
            previous = stepped(
                4_000,
                slot("system", "s" * 30, priority=100),
                slot("history", history, priority=10),
                slot("input", [question(turn)]),
                slot("run", run, run=True),
                profile=profile,
                previous=previous,
            )
            assert previous.tokens <= 4_000
            newest = texts(previous)[-1]
            assert newest.startswith(f"row {turn * 24 + step}:")
            assert len(newest) >= min(size, 1_000) / 2, (turn, step)
            shown = calls_shown(previous)[-step - 1 :]
            assert shown == [f"c{turn * 24 + number}" for number in range(step + 1)]
        history += [question(turn), *run, answer(turn)]


EARLIER_CALLS = re.compile(r"\[(\d+) earlier calls are not shown: (.*)\]")


@every_profile
def test_a_line_says_truthfully_which_calls_of_a_run_are_not_shown(profile) -> None:
    calls = [("look", "read")[number % 3 == 0] for number in range(120)]
    run: list[Message] = []
    previous = None
    hidden_before = 0
    for number, name in enumerate(calls):
        run.append(assistant(tool_calls=[ToolCall(f"c{number}", name, f'{{"n":{number}}}')]))
        run.append(tool(f"c{number}", f"row {number}: fine"))
        if number < 40 or number % 8:
            continue
        previous = stepped(
            1_500,
            slot("input", Input("Look at all of them.")),
            slot("run", run, run=True),
            profile=profile,
            previous=previous,
        )
        assert previous.tokens <= 1_500
        shown = calls_shown(previous)
        assert shown == [f"c{place}" for place in range(number + 1)][-len(shown) :]
        hidden = number + 1 - len(shown)
        assert hidden >= hidden_before
        hidden_before = hidden
        if hidden:
            lines = re.findall(EARLIER_CALLS, "\n".join(texts(previous)))
            assert [int(total) for total, _ in lines] == [hidden]
            by_name = sorted(f"{name} {count}" for name, count in Counter(calls[:hidden]).items())
            assert sorted(lines[0][1].split(", ")) == by_name
    assert hidden_before > 40


# Results.

LOG = "\n".join(f"{number:04} all is well in this line of the log" for number in range(900))


@every_profile
@pytest.mark.parametrize("options", [{}, {"trimming": Stepped(), "ladder": True}])
@pytest.mark.parametrize("name", ["run", "history"])
def test_a_large_result_is_whole_where_nothing_must_give(name, options, profile) -> None:
    large = steps(1, 24_000)
    if name == "run":
        adds = [slot("input", Input("Read it.")), slot("run", large, run=True)]
    else:
        history = [user("Read it."), *large, assistant("Done.")]
        adds = [slot("history", history), slot("input", Input("Thanks."))]
    window = compose(32_000, *adds, profile=profile, **options)
    assert large[1].text in texts(window)
    assert set(statuses(window, name)) == {"kept"}


@every_profile
def test_results_are_cut_to_a_quarter_of_the_window_where_something_must_give(profile) -> None:
    window = stepped(
        32_000,
        slot("input", Input("Read it.")),
        slot("run", steps(2, 24_000), run=True),
        profile=profile,
    )
    results = [message.text for message in window.messages if message.role == "tool"]
    assert calls_shown(window) == ["c0", "c1"]
    assert [7_500 < len(text) <= 8_000 for text in results] == [True, True]


@every_profile
def test_a_result_is_cut_at_line_ends(profile) -> None:
    call = assistant(tool_calls=[ToolCall("c", "read", "{}")])
    window = stepped(
        8_000,
        slot("input", Input("Read it.")),
        slot("run", [call, tool("c", LOG)], run=True),
        profile=profile,
    )
    assert_whole_lines(texts(window)[-1])


@every_profile
def test_a_long_input_is_cut_at_line_ends(profile) -> None:
    window = stepped(8_000, slot("input", Input(LOG)), profile=profile)
    assert window.input_cut
    assert_whole_lines(texts(window)[0])


def assert_whole_lines(cut: str) -> None:
    """Fail unless a cut text has whole lines of the log, of both ends, and one line between."""
    lines = LOG.splitlines()
    shown = [line for line in cut.splitlines() if line]
    assert shown[0] == lines[0]
    assert shown[-1] == lines[-1]
    assert len([line for line in shown if line not in lines]) == 1


# One planner.


def declarations(turn: int) -> list[Sequence[Add]]:
    """Return the slots of several windows at this turn of a conversation with tools."""
    history = [
        message
        for number in range(turn)
        for message in (question(number), *steps(2, 300, number * 2), answer(number, 90))
    ]
    current = slot("input", [question(turn)])
    system = slot("system", "s" * 30, priority=100)
    run = slot("run", steps(3, 250, turn * 2), run=True)
    past = slot("history", history, priority=10)
    return [
        [system, past, current, run],
        [system, past, slot("docs", "d" * 1_500, priority=50), current, run],
        [past, slot("notes", "n" * 40, max_ratio=0.2), current],
        [slot("history", history, min_ratio=0.5), slot("docs", "d" * 500, priority=5), current],
    ]


@pytest.mark.parametrize("profile", NAMES)
@pytest.mark.parametrize("number", range(4))
def test_the_window_is_the_same_for_every_model_that_counts_alike(number, profile) -> None:
    named, unnamed = None, None
    for turn in range(0, 20, 2):
        adds = declarations(turn)[number]
        named = stepped(4_000, *adds, profile=profile, previous=named)
        unnamed = stepped(4_000, *adds, previous=unnamed)
        assert named.messages == unnamed.messages, turn


@every_profile
def test_a_result_in_another_slot_than_its_call_is_sent_once(profile) -> None:
    calls = [ToolCall("c0", "look", "{}"), ToolCall("c1", "look", "{}")]
    window = stepped(
        1_000,
        slot("history", [question(0), assistant(None, tool_calls=calls), tool("c0", "one")]),
        slot("talk", [user("go on"), tool("c1", "two"), question(1)]),
        trimming=Stepped(),
        profile=profile,
    )
    results = [message.tool_call_id for message in window.messages if message.role == "tool"]
    assert Counter(results) == {"c0": 1, "c1": 1}
    assert sum(row.messages_asked for row in window.report.slots) == 6
