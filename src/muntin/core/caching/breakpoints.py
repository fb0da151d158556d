"""Breakpoints: where a provider is asked to cache, within its limits.

Pure functions of the composed window, the rules of the model and the turn before. Messages are
here as they are sent (`wire`), each with the slot it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muntin.core.caching.cleared import ClearedText, find_cleared, is_cleared
from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.caching.prefix import find_changed_slots
from muntin.core.caching.wire_order import as_sent, is_sent_unchanged
from muntin.core.counting.counter import Counter
from muntin.core.digests import digest
from muntin.core.message import Message
from muntin.core.parts import Other
from muntin.core.planning.memory import ConversationState
from muntin.core.planning.render import Rendered
from muntin.core.planning.slot import VOLATILE, Slot
from muntin.core.profile import Caching, Profile
from muntin.core.schemas import USER_BREAKPOINTS, Schemas
from muntin.core.window import Breakpoint

_HOUR = 3_600


def place_breakpoints(
    rendered: Rendered,
    profile: Profile | None,
    before: LazyFrontier | Frontier | None,
    *,
    starts: tuple[ConversationState, ...],
    moved: frozenset[str],
    behind: frozenset[int],
    tools: Schemas,
    tokens: int,
    counter: Counter,
    lowered: Sequence[Message] = (),
    proves: bool = False,
) -> tuple[LazyFrontier, tuple[Breakpoint, ...]]:
    """Choose the breakpoints, and keep what the next turn must know.

    `lowered` are the last short and the last stubbed message of pasts that step. With `proves` the
    next turn must know all that was sent.
    """
    messages, slots = rendered.messages, rendered.slots
    cleared: tuple[ClearedText, ...] = ()
    sent = None if is_sent_unchanged(messages, profile) else as_sent(messages, profile)
    if sent is not None and profile is not None and profile.clear_at:
        # What is shown for one turn is cached by nobody, and its tokens do not count later.
        cleared = find_cleared([piece.message for piece in sent])
        sent = [piece for piece in sent if not is_cleared(piece.message)]
    if sent is not None:
        messages = [piece.message for piece in sent]
        slots = [rendered.slots[piece.owner] for piece in sent]
    caching = profile.caching if profile is not None else None
    frontier = LazyFrontier(
        starts=starts,
        moved=moved,
        messages=messages,
        slots=slots,
        tools=tools,
        tokens=tokens,
        counter=counter,
        behind=behind,
        earlier=before.hashed if isinstance(before, LazyFrontier) else ((), ()),
        chunked=caching is not None and not caching.breakpoints,
        proves=proves,
        cleared=cleared,
    )
    if caching is None:
        return frontier, ()
    if before is not None:
        frontier.changed_slots = frozenset(find_changed_slots(frontier, before))
    if not caching.breakpoints:
        return frontier, ()
    ends = {id(message): place for place, message in enumerate(messages, 1)} if lowered else {}
    user_places = user_breakpoints(messages)
    places = choose_breakpoints(
        messages,
        slots,
        user_places,
        caching=caching,
        counter=counter,
        tools=tools,
        previous=before,
        settled=frontier.settled,
        lowered=[ends[id(message)] for message in lowered if id(message) in ends],
    )
    frontier.breakpoints = tuple(places)
    lives = ttls(places, messages, user_places, caching)
    breakpoints: dict[Breakpoint, None] = {}
    for place, ttl in zip(places, lives, strict=True):
        last = max(0, place - 1)
        if sent is not None:  # the last message of the window before the place in the request
            before_it = (piece.place for piece in reversed(sent[:place]) if piece.place is not None)
            last = next(before_it, 0)
        breakpoints[Breakpoint(last + 1, ttl)] = None
    return frontier, tuple(breakpoints)


def choose_breakpoints(
    messages: Sequence[Message],
    slots: Sequence[Slot],
    user_places: Sequence[int],
    *,
    caching: Caching,
    counter: Counter,
    tools: Sequence[Mapping[str, Any]] = (),
    previous: LazyFrontier | Frontier | None = None,
    settled: int,
    lowered: Sequence[int] = (),
) -> list[int]:
    """Return after how many messages breakpoints stand, in order; `user_places` are those of the
    user.

    No breakpoint stands behind the first `settled` messages, which stay, except at the end of all
    messages between the steps of a turn. If there are more candidates than the provider takes, the
    most saving come first: the tail; the breakpoints that the user asked for; the latest breakpoint
    of the turn before, where a read could not look back that far; the ends of what is `lowered`,
    where the next step down begins; the frontier; the last stable tier; earlier tiers.
    """
    on_tools = sum(any(schema.get(key) for key in USER_BREAKPOINTS) for schema in tools)
    available = caching.breakpoints - len(user_places) - on_tools
    if available <= 0 or not messages:
        return []
    tails = _tails(messages, settled)
    stays = [
        *_requested_places(slots),
        *tails[1:],
        _previous_breakpoint(messages, tails, caching, previous),
        *lowered,
        _conversation(messages, slots),
        *_tier_ends(slots),
    ]
    places = [tails[0], *(place for place in stays if place <= settled or place in tails)]
    enough = _cacheable_count(messages, caching.min_prefix - counter.tools(tools), counter)
    chosen: list[int] = []
    for place in places:
        while (
            place and not caching.assistant_breakpoints and messages[place - 1].role == "assistant"
        ):
            place -= 1
        if place >= max(enough, 1) and place not in chosen and place not in user_places:
            chosen.append(place)
    return sorted(chosen[:available])


def ttls(
    places: Sequence[int],
    messages: Sequence[Message],
    user_places: Sequence[int],
    caching: Caching,
) -> Iterator[str | None]:
    """Yield how long each breakpoint is to live: an hour if the rules say so, or if a breakpoint of
    the user's behind it lives an hour (longer ones stand first:
    https://platform.claude.com/docs/en/build-with-claude/prompt-caching)."""
    hours = [
        place
        for place in user_places
        if any("1h" in str(setting) for setting in _cache_settings(messages[place - 1]))
    ]
    for place in places:
        long = caching.ttl >= _HOUR or any(place < hour for hour in hours)
        yield "1h" if long else None


