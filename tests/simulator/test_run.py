"""Policies against the cache model: windows one after another, and whole conversations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from muntin import Exact, InvalidInput, Message, Profile, Slots, assistant, system, tool, user
from muntin.core.window import Breakpoint
from muntin.simulator import simulate, simulate_trace
from tests.paths import TRACES
from tests.simulator.cases import CLAUDE, GPT_5, chat, replayed
from tests.simulator.test_requests import CALL


def test_a_breakpoint_is_a_mark_behind_its_message():
    slots = Slots(100_000, tokenizer=len)
    slots.add("system", "s" * 2_000)
    slots.add("history", [user("a" * 1_000), assistant("b", tool_calls=[CALL]), tool("c1", "r")])
    window = dataclasses.replace(slots.render(), breakpoints=(Breakpoint(1), Breakpoint(3)))
    profile = Profile.for_model("anthropic/claude-sonnet-4-5")
    run = simulate([window, window], profile, caching=CLAUDE, tokenizer=len)["windows"]
    # Three messages, the third with text and a call: all but the result, one token.
    assert [(step.read, step.written, step.uncached) for step in run.steps] == [
        (0, 3_017, 1),
        (3_017, 0, 1),
    ]


def test_a_changed_slot_is_named_as_the_cause():
    def window(text: str):
        slots = Slots(100_000, tokenizer=len)
        slots.add("system", "s" * 2_000)
        slots.add("weather", text)
        slots.add("history", [user("a" * 100)])
        return slots.render()

    profile = Profile.for_model("openai/gpt-5")
    windows = [window("sunny"), window("sunny"), window("rainy")]
    run = simulate(windows, profile, caching=GPT_5, tokenizer=len)["windows"]
    assert [(step.diverged, step.cause) for step in run.steps] == [
        (None, None),
        (None, None),
        (1, "weather changed"),
    ]
    assert run.steps[2].read == 1_920
    late = simulate(windows[:2], profile, caching=GPT_5, tokenizer=len, pause=301)["windows"]
    assert late.steps[1].cause == "expired"


def test_a_history_that_begins_later_is_trimmed_though_a_user_message_leads_it():
    turns = [user("a" * 50), assistant("b" * 50), user("c" * 50), assistant("d" * 50)]

    def window(history: list[Message]):
        slots = Slots(100_000, tokenizer=len, profile="anthropic/claude-sonnet-4-5")
        slots.add("history", history)
        return slots.render()

    windows = [window(turns), window(turns[1:]), window(turns)]
    run = simulate(windows, "anthropic/claude-sonnet-4-5", tokenizer=len)["windows"]
    told = [(step.diverged, step.cause) for step in run.steps]
    assert told == [(None, None), (0, "history trimmed"), (0, "history added")]


def test_a_full_history_reads_everything_but_what_is_new():
    run = replayed(chat(30))["full"]
    assert [step.tokens for step in run.steps[:3]] == [1_124, 1_324, 1_524]
    assert all(new.read == old.tokens for old, new in pairwise(run.steps))
    assert run.breaks == 0
    assert run.retention == 1.0


def test_exact_trimming_reads_only_the_system_text_once_it_trims():
    run = replayed(chat(30))["exact"]
    full = [step for step in run.steps if step.turn > 8]
    assert {(step.read, step.cause) for step in full} == {(1_024, "history trimmed")}
    assert run.retained < replayed(chat(30))["full"].retained


def test_a_function_is_a_policy():
    def last_three(messages, budget):
        assert budget == 2_500
        return [messages[0], *messages[-3:]]

    run = replayed(chat(10), policies=(last_three,))["last_three"]
    assert [step.retained for step in run.steps] == [100, *[300] * 9]
    named = replayed(chat(10), policies={"three": last_three, "all": "full"})
    assert [each.policy for each in named.runs] == ["three", "all"]


def test_policies_that_cannot_be_told_apart_are_an_error():
    with pytest.raises(InvalidInput, match="two policies are called 'full'"):
        replayed(chat(2), policies=("full", "full"))
    with pytest.raises(InvalidInput, match="unknown policy 'best'"):
        replayed(chat(2), policies=("best",))


def test_steps_send_one_request_before_each_answer():
    messages = [
        system("s" * 1_024),
        user("find"),
        assistant(tool_calls=[CALL]),
        tool("c1", "found"),
        assistant("Here."),
        user("thanks"),
    ]
    assert len(replayed(messages)["full"].steps) == 2
    steps = replayed(messages, steps=True)["full"].steps
    assert [step.turn for step in steps] == [0, 0, 1]
    assert [step.read for step in steps] == [0, 1_028, 1_049]


def test_volatile_text_is_sent_once_and_the_history_before_it_is_read():
    run = replayed(chat(5), volatile=["v" * 300, "w" * 200], policies=("full",))["full"]
    assert [step.tokens for step in run.steps] == [1_424, 1_524, 1_824, 1_924, 2_224]
    assert [step.read for step in run.steps] == [0, 1_124, 1_324, 1_524, 1_724]
    assert [step.retained for step in run.steps] == [100, 300, 500, 700, 900]
    assert [step.uncached for step in run.steps] == [300, 200, 300, 200, 300]
    assert run.breaks == 0


def test_volatile_text_that_cannot_fit_is_an_error():
    with pytest.raises(InvalidInput, match=r"volatile text 1 has 626 tokens, .*\(625\)"):
        replayed(chat(5), volatile=["v" * 625, "w" * 626])


@pytest.mark.parametrize("pause", [-1, float("nan"), "30", [], [30, -1]])
def test_a_pause_is_a_number_of_seconds(pause):
    with pytest.raises(InvalidInput, match="pause must be"):
        replayed(chat(2), pause=pause)


def test_several_pauses_are_taken_in_turn():
    run = replayed(chat(7), pause=[30, 301, 30], policies=("full",))["full"]
    assert [step.cause == "expired" for step in run.steps] == [
        *(False, False, True),
        *(False, False, True, False),
    ]
    # A request after a long pause costs the optimum as much as the policy.
    steady, late = (replayed(chat(60), pause=pause)["exact"] for pause in (30, [30, 301]))
    assert steady.best is not None
    assert late.best is not None
    assert steady.best < late.best <= late.cost * 1.001


def test_retrieval_in_front_of_the_conversation_leaves_only_the_system_text_to_read():
    def in_front(messages: Sequence[Message], budget: int) -> list[Message]:
        first, *said, docs = messages
        return [first, docs, *said]

    texts = [f"{n} found" for n in range(8)]
    run = replayed(chat(8), volatile=texts, policies={"front": in_front})["front"]
    head = run.steps[0].read + run.steps[0].written
    assert {step.read for step in run.steps[1:]} == {head}


def test_a_model_without_rules_is_an_error():
    with pytest.raises(InvalidInput, match="pass caching="):
        simulate_trace([user("x")], budget=10, model="nobody/nothing", policies=("full",))


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "openai/gpt-5.6"])
def test_the_breakpoints_of_stepped_windows_find_all_that_was_written(model, steps):
    messages = [m for line in TRACES.read_text().splitlines()[:30] for m in _conversation(line)]
    result = simulate_trace(messages, budget=8_000, model=model, policies=("stepped",), steps=steps)
    run = result["stepped"]
    assert run.breaks > 5
    for old, new in pairwise(run.steps):
        if new.diverged is None:
            assert new.read == old.read + old.written
        else:
            # The system text, and what of the history stands before the first change.
            assert new.read >= run.steps[0].tokens - run.steps[0].retained


def _conversation(line: str) -> list[Any]:
    messages: list[Any] = json.loads(line)["messages"]
    return messages if "airline-0-0" in line else messages[1:]


def test_a_recorded_conversation_is_replayed():
    messages = json.loads(TRACES.read_text().splitlines()[0])["messages"]
    result = simulate_trace(
        messages, budget=2_500, model="openai/gpt-5", caching=GPT_5, policies=(Exact(), "full")
    )
    assert result["full"].read_share > result["Exact()"].read_share
    assert GPT_5.readable(1_300) == 1_280
