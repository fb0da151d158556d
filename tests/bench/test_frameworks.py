"""The model on this machine: the vendors' own clients read what it says, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic import Anthropic
from openai import BadRequestError, OpenAI

from bench.adapters import figures, rows
from bench.frameworks.speak import Called, Said, speaking
from bench.frameworks.stage import SUMMARISING, Stage, played
from bench.frameworks.table import tables

SAID = Said("Hello, world", read=7)
CALLS = Said(
    calls=(Called("c1", "look", '{"at": "Oslo"}'), Called("c2", "look", '{"at": "Bergen"}'))
)
HI: Any = [{"role": "user", "content": "Hi"}]


def openai(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def chat(url: str, stream: bool) -> tuple[str, list[tuple[str, str, str]]]:
    client = openai(url).chat.completions
    if not stream:
        message = client.create(model="m", messages=HI).choices[0].message
    else:
        with client.stream(model="m", messages=HI) as events:
            message = events.get_final_completion().choices[0].message
    calls: list[Any] = list(message.tool_calls or ())
    return message.content or "", [(c.id, c.function.name, c.function.arguments) for c in calls]


def responses(url: str, stream: bool) -> tuple[str, list[tuple[str, str, str]]]:
    client = openai(url).responses
    if not stream:
        made: Any = client.create(model="m", input="Hi")
    else:
        with client.stream(model="m", input="Hi") as events:
            made = events.get_final_response()
    calls = [item for item in made.output if item.type == "function_call"]
    return made.output_text, [(c.call_id, c.name, c.arguments) for c in calls]


def anthropic(url: str, stream: bool) -> tuple[str, list[tuple[str, str, str]]]:
    client = Anthropic(base_url=url, api_key="none", max_retries=0).messages
    if not stream:
        made: Any = client.create(model="m", messages=HI, max_tokens=10)
    else:
        with client.stream(model="m", messages=HI, max_tokens=10) as events:
            made = events.get_final_message()
    text = "".join(block.text for block in made.content if block.type == "text")
    calls = [block for block in made.content if block.type == "tool_use"]
    return text, [(c.id, c.name, json.dumps(c.input)) for c in calls]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", [chat, responses, anthropic])
@pytest.mark.parametrize("said", [SAID, CALLS])
def test_a_client_reads_what_is_said(said: Said, api: Any, stream: bool) -> None:
    asked: list[str] = []

    def speak(api: str, request: dict[str, Any]) -> Said:
        asked.append(api)
        return said

    with speaking(speak) as server:
        calls = [(call.id, call.name, call.arguments) for call in said.calls]
        assert api(server.url, stream) == (said.text, calls)
    assert asked == [api.__name__]


def test_a_request_that_is_refused_is_a_bad_request():
    def refuse(api: str, request: dict[str, Any]) -> Said:
        raise ValueError("no such role")

    with speaking(refuse) as server, pytest.raises(BadRequestError, match="no such role"):
        chat(server.url, False)


def test_a_stage_plays_the_script_and_writes_summaries_on_the_bill():
    stage = Stage(played(4))
    first = stage.script.turns[0]
    assert stage.speak("chat", {"messages": HI}).calls[0].id == first.steps[0][0].id
    assert stage.speak("chat", {"messages": HI}).text == first.answer
    assert "Cases so far" in stage.speak("chat", {"messages": [SUMMARISING]}).text
    assert len(stage.requests) == 2
    assert stage.speak("chat", {"messages": HI}).text == stage.script.turns[1].answer


def test_the_client_with_muntin_is_beside_the_slice_in_the_table():
    own, other = found = list(rows("openai", 30))
    assert (own.requests, own.invalid, own.over, own.question_lost) == (30, 0, 0, 0)
    assert other.invalid
    table, behind = tables(list(figures("openai", found)))
    assert not behind
    assert "| openai | Muntin | 30 | 0 | 0 | 0 |" in table
    assert table.count("\n") == 4
