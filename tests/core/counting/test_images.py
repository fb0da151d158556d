"""Image costs: the vendors' own worked examples, and what must hold for any size."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.core.counting.images import (
    ATTACHMENT_TOKENS,
    IMAGE_FORMULAS,
    UNKNOWN_SIZE,
    image_formula_for_model,
    image_tokens,
)
from muntin.errors import InvalidInput, InvalidType

DETAILS = ("auto", "low", "high", "original")
sides = st.integers(1, 20_000)
formulas = st.sampled_from(sorted(IMAGE_FORMULAS))
details = st.sampled_from(DETAILS)


@pytest.mark.parametrize(
    ("formula", "detail", "width", "height", "tokens"),
    [
        # https://developers.openai.com/api/docs/guides/images-vision
        ("openai-tiles", "high", 1024, 1024, 765),
        ("openai-tiles", "auto", 2048, 4096, 1105),
        ("openai-tiles", "low", 4096, 8192, 85),
        ("openai-tiles", "high", 512, 512, 255),
        ("openai-tiles", "high", 513, 512, 425),
        ("openai-tiles", "high", 1, 1, 255),
        ("openai-tiles-4o-mini", "high", 1024, 1024, 2833 + 4 * 5667),
        ("openai-tiles-4o-mini", "low", 1024, 1024, 2833),
        ("openai-tiles-5", "high", 1024, 1024, 70 + 4 * 140),
        ("openai-tiles-o", "high", 1024, 1024, 75 + 4 * 150),
        ("openai-patches-5.4", "high", 1024, 1024, 1229),
        ("openai-patches-5.4", "high", 2048, 2048, 3000),
        ("openai-patches-5.4", "auto", 2048, 2048, 3000),
        ("openai-patches-5.4", "low", 2048, 2048, math.ceil(4096 * 1.2)),
        ("openai-patches-6", "high", 1024, 1024, 1229),
        ("openai-patches-6", "high", 2048, 2048, 3000),
        ("openai-patches-6", "high", 4096, 512, 2458),
        ("openai-patches-5.6", "high", 4096, 512, math.ceil(64 * 8 * 1.2)),
        ("openai-patches-5.6", "low", 4096, 4096, math.ceil(256 * 1.2)),
        ("openai-patches-5.6", "auto", 4032, 3024, math.ceil(126 * 95 * 1.2)),
        ("openai-patches-5.5", "auto", 3200, 3200, 12_000),
        ("openai-patches-5.5", "original", 9000, 9000, 12_000),
        ("openai-patches-4.1-mini", "auto", 1024, 1024, math.ceil(1024 * 1.62)),
        # The page's earlier editions: 1800x2400 shrinks to 1452 of 1,536 patches.
        ("openai-patches-4.1-nano", "auto", 1800, 2400, math.ceil(1452 * 2.46)),
        ("openai-patches-o4-mini", "auto", 1800, 2400, math.ceil(1452 * 1.72)),
        # https://platform.claude.com/docs/en/build-with-claude/vision#evaluate-image-size
        ("anthropic", "auto", 200, 200, 64),
        ("anthropic", "auto", 1000, 1000, 1296),
        ("anthropic", "auto", 1092, 1092, 1521),
        ("anthropic", "auto", 1920, 1080, 1560),
        ("anthropic", "auto", 2000, 1500, 1564),
        ("anthropic", "auto", 3840, 2160, 1560),
        ("anthropic-high", "auto", 200, 200, 64),
        ("anthropic-high", "auto", 1000, 1000, 1296),
        ("anthropic-high", "auto", 1092, 1092, 1521),
        ("anthropic-high", "auto", 1920, 1080, 2691),
        ("anthropic-high", "auto", 2000, 1500, 3888),
        ("anthropic-high", "auto", 3840, 2160, 4784),
        # https://platform.claude.com/docs/en/build-with-claude/vision-coordinates: 924x1307
        ("anthropic", "auto", 1075, 1520, 33 * 47),
        ("anthropic-high", "auto", 1075, 1520, 2145),
        # https://ai.google.dev/gemini-api/docs/image-understanding#token-calculation
        ("gemini-tiles", "auto", 384, 384, 258),
        ("gemini-tiles", "auto", 960, 540, 6 * 258),
        ("gemini-tiles", "low", 960, 540, 64),
        ("gemini-tiles", "auto", 8000, 400, 258 + 2048),
        # https://ai.google.dev/gemini-api/docs/media-resolution#token-counts
        ("gemini", "auto", 960, 540, 1120),
        ("gemini", "low", 960, 540, 280),
        ("gemini", "original", 960, 540, 2240),
    ],
)
def test_published_figures(formula: str, detail: str, width: int, height: int, tokens: int) -> None:
    assert image_tokens(width, height, detail=detail, formula=formula) == tokens


@given(sides, sides, details, formulas)
def test_every_image_costs_something_whichever_way_it_is_turned(
    width: int, height: int, detail: str, formula: str
) -> None:
    tokens = image_tokens(width, height, detail=detail, formula=formula)
    assert tokens >= 1
    assert tokens == image_tokens(height, width, detail=detail, formula=formula)


@pytest.mark.parametrize(
    ("formula", "detail", "most"),
    [
        ("openai-tiles", "auto", 85 + 8 * 170),
        ("openai-tiles-4o-mini", "auto", 2833 + 8 * 5667),
        ("openai-patches-6", "high", 3_000),
        ("openai-patches-5.6", "low", 308),
        ("openai-patches-5.6", "high", 3_000),
        ("openai-patches-5.5", "auto", 12_000),
        ("openai-patches-5.4", "auto", 3_000),
        ("openai-patches-5.2", "auto", 4_916),
        ("openai-patches-o4-mini", "auto", 2_642),
        ("anthropic", "auto", 1_568),
        ("anthropic-high", "auto", 4_784),
        ("gemini-tiles", "auto", 2_306),
        ("gemini", "auto", 1_120),
    ],
)
def test_no_image_passes_the_cap_of_its_formula(formula: str, detail: str, most: int) -> None:
    @given(sides, sides)
    def holds(width: int, height: int) -> None:
        assert image_tokens(width, height, detail=detail, formula=formula) <= most

    holds()


@given(sides, sides, st.sampled_from(["openai-patches-5.6", "openai-patches-6"]))
def test_the_newest_models_take_an_image_as_it_is(width: int, height: int, formula: str) -> None:
    patches = math.ceil(width / 32) * math.ceil(height / 32)
    assert image_tokens(width, height, formula=formula) == -(-patches * 6 // 5)


@given(sides, formulas, details)
def test_a_size_known_by_half_is_unknown(side: int, formula: str, detail: str) -> None:
    unknown = image_tokens(*UNKNOWN_SIZE, detail=detail, formula=formula)
    for size in ((None, None), (side, None), (None, side)):
        assert image_tokens(*size, detail=detail, formula=formula) == unknown


@pytest.mark.parametrize(
    ("formula", "tokens"),
    [
        ("openai-tiles", 1105),
        ("openai-patches-5.6", 4320),
        ("anthropic", 1560),
        ("anthropic-high", 4784),
        ("gemini-tiles", 1548),
        ("gemini", 1120),
    ],
)
def test_an_unknown_size_errs_high(formula: str, tokens: int) -> None:
    assert image_tokens(None, None, formula=formula) == tokens
    assert tokens >= image_tokens(1024, 1024, formula=formula)


@pytest.mark.parametrize("value", [0, -1])
def test_a_size_below_one_is_named(value: int) -> None:
    with pytest.raises(InvalidInput, match=rf"width must be at least 1 pixel, not {value}"):
        image_tokens(value, 10)
    with pytest.raises(InvalidInput, match="height"):
        image_tokens(None, value)


@pytest.mark.parametrize("value", [1.5, "100", True, 10.0])
def test_a_size_that_is_no_whole_number_is_named(value: object) -> None:
    with pytest.raises(InvalidType, match="height must be a whole number"):
        image_tokens(10, value)  # type: ignore[arg-type]


def test_unknown_words_list_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="detail 'fine'; known: auto, low, high, original"):
        image_tokens(1, 1, detail="fine")
    with pytest.raises(InvalidInput, match="formula 'magic'; known: openai-tiles,"):
        image_tokens(1, 1, formula="magic")


@pytest.mark.parametrize(
    ("model", "formula"),
    [
        ("gpt-4o", "openai-tiles"),
        ("gpt-4o-2024-11-20", "openai-tiles"),
        ("openai/gpt-4o-mini", "openai-tiles-4o-mini"),
        ("gpt-4-turbo", "openai-tiles"),
        ("gpt-4.1", "openai-tiles"),
        ("gpt-4.1-mini", "openai-patches-4.1-mini"),
        ("gpt-4.1-nano-2025-04-14", "openai-patches-4.1-nano"),
        ("gpt-5", "openai-tiles-5"),
        ("gpt-5.1-codex", "openai-tiles-5"),
        ("gpt-5-mini", "openai-patches-5.2"),
        ("gpt-5-nano", "openai-patches-5-nano"),
        ("gpt-5.2", "openai-patches-5.2"),
        ("gpt-5.4-mini", "openai-patches-5.4"),
        ("gpt-5.5", "openai-patches-5.5"),
        ("gpt-5.6-terra", "openai-patches-5.6"),
        ("gpt-6-astra", "openai-patches-6"),
        ("gpt-6.1-sol", "openai-patches-6"),
        ("o1-pro", "openai-tiles-o"),
        ("o3", "openai-tiles-o"),
        ("o4-mini", "openai-patches-o4-mini"),
        ("claude-3-5-sonnet-20241022", "anthropic"),
        ("anthropic/claude-3.7-sonnet", "anthropic"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "anthropic"),
        ("claude-opus-4-6", "anthropic"),
        ("claude-haiku-4-5", "anthropic"),
        ("claude-opus-4-7", "anthropic-high"),
        ("anthropic/claude-opus-4.8", "anthropic-high"),
        ("claude-sonnet-5", "anthropic-high"),
        ("claude-fable-5-1", "anthropic-high"),
        ("gemini-2.5-pro", "gemini-tiles"),
        ("models/gemini-2.0-flash", "gemini-tiles"),
        ("google/gemini-3.8-flash", "gemini"),
        ("llama-4-maverick", "anthropic"),
        ("", "anthropic"),
    ],
)
def test_image_formula_for_model(model: str, formula: str) -> None:
    assert image_formula_for_model(model) == formula
    assert formula in IMAGE_FORMULAS


def test_every_attachment_has_a_cost() -> None:
    assert dict(ATTACHMENT_TOKENS) == {
        "image": image_tokens(1024, 1024, formula="anthropic"),
        "document": 1_500,
        "audio": 1_920,
        "video": 18_000,
    }
    with pytest.raises(TypeError):
        ATTACHMENT_TOKENS["image"] = 0  # type: ignore[index]
