"""Requests: messages and windows as the blocks that a provider hashes, in its order, with marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muntin.core.caching.breakpoints import user_breakpoints
from muntin.core.caching.wire_order import as_sent
from muntin.core.checks import compact_json
from muntin.core.counting.counter import Counter, TokenizerLike
from muntin.core.digests import digest
from muntin.core.message import Message
from muntin.core.profile import OMITTED, Caching, Profile
from muntin.core.window import Window
from muntin.simulator.cache import Block, Request

# For a request without marks, OpenAI searches at up to 20 earlier message endings:
# https://developers.openai.com/api/docs/guides/prompt-caching
_MESSAGE_ENDINGS = 20


class Blocks:
    """Makes blocks of messages, each message once."""

    def __init__(self, profile: Profile | None, tokenizer: TokenizerLike | None = None) -> None:
        self._profile = profile
        self.counter = Counter.of(profile, tokenizer=tokenizer)
        # By identity: comparing long messages would cost more than making their blocks. The message
        # is kept too, so that no other message can get its identity.
        self._cached: dict[tuple[int, str, bool], tuple[Message, tuple[Block, ...]]] = {}

    def of_window(self, window: Window) -> Request:
        """Return the request of a window, its blocks named by its slots."""
        names = [slot.name for slot in sorted(window.report.slots, key=lambda s: s.index)]
        sources = ["joined" if origin is None else names[origin] for origin in window.origins]
        return self.of(window.messages, sources, window.tools)

    def of(
        self,
        messages: Sequence[Message],
        sources: Sequence[str],
        tools: Iterable[Mapping[str, Any]] = (),
    ) -> Request:
        """Return the request of tools, then of messages that come from `sources`."""
        schemas = map(compact_json, tools)
        blocks = [
            Block(text, self.counter.overhead + self.counter.text(text), source="tools")
            for text in schemas
        ]
        places = [-1] * len(blocks)
        before = "system"
        for place, owner, message in as_sent(messages, self._profile):
            lead = message is OMITTED
            make = self._message if place is not None and messages[place] is message else self._make
            message_blocks = make(
                message, "lead" if lead else sources[owner], before == "tool" == message.role
            )
            blocks += message_blocks
            places += [-1 if lead else owner] * len(message_blocks)
            before = message.role
        return Request(tuple(blocks), places=tuple(places))

    def tokens(self, message: Message) -> int:
        """Count a message, as its blocks are counted."""
        return sum([block.tokens for block in self._message(message, "history", False)])

    def _message(self, message: Message, source: str, follows: bool) -> tuple[Block, ...]:
        key = id(message), source, follows
        remembered = self._cached.get(key)
        if remembered is None:
            remembered = self._cached[key] = message, self._make(message, source, follows)
        return remembered[1]

    def _make(self, message: Message, source: str, follows: bool) -> tuple[Block, ...]:
        # Each part is a block, all calls together are one.
        parts = message.content if isinstance(message.content, tuple) else ()
        overhead = self.counter.overhead
        sizes = [self.counter.message(Message(message.role, (part,))) - overhead for part in parts]
        if not parts and (message.content or not message.tool_calls):
            sizes.append(0)
        if message.tool_calls:
            count = self.counter.text
            sizes.append(sum(count(c.name) + count(c.arguments) for c in message.tool_calls))
        # The first block also has the tokens of no part: the overhead, a name, attachments.
        sizes[0] += self.counter.message(message) - sum(sizes)
        name = digest(message)
        return tuple(
            Block((name, number), tokens, source=source, run=follows and not number)
            for number, tokens in enumerate(sizes)
        )


def marks_of(window: Window, request: Request) -> tuple[int, ...]:
    """Return the marks of a window: its breakpoints, and marks that its messages carry."""
    ends = {place: number for number, place in enumerate(request.places, 1)}
    after = [mark.after for mark in window.breakpoints] + user_breakpoints(window.messages)
    return tuple(sorted({ends[place - 1] for place in after}))


def usual_marks(request: Request, rules: Caching, stable: int | None = None) -> tuple[int, ...]:
    """Return the marks of a request that sets none itself, as by automatic caching.

    At the end of the system text and of the first `stable` blocks (of all, if None); further marks
    reach back from there, in steps of the look-back.
    """
    blocks, places = request.blocks, request.places
    end = len(blocks) if stable is None else stable
    if not rules.breakpoints or not blocks:
        return ()
    head = sum([block.source in ("tools", "system") for block in blocks[:end]])
    marks = {head, end} - {0}
    if rules.lookback is None:
        ends = [n for n in range(1, end) if places[n] != places[n - 1]]
        return tuple(sorted(marks | set(ends[-_MESSAGE_ENDINGS:])))
    place = end
    while len(marks) < rules.breakpoints:
        positions = 0
        while place > head and positions < rules.lookback - 1:
            place -= 1
            positions += not blocks[place].run
        if place <= head:
            break
        marks.add(place)
    return tuple(sorted(marks))
