"""A check over all tests: whoever moves the beginning of a window must say why.

It compares messages itself, not by the digests that the report goes by.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TypeVar

from muntin.core.caching.cleared import is_cleared
from muntin.core.caching.frontier import Frontier, LazyFrontier
from muntin.core.caching.wire_order import as_sent
from muntin.core.digests import digest
from muntin.core.message import Message
from muntin.core.profile import Profile
from muntin.core.schemas import Schemas
from muntin.core.thoughts import without_thoughts
from muntin.core.window import Window

T = TypeVar("T")


def unexplained_move(
    window: Window, previous: Window | Frontier | LazyFrontier, profile: Profile | None
) -> str | None:
    """Say what is wrong with the report of a following turn, or None."""
    if isinstance(previous, LazyFrontier):
        previous = previous.frontier
    if isinstance(previous, Frontier) and previous.is_bare:
        return None  # nothing is known of what was sent
    prefix = window.report.prefix
    assert prefix is not None
    frontier = previous if isinstance(previous, Frontier) else previous.frontier
    lasting = frontier.lasting
    if getattr(window.explained, "moved_from", None) is not None:  # thoughts are bound to all of it
        lasting = len(frontier.digests)
    new = sent(window.messages, profile)
    if isinstance(previous, Frontier):
        same = common(new, previous.digests, lambda message, old: digest(message) == old)
        tools = window.frontier.tools == previous.tools
    else:
        old = sent(previous.messages, profile)
        same = common(new, old, are_same)
        tools = Schemas(window.tools).in_prompt == Schemas(previous.tools).in_prompt
    same = same if tools else 0
    moved = prefix.moved
    is_expected = lasting or previous.tools  # else a change of tools costs nothing
    if is_expected and (same < lasting or not tools) and moved is None:
        return f"the prefix moved at message {same} of {lasting}, and the report does not say so"
    if moved is not None and (not moved.slot or not moved.reason or moved.message != same):
        return f"the prefix moved at message {same}, but the report says {moved}"
    if moved is not None and same >= lasting and tools:
        return f"nothing moved, but the report says {moved}"
    return None


def sent(messages: tuple[Message, ...], profile: Profile | None) -> list[Message]:
    """Put the messages in the order they are sent, with what the wire adds, without texts for one
    turn, which stay or leave with what stands before them."""
    pieces = [piece.message for piece in as_sent(messages, profile)]
    return [message for message in pieces if not is_cleared(message)]


def bytes_of(message: Message) -> str:
    data = message.to_dict()
    for key in ("at", "cache_control", "prompt_cache_breakpoint"):
        data.pop(key, None)
    return json.dumps(data, sort_keys=True, default=repr)


def are_same(new: Message, old: Message) -> bool:
    return new is old or bytes_of(without_thoughts(new)) == bytes_of(without_thoughts(old))


def common(new: Sequence[Message], old: Sequence[T], same: Callable[[Message, T], bool]) -> int:
    pairs = zip(new, old, strict=False)
    return sum(1 for _ in takewhile(lambda pair: same(*pair), pairs))
