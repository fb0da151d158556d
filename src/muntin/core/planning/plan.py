"""The plan: all decisions about one window, as a value.

Owns what a plan says of itself: window and report are made from it, it can be compared, pickled
and asked for the same window at another budget. Other modules take the decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from muntin.core.budget import Budget, as_budget
from muntin.core.caching.breakpoints import place_breakpoints
from muntin.core.caching.cleared import ClearedText, put_back
from muntin.core.caching.frontier import Frontier, LazyFrontier, texts_after_conversation
from muntin.core.caching.prefix import track
from muntin.core.caching.wire_order import as_sent
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.planning.ceilings import NO_CEILING, Ceiling, keep_to_limits
from muntin.core.planning.draft import SlotPlan
from muntin.core.planning.explain import explain_messages, explain_slots, note_row, originals
from muntin.core.planning.memory import ConversationState
from muntin.core.planning.render import Rendered, find_last_lowered, render
from muntin.core.planning.slot import Recap, Slot
from muntin.core.profile import Caching, Profile
from muntin.core.report import Counts, Prefix, Report, SlotReport, ToolOutcome, joined_tools
from muntin.core.schemas import NO_SCHEMAS, Schemas
from muntin.core.thoughts import count_thoughts
from muntin.core.toolboxes.finding import WindowSearch
from muntin.core.toolboxes.offer import ToolOffer
from muntin.core.toolboxes.outcomes import tool_outcomes
from muntin.core.window import Breakpoint, MessageOutcome, Window

# No budget is larger.
_LARGEST = 1 << 40


@dataclass(frozen=True, slots=True)
class Declaration:
    """All that was declared for one window.

    `before` is what the window before left, `recap` the newest summary of the conversation. With
    `is_bound` a thought is sent only if all that stood before it is.
    """

    slots: tuple[Slot, ...]
    budget: Budget
    counter: Counter = field(compare=False)
    tools: Schemas = NO_SCHEMAS
    profile: Profile | None = None
    before: LazyFrontier | Frontier | None = None
    recap: Recap | None = None
    is_bound: bool = False

    @property
    def proves(self) -> bool:
        """Whether the next window must know all that this one sends."""
        return self.is_bound or (self.profile is not None and self.profile.clear_at)

    @property
    def has_tools(self) -> bool:
        """Whether the prompt has tools."""
        return bool(self.tools.in_prompt)


@dataclass(frozen=True)
class Plan:
    """What was decided about every slot, in window order, and about the window.

    `starts` are what conversations remember for the next window. `counted` are the tokens counted
    here of everything that is sent. `lead` are the tokens of a user
    message that the provider wants first, `answer` the tokens that frame the answer; `joined` is
    what joining texts adds to the sum of their parts. `moved_from` is the plan that would have gone
    on with the thoughts that this one leaves out. `cleared` are texts for earlier
    turns. Declared lists are not copied: `at` reads them as they are when it is called.
    """

    declared: Declaration
    slots: tuple[SlotPlan, ...]
    starts: tuple[ConversationState, ...]
    counted: int
    lead: int
    tools: int
    answer: int
    joined: int
    fallback: bool
    moved_from: Plan | None = None
    cleared: tuple[ClearedText, ...] = ()

    @property
    def tokens(self) -> int:
        """The expected input of the request, by the provider's count."""
        counted = self.counted - self._ceiling.tokens
        return self.declared.counter.law.estimate(counted, self.declared.has_tools)

    def window(self) -> Window:
        """Compose the window."""
        rendered, frontier, breakpoints = self._composed
        return Window(
            messages=tuple(rendered.messages),
            tools=self.declared.tools and self.declared.tools.copied(),
            tokens=self.tokens,
            over_budget=self.over_budget,
            input_cut=self.input_cut,
            origins=tuple(rendered.origins),
            breakpoints=breakpoints,
            explained=self,
            lazy_frontier=frontier,
        )

    def at(self, budget: Budget | int) -> Plan:
        """Return the plan of the same slots at another budget."""
        from muntin.core.planning.planner import plan_window

        return plan_window(replace(self.declared, budget=as_budget(budget)))

    def fits_with(self, name: str, message: int = 0) -> int | None:
        """Return how many more tokens of budget would show a message of a slot whole: 0 if it is
        whole, None if no budget would. Found by planning again, so the number is exact."""
        have = self.declared.budget.remaining_input_tokens
        index = self.report()[name].index

        def is_whole(more: int) -> bool:
            plan = self if not more else self.at(have + more)
            parts = [part for part in plan.slots if part.slot.index == index]
            return any(part.is_whole(message - part.offset) for part in parts)

        low, high = -1, 0
        while not is_whole(high):
            low, high = high, max(256, 2 * high)
            if high > _LARGEST:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_whole(middle) else (middle, high)
        return high

    def report(self, *, as_stored: bool = False) -> Report:
        """Tell where every token went and why something is missing; on request, as it is stored."""
        return self._make_report(in_ranges=True) if as_stored else self._report

    def fates(self) -> tuple[MessageOutcome, ...]:
        """Tell what became of every declared message, slot by slot."""
        return explain_messages(self.slots)

    @property
    def tool_search(self) -> WindowSearch | None:
        """The search for the tools of toolboxes, if they are searched."""
        tools = self.declared.tools
        if not isinstance(tools, ToolOffer) or not tools.is_search:
            return None
        return WindowSearch(tools, self._composed[0].messages, self.declared.counter)

    @property
    def caching(self) -> Caching | None:
        """The rules of caching that the model has."""
        profile = self.declared.profile
        return profile.caching if profile is not None else None

    @property
    def frontier(self) -> LazyFrontier:
        """What the next window must know."""
        return self._composed[1]

    @property
    def is_followed(self) -> bool:
        """Whether the next window depends on this one, or is compared with it."""
        return (
            self.caching is not None
            or self.declared.proves
            or any(slot.place.tier is not None or slot.is_stepped for slot in self.declared.slots)
        )

    @property
    def over_budget(self) -> bool:
        """Whether the window is larger than its budget, or has none."""
        available = self.declared.budget.remaining_input_tokens
        if self._ceiling.over is not None:
            return True
        if available:
            law = self.declared.counter.law
            return self.counted > law.room(available, self.declared.has_tools)
        return any(part.reading.units or part.reading.beyond for part in self.slots) or (
            self.counted > 0
        )

    @property
    def input_cut(self) -> bool:
        """Whether the current input lost its middle."""
        return any(plan.is_cut for plan in self.slots if plan.slot.kind == "input")

    @property
    def _sent_before(self) -> LazyFrontier | Frontier | None:
        """The frontier of the request before, None if it tells only where histories began."""
        before = self.declared.before
        return None if isinstance(before, Frontier) and before.is_bare else before

    @cached_property
    def _composed(self) -> tuple[Rendered, LazyFrontier, tuple[Breakpoint, ...]]:
        rendered = self._rendered
        frontier, breakpoints = place_breakpoints(
            rendered,
            self.declared.profile,
            self._sent_before,
            starts=self.starts,
            moved=frozenset(plan.slot.name for plan in self.slots if plan.has_moved),
            behind=texts_after_conversation([plan.slot for plan in self.slots]),
            tools=self.declared.tools.in_prompt,
            tokens=self.counted - self._ceiling.tokens,
            counter=self.declared.counter,
            lowered=find_last_lowered(self.slots),
            proves=self.declared.proves,
        )
        return rendered, frontier, breakpoints

    @cached_property
    def _rendered(self) -> Rendered:
        rendered, replaced = self._kept, self._ceiling.replaced
        for index, message in replaced.items():
            rendered.messages[index] = message
        for index, message in reversed(self._put_back(rendered)):
            rendered.messages.insert(index, message)
            rendered.origins.insert(index, None)
            rendered.slots.insert(index, rendered.slots[index])
        return rendered

    @cached_property
    def _kept(self) -> Rendered:
        return render(self.slots)

    @cached_property
    def _ceiling(self) -> Ceiling:
        """What the provider's limits make of the messages."""
        profile, kept = self.declared.profile, self._kept
        if profile is None or profile.limits is None:
            return NO_CEILING
        return keep_to_limits(kept.messages, kept.slots, profile.limits, self.declared.counter)

    def _put_back(self, rendered: Rendered) -> list[tuple[int, Message]]:
        """Return the texts for earlier turns, each with its index in the window."""
        if not self.cleared:
            return []
        return put_back(as_sent(rendered.messages, self.declared.profile), self.cleared)

    @cached_property
    def _report(self) -> Report:
        return self._make_report(in_ranges=False)

    def _make_report(self, *, in_ranges: bool) -> Report:
        return Report(
            slots=explain_slots(self.slots, in_ranges=in_ranges) + self._thoughts_row,
            counts=Counts(
                self.counted - self._ceiling.tokens, self.tokens, over_limit=self._ceiling.over
            ),
            budget=self.declared.budget.remaining_input_tokens,
            fallback=self.fallback,
            over_budget=self.over_budget,
            input_cut=self.input_cut,
            tools_tokens=self.tools,
            joined_tokens=self.joined,
            lead_tokens=self.lead,
            answer_tokens=self.answer,
            tokenizer=self.declared.counter.name,
            prefix=self._prefix,
            warnings=tuple(self._warnings()),
            tools=tuple(self._tool_outcomes(is_stored=in_ranges)),
        )

    def _tool_outcomes(self, *, is_stored: bool) -> Iterable[ToolOutcome]:
        tools = self.declared.tools
        if not isinstance(tools, ToolOffer):
            return ()
        outcomes = tool_outcomes(tools, self._composed[0].messages)
        return joined_tools(outcomes) if is_stored else outcomes

    @cached_property
    def _prefix(self) -> Prefix | None:
        caching, before = self.caching, self.declared.before
        if caching is None and before is None and not self.starts:
            return None
        _, frontier, _ = self._composed
        return track(
            frontier,
            self._sent_before,
            self.slots,
            tokens=self.tokens,
            caching=caching,
            moved_from=None if self.moved_from is None else self.moved_from.frontier,
        )

    @property
    def _thoughts_row(self) -> tuple[SlotReport, ...]:
        """The row about thoughts that this window leaves out because they are bound."""
        if not self.declared.is_bound:
            return ()
        if self.moved_from is not None:
            count = sum(map(count_thoughts, self.moved_from.frontier.messages))
            why = f"{count:,} left at this move (bound to what stood before)"
        elif self.declared.before is None or self.declared.before.sent is None:
            count = sum([count_thoughts(message) for message in originals(self.slots)])
            why = f"{count:,} not sent: it is not known what stood before them when they were made"
        else:
            return ()
        return (note_row("thoughts", len(self.declared.slots), "bound", why),) if count else ()

    def _warnings(self) -> Iterator[str]:
        """Yield what the author may want to change."""
        if self._ceiling.detail is not None:
            yield self._ceiling.detail
        for plan in self.slots:
            slot = plan.slot
            is_one = slot.kind == "text" and plan.reading.units and not plan.view.forms
            if is_one and slot.trim.behavior == "message" and plan.limits.cap == plan.room:
                yield (
                    f"slot {slot.name!r} is larger than its ceiling of {plan.limits.cap:,} tokens "
                    'and was dropped; trim_behavior="char" cuts it instead'
                )
        if self.caching is None:
            return
        changing = next((p.slot for p in self.slots if p.slot.place.changes and p.view.forms), None)
        if changing is None:
            return
        behind = self.slots[[plan.slot for plan in self.slots].index(changing) :]
        stable_parts = [p for p in behind if p.slot.kind not in ("input", "run") and p.view.forms]
        if any(p.slot.place.lasting and not p.slot.place.changes for p in stable_parts):
            yield (
                f"slot {changing.name!r} changes from request to request and stands before content "
                "that could be cached; move it behind the history if you can"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the decisions are pickled; the rest is made again from them.
        return type(self), tuple(getattr(self, spec.name) for spec in fields(self))
