"""A model's name is taken apart at its first slash, and put together again as it was."""

import pytest

from muntin.core.model_name import ModelName


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("gpt-4o", None, "gpt-4o"),
        ("openrouter/anthropic/claude", "openrouter", "anthropic/claude"),
        ("openai/", "openai", ""),
        ("/gpt-4o", "", "gpt-4o"),
        ("", None, ""),
    ],
)
def test_the_first_slash_splits(name: str, provider: str | None, model: str):
    assert ModelName.parse(name) == ModelName(provider, model)
    assert str(ModelName.parse(name)) == name
