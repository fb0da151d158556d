"""ctx: the one object that strategies, handlers, resolvers and generators are given.

Each door fills in what it has; asking for anything else is an error that says which door has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from muntin.agent.tools import ToolLike
from muntin.core.budget import Budget
from muntin.core.message import Input
from muntin.core.planning.slot import Trimming
from muntin.core.planning.slots import Slots
from muntin.errors import MuntinError
from muntin.runtime.sources import Sources, check_sources
from muntin.timeline.entries import ContextEntry, entry_of, inserted, removed
from muntin.timeline.history import History
from muntin.timeline.items import Draft, Item
from muntin.timeline.past import TimelineMessages
from muntin.timeline.project import Projection
from muntin.timeline.session import Session

if TYPE_CHECKING:
    from muntin.runtime.entity_agent import Agent
    from muntin.runtime.recorded_run import Work
    from muntin.runtime.wakes import Wake

_DOORS = {
    "slots": "strategies (app.conversation)",
    "wake": "entities (@app.entity)",
    "events": "entities (@app.entity)",
    "agent": "entities (@app.entity), after ctx.use_agent(...)",
    "cap": "generators with capabilities (uses=[...])",
    "message": "strategies and entities",
    "budget": "strategies, and to entities of an App(..., model=...)",
}


class Ctx:
    """What a turn knows and may do."""

    def __init__(
        self,
        work: Work,
        *,
        door: str,
        input: Any = None,
        message: Input | None = None,
        budget: Budget | None = None,
        slots: Slots | None = None,
        wake: Wake | None = None,
        events: Sequence[Item] = (),
        cap: Mapping[str, Any] | None = None,
    ) -> None:
        self._work = work
        self._door = door
        self.input = input
        # What this door has of the rest; see `_DOORS`.
        given = {"message": message, "budget": budget, "slots": slots}
        self._has: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        if wake is not None:
            self._has.update(wake=wake, events=tuple(events))
        if cap is not None:
            self._has["cap"] = SimpleNamespace(**cap)
        self.sources: Sources | None = None
        self._history: History | None = None

    def __getattr__(self, name: str) -> Any:
        has = self.__dict__.get("_has", {})
        if name in has:
            return has[name]
        if name in _DOORS:
            raise self._elsewhere(name, _DOORS[name])
        raise AttributeError(f"ctx has no {name!r}")

    def __repr__(self) -> str:
        return f"<ctx of {self._door}, turn {self._work.turn} of {self.session.id!r}>"

    @property
    def session(self) -> Session:
        """The session of this turn, with its items."""
        return self._work.session

    @property
    def history(self) -> History:
        """The conversation before the current turn."""
        if self._history is None:
            items = [i for i in self.session.items.history() if i.turn < self._work.turn]
            messages = self.session._project(items, None, entries=False)
            self._history = History(messages, tokenizer=self.session.counter.tokenizer)
        return self._history

    @property
    def tools(self) -> tuple[ToolLike, ...]:
        """The built-in tools: reading what the window does not show."""
        from muntin.runtime.recovery import recovery_tools

        return recovery_tools(self.session)

    def timeline_messages(
        self, *, since: int | None = None, projection: Projection | None = None
    ) -> TimelineMessages:
        """Return the timeline as messages; it is read when it is looked at."""
        return TimelineMessages(
            self.session, self._work.turn, since, projection, entries=self.sources is None
        )

    # Context entries: written at once, so that they are there in this turn and durable.

    def insert_context(
        self, id: str, *, name: str, content: str, attrs: Mapping[str, Any] | None = None
    ) -> ContextEntry:
        """Insert a context entry, or replace the one with this id.

        `attrs` are shown as attributes of its tag: numbers and booleans become texts.
        """
        return entry_of(self._append(inserted(id, name, content, attrs)))

    def remove_context(self, id: str) -> None:
        """Remove a context entry; an unknown id does nothing."""
        if self.get_context(id) is not None:
            self._append(removed(id))

    def get_context(self, id: str) -> ContextEntry | None:
        """Return the live context entry with this id, or None."""
        return self.session.get_context(id)

    def list_context(self) -> list[ContextEntry]:
        """Return the live context entries in the order in which they were inserted."""
        return self.session.list_context()

    def _append(self, draft: Draft) -> Item:
        return self._work.append_now(draft)

    # Entities.

    def use_context(
        self,
        *,
        source_budget: int,
        sources: Mapping[str, Any],
        trimming: Trimming | None = None,
    ) -> None:
        """Say which sources make up the window; calling again replaces them.

        `trimming` is that of timelines among the sources.
        """
        self._need_wake("use_context")
        self.sources = replace(check_sources(source_budget, sources), trimming=trimming)

    def use_agent(
        self,
        *,
        system_prompt: str | None = None,
        model: Any = None,
        tools: Sequence[ToolLike] = (),
        settings: Mapping[str, Any] | None = None,
        budget: Budget | int | None = None,
        max_steps: int | None = None,
    ) -> Agent:
        """Say which agent `ctx.agent.run()` runs; calling again replaces it."""
        from muntin.runtime.entity_agent import Agent

        self._need_wake("use_agent")
        agent = Agent(self, system_prompt, model, tools, settings, budget, max_steps)
        self._has["agent"] = agent
        return agent

    def _need_wake(self, name: str) -> None:
        if "wake" not in self._has:
            raise self._elsewhere(name, _DOORS["wake"])

    def _elsewhere(self, name: str, door: str) -> MuntinError:
        return MuntinError(f"ctx.{name} is not here, in {self._door}; it belongs to {door}")

    async def run(self, generator: Any, input: Any = None) -> Any:
        """Run a generator inside of this turn, and return its reply."""
        return await generator.run_in(self._work, input)
