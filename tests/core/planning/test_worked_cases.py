"""The worked cases of the contract, as a table of literals: one character is one token."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from muntin import (
    Attachment,
    Budget,
    Group,
    Input,
    InvalidInput,
    Message,
    Slots,
    Stepped,
    ToolCall,
    Window,
    assistant,
    system,
    tool,
    user,
)
from muntin.core.planning import Pool
from tests.words import texts

Add = tuple[str, Any, dict[str, Any]]


def slot(name: str, content: Any, **options: Any) -> Add:
    return name, content, options


def compose(budget: int | Budget, *adds: Add, **options: Any) -> Window:
    slots = Slots(budget, tokenizer=options.pop("tokenizer", len), **options)
    for name, content, rules in adds:
        slots.add(name, content, **rules)
    return slots.render()


Q = [
    slot("system", "S" * 10),
    slot("history", [user("a" * 10), assistant("b" * 10)]),
    slot("input", "I" * 10),
]
THREE = [user("a" * 40), assistant("b" * 40), user("c" * 40)]
SHORT = [user("a" * 30), assistant("b" * 30), user("c" * 30)]
D = slot("D", "D" * 80, min_tokens=40, max_ratio=0.3, trim_behavior="char")
E = slot("E", "E" * 20, max_ratio=0.1, trim_behavior="char")
F = slot("F", "F" * 80, min_tokens=70, trim_behavior="char", priority=1)


def middle(text: str, size: int) -> str:
    """Return beginning and end of a text with a line between them, so large in all."""
    for kept in range(size, 0, -1):
        line = f"\n[{len(text) - kept:,} characters of this message are left out here]\n"
        if kept + len(line) == size:
            return text[: kept - kept // 2] + line + text[len(text) - kept // 2 :]
    raise AssertionError(size)


NOTE = "".join(chr(0x4E00 + n) for n in range(60))  # every character another one

CASES: dict[str, tuple[int, Sequence[Add], list[str], bool]] = {
    "everything fits": (100, Q, ["S" * 10, "a" * 10, "b" * 10, "I" * 10], False),
    "everything just fits": (40, Q, ["S" * 10, "a" * 10, "b" * 10, "I" * 10], False),
    "the oldest message goes": (39, Q, ["S" * 10, "b" * 10, "I" * 10], False),
    "the whole history goes": (25, Q, ["S" * 10, "I" * 10], False),
    "a text over its ceiling is dropped": (100, [slot("x", NOTE, max_ratio=0.5)], [], False),
    "by characters its end stays": (
        100,
        [slot("x", NOTE, max_ratio=0.5, trim_behavior="char")],
        [NOTE[10:]],
        False,
    ),
    "by characters from the head its beginning stays": (
        100,
        [slot("x", NOTE, max_ratio=0.5, trim_behavior="char", keep="head")],
        [NOTE[:50]],
        False,
    ),
    "a ceiling cuts into the second message": (
        100,
        [slot("x", THREE, max_ratio=0.5, trim_behavior="char")],
        ["b" * 10, "c" * 40],
        False,
    ),
    "a floor cuts the boundary message": (
        100,
        [slot("x", SHORT, min_tokens=50), slot("input", "I" * 45, priority=5)],
        ["b" * 25, "c" * 30, "I" * 45],
        False,
    ),
    "a floor lifts a ceiling": (100, [D, E], ["D" * 40, "E" * 10], False),
    "in fallback floors are ignored": (100, [D, F], ["D" * 20, "F" * 80], True),
    "in fallback priority alone decides": (
        100,
        [
            slot("S", "S" * 60, min_tokens=60, trim_behavior="char", priority=3),
            slot("M", "M" * 60, min_tokens=60, trim_behavior="char", priority=1),
            slot("input", "I" * 20, priority=2),
        ],
        ["S" * 60, "M" * 20, "I" * 20],
        True,
    ),
    "a document too large for the window leaves the history alone": (
        1_000,
        [slot("history", [user("u" * 30)] * 20), slot("doc", "D" * 1_001, priority=3)],
        ["u" * 30] * 20,
        False,
    ),
    "a small slot stays where a larger one could not": (
        100,
        [slot("A", "A" * 10), slot("B", "B" * 80, priority=1), slot("C", "C" * 90, priority=2)],
        ["A" * 10, "C" * 90],
        False,
    ),
    "a small slot stays where an older message could not": (
        100,
        [
            slot("A", "A" * 8),
            slot("list", [user("x" * 80), user("y" * 30)], priority=1),
            slot("C", "C" * 60, priority=2),
        ],
        ["A" * 8, "y" * 30, "C" * 60],
        False,
    ),
    "an input with a priority of its own goes by it": (
        1_000,
        [slot("input", "I" * 2_000, priority=1), slot("D", "D" * 500, priority=5)],
        [middle("I" * 2_000, 500), "D" * 500],
        False,
    ),
    "a system text that cannot fit beside the input takes nothing with it": (
        60,
        [slot("system", "S" * 68, priority=100), slot("input", "I" * 30)],
        ["I" * 30],
        False,
    ),
    "a long input loses its middle": (
        1_000,
        [slot("system", "S" * 100), slot("input", "I" * 2_000)],
        ["S" * 100, middle("I" * 2_000, 900)],
        False,
    ),
    "a slot that had a floor is cut, not dropped": (
        59,
        [slot("low", "l" * 60, min_tokens=60), slot("high", "h" * 50, priority=9)],
        ["l" * 9, "h" * 50],
        True,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_worked_case(case: str) -> None:
    budget, adds, expected, fallback = CASES[case]
    window = compose(budget, *adds)
    assert texts(window) == expected
    assert not window.over_budget
    assert window.report.fallback is fallback
    assert window.tokens == window.report.tokens == sum(map(len, expected))


def test_a_slot_dropped_by_its_ceiling_says_over_cap() -> None:
    window = compose(100, slot("x", "x" * 60, max_ratio=0.5))
    report = window.report.slots[0]
    assert (report.status, report.reason) == ("dropped", "over_cap")
    assert (report.tokens_asked, report.tokens_kept, report.cap) == (60, 0, 50)
    assert window.fits_with("x") == 20
    assert compose(119, slot("x", "x" * 60, max_ratio=0.5)).messages == ()
    assert texts(compose(120, slot("x", "x" * 60, max_ratio=0.5))) == ["x" * 60]


def test_a_text_dropped_by_its_ceiling_gets_a_warning_that_says_how_to_cut_it() -> None:
    dropped = compose(100, slot("x", "x" * 60, max_ratio=0.5))
    (warning,) = dropped.report.warnings
    assert "slot 'x' is larger than its ceiling of 50 tokens" in warning
    assert 'trim_behavior="char" cuts it' in warning
    assert warning in str(dropped.report)
    cut = compose(100, slot("x", "x" * 60, max_ratio=0.5, trim_behavior="char"))
    assert cut.report.warnings == ()
    assert compose(40, slot("x", "x" * 60)).report.warnings == ()  # no ceiling dropped it


@pytest.mark.parametrize("content", [None, [], "", (), Input(""), [user("")]])
def test_empty_content_adds_nothing(content: Any) -> None:
    window = compose(0, slot("x", content, required=True, priority=3))
    assert window.messages == ()
    assert not window.over_budget
    assert window.report.slots[0].status == "empty"


def test_the_priority_of_an_empty_slot_does_not_unprotect_the_system_message() -> None:
    adds = [slot("system", "S" * 10), slot("y", "y" * 10)]
    for content in (None, "", [], [user("")]):
        window = compose(15, slot("x", content, priority=1), *adds)
        assert texts(window) == ["S" * 10]


def test_an_input_of_at_most_256_tokens_is_not_cut() -> None:
    window = compose(50, slot("system", "S" * 20), slot("input", "I" * 80))
    assert texts(window) == ["S" * 20, "I" * 80]
    assert window.over_budget


def test_once_a_priority_is_given_system_messages_take_part() -> None:
    window = compose(15, slot("system", "S" * 10), slot("x", "x" * 10, priority=1))
    assert texts(window) == ["x" * 10]


def test_a_text_has_the_role_user_and_in_a_slot_named_system_the_role_system() -> None:
    window = compose(99, slot("system", "a"), slot("x", "b"), slot("y", "c", role="assistant"))
    assert [message.role for message in window.messages] == ["system", "user", "assistant"]


def test_role_with_real_messages_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="notes"):
        compose(9, slot("notes", [user("a")], role="system"))


def test_ratios_are_exact() -> None:
    for percent in range(100):
        window = compose(100, slot("x", "x" * 100, max_ratio=percent / 100, trim_behavior="char"))
        assert window.tokens == percent


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_ratio", -0.1),
        ("max_ratio", 1.1),
        ("max_ratio", float("nan")),
        ("max_ratio", "1"),
        ("min_ratio", 2),
        ("min_tokens", -1),
        ("min_tokens", 1.5),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("priority", 0.5),
        ("trim_behavior", "word"),
        ("keep", "middle"),
        ("tier", "hot"),
        ("required", 1),
    ],
)
def test_a_wrong_option_is_an_error_naming_slot_and_option(option: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"'notes'.*{option}"):
        compose(9, slot("notes", "text", **{option: value}))


def test_a_ceiling_below_the_floor_is_an_error() -> None:
    with pytest.raises(InvalidInput, match=r"'notes'.*max_tokens"):
        compose(9, slot("notes", "text", max_tokens=3, min_tokens=4))


def test_a_min_ratio_above_the_max_ratio_is_clamped() -> None:
    window = compose(100, slot("x", "x" * 80, min_ratio=0.9, max_ratio=0.5, trim_behavior="char"))
    assert window.tokens == 50
    assert window.report.slots[0].floor == 50


@pytest.mark.parametrize("budget", [-1, 1.5, "10", True, None])
def test_a_wrong_budget_is_an_error(budget: Any) -> None:
    with pytest.raises(InvalidInput):
        Slots(budget)


def test_reserved_tokens_and_tools_are_taken_off_first() -> None:
    schema = {"name": "t"}  # {"name":"t"}: 12 characters
    window = compose(
        Budget(50, reserved_tokens=10),
        slot("x", "x" * 99, max_ratio=0.5, trim_behavior="char"),
        tools=[schema],
    )
    assert texts(window) == ["x" * 14]
    assert (window.tokens, window.report.tools_tokens) == (26, 12)


def test_nothing_fits_in_a_budget_of_nothing_and_the_window_says_so() -> None:
    window = compose(Budget(10, reserved_tokens=10), slot("x", "x"))
    assert window.messages == ()
    assert window.over_budget
    assert window.report.over_budget


def test_what_may_not_be_dropped_makes_the_window_over_budget_and_the_input_stays_whole() -> None:
    window = compose(
        10, slot("rules", "R" * 10, required=True), slot("x", "x" * 5), slot("input", "abc")
    )
    assert texts(window) == ["R" * 10, "abc"]
    assert window.over_budget
    assert window.tokens == 13


def test_an_input_of_priority_0_goes_last() -> None:
    adds = [slot("input", "iii"), slot("x", "xxx", priority=7), slot("y", "yyy", priority=2)]
    assert texts(compose(6, *adds)) == ["iii", "xxx"]
    assert texts(compose(3, *adds)) == ["iii"]


def test_a_short_input_is_whole_whatever_its_priority() -> None:
    adds = [slot("input", "iii", priority=1), slot("x", "xxx", priority=7)]
    assert texts(compose(4, *adds)) == ["iii"]


def test_of_equal_slots_the_earliest_in_the_window_gives_first() -> None:
    adds = [slot("a", "aaa", position=2), slot("b", "bbb", position=1), slot("c", "ccc")]
    assert texts(compose(6, *adds)) == ["aaa", "ccc"]


def test_there_is_no_back_fill() -> None:
    window = compose(6, slot("x", [user("a"), user("bbbbb"), user("ccccc")]))
    assert texts(window) == ["ccccc"]


def test_in_a_mixed_slot_system_messages_go_last() -> None:
    talk = [system("s" * 3), user("a" * 3), system("t" * 3), user("b" * 3)]
    expected = {9: "stb", 6: "st", 3: "t", 2: ""}
    for budget, left in expected.items():
        window = compose(budget, slot("x", talk, priority=1))
        assert [text[0] for text in texts(window)] == list(left)


CALL = assistant("cc", tool_calls=[ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}")])
GROUP = [CALL, tool("1", "rr"), tool("2", "qq")]  # 2 + 2 · (4 + 2) + 2 + 2 = 18


def test_a_call_and_its_results_go_together() -> None:
    assert texts(compose(20, slot("x", [*GROUP, user("uu")]))) == ["cc", "rr", "qq", "uu"]
    assert texts(compose(19, slot("x", [*GROUP, user("uu")]))) == ["uu"]


def test_calls_and_results_are_never_cut_by_characters() -> None:
    window = slot("x", [user("tt"), *GROUP, user("uu")], trim_behavior="char")
    assert texts(compose(21, window)) == ["t", "cc", "rr", "qq", "uu"]
    assert texts(compose(20, window)) == ["cc", "rr", "qq", "uu"]
    assert texts(compose(19, window)) == ["uu"]


def test_a_floor_yields_to_a_group_that_cannot_be_cut() -> None:
    for budget, left in {18: ["cc", "rr", "qq"], 17: []}.items():
        window = compose(budget, slot("x", GROUP, min_tokens=17))
        assert texts(window) == left
        assert not window.over_budget


def test_a_result_without_its_call_is_left_out() -> None:
    window = compose(99, slot("x", [tool("0", "a"), tool("0", "b"), user("c")], required=True))
    assert texts(window) == ["c"]
    lost = [d for d in window.report.slots[0].decisions if d.status == "dropped"]
    assert {decision.reason for decision in lost} == {"orphaned"}
    assert sum(decision.count for decision in lost) == 2


def test_a_result_before_its_call_is_left_out() -> None:
    window = compose(
        99, slot("x", [tool("1", "a"), assistant("b", tool_calls=[ToolCall("1", "t", "")])])
    )
    assert texts(window) == ["b"]


def test_a_tool_message_without_an_id_is_no_result_and_is_kept() -> None:
    assert texts(compose(99, slot("x", [Message("tool", "a"), user("b")]))) == ["a", "b"]


def test_the_fixed_result_of_a_pending_call_is_counted() -> None:
    call = assistant("b", tool_calls=[ToolCall("1", "t", "")])
    assert compose(99, slot("x", [call])).tokens == 2 + len("(no result was recorded)")
    assert compose(25, slot("x", [call])).messages == ()


def test_a_required_result_keeps_its_call_however_old_that_is() -> None:
    call, result = assistant("c", tool_calls=[ToolCall("1", "t", "x")]), tool("1", "r")
    window = compose(
        10,
        slot("calls", [call, user("z" * 9)]),
        slot("results", [result], required=True),
        slot("x", [user("x" * 20)], priority=1),
    )
    assert texts(window) == ["c", "r"]


def test_a_required_call_keeps_its_result_however_much_follows_it() -> None:
    call, result = assistant("c", tool_calls=[ToolCall("1", "t", "x")]), tool("1", "r")
    window = compose(
        10, slot("calls", [call], required=True), slot("rest", [result, user("x" * 20)])
    )
    assert texts(window) == ["c", "r"]
    assert not window.over_budget


def test_a_group_goes_when_its_last_text_is_cut_away() -> None:
    call = assistant("c", tool_calls=[ToolCall("1", "t", "x")])
    window = compose(2, slot("x", [call, tool("1", "")], trim_behavior="char"))
    assert window.messages == ()


def test_what_a_dying_group_frees_in_another_slot_is_used() -> None:
    call, result = assistant("cd", tool_calls=[ToolCall("1", "t", "x")]), tool("1", "ef")
    adds = [
        slot("calls", [user("ab"), call], trim_behavior="char"),
        slot("results", [result, user("gh")], trim_behavior="char"),
        slot("input", "ijk"),
    ]
    assert texts(compose(5, *adds)) == ["gh", "ijk"]


def test_a_slot_dropped_whole_for_its_ceiling_is_so_at_every_budget() -> None:
    talk = [user("a"), user("cdef")]
    for budget in range(1, 9):
        window = compose(budget, slot("x", talk, trim_behavior="slot", max_tokens=4))
        assert window.messages == ()
        assert not window.over_budget


def test_a_group_of_two_interleaved_slots_stays_in_one_piece() -> None:
    group = Group("timeline", interleave=True)
    call = replace(assistant("c", tool_calls=[ToolCall("1", "t", "x")]), at=3)
    rest = [replace(user("m"), at=4), replace(tool("1", "r"), at=5)]
    window = compose(99, slot("a", [call], group=group), slot("b", rest, group=group))
    assert "cr" in "".join(texts(window))


def test_attachments_count_with_their_name() -> None:
    file = Attachment("1", "a.pdf", 10, "document")
    window = compose(999, slot("input", Input("see", (file,))), attachment_tokens={"document": 50})
    assert window.tokens == 3 + 50 + len("File: a.pdf")


def test_an_input_with_an_attachment_keeps_it_when_its_text_is_cut() -> None:
    file = Attachment("1", "a", 10, "image")
    asked = Input("t" * 2_000, (file,))
    window = compose(512, slot("input", asked), attachment_tokens={"image": 5})
    assert len(texts(window)[0]) == 500  # and 5 for the image, 7 for `File: a`
    assert window.messages[0].attachments == (file,)
    assert window.input_cut


def test_adding_after_a_render_is_allowed() -> None:
    slots = Slots(20, tokenizer=len)
    slots.add("a", "a" * 10)
    first = slots.render()
    slots.add("b", "b" * 15)
    assert texts(first) == ["a" * 10]
    assert texts(slots.render()) == ["b" * 15]


def test_two_slots_of_one_name_are_told_apart_by_their_index() -> None:
    window = compose(3, slot("x", "aaa"), slot("x", "bbb"))
    assert [(s.name, s.index, s.status) for s in window.report.slots] == [
        ("x", 0, "dropped"),
        ("x", 1, "kept"),
    ]


def test_an_excluded_slot_is_in_the_report_only() -> None:
    slots = Slots(9, tokenizer=len)
    slots.add("a", "a")
    slots.exclude("b", reason="condition_false", detail="no synthesis")
    window = slots.render()
    assert texts(window) == ["a"]
    assert (window.report.slots[1].status, window.report.slots[1].reason) == (
        "excluded",
        "condition_false",
    )


def test_what_was_not_read_is_told_with_an_estimate_of_its_size() -> None:
    talk = [user(f"{n:02}" + "x" * (8 + n % 2)) for n in range(40)]
    window = compose(55, slot("talk", talk))
    unread, *read = window.report["talk"].decisions
    assert (unread.status, unread.reason) == ("dropped", "beyond_fit")
    assert unread.count + len(read) == 40
    assert unread.tokens_asked == pytest.approx(10.5 * unread.count, rel=0.05)
    assert window.report["talk"].asked_is_estimate
    assert window.report["talk"].messages_asked == 40


# How many tokens more would keep a message: by planning again, so exactly.


def fits_exactly(budget: int, *adds: Any, name: str, message: int = 0) -> int:
    """Return what `fits_with` says, after a check of the budgets around it."""

    def is_whole(size: int) -> bool:
        decisions = compose(size, *adds).report[name].decisions
        (found,) = [d for d in decisions if d.first <= message < d.first + d.count]
        return found.status == "kept"

    more = compose(budget, *adds).fits_with(name, message)
    assert more is not None
    assert is_whole(budget + more)
    assert more == 0 or not is_whole(budget + more - 1)
    return more


def test_fits_with_is_nothing_for_a_message_that_is_whole() -> None:
    adds = [slot("talk", [user("a" * 10), user("b" * 10)])]
    assert fits_exactly(20, *adds, name="talk") == 0
    assert fits_exactly(12, *adds, name="talk", message=1) == 0


def test_fits_with_counts_all_that_stands_before_a_message() -> None:
    talk = slot("talk", [user(letter * 10) for letter in "abcde"])
    adds = [talk, slot("docs", "d" * 30, priority=5), slot("input", "i" * 5)]
    assert [fits_exactly(46, *adds, name="talk", message=n) for n in range(5)] == [39, 29, 19, 9, 0]


def test_fits_with_is_known_for_messages_that_were_not_read() -> None:
    talk = [user(f"{n:03}" + "x" * 7) for n in range(400)]
    window = compose(55, slot("talk", talk))
    assert window.report["talk"].decisions[0].reason == "beyond_fit"
    assert fits_exactly(55, slot("talk", talk), name="talk", message=3) == 3_970 - 55


def test_fits_with_of_a_share_is_of_the_whole_budget() -> None:
    adds = [slot("docs", "d" * 60, max_ratio=0.25), slot("input", "i" * 10)]
    assert fits_exactly(100, *adds, name="docs") == 140


def test_fits_with_of_a_cut_text_is_what_shows_it_whole() -> None:
    adds = [slot("docs", "d" * 60, trim_behavior="char"), slot("input", "i" * 10)]
    assert len(texts(compose(50, *adds))[0]) == 40
    assert fits_exactly(50, *adds, name="docs") == 20


def test_no_budget_fits_a_text_beyond_a_fixed_ceiling() -> None:
    window = compose(100, slot("docs", "d" * 60, max_tokens=50))
    assert window.fits_with("docs") is None


def test_no_budget_fits_a_result_without_its_call() -> None:
    window = compose(100, slot("talk", [tool("1", "r"), user("u")]))
    assert window.fits_with("talk", 0) is None
    assert window.fits_with("talk", 1) == 0


def test_fits_with_of_a_history_that_has_moved_says_what_would_not_have_moved_it() -> None:
    talk = [each for n in range(6) for each in (user(f"{n}" * 60), assistant(f"{n}" * 60))]
    slots = Slots(600, tokenizer=len, trimming=Stepped())
    slots.add("history", talk)
    slots.add("input", "i" * 60)
    window = slots.render()
    assert window.fits_with("history", 0) == 780 - 600


def test_a_pickled_window_cannot_plan_again() -> None:
    window = pickle.loads(pickle.dumps(compose(5, slot("x", "x" * 9))))
    with pytest.raises(InvalidInput, match="has forgotten its plan"):
        window.fits_with("x")


def test_an_unknown_slot_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="no slot 'y'; its slots: 'x'"):
        compose(5, slot("x", "x" * 9)).fits_with("y")


# Pools: a smaller budget that several slots have together.


def pooled(budget: int, *adds: Any, tokens: int = 100) -> dict[str, int]:
    """Return what each slot gets; those whose name is small are in the pool."""
    pool = Pool("sources", tokens)
    slots = Slots(budget, tokenizer=len)
    for name, content, options in adds:
        options = {"pool": pool, **options} if name.islower() else options
        slots.add(name, content, **options)
    window = slots.render()
    assert window.tokens <= budget
    kept = {each.name: each.tokens_kept for each in window.report.slots}
    assert sum(size for name, size in kept.items() if name.islower()) <= tokens
    return kept


def test_slots_of_a_pool_have_no_more_than_it_together() -> None:
    adds = [slot(name, [user(name * 10)] * 9) for name in "abC"]
    assert pooled(1_000, *adds) == {"a": 10, "b": 90, "C": 90}


def test_priority_decides_inside_a_pool() -> None:
    adds = [slot("a", "a" * 60, priority=5), slot("b", [user("b" * 10)] * 9, priority=1)]
    assert pooled(1_000, *adds) == {"a": 60, "b": 40}


def test_a_pool_is_no_reservation() -> None:
    adds = [slot("a", [user("a" * 10)] * 9), slot("B", "B" * 150, priority=5)]
    assert pooled(200, *adds) == {"a": 50, "B": 150}


def test_floors_that_do_not_fit_their_pool_are_ignored() -> None:
    adds = [
        slot("a", [user("a" * 10)] * 9, min_tokens=60),
        slot("b", [user("b" * 10)] * 9, min_tokens=60, priority=1),
    ]
    assert pooled(1_000, *adds) == {"a": 10, "b": 90}
    assert pooled(1_000, *adds, tokens=120) == {"a": 60, "b": 60}


def test_slots_that_share_share_their_pool() -> None:
    both = Group("both", share=True)
    adds = [slot(name, [user(name * 10)] * 9, group=both) for name in "ab"]
    assert pooled(1_000, *adds) == {"a": 50, "b": 50}


def test_a_slot_outside_of_a_pool_brings_no_room_to_those_it_shares_with() -> None:
    both = Group("both", share=True)
    adds = [slot(name, [user(name * 10)] * 9, group=both) for name in "Ab"]
    assert pooled(1_000, *adds, tokens=40) == {"A": 90, "b": 40}


def test_an_input_in_a_pool_is_cut_to_it() -> None:
    adds = [slot("a", [user("a" * 10)] * 9), slot("input", "i" * 400)]
    assert pooled(1_000, *adds, tokens=300) == {"a": 0, "input": 300}


def test_equal_pools_are_one_and_others_are_not() -> None:
    slots = Slots(1_000, tokenizer=len)
    for name, pool in (("a", Pool("x", 50)), ("b", Pool("x", 50)), ("c", Pool("y", 50))):
        slots.add(name, [user(name * 10)] * 9, pool=pool)
    kept = {each.name: each.tokens_kept for each in slots.render().report.slots}
    assert kept == {"a": 0, "b": 50, "c": 50}


def test_a_pool_must_be_a_pool() -> None:
    with pytest.raises(InvalidInput, match="slot 'a': pool must be a Pool"):
        Slots(10).add("a", "a", pool=100)  # type: ignore[arg-type]
