"""Usage: the tokens that providers billed, of one request, of several, of a whole session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider billed them.

    `input` is the whole input, including tokens read from and written to the cache.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )

    def __str__(self) -> str:
        cached = f" ({self.cache_read:,} from the cache)" if self.cache_read else ""
        return f"{self.input:,} in{cached}, {self.output:,} out"

    @classmethod
    def from_dict(cls, value: Any) -> Usage:
        """Read usage from JSON values; a value that is no count becomes 0."""
        if not isinstance(value, Mapping):
            return cls()
        counts = {spec.name: value.get(spec.name) for spec in fields(cls)}
        return cls(**{name: n for name, n in counts.items() if type(n) is int and n >= 0})


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """The usage of a session: of the answers of its turns, and of its summaries."""

    answers: Usage = field(default_factory=Usage)
    summaries: Usage = field(default_factory=Usage)

    def and_in_vain(self, text: str | None) -> SessionUsage:
        """Add the stored usage of failed summaries, given as JSON."""
        vain = Usage() if text is None else Usage.from_dict(json.loads(text))
        return SessionUsage(self.answers, self.summaries + vain)

    def words(self) -> Iterable[str]:
        """Say what was billed, if it is known."""
        if self.answers != Usage():
            yield f"billed for answers: {self.answers}"
        if self.summaries != Usage():
            yield f"billed for summaries: {self.summaries}"

    @property
    def total(self) -> Usage:
        """Both together."""
        return self.answers + self.summaries
