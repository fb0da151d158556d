"""Prompts: contexts put together under a budget.

Gathers texts, messages, tools and settings; the Composer makes them a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from muntin import telemetry
from muntin.agent.tools import ToolLike, as_tools, merge_tools, tool_name
from muntin.calls import takes_arguments_of
from muntin.composer import Composer
from muntin.core.budget import Budget, as_budget
from muntin.core.checks import check_optional_text, check_size, check_text, shown
from muntin.core.counting.counter import AttachmentTokens, TokenizerLike
from muntin.core.forms import messages_from
from muntin.core.message import Message, user
from muntin.core.model_name import ModelName
from muntin.core.planning.slot import MessageLike
from muntin.core.report import Report
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.contexts import (
    ReachedContext,
    Resolver,
    as_mapping,
    as_uses,
    check_depth,
    check_fields,
    check_model,
    check_resolver,
    merge,
    reach,
    validate,
)
from muntin.prompts.texts import (
    SEPARATOR,
    GatheredPrompt,
    Selection,
    SystemPart,
    cached_first,
    declare,
    is_divided,
    prompt_twin,
    resolve_texts,
)
from muntin.settings import check_settings, defaults, merge_settings

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class SystemText:
    """The system text, and all its parts, dropped parts included."""

    text: str
    parts: tuple[SystemPart, ...]


@dataclass(frozen=True, slots=True)
class DroppedContext:
    """A context that did not fit; the one with `rank` 1 was dropped first."""

    source: str
    text: str
    tokens: int
    priority: int
    reason: str
    rank: int


@dataclass(frozen=True, slots=True)
class ExcludedContext:
    """A context that a condition left out; it was never resolved."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything that a prompt would send; nothing was sent."""

    system: SystemText
    prompt: str | None
    tools: tuple[str, ...]
    total_tokens: int
    prompt_tokens: int
    tool_tokens: int
    token_budget: int | None
    over_budget: bool
    settings: Mapping[str, Any] = field(repr=False)  # headers may hold keys
    dropped_contexts: tuple[DroppedContext, ...]
    excluded_contexts: tuple[ExcludedContext, ...]
    report: Report = field(repr=False)

    @classmethod
    def of(cls, resolution: Resolution) -> Inspection:
        """Return what a resolved prompt would send."""
        gathered, window = resolution.gathered, resolution.window
        counter, report = resolution.composer.counter, window.report
        rows = {row.index: row for row in report.slots}
        # The slots of the parts are declared first.
        planned = [(part, rows[index]) for index, part in enumerate(gathered.parts)]
        dropped = [
            DroppedContext(
                source=part.source,
                text=part.text,
                tokens=row.tokens_asked,
                priority=part.priority,
                reason=row.reason or "over_budget",
                rank=row.decisions[0].rank or 0,
            )
            for part, row in planned
            if row.status == "dropped"
        ]
        parts = [
            replace(part, tokens=row.tokens_asked, status=row.status)
            for part, row in planned
            if row.status != "empty"
        ]
        return cls(
            system=SystemText(resolution.system, tuple(parts)),
            prompt=gathered.user,
            tools=tuple(map(tool_name, gathered.tools)),
            total_tokens=counter.text(resolution.system) if resolution.system else 0,
            prompt_tokens=counter.text(gathered.user) if gathered.user else 0,
            tool_tokens=report.tools_tokens,
            token_budget=resolution.token_budget,
            over_budget=window.over_budget,
            settings=gathered.settings,
            dropped_contexts=tuple(sorted(dropped, key=lambda context: context.rank)),
            excluded_contexts=tuple(
                ExcludedContext(source, f"{reason}: {detail}")
                for source, reason, detail in gathered.excluded
            ),
            report=report,
        )

    def __str__(self) -> str:
        of = "" if self.token_budget is None else f" of {self.token_budget:,}"
        over = ", over budget" if self.over_budget else ""
        lines = [f"system text: {self.total_tokens:,}{of} tokens{over}"]
        lines += [f"  {p.status:8} {p.source} ({p.tokens:,} tokens)" for p in self.system.parts]
        lines += [
            f"  {dropped.source}: dropped as number {dropped.rank}, {dropped.reason}"
            for dropped in self.dropped_contexts
        ]
        lines += [f"  excluded {c.source}: {c.reason}" for c in self.excluded_contexts]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Adaptation:
    """The changes for one provider: texts before and after, and settings."""

    prepend_system: str = ""
    append_system: str = ""
    prepend_prompt: str = ""
    append_prompt: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def apply(self, source: str, gathered: GatheredPrompt) -> GatheredPrompt:
        """Return the gathered prompt with the changes; the texts become parts of their own."""
        before, after = (
            [SystemPart(source, text.strip("\n"))] if text.strip("\n") else []
            for text in (self.prepend_system, self.append_system)
        )
        user = gathered.user
        if user is not None:
            user = f"{self.prepend_prompt}{user}{self.append_prompt}"
        return replace(gathered, parts=(*before, *gathered.parts, *after), user=user)


