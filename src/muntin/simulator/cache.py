"""The cache model: what a provider reads from its cache, writes to it, and charges.

Models the published rules. Knows the blocks, tokens and times of requests; no messages, no windows,
no clock. https://platform.claude.com/docs/en/build-with-claude/prompt-caching and
https://developers.openai.com/api/docs/guides/prompt-caching have the rules.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from muntin.core.profile import Caching
from muntin.errors import InvalidInput

# If a match must be exactly at a mark, the latest 80 marks of a request are searched:
# https://developers.openai.com/api/docs/api-reference/chat/create (prompt_cache_options)
LATEST_MARKS = 80


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a request as the provider hashes it; equal keys stand for identical bytes.

    `run` says that it shares one position of the look-back with the block before it (consecutive
    results of tools). `source` is its slot.
    """

    key: Hashable
    tokens: int
    source: str = field(default="messages", kw_only=True)
    run: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Request:
    """A request at one time: its blocks in the order of hashing, and its marks.

    A mark is the number of blocks before it; `at` is in seconds. `places` has for each block the
    index of its message in the window: -1 for a tool, and for messages that the wire adds in front.
    """

    blocks: tuple[Block, ...]
    marks: tuple[int, ...] = field(default=(), kw_only=True)
    at: float = field(default=0.0, kw_only=True)
    places: tuple[int, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Usage:
    """Where the tokens of a request went; `cost` is in tokens of plain input."""

    read: int
    written: int
    uncached: int
    cost: float

    @property
    def tokens(self) -> int:
        """All tokens of the request."""
        return self.read + self.written + self.uncached


def charge(rules: Caching, tokens: int, read: int, cached: int) -> Usage:
    """Return the usage when `read` of `tokens` were found and the first `cached` are kept."""
    written = max(0, cached - read)
    uncached = tokens - read - written
    cost = read * rules.read + written * rules.write + uncached
    return Usage(read, written, uncached, cost)


class Cache:
    """The provider's memory of earlier requests, in the order of their times."""

    def __init__(self, rules: Caching) -> None:
        self._rules = rules
        # A prefix is known by the prefix it extends and its last block.
        self._names: dict[tuple[int, Hashable], int] = {}
        self._used: dict[int, float] = {}

    def send(self, request: Request) -> Usage:
        """Send a request: find its longest cached prefix, and remember its prefixes."""
        rules, blocks = self._rules, request.blocks
        names = self._prefixes(blocks)
        ends = [0, *accumulate(block.tokens for block in blocks)]
        if not rules.breakpoints:
            read = 0
            while read < len(names) and self._is_alive(names[read], request.at):
                read += 1
            if ends[-1] >= rules.min_prefix:
                self._used.update((name, request.at) for name in names)
            cached = ends[-1]
        else:
            # Marked prefixes are written, and written prefixes are found.
            marks = self._checked(request)
            written = [m for m in marks[-rules.breakpoints :] if ends[m] >= rules.min_prefix]
            read = max(
                (
                    place
                    for place in _searched_places(blocks, marks, rules.lookback)
                    if self._is_alive(names[place - 1], request.at)
                ),
                default=0,
            )
            renewed = [m for m in marks if m < read and self._is_alive(names[m - 1], request.at)]
            for mark in {*written, *renewed, read} - {0}:
                self._used[names[mark - 1]] = request.at
            cached = ends[written[-1]] if written else 0
        return charge(rules, ends[-1], rules.readable(ends[read]), rules.readable(cached))

    def _checked(self, request: Request) -> list[int]:
        marks = sorted(set(request.marks))
        size = len(request.blocks)
        if marks and not 0 < marks[0] <= marks[-1] <= size:
            raise InvalidInput(f"marks {marks} lie outside of a request of {size} blocks")
        if self._rules.lookback is not None and len(marks) > self._rules.breakpoints:
            raise InvalidInput(
                f"a request has {len(marks)} cache marks; the provider takes "
                f"{self._rules.breakpoints}"
            )
        return marks

    def _is_alive(self, name: int, at: float) -> bool:
        used = self._used.get(name)
        return used is not None and at - used <= self._rules.ttl

    def _prefixes(self, blocks: Iterable[Block]) -> list[int]:
        """Name the prefix that ends with each block."""
        names: list[int] = []
        name = 0
        for block in blocks:
            name = self._names.setdefault((name, block.key), len(self._names) + 1)
            names.append(name)
        return names


def _searched_places(
    blocks: Sequence[Block], marks: Sequence[int], lookback: int | None
) -> Iterable[int]:
    """Yield the places (numbers of blocks) where the provider searches for a cached prefix.

    At most `lookback` positions per mark, beginning with the mark itself; a run of tool calls, or
    of their results, counts as one position.
    """
    if lookback is None:
        yield from marks[-LATEST_MARKS:]
        return
    for mark in marks:
        position = 1
        for place in range(mark, 0, -1):
            yield place
            position += not blocks[place - 1].run
            if position > lookback:
                break
