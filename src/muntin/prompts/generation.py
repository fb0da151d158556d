"""generate: a prompt, a model, an answer.

Owns only their order: a prompt composes, the agent loop asks and runs tools, and `agent.answers`
reads the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

from muntin import telemetry
from muntin.agent.answers import answered, asking_for
from muntin.agent.loop import MAX_STEPS, FunctionRun, last_reply
from muntin.agent.tools import ToolLike
from muntin.calls import takes_arguments_of
from muntin.composer import Composer
from muntin.core.budget import Budget
from muntin.core.checks import check_size, shown
from muntin.core.counting.counter import AttachmentTokens, TokenizerLike
from muntin.core.message import Message, user
from muntin.core.model_name import ModelName
from muntin.core.parts import Text
from muntin.core.schemas import NO_SCHEMAS
from muntin.core.window import Window
from muntin.errors import BudgetExceeded, InvalidInput, InvalidType
from muntin.prompts.contexts import check_defined, check_model
from muntin.prompts.definition import Prompt, Resolution
from muntin.prompts.definition import prompt as make_prompt
from muntin.prompts.texts import prompt_twin
from muntin.providers.model import Event, Model, Reply
from muntin.providers.names import as_model

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class _Generation:
    """One call of `generate`, with its arguments."""

    prompt: Prompt | str
    _: KW_ONLY
    model: str | Model
    input: Any = None
    token_budget: int | None = None
    budget: Budget | int | None = None
    tools: Sequence[ToolLike] = ()
    settings: Mapping[str, Any] | None = None
    tokenizer: TokenizerLike | None = None
    attachment_tokens: AttachmentTokens | None = None
    output: type[BaseModel] | None = None
    max_steps: int = MAX_STEPS

    async def events(self, *, streaming: bool) -> AsyncGenerator[Event, None]:
        """Compose, ask, run tools, and repair an answer that is not valid."""
        model, prompt = as_model(self.model), _as_prompt(self.prompt, self.input)
        check_model(self.output, "generate: output")
        check_size(self.max_steps, "max_steps")
        output = prompt.output if self.output is None else self.output
        check_defined(output, "generate: output")
        name = ModelName.parse(model.name)
        composer = Composer.of(model, budget=self.budget, tokenizer=self.tokenizer)
        budget = composer.budget
        form = composer.counter.form(asking_for(output).get("output_schema"))
        with telemetry.told_later(prompt):  # the run, which sends the window, reports it
            resolution = await prompt.resolve(
                self.input,
                provider=name.provider,
                model_id=name.model,
                token_budget=self.token_budget,
                budget=budget.keeping(form),
                tokenizer=self.tokenizer,
                attachment_tokens=self.attachment_tokens,
                settings=self.settings,
                tools=self.tools,
            )
        composer = resolution.composer
        _refuse_blank(resolution, f"prompt {prompt.id!r}" if prompt.id else "the prompt")
        if isinstance(self.prompt, str) and self.token_budget is not None:
            _check_size(self.prompt, composer.within(self.token_budget))
        recorded: list[Message] = []
        newest: Window | None = None

        def compose(run: Sequence[Message]) -> Window:
            nonlocal newest
            newest = resolution.compose(run, previous=newest)
            return newest

        async def attempt(repair: tuple[Message, ...]) -> AsyncGenerator[Event, None]:
            recorded.extend(repair[1:])  # the model's answer is recorded already
            run = FunctionRun(
                model,
                compose,
                tools=resolution.tools,
                record=recorded.extend,
                resume=tuple(recorded),
                max_steps=self.max_steps + bool(repair),  # the repair has a step of its own
                settings={**resolution.settings, **asking_for(output)},
                tokenizer=self.tokenizer,
            )
            return run.events(streaming=streaming)

        try:
            async with aclosing(answered(attempt, output)) as events:
                async for event in events:
                    yield event
        except BudgetExceeded as error:
            raise self._with_own_numbers(error, form, budget) from error

    def _with_own_numbers(self, error: BudgetExceeded, form: int, budget: Budget) -> BudgetExceeded:
        """Say what does not fit in the numbers that the caller gave: the window has room for more
        than the system text, and none for the schema of the answer."""
        needed, available = error.needed + form, budget.remaining_input_tokens
        what, limit = "the request", "the budget is"
        if form:
            what = f"the request with the schema of the answer ({form:,})"
        if self.token_budget is not None and error.available != max(0, available - form):
            available = self.token_budget
            needed = error.needed - error.available + available
            what, limit = "the system text", "token_budget is"
        _, _, parts = str(error).partition("; ")
        why = f"{what} needs {needed:,} tokens, but {limit} {available:,}; {parts}"
        return BudgetExceeded(needed, available, error.report, why)


@takes_arguments_of(_Generation)
async def generate(*args: Any, **options: Any) -> Reply:
    """Compose the prompt, send it to the model, run the tools it calls, and return its answer.

    `token_budget` is for the system text; of a plain text, for that text. `budget` holds for the
    whole request: the model's window if it is not given. With `output` (or the prompt's own) the
    answer is read into that Pydantic model as `reply.output`; if it is not valid, the model is told
    why and asked once more, then `OutputInvalid` is raised. `reply.window` is the last window sent,
    `reply.usage` the usage of all requests.

    `BudgetExceeded` is raised before anything is sent.
    """
    return await last_reply(_Generation(*args, **options).events(streaming=False))


generate_sync = prompt_twin(generate)


@takes_arguments_of(_Generation)
def stream_generate(*args: Any, **options: Any) -> AsyncGenerator[Event, None]:
    """Do the same as `generate`, and yield the events; the last event is `Finished`.

    Where an answer had to be repaired, the events of both attempts are yielded.
    """
    return _Generation(*args, **options).events(streaming=True)


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


def _refuse_blank(resolution: Resolution, what: str) -> None:
    """Refuse a prompt that is empty, or whose user's text is blank."""
    if not any(map(_has_content, resolution.messages)):
        raise InvalidInput(f"{what} is empty for this input: there is nothing to send")
    if resolution.prompt is not None and not resolution.prompt.strip():
        raise InvalidInput(
            f"{what}: the prompt text is blank for this input; give the user something to say, "
            "or leave prompt= out"
        )
    from_user = [message for message in resolution.gathered.messages if message.role == "user"]
    if from_user and not _has_content(from_user[-1]):
        raise InvalidInput(f"{what}: the last message of the user is blank; leave it out")


def _has_content(message: Message) -> bool:
    """Say whether a message has more than white space."""
    parts = message.content if isinstance(message.content, tuple) else ()
    other = any(not isinstance(part, Text) for part in parts)
    return bool(message.text.strip() or other or message.tool_calls or message.attachments)


def _check_size(text: str, composer: Composer) -> None:
    """Refuse a plain text that does not fit the budget by itself."""
    if composer.size_of([user(text)]) > composer.budget.remaining_input_tokens:
        slots = replace(composer, tools=NO_SCHEMAS).slots()
        slots.add("user", text, required=True)
        window = slots.render()
        raise BudgetExceeded(window.tokens, window.report.budget, window.report)
