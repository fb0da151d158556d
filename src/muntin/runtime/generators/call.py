"""One call of a generator in a turn: what it is told, and what comes of it.

Owns the order of the messages and that the user's turn is there exactly once. It declares slots;
counting and trimming are the engine's, recording is `work`'s.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from muntin.agent.tools import ToolLike, tool_name
from muntin.calls import call_async
from muntin.composer import Composer
from muntin.core.message import Input, Message, user
from muntin.core.model_name import ModelName
from muntin.core.planning.slot import Stepped
from muntin.core.planning.slots import Slots
from muntin.core.tags.tree import Tagged, aggregate
from muntin.errors import InvalidInput, InvalidType, OutputInvalid
from muntin.prompts.adapt import choose, merge_settings
from muntin.prompts.contexts import PINNED
from muntin.prompts.definition import SYSTEM, Prompt, declare_parts
from muntin.prompts.files import PromptFile
from muntin.prompts.generation import read_output, repair, wanted
from muntin.prompts.texts import Part
from muntin.providers.model import Event, Finished, Model, Usage
from muntin.runtime.active_turn import ActiveTurn
from muntin.runtime.ctx import Ctx
from muntin.runtime.generators.capabilities import Capability, load
from muntin.runtime.generators.context import PRIORITY, Told, fields, resolve
from muntin.runtime.generators.user import PastTurn, asked, once, past, said
from muntin.runtime.recorded_run import recorded_run
from muntin.settings import defaults
from muntin.timeline.items import Visibility, draft_of

if TYPE_CHECKING:
    from muntin.runtime.generators.definition import Generator

# When room is short history goes first, then context (50), then what this run did so far.
_HISTORY = 10
_RUN = 60
# What of a prompt file's front matter is a setting.
_SETTINGS = ("max_tokens", "temperature")


@dataclass(frozen=True, slots=True)
class Step:
    """The texts of one model step: system parts, the tagged block, and all that stands beside."""

    parts: Sequence[Part]
    block: str
    tagged: Tagged
    told: Told
    user: str | None = None


@dataclass(slots=True)
class Call:
    """A generator at work in a turn; history and user are what they were when it began."""

    made: Generator
    ctx: Ctx
    model: Model
    composer: Composer
    caps: list[Capability]
    # The texts of the step that comes next, where they are resolved already.
    step: Step | None = None
    tools: tuple[ToolLike, ...] = ()
    past: list[PastTurn] = field(default_factory=list)
    user: list[Message] = field(default_factory=list)

    @classmethod
    async def begin(
        cls,
        made: Generator,
        turn: ActiveTurn,
        valid: Any,
        model: str | Model | None,
        *,
        record: bool = False,
    ) -> Call:
        """Resolve everything once; with `record` the user's message becomes part of the turn."""
        chosen = turn.app.answering(made.model if model is None else model, made.what)
        composer = turn.app.composer(
            chosen,
            budget=made.budget,
            trimming=made.trimming or turn.trimming,
            caching=not _uncached(made.prompt),
        )
        heard = asked(await turn.items())
        ctx = Ctx(
            turn,
            door=made.what,
            input=valid,
            message=Input(heard[-1].text, heard[-1].attachments) if heard else None,
            budget=composer.budget,
            cap={} if made.uses else None,
        )
        caps = await load(made.uses, ctx, made.what)
        call = cls(made, ctx, chosen, composer, caps)
        given = made.user
        if given is None:  # then the prompt may have it
            call.step = await call._resolve()
            given = call.step.user
        own = await said(given, f"{made.what}: user", ctx)
        if record:
            heard += await call._record(own)
        call.step = call.step or await call._resolve()
        call.tools = gather_tools(made, caps, call.step.told)
        call.composer = composer.offering(call.tools)
        call.user, shown = once(own, heard)
        call.past = await past(made, ctx, shown)
        return call

    async def _record(self, own: Sequence[Message]) -> list[Message]:
        """Record what the user says, before anything else comes of it."""
        spoken = [message for message in own if message.role == "user"]
        if not spoken:
            return []
        drafts = [draft_of(message, visibility=self.made.visibility) for message in spoken]
        items = await self.ctx.turn.append(*drafts)
        self.ctx.give(message=Input(spoken[-1].text, spoken[-1].attachments))
        pairs = zip(spoken, items, strict=True)
        return [replace(message, at=item.position) for message, item in pairs]

    async def events(self, *, streaming: bool) -> AsyncGenerator[Event, None]:
        """Ask the model, run its tools, and read its answer; one that is wrong is repaired once."""
        made, turn = self.made, self.ctx.turn
        if not self._says_something():
            raise InvalidInput(f"{made.what} is empty for this input: there is nothing to send")
        before: tuple[Message, ...] = ()
        latest: tuple[Message, ...] = ()
        usage = Usage()

        async def declare(composer: Composer, run: tuple[Message, ...]) -> Slots:
            nonlocal latest
            latest = run
            step, self.step = self.step or await self._resolve(), None
            return self._declare(composer, step, (*before, *run))

        for attempt in range(2):
            events = recorded_run(
                turn,
                self.composer,
                declare,
                self.model,
                tools=self.tools,
                settings={**self._settings(), **wanted(made.output)},
                max_steps=made.max_steps,
                visibility=made.visibility,
                label={"generator": made.name},
                line=f"generator:{made.name}",
                streaming=streaming,
            )
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Finished):
                        reply = event.reply
                    else:
                        yield event
            usage += reply.usage
            reply = replace(reply, usage=usage)
            if made.output is None or reply.tool_calls:
                break
            value, problem = read_output(made.output, reply.text)
            if problem is None:
                reply = replace(reply, output=value)
                break
            if attempt:
                raise OutputInvalid(made.output.__name__, problem, reply)
            asks = user(repair(made.output, problem))
            await self._note(asks)
            before = (*latest, reply.message, asks)
        yield Finished(reply)

    def _says_something(self) -> bool:
        step = self.step
        return bool(
            self.user
            or self.past
            or (step and (step.block or step.told.loose or any(part.text for part in step.parts)))
        )

    async def _note(self, asks: Message) -> None:
        """Record what the model was told of its answer: for the history, not for the client."""
        unseen = Visibility(client=False, history=self.made.visibility.history)
        draft = draft_of(asks, visibility=unseen, meta={"repair": self.made.name})
        await self.ctx.turn.append(draft)

    def slots(self) -> Slots:
        """Declare the slots of the first step."""
        assert self.step is not None  # as long as no step was taken
        return self._declare(self.composer, self.step, ())

    def _declare(self, composer: Composer, step: Step, run: Sequence[Message]) -> Slots:
        slots = composer.slots()
        declare_parts(slots, step.parts)
        slots.add(
            "context",
            step.block,
            role="system",
            priority=PRIORITY,
            trim_behavior="slot",
            group=SYSTEM,
            detail=_authors(step.tagged),
        )
        for each in step.told.loose:
            slots.add(
                each.name,
                [each.message],
                priority=each.priority,
                required=each.required,
                trim_behavior="slot",
                detail=f"from {each.author}",
            )
        self._declare_history(slots)
        slots.add("user", self.user, priority=PINNED, required=True)
        if run:
            slots.add("run", list(run), priority=_RUN)
        for source, reason, why in step.told.excluded:
            slots.exclude(source, reason=reason, detail=why)
        return slots

    def _declare_history(self, slots: Slots) -> None:
        """Declare the history: one list that is cut in steps, or turn by turn."""
        made = self.made
        given = made.trimming or self.ctx.turn.trimming
        trimming = self.composer.history_trimming
        if isinstance(trimming, Stepped) and (given is not None or made.history is True):
            messages = [message for _, said in self.past for message in said]
            slots.add("history", messages, priority=_HISTORY, trimming=trimming)
            return
        for turn, messages in self.past:
            detail = None if turn is None else f"turn {turn}"
            slots.add("history", messages, priority=_HISTORY, trim_behavior="slot", detail=detail)

    async def _resolve(self) -> Step:
        """Ask for prompt and context, as they are now."""
        made, ctx = self.made, self.ctx
        presets = [preset for cap in self.caps for preset in cap.active]
        told = await resolve([made.context, *(preset.context for preset in presets)], ctx)
        tagged = aggregate(told.tagged)
        block = tagged.render()
        if isinstance(made.prompt, PromptFile):
            settings = self._settings()
            config = {key: settings[key] for key in _SETTINGS if key in settings}
            rendered = made.prompt.render(
                ctx.input,
                ctx=_seen(ctx),
                context=tagged.inner,
                block=block,
                config={**config, "name": made.name, "model": self.model.name},
            )
            parts = [Part("prompt", rendered.own, PINNED, True)]
            return Step(parts, rendered.block, tagged, told, rendered.user)
        if isinstance(made.prompt, Prompt):
            provider, model_id = self._provider()
            used = await made.prompt._make(
                fields(ctx.input), provider, model_id, None, None, None, (), ctx
            )
            told.excluded += used.excluded
            told.tools.insert(0, ("its prompt", used.tools))
            return Step(used.resolved.parts, block, tagged, told, used.resolved.prompt)
        text = made.prompt
        if callable(text):
            text = await call_async(text, f"the prompt of {made.what}", ctx.input, ctx)
        if not isinstance(text, str | None):
            raise InvalidType(f"the prompt of {made.what} must be a text, not {text!r}")
        return Step([Part("prompt", text or "", PINNED, True)], block, tagged, told)

    def _provider(self) -> tuple[str | None, str]:
        named = ModelName.parse(self.model.name)
        return named.provider, named.model

    def _settings(self) -> dict[str, Any]:
        """Merge settings: of the process, the capabilities, the prompt, the generator itself."""
        own: list[Mapping[str, Any]] = []
        if isinstance(self.made.prompt, PromptFile):
            front = self.made.prompt.config
            own = [{key: front[key] for key in _SETTINGS if key in front}]
        elif isinstance(self.made.prompt, Prompt):
            _, adaptation = choose(self.made.prompt.adapt, *self._provider())
            own = [self.made.prompt.settings, adaptation.settings]
        presets = [preset.settings for cap in self.caps for preset in cap.active]
        return merge_settings(defaults().settings, *presets, *own, self.made.settings)


