"""`generate`: a prompt, a model, an answer, and never a request that does not fit."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from muntin import (
    BudgetExceeded,
    InvalidInput,
    Message,
    MuntinError,
    ToolCall,
    assistant,
    config,
    context,
    prompt,
    system,
    tool,
    user,
)
from muntin.agent.tools import Tool
from muntin.errors import InvalidType, OutputInvalid, StepLimit
from muntin.prompts.generation import generate, generate_sync, stream_generate
from muntin.providers.model import (
    Event,
    Finished,
    Reply,
    TextDelta,
    ToolCalled,
    ToolFinished,
    Usage,
)
from muntin.testing import ScriptedModel
from tests import words

BOT = prompt(
    use=[
        context(id="rules", priority=100, system="rules"),
        context(id="notes", priority=10, system="n" * 20),
    ],
    system="own",
    prompt="hello",
)


_one_token_a_character = words.one_token_a_character


def test_a_prompt_is_composed_sent_and_answered():
    model = ScriptedModel(["hi there"])
    reply = generate_sync(BOT, model=model)
    assert (reply.text, reply.finish_reason, reply.output) == ("hi there", "stop", None)
    assert model.windows[0].messages == (system(f"own\n\nrules\n\n{'n' * 20}"), user("hello"))
    assert reply.window is model.windows[0]
    assert reply.window is not None
    assert [slot.name for slot in reply.window.report.slots][:2] == ["prompt", "context:rules"]
    assert reply.usage.input == reply.window.tokens


def test_a_plain_text_is_a_message_of_the_user():
    model = ScriptedModel(["hi"])
    assert generate_sync("hello", model=model).text == "hi"
    assert model.windows[0].messages == (user("hello"),)


def test_the_twin_takes_what_generate_takes_by_name_too():
    assert generate_sync(prompt="hello", model=ScriptedModel(["hi"])).text == "hi"


def test_under_a_budget_contexts_are_dropped_as_inspect_says():
    model = ScriptedModel(["hi"])
    reply = generate_sync(BOT, model=model, token_budget=12)
    assert model.windows[0].messages[0] == system("own\n\nrules")
    assert reply.window is not None
    shown = BOT.inspect_sync(token_budget=12)
    counts = shown.report.counts
    assert replace(reply.window.report, counts=counts).to_dict() == shown.report.to_dict()


def test_what_does_not_fit_is_not_sent():
    model = ScriptedModel(["never"])
    with pytest.raises(BudgetExceeded, match="prompt"):
        generate_sync(BOT, model=model, token_budget=5)
    with pytest.raises(BudgetExceeded) as caught:
        generate_sync("hello", model=model, token_budget=4)
    assert (caught.value.needed, caught.value.available) == (5, 4)
    assert not model.windows
    assert generate_sync("hello", model=model, token_budget=5).text == "never"


def test_what_does_not_fit_is_said_in_the_numbers_that_were_given():
    class Answer(BaseModel):
        value: int

    rules = prompt(id="rules", system="r" * 160)
    with pytest.raises(BudgetExceeded, match="system text needs 40 tokens, but token_budget is 3"):
        generate_sync(rules, model=ScriptedModel([]), tokenizer="chars/4", token_budget=3)
    with pytest.raises(BudgetExceeded, match=r"schema of the answer .*, but the budget is 30;"):
        generate_sync(rules, model=ScriptedModel([]), tokenizer="chars/4", budget=30, output=Answer)
    with pytest.raises(BudgetExceeded, match="the request needs 40 tokens, but the budget is 30"):
        generate_sync(rules, model=ScriptedModel([]), tokenizer="chars/4", budget=30)


def test_input_reaches_the_contexts():
    class Name(BaseModel):
        name: str

    bot = prompt(input=Name, prompt=lambda input: f"I am {input.name}")
    model = ScriptedModel(["hi"])
    generate_sync(bot, model=model, input={"name": "Ada"})
    assert model.windows[0].messages == (user("I am Ada"),)
    with pytest.raises(InvalidInput, match="name"):
        generate_sync(bot, model=model, input={})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("anthropic/claude-sonnet-4-5", "raw JSON"),
        ("openrouter/anthropic/claude", "raw JSON"),
        ("openai/gpt-4o", "anything"),
        ("scripted", "anything"),
    ],
)
def test_adaptations_go_by_the_name_of_the_model(name, text):
    bot = prompt(
        prompt="hello",
        adapt={"anthropic": {"append_system": "raw JSON"}, "*": {"append_system": "anything"}},
    )
    model = ScriptedModel(["hi"], name=name)
    generate_sync(bot, model=model)
    assert model.windows[0].messages[0] == system(text)


def test_settings_merge_from_config_to_call():
    bot = prompt(
        prompt="hello",
        settings={"b": "prompt", "c": "prompt", "d": "prompt"},
        adapt={"*": {"settings": {"c": "adapt", "d": "adapt"}}},
    )
    model = ScriptedModel(["hi"])
    with config.local(settings={"a": "config", "b": "config"}):
        generate_sync(bot, model=model, settings={"d": "call", "c": None})
    assert model.settings == [{"a": "config", "b": "prompt", "c": "adapt", "d": "call"}]


# Tools.


def weather(city: str) -> dict[str, Any]:
    """Look up the weather."""
    return {"city": city, "sky": "grey"}


CALL = ToolCall("c1", "weather", '{"city":"Bonn"}')


def test_tools_are_offered_and_run_and_their_results_sent():
    bot = prompt(system="own", prompt="the weather?", tools=[weather])
    model = ScriptedModel([CALL, "grey"])
    reply = generate_sync(bot, model=model, token_budget=3)
    assert reply.text == "grey"
    assert [schema["function"]["name"] for schema in model.windows[0].tools] == ["weather"]
    assert model.windows[1].messages == (
        system("own"),
        user("the weather?"),
        assistant(tool_calls=[CALL]),
        tool("c1", '{"city":"Bonn","sky":"grey"}'),
    )
    assert model.windows[1].tools == model.windows[0].tools
    assert reply.usage.input == sum(window.tokens for window in model.windows)
    for window in model.windows:
        report = window.report
        assert (
            report.tokens
            == window.tokens
            == sum(
                [report.tools_tokens, report.joined_tokens, *(s.tokens_kept for s in report.slots)]
            )
        )


def test_texts_are_resolved_once_however_many_steps():
    asked: list[int] = []

    def text() -> str:
        asked.append(1)
        return str(len(asked))

    bot = prompt(system=text, prompt="go", tools=[weather])
    model = ScriptedModel([CALL, CALL, "done"])
    generate_sync(bot, model=model)
    assert [window.messages[0].text for window in model.windows] == ["1", "1", "1"]


def test_what_a_prompt_drops_stays_dropped_while_tools_run():
    bot = prompt(
        system="own",
        prompt="go",
        use=[context(id="notes", system="n" * 50)],
        tools=[weather],
    )
    model = ScriptedModel([CALL, "done"])
    generate_sync(bot, model=model, token_budget=10)
    assert [window.messages[0] for window in model.windows] == [system("own")] * 2


def test_tools_of_the_call_win_over_those_of_the_prompt():
    bot = prompt(prompt="go", tools=[weather])
    model = ScriptedModel([CALL, "done"])
    mine = Tool(lambda city: "sunny", name="weather")
    with pytest.raises(InvalidInput, match="'city' has no type annotation"):
        generate_sync(bot, model=model, tools=[mine])

    def sunny(city: str) -> str:
        return "sunny"

    generate_sync(bot, model=model, tools=[Tool(sunny, name="weather")])
    assert model.windows[-1].messages[-1] == tool("c1", "sunny")


def test_results_are_cut_by_the_tokenizer_in_force():
    def much() -> str:
        return "x" * 500

    model = ScriptedModel([ToolCall("c1", "much"), "done"])
    generate_sync("go", model=model, tools=[Tool(much, max_result_tokens=90)], budget=1_000)
    assert len(model.windows[1].messages[-1].text) == 90
    model = ScriptedModel([ToolCall("c1", "much"), "done"])
    tools = [Tool(much, max_result_tokens=90)]
    generate_sync("go", model=model, tools=tools, tokenizer="chars/4")
    assert len(model.windows[1].messages[-1].text) == 360


def test_steps_are_bounded():
    model = ScriptedModel(lambda window: CALL)
    with pytest.raises(StepLimit, match="after 2 steps"):
        generate_sync("go", model=model, tools=[weather], max_steps=2)
    assert len(model.windows) == 2


def test_a_tool_with_only_a_schema_is_left_to_the_caller():
    schema = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    for output in (None, City):
        reply = generate_sync("go", model=ScriptedModel([CALL]), tools=[schema], output=output)
        assert (reply.tool_calls, reply.output) == ((CALL,), None)


# Structured output.


class City(BaseModel):
    name: str
    people: int


GOOD = '{"name": "Bonn", "people": 330000}'
BONN = City(name="Bonn", people=330_000)


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        f"  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"Here it is:\n\n```\n{GOOD}\n```\nAnything else?",
        f"```python\nprint()\n```\n```json\n{GOOD}\n```",
        f"```json {GOOD}```",
        f"```{GOOD}```",
    ],
)
def test_the_answer_is_read_into_the_model(answer):
    model = ScriptedModel([answer])
    reply = generate_sync("a city", model=model, output=City)
    assert reply.output == BONN
    assert reply.text == answer
    assert model.settings[0] == {"output_schema": City.model_json_schema(), "output_name": "City"}


def test_a_text_in_the_answer_may_have_fences_itself():
    class Code(BaseModel):
        text: str

    wanted = Code(text="```py\nprint()\n```")
    answer = f"```json\n{wanted.model_dump_json()}\n```"
    assert generate_sync("go", model=ScriptedModel([answer]), output=Code).output == wanted


def test_the_output_of_the_prompt_is_asked_for_and_that_of_the_call_wins():
    class Name(BaseModel):
        name: str

    bot = prompt(prompt="a city", output=City)
    assert generate_sync(bot, model=ScriptedModel([GOOD])).output == BONN
    reply = generate_sync(bot, model=ScriptedModel([GOOD]), output=Name)
    assert reply.output == Name(name="Bonn")


def test_an_answer_that_is_wrong_is_repaired_once():
    bad = '{"name": "Bonn", "people": "many"}'
    model = ScriptedModel(
        [
            Reply(assistant(bad), usage=Usage(10, 1)),
            Reply(assistant(GOOD), usage=Usage(20, 2)),
        ]
    )
    reply = generate_sync("a city", model=model, output=City)
    assert reply.output == BONN
    assert reply.usage == Usage(30, 3)
    *before, told = model.windows[1].messages
    assert before == [user("a city"), assistant(bad)]
    assert told.role == "user"
    assert "people: Input should be a valid integer" in told.text
    assert json.loads(told.text.splitlines()[-1]) == City.model_json_schema()
    assert model.settings[1] == model.settings[0]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("Bonn, I think", "Invalid JSON"),
        ("", "the answer is empty"),
        ('```json\n{"name": "Bonn"}\n```', "people: Field required"),
        ("[]", "answer: Input should be an object"),
    ],
)
def test_an_answer_that_stays_wrong_is_an_error_with_the_reply(answer, problem):
    model = ScriptedModel([answer, answer, "a third is not asked for"])
    with pytest.raises(OutputInvalid, match="not a valid City") as caught:
        generate_sync("a city", model=model, output=City)
    assert problem in caught.value.problem
    assert caught.value.reply.text == answer
    assert len(model.windows) == 2
    assert caught.value.reply.usage.input == sum(window.tokens for window in model.windows)
    assert pickle.loads(pickle.dumps(caught.value)).problem == caught.value.problem


def test_a_repair_has_a_step_of_its_own_and_sees_what_the_tools_gave():
    model = ScriptedModel([CALL, "Bonn", GOOD])
    reply = generate_sync("a city", model=model, tools=[weather], output=City, max_steps=2)
    assert reply.output == BONN
    roles = [message.role for message in model.windows[2].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_parallel_results_stand_in_the_order_of_their_calls_in_a_repair():
    async def slow(n: int) -> int:
        await asyncio.sleep(0.02 * (3 - n))
        return n

    calls = [ToolCall(f"c{n}", "slow", f'{{"n": {n}}}') for n in range(3)]
    model = ScriptedModel([calls, "Bonn", GOOD])
    generate_sync("a city", model=model, tools=[slow], output=City)
    given = [message.text for message in model.windows[2].messages if message.role == "tool"]
    assert given == ["0", "1", "2"]


# Streaming, and what is wrong.


def test_the_stream_ends_with_the_same_reply():
    async def read(*replies: Any) -> list[Event]:
        model = ScriptedModel(replies)
        events = stream_generate("go", model=model, tools=[weather], output=City)
        return [event async for event in events]

    events = asyncio.run(read(CALL, GOOD))
    assert [type(event) for event in events[:2]] == [ToolCalled, ToolFinished]
    assert "".join(each.text for each in events if isinstance(each, TextDelta)) == GOOD
    assert isinstance(events[-1], Finished)
    whole = generate_sync("go", model=ScriptedModel([CALL, GOOD]), tools=[weather], output=City)
    assert events[-1].reply == whole
    repaired = asyncio.run(read("Bonn", GOOD))
    assert sum(isinstance(event, Finished) for event in repaired) == 1
    assert isinstance(repaired[-1], Finished)
    assert repaired[-1].reply.output == BONN


def test_generate_is_async_and_its_twin_is_not_for_loops():
    async def main() -> str:
        with pytest.raises(MuntinError, match=r"use `await generate\(...\)`"):
            generate_sync("hello", model=ScriptedModel(["hi"]))
        return (await generate("hello", model=ScriptedModel(["hi"]))).text

    assert asyncio.run(main()) == "hi"


@pytest.mark.parametrize(
    ("asked", "options", "error"),
    [
        (7, {}, "a prompt or a text"),
        ("  ", {}, "not empty"),
        ("hello", {"input": {"a": 1}}, "takes no input"),
        ("hello", {"output": dict}, "output"),
        ("hello", {"token_budget": -1}, "token_budget"),
        ("hello", {"tools": weather}, "tools must be a list"),
        ("hello", {"settings": ["a"]}, "settings"),
        ("hello", {"max_steps": 0}, "max_steps"),
        (prompt(), {}, "nothing to send"),
        (prompt(prompt=""), {}, "nothing to send"),
    ],
)
def test_wrong_arguments_are_errors_before_anything_is_sent(asked, options, error):
    model = ScriptedModel(["never"])
    with pytest.raises(InvalidInput, match=error):
        generate_sync(asked, model=model, **options)
    assert not model.windows


def test_a_model_is_a_name_or_something_that_answers():
    with pytest.raises(InvalidType, match="a model must be"):
        generate_sync("hello", model=7)  # type: ignore[arg-type]


def test_a_resolution_composes_what_was_said_since():
    made = BOT.resolve_sync(token_budget=12)
    assert made.compose(()) is made.window
    said: list[Message] = [assistant("hi"), user("and?")]
    window = made.compose(said)
    assert window.messages == (*made.window.messages, *said)
    assert window.report.slots[-1].name == "run"
    assert not window.over_budget
