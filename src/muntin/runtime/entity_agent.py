"""The agent of an entity: the window of each step, from sources or from the whole timeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from muntin.agent.loop import MAX_STEPS, last_reply
from muntin.agent.tools import ToolLike, as_tools
from muntin.composer import Asked, Composer
from muntin.core.budget import Budget
from muntin.core.message import Message, system
from muntin.core.planning.slot import HISTORY, INPUT_LEAST, SYSTEM, Pool
from muntin.core.planning.slots import Slots
from muntin.errors import BudgetExceeded, InvalidInput
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.recorded_run import recorded_run
from muntin.runtime.recovery import keep_input, keep_originals, offering
from muntin.runtime.run_rules import INHERIT, NO_RULES, RunRules
from muntin.runtime.source_slots import declare_sources, without_input
from muntin.runtime.sources import Loaded, Sources, load_sources
from muntin.runtime.summaries import SummaryLike, check_summary
from muntin.settings import check_settings
from muntin.timeline.entries import ContextEntry
from muntin.timeline.markers import InputRest
from muntin.timeline.past import without

if TYPE_CHECKING:
    from muntin.runtime.ctx import Ctx


class _Read(NamedTuple):
    """The data read when a run began: the past, earlier messages of the turn, the entries."""

    past: Sequence[Message]
    done: list[Message]
    entries: Sequence[ContextEntry]


@dataclass(slots=True)
class _Known:
    """What the steps of a run show beside the run itself."""

    past: Sequence[Message]
    later: Sequence[Message]
    asked: Asked
    loaded: Sequence[Loaded]
    rest: InputRest | None
    entries: Sequence[ContextEntry]


class Agent:
    """An agent as `ctx.use_agent` declared it; `run` runs it."""

    def __init__(
        self,
        ctx: Ctx,
        system_prompt: str | None,
        model: str | Model | None,
        tools: Sequence[ToolLike],
        settings: Mapping[str, Any] | None,
        budget: Budget | int | None,
        max_steps: int | None,
        rules: RunRules = NO_RULES,
        summary: SummaryLike = INHERIT,
    ) -> None:
        check_settings(settings, "use_agent")
        own = check_summary(summary, "use_agent")
        self._ctx = ctx
        self._turn = ctx.turn
        self._system = system(system_prompt) if system_prompt else None
        self._model = ctx.turn.app.answering(model, "use_agent")
        self._tools = as_tools(tools, "use_agent")
        self._settings = settings
        app = ctx.turn.app
        self._composer = app.composer(self._model, budget=budget, rules=rules).summarising(
            own, app.summary, "use_agent"
        )
        self._recovers = rules.over(app.rules).recovers
        self._max_steps = MAX_STEPS if max_steps is None else max_steps
        self._ran = False

    @property
    def has_run(self) -> bool:
        """Say whether it was run in this wake, to its end or not."""
        return self._ran

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
        if not self._ran:
            self._turn.replies.append(await last_reply(self._events(streaming=False, ends=True)))

    async def _events(self, *, streaming: bool, ends: bool = False) -> AsyncGenerator[Event, None]:
        turn, self._ran = self._turn, True
        composer, tools = self._offering()
        turn.check()
        # A run that an earlier attempt began goes on; it shows its own messages.
        resuming = turn.resuming
        loaded = await self._load_sources()
        if self._ctx.sources is not None:
            # Only the sources are shown: `ctx.relevant` may be one of them.
            composer = replace(composer, recall=None)
        read: list[_Read] = []
        known: _Known | None = None

        def declare(composer: Composer, run: tuple[Message, ...]) -> Slots:
            nonlocal known
            known = known or self._know(read[-1], loaded, resuming)
            return self._declare(composer, known, run)

        events = recorded_run(
            turn,
            composer,
            declare,
            self._model,
            tools=tools,
            settings=self._settings,
            max_steps=self._max_steps,
            streaming=streaming,
            ends=ends,
            projection=self._ctx.projections,
            reading=lambda: read.append(self._read()),
            looking=lambda: None if known is None else self._look(known),
        )
        async for event in events:
            yield event

    async def _load_sources(self) -> list[Loaded]:
        ctx, sources = self._ctx, self._ctx.sources
        if sources is None:
            return []
        await self._turn.flush_staged()  # a source may look at the entries
        loaded = await load_sources(sources, ctx.input, ctx)
        ctx.projections.plain = any(each.plain for each in loaded)
        if self._recovers:
            keep_originals(self._turn, loaded)
        return loaded

    def _offering(self) -> tuple[Composer, tuple[ToolLike, ...]]:
        """Return how windows are made, and all tools: with sources, also all tools that read cut
        parts; without sources, also the tool that reads results, if there are other tools."""
        ctx, tools = self._ctx, self._tools
        if not self._recovers or (ctx.sources is None and not tools):
            return self._composer.offering(tools), tools
        own = ctx.tools if ctx.sources is not None else (ctx.load_result,)
        return offering(self._composer, tools, own)

    def _read(self) -> _Read:
        """Read the past as far as it fits (with sources, the entries), and this turn's messages."""
        ctx, turn = self._ctx, self._turn
        items = ctx.session.store.read(
            ctx.session.id, view="history", first_turn=turn.number, last_turn=turn.number
        )
        woken = {item.position for item in ctx.events}

        def done(live: Collection[int] = ()) -> list[Message]:
            return [m for m in ctx.session.project(items, live=live) if m.at not in woken]

        if ctx.sources is not None:
            return _Read((), done(), ctx.session.list_context())
        room = self._composer.budget.remaining_input_tokens
        whole = ctx.timeline_messages().newest(room, items)
        ours = {item.position for item in items}
        return _Read(without(whole, ours), done(ctx.session.live(items)), ())

    def _know(self, read: _Read, loaded: list[Loaded], resuming: Collection[int]) -> _Known:
        """Return what all steps show. Messages of other runs stand behind the turn's input."""
        sources, asked = self._ctx.sources, self._asked(read.done)
        later = [message for message in read.done if message.at not in resuming]
        rest: InputRest | None = None
        if sources is not None:
            loaded, asked = without_input(loaded, asked, resuming)
            rest = InputRest(())
            if self._recovers:
                rest = keep_input(self._turn, asked, sources, self._composer.counter)
        return _Known(read.past, later, asked, loaded, rest, read.entries)

    def _look(self, known: _Known) -> None:
        """Read the entries again, for the next step."""
        if self._ctx.sources is not None:
            known.entries = self._ctx.session.list_context()

    def _declare(self, composer: Composer, known: _Known, run: tuple[Message, ...]) -> Slots:
        since, sources = (*known.later, *run), self._ctx.sources
        if sources is None:
            return self._whole(composer, known.past, known.asked, since)
        return self._chosen(
            composer, sources, known.loaded, known.entries, known.asked, since, known.rest
        )

    def _asked(self, done: Sequence[Message]) -> Asked:
        ctx = self._ctx
        woken = ctx.session.project(ctx.events)
        positions = frozenset([item.position for item in ctx.events])
        projected = None if ctx.sources is None else ctx.projected
        return Asked(tuple(woken), positions, ctx.session.id, tuple(done), projected)

    def _base(self, composer: Composer) -> Slots:
        slots = composer.slots()
        if self._system is not None:
            slots.add("system", [self._system], tier="pinned", required=True, priority=SYSTEM)
        return slots

    def _whole(
        self,
        composer: Composer,
        past: Sequence[Message],
        asked: Asked,
        since: Sequence[Message],
    ) -> Slots:
        """The default: the whole timeline, of which the newest part stays."""
        slots = self._base(composer)
        slots.add("timeline", past, priority=HISTORY, trimming=composer.history_trimming)
        return composer.declared(slots.declared, asked, since)

    def _chosen(
        self,
        composer: Composer,
        sources: Sources,
        loaded: Sequence[Loaded],
        entries: Sequence[ContextEntry],
        asked: Asked,
        since: Sequence[Message],
        rest: InputRest | None,
    ) -> Slots:
        """The sources within their budget; system prompt, tools and the run come on top."""
        counter = composer.counter
        fixed = counter.beside(composer.tools)
        fixed += counter.message(self._system) if self._system is not None else 0
        whole = composer.budget.remaining_input_tokens
        if sources.budget + fixed > whole:
            raise InvalidInput(
                f"source_budget {sources.budget:,} and {fixed:,} tokens of system prompt and tools "
                f"do not fit the model's {whole:,}"
            )
        self._check_wake(composer, sources, asked)
        slots = self._base(composer)
        pool = Pool("source_budget", sources.budget)
        trimming = sources.trimming or composer.history_trimming
        declare_sources(
            slots, loaded, entries, pool=pool, trimming=trimming, recovers=self._recovers
        )
        return composer.declared(
            slots.declared, asked, since, tier="volatile", pool=pool, marker=rest
        )

    def _check_wake(self, composer: Composer, sources: Sources, asked: Asked) -> None:
        """Refuse a source_budget smaller than the part of the waking message that is never cut."""
        size = sum([composer.counter.message(message) for message in asked.messages])
        needed = min(INPUT_LEAST, size)
        if needed > sources.budget:
            report = composer.within(sources.budget).declared((), asked).render().report
            raise BudgetExceeded(
                needed,
                sources.budget,
                report,
                f"source_budget is {sources.budget:,} tokens, but of the {size:,} tokens of the "
                f"message that woke {self._ctx.session.id!r} at least {needed:,} must be shown; "
                "raise source_budget.",
            )
