"""The agent of an entity: the window of each step, from sources or from the whole timeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muntin.agent.loop import MAX_STEPS, last_reply
from muntin.agent.tools import ToolLike, as_tools, tool_name
from muntin.composer import Asked, Composer
from muntin.core.budget import Budget
from muntin.core.message import Message, system
from muntin.core.planning.slot import HISTORY, RUN, SYSTEM
from muntin.core.planning.slots import Slots
from muntin.errors import InvalidInput
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.in_store import in_store
from muntin.runtime.recorded_run import recorded_run
from muntin.runtime.recovery import keep_originals, recovery_tools
from muntin.runtime.sources import Loaded, Sources, declare_sources, load_sources
from muntin.settings import check_settings
from muntin.timeline.entries import ContextEntry

if TYPE_CHECKING:
    from muntin.runtime.ctx import Ctx


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
    ) -> None:
        check_settings(settings, "use_agent")
        self._ctx = ctx
        self._turn = ctx.turn
        self._system = system(system_prompt) if system_prompt else None
        self._model = ctx.turn.app.answering(model, "use_agent")
        self._tools = as_tools(tools, "use_agent")
        self._settings = settings
        self._composer = ctx.turn.app.composer(self._model, budget=budget)
        self._max_steps = MAX_STEPS if max_steps is None else max_steps

    async def run(self) -> Reply:
        """Ask the model, run its tools, and return its answer; every step is recorded."""
        reply = await last_reply(self._events(streaming=False))
        self._turn.replies.append(reply)
        return reply

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Do what `run` does, and yield what happens."""
        async for event in self._events(streaming=True):
            if isinstance(event, Finished):
                self._turn.replies.append(event.reply)
            yield event

    async def _events(self, *, streaming: bool) -> AsyncGenerator[Event, None]:
        ctx, sources, tools = self._ctx, self._ctx.sources, self._tools
        loaded: list[Loaded] = []
        await self._turn.flush()
        if sources is not None:
            known = {tool_name(tool) for tool in tools}
            tools += tuple(t for t in recovery_tools(ctx.session) if tool_name(t) not in known)
            loaded = await load_sources(sources, ctx.input, ctx)
            await keep_originals(self._turn, loaded)
        timeline = await in_store(ctx.session, self._timeline)
        woken = ctx.session.project(ctx.events)
        asked = Asked(tuple(woken), [message.at or 0 for message in woken])
        first, last = min(asked.positions, default=0), max(asked.positions, default=0)
        past = [message for message in timeline if (message.at or 0) < first]
        # What this turn did before, in other runs, stands behind what it was asked. A run that
        # an earlier attempt has begun goes on, and tells of itself.
        resuming = self._turn.resuming
        later = [m for m in timeline if (m.at or 0) > last and m.at not in resuming]

        async def declare(composer: Composer, run: tuple[Message, ...]) -> Slots:
            since = (*later, *run)
            if sources is None:
                return self._whole(composer, past, asked, since)
            entries = await in_store(ctx.session, ctx.session.list_context)
            return self._chosen(composer, sources, loaded, entries, asked, since)

        events = recorded_run(
            self._turn,
            self._composer.offering(tools),
            declare,
            self._model,
            tools=tools,
            settings=self._settings,
            max_steps=self._max_steps,
            streaming=streaming,
        )
        async for event in events:
            yield event

    def _timeline(self) -> Sequence[Message]:
        """Read as much of the timeline as fits; with sources, only what this turn did."""
        ctx = self._ctx
        if ctx.sources is None:
            return ctx.timeline_messages().newest(self._composer.budget.remaining_input_tokens)
        read, turn = ctx.session.store.read, self._turn.number
        items = read(ctx.session.id, view="history", first_turn=turn, last_turn=turn)
        return ctx.session.project(items)

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
        """The default: the whole timeline, the newest kept."""
        slots = self._base(composer)
        slots.add("timeline", past, priority=HISTORY, trimming=composer.history_trimming)
        return composer.declared(slots.declared, asked, since, priority=RUN)

    def _chosen(
        self,
        composer: Composer,
        sources: Sources,
        loaded: Sequence[Loaded],
        entries: Sequence[ContextEntry],
        asked: Asked,
        since: Sequence[Message],
    ) -> Slots:
        """The sources within their budget; system prompt, tools and the run come on top."""
        counter = composer.counter
        fixed = counter.tools(composer.tools)
        fixed += counter.message(self._system) if self._system is not None else 0
        whole = composer.budget.remaining_input_tokens
        room = whole - sources.budget - fixed
        if room < 0:
            raise InvalidInput(
                f"source_budget {sources.budget:,} and {fixed:,} tokens of system prompt and tools "
                f"do not fit the model's {whole:,}"
            )
        run = min(room, sum(counter.message(message) for message in since))
        composer = composer.within(sources.budget + fixed + run)
        slots = self._base(composer)
        declare_sources(
            slots,
            loaded,
            "\n".join(entry.render() for entry in entries),
            before=min(asked.positions, default=2.0**53),
            trimming=sources.trimming or composer.history_trimming,
        )
        return composer.declared(
            slots.declared, asked, since, priority=RUN, tier="volatile", most=run
        )
