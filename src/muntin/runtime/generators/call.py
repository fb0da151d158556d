"""One call of a generator in a turn: the messages for the model, and its answer.

Owns the order of the messages. Declares slots; the Composer makes them a window, and
`recorded_run` records.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from muntin.agent.answers import answered, asking_for
from muntin.agent.tools import NO_TOOLS, ToolLike, Tools, merge_tools
from muntin.calls import call_async
from muntin.composer import Composer
from muntin.core.checks import shown
from muntin.core.message import Input, Message
from muntin.core.model_name import ModelName
from muntin.core.planning.slot import CONTEXT, HISTORY, Group, Stepped
from muntin.core.planning.slots import Slots
from muntin.core.tags.tree import Tagged, aggregate
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.definition import Prompt, choose
from muntin.prompts.files import PromptFile
from muntin.prompts.texts import SYSTEM_TEXT, SystemPart, declare_excluded, declare_parts
from muntin.providers.model import Event, Model
from muntin.runtime.ctx import Ctx
from muntin.runtime.generators.capabilities import Capability, load
from muntin.runtime.generators.context import LooseMessage, ResolvedContext, fields, resolve
from muntin.runtime.generators.history import PastTurn, past_turns
from muntin.runtime.generators.user import turn_input, turn_inputs, user_messages
from muntin.runtime.places import place_of
from muntin.runtime.recall import Recalling
from muntin.runtime.recorded_run import RecordedRun
from muntin.runtime.recovery import offering
from muntin.runtime.run_rules import INHERIT
from muntin.runtime.turn import ActiveTurn, nothing
from muntin.settings import defaults, merge_settings
from muntin.timeline.items import Visibility, draft_of

if TYPE_CHECKING:
    from muntin.runtime.generators.definition import Generator

# The name of a generator that was given none.
UNNAMED = "generator"
# The fields of a prompt file's front matter that are settings.
_SETTINGS = ("max_tokens", "temperature")
# The turns of a history are one conversation: no turn stays when a later turn is gone.
_HISTORY = Group("history", chain=True)


@dataclass(frozen=True, slots=True)
class StepTexts:
    """The texts of one model step: system parts, the tagged block, and messages beside it.

    `changing` is the block of tags that are made again at every step, where it stands apart.
    """

    parts: Sequence[SystemPart]
    block: str
    tagged: Tagged
    context: ResolvedContext
    user: str | None = None
    changing: str = ""


@dataclass(slots=True)
class GeneratorCall:
    """A generator at work in a turn; history and user messages are read once, when it begins."""

    definition: Generator
    ctx: Ctx
    model: Model
    composer: Composer
    caps: list[Capability]
    # The texts of the next step, if they are resolved already.
    step: StepTexts | None = None
    tools: Tools = NO_TOOLS
    past: list[PastTurn] = field(default_factory=list)
    messages: Sequence[Message] = ()
    # Whether the answer ends the turn.
    ends: bool = False
    # The run as it was at the newest step, and the messages before it after a repair.
    run: tuple[Message, ...] = ()
    repaired: tuple[Message, ...] = ()

    @classmethod
    async def begin(
        cls,
        definition: Generator,
        turn: ActiveTurn,
        valid: Any,
        model: str | Model | None,
        *,
        record: bool = False,
    ) -> GeneratorCall:
        """Resolve everything once; with `record` the user's message becomes part of the turn."""
        chosen = turn.app.answering(definition.model if model is None else model, definition.what)
        composer = _composer(definition, turn, chosen)
        # The user's message of a turn that has just begun is about to be recorded.
        recorded = [] if record else turn_inputs(await turn.read(turn.items))
        ctx = Ctx(
            turn,
            where=definition.what,
            input=valid,
            message=Input(recorded[-1].text, recorded[-1].attachments) if recorded else None,
            budget=composer.budget,
            cap={} if definition.uses else None,
            timeout=definition.options.timeout,
        )
        call = cls(
            definition, ctx, chosen, composer, await load(definition.uses, ctx, definition.what)
        )
        user = definition.user
        if user is None:  # then the prompt may have it
            call.step = await call._resolve()
            user = call.step.user
        own_messages = await user_messages(
            user, f"{definition.what}: user", ctx, alone=not recorded
        )
        if record:
            recorded += await call._record(own_messages)
        call.step = call.step or await call._resolve()
        tools = gather_tools(definition, call.caps, call.step.context)
        recovers = (
            tools and definition.options.rules.over(turn.flow.rules).over(turn.app.rules).recovers
        )
        recovery = [ctx.load_result] if recovers else []
        call.composer, call.tools = await offering(composer, tools, recovery, definition.what)
        call.messages, ours = turn_input(own_messages, recorded)
        call.past = await past_turns(definition, ctx, ours)
        return call

    async def _record(self, messages: Sequence[Message]) -> list[Message]:
        """Record the user's messages, before anything else happens; return them with positions."""
        spoken = [message for message in messages if message.role == "user"]
        if not spoken:
            return []
        drafts = [draft_of(message, visibility=self.definition.visibility) for message in spoken]
        items = await self.ctx.turn.record(*drafts, counter=self.composer.counter)
        self.ctx.give(message=Input(spoken[-1].text, spoken[-1].attachments))
        pairs = zip(spoken, items, strict=True)
        return [replace(message, at=item.position) for message, item in pairs]

    async def events(self, *, streaming: bool) -> AsyncGenerator[Event, None]:
        """Ask the model, run its tools, and read its answer; a wrong answer is repaired once."""
        definition, step = self.definition, self.step
        texts = step and (
            step.block or step.changing or step.context.loose or any(p.text for p in step.parts)
        )
        if not (self.messages or self.past or texts):
            raise InvalidInput(
                f"{definition.what} is empty for this input: there is nothing to send"
            )
        attempt = partial(self._attempt, streaming=streaming)
        return (
            await attempt(()) if definition.output is None else answered(attempt, definition.output)
        )

    async def _attempt(
        self, repair: tuple[Message, ...], *, streaming: bool
    ) -> AsyncGenerator[Event, None]:
        """Begin to run the model; `repair` is its wrong answer and the message about the mistake,
        if there was one."""
        definition, turn = self.definition, self.ctx.turn
        if repair:
            # For the history, not for the client.
            unseen = Visibility(client=False, history=definition.visibility.history)
            await turn.record(
                draft_of(repair[-1], visibility=unseen, meta={"repair": definition.name})
            )
            self.repaired = (*self.run, *repair)
        # Without a name of its own a generator is known by its prompt.
        prompt = (
            definition.prompt
            if definition.name == UNNAMED and isinstance(definition.prompt, str)
            else None
        )
        inputs = [prompt, self.ctx.input, [message.text for message in repair]]
        run = RecordedRun(
            turn,
            self.composer,
            self.model,
            tools=self.tools,
            settings={**self._settings(), **asking_for(definition.output)},
            max_steps=definition.options.max_steps,
            visibility=definition.visibility,
            label={"generator": definition.name},
            place=place_of(turn.session.id, turn.number, definition.name, inputs),
            line=f"generator:{definition.name}",
            ends=self.ends and definition.output is None,
            projection=self.ctx.projections,
            completed=True,
        )
        await run.begin(nothing)
        return run.ask(self._next_step, streaming=streaming)

    async def first_window(self) -> Window:
        """Compose the window of the first step."""
        assert self.step is not None  # before the first step
        slots, composer = self._declare(self.composer, self.step), self.composer
        if composer.recall is None:
            return slots.render()
        recalling = Recalling(self.ctx.turn, composer.recall, self.ctx.projections, True)
        return await recalling.compose(slots, composer)

    async def _next_step(self, composer: Composer, run: tuple[Message, ...]) -> Slots:
        """Declare the slots of a step; prompt and context are resolved again."""
        self.run = run
        step, self.step = self.step or await self._resolve(), None
        return self._declare(composer, step, (*self.repaired, *run))

    def _declare(self, composer: Composer, step: StepTexts, run: Sequence[Message] = ()) -> Slots:
        slots = composer.slots()
        declare_parts(slots, step.parts)
        authors, is_behind = _authors(step.tagged), self.definition.place == "behind"
        slots.add(
            "context",
            step.block,
            role="system",
            priority=CONTEXT,
            trim_behavior="slot",
            group=SYSTEM_TEXT,
            changes=bool(step.context.changing) and not is_behind,
            detail=authors,
        )
        # Texts that are made again at every step stand behind the history, if the author says so.
        behind = [loose for loose in step.context.loose if is_behind and loose.changes]
        _declare_loose(slots, [loose for loose in step.context.loose if loose not in behind])
        self._declare_history(slots)
        if step.changing:
            slots.add(
                "context, changing",
                step.changing,
                role="system",
                priority=CONTEXT,
                trim_behavior="slot",
                changes=True,
                detail=authors,
            )
        _declare_loose(slots, behind)
        slots.add("input", list(self.messages))
        composer.add_run(slots, run)
        declare_excluded(slots, step.context.excluded)
        return slots

    def _declare_history(self, slots: Slots) -> None:
        """Declare the history: as one list that is cut in steps, or turn by turn."""
        trimming = self.composer.history_trimming
        if isinstance(trimming, Stepped):
            messages = [message for _, turn_messages in self.past for message in turn_messages]
            slots.add("history", messages, priority=HISTORY, trimming=trimming)
            return
        for turn, messages in self.past:
            detail = None if turn is None else f"turn {turn}"
            slots.add(
                "history",
                messages,
                priority=HISTORY,
                trim_behavior="slot",
                detail=detail,
                group=_HISTORY,
            )

    async def _resolve(self) -> StepTexts:
        """Resolve prompt and context, as they are now."""
        definition, ctx = self.definition, self.ctx
        presets = [preset for cap in self.caps for preset in cap.active]
        context = await resolve([definition.context, *(preset.context for preset in presets)], ctx)
        tagged = aggregate(context.tagged)
        stay, change = tagged.divided(context.changing if definition.place == "behind" else ())
        block, changing = stay.render(), change.render()
        if isinstance(definition.prompt, PromptFile):
            return self._render(definition.prompt, (block, changing), tagged, context)
        if isinstance(definition.prompt, Prompt):
            provider, model_id = self._provider()
            used = await definition.prompt.gather(
                fields(ctx.input), ctx, provider=provider, model_id=model_id
            )
            context = replace(
                context,
                excluded=context.excluded + used.excluded,
                tools=(("its prompt", used.tools), *context.tools),
            )
            return StepTexts(used.parts, block, tagged, context, used.user, changing)
        text = definition.prompt
        if callable(text):
            text = await call_async(
                text, f"the prompt of {definition.what}", ctx.input, ctx, timeout=ctx.timeout
            )
        if not isinstance(text, str | None):
            raise InvalidType(f"the prompt of {definition.what} must be a text, not {shown(text)}")
        parts = [SystemPart("prompt", text or "")]
        return StepTexts(parts, block, tagged, context, changing=changing)

    def _render(
        self, file: PromptFile, blocks: tuple[str, str], tagged: Tagged, context: ResolvedContext
    ) -> StepTexts:
        """Render a prompt file; a file that lays out the context itself gets it in one block."""
        block, changing = blocks
        own_layout = "context" in file.sections
        settings = self._settings()
        config = {key: settings[key] for key in _SETTINGS if key in settings}
        rendered = file.render(
            self.ctx.input,
            ctx=_seen(self.ctx),
            context=tagged.inner,
            block=block,
            config={**config, "name": self.definition.name, "model": self.model.name},
        )
        parts = [SystemPart("prompt", rendered.section)]
        block = rendered.block
        if own_layout:
            block, changing = ("", block) if changing else (block, "")
        return StepTexts(parts, block, tagged, context, rendered.user, changing)

    def _provider(self) -> tuple[str | None, str]:
        named = ModelName.parse(self.model.name)
        return named.provider, named.model

    def _settings(self) -> dict[str, Any]:
        """Merge settings: the process's, the capabilities', the prompt's, the generator's own."""
        layers: list[Mapping[str, Any]] = []
        if isinstance(self.definition.prompt, PromptFile):
            front = self.definition.prompt.config
            layers = [{key: front[key] for key in _SETTINGS if key in front}]
        elif isinstance(self.definition.prompt, Prompt):
            _, adaptation = choose(self.definition.prompt.adapt, *self._provider())
            layers = [self.definition.prompt.settings, adaptation.settings]
        presets = [preset.settings for cap in self.caps for preset in cap.active]
        return merge_settings(
            defaults().settings, *presets, *layers, self.definition.options.settings
        )


