"""What a prompt tells about itself before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muntin.core.report import Report, Status


@dataclass(frozen=True, slots=True)
class SystemPart:
    """One contribution to the system text; `cache` says whether it came from the cache."""

    source: str
    text: str
    tokens: int
    status: Status
    cache: str | None = None
    age: float | None = None


@dataclass(frozen=True, slots=True)
class SystemText:
    """The system text, and the parts it was made of, dropped ones included."""

    text: str
    parts: tuple[SystemPart, ...]


@dataclass(frozen=True, slots=True)
class DroppedContext:
    """A context that did not fit; `rank` 1 went first."""

    source: str
    text: str
    tokens: int
    priority: int
    reason: str
    rank: int


@dataclass(frozen=True, slots=True)
class ExcludedContext:
    """A context that a condition left out; it was never resolved."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything about a prompt that would be sent; nothing was."""

    system: SystemText
    prompt: str | None
    tools: tuple[str, ...]
    total_tokens: int
    prompt_tokens: int
    tool_tokens: int
    token_budget: int | None
    over_budget: bool
    settings: Mapping[str, Any]
    dropped_contexts: tuple[DroppedContext, ...]
    excluded_contexts: tuple[ExcludedContext, ...]
    report: Report = field(repr=False)

    def __str__(self) -> str:
        of = "" if self.token_budget is None else f" of {self.token_budget:,}"
        over = ", over budget" if self.over_budget else ""
        lines = [f"system text: {self.total_tokens:,}{of} tokens{over}"]
        lines += [f"  {p.status:8} {p.source} ({p.tokens:,} tokens)" for p in self.system.parts]
        lines += [
            f"  {gone.source}: dropped as number {gone.rank}, {gone.reason}"
            for gone in self.dropped_contexts
        ]
        lines += [f"  excluded {out.source}: {out.reason}" for out in self.excluded_contexts]
        return "\n".join(lines)