def user_breakpoints(messages: Sequence[Message]) -> list[int]:
    """Return the breakpoints that the messages carry themselves: the places behind them."""
    able = enumerate(messages, 1)
    carriers = [pair for pair in able if pair[1].extra or pair[1].content.__class__ is tuple]
    return [place for place, message in carriers for _ in _cache_settings(message)]


def _cache_settings(message: Message) -> list[Any]:
    settings: list[Any] = []
    if message.extra:
        settings += [message.extra[key] for key in USER_BREAKPOINTS if message.extra.get(key)]
    if isinstance(message.content, tuple):
        for part in message.content:
            data = part.data if isinstance(part, Other) else part.extra or {}
            settings += [data[key] for key in USER_BREAKPOINTS if data.get(key)]
    return settings


def _tails(messages: Sequence[Message], settled: int) -> list[int]:
    """Return where the next request will read: the end of the messages that stay; and between the
    steps of one turn the end of all messages, even if the next turn will not have them all."""
    looping = settled < len(messages) and messages[-1].role == "tool"
    return [len(messages), settled] if looping else [settled]


def _requested_places(slots: Sequence[Slot]) -> list[int]:
    """Return the ends of the slots that ask for a breakpoint."""
    ends = []
    for place, slot in enumerate(slots, 1):
        if slot.place.breakpoint and (place == len(slots) or slots[place] is not slot):
            ends.append(place)
    return ends


def _conversation(messages: Sequence[Message], slots: Sequence[Slot]) -> int:
    """Return where the conversation begins: the messages before it stay after every step."""
    for place, (message, slot) in enumerate(zip(messages, slots, strict=True)):
        if message.role != "system" and slot.place.tier in (None, VOLATILE):
            return place
    return len(messages)


def _tier_ends(slots: Sequence[Slot]) -> list[int]:
    """Return where each tier before the volatile one ends, the last first."""
    ends = []
    for place in range(len(slots), 0, -1):
        tier, is_last = slots[place - 1].place.tier, place == len(slots)
        if tier not in (None, VOLATILE) and (is_last or slots[place].place.tier != tier):
            ends.append(place)
    return ends


def _previous_breakpoint(
    messages: Sequence[Message],
    tails: Sequence[int],
    caching: Caching,
    previous: LazyFrontier | Frontier | None,
) -> int:
    """Return the last breakpoint of the turn before that still holds, if no tail reaches it."""
    if previous is None or not previous.breakpoints:
        return 0
    sent = previous.messages if isinstance(previous, LazyFrontier) else ()
    shared = 0  # how many messages, from the first, are as in the turn before
    for message in messages[: max(previous.breakpoints)]:
        same = shared < len(sent) and sent[shared] is message
        if not same and previous.digest(shared) != digest(message):
            break
        shared += 1
    for place in reversed(previous.breakpoints):
        if place > shared:  # a message before it has changed
            continue
        near = [tail for tail in tails if tail >= place]
        if caching.lookback is None or not near:
            return place
        added = sum(blocks(message) for message in messages[place : min(near)])
        # The breakpoint's own block is the first block of the lookback.
        return place if added >= caching.lookback else 0
    return 0


def blocks(message: Message) -> int:
    """Return how many content blocks a message has, at most."""
    parts = len(message.content) if isinstance(message.content, tuple) else bool(message.content)
    return max(1, parts + len(message.tool_calls) + len(message.attachments))


def _cacheable_count(messages: Sequence[Message], tokens: int, counter: Counter) -> int:
    """Return how many messages, from the first, have `tokens` tokens; one too many if too few."""
    for place, message in enumerate(messages):
        if tokens <= 0:
            return place
        tokens -= counter.message(message)
    return len(messages) + (tokens > 0)
