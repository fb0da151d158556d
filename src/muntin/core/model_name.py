"""The name of a model, taken apart in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The makers of models, by the beginning of the name.
_FAMILIES = (
    (re.compile(r"(ft:)?(gpt-?\d|gpt-oss|chatgpt|o\d\b|codex)"), "openai"),
    (re.compile(r"([a-z]+\.)?(anthropic\.)?claude"), "anthropic"),
    (re.compile(r"gemini|gemma"), "google"),
)


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

    @property
    def inner(self) -> ModelName | None:
        """The name behind a route: `anthropic/claude` of `openrouter/anthropic/claude`."""
        return ModelName.parse(self.model) if "/" in self.model else None

    @property
    def maker(self) -> str | None:
        """The maker of the model, by its family name; None if the name tells none."""
        last = self.model.rpartition("/")[2].lower()
        return next((maker for begins, maker in _FAMILIES if begins.match(last)), None)

    @property
    def adaptations(self) -> tuple[str, ...]:
        """The providers whose adaptation of a prompt fits, the best first."""
        route = self.inner.provider if self.inner is not None else None
        if self.provider is None:
            names = (route, self.maker)
        elif self.provider == "openai":
            # OpenAI's own models have no slash: here another server speaks OpenAI's protocol.
            names = (route, self.provider)
        else:
            names = (self.provider, route)
        return tuple(name for name in names if name)

    @property
    def suggestion(self) -> str | None:
        """The same model with its provider; None if its maker is not known."""
        last = self.model.rpartition("/")[2]
        return f"{self.maker}/{last}" if self.maker else None

    def __str__(self) -> str:
        return self.model if self.provider is None else f"{self.provider}/{self.model}"
