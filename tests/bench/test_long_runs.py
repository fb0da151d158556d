"""The benchmark of long runs: its script, its rules, its scores, and that every policy plays it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from bench import long_runs
from bench.measure import Figure
from bench.page import sections
from bench.runs.grow import Growing
from bench.runs.ours import OWN, POLICIES, STEPPED, Player, play
from bench.runs.peers import PEERS
from bench.runs.rules import faults
from bench.runs.score import MODELS, Score, Summariser
from bench.runs.script import MARK, NEEDLE, calls, script
from bench.runs.table import places, tables
from bench.runs.wire import lines, shared
from muntin import Slots, ToolCall, Window, assistant, tool, user
from muntin.wire import anthropic, chat
from tests.wire.rules import CHECKS

SMALL = script(24)


# The script.


def test_the_run_is_as_long_and_its_results_are_as_large_as_it_says():
    made = script(400)
    sizes = [len(call.result) for call in calls(made.turns)]
    assert made.requests == 400
    assert 300 < min(sizes) < 500
    assert 59_000 < max(sizes) <= 60_000
    assert max(len(turn.steps) for turn in made.turns) == 24
    assert any(len(step) == 2 for turn in made.turns for step in turn.steps)
    assert all(json.loads(call.result)["step"] == call.mark for call in calls(made.turns))


def test_every_mark_is_of_one_message_and_stands_in_it():
    made = script(400)
    for call in calls(made.turns):
        assert set(MARK.findall(f"{call.id} {call.arguments} {call.result}")) == {call.mark}
    marks = [call.mark for call in calls(made.turns)]
    marks += [mark for turn in made.turns for mark in MARK.findall(f"{turn.text} {turn.answer}")]
    assert len(set(marks)) == len(marks)
    assert not MARK.findall(made.system)


def test_a_needle_is_said_once_where_its_mark_is_and_repeated_once_by_the_user():
    made = script(400)
    said = {f"t{turn.number:04}": turn.text for turn in made.turns}
    said |= {f"a{turn.number:04}": turn.answer for turn in made.turns}
    said |= {call.mark: call.arguments + call.result for call in calls(made.turns)}
    counts = Counter(needle for text in said.values() for needle in NEEDLE.findall(text))
    repeated = [(turn, needle) for turn in made.turns for needle in turn.asked]
    for turn, needle in repeated:
        assert needle.text in said[needle.mark]
        assert needle.text in turn.text
        assert needle.turn < turn.number
        assert counts[needle.text] == 2
    assert {needle.mark[0] for _, needle in repeated} == {"a", "s", "t"}
    arguments = " ".join(call.arguments for call in calls(made.turns))
    assert any(needle.text in arguments for _, needle in repeated)
    assert len(repeated) > 80


def test_the_same_run_is_made_every_time():
    assert script(60) == script(60)


# The rules.


def called(*ids: str) -> dict[str, Any]:
    made = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "r"}


HI = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([HI, called("a", "b"), result("b"), result("a"), HI], ""),
        ([], "no message"),
        ([HI, result("a")], "without its call"),
        ([HI, called("a"), HI], "no result"),
        ([HI, called("a")], "no result"),
        ([HI, called("a"), result("a"), called("a"), result("a")], "twice"),
        ([HI, {"role": "assistant", "content": ""}, HI], "empty"),
    ],
)
def test_a_request_to_openai_is_held_against_the_rules(messages, wrong):
    found = faults("openai", {"messages": messages})
    assert bool(found) == bool(wrong)
    assert wrong in " ".join(found)


def use(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ids]
    return {"role": "assistant", "content": blocks}


def used(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": "r"} for i in ids]
    return {"role": "user", "content": blocks}


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([HI, use("a", "b"), used("a"), used("b"), HI], ""),
        ([], "no message"),
        ([use("a"), used("a")], "first message"),
        ([HI, use("a"), HI], "its results are not"),
        ([HI, used("a")], "its results are not"),
        ([HI, use("a"), HI, used("a")], "results stand first"),
        ([HI, use("a")], "no result"),
        ([{"role": "user", "content": [{"type": "text", "text": " "}]}], "empty"),
    ],
)
def test_a_request_to_anthropic_is_held_against_the_rules(messages, wrong):
    found = faults("anthropic", {"messages": messages})
    assert bool(found) == bool(wrong)
    assert wrong in " ".join(found)


def test_the_rules_agree_with_those_of_the_wire_tests():
    def window(*messages: Any) -> Window:
        slots = Slots(10_000, tokenizer="chars/4")
        slots.add("history", list(messages))
        return slots.render()

    made = window(user("Hi"), assistant(tool_calls=[ToolCall("a", "f", "{}")]), tool("a", "r"))
    for name, rules, module in (("chat", "openai", chat), ("anthropic", "anthropic", anthropic)):
        request = module.encode(made)
        CHECKS[name](request)
        assert not faults(rules, request)


# The scores.


def test_what_is_shared_is_the_beginning_in_characters():
    def request(*texts: str) -> list[Any]:
        return lines("openai", {"messages": [{"role": "user", "content": t} for t in texts]})

    whole = request("one", "two")
    assert shared(whole, request("one", "two", "three")) == 1
    assert shared(whole, request("none", "two")) < 0.5
    assert 0.5 < shared(whole, request("one", "other")) < 1


def full(rules: str) -> Score:
    """Score requests that always show everything."""
    score = Score(SMALL, rules, 1_000_000)
    said: list[Any] = []
    for turn in SMALL.turns:
        said.append(user(turn.text))
        for number in range(turn.requests):
            slots = Slots(1_000_000, tokenizer="chars/4")
            slots.add("history", list(said))
            request = {"openai": chat, "anthropic": anthropic}[rules].encode(slots.render())
            score.take(turn, number, request, 0.001)
            for step in turn.steps[number : number + 1]:
                said.append(
                    assistant(tool_calls=[ToolCall(c.id, c.name, c.arguments) for c in step])
                )
                said += [tool(c.id, c.result) for c in step]
        said.append(assistant(turn.answer))
    return score


@pytest.mark.parametrize("rules", list(MODELS))
def test_who_shows_everything_is_told_so(rules):
    row = full(rules).row("all")
    assert (row.requests, row.invalid, row.over, row.refused) == (24, 0, 0, 0)
    assert row.prefix == row.prefix_all == row.calls_seen == row.newest_seen == 1
    assert row.newest_shown == 1
    assert row.needles == row.needles_recent == row.named == 1
    assert row.turns_full == row.turns_seen > 3
    assert 0.1 < row.relative < 0.5


@pytest.mark.parametrize(
    ("window", "share", "shown"), [(160, 0.3, 1), (160, 0.1, 0), (10**6, 0.3, 0)]
)
def test_a_result_is_shown_if_half_of_what_it_can_use_is_in_view(window, share, shown):
    (call,) = SMALL.turns[0].steps[0]
    text = call.result[: int(share * len(call.result))]
    made = {**result(call.id), "content": text}
    score = Score(SMALL, "openai", window)
    score.take(SMALL.turns[0], 1, {"messages": [HI, called(call.id), made]}, 0.0)
    assert score.row("one").newest_shown == shown


def test_a_needle_that_a_visible_call_loads_is_named_and_not_seen():
    turn = next(t for t in SMALL.turns if any(n.mark[0] == "s" for n in t.asked))
    needle = next(n for n in turn.asked if n.mark[0] == "s")
    messages = [called(f"call_{needle.mark}"), result(f"call_{needle.mark}")]
    request: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": turn.text}]}
    schema = {"type": "function", "function": {"name": "load_result", "parameters": {}}}
    for tools, named in (([], 0), ([schema], 1)):
        score = Score(SMALL, "openai", 16_000)
        score.take(turn, 0, {**request, "tools": tools}, 0.0)
        row = score.row("one")
        assert row.needles == 0
        assert row.named == named / len(turn.asked)


def test_a_summary_keeps_identifiers_and_is_paid_for():
    wrote = Summariser()
    assert "NV-12345" in wrote("The case is NV-12345.")
    assert wrote.read > 0
    score = full("openai")
    before = score.row("x").cost
    score.summariser("NV-12345 " * 100)
    assert score.row("x").cost > before


# The policies.


@pytest.mark.parametrize("rules", list(MODELS))
@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_of_muntin_plays_the_whole_script(name, rules):
    score = Score(SMALL, rules, 16_000)
    asyncio.run(play(POLICIES[name], SMALL, score))
    row = score.row(name)
    assert (row.requests, row.invalid, row.over, row.refused) == (24, 0, 0, 0)
    assert row.needles <= row.named
    assert row.turns_full <= row.turns_seen


def test_a_player_says_what_was_recorded():
    player = Player(SMALL, Score(SMALL, "openai", 16_000))
    assert {each.__name__ for each in player.tools} == set(SMALL.names)
    assert player.begin(SMALL.turns[1]) == SMALL.turns[1].text


def test_the_figures_tell_every_policy_and_the_page_has_a_table_of_them():
    found = list(long_runs.rows(16_000, SMALL, peers=False))
    figures = [
        figure
        for rules in MODELS
        for figure in long_runs.figures([row for row in found if row.rules == rules])
    ]
    assert [Figure.from_dict(json.loads(json.dumps(f.to_dict()))) for f in figures] == figures
    assert len({(figure.work, figure.peer) for figure in figures}) == len(figures)
    assert next(iter(places(figures).values())).keys() == POLICIES.keys()
    assert next(iter(next(iter(places(figures).values())))) == OWN
    assert len(list(tables(figures))) == len(MODELS)
    page = "\n".join(sections({"long_runs": figures}))
    assert "### A window of 16,000 tokens, openai" in page
    assert f"| {STEPPED} | 0 | 0 |" in page


@pytest.mark.parametrize(
    ("changed", "sets"),
    [({}, True), ({"over": 1}, False), ({"invalid": 1}, False), ({"newest_seen": 0.9}, False)],
)
def test_only_a_peer_that_forgets_nothing_at_hand_sets_the_price(changed, sets):
    own = full("openai").row(OWN)
    peer = replace(own, policy=next(iter(PEERS)), cost=own.cost / 2, **changed)
    rows = [own, *[replace(own, policy=STEPPED)] * (OWN != STEPPED), peer]
    figures = [each for each in long_runs.figures(rows) if each.peer == peer.policy]
    (cost,) = [each for each in figures if each.unit == "tokens"]
    assert cost.ratio == 2
    assert cost.held is (False if sets else None)


def test_a_run_grows_step_by_step():
    times, memory = Growing(POLICIES[STEPPED], [5, 20]).run()
    assert [n for n, _ in times] == [n for n, _ in memory] == [5, 20]
    assert all(seconds > 0 for _, seconds in times)
    assert memory[0][1] <= memory[1][1]
