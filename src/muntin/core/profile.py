"""Profiles: what a model's provider demands of a window and what it caches, as data.

The table holds the published rules of prompt caching; its prices are defaults, which
`models.caching_for` refines with the prices of `genai-prices`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from muntin.core.checks import check_size, shown
from muntin.core.counting.images import image_formula_for_model
from muntin.core.message import Message
from muntin.core.model_name import ModelName
from muntin.errors import InvalidInput, InvalidType

# The message in front where a provider wants a user message first and the window has none.
OMITTED = Message("user", "(earlier messages omitted)")

# Providers whose conversations must open with a user message:
# https://docs.claude.com/en/api/messages (alternating turns, user first)
# https://ai.google.dev/api/caching#Content (a call follows a user turn)
_USER_FIRST = ("anthropic", "google")
# The same two providers take system text apart from the conversation, in front of it; later system
# text stays where it is, as the user's.
_SYSTEM_FIRST = _USER_FIRST


@dataclass(frozen=True, slots=True)
class Caching:
    """The caching rules of one model; prices are multiples of the price of plain input.

    `breakpoints` is how many a request may have (0: the provider finds the longest known prefix by
    itself). `lookback` is how many blocks a read looks back from a breakpoint (None: no limit, and
    the match is exactly at a breakpoint). A prefix below `min_prefix` tokens is not cached; a
    cached prefix grows in steps of `granularity` tokens. `ttl` is in seconds.
    `assistant_breakpoints` says whether a breakpoint may stand on an assistant's message.
    """

    min_prefix: int
    write: float
    read: float
    breakpoints: int = field(default=0, kw_only=True)
    lookback: int | None = field(default=None, kw_only=True)
    granularity: int = field(default=1, kw_only=True)
    ttl: float = field(default=300.0, kw_only=True)
    assistant_breakpoints: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        check_size(self.min_prefix, "Caching.min_prefix")
        check_size(self.breakpoints, "Caching.breakpoints")
        if self.lookback is not None:
            check_size(self.lookback, "Caching.lookback")
        if check_size(self.granularity, "Caching.granularity") == 0:
            raise InvalidInput("Caching.granularity must be positive")
        for name in ("write", "read", "ttl"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InvalidType(f"Caching.{name} must be a number, not {shown(value)}")
            if not 0 <= value < float("inf"):  # NaN is not
                raise InvalidInput(
                    f"Caching.{name} must be finite and not negative, got {shown(value)}"
                )

    def readable(self, tokens: int) -> int:
        """Return how many tokens of a shared beginning can be read: none below the minimum, and
        above it whole steps."""
        if tokens < self.min_prefix:
            return 0
        return tokens - (tokens - self.min_prefix) % self.granularity


def _anthropic(min_prefix: int) -> Caching:
    # Four breakpoints, 20 blocks back, 5 minutes; a write costs 1.25 (2 for an hour), a read 0.1:
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    return Caching(min_prefix, 1.25, 0.1, breakpoints=4, lookback=20, ttl=300)


def _automatic(read: float) -> Caching:
    # From 1,024 tokens in steps of 128, writes free, kept 5 to 10 minutes when idle; the price of
    # a read by model: https://developers.openai.com/api/docs/guides/prompt-caching and
    # https://developers.openai.com/api/docs/pricing
    return Caching(1024, 1.0, read, granularity=128, ttl=300)


# A match exactly at a breakpoint, at most four written a request, none on an assistant's message,
# kept 30 minutes: https://developers.openai.com/api/docs/guides/prompt-caching
_EXPLICIT = Caching(1024, 1.25, 0.1, breakpoints=4, ttl=1800, assistant_breakpoints=False)


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

# Patterns of Claude's names, whatever route stands before them.
# Thoughts are bound to what stands before them since Fable 5.1, Mythos 5.1 and the 5.5 models; a
# model of a name that is not known counts as bound:
# https://platform.claude.com/docs/en/build-with-claude/extended-thinking (prefix checks)
_UNBOUND = re.compile(
    r"claude-(v?[123]\b|instant|(opus|sonnet|haiku)-4\b|(fable|mythos|opus|sonnet|haiku)-5\b(?!-\d\b))"
)
# System messages inside of a conversation, and texts that the model sees for one turn only:
# https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
_MID_SYSTEM = re.compile(r"claude-((fable|mythos)-5|opus-(4-8|5)|(sonnet|haiku)-5-5)\b")


def _claude(model: str) -> str:
    """Return the name of a Claude model without its route, dots written as dashes; else nothing."""
    name = re.sub(r"[.@_]", "-", model.lower())
    place = name.rfind("claude-")
    return name[place:] if place >= 0 else ""


# Models of Claude that load deferred tools by references:
# https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool
_REFERS = re.compile(
    r"anthropic/claude-((sonnet|opus|haiku)-(4-[5-9]\b|[5-9]\b|\d\d)|(fable|mythos)-)"
)


def caching_of(model: str) -> Caching | None:
    """Return the caching rules of `model`, written `provider/model`, with the table's prices.

    None if it caches nothing, or is not known.
    """
    name = model.lower().replace(".", "-")
    return next((rules for pattern, rules in _RULES if pattern.match(name)), None)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a provider takes in one request, as it is encoded.

    An image may have `side` pixels a side; where there are more than `many` images, `side_of_many`.
    """

    bytes: int
    messages: int
    images: int
    side: int
    many: int
    side_of_many: int


