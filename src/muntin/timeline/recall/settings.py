"""How much is recalled and how wishes are kept: the settings of the interfaces, their checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from muntin.core.checks import check_count, check_seconds, check_text, refuse_blank, shown
from muntin.errors import InvalidInput, InvalidType

# Without `tokens`, at most this many are recalled, however large the window: recall is not cached.
MOST_TOKENS = 4_000
# If fewer tokens could be recalled, nothing is, and the history gets the room.
LEAST_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Recall:
    """How much is recalled of messages that have left the window.

    `tokens` are the tokens of the excerpts, else `ratio` of the room, 4,000 at most; `limit` is how
    many excerpts there may be. A search that takes longer than `timeout` seconds is given up for
    this turn.

    `embed` is a function of a list of texts, sync or async, that returns a vector for each: texts
    near in meaning count beside the words. The vectors are stored under the name `embedder`;
    another model needs another name. With `results=False` no results of tools are recalled.
    """

    tokens: int | None = None
    ratio: float = 0.15
    limit: int | None = field(default=None, kw_only=True)
    timeout: float = field(default=2.0, kw_only=True)
    embed: Callable[[list[str]], Any] | None = field(default=None, kw_only=True)
    embedder: str = field(default="embed", kw_only=True)
    results: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("tokens", "limit"):
            value = getattr(self, name)
            if value is not None:
                check_count(value, f"Recall.{name}")
        ratio = self.ratio
        if not isinstance(ratio, int | float) or isinstance(ratio, bool):
            raise InvalidType(f"Recall.ratio must be a number, not {shown(ratio)}")
        if not (math.isfinite(ratio) and 0 < ratio < 1):
            raise InvalidInput(f"Recall.ratio must be above 0 and below 1, got {shown(ratio)}")
        check_seconds(self.timeout, "Recall.timeout")
        if self.embed is not None and not callable(self.embed):
            raise InvalidType(f"Recall.embed must be a function, not {shown(self.embed)}")
        refuse_blank(check_text(self.embedder, "Recall.embedder"), "Recall.embedder")
        if not isinstance(self.results, bool):
            raise InvalidType(f"Recall.results must be True or False, not {shown(self.results)}")

    def most(self, room: int) -> int:
        """Return how many tokens the excerpts may have in a window with this room; 0 if that is too
        few to be useful."""
        if self.tokens is not None:
            return min(self.tokens, max(0, room))
        share = min(int(room * self.ratio), MOST_TOKENS)
        return share if share >= LEAST_TOKENS else 0


@dataclass(frozen=True, slots=True)
class Standing:
    """How many tokens the block of standing wishes has at most: an eighth of the room at most."""

    tokens: int = 400

    def __post_init__(self) -> None:
        check_count(self.tokens, "Standing.tokens")

    def most(self, room: int) -> int:
        """Return how many tokens the block may have in a window with this room."""
        return max(0, min(self.tokens, room // 8))


StandingLike: TypeAlias = Standing | bool | Literal["inherit"] | None
RecallLike: TypeAlias = Recall | bool | Literal["inherit"] | None


def check_recall(value: Any, what: str) -> Any:
    """Return the recall setting of an interface: the defaults for True, off for False or None."""
    if value == "inherit" or isinstance(value, Recall):
        return value
    if isinstance(value, bool | None):
        return Recall() if value else False
    raise InvalidType(
        f"{what}: recall must be Recall(...), True, False or None, not {shown(value)}"
    )


def check_standing(value: Any, what: str) -> Any:
    """Return the setting of standing wishes: the defaults for True, off for False or None."""
    if value == "inherit" or isinstance(value, Standing):
        return value
    if isinstance(value, bool | None):
        return Standing() if value else False
    raise InvalidType(
        f"{what}: standing must be Standing(...), True, False or None, not {shown(value)}"
    )
