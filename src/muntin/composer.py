"""The Composer: the one place above the core that makes slots into windows.

A door makes one Composer a turn and declares slots. The Composer knows the model, how tokens are
counted, the budget, the tools and the window before. Two rules live here and nowhere else: the
input of a turn stands in the window exactly once, and the run of the turn stands behind the input.
"""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from muntin.agent.tools import ToolLike, as_tools
from muntin.core.budget import Budget, as_budget
from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.counting.counter import AttachmentTokens, Counter, TokenizerLike
from muntin.core.message import Message, as_message, role_of
from muntin.core.parts import Attachment, Text
from muntin.core.planning.compact import LADDER, RESULTS, Ladder, Results
from muntin.core.planning.slot import (
    HISTORY,
    Exact,
    Marker,
    MessageLike,
    Pool,
    Recap,
    Slot,
    Stepped,
    Tier,
    Trimming,
)
from muntin.core.planning.slots import Slots
from muntin.core.profile import OMITTED, Profile
from muntin.core.schemas import NO_SCHEMAS, Schemas
from muntin.core.window import Window
from muntin.errors import InvalidInput, NeedsConversation
from muntin.providers.model import Model
from muntin.settings import counter_for
from muntin.timeline.past import NewestMessages, TimelineMessages
from muntin.timeline.recall.excerpts import Recalled
from muntin.timeline.recall.settings import Recall

if TYPE_CHECKING:
    from muntin.runtime.summaries import State, Summary

# How many of the newest messages of a slot are searched for a copy of the input.
_NEAR = 100
# The text in the place of an input that a projection hides.
HIDDEN = "(this message is not shown)"
# The slot of recalled excerpts. When room is short, the history gives before they do.
RECALLED = "recalled"
_RECALLED_PRIORITY = HISTORY + 1


