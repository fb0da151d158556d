"""ctx: the one object that strategies, handlers, resolvers and generators are given.

Each interface fills in its parts; asking for another part is an error that names its interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from muntin.agent.toolbox import ToolSearchLike
from muntin.agent.tools import ToolLike
from muntin.calls import TIMEOUT
from muntin.composer import HIDDEN
from muntin.core.budget import Budget
from muntin.core.caching.frontier import Frontier
from muntin.core.checks import check_optional_text
from muntin.core.message import Input, Message
from muntin.core.planning.slot import Trimming
from muntin.core.planning.slots import Slots
from muntin.core.window import Window
from muntin.errors import MuntinError
from muntin.runtime.run_rules import (
    INHERIT,
    CallOptions,
    LadderLike,
    RecoveryLike,
    ResultsLike,
    RunRules,
    SummaryLike,
)
from muntin.runtime.sources import Sources, check_sources
from muntin.threads import aside
from muntin.timeline.entries import ContextEntry, entry_of, inserted, removed
from muntin.timeline.items import Draft, Item, unshared
from muntin.timeline.past import PastHistory, Read, TimelineMessages, WindowStart
from muntin.timeline.project import Projection, Projections
from muntin.timeline.recall.excerpts import Recalled
from muntin.timeline.recall.settings import MOST_TOKENS, RecallLike, StandingLike
from muntin.timeline.recall.stored import before_turn, recall
from muntin.timeline.session import Session

if TYPE_CHECKING:
    from muntin.runtime.entity_agent import Agent
    from muntin.runtime.turn import ActiveTurn

_INTERFACES = {
    "slots": "strategies (app.conversation)",
    "wake": "entities (@app.entity)",
    "events": "entities (@app.entity)",
    "agent": "entities (@app.entity), after ctx.use_agent(...)",
    "cap": "generators with capabilities (uses=[...])",
    "message": "strategies and entities",
    "budget": "strategies, and to entities of an App(..., model=...)",
}


@dataclass(frozen=True, slots=True)
class Wake:
    """Why a handler runs: the items that came since it last ran.

    `payload` and `source` are of the newest item; `ctx.events` has all `count` items.
    """

    type: str
    source: str | None
    payload: Any
    from_position: int
    to_position: int
    count: int


class Ctx:
    """What a turn knows and may do."""

    def __init__(
        self,
        turn: ActiveTurn,
        *,
        where: str,
        input: Any = None,
        message: Input | None = None,
        budget: Budget | None = None,
        slots: Slots | None = None,
        wake: Wake | None = None,
        events: Sequence[Item] = (),
        cap: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self.turn = turn
        # The session of this turn, with its items.
        self.session: Session = turn.session
        self._where = where
        self.input = input
        # The parts that this interface has; the others are no attributes, see `_INTERFACES`.
        for name, value in (("message", message), ("budget", budget), ("slots", slots)):
            if value is not None:
                self.give(**{name: value})
        if wake is not None:
            self.give(wake=wake, events=tuple(events))
        if cap is not None:
            self.give(cap=SimpleNamespace(**cap))
        self.sources: Sources | None = None
        # How many seconds a function of this interface may take.
        self.timeout = timeout
        # Whether the history or the entries were read.
        self.looked = False
        self._history: PastHistory | None = None
        self._ahead: Read | None = None
        # The items that woke the turn, and the projections that its code gave.
        self._question: Sequence[Item] = tuple(events)
        self._positions = {turn.first, *[item.position for item in events]}
        self.projections = Projections(self._positions)

    def __getattr__(self, name: str) -> Any:
        if name in _INTERFACES:
            raise self._elsewhere(name, _INTERFACES[name])
        raise AttributeError(f"ctx has no {name!r}")

    def __repr__(self) -> str:
        return f"<ctx of {self._where}, turn {self.turn.number} of {self.session.id!r}>"

    @property
    def history(self) -> PastHistory:
        """The whole conversation before the current turn, read as far as it is needed."""
        self.looked = True
        if self._history is None:
            self._history = PastHistory(self.session, self.turn.number)
        return self._history

    def load(
        self,
        begun: list[Item] | None = None,
        *,
        timeline: int | None = None,
        history: bool = True,
    ) -> None:
        """Read, in a thread, what code on the event loop may need: the newest part of the history,
        the entries, and the newest `timeline` tokens of the timeline.

        `begun` are all items of the turn and of later turns, if they are known.
        """
        first = self.turn.first
        self._positions.add(first)
        if timeline is not None:
            past = TimelineMessages(self.session, self.turn.number, begins=self._begins)
            self._ahead = past.read_newest(timeline, begun)
            question = [item for item in self._ahead.items if item.position == first]
            self._question = [unshared(item) for item in question]
        if history:
            self.turn.entries.load()
            self._history = PastHistory(self.session, self.turn.number)
            self._history.read_page()

    def give(self, **parts: Any) -> None:
        """Add attributes for the turn's code."""
        self.__dict__.update(parts)

    def get(self, name: str) -> Any:
        """Return the attribute of a name, or None."""
        return self.__dict__.get(name)

    @property
    def tools(self) -> tuple[ToolLike, ...]:
        """The built-in tools: they read what the window does not show."""
        from muntin.runtime.recovery import Reader

        turn = self.turn.number
        reader = Reader(self.session, self.projections, lambda: self.sources, turn)
        return (reader.search_history, *reader.tools)

    @property
    def load_result(self) -> ToolLike:
        """The built-in tool that reads tool results that were cut."""
        return self.tools[-1]

    def relevant(
        self, query: str | None = None, *, tokens: int | None = None, limit: int | None = None
    ) -> Recalled:
        """Return the parts of the timeline before this turn that bear on a question, as one text.

        Without a `query`, the turn's input is the question. It may be a source:
        `Source(ctx.relevant, max=1_500)` has at most 1,500 tokens, and leaves out what a timeline
        among the sources shows anyway.
        """
        return aside(lambda: self._relevant(query, tokens, limit))

    def _relevant(self, query: str | None, tokens: int | None, limit: int | None) -> Recalled:
        session = self.session
        scope = before_turn(session, self.turn.number, self.projections or None)
        most, sources = MOST_TOKENS, self.sources
        budget, by_name = (sources.budget, sources.by_name) if sources is not None else (0, {})
        for source in by_name.values():
            if isinstance(source.content, TimelineMessages):
                weight = source.max or budget
                for item in session.store.read(session.id, weight=weight, oldest=1):
                    scope = replace(scope, before=item.position)
            elif source.content == self.relevant:
                most = source.max or most
        if query is None:
            text = self.get("message")
            messages = session.project(self._question) or ([] if text is None else [text])
            query = "\n".join(message.text for message in messages)
        return recall(session, query, tokens or most, limit=limit, scope=scope)

    def projected(self) -> list[Message] | None:
        """Return the turn's input as its projections show it; None if there are none."""
        if not self.projections:
            return None
        visible: list[Message] = []
        for item in self._question:
            messages = self.session.project([item], self.projections)
            hidden = Message(
                "user", HIDDEN, at=item.position, item=(self.session.id, item.position)
            )
            visible += messages or [hidden]
        return visible

    def timeline_messages(
        self, *, since: int | None = None, projection: Projection | None = None
    ) -> TimelineMessages:
        """Return the timeline as messages; it is read when it is needed.

        `since` begins after a position. `projection` is asked once for each item: a list replaces
        the default, [] hides the item, None means the default. It also applies to the turn's input
        and to the tools that read the timeline. Async code that needs the whole list reads it by
        `await ctx.timeline_messages().load()`.
        """
        if projection is not None:
            projection = self.projections.add(projection)
        return TimelineMessages(
            self.session,
            self.turn.number,
            since,
            projection,
            entries=self.sources is None,
            ahead=self._ahead,
            begins=self._begins,
        )

    def _begins(self) -> WindowStart | None:
        """Return where the window before begins on the timeline: all that it shows, even as one
        line, the next window shows too."""
        before = self.turn.receipts.load("window")
        before_starts = before.lazy_frontier.starts if isinstance(before, Window) else ()
        starts = before.starts if isinstance(before, Frontier) else before_starts
        frontier = before.lazy_frontier if isinstance(before, Window) else before
        places = [
            WindowStart(int(start.at), start.item)
            for start in starts
            if start.at is not None and start.item is not None
        ]
        if frontier is not None and frontier.summary is not None:
            places.append(WindowStart(*frontier.summary))
        return min(places, default=None)

    # Context entries: visible at once, durable at the latest before the next step. Code on the
    # event loop may await them; a write in a thread is durable when it returns.

    def insert_context(
        self, id: str, *, name: str, content: str, attrs: Mapping[str, Any] | None = None
    ) -> ContextEntry:
        """Insert a context entry, or replace the one with this id.

        `attrs` are shown as attributes of its tag: numbers and booleans become texts. In async
        code `await ctx.insert_context(...)` returns when the entry is durable.
        """
        draft = inserted(id, name, content, attrs)
        item = self._append(draft)
        if item is not None:
            entry = entry_of(item)
        else:
            entry = ContextEntry(**draft.payload, written=lambda: self._written(id))
            # Where the entry is expected, which is not written yet.
            newest = self._ahead.items[-1].position if self._ahead and self._ahead.items else 0
            position = max(newest, self.turn.first) + 1
            item = Item(position, draft.kind, self.turn.number, payload=draft.payload)
        self.turn.entries.put(id, entry)
        if self._ahead is not None:
            self._ahead = self._ahead.with_entry(item)
        return entry

    def remove_context(self, id: str) -> None:
        """Remove a context entry; an unknown id does nothing."""
        self.turn.check()
        if self.get_context(id) is None:
            return
        self._append(removed(id))
        self.turn.entries.put(id, None)
        if self._ahead is not None:
            self._ahead = self._ahead.without_entry(id)

    def _append(self, draft: Draft) -> Item | None:
        """Append to the turn at once if that cannot block an event loop, else with the next."""
        if self.session.store.database.in_memory or not _on_loop():
            return self.turn.append_now(draft)
        self.turn.stage(draft)
        return None

    async def _written(self, id: str) -> ContextEntry:
        entry, _ = await self.turn.flush(lambda: self.session.get_context(id))
        if entry is None:
            raise MuntinError(f"the context entry {id!r} was removed before it was written")
        self.turn.entries.note(entry)
        return entry

    def get_context(self, id: str) -> ContextEntry | None:
        """Return the live context entry with this id, or None."""
        return next((entry for entry in self.list_context() if entry.id == id), None)

    def list_context(self) -> list[ContextEntry]:
        """Return the live context entries in the order in which they were inserted."""
        self.looked = True
        return self.turn.entries.all()

    # Entities.

    def use_context(
        self,
        *,
        source_budget: int,
        sources: Mapping[str, Any],
        trimming: Trimming | None = None,
    ) -> None:
        """Set the sources of the window; calling again replaces them.

        `trimming` applies to timelines among the sources.
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
        results: ResultsLike = INHERIT,
        ladder: LadderLike = INHERIT,
        recovery: RecoveryLike = INHERIT,
        recall: RecallLike = INHERIT,
        standing: StandingLike = INHERIT,
        summary: SummaryLike = INHERIT,
        tool_search: ToolSearchLike = INHERIT,
    ) -> Agent:
        """Set the agent that `ctx.agent.run()` runs; calling again replaces it.

        `results`, `ladder`, `recovery`, `recall`, `standing`, `summary` and `tool_search` are the
        app's if they are not given; False or None is off. With `use_context`, only
        `ctx.relevant` recalls.
        """
        from muntin.runtime.entity_agent import Agent

        self._need_wake("use_agent")
        check_optional_text(system_prompt, "use_agent: system_prompt")
        options = CallOptions.of(
            "use_agent",
            RunRules.of(
                "use_agent", results, ladder, recovery, recall, summary, tool_search, standing
            ),
            settings=settings,
            budget=budget,
            max_steps=max_steps,
        )
        agent = Agent(self, system_prompt, model, tools, options)
        self.give(agent=agent)
        return agent

    def _need_wake(self, name: str) -> None:
        if "wake" not in self.__dict__:
            raise self._elsewhere(name, _INTERFACES["wake"])

    def _elsewhere(self, name: str, interface: str) -> MuntinError:
        return MuntinError(f"ctx.{name} is not here, in {self._where}; it belongs to {interface}")

    async def run(self, generator: Any, input: Any = None) -> Any:
        """Run a generator inside of this turn, and return its reply."""
        return await generator.run_in(self.turn, input)


def _on_loop() -> bool:
    """Say whether this code runs on an event loop, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
