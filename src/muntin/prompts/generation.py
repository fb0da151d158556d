"""generate: a prompt, a model, an answer.

Owns only their order: a prompt composes, the agent loop asks and runs tools, and `agent.answers`
reads the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from muntin import telemetry
from muntin.agent.answers import answered, asking_for
from muntin.agent.loop import MAX_STEPS, Run, last_reply
from muntin.agent.tools import ToolLike
from muntin.composer import Composer
from muntin.core.budget import Budget
from muntin.core.checks import check_size, shown
from muntin.core.counting.counter import AttachmentTokens, TokenizerLike
from muntin.core.message import Message, user
from muntin.core.model_name import ModelName
from muntin.core.parts import Text
from muntin.errors import BudgetExceeded, InvalidInput, InvalidType
from muntin.prompts.contexts import check_defined, check_model
from muntin.prompts.definition import Prompt, Resolution
from muntin.prompts.definition import prompt as make_prompt
from muntin.prompts.texts import prompt_twin
from muntin.providers.model import Event, Model, Reply
from muntin.providers.names import as_model

if TYPE_CHECKING:
    from pydantic import BaseModel


async def generate(
    prompt: Prompt | str,
    *,
    model: str | Model,
    input: Any = None,
    token_budget: int | None = None,
    budget: Budget | int | None = None,
    tools: Sequence[ToolLike] = (),
    settings: Mapping[str, Any] | None = None,
    tokenizer: TokenizerLike | None = None,
    attachment_tokens: AttachmentTokens | None = None,
    output: type[BaseModel] | None = None,
    max_steps: int = MAX_STEPS,
) -> Reply:
    """Compose the prompt, send it to the model, run the tools it calls, and return its answer.

    `token_budget` is for the system text; of a plain text, for that text. `budget` holds for the
    whole request: the model's window if it is not given. With `output` (or the prompt's own) the
    answer is read into that Pydantic model as `reply.output`; if it is not valid, the model is told
    why and asked once more, then `OutputInvalid` is raised. `reply.window` is the last window sent,
    `reply.usage` the usage of all requests.

    `BudgetExceeded` is raised before anything is sent.
    """
    counting = tokenizer, attachment_tokens
    sizes = token_budget, budget
    events = _events(
        False, prompt, model, input, *sizes, tools, settings, *counting, output, max_steps
    )
    return await last_reply(events)


generate_sync = prompt_twin(generate)


def stream_generate(
    prompt: Prompt | str,
    *,
    model: str | Model,
    input: Any = None,
    token_budget: int | None = None,
    budget: Budget | int | None = None,
    tools: Sequence[ToolLike] = (),
    settings: Mapping[str, Any] | None = None,
    tokenizer: TokenizerLike | None = None,
    attachment_tokens: AttachmentTokens | None = None,
    output: type[BaseModel] | None = None,
    max_steps: int = MAX_STEPS,
) -> AsyncIterator[Event]:
    """Do the same as `generate`, and yield the events; the last event is `Finished`.

    Where an answer had to be repaired, the events of both attempts are yielded.
    """
    counting = tokenizer, attachment_tokens
    sizes = token_budget, budget
    return _events(
        True, prompt, model, input, *sizes, tools, settings, *counting, output, max_steps
    )


async def _events(
    streaming: bool,
    prompt: Prompt | str,
    model: str | Model,
    input: Any,
    token_budget: int | None,
    budget: Budget | int | None,
    tools: Sequence[ToolLike],
    settings: Mapping[str, Any] | None,
    tokenizer: TokenizerLike | None,
    attachment_tokens: AttachmentTokens | None,
    output: type[BaseModel] | None,
    max_steps: int,
) -> AsyncGenerator[Event, None]:
    model = as_model(model)
    chosen = _as_prompt(prompt, input)
    check_model(output, "generate: output")
    check_size(max_steps, "max_steps")
    wanted = chosen.output if output is None else output
    check_defined(wanted, "generate: output")
    named = ModelName.parse(model.name)
    composer = Composer.of(model, budget=budget, tokenizer=tokenizer)
    form = composer.counter.form(asking_for(wanted).get("output_schema"))
    with telemetry.told_later(chosen):  # the run, which sends the window, tells of it
        made = await chosen.resolve(
            input,
            provider=named.provider,
            model_id=named.model,
            token_budget=token_budget,
            budget=composer.budget.keeping(form),
            tokenizer=tokenizer,
            attachment_tokens=attachment_tokens,
            settings=settings,
            tools=tools,
        )
    _refuse_blank(made, f"prompt {chosen.id!r}" if chosen.id else "the prompt")
    if isinstance(prompt, str) and token_budget is not None:
        _check_size(prompt, made.composer.within(token_budget))
    recorded: list[Message] = []

    async def attempt(repair: tuple[Message, ...]) -> AsyncGenerator[Event, None]:
        recorded.extend(repair[1:])  # the model's answer is recorded already
        run = Run(
            model,
            made.compose,
            tools=made.tools,
            record=recorded.extend,
            resume=tuple(recorded),
            max_steps=max_steps + bool(repair),  # the repair has a step of its own
            settings={**made.settings, **asking_for(wanted)},
            counter=made.composer.counter,
        )
        return run.events(streaming=streaming)

    async with aclosing(answered(attempt, wanted)) as events:
        async for event in events:
            yield event


def _as_prompt(prompt: Prompt | str, input: Any) -> Prompt:
    """Return the prompt; a plain text becomes one."""
    if isinstance(prompt, Prompt):
        return prompt
    if not isinstance(prompt, str):
        raise InvalidType(f"generate needs a prompt or a text, not {shown(prompt)}")
    if not prompt.strip():
        raise InvalidInput("generate needs a text that is not empty")
    if input is not None:
        raise InvalidInput("a plain text takes no input; define a prompt() that declares it")
    return make_prompt(prompt=prompt)


def _refuse_blank(made: Resolution, what: str) -> None:
    """Refuse a prompt that is empty, or whose user's text is blank."""
    if not any(map(_says_something, made.messages)):
        raise InvalidInput(f"{what} is empty for this input: there is nothing to send")
    if made.prompt is not None and not made.prompt.strip():
        raise InvalidInput(
            f"{what}: the prompt text is blank for this input; give the user something to say, "
            "or leave prompt= out"
        )
    said = [each for each in made.gathered.messages if each.role == "user"]
    if said and not _says_something(said[-1]):
        raise InvalidInput(f"{what}: the last message of the user is blank; leave it out")


def _says_something(message: Message) -> bool:
    """Say whether a message has more than white space."""
    parts = message.content if isinstance(message.content, tuple) else ()
    other = any(not isinstance(part, Text) for part in parts)
    return bool(message.text.strip() or other or message.tool_calls or message.attachments)


def _check_size(text: str, composer: Composer) -> None:
    """Refuse a plain text that does not fit the budget by itself."""
    if composer.size_of([user(text)]) > composer.budget.remaining_input_tokens:
        slots = composer.offering(()).slots()
        slots.add("user", text, required=True)
        window = slots.render()
        raise BudgetExceeded(window.tokens, window.report.budget, window.report)
