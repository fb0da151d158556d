"""generate: a prompt, a model, an answer.

Puts together what others own: prompts compose, the agent loop asks and runs tools, clients send.
Its own is the form of the answer: asking for it, reading it, and one attempt at repair.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from muntin.agent.loop import MAX_STEPS, PARALLEL, Run, last_reply
from muntin.agent.tools import ToolLike, problems
from muntin.calls import sync_twin
from muntin.core.checks import check_size
from muntin.core.counting.counter import TokenizerLike
from muntin.core.message import Message, user
from muntin.core.model_name import ModelName
from muntin.core.parts import compact_json
from muntin.core.planning.slots import Slots
from muntin.errors import BudgetExceeded, InvalidInput, InvalidType, OutputInvalid
from muntin.prompts.contexts import check_model
from muntin.prompts.definition import Prompt, Resolution
from muntin.prompts.definition import prompt as make_prompt
from muntin.providers.model import Event, Finished, Model, Reply, Usage
from muntin.providers.names import as_model
from muntin.settings import defaults

if TYPE_CHECKING:
    from pydantic import BaseModel

# A fenced block; and from the first fence to the last, where a text in the JSON has fences too.
_BLOCK = re.compile(r"```(?:[\w-]+\s)?(.*?)```", re.DOTALL)
_WIDEST = re.compile(r"```(?:[\w-]+\s)?(.*)```", re.DOTALL)


async def generate(
    prompt: Prompt | str,
    *,
    model: str | Model,
    input: Any = None,
    token_budget: int | None = None,
    tools: Sequence[ToolLike] = (),
    settings: Mapping[str, Any] | None = None,
    tokenizer: TokenizerLike | None = None,
    output: type[BaseModel] | None = None,
    max_steps: int = MAX_STEPS,
) -> Reply:
    """Compose the prompt, send it to the model, run the tools it calls, and return its answer.

    A plain text is a user message, and `token_budget` its limit. With `output` (or the prompt's
    own) the answer is read into that Pydantic model as `reply.output`; if it is not valid the
    model is told why and asked once more, then `OutputInvalid` is raised. `reply.window` is the
    last window sent, `reply.usage` that of all requests.

    `BudgetExceeded` is raised before anything is sent.
    """
    asked = _Asked(
        prompt, model, input, token_budget, tools, settings, tokenizer, output, max_steps
    )
    return await last_reply(_events(asked, streaming=False))


generate_sync = sync_twin(generate)


def stream_generate(
    prompt: Prompt | str,
    *,
    model: str | Model,
    input: Any = None,
    token_budget: int | None = None,
    tools: Sequence[ToolLike] = (),
    settings: Mapping[str, Any] | None = None,
    tokenizer: TokenizerLike | None = None,
    output: type[BaseModel] | None = None,
    max_steps: int = MAX_STEPS,
) -> AsyncIterator[Event]:
    """Do what `generate` does, and yield what happens; the last event is `Finished`.

    Where an answer had to be repaired, the events of both attempts are yielded.
    """
    asked = _Asked(
        prompt, model, input, token_budget, tools, settings, tokenizer, output, max_steps
    )
    return _events(asked, streaming=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of one call."""

    prompt: Prompt | str
    model: str | Model
    input: Any
    token_budget: int | None
    tools: Sequence[ToolLike]
    settings: Mapping[str, Any] | None
    tokenizer: TokenizerLike | None
    output: type[BaseModel] | None
    max_steps: int


async def _events(asked: _Asked, *, streaming: bool) -> AsyncGenerator[Event, None]:
    model = as_model(asked.model)
    prompt = _as_prompt(asked)
    check_model(asked.output, "generate: output")
    output = prompt.output if asked.output is None else asked.output
    made = await _resolve(prompt, asked, model.name)
    said: list[Message] = []
    usage = Usage()
    for attempt in range(2):
        run = Run(
            model,
            made.compose,
            made.tools,
            said.extend,
            tuple(said),
            asked.max_steps + attempt,  # the repair has a step of its own
            {**made.settings, **wanted(output)},
            asked.tokenizer,
            PARALLEL,
        )
        async with aclosing(run.events(streaming=streaming)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    reply = event.reply
                else:
                    yield event
        usage += reply.usage
        reply = replace(reply, usage=usage)
        if output is None or reply.tool_calls:
            break
        value, problem = read_output(output, reply.text)
        if problem is None:
            reply = replace(reply, output=value)
            break
        if attempt:
            raise OutputInvalid(output.__name__, problem, reply)
        said.append(user(repair(output, problem)))
    yield Finished(reply)


def _as_prompt(asked: _Asked) -> Prompt:
    """Return the prompt; a plain text becomes one, and must fit the budget by itself."""
    if isinstance(asked.prompt, Prompt):
        return asked.prompt
    if not isinstance(asked.prompt, str):
        raise InvalidType(f"generate needs a prompt or a text, not {asked.prompt!r}")
    if not asked.prompt.strip():
        raise InvalidInput("generate needs a text that is not empty")
    if asked.input is not None:
        raise InvalidInput("a plain text takes no input; define a prompt() that declares it")
    if asked.token_budget is not None:
        check_size(asked.token_budget, "token_budget")
        tokenizer = defaults().tokenizer if asked.tokenizer is None else asked.tokenizer
        slots = Slots(asked.token_budget, tokenizer=tokenizer)
        slots.add("user", asked.prompt, required=True)
        window = slots.render()
        if window.over_budget:
            raise BudgetExceeded(window.tokens, window.report.budget, window.report)
    return make_prompt(prompt=asked.prompt)


async def _resolve(prompt: Prompt, asked: _Asked, name: str) -> Resolution:
    named = ModelName.parse(name)
    made = await prompt.resolve(
        asked.input,
        provider=named.provider,
        model_id=named.model,
        token_budget=asked.token_budget,
        tokenizer=asked.tokenizer,
        settings=asked.settings,
        tools=asked.tools,
    )
    if not made.messages:
        raise InvalidInput("the prompt is empty for this input: there is nothing to send")
    return made


def wanted(output: type[BaseModel] | None) -> dict[str, Any]:
    """Return the settings by which clients ask for an answer of this form."""
    if output is None:
        return {}
    return {"output_schema": output.model_json_schema(), "output_name": output.__name__}


def read_output(output: type[BaseModel], text: str) -> tuple[BaseModel | None, str | None]:
    """Return the answer as the model asked for, or what is wrong with it."""
    from pydantic import ValidationError

    problem = "the answer is empty"
    # The whole answer, or what stands in a fenced block of it, whose errors say more.
    for candidate in (text, *_WIDEST.findall(text), *_BLOCK.findall(text)):
        if candidate.strip():
            try:
                return output.model_validate_json(candidate), None
            except ValidationError as error:
                problem = problems(error, "answer")
    return None, problem


def repair(output: type[BaseModel], problem: str) -> str:
    """Return what the model is told of an answer that cannot be read."""
    return (
        f"Your answer is not a valid {output.__name__}: {problem}\n"
        "Answer again, with nothing but JSON that is valid for this schema:\n"
        f"{compact_json(output.model_json_schema())}"
    )
