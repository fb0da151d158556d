"""The Composer: the one place above the core that makes slots into windows.

An interface makes one Composer a turn and declares slots. The Composer knows the model, how tokens
are counted, the budget, the tools and the window before. Two rules live here and nowhere else: the
input of a turn stands in the window exactly once, and the run of the turn stands behind the input.
"""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import TYPE_CHECKING, Any, cast

from muntin.agent.tools import ToolLike, Tools, as_tools
from muntin.core.budget import Budget, as_budget
from muntin.core.caching.cleared import make_cleared
from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.compaction import may_come_first
from muntin.core.counting.book import CountBook
from muntin.core.counting.counter import AttachmentTokens, Counter, TokenizerLike
from muntin.core.message import Message, as_message
from muntin.core.parts import Text
from muntin.core.planning.compact import LADDER, RESULTS, Ladder, Results
from muntin.core.planning.slot import (
    HISTORY,
    MessageLike,
    Recap,
    Slot,
    Stepped,
    Tier,
    Trimming,
)
from muntin.core.planning.slots import Slots
from muntin.core.profile import OMITTED, Profile
from muntin.core.schemas import NO_SCHEMAS, Schemas
from muntin.core.toolboxes.offer import ToolOffer, ToolSearch
from muntin.core.window import Window
from muntin.providers.model import Model
from muntin.settings import counter_for
from muntin.timeline.past import NewestMessages, TimelineMessages
from muntin.timeline.recall.excerpts import Recalled
from muntin.timeline.recall.settings import Recall, Standing

if TYPE_CHECKING:
    from muntin.runtime.run_rules import Summary
    from muntin.runtime.summaries import State

# How many of the newest messages of a slot are searched for a copy of the input.
_NEAR = 100
# How often a window is composed again because it shows what its excerpts say.
_ROUNDS = 3
# Excerpts stand in a slot of few messages.
_FEW = 4
# The text in the place of an input that a projection hides.
HIDDEN = "(this message is not shown)"
# The slot of recalled excerpts. When room is short, the history gives before they do.
RECALLED = "recalled"
_RECALLED_PRIORITY = HISTORY + 1
_STEPPED = Stepped()


