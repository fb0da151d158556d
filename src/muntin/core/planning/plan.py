"""The plan: all decisions about one window, as a value.

Owns what a plan says of itself: window and report are made from it, it can be compared, pickled
and asked for the same window at another budget. Other modules take the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from muntin.core.budget import Budget, as_budget
from muntin.core.counting.counter import Counter
from muntin.core.planning.breakpoints import place_breakpoints
from muntin.core.planning.composed import Breakpoint, Fate
from muntin.core.planning.explain import tell_fates, tell_slots
from muntin.core.planning.frontier import Frontier, LazyFrontier, behind_talk
from muntin.core.planning.prefix import track
from muntin.core.planning.render import Rendered, render
from muntin.core.planning.slot import Slot, Stepped
from muntin.core.planning.verdict import SlotPlan, lowered, starts_of
from muntin.core.planning.window import Window
from muntin.core.profile import Caching, Profile
from muntin.core.report import Prefix, Report
from muntin.core.schemas import NO_SCHEMAS, Schemas


@dataclass(frozen=True, slots=True)
class Declaration:
    """All that was declared for one window; `before` is what the turn before left."""

    slots: tuple[Slot, ...]
    budget: Budget
    counter: Counter = field(compare=False)
    tools: Schemas = NO_SCHEMAS
    profile: Profile | None = None
    before: LazyFrontier | Frontier | None = None


@dataclass(frozen=True)
class Plan:
    """What was decided about every slot, in window order, and about the window.

    `lead` are the tokens of a user message that the provider wants first, `answer` the tokens that
    frame the answer; `joined` is what joining texts adds to the sum of their parts. Declared lists
    are not copied: `at` reads them as they are when it is called.
    """

    declared: Declaration
    slots: tuple[SlotPlan, ...]
    tokens: int
    lead: int
    tools: int
    answer: int
    joined: int
    fallback: bool

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
        from muntin.core.planning.decide import decide

        return decide(replace(self.declared, budget=as_budget(budget)))

    def report(self, *, kept: bool = False) -> Report:
        """Tell where every token went, and why something is missing; with `kept` as stored."""
        return self._told(kept=True) if kept else self._report

    def fates(self) -> tuple[Fate, ...]:
        """Tell what became of every declared message, slot by slot."""
        return tell_fates(self.slots)

    @property
    def caching(self) -> Caching | None:
        """The rules of caching that the model has."""
        profile = self.declared.profile
        return profile.caching if profile is not None else None

    @property
    def is_followed(self) -> bool:
        """Whether the next window depends on this one, or is compared with it."""
        return self.caching is not None or any(
            each.tier is not None or isinstance(each.trimming, Stepped)
            for each in self.declared.slots
        )

    @property
    def over_budget(self) -> bool:
        """Whether the window is larger than its budget, or has none."""
        available = self.declared.budget.remaining_input_tokens
        if available:
            return self.tokens > available
        return any(each.reading.units or each.reading.beyond for each in self.slots) or (
            self.tokens > 0
        )

    @property
    def input_cut(self) -> bool:
        """Whether the current input lost its middle."""
        return any(each.verdicts for each in self.slots if each.slot.is_input)

    @property
    def _sent_before(self) -> LazyFrontier | Frontier | None:
        """The frontier of the request before, None if it tells only where histories began."""
        before = self.declared.before
        return None if isinstance(before, Frontier) and before.is_bare else before

    @cached_property
    def _composed(self) -> tuple[Rendered, LazyFrontier, tuple[Breakpoint, ...]]:
        rendered = render(self.slots)
        starts = starts_of(self.slots)
        frontier, breakpoints = place_breakpoints(
            rendered,
            self.declared.profile,
            self._sent_before,
            starts=tuple(starts),
            behind=behind_talk([each.slot for each in self.slots]),
            tools=self.declared.tools,
            tokens=self.tokens,
            counter=self.declared.counter,
            lowered=lowered(self.slots),
        )
        return rendered, frontier, breakpoints

    @cached_property
    def _report(self) -> Report:
        return self._told(kept=False)

    def _told(self, *, kept: bool) -> Report:
        return Report(
            slots=tell_slots(self.slots, kept=kept),
            tokens=self.tokens,
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
        )

    @cached_property
    def _prefix(self) -> Prefix | None:
        caching, before = self.caching, self.declared.before
        if caching is None and before is None and not any(each.step for each in self.slots):
            return None
        _, frontier, _ = self._composed
        return track(frontier, self._sent_before, self.slots, tokens=self.tokens, caching=caching)

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the decisions are pickled; the rest is made again from them.
        return type(self), tuple(getattr(self, each.name) for each in fields(self))
