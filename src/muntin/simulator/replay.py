"""Replaying a recorded conversation: the requests that a policy would have sent.

Owns what a policy is and how a trace is cut into requests. The cache model has the prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

from muntin.composer import Composer
from muntin.core.budget import Budget
from muntin.core.counting.counter import Counter, TokenizerLike
from muntin.core.forms import messages_from
from muntin.core.message import Message, opens_turn
from muntin.core.planning.compact import Ladder
from muntin.core.planning.slot import MessageLike, Trimming
from muntin.core.profile import Profile
from muntin.core.schemas import Schemas
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType

SLOTS = ("system", "history", "retrieval")
# The largest share of the budget that text of one turn may have.
RETRIEVAL_RATIO = 0.25

UserPolicy: TypeAlias = Callable[[Sequence[Message], int], Sequence[MessageLike]]


@dataclass(frozen=True, slots=True)
class Moment:
    """The conversation at the time of a request.

    `turn` counts users' turns. `volatile` is new every turn; it stands last and moves nothing.
    """

    turn: int
    system: Sequence[Message]
    past: Sequence[Message]
    volatile: Message | None

    def messages(self, first: int = 0) -> list[Message]:
        """Return the messages that are sent if the history begins with its message `first`."""
        volatile = [] if self.volatile is None else [self.volatile]
        return [*self.system, *self.past[first:], *volatile]


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded conversation: its system text, and its messages."""

    system: tuple[Message, ...]
    messages: tuple[Message, ...]
    turns: tuple[int, ...] = field(kw_only=True)
    volatile: tuple[Message | None, ...] = field(default=(), kw_only=True)

    def moments(self, *, steps: bool) -> Iterator[Moment]:
        """Yield the moments of requests: one a turn, or one a tool step."""
        for turn, (begin, after) in enumerate(pairwise([*self.turns, len(self.messages)])):
            volatile = self.volatile[turn % len(self.volatile)] if self.volatile else None
            # A request ends before an answer.
            ends = [n for n in range(begin, after) if self.messages[n].role == "assistant"]
            for end in (ends if steps else ends[:1]) or [after]:
                yield Moment(turn, self.system, self.messages[:end], volatile)


def trace_of(messages: Sequence[MessageLike], volatile: Sequence[str | None] = ()) -> Trace:
    """Read a recorded conversation; the system messages that open it are its system text."""
    if isinstance(messages, str | bytes | Mapping | Message) or not isinstance(messages, Sequence):
        raise InvalidType(f"a trace must be a list of messages, not {type(messages).__name__}")
    read = messages_from(messages, where="message {} of the trace")
    opening = next((n for n, message in enumerate(read) if message.role != "system"), len(read))
    conversation = tuple(read[opening:])
    turns = [n for n in range(len(conversation)) if opens_turn(conversation, n)]
    if not turns:
        raise InvalidInput("a trace needs at least one user message")
    texts = tuple(None if not text else Message("user", text) for text in volatile)
    # Messages before the first user message belong to the past of the first turn.
    return Trace(tuple(read[:opening]), conversation, turns=tuple(turns), volatile=texts)


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The result of a policy: messages, the slot of each, and a window if there is one."""

    messages: Sequence[Message]
    sources: Sequence[str]
    window: Window | None = None


Policy: TypeAlias = Callable[[Moment], SentMessages]


def slots_policy(
    trimming: Trimming,
    budget: int,
    *,
    profile: Profile | None,
    tokenizer: TokenizerLike | None,
    tools: Sequence[Mapping[str, Any]],
    ladder: Ladder | None,
) -> Policy:
    """Return the policy that composes every request with Muntin, remembering the window before."""
    counter = Counter.of(profile, tokenizer=tokenizer)
    schemas = Schemas.of(tools)
    composer = Composer(None, profile, counter, Budget(budget), trimming, schemas, ladder=ladder)

    def compose(moment: Moment) -> SentMessages:
        nonlocal composer
        slots = composer.slots()
        slots.add("system", moment.system, tier="pinned")
        slots.add("history", moment.past)
        if moment.volatile is not None:
            slots.add("retrieval", moment.volatile.text, max_ratio=RETRIEVAL_RATIO)
        window = slots.render()
        composer = composer.after(window)
        return SentMessages(
            window.messages, [SLOTS[origin or 0] for origin in window.origins], window
        )

    return compose


def full_policy(moment: Moment) -> SentMessages:
    """Send everything, whatever the budget."""
    return _with_sources(moment, moment.messages())


def user_policy(policy: UserPolicy, budget: int) -> Policy:
    """Return a policy that hands the whole conversation and the budget to a function."""

    def call(moment: Moment) -> SentMessages:
        return _with_sources(moment, messages_from(policy(moment.messages(), budget)))

    return call


def _with_sources(moment: Moment, messages: Sequence[Message]) -> SentMessages:
    """Name the source of each message: the volatile text, system text, or the history."""
    sources = [
        "retrieval" if m == moment.volatile else "system" if m.role == "system" else "history"
        for m in messages
    ]
    return SentMessages(messages, sources)