@dataclass(frozen=True, slots=True)
class Composer:
    """How the windows of one turn are made; made by `Composer.of`.

    `trimming` is the user's setting, None if the user gave none. `tools` are schemas. `previous` is
    the window before this one, or its frontier. `results` is the ceiling of each tool result,
    `ladder` how calls and results leave; with `recovery` the agent has tools that read the parts
    that were cut. `summary` says how the history is summarised, `recap` is the newest summary,
    `trouble` why there is none. `recall` says how much of the older messages is recalled,
    `tool_search` when tools of toolboxes are searched. `binds` is as for `Slots`. `book` holds
    what providers reported of the requests that were counted.
    """

    model: str | None
    profile: Profile | None
    counter: Counter
    budget: Budget
    trimming: Trimming | None = None
    tools: Schemas = NO_SCHEMAS
    previous: Window | Frontier | LazyFrontier | None = None
    results: Results | None = RESULTS
    ladder: Ladder | None = LADDER
    recovery: bool = False
    summary: Summary | None = None
    recap: Recap | None = None
    trouble: str | None = None
    recall: Recall | None = None
    standing: Standing | None = None
    tool_search: ToolSearch | None = field(default_factory=ToolSearch)
    binds: bool | None = None
    book: CountBook | None = None

    @classmethod
    def of(
        cls,
        model: str | Model | None,
        *,
        budget: Budget | int | None = None,
        tokenizer: TokenizerLike | None = None,
        attachment_tokens: AttachmentTokens | None = None,
        trimming: Trimming | None = None,
        tools: Sequence[ToolLike] = (),
        caching: bool = True,
        results: Results | None = RESULTS,
        ladder: Ladder | None = LADDER,
        recall: Recall | None = None,
        book: CountBook | None = None,
    ) -> Composer:
        """Return the Composer for a model, by its name or as an object that answers.

        Without `budget` the model's own is taken, else its context window, else 128 000. Tokens
        are counted by `tokenizer`, else by the one of `config(...)`, else exactly where the
        model's vocabulary is known. Without `caching` nothing is asked of the provider's cache.
        """
        name = model if isinstance(model, str | None) else model.name
        profile = Profile.of(name)
        if profile is not None and not caching:
            profile = replace(profile, caching=None)
        loading = getattr(model, "tool_loading", None)
        if profile is not None and loading is not None:
            profile = replace(profile, tool_loading=loading)
        if budget is None:
            budget = getattr(model, "budget", None)
        return cls(
            name,
            profile,
            counter_for(profile, tokenizer, attachment_tokens),
            Budget.of(name if profile else None) if budget is None else as_budget(budget),
            trimming,
            as_tools(tools, "tools").schemas,
            results=results,
            ladder=ladder,
            recall=recall,
            book=book,
        )

    @property
    def history_trimming(self) -> Trimming:
        """How a conversation is trimmed: as the user said, else in steps, for every model."""
        return _STEPPED if self.trimming is None else self.trimming

    def after(self, previous: Window | Frontier | LazyFrontier | None) -> Composer:
        """Return the Composer of the window that follows `previous`."""
        return replace(self, previous=previous)

    def with_summary(self, state: State) -> Composer:
        """Return the Composer of windows that know the stored summary, or why there is none."""
        return replace(self, recap=state.recap, trouble=state.trouble)

    def report_summary_failure(self, slots: Slots) -> None:
        """Say in the report why there is no newer summary."""
        if self.trouble is not None:
            slots.exclude("summary", reason="failed", detail=self.trouble)

    async def offering(
        self, tools: Sequence[ToolLike], what: str = "tools"
    ) -> tuple[Composer, Tools]:
        """Return the Composer of windows that offer these tools, and the tools with all that their
        toolboxes have now."""
        offered = await as_tools(tools, what).offer(
            what,
            budget=self.budget.remaining_input_tokens,
            counter=self.counter,
            search=self.tool_search,
            loading="text" if self.profile is None else self.profile.tool_loading,
        )
        return replace(self, tools=offered.schemas), offered

    @property
    def tokens_beside(self) -> int:
        """What every request has beside its messages: tools, their index, the answer's frame."""
        index = self.tools.index_messages if isinstance(self.tools, ToolOffer) else ()
        return self.counter.beside(self.tools) + sum(map(self.counter.message, index))

    def asking_for(self, form: Mapping[str, Any] | None) -> Composer:
        """Return the Composer of windows that ask for an answer of a form, by its schema."""
        return self if form is None else replace(self, counter=self.counter.with_form(form))

    @property
    def largest_result(self) -> int | None:
        """How many tokens one tool result may have; None if there is no ceiling."""
        if self.results is None:
            return None
        room = self.budget.remaining_input_tokens - self.tokens_beside
        return self.results.ceiling(max(0, room))

    def within(self, tokens: int) -> Composer:
        """Return the Composer of windows of so many counted tokens. The ceiling of a result stays
        the same number of tokens; otherwise one result would be another text in each window."""
        results, beside = self.results, self.tokens_beside
        budget = self._counter_now.law.budget(tokens, bool(self.tools.in_prompt))
        if results is not None and budget > beside:
            most = results.ceiling(max(0, self.budget.remaining_input_tokens - beside))
            results = replace(results, max_ratio=min(1.0, (most + 0.5) / (budget - beside)))
        return replace(self, budget=Budget(budget), results=results)

    def slots(self) -> Slots:
        """Return empty slots for one window."""
        return Slots(**self.options())

    @property
    def _counter_now(self) -> Counter:
        """The counter, with what is known by now of how the model's provider counts."""
        counter, previous = self.counter, self.previous
        law = counter.law if self.book is None else self.book.law(self.model, counter.law)
        if previous is not None:
            lazy = previous.lazy_frontier if isinstance(previous, Window) else previous
            law = law.after(lazy.anchor)
        return counter.with_law(law)

    def options(self) -> dict[str, Any]:
        """Return the arguments with which the slots of a window are made."""
        return {
            "budget": self.budget,
            "counter": self._counter_now,
            "tools": self.tools,
            "profile": self.profile,
            "trimming": self.history_trimming,
            "previous": self.previous,
            "results": self.results,
            "ladder": self.ladder,
            "recovery": self.recovery,
            "recap": self.recap,
            "binds": self.binds,
        }

    def with_input(self, declared: Sequence[Slot], turn_input: TurnInput) -> Slots:
        """Return the slots of one window with the input of the turn exactly once: in the first slot
        for it, else behind all slots. A list that shows the input is shown without it."""
        room = self.budget.remaining_input_tokens
        read = [slot.messages for slot in declared]
        read = [
            messages.newest(room) if isinstance(messages, TimelineMessages) else messages
            for messages in read
        ]
        visible, lists = turn_input.taken_out_of(read)
        slots = self.slots()
        is_placed = not visible.messages
        for slot, messages in zip(declared, lists, strict=True):
            if not (slot.kind == "input" and slot.messages):
                slots.take(slot if messages is slot.messages else replace(slot, messages=messages))
            elif is_placed:
                slots.exclude(slot.name, reason="duplicate", detail="the input is there already")
            else:
                slots.take(visible.projected_in(slot))
                is_placed = True
        if not is_placed:
            slots.add("input", list(visible.messages))
        return slots

    def add_run(self, slots: Slots, run: Sequence[Message], *, tier: Tier | None = None) -> Slots:
        """Add the run of the turn behind all slots, and return them."""
        if run:
            slots.add("run", list(run), tier=tier, trimming=self.history_trimming, run=True)
        return slots

    def with_recalled(
        self, slots: Slots, recalled: str, most: int, *, may_clear: bool = True
    ) -> Slots:
        """Return slots with excerpts right before the input, behind everything that may be cached.
        Where the model knows texts for one turn and `may_clear`, they stand behind everything.

        The history keeps `most` tokens free for the excerpts, even if they have fewer.
        """
        new_slots, placed = self.slots(), False
        is_cleared = may_clear and self.profile is not None and self.profile.clear_at
        for slot in slots.declared:
            if not placed and not is_cleared and slot.kind in ("input", "run"):
                self._recall(new_slots, recalled, most, is_cleared)
                placed = True
            new_slots.take(slot)
        if not placed:
            self._recall(new_slots, recalled, most, is_cleared)
        return new_slots

    def _recall(self, slots: Slots, recalled: str, most: int, is_cleared: bool) -> None:
        why = recalled.why if isinstance(recalled, Recalled) else None
        is_cleared = is_cleared and bool(recalled)
        slots.add(
            RECALLED,
            make_cleared(str(recalled)) if is_cleared else str(recalled),
            role=None if is_cleared else "user",
            priority=_RECALLED_PRIORITY,
            trim_behavior="slot",
            max_tokens=most,
            changes=True,
            detail=why,
        )
        if isinstance(recalled, Recalled) and recalled.trouble is not None:
            slots.exclude(RECALLED, reason="failed", detail=recalled.trouble)

    def render(self, slots: Slots) -> Window:
        """Return the window of slots; of recalled excerpts in them, those are left out that the
        window shows in full."""
        window = slots.render()
        for _ in range(_ROUNDS):
            shown = {message.item for message in window.messages if message.item is not None}
            declared = [self._without(slot, shown) for slot in slots.declared]
            if all(map(is_, declared, slots.declared)):
                break
            slots = self.slots()
            for slot in declared:
                slots.take(slot)
            window = slots.render()
        return window

    def _without(self, slot: Slot, shown: Collection[tuple[str, int]]) -> Slot:
        """Return a slot whose excerpts are not among the items that are shown."""
        messages = slot.messages
        if not isinstance(messages, list | tuple) or len(messages) > _FEW:
            return slot  # a conversation
        rest: list[MessageLike] = []
        for message in messages:
            content = message.content if isinstance(message, Message) else None
            if isinstance(content, Recalled):
                fresh = content.without(shown, self.counter)
                if fresh is not content:
                    if fresh:
                        rest.append(replace(message, content=fresh))
                    continue
            rest.append(message)
        is_same = len(rest) == len(messages) and all(map(is_, rest, messages))
        return slot if is_same else replace(slot, messages=rest)

    def filler(self, most: int) -> str:
        """Return a text that has about `most` tokens as a message, and no more."""
        tokens = self.counter.text("a " * 1_000) or 1
        count = most * 1_000 // tokens
        while count > 0:
            text = "a " * count
            size = self.counter.message(Message("user", text))
            if size <= most:
                return text
            count = min(count - 1, count * most // size)
        return ""

    def size_of(self, messages: Iterable[Message]) -> int:
        """Return the tokens of a window that holds only these messages, whole.

        A result for each call without one is counted, and so is the user message that some
        providers want first: the wire adds them. Results without a call are not: they are not sent.
        """
        tokens = 0
        first: Message | None = None
        unanswered: Bag[str] = Bag()
        for message in messages:
            if message.role == "tool" and message.tool_call_id is not None:
                if not unanswered[message.tool_call_id]:
                    continue
                unanswered[message.tool_call_id] -= 1
            elif not _is_sent(message):
                continue
            unanswered.update(call.id for call in message.tool_calls)
            tokens += self.counter.message(message)
            first = first or (None if message.role == "system" else message)
        needs_lead = first is not None and not may_come_first(first)
        if self.profile is not None and self.profile.user_first and needs_lead:
            tokens += self.counter.message(OMITTED)
        tokens += unanswered.total() * self.counter.missing_result()
        return tokens + self.counter.answer if tokens else 0


class TurnSlots(Slots):
    """The slots that a strategy fills: the window that it renders is the window that is sent.

    Rendering puts the input of the turn in once: behind all slots, if it was not declared.
    """

    def __init__(self, composer: Composer, turn_input: TurnInput) -> None:
        super().__init__(**composer.options())
        self._composer = composer
        self._input = turn_input
        # The window that was rendered last.
        self.rendered: Window | None = None

    def render(self) -> Window:
        """Compose the window that is sent when the strategy returns it."""
        slots = self._composer.with_input(self.declared, self._input)
        self._composer.report_summary_failure(slots)
        self.rendered = self._composer.render(slots)
        return self.rendered


def _is_sent(message: Message) -> bool:
    """Say whether a message has any content."""
    parts = message.content if isinstance(message.content, tuple) else ()
    other = any(not isinstance(part, Text) for part in parts)
    return bool(message.text or other or message.tool_calls or message.attachments)


@dataclass(frozen=True, slots=True)
class TurnInput:
    """The input of a turn, known by its items: it is in the window exactly once.

    `items` name session and position. `later` are the items that the turn has added
    behind it. `projected` returns the input as the projections in force show it, None if there are
    none. `recorded` is the input as it was recorded, where `messages` show it in other words.
    """

    messages: tuple[Message, ...] = ()
    items: Collection[tuple[str, int]] = frozenset()
    later: Collection[tuple[str, int]] = frozenset()
    projected: Callable[[], Sequence[Message] | None] = lambda: None
    recorded: tuple[Message, ...] = ()

    def taken_out_of(
        self, lists: Sequence[Sequence[MessageLike]]
    ) -> tuple[TurnInput, list[Sequence[MessageLike]]]:
        """Return the input in the words in which it is shown, and lists without it and without what
        the turn has added since.

        The lists that show the input decide: as it was recorded if one list shows it so, else as
        the first list shows it. If no list shows it, the projections decide.
        """
        rests: list[Sequence[MessageLike]] = []
        versions: list[list[Message]] = []
        for messages in lists:
            begin = max(0, len(messages) - _NEAR - len(self.items) - len(self.later))
            near = messages[begin:]
            version = [message for message in near if self.holds(message)]
            ours = {*self.items, *self.later}
            rest = [
                message
                for message in near
                if not (isinstance(message, Message) and message.item in ours)
            ]
            if version:
                versions.append(cast("list[Message]", version))
            if len(rest) < len(near):
                earlier = getattr(messages, "earlier", (0, 0))
                messages = NewestMessages([*messages[:begin], *rest], earlier)  # type: ignore[list-item]
            rests.append(messages)
        if any(texts_of(version) == texts_of(self.messages) for version in versions):
            return self, rests
        visible = versions[0] if versions else self.projected()
        if visible is None:
            return self, rests
        return replace(self, messages=tuple(visible), recorded=self.messages), rests

    def holds(self, message: MessageLike) -> bool:
        """Say whether a message shows an item of the input."""
        return isinstance(message, Message) and message.item in self.items

    def projected_in(self, slot: Slot) -> Slot:
        """Return the slot of the input with the words in which it is shown.

        A text in the caller's own words stays, and so does the slot of a hidden input.
        """
        is_copy = texts_of(slot.messages) == texts_of(self.recorded)
        is_hidden = HIDDEN in texts_of(self.messages)
        return replace(slot, messages=self.messages) if is_copy and not is_hidden else slot


def texts_of(messages: Iterable[MessageLike]) -> list[str]:
    """Return the texts of messages."""
    return [
        message.text if isinstance(message, Message) else as_message(message).text
        for message in messages
    ]
