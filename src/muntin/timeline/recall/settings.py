"""How much is recalled: the value that doors are given, and its checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from muntin.core.checks import check_count, check_seconds, check_text, refuse_blank, shown
from muntin.errors import InvalidInput, InvalidType

# Without `tokens` no more than this is recalled, however large the window: it is never cached.
MOST_TOKENS = 4_000
# A window in which less could be recalled is left to the history.
LEAST_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Recall:
    """How much is recalled of what has left the window.

    `tokens` is what the excerpts may have, else `ratio` of the room, 4,000 at most; `limit` how
    many there may be. What takes longer than `timeout` seconds is given up for this turn.

    `embed` is a function of a list of texts, sync or async, that gives a vector for each: what is
    near in meaning counts beside the words. The vectors are kept under the name `embedder`; another
    model needs another name.
    """

    tokens: int | None = None
    ratio: float = 0.15
    limit: int | None = field(default=None, kw_only=True)
    timeout: float = field(default=2.0, kw_only=True)
    embed: Callable[[list[str]], Any] | None = field(default=None, kw_only=True)
    embedder: str = field(default="embed", kw_only=True)

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

    def most(self, room: int) -> int:
        """Return how many tokens the excerpts may have in a window with so much room; 0 if that is
        too little to be worth it."""
        if self.tokens is not None:
            return min(self.tokens, max(0, room))
        share = min(int(room * self.ratio), MOST_TOKENS)
        return share if share >= LEAST_TOKENS else 0


RecallLike: TypeAlias = Recall | bool | Literal["inherit"] | None


def check_recall(value: Any, what: str) -> Any:
    """Return how a door recalls: as it says, by the defaults for True, not at all for False or
    None."""
    if value == "inherit" or isinstance(value, Recall):
        return value
    if isinstance(value, bool | None):
        return Recall() if value else False
    raise InvalidType(
        f"{what}: recall must be Recall(...), True, False or None, not {shown(value)}"
    )
