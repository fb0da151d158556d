"""Lone surrogates are refused, replaced or kept; and a digest names a text by its content."""

import pytest

from muntin.core.checks import (
    check_text,
    digest,
    has_surrogates,
    keep_surrogates,
    refuse_surrogates,
    replace_surrogates,
)
from muntin.errors import InvalidInput

HALF = "caf\udce9"


@pytest.mark.parametrize("text", ["", "plain", "café", "✈ \U0001f600"])
def test_whole_text_passes_every_policy(text: str):
    assert not has_surrogates(text)
    refuse_surrogates(text, "it")
    assert check_text(text, "it") == replace_surrogates(text) == text
    assert keep_surrogates(text) == text.encode()


def test_half_a_character_is_refused_replaced_or_kept():
    assert has_surrogates(HALF)
    with pytest.raises(InvalidInput, match=r"it has a lone surrogate \(U\+DCE9\) at character 3"):
        refuse_surrogates(HALF, "it")
    assert replace_surrogates(HALF) == "caf?"
    assert keep_surrogates(HALF).decode("utf-8", "surrogatepass") == HALF


def test_a_digest_never_changes_for_it_is_stored():
    assert digest("text", size=8) == "d7f35fa228381a1c"
    assert digest("café", size=12) == "c890e37a8f1c079835e4e553"
    assert digest(HALF, size=8) != digest("caf?", size=8)
