"""Prompts: contexts put together under a budget.

Resolves conditions, inputs and texts, and declares slots; the engine joins, counts and drops.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from muntin.agent.tools import ToolLike, as_tools, tool_name, tool_schema
from muntin.calls import sync_twin
from muntin.core.checks import check_optional_text, check_size
from muntin.core.counting.counter import Counter, TokenizerLike
from muntin.core.message import Message
from muntin.core.planning.slot import Group, MessageLike
from muntin.core.planning.slots import Slots
from muntin.core.planning.window import Window
from muntin.core.profile import Profile
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.adapt import (
    Adaptation,
    adaptations,
    choose,
    merge_settings,
)
from muntin.prompts.contexts import (
    PINNED,
    Reached,
    Resolver,
    as_uses,
    check_depth,
    check_model,
    check_resolver,
    reach,
)
from muntin.prompts.inputs import as_mapping, check_fields, merge, validate
from muntin.prompts.inspection import (
    DroppedContext,
    ExcludedContext,
    Inspection,
    SystemPart,
    SystemText,
)
from muntin.prompts.texts import Excluded, Part, Resolved, activate, gather_tools, resolve_texts
from muntin.settings import check_settings, defaults

if TYPE_CHECKING:
    from pydantic import BaseModel

SYSTEM = Group("system", join="\n\n")


@dataclass(frozen=True, slots=True)
class Resolution:
    """A prompt made ready: texts, messages, tools, settings, and the window that holds them."""

    system: str
    prompt: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolLike, ...]
    settings: Mapping[str, Any]
    window: Window = field(repr=False)
    _made: _Made = field(repr=False, compare=False)

    def compose(self, messages: Sequence[MessageLike]) -> Window:
        """Return the window with these messages behind the prompt's own: what was said since.

        Texts are not resolved again, so the window begins with the same bytes. They are slot
        `run`, are not trimmed, and the budget, which is for the system text, is not theirs.
        """
        return self._made.window_with(messages) if messages else self.window


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
    settings: Mapping[str, Any]
    adapt: Mapping[str, Adaptation]
    reached: tuple[Reached, ...] = field(repr=False)

    async def resolve(
        self,
        input: Any = None,
        *,
        provider: str | None = None,
        model_id: str | None = None,
        token_budget: int | None = None,
        tokenizer: TokenizerLike | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: Sequence[ToolLike] = (),
        ctx: Any = None,
    ) -> Resolution:
        """Put the prompt together for this input; nothing is sent.

        `ctx` is what resolvers that take one are given: the runtime's, None outside of it.
        """
        made = await self._make(
            input, provider, model_id, token_budget, tokenizer, settings, tools, ctx
        )
        return Resolution(
            system=made.system_text,
            prompt=made.resolved.prompt,
            messages=made.window.messages,
            tools=made.tools,
            settings=made.settings,
            window=made.window,
            _made=made,
        )

    async def inspect(
        self,
        input: Any = None,
        *,
        provider: str | None = None,
        model_id: str | None = None,
        token_budget: int | None = None,
        tokenizer: TokenizerLike | None = None,
        settings: Mapping[str, Any] | None = None,
        tools: Sequence[ToolLike] = (),
    ) -> Inspection:
        """Show what `resolve` would make: every part, what was dropped or excluded, and why."""
        made = await self._make(input, provider, model_id, token_budget, tokenizer, settings, tools)
        return made.inspection()

    resolve_sync = sync_twin(resolve)
    inspect_sync = sync_twin(inspect)

    async def _make(
        self,
        input: Any,
        provider: str | None,
        model_id: str | None,
        token_budget: int | None,
        tokenizer: TokenizerLike | None,
        settings: Mapping[str, Any] | None,
        tools: Sequence[ToolLike],
        ctx: Any = None,
    ) -> _Made:
        if token_budget is not None:
            check_size(token_budget, "token_budget")
        check_optional_text(provider, "provider")
        check_optional_text(model_id, "model_id")
        check_settings(settings, "call")
        given = as_mapping(input)
        own = None if self.input is None else validate(self.input, given, "prompt")
        if own is not None:  # the prompt's own fields win
            given.update(dict(own))
        merged, inputs = merge(given, own, self.reached)
        active, excluded = activate(self.use, given, merged, inputs, ctx)
        chosen = gather_tools(self.tools, active, as_tools(tools, "call"))
        key, adaptation = choose(self.adapt, provider, model_id)
        resolved = await resolve_texts(self, own if own is not None else merged, active, ctx)
        resolved = adaptation.apply(f"adaptation:{key}", resolved)
        force = defaults()
        counter = Counter(force.tokenizer if tokenizer is None else tokenizer)
        # Providers are asked to cache only where a context says so: one call may well be the last.
        asked = provider is not None and any(part.mark for part in resolved.parts)
        profile = Profile.for_model(f"{provider}/{model_id or ''}") if asked else None
        return _Made(
            resolved=resolved,
            excluded=excluded,
            tools=chosen,
            settings=merge_settings(force.settings, self.settings, adaptation.settings, settings),
            token_budget=token_budget,
            counter=counter,
            profile=profile,
            window=_compose(resolved, excluded, chosen, counter, profile, token_budget),
        )


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
        raise InvalidType(f"{what}: messages must be a list or a function, not {messages!r}")
    check_resolver(system, f"{what}: system")
    check_resolver(prompt, f"{what}: prompt")
    check_model(input, f"{what}: input")
    check_model(output, f"{what}: output")
    check_settings(settings, what)
    uses = as_uses(use, f"{what}: use")
    check_depth(uses, what)
    made = Prompt(
        id=id,
        system=system,
        prompt=prompt,
        messages=tuple(messages) if isinstance(messages, list) else messages,
        use=uses,
        input=input,
        output=output,
        tools=as_tools(tools, what),
        settings=dict(settings or {}),
        adapt=adaptations(adapt, what),
        reached=tuple(reach(uses)),
    )
    _check_contexts(made, what)
    return made


def _check_contexts(made: Prompt, what: str) -> None:
    """Refuse what is wrong whatever the input: ids, fields and tools claimed twice."""
    ids: dict[str, object] = {}
    for each in made.reached:
        known = each.context.id
        if known is not None and ids.setdefault(known, each.context) is not each.context:
            raise InvalidInput(f"{what}: two different contexts have the id {known!r}")
    check_fields(made.reached, made.input)
    owners = {tool_name(tool): "prompt" for tool in made.tools}
    for each in made.reached:
        for tool in () if each.conditional else each.context.tools:
            owner = owners.setdefault(tool_name(tool), each.source)
            if owner != each.source:
                raise InvalidInput(
                    f"{what}: tool {tool_name(tool)!r} is contributed by {owner} and by "
                    f"{each.source}"
                )


def declare_parts(slots: Slots, parts: Sequence[Part]) -> None:
    """Declare the parts of a system text: joined, each kept whole or dropped."""
    for part in parts:
        slots.add(
            part.source,
            part.text,
            role="system",
            priority=part.priority,
            required=part.pinned,
            trim_behavior="slot",
            group=SYSTEM,
            breakpoint=part.mark,
        )


def _compose(
    resolved: Resolved,
    excluded: Sequence[Excluded],
    tools: Sequence[ToolLike],
    counter: Counter,
    profile: Profile | None,
    token_budget: int | None,
    since: Sequence[MessageLike] = (),
) -> Window:
    """Declare the slots and render them. The budget is for the system text alone: the rest, which
    may not be dropped, gets the room it needs beside it."""
    schemas = [tool_schema(tool) for tool in tools]

    def slots(budget: int) -> Slots:
        made = Slots(budget, tokenizer=counter.tokenizer, tools=schemas, profile=profile)
        declare_parts(made, resolved.parts)
        for source, reason, detail in excluded:
            made.exclude(source, reason=reason, detail=detail)
        made.add("user", resolved.prompt or None, role="user", required=True, priority=PINNED)
        made.add("messages", resolved.messages, required=True, priority=PINNED)
        if since:
            made.add("run", since, required=True, priority=PINNED)
        return made

    if token_budget is None:
        return slots(slots(sys.maxsize).render().tokens).render()
    rest = counter.tools(schemas)
    if resolved.prompt or resolved.messages or since:
        conversation = Slots(sys.maxsize, tokenizer=counter.tokenizer, profile=profile)
        conversation.add("user", resolved.prompt or None, role="user")
        conversation.add("messages", resolved.messages)
        conversation.add("run", since)
        rest += conversation.render().tokens
    return slots(token_budget + counter.overhead + rest).render()


@dataclass(frozen=True, slots=True)
class _Made:
    """A prompt composed, with all that an inspection tells."""

    resolved: Resolved
    excluded: Sequence[Excluded]
    tools: tuple[ToolLike, ...]
    settings: Mapping[str, Any]
    token_budget: int | None
    counter: Counter
    profile: Profile | None
    window: Window

    def window_with(self, messages: Sequence[MessageLike]) -> Window:
        """Compose again, with more messages behind the others."""
        return _compose(
            self.resolved,
            self.excluded,
            self.tools,
            self.counter,
            self.profile,
            self.token_budget,
            messages,
        )

    @property
    def system_text(self) -> str:
        """The joined system text, or nothing."""
        for message, origin in zip(self.window.messages, self.window.origins, strict=True):
            if origin is None:
                return message.text
        return ""

    def inspection(self) -> Inspection:
        """Tell everything."""
        report = self.window.report
        rows = {slot.index: slot for slot in report.slots}
        parts: list[SystemPart] = []
        dropped: list[DroppedContext] = []
        for index, part in enumerate(self.resolved.parts):
            row = rows[index]
            if row.status != "empty":
                answer = part.answer
                parts.append(
                    SystemPart(
                        source=part.source,
                        text=part.text,
                        tokens=row.tokens_asked,
                        status=row.status,
                        cache=answer.outcome if answer else None,
                        age=answer.age if answer else None,
                    )
                )
            if row.status == "dropped":
                dropped.append(_dropped(part, row.tokens_asked, row.reason, row.decisions[0].rank))
        counter = self.counter
        total = counter.text(self.system_text) if self.system_text else 0
        return Inspection(
            system=SystemText(self.system_text, tuple(parts)),
            prompt=self.resolved.prompt,
            tools=tuple(tool_name(tool) for tool in self.tools),
            total_tokens=total,
            prompt_tokens=counter.text(self.resolved.prompt) if self.resolved.prompt else 0,
            tool_tokens=report.tools_tokens,
            token_budget=self.token_budget,
            over_budget=self.window.over_budget,
            settings=self.settings,
            dropped_contexts=tuple(sorted(dropped, key=lambda gone: gone.rank)),
            excluded_contexts=tuple(
                ExcludedContext(source, f"{reason}: {detail}")
                for source, reason, detail in self.excluded
            ),
            report=report,
        )


def _dropped(part: Part, tokens: int, reason: str | None, rank: int | None) -> DroppedContext:
    return DroppedContext(
        source=part.source,
        text=part.text,
        tokens=tokens,
        priority=part.priority,
        reason=reason or "over_budget",
        rank=rank or 0,
    )
