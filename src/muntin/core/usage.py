"""Usage: the tokens that providers billed, of one request, of several, of a whole session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple


class AnswerTokens(NamedTuple):
    """What a provider reported of an answer: its tokens, and how many of them are reasoning.

    `in_run` says that the tool loop of the answer goes on: its reasoning is read again.
    """

    output: int
    reasoning: int = 0
    in_run: bool = False


class ServerLoop(NamedTuple):
    """Several requests that a provider made of one: the inputs of the first and of the last, and
    the tokens of the answer when it is sent back. `first` is 0 if the provider compacted it."""

    first: int
    last: int
    answer: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider billed them.

    `input` is the whole input, including tokens read from and written to the cache; `reasoning` are
    the tokens of the output that only the model reads. `loop` says what the provider made of the
    request, if that was more than one.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    loop: ServerLoop | None = field(default=None, kw_only=True)

    @property
    def window(self) -> int:
        """The tokens of the window that the model answered last."""
        return self.input if self.loop is None else self.loop.last

    @property
    def request(self) -> int:
        """The tokens of the request as it was sent; 0 if they are not known."""
        return self.input if self.loop is None else self.loop.first

    def answer(self, *, in_run: bool) -> AnswerTokens:
        """Return what is known of the answer when it is sent back."""
        output = self.output if self.loop is None else self.loop.answer
        return AnswerTokens(output, min(self.reasoning, output), in_run)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )

    def __str__(self) -> str:
        cached = f" ({self.cache_read:,} from the cache)" if self.cache_read else ""
        hidden = f" ({self.reasoning:,} of them reasoning)" if self.reasoning else ""
        return f"{self.input:,} in{cached}, {self.output:,} out{hidden}"

    @classmethod
    def from_dict(cls, value: Any) -> Usage:
        """Read usage from JSON values; a value that is no count becomes 0."""
        if not isinstance(value, Mapping):
            return cls()
        counts: dict[str, Any] = {spec.name: value.get(spec.name) for spec in fields(cls)}
        loop = counts.pop("loop")
        usage = cls(**{name: n for name, n in counts.items() if _is_count(n)})
        if isinstance(loop, list | tuple) and len(loop) == 3 and all(map(_is_count, loop)):
            return replace(usage, loop=ServerLoop(*loop))
        return usage

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON, without what is not known."""
        loop = {} if self.loop is None else {"loop": list(self.loop)}
        reasoning = {"reasoning": self.reasoning} if self.reasoning else {}
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, **reasoning, **loop}


_COUNTS = ("input", "output", "cache_read", "cache_write")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


class AgentCost(NamedTuple):
    """What the answers of an agent used, and their price in US dollars, where it is known."""

    usage: Usage
    cost: Decimal


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """The usage of a session: of the answers of its turns, and of its summaries.

    `cost` is the price of the answers in US dollars, as far as it is known; `by_agent` divides both
    by the name of the generator, empty for a plain agent.
    """

    answers: Usage = field(default_factory=Usage)
    summaries: Usage = field(default_factory=Usage)
    cost: Decimal = Decimal(0)
    by_agent: Mapping[str, AgentCost] = field(default_factory=dict)

    def and_in_vain(self, text: str | None) -> SessionUsage:
        """Add the stored usage of failed summaries, given as JSON."""
        vain = Usage() if text is None else Usage.from_dict(json.loads(text))
        return replace(self, summaries=self.summaries + vain)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "answers": self.answers.to_dict(),
            "summaries": self.summaries.to_dict(),
            "cost": float(self.cost),
            "by_agent": {
                name: {**part.usage.to_dict(), "cost": float(part.cost)}
                for name, part in self.by_agent.items()
            },
        }

    def words(self) -> Iterable[str]:
        """Say what was billed, if it is known."""
        if self.answers != Usage():
            yield f"billed for answers: {self.answers}"
        if self.cost:
            yield f"price of the answers: ${self.cost:.4f}"
        for name, part in self.by_agent.items() if len(self.by_agent) > 1 else ():
            yield f"  {name or 'agent'}: {part.usage}, ${part.cost:.4f}"
        if self.summaries != Usage():
            yield f"billed for summaries: {self.summaries}"

    @property
    def total(self) -> Usage:
        """Both together."""
        return self.answers + self.summaries


def cost_in(data: Any) -> Decimal:
    """Return the price that is stored with the usage of an answer; 0 if there is none."""
    try:
        return Decimal(str(data["cost"])) if isinstance(data, Mapping) and "cost" in data else _FREE
    except InvalidOperation:
        return _FREE


_FREE = Decimal(0)
