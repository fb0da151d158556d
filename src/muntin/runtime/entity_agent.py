"""The agent of an entity: the window of each step, from sources or from the whole timeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from muntin.agent.loop import MAX_STEPS, last_reply
from muntin.agent.tools import ToolLike, as_tools, tool_name, tool_schema
from muntin.core.budget import Budget
from muntin.core.message import Message, system
from muntin.core.planning.slot import Trimming
from muntin.core.planning.slots import Slots
from muntin.errors import InvalidInput
from muntin.providers.model import Event, Finished, Model, Reply
from muntin.runtime.recorded_run import in_store
from muntin.runtime.recovery import keep_originals, recovery_tools
from muntin.runtime.sources import Loaded, Sources, declare, load_sources
from muntin.runtime.window import budget_for, model_for, profile_for, trimming_for
from muntin.settings import check_settings

if TYPE_CHECKING:
    from muntin.runtime.ctx import Ctx


Schema: TypeAlias = Mapping[str, Any]


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
        self._system = system(system_prompt) if system_prompt else None
        self._model = model_for(ctx._work.app, model, "use_agent")
        self._tools = as_tools(tools, "use_agent")
        self._settings = settings
        self._budget = budget_for(ctx._work.app, self._model, budget)
        self._max_steps = MAX_STEPS if max_steps is None else max_steps

    async def run(self) -> Reply:
        """Ask the model, run its tools, and return its answer; every step is recorded."""
        reply = await last_reply(self._events(streaming=False))
        self._ctx._work.replies.append(reply)
        return reply

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Do what `run` does, and yield what happens."""
        async for event in self._events(streaming=True):
            if isinstance(event, Finished):
                self._ctx._work.replies.append(event.reply)
            yield event

    async def _events(self, *, streaming: bool) -> AsyncGenerator[Event, None]:
        ctx = self._ctx
        tools = self._tools
        if ctx.sources is not None:
            known = {tool_name(tool) for tool in tools}
            tools += tuple(t for t in recovery_tools(ctx.session) if tool_name(t) not in known)
        loaded: list[Loaded] | None = None
        if ctx.sources is not None:
            loaded = await load_sources(ctx.sources, ctx.input, ctx)
            await keep_originals(ctx._work, loaded)
        timeline = await in_store(ctx.session, self._timeline)
        asked = self._asked()
        last_at = max((message.at or 0 for message in asked), default=0)
        # What this turn did before, in other runs, stands behind what it was asked.
        # A run that an earlier attempt has begun goes on, and tells of itself.
        begun = ctx._work.begun
        later = tuple(
            m for m in timeline if m.at is not None and m.at > last_at and m.at not in begun
        )

        schemas = [tool_schema(tool) for tool in tools]

        def compose(run: tuple[Message, ...]) -> Slots:
            since = (*later, *run)
            if loaded is None or ctx.sources is None:
                return self._whole(timeline, asked, since, schemas)
            return self._chosen(ctx.sources, loaded, asked, since, schemas)

        events = ctx._work.events(
            compose,
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
            return ctx.timeline_messages().newest(self._budget.remaining_input_tokens)
        read, turn = ctx.session.store.read, ctx._work.turn
        items = read(ctx.session.id, view="history", first_turn=turn, last_turn=turn)
        return ctx.session._project(items, None, entries=False)

    def _asked(self) -> list[Message]:
        """Return the messages that woke the entity."""
        return self._ctx.session._project(self._ctx.events, None, entries=False)

    def _slots(self, budget: Budget | int, tools: Sequence[Schema]) -> Slots:
        slots = Slots(
            budget,
            tokenizer=self._ctx.session.counter.tokenizer,
            tools=tools,
            profile=profile_for(self._model),
        )
        if self._system is not None:
            slots.add("system", [self._system], tier="pinned", required=True, priority=9)
        return slots

    def _trimming(self, given: Trimming | None) -> Trimming:
        return trimming_for(self._ctx._work.app, given, profile_for(self._model))

    def _whole(
        self,
        timeline: Sequence[Message],
        asked: Sequence[Message],
        since: Sequence[Message],
        tools: Sequence[Schema],
    ) -> Slots:
        """The default: the whole timeline, the newest kept."""
        before = min((message.at or 0 for message in asked), default=float("inf"))
        slots = self._slots(self._budget, tools)
        past = [message for message in timeline if (message.at or 0) < before]
        slots.add("timeline", past, priority=1, trimming=self._trimming(None))
        slots.add("input", list(asked), priority=8)
        slots.add("run", list(since), priority=7)
        return slots

    def _chosen(
        self,
        sources: Sources,
        loaded: Sequence[Loaded],
        asked: Sequence[Message],
        since: Sequence[Message],
        tools: Sequence[Schema],
    ) -> Slots:
        """The sources within their budget; system prompt, tools and the run come on top."""
        counter = self._ctx.session.counter
        fixed = counter.tools(tools)
        fixed += counter.message(self._system) if self._system is not None else 0
        room = self._budget.remaining_input_tokens - sources.budget - fixed
        if room < 0:
            raise InvalidInput(
                f"source_budget {sources.budget:,} and {fixed:,} tokens of system prompt and tools "
                f"do not fit the model's {self._budget.remaining_input_tokens:,}"
            )
        run = min(room, sum(counter.message(message) for message in since))
        slots = self._slots(sources.budget + fixed + run, tools)
        before = min((message.at or 0 for message in asked), default=2.0**53)
        entries = "\n".join(entry.render() for entry in self._ctx.list_context())
        trimming = self._trimming(sources.trimming)
        declare(slots, loaded, entries, before=before, trimming=trimming)
        slots.add("input", list(asked), tier="volatile", priority=8)
        slots.add("run", list(since), tier="volatile", priority=7, max_tokens=run)
        return slots
