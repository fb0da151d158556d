"""A result never erases its call: what a tool gave is shown, cut as far as needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from muntin import App, BudgetExceeded, Ladder, Results, ToolCall, Window, flow, generator
from muntin.agent import ToolLike
from muntin.errors import InvalidType
from muntin.runtime import Action, Ctx
from muntin.testing import ScriptedModel
from muntin.wire import anthropic, chat
from tests.interfaces import DURABLE, INTERFACES
from tests.products import PRICED, THREE, sample
from tests.wired import WIRED

NAMES = {"anthropic/claude-sonnet-4-6": anthropic.encode, "openai/gpt-5": chat.encode}
BUDGET = 8_000
# Interfaces whose agents are offered the tool that reads results.
READS = sorted(DURABLE)


class Asker:
    """Calls a tool as long as it does not see that tool's results, then answers."""

    def __init__(
        self, name: str = PRICED, calls: int = 1, budget: int = BUDGET, lines: int = 20_000
    ) -> None:
        self.calls = calls
        self.lines = lines
        self.ran: list[int] = []
        self.model = ScriptedModel(self.answer, name=name, budget=budget)

    def answer(self, window: Window) -> Any:
        if any(message.role == "tool" for message in window.messages):
            return "Here is what I found."
        return [ToolCall(f"c{n}", "search", json.dumps({"number": n})) for n in range(self.calls)]

    def search(self, number: int) -> str:
        """Search everything."""
        self.ran.append(number)
        return f"BEGIN {number} " + "a line of what was found\n" * self.lines + f" END {number}"


def offered(window: Window) -> set[str]:
    return {tool["function"]["name"] for tool in window.tools}


async def through(
    interface: str, asker: Asker, tools: Sequence[ToolLike] = (), **options: Any
) -> None:
    async with App("memory:", **options) as app:
        await (INTERFACES | WIRED)[interface](app, asker.model, "Find it.", tools or [asker.search])


@pytest.mark.parametrize("name", [*NAMES, "mistral/mistral-large"])
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("interface", sample([*INTERFACES, *WIRED], *THREE, "gateway"))
def test_a_tool_whose_result_is_larger_than_the_window_runs_once_per_call(interface, calls, name):
    asker = Asker(name, calls)
    asyncio.run(through(interface, asker))
    assert sorted(asker.ran) == list(range(calls))
    first, last = asker.model.windows
    assert first.tools == last.tools
    assert last.tokens <= BUDGET
    request = json.dumps(NAMES.get(name, chat.encode)(last))
    for number in range(calls):
        assert f"BEGIN {number}" in request
        assert f"END {number}" in request
        assert f'"c{number}"' in request
    assert request.count("tokens left out") == calls
    if interface in WIRED:  # what came is all that is known there
        return
    results = [slot for slot in last.report.slots if slot.name == "run"]
    assert results[0].tokens_asked > BUDGET > results[0].tokens_kept


@pytest.mark.parametrize("interface", sample(READS, *THREE))
def test_the_line_says_how_to_read_the_rest_and_that_reads_it(interface):
    asker = Asker(calls=1)
    read: list[str] = []

    def answer(window: Window) -> Any:
        results = [message for message in window.messages if message.role == "tool"]
        if not results:
            return asker.answer(window)
        if len(results) == 1:
            assert "load_result('c0') reads them" in results[0].text
            arguments = {"call_id": "c0", "start": 200_000, "end": 200_050}
            return ToolCall("r", "load_result", json.dumps(arguments))
        read.append(results[1].text)
        return "Found."

    asker.model = ScriptedModel(answer, budget=BUDGET, name=PRICED)
    asyncio.run(through(interface, asker))
    whole = "BEGIN 0 " + "a line of what was found\n" * 20_000 + " END 0"
    assert len(asker.ran) == 1
    assert read[0].startswith(whole[200_000:200_050] + "\n[characters 200000 to 200050 of")


@pytest.mark.parametrize("off", [False, None])
@pytest.mark.parametrize("interface", sample(DURABLE, *THREE))
def test_without_recovery_no_tool_is_offered_and_no_line_names_one(interface, off):
    asker = Asker()
    asyncio.run(through(interface, asker, recovery=off))
    for window in asker.model.windows:
        assert offered(window) == {"search"}
        assert "load_" not in "".join(message.text for message in window.messages)
    assert "tokens left out]" in asker.model.windows[-1].messages[-1].text


