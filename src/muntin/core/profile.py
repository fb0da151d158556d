"""Profiles: what a model's provider demands of a window, as data."""

from __future__ import annotations

from dataclasses import dataclass, field

from muntin.core.caching import Caching, caching_of
from muntin.core.counting.exact import encoding_for_model
from muntin.core.counting.images import image_formula_for_model
from muntin.core.message import Message
from muntin.errors import InvalidInput, InvalidType

# Stands in front where a provider wants a user message first and the window has none.
OMITTED = Message("user", "(earlier messages omitted)")

# Providers whose conversations must open with a user message:
# https://docs.claude.com/en/api/messages (alternating turns, user first)
# https://ai.google.dev/api/caching#Content (a call follows a user turn)
_USER_FIRST = ("anthropic", "google")
# The same two take system text apart from the conversation, in front of it.
_SYSTEM_FIRST = _USER_FIRST


@dataclass(frozen=True, slots=True)
class Profile:
    """What one model allows: how it counts, what its conversations must begin with, what it caches.

    `system_first` says that system messages are sent in front of all others; `caching` is None
    where nothing is cached, or nothing is known of it.
    """

    name: str
    user_first: bool = field(default=False, kw_only=True)
    image_formula: str = field(default="openai-tiles", kw_only=True)
    tokenizer: str | None = field(default=None, kw_only=True)
    system_first: bool = field(default=False, kw_only=True)
    caching: Caching | None = field(default=None, kw_only=True)

    @classmethod
    def for_model(cls, model: str) -> Profile:
        """Return the profile of `model`, written `provider/model`.

        The provider may be left out of the models of OpenAI, of Claude and of Gemini.
        """
        if not isinstance(model, str):
            raise InvalidType(f"a model must be a str like 'openai/gpt-4o', not {model!r}")
        if "/" not in model:
            model = f"{_provider_of(model)}/{model}"
        provider = model.partition("/")[0]
        return cls(
            model,
            user_first=provider in _USER_FIRST,
            image_formula=image_formula_for_model(model),
            tokenizer=model,
            system_first=provider in _SYSTEM_FIRST,
            caching=caching_of(model),
        )

    @classmethod
    def of(cls, model: str | None) -> Profile | None:
        """Do what `for_model` does; a model whose name says no provider has no profile."""
        return cls.for_model(model) if model is not None and "/" in model else None


def _provider_of(model: str) -> str:
    if encoding_for_model(model) is not None:
        return "openai"
    for family, provider in (("claude", "anthropic"), ("gemini", "google")):
        if model.lower().startswith(family):
            return provider
    raise InvalidInput(
        f"the provider of model {model!r} is not known; write provider/model, as in 'openai/gpt-4o'"
    )


def as_profile(value: Profile | str | None) -> Profile | None:
    """Return `value` as a Profile; a str is a model name."""
    if value is None or isinstance(value, Profile):
        return value
    return Profile.for_model(value)
