"""The agent of an entity: the window of each step, from sources or from the whole timeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from muntin.agent.loop import last_reply
from muntin.agent.tools import ToolLike, Tools, as_tools
from muntin.composer import Composer, TurnInput
from muntin.core.message import Message, system
from muntin.core.planning.slot import HISTORY, INPUT_LEAST, SYSTEM, Pool
from muntin.core.planning.slots import Slots
from muntin.errors import BudgetExceeded, InvalidInput
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.recorded_run import RecordedRun
from muntin.runtime.recovery import keep_input, keep_originals, offering
from muntin.runtime.run_rules import CallOptions
from muntin.runtime.source_slots import declare_sources
from muntin.runtime.sources import Loaded, Sources, load_sources
from muntin.timeline.items import Item
from muntin.timeline.markers import InputRest
from muntin.timeline.past import without

if TYPE_CHECKING:
    from muntin.runtime.ctx import Ctx


@dataclass(frozen=True, slots=True)
class _Begun:
    """What is read when a run begins: this turn's items, where live entries stand among them, and
    the past as far as it fits, if no sources stand in its place."""

    items: Sequence[Item]
    live: Collection[int]
    past: Sequence[Message]


@dataclass(frozen=True, slots=True)
class _Shown:
    """What all windows of a run show besides the run: the past or the sources, the message that
    woke the entity with its marker, and what the turn did before."""

    past: Sequence[Message]
    loaded: Sequence[Loaded]
    woken: Sequence[Message]
    rest: InputRest
    before: Sequence[Message]


class Agent:
    """An agent as `ctx.use_agent` declared it; `run` runs it."""

    def __init__(
        self,
        ctx: Ctx,
        system_prompt: str | None,
        model: str | Model | None,
        tools: Sequence[ToolLike],
        options: CallOptions,
    ) -> None:
        self._ctx = ctx
        self._turn = ctx.turn
        self._system = system(system_prompt) if system_prompt else None
        self._model = ctx.turn.app.answering(model, "use_agent")
        self._tools = as_tools(tools, "use_agent")
        self._options = options
        self._composer = ctx.turn.app.composer(self._model, options, "use_agent")
        self._recovers = options.rules.over(ctx.turn.app.rules).recovers
        # Whether it was run in this wake, to its end or not.
        self.has_run = False

    async def run(self) -> Reply:
        """Ask the model, run its tools, and return its answer; every step is recorded."""
        reply = await last_reply(self._events(streaming=False))
        self._turn.replies.append(reply)
        return reply

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Do the same as `run`, and yield the events."""
        async for event in self._events(streaming=True):
            if isinstance(event, Finished):
                self._turn.replies.append(event.reply)
            yield event

    async def end(self, ctx: Ctx) -> None:
        """Run, unless the agent has run already; the answer completes the turn."""
        if ctx is not self._ctx:
            raise InvalidInput("a handler returns the agent of its own ctx, or none")
        if not self.has_run:
            self._turn.replies.append(await last_reply(self._events(streaming=False, ends=True)))

    async def _events(self, *, streaming: bool, ends: bool = False) -> AsyncGenerator[Event, None]:
        """Load the sources; record that the run begins, and read what it shows; then run it."""
        turn, ctx, sources = self._turn, self._ctx, self._ctx.sources
        self.has_run = True
        turn.check()
        composer, tools = await self._offering()
        # Runs that an earlier attempt began go on; they show their own messages.
        resuming = turn.resuming
        loaded = [] if sources is None else await self._load_sources(sources)
        run = RecordedRun(
            turn,
            # With sources only these are shown: `ctx.relevant` may be one of them.
            composer if sources is None else replace(composer, recall=None),
            self._model,
            tools=tools,
            settings=self._options.settings,
            max_steps=self._options.max_steps,
            ends=ends,
            projection=ctx.projections,
            reads_entries=sources is not None,
        )
        begun = await run.begin(partial(self._read, composer))
        fixed_content = self._show(begun, loaded, resuming)
        async for event in run.ask(partial(self._declare, run, fixed_content), streaming=streaming):
            yield event

    def _read(self, composer: Composer) -> _Begun:
        """Read this turn's items and, without sources, the past; runs in a thread."""
        ctx, number = self._ctx, self._turn.number
        items = ctx.session.store.read(
            ctx.session.id, view="history", first_turn=number, last_turn=number
        )
        if ctx.sources is not None:
            return _Begun(items, (), ())
        room = composer.budget.remaining_input_tokens
        past = ctx.timeline_messages().newest(room, items)
        return _Begun(items, ctx.session.live(items), past)

    def _show(self, begun: _Begun, loaded: Sequence[Loaded], resuming: Collection[int]) -> _Shown:
        """Return what all windows show, with the message that woke the entity in it once."""
        ctx, sources, id = self._ctx, self._ctx.sources, self._ctx.session.id
        positions = {item.position for item in begun.items}
        woken = {item.position for item in ctx.events}
        input = TurnInput(
            tuple(ctx.session.project(ctx.events)),
            {(id, position) for position in woken},
            {(id, position) for position in positions - woken},
            ctx.projected,
        )
        rest = InputRest(())
        if sources is not None:
            input, lists = input.taken_out_of([source.messages for source in loaded])
            loaded = [
                replace(source, messages=tuple(cast("Sequence[Message]", messages)))
                for source, messages in zip(loaded, lists, strict=True)
            ]
            if self._recovers:
                counter = self._composer.counter
                rest = keep_input(self._turn, input.messages, sources, counter) or rest
        before = [
            message
            for message in ctx.session.project(begun.items, live=begun.live)
            if message.at not in woken and message.at not in resuming
        ]
        past = without(begun.past, positions)
        return _Shown(past, loaded, list(input.messages), rest, before)

    async def _load_sources(self, sources: Sources) -> list[Loaded]:
        ctx = self._ctx
        await self._turn.flush_staged()  # a source may look at the entries
        loaded = await load_sources(sources, ctx.input, ctx)
        ctx.projections.plain = any(source.plain for source in loaded)
        if self._recovers:
            keep_originals(self._turn, loaded)
        return loaded

    async def _offering(self) -> tuple[Composer, Tools]:
        """Return how windows are made, and all tools: with sources, also all tools that read cut
        parts; without sources, also the tool that reads results, if there are other tools."""
        ctx, tools = self._ctx, self._tools
        if not self._recovers or (ctx.sources is None and not tools):
            return await self._composer.offering(tools, "use_agent")
        more_tools = ctx.tools if ctx.sources is not None else (ctx.load_result,)
        return await offering(self._composer, tools, more_tools, "use_agent")

    def _declare(
        self,
        run: RecordedRun,
        fixed_content: _Shown,
        composer: Composer,
        messages: Sequence[Message],
    ) -> Slots:
        """Declare the whole timeline, of which the newest part stays, or the sources within their
        budget; then the message that woke the entity, and what the turn has done."""
        sources, trimming = self._ctx.sources, composer.history_trimming
        slots = composer.slots()
        if self._system is not None:
            slots.add("system", [self._system], tier="pinned", required=True, priority=SYSTEM)
        if sources is None:
            slots.add("timeline", fixed_content.past, priority=HISTORY, trimming=trimming)
            slots.add("input", fixed_content.woken)
            return composer.add_run(slots, (*fixed_content.before, *messages))
        self._check_budget(composer, sources, fixed_content.woken)
        pool = Pool("source_budget", sources.budget)
        declare_sources(
            slots,
            fixed_content.loaded,
            run.entries,
            pool=pool,
            trimming=sources.trimming or trimming,
            recovers=self._recovers,
        )
        slots.add(
            "input", fixed_content.woken, tier="volatile", pool=pool, marker=fixed_content.rest
        )
        return composer.add_run(slots, (*fixed_content.before, *messages), tier="volatile")

    def _check_budget(self, composer: Composer, sources: Sources, woken: Sequence[Message]) -> None:
        """Refuse a source_budget that does not fit the model, or that is smaller than the part of
        the waking message that is never cut. What the provider adds is an estimate, for which
        sources are trimmed: no turn fails for it."""
        counter = composer.counter
        fixed = composer.tokens_beside - counter.law.first[bool(composer.tools.in_prompt)]
        fixed += counter.message(self._system) if self._system is not None else 0
        whole = composer.budget.remaining_input_tokens
        if sources.budget + fixed > whole:
            raise InvalidInput(
                f"source_budget {sources.budget:,} and {fixed:,} tokens of system prompt and tools "
                f"do not fit the model's {whole:,}"
            )
        size = sum([counter.message(message) for message in woken])
        needed = min(INPUT_LEAST, size)
        if needed > sources.budget:
            slots = composer.within(sources.budget).slots()
            slots.add("input", woken)
            raise BudgetExceeded(
                needed,
                sources.budget,
                slots.render().report,
                f"source_budget is {sources.budget:,} tokens, but of the {size:,} tokens of the "
                f"message that woke {self._ctx.session.id!r} at least {needed:,} must be shown; "
                "raise source_budget.",
            )
