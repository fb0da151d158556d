"""Prompt caching as data: what a provider caches, how it finds it again, and what it charges.

The table holds the rules as published; prices in it are defaults, which `models.caching_for`
refines with those of `genai-prices`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from muntin.core.checks import check_size
from muntin.errors import InvalidInput, InvalidType


@dataclass(frozen=True, slots=True)
class Caching:
    """The caching rules of one model; prices are multiples of the price of plain input.

    `marks` is how many breakpoints a request may carry (0: the longest known prefix is found by
    itself). `lookback` is how many blocks a read looks back from a mark (None: no limit, and the
    match is exactly at a mark). A prefix below `min_prefix` tokens is not cached; a cached one
    grows in steps of `granularity` tokens. `ttl` is in seconds. `assistant_marks` says whether a
    mark may stand on an assistant's message.
    """

    min_prefix: int
    write: float
    read: float
    marks: int = field(default=0, kw_only=True)
    lookback: int | None = field(default=None, kw_only=True)
    granularity: int = field(default=1, kw_only=True)
    ttl: float = field(default=300.0, kw_only=True)
    assistant_marks: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        check_size(self.min_prefix, "Caching.min_prefix")
        check_size(self.marks, "Caching.marks")
        if self.lookback is not None:
            check_size(self.lookback, "Caching.lookback")
        if check_size(self.granularity, "Caching.granularity") == 0:
            raise InvalidInput("Caching.granularity must be positive")
        for name in ("write", "read", "ttl"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InvalidType(f"Caching.{name} must be a number, not {value!r}")
            if not 0 <= value < float("inf"):  # NaN is not
                raise InvalidInput(f"Caching.{name} must be finite and not negative, got {value!r}")


def _anthropic(min_prefix: int) -> Caching:
    # Four breakpoints, 20 blocks back, 5 minutes; a write costs 1.25 (2 for an hour), a read 0.1:
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    return Caching(min_prefix, 1.25, 0.1, marks=4, lookback=20, ttl=300)


def _automatic(read: float) -> Caching:
    # From 1,024 tokens in steps of 128, writes free, kept 5 to 10 minutes when idle; the price of
    # a read by model: https://developers.openai.com/api/docs/guides/prompt-caching and
    # https://developers.openai.com/api/docs/pricing
    return Caching(1024, 1.0, read, granularity=128, ttl=300)


# A match exactly at a breakpoint, at most four written a request, none on an assistant's message,
# kept 30 minutes: https://developers.openai.com/api/docs/guides/prompt-caching
_EXPLICIT = Caching(1024, 1.25, 0.1, marks=4, ttl=1800, assistant_marks=False)


def _implicit(min_prefix: int) -> Caching:
    # Found by itself, no storage price: https://ai.google.dev/gemini-api/docs/caching
    # A cached token costs a tenth: https://ai.google.dev/gemini-api/docs/pricing
    return Caching(min_prefix, 1.0, 0.1, ttl=300)


# Patterns of `provider/model`, dots written as dashes; the first that matches at the beginning
# decides, and None says that the model caches nothing.
# Minimum prefixes of Claude: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
# (cache limitations); of Gemini: https://ai.google.dev/gemini-api/docs/caching
_TABLE: tuple[tuple[str, Caching | None], ...] = (
    (r"anthropic/claude-(opus|fable|mythos)-5", _anthropic(512)),
    (r"anthropic/claude-opus-4-[56]\b", _anthropic(4096)),
    (r"anthropic/claude-haiku-4-5", _anthropic(4096)),
    (r"anthropic/claude-opus-4-7", _anthropic(2048)),
    (r"anthropic/claude-3-(5-)?haiku", _anthropic(2048)),
    (r"anthropic/claude-(2|v1|instant)", None),
    (r"anthropic/claude-", _anthropic(1024)),
    (r"openai/gpt-5-[6-9]\b|openai/gpt-([6-9]|\d\d)\b", _EXPLICIT),
    (r"openai/gpt-(3|4\b(?!-[15]\b))|openai/gpt-4o-2024-05-13", None),
    (r"openai/gpt-5(-\d)?-pro|openai/o[13]-pro", None),
    (r"openai/gpt-4-1\b|openai/o3\b(?!-mini)|openai/o4|openai/codex", _automatic(0.25)),
    (r"openai/(gpt-4o|chatgpt-4o|o1|o3-mini|gpt-4-5)", _automatic(0.5)),
    (r"openai/(gpt-|o\d)", _automatic(0.1)),
    (r"google/gemini-2-5", _implicit(2048)),
    (r"google/gemini-[12]\b|google/gemini-pro", None),
    (r"google/gemini-", _implicit(4096)),
)
_RULES = [(re.compile(pattern), rules) for pattern, rules in _TABLE]


def caching_of(model: str) -> Caching | None:
    """Return the caching rules of `model`, written `provider/model`, with the table's prices.

    None if it caches nothing, or nothing is known of it.
    """
    name = model.lower().replace(".", "-")
    return next((rules for pattern, rules in _RULES if pattern.match(name)), None)