@pytest.mark.parametrize("interface", sample(READS, *THREE))
def test_a_tool_of_the_users_with_that_name_wins(interface):
    asker = Asker()

    def load_result(query: str) -> str:
        """Mine."""
        return query

    asyncio.run(through(interface, asker, [asker.search, load_result]))
    window = asker.model.windows[-1]
    mine = [each for each in window.tools if each["function"]["name"] == "load_result"]
    assert [each["function"]["description"] for each in mine] == ["Mine."]
    assert "load_result" not in window.messages[-1].text


@pytest.mark.parametrize("interface", sample(sorted({*READS} - {"sources"}), *THREE[:2]))
def test_who_has_no_tools_is_offered_none(interface):
    model = ScriptedModel(lambda window: "ok", budget=BUDGET, name=PRICED)

    async def run() -> None:
        async with App("memory:") as app:
            await INTERFACES[interface](app, model, "Hello.", ())

    asyncio.run(run())
    assert [window.tools for window in model.windows] == [()]


@pytest.mark.parametrize("interface", sample(DURABLE, *THREE))
def test_a_ceiling_of_the_apps_holds_in_every_interface(interface):
    asker = Asker()
    asyncio.run(through(interface, asker, results=Results(0.05, keep=("head",))))
    text = asker.model.windows[-1].messages[-1].text
    assert "BEGIN" in text
    assert "END" not in text
    assert len(text) < 2_500


@pytest.mark.parametrize("interface", sample(DURABLE, *THREE))
def test_if_not_even_the_newest_results_fit_the_model_is_not_asked(interface):
    # Each result alone is larger than the window; that all are cut is the point, not how much.
    asker = Asker(calls=90, budget=5_420 if interface == "sources" else 2_400, lines=1_000)
    with pytest.raises(BudgetExceeded) as caught:
        asyncio.run(through(interface, asker))
    assert len(asker.model.windows) == 1
    assert len(asker.ran) == 90
    told = str(caught.value)
    assert "'search'" in told
    error = caught.value
    assert f"needs {error.needed:,} tokens but only {error.available:,}" in told
    kept = [slot.tokens_kept for slot in error.report.slots]
    report = error.report
    beside = report.tools_tokens + report.joined_tokens + report.answer_tokens
    beside += report.provider_tokens
    assert sum(kept) + beside == error.needed


WRONG = [("results", 5), ("results", Ladder()), ("ladder", "down"), ("ladder", Results())]


@pytest.mark.parametrize(("option", "value"), [*WRONG, ("recovery", "yes"), ("recovery", 1)])
def test_a_wrong_value_is_an_error_that_names_the_argument(option, value):
    given: dict[str, Any] = {option: value}
    block = generator(model="scripted", prompt="x")
    makers: list[Any] = [
        lambda: App("memory:", **given),
        lambda: App("memory:").conversation("c", model=ScriptedModel([], name=PRICED), **given),
        lambda: generator(prompt="x", **given),
        lambda: flow("f", actions={"a": Action(block)}, **given),
    ]
    for make in makers:
        with pytest.raises(InvalidType, match=f"{option} must be"):
            make()

    async def run() -> None:
        async with App("memory:") as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Any) -> None:
                ctx.use_agent(model=ScriptedModel(["x"], name=PRICED), **given)

            await app.ask("e/1", "hello")

    with pytest.raises(InvalidType, match=f"use_agent: {option} must be"):
        asyncio.run(run())


@pytest.mark.parametrize("off", [False, None])
def test_ceiling_and_ladder_are_switched_off(off):
    asker = Asker(budget=400_000)

    async def run() -> None:
        async with App("memory:") as app:
            talk = app.conversation(
                "c", model=asker.model, tools=[asker.search], results=off, ladder=off
            )
            await talk.send("Find it.")

    asyncio.run(run())
    assert asker.model.windows[-1].messages[-1].text == (
        "BEGIN 0 " + "a line of what was found\n" * 20_000 + " END 0"
    )
