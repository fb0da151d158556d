"""Strands Agents: the plugin, with the frontier in the state of the agent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from strands import Agent, tool
from strands.middleware import InvokeModelContext
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel

from bench.frameworks.stage import Stage, lookers, played
from bench.frameworks.strands import agent
from muntin.errors import BudgetExceeded
from muntin.fitting import Fitted, Fitter
from muntin.integrations.shared import FRONTIER
from muntin.integrations.strands import MuntinPlugin
from tests.integrations.contract import BUDGET, check, check_fits, check_same_bytes, session_of

LONG = "A sentence that says nothing. " * 40


def said(text: str, role: str = "user") -> Any:
    return {"role": role, "content": [{"text": text}]}


def context(messages: list[Any], made: Agent | None = None, system: Any = None) -> Any:
    """Return the call of a model, as the framework hands it to its middleware."""
    model = OpenAIModel(client_args={"api_key": "none"}, model_id="gpt-5")
    given: dict[str, Any] = {"tool_specs": [], "tool_choice": None, "invocation_state": {}}
    return InvokeModelContext(
        agent=made or Agent(model=model),
        model=model,
        messages=messages,
        system_prompt=system,
        **given,
    )


def processed(budget: int, given: Any) -> tuple[list[Any], Fitted]:
    """Return what the hook makes of a call, and what it told."""
    told: list[Fitted] = []
    made = asyncio.run(MuntinPlugin(budget, on_fit=told.append).process(given))
    return made.messages, told[0]


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("strands", tmp_path, whole)


def test_anthropic_is_streamed_to_and_every_request_is_valid():
    stage = Stage(played(20), BUDGET, rules="anthropic", check=check)
    with stage.open() as url:
        made = Agent(
            model=AnthropicModel(
                client_args={"api_key": "none", "base_url": url},
                model_id="claude-sonnet-4-5",
                max_tokens=1_000,
            ),
            system_prompt=stage.script.system,
            tools=[tool(each) for each in lookers(stage.script)],
            callback_handler=None,
            context_manager=False,
            plugins=[MuntinPlugin(BUDGET)],
        )

        async def run() -> None:  # in one event loop, because the client of Anthropic is of one
            for turn in stage.script.turns:
                await made.invoke_async(stage.begin(turn))

        asyncio.run(run())
    row = stage.score.row("anthropic")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (20, 0, 0, 0)
    assert len(made.messages) > 2 * row.requests - 1  # the agent has them all


def test_messages_come_back_as_they_were():
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s1g"}}}
    use = {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"at": "Oslo"}}}
    image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
    result = {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"json": [1]}]}}
    messages = [
        {
            "role": "user",
            "content": [{"text": "Where?"}, image, {"cachePoint": {"type": "default"}}],
        },
        {"role": "assistant", "content": [thought, use]},
        {"role": "user", "content": [result]},
    ]
    sent, told = processed(4_000, context(messages))
    assert all(one is other for one, other in zip(sent, messages, strict=True))
    assert told.unread == ()


def test_results_of_one_message_are_shortened_one_by_one():
    uses = [{"toolUse": {"toolUseId": f"c{n}", "name": "look", "input": {}}} for n in range(2)]
    results = [
        {"toolResult": {"toolUseId": f"c{n}", "status": "error", "content": [{"text": LONG * 10}]}}
        for n in range(2)
    ]
    messages = [
        said("Where?"),
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
    ]
    sent, _ = processed(700, context(messages))
    made = [block["toolResult"] for block in sent[-1]["content"]]
    assert [(each["toolUseId"], each["status"]) for each in made] == [
        ("c0", "error"),
        ("c1", "error"),
    ]
    assert all(len(each["content"][0]["text"]) < len(LONG * 10) for each in made)
    assert results[0]["toolResult"]["content"] == [{"text": LONG * 10}]


@pytest.mark.parametrize("missing", range(3))
def test_the_results_of_calls_of_one_message_stand_in_one(missing):
    uses = [{"toolUse": {"toolUseId": f"c{n}", "name": "look", "input": {}}} for n in range(3)]
    results = [
        {"toolResult": {"toolUseId": f"c{n}", "status": "success", "content": [{"text": "a"}]}}
        for n in range(3)
        if n != missing
    ]
    messages = [said("Where?"), {"role": "assistant", "content": uses}]
    messages += [{"role": "user", "content": results}, said("Here.", "assistant"), said("And?")]
    sent, _ = processed(4_000, context(messages))
    assert [each["role"] for each in sent] == ["user", "assistant"] * 2 + ["user"]
    ids = [block["toolResult"]["toolUseId"] for block in sent[2]["content"]]
    assert ids == ["c0", "c1", "c2"]


def test_what_cannot_be_read_is_carried_counted_and_named():
    odd = said("x" * 400, role="critic")
    sent, told = processed(1_000, context([said("Hi"), odd, said("So?")]))
    assert sent[1] is odd
    assert "critic" in told.unread[0]
    assert told.window.tokens > 60


def test_a_block_of_another_kind_is_carried_and_counted():
    odd = {"role": "user", "content": [{"hologram": {"data": "x" * 400}}, {"text": "So?"}]}
    sent, told = processed(1_000, context([odd]))
    assert sent == [odd]
    assert told.window.tokens > 60


@pytest.mark.parametrize("system", [LONG, [{"text": LONG}, {"cachePoint": {"type": "default"}}]])
def test_a_budget_smaller_than_the_system_prompt_is_an_error_that_says_so(system):
    with pytest.raises(BudgetExceeded):
        processed(50, context([said("Hi")], system=system))


def test_the_agent_raises_our_error_and_sends_nothing():
    stage = Stage(played(3))
    with stage.open() as url:
        made = agent(stage.script, url, plugins=[MuntinPlugin(50)], context_manager=False)
        with pytest.raises(BudgetExceeded):
            made(stage.script.turns[0].text)
    assert stage.requests == []


def test_a_frontier_of_another_conversation_is_left_aside_and_the_report_says_so():
    first = context([said(f"{n} {LONG}") for n in range(9)])
    _, one = processed(500, first)
    assert first.agent.state.get(FRONTIER) == one.frontier
    _, other = processed(500, context([said("Another")], first.agent))
    assert other.fresh


def test_two_requests_of_one_conversation_at_once_are_both_whole():
    plugin, messages = MuntinPlugin(500), [said(f"{n} {LONG}") for n in range(10)]

    async def run() -> tuple[Any, Any]:
        given = context(messages)
        return await asyncio.gather(plugin.process(given), plugin.process(given))

    one, other = asyncio.run(run())
    assert one.messages == other.messages
    assert one.messages[-1] is messages[-1]


@pytest.mark.parametrize(
    ("module", "name", "known"),
    [
        ("strands.models.bedrock", "us.anthropic.claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("strands.models.gemini", "gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("strands.models.litellm", "openai/gpt-5", "openai/gpt-5"),
        ("strands.models.ollama", "llama3", None),
    ],
)
def test_the_name_of_a_model_is_taken_where_its_maker_is_known(module, name, known):
    seen: list[str | None] = []

    class Seen(Fitter):
        def fit(self, *args: Any, **given: Any) -> Fitted:
            seen.append(given["model"])
            return super().fit(*args, **given)

    kind = type("Model", (SimpleNamespace,), {"__module__": module})
    given = context([said("Hi")])
    given.model = kind(get_config=lambda: {"model_id": name})
    asyncio.run(MuntinPlugin(Seen(1_000)).process(given))
    assert seen == [known]


def test_a_conversation_is_recorded_under_the_framework_s_own_id(tmp_path):
    assert session_of("strands", tmp_path) == "ada"