@dataclass(frozen=True, slots=True)
class Composer:
    """How the windows of one turn are made; made by `Composer.of`.

    `trimming` is the user's setting, None if the user gave none. `tools` are schemas. `previous` is
    the window before this one, or its frontier. `results` is the ceiling of each tool result,
    `ladder` how calls and results leave; with `recovery` the agent has tools that read the parts
    that were cut. `summary` says how the history is summarised, `recap` is the newest summary,
    `trouble` why there is none. `recall` says how much of the older messages is recalled.
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
        )

    @property
    def history_trimming(self) -> Trimming:
        """How a conversation is trimmed: as the user said, else in steps, for every model."""
        return Stepped() if self.trimming is None else self.trimming

    def after(self, previous: Window | Frontier | None) -> Composer:
        """Return the Composer of the window that follows `previous`."""
        return replace(self, previous=previous)

    def summarising(
        self, summary: Summary | Literal[False] | None, others: Summary | None, what: str
    ) -> Composer:
        """Return the Composer of windows whose history is summarised as `summary` says, or as
        `others` says if `summary` is None; False means no summary."""
        chosen = others if summary is None else summary or None
        if summary and isinstance(self.trimming, Exact):
            raise InvalidInput(
                f"{what}: a summary is put in when the history steps, which it never does with "
                "trimming=Exact(); give trimming=Stepped(), or no summary"
            )
        if isinstance(self.trimming, Exact):
            chosen = None
        return replace(self, summary=chosen)

    def recalling(self, state: State) -> Composer:
        """Return the Composer of windows that know the stored summary, or why there is none."""
        return replace(self, recap=state.recap, trouble=state.trouble)

    def tell_trouble(self, slots: Slots) -> None:
        """Say in the report why there is no newer summary."""
        if self.trouble is not None:
            slots.exclude("summary", reason="failed", detail=self.trouble)

    def offering(self, tools: Sequence[ToolLike]) -> Composer:
        """Return the Composer of windows that offer these tools."""
        return replace(self, tools=as_tools(tools, "tools").schemas)

    @property
    def largest_result(self) -> int | None:
        """How many tokens one tool result may have; None if there is no ceiling."""
        if self.results is None:
            return None
        room = self.budget.remaining_input_tokens - self.counter.beside(self.tools)
        return self.results.ceiling(max(0, room))

    def within(self, budget: int) -> Composer:
        """Return the Composer of windows with another budget. The ceiling of a result stays the
        same number of tokens; otherwise one result would be another text in each window."""
        results, beside = self.results, self.counter.beside(self.tools)
        if results is not None and budget > beside:
            most = results.ceiling(max(0, self.budget.remaining_input_tokens - beside))
            results = replace(results, max_ratio=min(1.0, (most + 0.5) / (budget - beside)))
        return replace(self, budget=Budget(budget), results=results)

    def slots(self) -> Slots:
        """Return empty slots for one window."""
        return Slots(**self.options())

    def options(self) -> dict[str, Any]:
        """Return the arguments with which the slots of a window are made."""
        return {
            "budget": self.budget,
            "counter": self.counter,
            "tools": self.tools,
            "profile": self.profile,
            "trimming": self.history_trimming,
            "previous": self.previous,
            "results": self.results,
            "ladder": self.ladder,
            "recovery": self.recovery,
            "recap": self.recap,
        }

    def turn_slots(self, asked: Asked) -> TurnSlots:
        """Return empty slots whose windows hold the input of the turn exactly once."""
        return TurnSlots(self, asked)

    def declared(
        self,
        declared: Sequence[Slot],
        asked: Asked | None = None,
        run: Sequence[Message] = (),
        *,
        tier: Tier | None = None,
        pool: Pool | None = None,
        marker: Marker | None = None,
    ) -> Slots:
        """Return the slots of one window: what an interface declared, the input once, then the run.

        `tier` is that of the input and of the run, `pool` that of the input. `marker` says what is
        missing of an input that is cut.
        """
        slots = self.slots()
        stands = asked is None
        if asked is not None:
            declared, asked = self._taken_out(declared, asked)
            stands = not asked.messages
        for slot in declared:
            if asked is not None and asked.fills(slot):
                if stands:
                    slots.exclude(
                        slot.name, reason="duplicate", detail="the input is there already"
                    )
                    continue
                slot, stands = asked.told_in(slot), True
            slots.take(slot)
        if asked is not None and not stands:
            slots.add("input", list(asked.messages), tier=tier, marker=marker, pool=pool)
        if run:
            slots.add("run", list(run), tier=tier, trimming=self.history_trimming, run=True)
        return slots

    def with_recalled(self, slots: Slots, recalled: str, most: int) -> Slots:
        """Return slots with excerpts right before the input, behind everything that may be cached.

        The history keeps `most` tokens free for the excerpts, even if they have fewer.
        """
        made, placed = self.slots(), False
        for slot in slots.declared:
            if not placed and slot.kind in ("input", "run"):
                self._recall(made, recalled, most)
                placed = True
            made.take(slot)
        if not placed:
            self._recall(made, recalled, most)
        return made

    def _recall(self, slots: Slots, recalled: str, most: int) -> None:
        why = recalled.why if isinstance(recalled, Recalled) else None
        slots.add(
            RECALLED,
            str(recalled),
            role="user",
            priority=_RECALLED_PRIORITY,
            trim_behavior="slot",
            max_tokens=most,
            changes=True,
            detail=why,
        )
        if isinstance(recalled, Recalled) and recalled.trouble is not None:
            slots.exclude(RECALLED, reason="failed", detail=recalled.trouble)

    def filler(self, most: int) -> str:
        """Return a text that has about `most` tokens as a message, and no more."""
        each = self.counter.text("a " * 1_000) or 1
        count = most * 1_000 // each
        while count > 0:
            text = "a " * count
            size = self.counter.message(Message("user", text))
            if size <= most:
                return text
            count = min(count - 1, count * most // size)
        return ""

    def _taken_out(self, declared: Sequence[Slot], asked: Asked) -> tuple[list[Slot], Asked]:
        """Return the slots without the input, and the input in the words in which it is shown.

        A slot that holds only the input keeps it.
        """
        left, versions = [], []
        for slot in declared:
            messages = slot.messages
            if isinstance(messages, TimelineMessages):
                messages = messages.newest(self.budget.remaining_input_tokens)
            elif slot.is_input or len(messages) < 2:
                left.append(slot)
                continue
            near = max(0, len(messages) - _NEAR - len(asked.messages))
            kept, version = asked.split(messages[near:])
            if len(kept) < len(messages) - near:
                earlier = getattr(messages, "earlier", (0, 0))
                messages = NewestMessages([*messages[:near], *kept], earlier)  # type: ignore[list-item]
            versions.append(version)
            left.append(slot if messages is slot.messages else replace(slot, messages=messages))
        return left, asked.shown_as(versions)

    def size_of(self, messages: Iterable[Message]) -> int:
        """Return the tokens of a window that holds only these messages, whole.

        A result for each call without one is counted, and so is the user message that some
        providers want first: the wire adds them. Results without a call are not: they are not sent.
        """
        tokens, first = 0, None
        unanswered: Bag[str] = Bag()
        for each in messages:
            if each.role == "tool" and each.tool_call_id is not None:
                if not unanswered[each.tool_call_id]:
                    continue
                unanswered[each.tool_call_id] -= 1
            elif not _is_sent(each):
                continue
            unanswered.update(call.id for call in each.tool_calls)
            tokens += self.counter.message(each)
            first = first or (None if each.role == "system" else each.role)
        if self.profile is not None and self.profile.user_first and first not in (None, "user"):
            tokens += self.counter.message(OMITTED)
        tokens += unanswered.total() * self.counter.missing_result()
        return tokens + self.counter.answer if tokens else 0


class TurnSlots(Slots):
    """The slots that a strategy fills: the window that it renders is the window that is sent.

    Rendering puts the input of the turn in once: behind all slots, if it was not declared.
    """

    def __init__(self, composer: Composer, asked: Asked) -> None:
        super().__init__(**composer.options())
        self._composer = composer
        self._asked = asked
        # The window that was rendered last.
        self.rendered: Window | None = None

    def render(self) -> Window:
        """Compose the window that is sent when the strategy returns it."""
        slots = self._composer.declared(self.declared, self._asked)
        self._composer.tell_trouble(slots)
        self.rendered = slots.render()
        return self.rendered


def _is_sent(message: Message) -> bool:
    """Say whether a message has any content."""
    parts = message.content if isinstance(message.content, tuple) else ()
    other = any(not isinstance(part, Text) for part in parts)
    return bool(message.text or other or message.tool_calls or message.attachments)


@dataclass(frozen=True, slots=True)
class Asked:
    """The input of a turn: it stands in the window exactly once.

    `positions` are where its items stand on the timeline of `session`. `since` are the messages
    that the turn added before this window. `projected` returns the input as the projections in
    force show it, None if there are none. `said` is the input as recorded, where `messages` differ.
    """

    messages: tuple[Message, ...] = ()
    positions: Collection[float] = frozenset()
    session: str | None = None
    since: tuple[Message, ...] = ()
    projected: Callable[[], Sequence[Message] | None] | None = None
    said: tuple[Message, ...] = ()

    def split(
        self, messages: Sequence[MessageLike]
    ) -> tuple[list[MessageLike], tuple[Message, ...]]:
        """Return a list without the messages of this turn, and the input as the list shows it."""
        found = self.found(messages)
        ours = {each.item for each in self.since if each.item is not None}
        later = {_key(each) for each in self.since}
        kept: list[MessageLike] = []
        for number, each in enumerate(messages):
            item = each.item if isinstance(each, Message) else None
            repeats = bool(found) and number > min(found) and item is None
            if number in found or (item is not None and item in ours):
                continue
            if repeats and later and _key(as_message(each)) in later:
                continue
            kept.append(each)
        shown = [messages[number] for number in sorted(found)]
        return kept, tuple(each for each in shown if isinstance(each, Message) and each.item)

    def found(self, messages: Sequence[MessageLike]) -> set[int]:
        """Return which messages of a list are the input.

        A message of the timeline is known by its item. A message without an item, such as a dict,
        is the input if it is a user's with the same text behind the last answer.
        """
        found = {
            number
            for number, each in enumerate(messages)
            if isinstance(each, Message) and each.item is not None and self._is_mine(each.item)
        }
        later = {_key(each) for each in self.since}
        said: set[Any] | None = None
        for number in range(len(messages) - 1, -1, -1):
            each = messages[number]
            role = _role(each)
            if role == "user":
                copy = each if isinstance(each, Message) else as_message(each)
                if copy.item is None:
                    said = self._said() if said is None else said
                    if _content(copy) in said:
                        found.add(number)
            elif role != "system" and (not later or _key(as_message(each)) not in later):
                break
        return found

    def _said(self) -> set[Any]:
        """Return the texts of the input, as it was recorded and as it may be shown."""
        projected = (self.projected() if self.projected is not None else None) or ()
        return {_content(each) for each in (*self.messages, *self.said, *projected)}

    def _is_mine(self, item: tuple[str, int]) -> bool:
        session, position = item
        return session == self.session and position in self.positions

    def holds(self, message: MessageLike) -> bool:
        """Say whether a message is part of the input: by its item, else by its text."""
        if _role(message) != "user":
            return False
        try:
            each = as_message(message)
        except NeedsConversation:  # several messages in one: never an input
            return False
        if each.item is not None:
            return self._is_mine(each.item)
        return _content(each) in self._said()

    def fills(self, slot: Slot) -> bool:
        """Say whether a slot holds the input and nothing else."""
        return slot.is_input or (len(slot.messages) == 1 and self.holds(slot.messages[0]))

    def shown_as(self, versions: Iterable[Sequence[Message]]) -> Asked:
        """Return the input in the words in which it is shown.

        The lists that show the input decide: as it was recorded if one list shows it so, else as
        the first list shows it. If no list shows it, the projections decide.
        """
        said = self.said or self.messages
        lists = [each for each in versions if each]
        if any(_words(each) == _words(said) for each in lists):
            return self
        shown = lists[0] if lists else self.projected() if self.projected is not None else None
        return self if shown is None else replace(self, messages=tuple(shown), said=said)

    def told_in(self, slot: Slot) -> Slot:
        """Return the slot of the input with the words in which it is shown.

        A text in the caller's own words stays, and so does the slot of a hidden input.
        """
        shown = _words(self.messages)
        if not self.said or HIDDEN in shown or _words(slot.messages) != _words(self.said):
            return slot
        kind = slot.kind if slot.kind != "text" or len(self.messages) == 1 else "list"
        return replace(slot, messages=self.messages, kind=kind)


def _role(message: MessageLike) -> str | None:
    return message.role if isinstance(message, Message) else role_of(message)


def _words(messages: Iterable[MessageLike]) -> list[str]:
    return [each.text if isinstance(each, Message) else as_message(each).text for each in messages]


def _content(message: Message) -> str | tuple[Attachment, ...]:
    return message.text or message.attachments


def _key(message: Message) -> tuple[Any, ...]:
    return message.role, message.text, tuple(call.id for call in message.tool_calls)
