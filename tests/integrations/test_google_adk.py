"""Google's Agent Development Kit: the plugin, with the frontier in the state of the session."""

from __future__ import annotations

import asyncio
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai.types import (
    Blob,
    Content,
    FunctionCall,
    FunctionResponse,
    GenerateContentConfig,
    Part,
)

from bench.frameworks.google_adk import APP, GIVEN, runner, say
from bench.frameworks.stage import Stage, lookers, played
from muntin.errors import BudgetExceeded
from muntin.fitting import Fitted
from muntin.integrations.google_adk import MuntinPlugin
from muntin.integrations.shared import FRONTIER
from tests.integrations.contract import BUDGET, check, check_fits, check_same_bytes, session_of

LONG = "A sentence that says nothing. " * 40


def text(said: str, role: str | None = "user") -> Content:
    return Content(role=role, parts=[Part(text=said)])


def context(state: dict[str, Any], agent: Any = None) -> Any:
    """Return what of a callback's context the plugin looks at."""
    return SimpleNamespace(
        state=state,
        agent_name="clerk",
        get_invocation_context=lambda: SimpleNamespace(
            agent=agent, session=SimpleNamespace(id="s")
        ),
    )


def hooked(
    budget: int, contents: list[Content], state: dict[str, Any] | None = None, system: str = ""
) -> tuple[list[Content], Fitted]:
    """Return what the hook makes of a request, and what it told."""
    told: list[Fitted] = []
    request = LlmRequest(
        model="gemini-2.5-pro",
        contents=contents,
        config=GenerateContentConfig(system_instruction=system or None),
    )
    plugin = MuntinPlugin(budget, on_fit=told.append)
    given = context({} if state is None else state)
    asyncio.run(plugin.before_model_callback(callback_context=given, llm_request=request))
    return request.contents, told[0]


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("google_adk", tmp_path, whole)


async def converse(stage: Stage, made: Runner, config: RunConfig | None = None) -> None:
    await made.session_service.create_session(**GIVEN)
    for turn in stage.script.turns:
        await say(made, stage.begin(turn), config)


def test_streamed_requests_are_valid_and_fit_and_nothing_warns():
    stage = Stage(played(20), BUDGET, check=check)
    with stage.open() as url, warnings.catch_warnings():
        warnings.filterwarnings("error", message="Pydantic serializer", category=UserWarning)
        made = runner(stage.script, url, [MuntinPlugin(BUDGET)], InMemorySessionService())
        asyncio.run(converse(stage, made, RunConfig(streaming_mode=StreamingMode.SSE)))
    row = stage.score.row("streamed")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (20, 0, 0, 0)
    assert all(each["stream"] for each in stage.requests)


def check_gemini(_: str, request: Any) -> None:
    """Results stand right behind their calls, as dicts; no text is empty."""
    called: list[str] = []
    contents = request["contents"]
    assert contents[0]["role"] == "user"
    for content in contents:
        assert all(part.get("text") != "" for part in content["parts"])
        answers = [p["functionResponse"] for p in content["parts"] if "functionResponse" in p]
        assert [each["name"] for each in answers] == called
        assert all(isinstance(each["response"], dict) for each in answers)
        calls = [p["functionCall"] for p in content["parts"] if "functionCall" in p]
        called = [each["name"] for each in calls]
    assert not called


def test_gemini_itself_is_told_of_calls_without_ids_and_every_request_is_valid():
    told: list[Fitted] = []
    stage = Stage(played(44), BUDGET, check=check_gemini)
    plugin = MuntinPlugin(BUDGET, on_fit=told.append)
    with stage.open() as url:
        agent = LlmAgent(
            name="clerk",
            model=Gemini(model="gemini-2.5-pro", base_url=url, client_kwargs={"api_key": "none"}),
            instruction=lambda _: stage.script.system,
            tools=lookers(stage.script),
        )
        service = InMemorySessionService()
        made = Runner(agent=agent, app_name=APP, session_service=service, plugins=[plugin])
        asyncio.run(converse(stage, made))
    assert len(stage.requests) == len(told) == 44
    assert all(each.window.tokens <= BUDGET and not each.unread for each in told)
    assert all(each.fresh is None for each in told)
    sent = str(stage.requests[-1]["contents"])
    assert stage.script.turns[-1].text in sent
    assert stage.script.turns[0].text not in sent


