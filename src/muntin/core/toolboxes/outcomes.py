"""What became of every tool in a window, for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muntin.core.message import Message
from muntin.core.report import ToolOutcome, ToolStatus
from muntin.core.tool_marks import CARRIED_CALL, FIND, found_tools
from muntin.core.toolboxes.finding import called_name, query_of
from muntin.core.toolboxes.offer import ToolOffer
from muntin.core.toolboxes.rungs import BoxedTool


def tool_outcomes(offer: ToolOffer, messages: Sequence[Message]) -> Iterator[ToolOutcome]:
    """Say what became of every tool; tools that a result loads and that the catalogue has lost
    come last."""
    calls = Counter(called_name(call) for message in messages for call in message.tool_calls)
    queries = {
        call.id: query_of(call)
        for message in messages
        for call in message.tool_calls
        if call.name == FIND
    }
    found: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for step, message in enumerate(messages):
        for declaration in found_tools(message):
            found.setdefault(str(declaration["name"]), (step, declaration))
    fits_with = offer.fits_with
    for tool in offer.catalogue.tools:
        asked, times = offer.sizes[tool.name], calls[tool.name]
        if tool.name in offer.declared:
            why = "fits" if tool.box and not tool.is_pinned else "pinned" if tool.box else "own"
            yield ToolOutcome(
                tool.name, tool.box, "declared", why, "full", asked, asked, calls=times
            )
        elif tool.name in found:
            step, declaration = found.pop(tool.name)
            size = offer.size_of(declaration), asked
            yield _found(tool, declaration, step, messages, queries, size, times, fits_with)
        else:
            status: ToolStatus = "listed" if offer.rung in ("lines", "names") else "hidden"
            yield ToolOutcome(
                tool.name,
                tool.box,
                status,
                "over_share",
                tokens_asked=asked,
                calls=times,
                fits_with=fits_with,
            )
    for name, (step, declaration) in found.items():
        if name not in offer.catalogue.by_name:
            lost = BoxedTool(name)
            size = offer.size_of(declaration), 0
            yield _found(lost, declaration, step, messages, queries, size, calls[name], None)


def _found(
    tool: BoxedTool,
    declaration: Mapping[str, Any],
    step: int,
    messages: Sequence[Message],
    queries: Mapping[str, str],
    size: tuple[int, int],
    calls: int,
    fits_with: int | None,
) -> ToolOutcome:
    call = messages[step].tool_call_id or ""
    is_carried = call == CARRIED_CALL
    query = None if is_carried else queries.get(call)
    return ToolOutcome(
        tool.name,
        tool.box,
        "carried" if is_carried else "found",
        "called" if query is None else "query",
        str(declaration.get("rung") or "full"),
        *size,
        query,
        step,
        calls,
        fits_with,
    )
