"""What a prompt tells about itself before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from muntin.agent.tools import tool_name
from muntin.core.report import Report, SlotReport
from muntin.prompts.texts import SystemPart

if TYPE_CHECKING:
    from muntin.prompts.definition import Resolution


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


def inspection_of(made: Resolution) -> Inspection:
    """Tell everything of a prompt that was resolved."""
    report, gathered, counter = made.window.report, made.gathered, made.composer.counter
    rows = {row.index: row for row in report.slots}
    # The parts are declared first.
    planned = [(part, rows[index]) for index, part in enumerate(gathered.parts)]
    dropped = [_dropped(part, row) for part, row in planned if row.status == "dropped"]
    parts = tuple(
        replace(part, tokens=row.tokens_asked, status=row.status)
        for part, row in planned
        if row.status != "empty"
    )
    return Inspection(
        system=SystemText(made.system, parts),
        prompt=gathered.user,
        tools=tuple(tool_name(tool) for tool in gathered.tools),
        total_tokens=counter.text(made.system) if made.system else 0,
        prompt_tokens=counter.text(gathered.user) if gathered.user else 0,
        tool_tokens=report.tools_tokens,
        token_budget=made.token_budget,
        over_budget=made.window.over_budget,
        settings=gathered.settings,
        dropped_contexts=tuple(sorted(dropped, key=lambda gone: gone.rank)),
        excluded_contexts=tuple(
            ExcludedContext(source, f"{reason}: {detail}")
            for source, reason, detail in gathered.excluded
        ),
        report=report,
    )


def _dropped(part: SystemPart, row: SlotReport) -> DroppedContext:
    return DroppedContext(
        source=part.source,
        text=part.text,
        tokens=row.tokens_asked,
        priority=part.priority,
        reason=row.reason or "over_budget",
        rank=row.decisions[0].rank or 0,
    )