def test_contents_come_back_as_the_objects_they_were():
    thought = Part(text="Hm.", thought=True, thought_signature=b"s1g")
    call = Part(function_call=FunctionCall(name="look", args={"at": "Oslo"}))
    image = Part(inline_data=Blob(data=b"\x89PNG", mime_type="image/png"))
    contents = [
        Content(role="user", parts=[Part(text="Where?"), image]),
        Content(role="model", parts=[thought, call]),
        Content(
            role="user",
            parts=[Part(function_response=FunctionResponse(name="look", response={"a": 1}))],
        ),
    ]
    sent, told = hooked(4_000, list(contents))
    assert all(one is other for one, other in zip(sent, contents, strict=True))
    assert told.unread == ()


@pytest.mark.parametrize("ids", [True, False])
def test_results_of_one_content_are_shortened_one_by_one(ids):
    names = [f"c{n}" if ids else None for n in range(2)]
    calls = [Part(function_call=FunctionCall(id=name, name="look", args={})) for name in names]
    results = [
        Part(function_response=FunctionResponse(id=i, name="look", response={"result": LONG * 10}))
        for i in names
    ]
    asked = [
        text("Where?"),
        Content(role="model", parts=calls),
        Content(role="user", parts=results),
    ]
    sent, _ = hooked(700, asked)
    made: list[Any] = [part.function_response for part in sent[-1].parts or ()]
    assert [each.id for each in made] == names
    assert all(len(each.response["result"]) < len(LONG * 10) for each in made)
    first: Any = results[0].function_response
    assert first.response == {"result": LONG * 10}


def test_a_call_that_nobody_answered_has_a_result_when_it_is_sent():
    call = Content(role="model", parts=[Part(function_call=FunctionCall(name="look", args={}))])
    sent, _ = hooked(1_000, [text("Where?"), call, text("Well?")])
    parts: Any = sent[2].parts
    (part,) = parts
    assert part.function_response.name == "look"
    assert part.function_response.id is None


@pytest.mark.parametrize("missing", range(3))
def test_the_responses_to_calls_of_one_content_stand_in_one(missing):
    calls = [Part(function_call=FunctionCall(id=f"c{n}", name="look", args={})) for n in range(3)]
    answered = [
        Part(function_response=FunctionResponse(id=f"c{n}", name="look", response={"result": "a"}))
        for n in range(3)
        if n != missing
    ]
    contents = [
        text("Where?"),
        Content(role="model", parts=calls),
        Content(role="user", parts=answered),
        text("And?"),
    ]
    sent, _ = hooked(4_000, contents)
    assert len(sent) == 4
    parts: Any = sent[2].parts
    assert [part.function_response.id for part in parts] == ["c0", "c1", "c2"]


def test_what_cannot_be_read_is_carried_counted_and_named():
    odd = text("x" * 400, role="critic")
    sent, told = hooked(1_000, [text("Hi"), odd, text("So?")])
    assert sent[1] is odd
    assert "critic" in told.unread[0]
    assert told.window.tokens > 60


def test_a_budget_smaller_than_the_instruction_is_an_error_that_says_so():
    with pytest.raises(BudgetExceeded):
        hooked(50, [text("Hi")], system=LONG)


def test_the_kit_raises_our_error_as_the_cause_of_its_own_and_sends_nothing():
    stage = Stage(played(3))
    with stage.open() as url:
        made = runner(stage.script, url, [MuntinPlugin(50)], InMemorySessionService())
        with pytest.raises(RuntimeError) as raised:
            asyncio.run(converse(stage, made))
    assert isinstance(raised.value.__cause__, BudgetExceeded)
    assert stage.requests == []


def test_a_frontier_of_another_conversation_is_left_aside_and_the_report_says_so():
    state: dict[str, Any] = {}
    _, one = hooked(500, [text(f"{n} {LONG}") for n in range(9)], state)
    assert state[f"{FRONTIER}:clerk"] == one.frontier
    _, other = hooked(500, [text("Another")], state)
    assert other.fresh


def test_two_requests_of_one_conversation_at_once_are_both_whole():
    plugin, said = MuntinPlugin(500), [text(f"{n} {LONG}") for n in range(10)]
    requests = [LlmRequest(model="gemini-2.5-pro", contents=list(said)) for _ in range(2)]

    async def run() -> None:
        given = context({})
        await asyncio.gather(
            *(
                plugin.before_model_callback(callback_context=given, llm_request=each)
                for each in requests
            )
        )

    asyncio.run(run())
    assert requests[0].contents == requests[1].contents
    assert requests[0].contents[-1] is said[-1]


def test_a_conversation_is_recorded_under_the_framework_s_own_id(tmp_path):
    assert session_of("google_adk", tmp_path) == GIVEN["session_id"]
