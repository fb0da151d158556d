"""The window: the result of planning, what the model will see.

Turning it into a provider's request or a picture is the work of upper layers, imported late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from muntin.core.message import Message
from muntin.core.report import Report


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A place where the provider may cache: after so many messages, for how long."""

    after: int
    ttl: str | None = None


@dataclass(frozen=True)
class Window:
    """The messages of one turn, with their tokens and the report that explains them.

    `tokens` is everything that is sent: messages, tool schemas and what the wire adds.
    `origins` says for each message the index of the slot it comes from (None: a slot cannot be
    named, because several were joined).
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = field(hash=False)
    tokens: int
    over_budget: bool
    origins: tuple[int | None, ...] = field(repr=False)
    breakpoints: tuple[Breakpoint, ...] = field(repr=False)
    _report: Report | Callable[[], Report] = field(repr=False, compare=False)

    @cached_property
    def report(self) -> Report:
        """Where every token went, and why something is missing."""
        # Made on first use: most turns are sent without anyone reading it.
        return self._report if isinstance(self._report, Report) else self._report()

    def openai(self, *, strict: bool = True) -> dict[str, Any]:
        """Return the keyword arguments of an OpenAI Chat Completions call.

        Raises `BudgetExceeded` if the window is over budget, unless `strict` is False.
        """
        from muntin.providers.openai import encode

        return encode(self, strict=strict)

    def _repr_html_(self) -> str:
        from muntin.show import html

        return html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self.messages,
            self.tools,
            self.tokens,
            self.over_budget,
            self.origins,
            self.breakpoints,
            self.report,
        )
