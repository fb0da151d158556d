"""Thoughts that are bound to what stands before them: no request is refused, and none goes without
its thoughts but at a move."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import pytest

from muntin import App, Message, Slots, Window, fit
from muntin.core.caching.frontier import Frontier
from muntin.core.digests import digest
from muntin.core.parts import Reasoning, Text
from muntin.core.thoughts import count_thoughts
from muntin.fitting import fit_client
from muntin.providers import as_model
from tests.bound_runs import QUESTION, RUNS, SYSTEM, TOOLS, asks, by_fit, client, make_run, read
from tests.enforcing import THOUGHTS, EnforcingProvider
from tests.interfaces import INTERFACES
from tests.products import IS_WHOLE, sample
from tests.providers.servers import serving

BOUND, FREE = "claude-fable-5-1", "claude-opus-4-6"
STEPS, BUDGET = (200, 20_000) if IS_WHOLE else (24, 7_000)


def check(run: EnforcingProvider) -> None:
    """Check a run: nothing was refused, it moved, and thoughts left at moves only."""
    assert not run.refused
    assert run.moves >= 3
    before, texts = 0, list[str]()
    for exchange in run.exchanges:
        goes_on = exchange.text[: len(texts)] == texts
        assert exchange.thoughts == (before + 1 if goes_on and texts else 0)
        before, texts = exchange.thoughts, exchange.text


@pytest.mark.parametrize("name", RUNS)
def test_no_request_of_a_long_run_is_refused(name: str) -> None:
    run = make_run(name, BOUND, STEPS, BUDGET)
    assert len(run.exchanges) >= STEPS
    check(run)


@pytest.mark.parametrize("name", sample(INTERFACES, "generate", "generator", "sources"))
def test_in_every_interface_the_steps_of_a_turn_see_their_thoughts(name: str) -> None:
    provider = EnforcingProvider(period=9)

    async def ask(url: str) -> None:
        model: Any = as_model(f"anthropic/{BOUND}", base_url=url, api_key="k")
        await INTERFACES[name](App("memory:", model=model, budget=7_000), model, "Go.", [read])

    with serving(provider.answer) as server:
        asyncio.run(ask(server.url))
    assert not provider.refused
    thoughts = [exchange.thoughts for exchange in provider.exchanges]
    assert thoughts[:4] == [0, 1, 2, 3][: len(thoughts)]


@pytest.mark.parametrize("name", ["claude-haiku-5.5", "claude-quartz-9"])
def test_models_whose_names_are_not_known_count_as_bound(name: str) -> None:
    check(make_run("fit", name, STEPS, BUDGET))


def test_models_that_are_not_bound_have_all_thoughts_of_the_messages_that_they_see() -> None:
    run = make_run("conversation", FREE, STEPS, BUDGET)
    assert not run.refused
    for exchange in run.exchanges:
        answers = [m for m in exchange.body["messages"] if m["role"] == "assistant"]
        kept = [m for m in answers if any(b["type"] in THOUGHTS for b in m["content"])]
        assert len(kept) >= len(answers) - 2  # a text that stands for calls holds none


def test_without_a_model_s_name_signed_thoughts_count_as_bound() -> None:
    run = make_run("fit", BOUND, STEPS, BUDGET, named=False)
    check(run)


def test_a_lost_state_costs_the_thoughts_so_far_and_nothing_more() -> None:
    lost_at = 25 if IS_WHOLE else 9
    run = make_run("fit", BOUND, STEPS, BUDGET, lost_at=lost_at)
    assert not run.refused
    assert run.exchanges[lost_at - 1].thoughts == 0
    assert run.exchanges[lost_at].thoughts in (0, 1)  # 0 if it moved at once


_WORKER = """
import sys
from tests.bound_runs import by_conversation
by_conversation(sys.argv[1], "claude-fable-5-1", 10_000, int(sys.argv[3]), sys.argv[2])
"""


def test_a_conversation_goes_on_with_its_thoughts_in_a_process_that_comes_after_a_kill(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path / 'talk.db'}"
    ends = [60, 130, 200] if IS_WHOLE else [10, 19, 27]
    killed: list[subprocess.Popen[bytes]] = []
    provider = EnforcingProvider()

    def answer(received: Any) -> Any:
        if ends and len(provider.exchanges) >= ends[0]:
            ends.pop(0)
            killed[-1].kill()
        return provider.answer(received)

    with serving(answer) as server:
        while ends:
            command = [sys.executable, "-c", _WORKER, server.url, store, str(BUDGET)]
            killed.append(subprocess.Popen(command))
            killed[-1].wait(120)
    assert not provider.refused
    assert len(provider.exchanges) >= (200 if IS_WHOLE else 27)
    first_after = [provider.exchanges[n].thoughts for n in (11, 12)]
    assert max(first_after) > 0 or IS_WHOLE


# What a move is.


def answer(number: int, *, thought: str | None = None) -> dict[str, Any]:
    """Return an answer that calls a tool, with a signed thought."""
    thought = thought or f"s{number}"
    return {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": f"Thought {number}.", "signature": thought},
            {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"path": "a"}},
        ],
    }


def result(number: int, text: str | None = None) -> dict[str, Any]:
    text = read(f"f{number}") if text is None else text
    block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    return {"role": "user", "content": [block]}


def signatures(messages: list[Any]) -> list[str]:
    """Return the signatures of the thoughts in a list."""
    blocks = [b for m in messages if isinstance(m["content"], list) for b in m["content"]]
    return [block["signature"] for block in blocks if block["type"] == "thinking"]


def talk(rounds: int) -> list[Any]:
    said: list[Any] = [{"role": "user", "content": QUESTION}]
    for number in range(1, rounds + 1):
        said += [answer(number), result(number)]
    return said


def fitted(messages: list[Any], previous: Any, budget: int = 50_000, **options: Any) -> Any:
    settings = {"model": f"anthropic/{BOUND}", "system": SYSTEM, "tools": TOOLS, **options}
    return fit(messages, budget, previous=previous, **settings)


def test_thoughts_made_before_a_move_leave_at_it_and_those_made_after_it_stay() -> None:
    state: dict[str, Any] = {}
    for rounds in range(3):
        request = fitted(talk(rounds), state)
        state = request.frontier
        assert signatures(request.kept) == [f"s{n}" for n in range(1, rounds + 1)]
    moving = [*talk(3)[:-1], result(3, "word " * 4_000)]
    request = fitted(moving, state, budget=4_000)
    assert signatures(request.kept) == []
    assert request.report["thoughts"].detail == "3 left at this move (bound to what stood before)"
    moved = request.report.prefix.moved
    assert moved.reason == "moved"
    state = json.loads(json.dumps(request.frontier))
    later = fitted([*moving, answer(4), result(4, "short")], state, budget=4_000)
    assert signatures(later.kept) == ["s4"]
    assert "thoughts" not in {row.name for row in later.report.slots}


MOVES: dict[str, tuple[Callable[[list[Any]], list[Any]], dict[str, Any], str]] = {
    "another system text": (lambda said: said, {"system": "Be quick."}, "instructions"),
    "another tool": (lambda said: said, {"tools": [*TOOLS, {"name": "write", "input_schema": {}}]},
                     "(tools)"),
    "a changed result": (lambda said: [*said[:2], result(1, "nothing"), *said[3:]], {}, "run"),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_what_changes_the_text_is_a_move_and_the_report_names_it(name: str) -> None:
    change, options, slot = MOVES[name]
    state = fitted(talk(3), fitted(talk(2), fitted(talk(0), {}).frontier).frontier).frontier
    request = fitted(change(talk(4)), state, **options)
    assert signatures(request.kept) == []
    assert request.report["thoughts"].detail.startswith("4 left at this move")
    assert request.report.prefix.moved is not None
    assert request.report.prefix.moved.slot == slot


def test_the_order_of_tools_marks_and_thoughts_that_the_caller_took_out_are_no_move() -> None:
    tools = [*TOOLS, {"name": "write", "input_schema": {"type": "object"}}]
    state = fitted(talk(3), fitted(talk(0), {}, tools=tools).frontier, tools=tools).frontier
    said = talk(4)
    said[1]["content"].pop(0)
    said[2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    request = fitted(said, state, tools=[{**tools[1], "cache_control": {"type": "ephemeral"}},
                                         tools[0]])  # fmt: skip
    assert signatures(request.kept) == ["s2", "s3", "s4"]
    assert request.report.prefix.moved is None or request.report.prefix.moved.slot == "(tools)"


def test_at_a_move_the_conversation_steps_down_at_once_whatever_made_the_move() -> None:
    said = talk(12)
    full = fitted(said, fitted(said[:1], {}, 16_000).frontier, 16_000)
    assert full.tokens > 12_000
    moved = fitted([*said, answer(13), result(13)], full.frontier, 16_000, system="Be quick.")
    assert moved.tokens < 8_000
    later = fitted([*said, answer(13), result(13), answer(14), result(14)], moved.frontier, 16_000,
                   system="Be quick.")  # fmt: skip
    assert signatures(later.kept) == ["s14"]


def test_a_turn_of_only_thoughts_leaves_with_them_and_its_neighbours_are_joined() -> None:
    alone = {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s0"}]}  # fmt: skip
    said = [{"role": "user", "content": "One."}, alone, {"role": "user", "content": "Two."}]
    request = fitted(said, {})
    assert [m["content"] for m in request.kept] == ["One.", "Two."]
    window = request.window.anthropic()
    texts = [block["text"] for block in window["messages"][0]["content"]]
    assert (len(window["messages"]), texts) == (1, ["One.", "Two."])


def test_slots_with_the_window_before_send_the_thoughts_since_the_move() -> None:
    def window(rounds: int, before: Window | Frontier | None, system: str = "Be brief.") -> Window:
        slots = Slots(50_000, profile=f"anthropic/{BOUND}", previous=before)
        slots.add("system", system)
        slots.add("input", QUESTION)
        if rounds:
            slots.add("run", talk(rounds)[1:], run=True)
        return slots.render()

    def thoughts(window: Window) -> int:
        return sum(map(count_thoughts, window.messages))

    first = window(0, None)
    second = window(1, first)
    third = window(2, second)
    assert [thoughts(first), thoughts(second), thoughts(third)] == [0, 1, 2]
    moved = window(3, third, "Be quick.")
    after = window(4, moved, "Be quick.")
    assert [thoughts(moved), thoughts(after)] == [0, 1]
    assert [thoughts(window(4, None)), thoughts(window(5, after.frontier, "Be quick."))] == [0, 2]
    assert "thinking" not in json.dumps(moved.anthropic())


def test_a_message_is_known_again_without_its_thoughts() -> None:
    thought = Reasoning("Hm.", signature="s")
    with_it = Message("assistant", (thought, Text("Yes.")))
    assert digest(with_it) == digest(Message("assistant", "Yes."))
    summary = Reasoning("Hm.", extra={"summary": [], "id": "rs_1"})  # OpenAI's: bytes like others
    assert digest(Message("assistant", (summary, Text("Yes.")))) != digest(with_it)


def test_a_state_of_0_2_sends_no_thought() -> None:
    state = fitted(talk(2), fitted(talk(0), {}).frontier).frontier
    state["start"].pop("thoughts")
    del state["sent"]
    request = fitted(talk(3), state)
    assert signatures(request.kept) == []
    assert request.report["thoughts"].detail.startswith("3 not sent")
    later = fitted(talk(4), request.frontier)
    assert signatures(later.kept) == ["s4"]


def test_what_was_refused_comes_back_unchanged_and_nothing_asks_for_leniency() -> None:
    provider = EnforcingProvider(strict=True)
    with serving(provider.answer) as server:
        ask = asks(fit_client(client(server.url), BUDGET), FREE)
        with pytest.raises(anthropic.BadRequestError, match="thinking signature"):
            ask(talk(1))
        by_fit(server.url, BOUND, 3, BUDGET)
    assert b"block_binding" not in b"".join(exchange.raw for exchange in provider.exchanges)
    assert b"prefix_mismatch" not in b"".join(exchange.raw for exchange in provider.exchanges)