def _uncached(prompt: object) -> bool:
    """Say whether a prompt file asks for no caching."""
    return isinstance(prompt, PromptFile) and prompt.config.get("caching") is False


def gather_tools(made: Generator, caps: Sequence[Capability], told: Told) -> tuple[ToolLike, ...]:
    """Return all tools; a name that two of them have is an error naming both."""
    found: dict[str, tuple[str, ToolLike]] = {}
    offers: list[tuple[str, Sequence[ToolLike]]] = [(made.what, made.tools)]
    offers += [(cap.author, preset.tools) for cap in caps for preset in cap.active]
    for source, tools in (*offers, *told.tools):
        for tool in tools:
            name = tool_name(tool)
            owner, known = found.setdefault(name, (source, tool))
            if known is not tool or owner != source:  # one context may stand in two places
                raise InvalidInput(
                    f"{made.what}: tool {name!r} is contributed by {owner} and by {source}"
                )
    return tuple(tool for _, tool in found.values())


def _authors(tagged: Tagged) -> str | None:
    """Say who wrote into the block, where it was more than one."""
    givers = {share.author for shares in tagged.provenance.values() for share in shares}
    names = [author for author in tagged.authors if author in givers]
    return f"from {', '.join(names)}" if len(names) > 1 else None


def _seen(ctx: Ctx) -> dict[str, Any]:
    """Return what a template sees of ctx: data only."""
    message, cap = ctx.get("message"), ctx.get("cap")
    return {
        "input": ctx.input,
        "message": message.text if message else None,
        "session": {"id": ctx.session.id},
        "cap": vars(cap) if cap is not None else {},
    }
