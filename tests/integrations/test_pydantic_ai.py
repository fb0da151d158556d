"""Pydantic AI: the capability, with the frontier in the metadata of requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.usage import UsageLimits

from bench.frameworks.stage import Stage, lookers, played
from muntin.errors import BudgetExceeded
from muntin.fitting import Fitted, Fitter
from muntin.integrations.pydantic_ai import MuntinContext, pieces_of
from muntin.integrations.shared import FRONTIER
from tests.integrations.contract import BUDGET, check, check_fits, check_same_bytes, session_of

LONG = "A sentence that says nothing. " * 40
PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010806000000")


def fitted(budget: int, messages: list[Any], *, told: list[Fitted] | None = None) -> list[Any]:
    """Return what the hook sends of messages."""
    watcher = None if told is None else told.append
    request = ModelRequestContext(
        model=TestModel(),
        messages=messages,
        model_settings=None,
        model_request_parameters=ModelRequestParameters(),
    )
    sent: list[Any] = MuntinContext(budget, on_fit=watcher).fitted(request)[0].messages
    return sent


def asks(text: str) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)])


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("pydantic_ai", tmp_path, whole)


def test_anthropic_is_streamed_to_and_every_request_is_valid():
    script = played(20)
    stage = Stage(script, BUDGET, rules="anthropic", check=check)
    limits = UsageLimits(request_limit=None)
    with stage.open() as url:
        provider = AnthropicProvider(api_key="none", base_url=url)
        made = Agent(
            AnthropicModel("claude-sonnet-4-5", provider=provider),
            instructions=script.system,
            tools=lookers(script),
            capabilities=[MuntinContext(BUDGET)],
        )

        async def run() -> None:
            history: list[Any] = []
            for turn in script.turns:
                said = stage.begin(turn)
                async with made.run_stream(
                    said, message_history=history, usage_limits=limits
                ) as done:
                    await done.get_output()
                history = done.all_messages()
            requests = [each for each in history if isinstance(each, ModelRequest)]
            assert all(FRONTIER in (each.metadata or {}) for each in requests)

        asyncio.run(run())
    row = stage.score.row("anthropic")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (20, 0, 0, 0)


def test_messages_come_back_as_the_objects_they_were():
    messages = [
        ModelRequest([UserPromptPart(["Look:", BinaryContent(PNG, media_type="image/png")])]),
        ModelResponse([ThinkingPart("Hm.", signature="s1g"), ToolCallPart("look", {}, "c1")]),
        ModelRequest([ToolReturnPart("look", {"found": 1}, "c1"), UserPromptPart("And?")]),
    ]
    sent = fitted(4_000, messages)
    assert all(one is other for one, other in zip(sent, messages, strict=True))


def test_a_question_that_is_cut_keeps_its_image():
    image = BinaryContent(PNG, media_type="image/png")
    told = TextContent("And this?")
    asked = UserPromptPart(["Look: " + LONG * 10, image, told])
    (sent,) = fitted(2_500, [ModelRequest([asked])])[0].parts
    assert "left out" in sent.content[0]
    assert sent.content[1] is image
    assert sent.content[2] == told


@pytest.mark.filterwarnings("ignore:`RetryPromptPart` is deprecated")
def test_a_shortened_retry_is_sent_as_it_was_counted():
    told: list[Fitted] = []
    messages = [asks("Where?")]
    for number in range(30):
        retry = RetryPromptPart(LONG, tool_name="look", tool_call_id=f"c{number}")
        messages.append(ModelResponse([ToolCallPart("look", {}, f"c{number}")]))
        messages.append(ModelRequest([retry]))
    sent = fitted(1_200, messages, told=told)
    again = Fitter(1_000_000, results=None).fit(pieces_of(sent))
    assert again.window.tokens == told[0].window.tokens
    assert told[0].window.report["run"].status in ("trimmed", "stubbed")


def test_of_a_request_with_several_parts_only_those_that_fit_are_sent():
    calls = [ToolCallPart("look", {"n": n}, f"c{n}") for n in range(2)]
    results = [ToolReturnPart("look", LONG * 10, f"c{n}", metadata=n) for n in range(2)]
    messages = [asks("Where?"), ModelResponse(calls), ModelRequest(results)]
    sent = fitted(700, messages)
    made = sent[-1].parts
    assert [part.tool_call_id for part in made] == ["c0", "c1"]
    assert [part.metadata for part in made] == [0, 1]
    assert all(len(part.content) < len(LONG * 10) for part in made)
    assert results[0].content == LONG * 10


def test_what_cannot_be_read_is_carried_counted_and_named():
    told: list[Fitted] = []
    odd = UserPromptPart("x" * 400)
    odd.part_kind = "hologram"  # type: ignore[assignment, unused-ignore]
    messages = [asks("Hi"), ModelResponse([TextPart("Hello")]), ModelRequest([odd]), asks("So?")]
    sent = fitted(2_000, messages, told=told)
    assert sent[2] is messages[2]
    assert "hologram" in told[0].unread[0]
    assert told[0].window.tokens > 80


def test_a_budget_smaller_than_the_question_is_an_error_that_says_so():
    with pytest.raises(BudgetExceeded):
        fitted(10, [asks(LONG * 100)])


def test_a_frontier_of_another_conversation_is_left_aside_and_the_report_says_so():
    told: list[Fitted] = []
    talk = [
        each for n in range(9) for each in (asks(f"{n} {LONG}"), ModelResponse([TextPart("a")]))
    ]
    fitted(500, [*talk, asks("And?")], told=told)
    other = asks("Another")
    other.metadata = {FRONTIER: told[0].frontier}
    fitted(500, [other, ModelResponse([TextPart("b")]), asks("Then?")], told=told)
    assert [bool(each.fresh) for each in told] == [False, True]


def test_a_conversation_is_recorded_under_the_framework_s_own_id(tmp_path):
    id = session_of("pydantic_ai", tmp_path)
    history = json.loads((tmp_path / "chat.json").read_text())
    assert {message["conversation_id"] for message in history} == {id}


def test_bound_thoughts_leave_at_a_move_and_those_made_after_it_stay() -> None:
    said: list[Any] = [asks("Why does the build fail?")]
    hook, sent = MuntinContext(4_000), []
    for number in range(8):
        request = ModelRequestContext(
            model=TestModel(),
            messages=said,
            model_settings=None,
            model_request_parameters=ModelRequestParameters(),
        )
        parts = [part for message in hook.fitted(request)[0].messages for part in message.parts]
        sent.append([part.signature for part in parts if part.part_kind == "thinking"])
        thought = ThinkingPart("Hm.", signature=f"s{number}", provider_name="anthropic")
        call = ToolCallPart("read", {}, f"t{number}")
        said.append(ModelResponse([thought, TextPart("I read."), call]))
        said.append(ModelRequest([ToolReturnPart("read", "line\n" * 400, f"t{number}")]))
    assert sent[:5] == [[f"s{n}" for n in range(count)] for count in range(5)]
    assert sent[5:7] == [[], ["s5"]]