# https://platform.claude.com/docs/en/build-with-claude/vision and
# https://platform.claude.com/docs/en/api/errors (request size); models with a window of 200,000
# tokens take 100 images.
_CLAUDE_LIMITS = RequestLimits(32_000_000, 100_000, 600, 8_000, 20, 2_000)
_SMALL_WINDOW = re.compile(
    r"claude-(v?[123]\b|instant|haiku-4|opus-4(-[015]|-2025\d*)?(?!-)|sonnet-4(-[05]|-2025\d*)?(?!-[6-9])\b)"
)
# What Claude adds to a request, without and with tools: recorded of Claude Sonnet 4.5.
_ADDED_BY_CLAUDE = (30, 520)
# Whether a model reads the reasoning of earlier turns again; the first match decides. A model that
# is not listed drops it, or never gets it back.
_KEEPS_THOUGHTS: tuple[tuple[str, bool], ...] = (
    (r"anthropic/claude-(opus-4-[5-9]|sonnet-4-[6-9]|haiku-5-[5-9])\b", True),
    (r"anthropic/claude-(2|3|v1|instant|opus-4|sonnet-4|haiku-[45])", False),
    (r"anthropic/claude-", True),
    (r"openai/gpt-5-[6-9]\b|openai/gpt-([6-9]|\d\d)\b", True),
)


@dataclass(frozen=True, slots=True)
class Profile:
    """The rules of one model: how it counts, how its conversations must begin, what it caches.

    `system_first` says that the system messages that open a window are sent apart, in front, and
    later system messages in their place as the user's. `caching` is None if nothing is cached, or
    nothing is known. `tool_loading` says how a tool that the model has found gets into a request:
    by a reference to its deferred declaration, as an item behind the result, or as text. With
    `binds` a thought is valid only while all that stood before it is sent unchanged. `mid_system`
    says whether system messages may stand inside of a conversation, and `clear_at` whether they may
    hold for one turn. With `keeps_thoughts` the model reads the thoughts of earlier turns again.
    `added_tokens` are what the provider adds to a request, without and with tools,
    `limits` what it takes in one request: None if that is not known.
    """

    name: str
    user_first: bool = field(default=False, kw_only=True)
    image_formula: str = field(default="openai-tiles", kw_only=True)
    tokenizer: str | None = field(default=None, kw_only=True)
    system_first: bool = field(default=False, kw_only=True)
    caching: Caching | None = field(default=None, kw_only=True)
    tool_loading: Literal["reference", "item", "text"] = field(default="text", kw_only=True)
    binds: bool = field(default=False, kw_only=True)
    mid_system: bool = field(default=False, kw_only=True)
    clear_at: bool = field(default=False, kw_only=True)
    added_tokens: tuple[int, int] = field(default=(0, 0), kw_only=True)
    limits: RequestLimits | None = field(default=None, kw_only=True)
    keeps_thoughts: bool = field(default=False, kw_only=True)

    @classmethod
    def for_model(cls, model: str) -> Profile:
        """Return the profile of `model`, written `provider/model`.

        For the models of OpenAI, of Claude and of Gemini the provider may be left out.
        """
        if not isinstance(model, str):
            raise InvalidType(f"a model must be a str like 'openai/gpt-4o', not {shown(model)}")
        return _profile(model)

    @classmethod
    def of(cls, model: str | None) -> Profile | None:
        """Return the same as `for_model`; None for a model whose provider is not known."""
        if model is None:
            return None
        named = ModelName.parse(model)
        return cls.for_model(model) if named.provider or named.maker else None


@lru_cache(maxsize=256)  # the same few models, for every window
def _profile(model: str) -> Profile:
    named = ModelName.parse(model)
    if named.provider is None:
        if named.maker is None:
            raise InvalidInput(
                f"the provider of model {model!r} is not known; write provider/model, as in "
                "'openai/gpt-4o'"
            )
        named = ModelName(named.maker, model)
    name = str(named)
    caching = caching_of(name)
    if named.inner is not None and named.inner.provider is not None:
        caching = caching_of(str(named.inner))
        if caching is not None and caching.breakpoints:
            caching = None  # behind a route marks would not arrive
    claude = _claude(model)
    mid_system = named.provider == "anthropic" and _MID_SYSTEM.match(claude) is not None
    return Profile(
        name,
        user_first=named.provider in _USER_FIRST,
        image_formula=image_formula_for_model(name),
        tokenizer=name,
        system_first=named.provider in _SYSTEM_FIRST,
        caching=caching,
        tool_loading="reference" if _REFERS.match(name.lower().replace(".", "-")) else "text",
        binds=bool(claude) and _UNBOUND.match(claude) is None,
        mid_system=mid_system,
        clear_at=mid_system,
        keeps_thoughts=_keeps_thoughts(named),
        limits=_limits_of(named, claude),
        added_tokens=_ADDED_BY_CLAUDE if named.maker == "anthropic" else (0, 0),
    )


def _limits_of(named: ModelName, claude: str) -> RequestLimits | None:
    if named.maker != "anthropic":
        return None
    is_small = _SMALL_WINDOW.match(claude) is not None
    return replace(_CLAUDE_LIMITS, images=100) if is_small else _CLAUDE_LIMITS


def _keeps_thoughts(named: ModelName) -> bool:
    name = (named.suggestion or str(named)).lower().replace(".", "-")
    return next((keeps for pattern, keeps in _KEEPS_THOUGHTS if re.match(pattern, name)), False)


def as_profile(value: Profile | str | None) -> Profile | None:
    """Return `value` as a Profile; a str is a model name."""
    if value is None or isinstance(value, Profile):
        return value
    return Profile.for_model(value)