@dataclass(frozen=True, slots=True)
class Resolution:
    """A prompt made ready: texts, messages, tools, settings, and the window that holds them."""

    system: str
    prompt: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolLike, ...]
    settings: Mapping[str, Any] = field(repr=False)  # headers may hold keys
    window: Window = field(repr=False)
    # The parts and the settings of the window.
    gathered: GatheredPrompt = field(repr=False, compare=False)
    composer: Composer = field(repr=False, compare=False)
    token_budget: int | None = field(repr=False, compare=False)
    # The tokens of the whole request; None if no budget was given and no model is named.
    budget: Budget | None = field(repr=False, compare=False)

    def compose(self, messages: Sequence[MessageLike], *, previous: Window | None = None) -> Window:
        """Return the window with these messages after the prompt's own messages.

        Texts are not resolved again, so the window begins with the same bytes. The messages are
        slot `run` and are not trimmed. `token_budget`, which is for the system text, does not
        count them; `budget` does. With the window before this one as `previous` the run goes on
        from it, and bound thoughts since then stay.
        """
        if not messages:
            return self.window
        run = messages_from(messages)
        composer = self.composer.after(previous)
        return _compose(composer, self.gathered, self.token_budget, self.budget, run)


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A prompt and the contexts it uses; made by `prompt()`."""

    id: str | None
    system: Resolver
    prompt: Resolver
    messages: Any
    use: tuple[Any, ...]
    input: type[BaseModel] | None
    output: type[BaseModel] | None
    tools: tuple[ToolLike, ...]
    settings: Mapping[str, Any] = field(repr=False)  # headers may hold keys
    adapt: Mapping[str, Adaptation]
    reached: tuple[ReachedContext, ...] = field(repr=False)

    async def resolve(
        self,
        input: Any = None,
        *,
        provider: str | None = None,
        model_id: str | None = None,
        token_budget: int | None = None,
        budget: Budget | int | None = None,
        tokenizer: TokenizerLike | None = None,
        attachment_tokens: AttachmentTokens | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: Sequence[ToolLike] = (),
        ctx: Any = None,
    ) -> Resolution:
        """Put the prompt together for this input; nothing is sent.

        `token_budget` is for the system text, `budget` for the whole request: without it, the
        window of the model that `provider` and `model_id` name. `ctx` is passed to resolvers that
        take one: the runtime's ctx, None outside of the runtime.
        """
        if token_budget is not None:
            check_size(token_budget, "token_budget")
        whole = None if budget is None else as_budget(budget)
        gathered = await self.gather(
            input, ctx, provider=provider, model_id=model_id, settings=settings, tools=tools
        )
        name = str(ModelName(provider, model_id or "")) or None
        if whole is None and provider and model_id:
            whole = Budget.of(name)
        composer = Composer.of(
            name,
            budget=whole or Budget.of(name),
            tokenizer=tokenizer,
            attachment_tokens=attachment_tokens,
            # Only if a context asks for it: one call may be the last.
            caching=any(part.breakpoint for part in gathered.parts),
        )
        composer, offered = await composer.offering(gathered.tools, "prompt")
        composer = replace(composer, budget=Budget(0))  # `_compose` gives each window its budget
        with telemetry.composing(name if model_id else None, made_by=self) as report:
            window = _compose(composer, gathered, token_budget, whole)
            report(window)
        origins = zip(window.messages, window.origins, strict=True)
        return Resolution(
            system=SEPARATOR.join(message.text for message, origin in origins if origin is None),
            prompt=gathered.user,
            messages=window.messages,
            tools=offered,
            settings=gathered.settings,
            window=window,
            gathered=gathered,
            composer=composer,
            token_budget=token_budget,
            budget=whole,
        )

    @takes_arguments_of(resolve)
    async def inspect(self: Prompt, *args: Any, **options: Any) -> Inspection:
        """Show the result of `resolve`: every part, the dropped and excluded parts, and why."""
        with telemetry.told_later(self):  # nothing is sent
            return Inspection.of(await self.resolve(*args, **options))

    resolve_sync = prompt_twin(resolve)
    inspect_sync = prompt_twin(inspect)

    async def gather(
        self,
        input: Any = None,
        ctx: Any = None,
        *,
        provider: str | None = None,
        model_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: Sequence[ToolLike] = (),
    ) -> GatheredPrompt:
        """Resolve texts, tools and settings for this input; nothing is counted or planned."""
        check_optional_text(provider, "provider")
        check_optional_text(model_id, "model_id")
        check_settings(settings, "call")
        values = as_mapping(input)
        valid = None if self.input is None else validate(self.input, values, "prompt")
        if valid is not None:  # the prompt's own fields win
            values.update(dict(valid))
        merged, inputs = merge(values, valid, self.reached)
        selection = Selection(values, merged, inputs, ctx)
        selection.visit_all(self.use)
        active = list(selection.active.values())
        contexts = [(use.source, use.context.tools) for use in active]
        tools = merge_tools([("prompt", self.tools), *contexts], winners=as_tools(tools, "call"))
        key, adaptation = choose(self.adapt, provider, model_id)
        parts, user, messages = await resolve_texts(
            self, merged if valid is None else valid, active, ctx
        )
        layers = (defaults().settings, self.settings, adaptation.settings, settings)
        excluded = tuple(selection.excluded.values())
        gathered = GatheredPrompt(parts, user, messages, tools, merge_settings(*layers), excluded)
        gathered = adaptation.apply(f"adaptation:{key}", gathered)
        return replace(gathered, parts=cached_first(gathered.parts))


def prompt(
    *,
    id: str | None = None,
    system: Resolver = None,
    prompt: Resolver = None,
    messages: Any = None,
    use: Sequence[Any] = (),
    input: type[BaseModel] | None = None,
    output: type[BaseModel] | None = None,
    tools: Sequence[ToolLike] = (),
    settings: Mapping[str, Any] | None = None,
    adapt: Mapping[str, Mapping[str, Any]] | None = None,
) -> Prompt:
    """Define a prompt: its own text, the contexts it uses, its input, tools and settings."""
    check_optional_text(id, "prompt: id")
    what = f"prompt {id!r}" if id else "prompt"
    if messages is not None and (system is not None or prompt is not None):
        raise InvalidInput(f"{what}: messages excludes system and prompt")
    if callable(messages):
        check_resolver(messages, f"{what}: messages")
    elif messages is not None and not isinstance(messages, list | tuple):
        raise InvalidType(f"{what}: messages must be a list or a function, not {shown(messages)}")
    elif messages is not None:  # read now: later changes of the caller's dicts do not count
        messages = tuple(messages_from(messages, where=f"{what}: message {{}}"))
    check_resolver(system, f"{what}: system")
    check_resolver(prompt, f"{what}: prompt")
    check_model(input, f"{what}: input")
    check_model(output, f"{what}: output")
    check_settings(settings, what)
    uses = as_uses(use, f"{what}: use")
    check_depth(uses, what)
    reached = tuple(reach(uses))
    ids: dict[str, object] = {}
    for entry in reached:
        context_id = entry.context.id
        if (
            context_id is not None
            and ids.setdefault(context_id, entry.context) is not entry.context
        ):
            raise InvalidInput(f"{what}: two different contexts have the id {context_id!r}")
    check_fields(reached, input)
    tools = as_tools(tools, what)
    offers = [(entry.source, entry.context.tools) for entry in reached if not entry.is_conditional]
    merge_tools([("prompt", tools), *offers], what=f"{what}: ")
    return Prompt(
        id=id,
        system=system,
        prompt=prompt,
        messages=messages,
        use=uses,
        input=input,
        output=output,
        tools=tools,
        settings=dict(settings or {}),
        adapt=_adaptations(adapt, what),
        reached=reached,
    )


async def text_of(context: Any, input: Any = None, ctx: Any = None) -> GatheredPrompt:
    """Return the result of one context, `when()` or `match()`: `system` is its text.

    The result also has its tools and the contexts that were left out.
    """
    return await prompt(use=[context]).gather(input, ctx)


def _compose(
    composer: Composer,
    gathered: GatheredPrompt,
    token_budget: int | None,
    whole: Budget | None,
    run: Sequence[Message] = (),
) -> Window:
    """Compose a window. `token_budget` is for the system text alone: the rest gets the room it
    needs, unless all together are larger than `whole`. The ceiling of a result is a share of
    `whole` too."""
    composer = replace(composer, results=None) if whole is None else replace(composer, budget=whole)
    counter, text = composer.counter, gathered.system
    # A second message for changing parts, and the tokens that dividing a text may add.
    apart = counter.overhead + _SEAM if is_divided(gathered.parts, composer.profile) else 0
    size = counter.text(text) if token_budget is None else token_budget
    system = counter.overhead + size + apart if text or token_budget is not None else 0
    prompt = [user(gathered.user)] if gathered.user else []
    beside = composer.size_of([*prompt, *gathered.messages, *run])
    beside += (
        composer.tokens_beside - counter.answer + (counter.answer if system and not beside else 0)
    )

    def render(composer: Composer) -> Window:
        slots = composer.slots()
        declare(slots, gathered)
        return composer.add_run(slots, run).render()

    window = render(composer.within(system + beside))
    if whole is None or window.over_budget or window.tokens <= whole.remaining_input_tokens:
        return window
    return render(composer)


# How many tokens a divided text may have more than the undivided text.
_SEAM = 2


_FIELDS = tuple(field.name for field in fields(Adaptation))
# A provider in `adapt` that is nearly one of these is misspelt; any other name may be a user's own.
_PROVIDERS = (
    "anthropic", "azure", "bedrock", "cohere", "deepseek", "fireworks", "google", "groq", "meta",
    "mistral", "ollama", "openai", "openrouter", "qwen", "together", "vertex", "x-ai", "xai",
)  # fmt: skip


def _adaptations(entries: Any, what: str) -> Mapping[str, Adaptation]:
    """Check the `adapt` entries of a prompt."""
    if not isinstance(entries, Mapping | None):
        raise InvalidType(f"{what}: adapt must map a provider to changes, not {shown(entries)}")
    checked: dict[str, Adaptation] = {}
    for provider, changes in (entries or {}).items():
        check_text(provider, f"{what}: a provider in adapt")
        where = f"{what}: adapt[{provider!r}]"
        if not provider.startswith(_PROVIDERS):
            from difflib import get_close_matches  # late: few names are unknown

            for name in get_close_matches(provider.lower(), _PROVIDERS, 1, 0.84):
                raise InvalidInput(f"{where}: no provider has this name; did you mean {name!r}?")
        if not isinstance(changes, Mapping):
            raise InvalidType(f"{where} must be a mapping, not {shown(changes)}")
        for name, value in changes.items():
            if name not in _FIELDS:
                raise InvalidInput(
                    f"{where}: unknown field {shown(name)}; use {', '.join(_FIELDS)}"
                )
            if name == "settings":
                check_settings(value, where)
            else:
                check_text(value, f"{where}: {name}")
        checked[provider] = Adaptation(
            **{**changes, "settings": dict(changes.get("settings") or {})}
        )
    return checked


def choose(
    entries: Mapping[str, Adaptation], provider: str | None, model_id: str | None
) -> tuple[str, Adaptation]:
    """Return the one entry that applies: the provider's, the model's route, or `*`."""
    for key in (*ModelName(provider, model_id or "").adaptations, "*"):
        if key in entries:
            return key, entries[key]
    return "", Adaptation()
