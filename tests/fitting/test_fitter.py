"""The Fitter: one list, one plan, references back."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from muntin import (
    BudgetExceeded,
    InvalidInput,
    Message,
    Stepped,
    ToolCall,
    assistant,
    system,
    tool,
    user,
)
from muntin.core.message import NO_RESULT
from muntin.errors import InvalidType
from muntin.fitting import Fitted, Fitter, Piece, Pieces, fit
from muntin.wire.lists import pieces_of
from tests.fitting.talks import chat_call, chat_result, growing, words
from tests.plans import counted_plans
from tests.runtime.conftest import run

GPT = "openai/gpt-4o"


def pieces(*messages: Message) -> list[Piece]:
    return [Piece(message, f"item {number}") for number, message in enumerate(messages)]


def refs(fitted: Fitted) -> list[Any]:
    return [placed.ref for placed in fitted.placed]


def test_what_fits_comes_back_as_its_references() -> None:
    fitted = Fitter(1_000).fit(pieces(system("Be brief."), user("Where?")))
    assert refs(fitted) == ["item 0", "item 1"]
    assert all(placed.is_whole for placed in fitted.placed)


def test_one_list_is_one_plan() -> None:
    with counted_plans() as plans:
        Fitter(600, model=GPT).fit(pieces(*[user(words(50, n)) for n in range(40)]))
    assert len(plans) == 1


def test_the_question_of_a_long_run_is_held_inside_of_it() -> None:
    """75 steps: the question is never lost, and what was sent stays the beginning."""
    previous: dict[str, Any] = {}
    before: list[Any] = []
    sent = same = 0
    for talk in growing(2, steps=75):
        fitted = fit(talk, 4_000, model=GPT, previous=previous)
        previous = fitted.frontier
        question = [each for each in talk if each["role"] == "user"][-1]
        assert any(each is question for each in fitted.kept)
        assert fitted.kept[0] is talk[0]
        sizes = [len(json.dumps(each)) for each in fitted.kept]
        shared = next(
            (n for n, (a, b) in enumerate(zip(before, fitted.kept, strict=False)) if a != b),
            min(len(before), len(sizes)),
        )
        sent, same, before = sent + sum(sizes), same + sum(sizes[:shared]), fitted.kept
    assert same / sent > 0.85


def test_results_get_shorter_before_anything_leaves() -> None:
    *_, talk = growing(6, 3)
    fitted = fit(talk, 3_000, model=GPT, previous={})
    changed = [placed for placed in fitted.placed if placed.ref and not placed.is_whole]
    assert changed
    for placed in changed:
        assert placed.message.role == "tool"
        assert placed.text == placed.message.text
        assert "left out" in placed.text


def test_long_arguments_of_calls_get_shorter_too() -> None:
    talk: list[Any] = [{"role": "user", "content": "Write it."}]
    for number in range(12):
        written = json.dumps({"path": "a.txt", "text": words(300, number)})
        talk += [chat_call(f"c{number}", written), chat_result(f"c{number}", "done")]
    fitted = fit(talk, 3_000, model=GPT, previous={})
    changed = [placed for placed in fitted.placed if placed.arguments]
    assert changed
    for placed in changed:
        ((name, text),) = placed.arguments.items()
        assert json.loads(text)["path"] == "a.txt"
        shown = fitted.kept[fitted.placed.index(placed)]
        assert shown["tool_calls"][0] == {
            "id": name,
            "type": "function",
            "function": {"name": "look", "arguments": text},
        }


def test_a_call_without_a_result_gets_one() -> None:
    talk = [user("Where?"), assistant(tool_calls=[ToolCall("a", "look")]), user("And?")]
    fitted = Fitter(1_000).fit(pieces(*talk))
    assert refs(fitted) == ["item 0", "item 1", None, "item 2"]
    assert fitted.placed[2].message == tool("a", NO_RESULT)
    assert fitted.placed[2].text == NO_RESULT


def test_results_are_put_right_behind_their_call() -> None:
    items = [
        {"role": "user", "content": "Where?"},
        chat_call("a"),
        {"role": "user", "content": "Be quick!"},
        chat_result("a", "seen"),
    ]
    kept = fit(items, 1_000, previous={}).kept
    assert [id(each) for each in kept] == [id(items[n]) for n in (0, 1, 3, 2)]


def test_where_a_user_must_speak_first_a_line_says_that_earlier_messages_are_gone() -> None:
    talk = [assistant(words(30, n)) for n in range(3)] + [user("Where?")]
    fitted = Fitter(1_000, model="anthropic/claude-sonnet-4-5").fit(pieces(*talk))
    assert refs(fitted)[:2] == [None, "item 0"]
    assert fitted.placed[0].message.role == "user"
    assert refs(Fitter(1_000, model=GPT).fit(pieces(*talk)))[0] == "item 0"


def test_system_text_that_is_sent_elsewhere_counts_and_is_not_placed() -> None:
    plain = Fitter(1_000).fit(pieces(user("Where?")))
    more = Fitter(1_000).fit(pieces(user("Where?")), system=[system(words(100))])
    assert refs(more) == ["item 0"]
    assert more.window.tokens - plain.window.tokens > 100


def test_system_text_may_be_a_text_a_message_or_blocks() -> None:
    ask = [{"role": "user", "content": "Where?"}]
    texts: list[Any] = [
        words(100),
        [system(words(100))],
        [{"role": "system", "content": words(100)}],
        [{"type": "text", "text": words(100), "cache_control": {"type": "ephemeral"}}],
    ]
    assert len({fit(ask, 1_000, system=text, previous={}).tokens for text in texts}) == 1


def test_a_list_without_a_question_keeps_its_newest_calls() -> None:
    talk: list[Any] = [{"role": "system", "content": "Go on until it is done."}]
    for number in range(40):
        talk += [chat_call(f"c{number}"), chat_result(f"c{number}", words(200, number))]
    fitted = fit(talk, 1_500, model=GPT, previous={})
    assert fitted.kept[0] is talk[0]
    assert fitted.kept[-1]["tool_call_id"] == "c39"


# Budgets.


def test_a_budget_smaller_than_the_system_text_is_refused_by_name() -> None:
    with pytest.raises(BudgetExceeded, match=r"the system messages 1,0.*Raise the budget") as error:
        Fitter(500).fit(pieces(system("word " * 1_000), user("Where?")))
    assert error.value.available == 500
    with pytest.raises(BudgetExceeded, match="the system text 1,0"):
        Fitter(500).fit(pieces(user("Where?")), system=[system("word " * 1_000)])


def test_tools_are_inside_of_the_budget() -> None:
    schema = {"name": "look", "description": words(400), "parameters": {"type": "object"}}
    with pytest.raises(BudgetExceeded, match="the tools 4"):
        fit([{"role": "user", "content": "Where?"}], 300, tools=[schema])
    assert fit([{"role": "user", "content": "Where?"}], 3_000, tools=[schema]).tokens > 400


def test_a_margin_is_kept_free() -> None:
    talk = pieces(*[user(words(40, n)) for n in range(60)])
    wide = Fitter(1_000, model=GPT).fit(talk)
    assert Fitter(1_000, model=GPT, margin=300).fit(talk).window.tokens <= 700
    assert wide.window.tokens > 700


def test_the_frame_of_the_answer_counts() -> None:
    assert fit([{"role": "user", "content": "Where?"}], 1_000, model=GPT).report.answer_tokens == 3


def test_bad_settings_are_refused_by_name() -> None:
    with pytest.raises(InvalidType, match="margin must be an int"):
        Fitter(100, margin="wide")  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="a budget must be"):
        Fitter("much")  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="results must be Results"):
        Fitter(100, results=0.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="trimming must be"):
        Fitter(100, trimming="none").fit(pieces(user("x")))  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="messages must be a list"):
        fit("Where?", 100)
    with pytest.raises(InvalidType, match="tools must be a list"):
        fit([], 100, tools={"name": "look"})  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="system must be a text"):
        fit([], 100, system=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="conversation must be a str"):
        fit([], 100, conversation=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="previous must be"):
        fit([{"role": "user", "content": "x"}], 100, previous="earlier")  # type: ignore[arg-type]


def test_nothing_is_fitted_to_nothing() -> None:
    fitted = fit([], 100)
    assert fitted.kept == []
    assert fit([], 100, previous=fitted.frontier).kept == []


def test_a_piece_that_knows_its_size_counts_so() -> None:
    def given(tokens: int) -> list[Piece]:
        return [Piece(user("x"), 0), Piece(None, 1, "unknown", tokens), Piece(user("y"), 2)]

    small, large = Fitter(5_000).fit(given(10)), Fitter(5_000).fit(given(900))
    assert large.window.tokens - small.window.tokens == 890
    assert large.unread == ("message 1: unknown",)
    with pytest.raises(InvalidInput, match="message 1: unknown; without strict=True"):
        Fitter(5_000, strict=True).fit(given(10))


# Reading no more than can be sent.


def test_only_what_the_window_can_reach_is_read() -> None:
    items: list[Any] = [{"role": "system", "content": "Be brief."}]
    for number in range(20_000):
        items.append({"role": "user", "content": f"question {number} {words(20, number)}"})
        items.append({"role": "assistant", "content": f"answer {number}"})
    items.append({"role": "user", "content": "And now?"})
    lazy = pieces_of(items)
    read: list[int] = []

    def counting(number: int, _: int) -> Any:
        read.append(number)
        return [lazy[number]]

    fitter = Fitter(2_000, model=GPT)
    fitted = fitter.fit(Pieces(range(len(items)), counting, role=lazy.role), previous={})
    assert len(read) < 400 < len(items)
    read.clear()
    again = fitter.fit(
        Pieces(range(len(items)), counting, role=lazy.role), previous=fitted.frontier
    )
    assert len(read) < 250
    assert refs(again) == refs(fitted)


# Conversations.


def last_of(turns: int) -> list[dict[str, Any]]:
    *_, talk = growing(turns)
    return list(talk)


def test_a_restart_gives_the_same_bytes() -> None:
    """Another process, which knows nothing but the frontier."""
    talks = [json.loads(json.dumps(talk)) for talk in growing(20)]
    half = len(talks) // 2
    previous: dict[str, Any] = {}
    for talk in talks[:half]:
        previous = fit(talk, 3_000, model=GPT, previous=previous).frontier
    code = (
        "import json, sys; from muntin import fit\n"
        "given = json.load(sys.stdin); previous = given['previous']; kept = []\n"
        "for talk in given['talks']:\n"
        f"    fitted = fit(talk, 3_000, model={GPT!r}, previous=previous)\n"
        "    previous = fitted.frontier; kept.append(fitted.kept)\n"
        "json.dump(kept, sys.stdout)"
    )
    told = json.dumps({"previous": previous, "talks": talks[half:]})
    made = subprocess.run(
        [sys.executable, "-c", code], input=told, capture_output=True, text=True, check=True
    )
    for talk, kept in zip(talks[half:], json.loads(made.stdout), strict=True):
        fitted = fit(talk, 3_000, model=GPT, previous=previous)
        previous = fitted.frontier
        assert kept == fitted.kept


def test_a_hook_without_state_finds_a_conversation_again() -> None:
    known, told = Fitter(3_000, model=GPT), Fitter(3_000, model=GPT)
    previous: dict[str, Any] = {}
    for talk in growing(20):
        by_table = known.fit(pieces_of(talk))
        by_frontier = told.fit(pieces_of(talk), previous=previous)
        previous = by_frontier.frontier
        assert refs(by_table) == refs(by_frontier)
        assert by_table.frontier == previous


def test_conversations_with_one_opening_are_told_apart() -> None:
    fitter, alone = Fitter(2_000, model=GPT), [Fitter(2_000, model=GPT) for _ in range(3)]
    talks: list[list[Any]] = [[{"role": "user", "content": "Hello"}] for _ in alone]
    for number in range(40):
        for each, (talk, own) in enumerate(zip(talks, alone, strict=True)):
            talk.append({"role": "assistant", "content": f"{each} {words(20 * each + 20, number)}"})
            talk.append({"role": "user", "content": words(30, number)})
            assert refs(fitter.fit(pieces_of(talk))) == refs(own.fit(pieces_of(talk)))


def test_a_name_finds_a_conversation_too() -> None:
    fitter = Fitter(2_000, model=GPT)
    for talk in growing(12):
        named = fitter.fit(pieces_of(talk), conversation="c")
    assert named.frontier["start"]["stubs"] > 0
    assert len(named.frontier["start"]["rooms"]) > 1  # of several turns
    other = fitter.fit(pieces_of(last_of(12)), conversation="d")
    assert len(other.frontier["start"]["rooms"]) == 1


def test_the_frontier_of_another_conversation_is_not_used_and_the_report_says_so() -> None:
    mine = fit(last_of(20), 2_000, model=GPT, previous={})
    other = [{"role": "user", "content": "Something else"}, *last_of(20)[2:8]]
    fitted = fit(other, 2_000, model=GPT, previous=mine.frontier)
    assert fitted.fresh is not None
    assert "another conversation" in fitted.fresh
    (told,) = (each for each in fitted.report.slots if each.name == "previous")
    assert (told.reason, told.detail) == ("fresh", fitted.fresh)
    assert fitted.kept == fit(other, 2_000, model=GPT, previous={}).kept


def test_a_list_whose_message_at_the_frontier_is_gone_begins_anew() -> None:
    talk = last_of(20)
    mine = fit(talk, 2_000, model=GPT, previous={})
    first = mine.frontier["start"]["first"] + 1
    assert first > 1
    changed = [*talk[:first], {**talk[first], "content": "edited"}, *talk[first + 1 :]]
    fitted = fit(changed, 2_000, model=GPT, previous=mine.frontier)
    assert fitted.fresh == "the message at the frontier is not in the list any more"


def test_a_list_that_lost_its_beginning_goes_on() -> None:
    talk = last_of(20)
    mine = fit(talk, 2_000, model=GPT, previous={})
    fitted = fit([talk[0], *talk[10:]], 2_000, model=GPT, previous=mine.frontier)
    assert fitted.fresh is None
    assert fitted.kept == mine.kept


def test_two_hooks_at_once_for_one_conversation() -> None:
    fitter = Fitter(2_000, model=GPT)
    talks = [list(talk) for talk in growing(12)]
    for talk in talks[:-4]:
        fitter.fit(pieces_of(talk))
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda talk: fitter.fit(pieces_of(talk)), talks[-4:] * 8))
    assert all(each.window.tokens <= 2_000 for each in made)
    assert fitter.fit(pieces_of(talks[-1])).fresh is None


def test_the_report_tells_what_is_shared_with_the_request_before() -> None:
    previous: dict[str, Any] = {}
    for talk in growing(3):
        fitted = fit(talk, 8_000, model=GPT, previous=previous)
        previous = json.loads(json.dumps(fitted.frontier))
    prefix = fitted.report.prefix
    assert prefix is not None
    assert prefix.share > 0.8


def test_async_hooks_have_a_way_too() -> None:
    fitter = Fitter(1_000, trimming=Stepped())
    fitted = run(fitter.afit(pieces(user("Where?"))))
    assert refs(fitted) == ["item 0"]
