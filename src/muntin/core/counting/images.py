"""What an image costs in tokens, by the rules the vendors publish.

Owns the formulas, the table from model names to formulas and the defaults for attachments
of which only the kind is known. Must not know messages, nor read an image: sizes come
from the caller.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from math import sqrt
from types import MappingProxyType

from muntin.core.checks import shown
from muntin.core.counting.exact import by_prefix
from muntin.core.counting.sizes import size_of_url
from muntin.core.parts import DETAILS
from muntin.errors import InvalidInput, InvalidType

UNKNOWN_SIZE = (2560, 1440)
"""The assumed size of an image whose size is not known: a full-screen screenshot.

It costs the most that either of Anthropic's tiers takes for a 16:9 image, and six tiles at
OpenAI and Google. Only models that do not scale an image down (GPT-5.5 and later with "auto")
charge clearly more for a larger one.
"""

ATTACHMENT_TOKENS: Mapping[str, int] = MappingProxyType(
    {
        # 1024x1024 in Anthropic's patches (37 * 37), the dearest of the vendors' newest models
        # at that size. Use `image_tokens` when the model or the size is known.
        "image": 1_369,
        # A file by its id, until its size is reported: those recorded had 47 to 801 tokens.
        "document": 1_500,
        # One minute at 32 tokens a second (Gemini 3: 25):
        # https://ai.google.dev/gemini-api/docs/tokens
        "audio": 60 * 32,
        # One minute at about 300 tokens a second, a frame and its sound (Gemini 3: about 100):
        # https://ai.google.dev/gemini-api/docs/video-understanding
        "video": 60 * 300,
    }
)
"""The assumed tokens of an attachment of which only the kind is known."""


def _tiles(base: int, tile: int, width: int, height: int, detail: str) -> int:
    """OpenAI: fit into 2048x2048, then the short side into 768; count 512-pixel tiles."""
    if detail == "low":
        return base
    short, long = sorted((width, height))
    scale = min(Fraction(1), Fraction(2048, long), Fraction(768, short))
    return base + tile * _cells(int(short * scale), int(long * scale), 512)


def _patches(
    percent: int, limits: Mapping[str, tuple[int, int | None]], width: int, height: int, detail: str
) -> int:
    """OpenAI: fit into a square, then into a budget of 32-pixel patches; times a multiplier."""
    side, budget = limits[detail]
    scale = min(Fraction(1), Fraction(side, max(width, height)))
    width, height = round(width * scale), round(height * scale)
    patches = _cells(width, height, 32)
    if budget is not None and patches > budget:
        shrink = sqrt(32 * 32 * budget / (width * height))
        # Shrink on until the sides are whole patches, else the last row and column overflow.
        columns, rows = width * shrink / 32, height * shrink / 32
        shrink *= min(max(1, int(columns)) / columns, max(1, int(rows)) / rows)
        patches = min(budget, _cells(int(width * shrink), int(height * shrink), 32))
    return -(-patches * percent // 100)


def _anthropic(edge: int, budget: int, width: int, height: int, _detail: str) -> int:
    """Anthropic: the largest size of the same shape within an edge and 28-pixel patches."""
    short, long = sorted((width, height))

    def size(length: int) -> tuple[int, int]:
        return length, max(1, round(length / (long / short)))

    def is_too_large(length: int) -> bool:
        length, across = size(length)
        return -(-length // 28) * 28 > edge or _cells(length, across, 28) > budget

    return _cells(*size(bisect_left(range(1, long + 1), True, key=is_too_large)), 28)


def _gemini_tiles(width: int, height: int, detail: str) -> int:
    """Gemini up to 2.5: crops of two thirds of the short side, 258 tokens each."""
    if detail == "low":
        return 64
    if max(width, height) <= 384:
        return 258
    # The page calls the crops "pan and scan" and puts them at about 2048 tokens at most.
    return min(258 * _cells(width, height, max(1, min(width, height) * 2 // 3)), 258 + 2048)


def _fixed(tokens: Mapping[str, int], _width: int, _height: int, detail: str) -> int:
    return tokens[detail]


def _cells(width: int, height: int, cell: int) -> int:
    """Count the squares of `cell` pixels that cover an image."""
    return -(-max(1, width) // cell) * -(-max(1, height) // cell)


def _limits(
    low: tuple[int, int | None],
    high: tuple[int, int | None],
    original: tuple[int, int | None],
    auto: tuple[int, int | None],
) -> dict[str, tuple[int, int | None]]:
    return {"low": low, "high": high, "original": original, "auto": auto}


# Longest side in pixels, then patches. The API refuses an image of more than 30,000 patches.
_SMALL, _HIGH, _LARGE, _WIDE = (512, None), (2048, 2_500), (6_000, 10_000), (2048, 6_144)
_FULL: tuple[int, int | None] = (65_535, None)
# Named on the page's earlier editions for these two models only, with no limit to the side.
_CAPPED = (1 << 62, 1_536)

IMAGE_FORMULAS: Mapping[str, Callable[[int, int, str], int]] = MappingProxyType(
    {
        # https://developers.openai.com/api/docs/guides/images-vision#tile-based-image-tokenization
        "openai-tiles": partial(_tiles, 85, 170),
        "openai-tiles-4o-mini": partial(_tiles, 2_833, 5_667),
        "openai-tiles-5": partial(_tiles, 70, 140),
        "openai-tiles-o": partial(_tiles, 75, 150),
        # https://developers.openai.com/api/docs/guides/images-vision#model-sizing-behavior
        "openai-patches-6": partial(
            _patches, 120, _limits(_SMALL, (65_535, 2_500), _FULL, auto=_FULL)
        ),
        "openai-patches-5.6": partial(_patches, 120, _limits(_SMALL, _HIGH, _FULL, auto=_FULL)),
        "openai-patches-5.5": partial(_patches, 120, _limits(_SMALL, _HIGH, _LARGE, auto=_LARGE)),
        "openai-patches-5.4": partial(_patches, 120, _limits(_WIDE, _HIGH, _LARGE, auto=_HIGH)),
        "openai-patches-5.2": partial(_patches, 120, dict.fromkeys(DETAILS, _WIDE)),
        "openai-patches-5-nano": partial(_patches, 150, dict.fromkeys(DETAILS, _WIDE)),
        "openai-patches-4.1-mini": partial(_patches, 162, dict.fromkeys(DETAILS, _WIDE)),
        "openai-patches-4.1-nano": partial(_patches, 246, dict.fromkeys(DETAILS, _CAPPED)),
        "openai-patches-o4-mini": partial(_patches, 172, dict.fromkeys(DETAILS, _CAPPED)),
        # https://platform.claude.com/docs/en/build-with-claude/vision#evaluate-image-size
        "anthropic": partial(_anthropic, 1_568, 1_568),
        "anthropic-high": partial(_anthropic, 2_576, 4_784),
        # https://ai.google.dev/gemini-api/docs/image-understanding#token-calculation
        "gemini-tiles": _gemini_tiles,
        # https://ai.google.dev/gemini-api/docs/media-resolution#token-counts; its "ultra high"
        # stands for "original".
        "gemini": partial(_fixed, {"low": 280, "high": 1_120, "original": 2_240, "auto": 1_120}),
    }
)
"""The formulas by name: from width, height and detail to tokens."""

# Where a page names no rule for a model: the rule of the next model of its family that errs high.
_MODELS: Mapping[str, str] = {
    "chatgpt-4o": "openai-tiles",
    "gpt-4": "openai-tiles",
    "gpt-4.1": "openai-tiles",
    "gpt-4.1-mini": "openai-patches-4.1-mini",
    "gpt-4.1-nano": "openai-patches-4.1-nano",
    "gpt-4.5": "openai-tiles",
    "gpt-4o": "openai-tiles",
    "gpt-4o-mini": "openai-tiles-4o-mini",
    "gpt-5": "openai-tiles-5",
    "gpt-5-mini": "openai-patches-5.2",
    "gpt-5-nano": "openai-patches-5-nano",
    "gpt-5.2": "openai-patches-5.2",
    "gpt-5.3": "openai-patches-5.2",
    "gpt-5.4": "openai-patches-5.4",
    "gpt-5.5": "openai-patches-5.5",
    "gpt-5.6": "openai-patches-5.6",
    "gpt-6": "openai-patches-6",
    "gpt-6.1": "openai-patches-6",
    "o1": "openai-tiles-o",
    "o3": "openai-tiles-o",
    "o4-mini": "openai-patches-o4-mini",
    # The high tier is "Claude 4.7 and later models".
    "claude": "anthropic-high",
    "claude-2": "anthropic",
    "claude-3": "anthropic",
    "claude-haiku-4": "anthropic",
    "claude-opus-4": "anthropic",
    "claude-opus-4-7": "anthropic-high",
    "claude-opus-4.7": "anthropic-high",
    "claude-opus-4-8": "anthropic-high",
    "claude-opus-4.8": "anthropic-high",
    "claude-sonnet-4": "anthropic",
    "gemini": "gemini",
    "gemini-1": "gemini-tiles",
    "gemini-2": "gemini-tiles",
}


def image_formula_for_model(model: str) -> str:
    """Return the name of the formula a model counts images by.

    A model that is not known gets "anthropic": 28-pixel patches up to 1,568 tokens, which are
    also Qwen's patches and more than OpenAI's tiles.
    """
    return by_prefix(model, _MODELS) or "anthropic"


def image_tokens(
    width: int | None, height: int | None, *, detail: str = "auto", formula: str = "openai-tiles"
) -> int:
    """Return what an image of this size costs; an unknown size is taken as `UNKNOWN_SIZE`.

    `detail` is OpenAI's: "auto", "low", "high" or "original"; Gemini's media resolutions follow
    it, Anthropic has none. `formula` is a name in `IMAGE_FORMULAS`.
    """
    if detail not in DETAILS:
        raise InvalidInput(f"unknown detail {shown(detail)}; known: {', '.join(DETAILS)}")
    if formula not in IMAGE_FORMULAS:
        raise InvalidInput(f"unknown formula {shown(formula)}; known: {', '.join(IMAGE_FORMULAS)}")
    for name, value in (("width", width), ("height", height)):
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidType(f"image {name} must be a whole number of pixels, not {shown(value)}")
        if value < 1:
            raise InvalidInput(f"image {name} must be at least 1 pixel, not {value}")
    size = UNKNOWN_SIZE if width is None or height is None else (width, height)
    return IMAGE_FORMULAS[formula](*size, detail)


def image_size(url: str) -> tuple[int, int]:
    """Return width and height of the image in a data URL; (1, 1) if they are not known."""
    return size_of_url(url) or (1, 1)