def _declare_loose(slots: Slots, loose: Sequence[LooseMessage]) -> None:
    for message in loose:
        slots.add(
            message.name,
            [message.message],
            priority=message.priority,
            required=message.required,
            trim_behavior="slot",
            changes=message.changes,
            detail=f"from {message.author}",
        )


def _composer(definition: Generator, turn: ActiveTurn, model: Model) -> Composer:
    """Return the Composer of a call; a prompt file may switch caching off."""
    file = definition.prompt if isinstance(definition.prompt, PromptFile) else None
    options = definition.options
    rules = options.rules.over(turn.flow.rules)
    if definition.history is None or (definition.history is not True and rules.recall == INHERIT):
        rules = replace(rules, recall=False)  # without a history nothing is recalled
    composer = turn.app.composer(
        model,
        replace(options, trimming=options.trimming or turn.flow.trimming, rules=rules),
        definition.what,
        caching=file is None or file.config.get("caching") is not False,
    )
    return composer.asking_for(asking_for(definition.output).get("output_schema"))


def gather_tools(
    definition: Generator, caps: Sequence[Capability], context: ResolvedContext
) -> tuple[ToolLike, ...]:
    """Return all tools; a name that two sources offer is an error naming both."""
    presets = [(cap.author, preset.tools) for cap in caps for preset in cap.active]
    offers = [(definition.what, definition.tools), *presets, *context.tools]
    return merge_tools(offers, what=f"{definition.what}: ")


def _authors(tagged: Tagged) -> str | None:
    """Name the authors of the block, where it has more than one."""
    givers = {share.author for shares in tagged.provenance.values() for share in shares}
    names = [author for author in tagged.authors if author in givers]
    return f"from {', '.join(names)}" if len(names) > 1 else None


def _seen(ctx: Ctx) -> dict[str, Any]:
    """Return the data of ctx that a template sees."""
    message, cap = ctx.get("message"), ctx.get("cap")
    return {
        "input": ctx.input,
        "message": message.text if message else None,
        "session": {"id": ctx.session.id},
        "cap": vars(cap) if cap is not None else {},
    }
