"""The name of a model, taken apart in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model as people write it: `provider/model`, or just `model` (`provider` is None)."""

    provider: str | None
    model: str

    @classmethod
    def parse(cls, name: str) -> ModelName:
        """Split at the first slash: `openrouter/anthropic/claude` is a model of openrouter."""
        provider, slash, model = name.partition("/")
        return cls(provider, model) if slash else cls(None, name)

    def __str__(self) -> str:
        return self.model if self.provider is None else f"{self.provider}/{self.model}"
