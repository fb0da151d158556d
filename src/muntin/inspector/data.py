"""The data of the pages, as plain JSON values, read from a store.

Owns the form of every answer except comparisons of windows (`changes`). Every text is bounded here,
so that no content makes an answer too large.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from itertools import accumulate, groupby
from typing import Any

from muntin.core.window import Window
from muntin.errors import InvalidInput
from muntin.inspector import step_details
from muntin.inspector.plans import Plans, StoredWindow, WindowView, check_budget, key_of
from muntin.inspector.search import SCANNED, scan, session_info
from muntin.providers.names import prices_of
from muntin.timeline.items import (
    FAILED_SUMMARY_USAGE,
    Record,
    SessionInfo,
    usage_of,
)
from muntin.timeline.stored_plans import count_messages
from muntin.view.lines import LONGEST, DisplayedLine, clip, show

# How many entries one answer holds.
PAGE = 100
# How many characters of a text an answer holds at most.
MOST_TEXT = 400_000
# Up to this many messages left out in a row are not folded.
FEW = 3
# How much of a question is the title of its window.
TITLE = 160
# How long a name or a reason may be.
_NAME = 2_000
# The fields of a window in a summary.
_TOTALS = (
    "tokens",
    "budget",
    "over_budget",
    "tools_tokens",
    "joined_tokens",
    "lead_tokens",
    "answer_tokens",
)
# The fields of a slot in a summary, beside its name.
_SLOT_KEYS = ("index", "status", "tokens_kept", "tokens_asked")


def sessions(plans: Plans, *, search: str = "", offset: int = 0) -> dict[str, Any]:
    """Return the sessions whose id holds `search`, the newest first."""
    store = plans.store
    infos = scan(plans)
    scanned = len(infos)
    if search:
        infos = [info for info in infos if search.casefold() in info.id.casefold()]
        named = store.sessions(id=search) if len(search) <= 500 and "\x00" not in search else []
        infos += [info for info in named if info not in infos]  # a session beyond the scanned ones
    return {
        "store": store.name,
        "sessions": [_info(info) for info in infos[offset : offset + PAGE]],
        "total": len(infos),
        "gave_up": [
            {"session": info.id, "turn": turn.number}
            for info in store.sessions(gave_up=True, limit=PAGE)
            for turn in reversed(store.turns(info.id, status="failed"))
            if turn.reason == "gave_up"
        ],
        "scanned": SCANNED if scanned >= SCANNED else None,
    }


def _info(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "items": info.items,
        "turns": info.turns,
        "created": info.created.isoformat(timespec="milliseconds"),
        "updated": info.updated.isoformat(timespec="milliseconds"),
    }


def turns(
    plans: Plans, session: str, *, first: int = 1, count: int = PAGE, step: int = 1
) -> dict[str, Any]:
    """Return the windows of some turns of a session, each in short, the oldest first.

    Those of the first turn begin at `step`. With a `count` of 0 there are none.
    """
    info = session_info(plans, session)
    if not count:
        return {**_info(info), "first": first, "last": first - 1, "windows": [], "unreported": []}
    last = first + min(count, PAGE) - 1
    # Why a turn failed stands beside its status if it is known.
    status = {
        turn.number: {"status": turn.status}
        | ({} if turn.reason is None else {"reason": turn.reason})
        for turn in plans.store.turns(session)
    }
    records = plans.store.reports(session, first=first, last=last)
    reported = {record.turn for record in records}
    before = plans.store.reports(session, first=first - 1, last=first - 1)[-1:]
    rows = step_details.rows(plans, session, [*before, *records], since=(first, step))
    return {
        **_info(info),
        "first": first,
        "last": min(last, info.turns),
        "windows": [
            {
                **plans.remember(
                    ("summary", key_of(session, record)), partial(_summary, plans, session, record)
                ),
                **status.get(record.turn, {"status": None}),
                **rows[record.turn, record.step],
            }
            for record in records
            if (record.turn, record.step) >= (first, step)
        ],
        "unreported": [
            {"turn": number, **status[number]}
            for number in range(first, min(last, info.turns) + 1)
            if number in status and number not in reported
        ],
    }


def usage(plans: Plans, session: str) -> dict[str, Any]:
    """Return the usage of a session, answers and summaries apart, also in words."""
    store, id = plans.store, session_info(plans, session).id
    used = usage_of(store.read(id)).and_in_vain(store.content(id, *FAILED_SUMMARY_USAGE))
    return {**used.to_dict(), "words": list(used.words())}


def _summary(plans: Plans, session: str, record: Record) -> dict[str, Any]:
    report, plan = json.loads(record.report), json.loads(record.plan)
    return {
        "turn": record.turn,
        "step": record.step,
        "time": record.time.isoformat(timespec="milliseconds"),
        "title": _title(plans, session, plan),
        "model": plan.get("profile"),
        **{key: report[key] for key in _TOTALS},
        "counts": report.get("counts"),
        "prefix": report.get("prefix"),
        "price": price_of(plan.get("profile")),
        "slots": [
            {"name": slot["name"][:_NAME], **{key: slot[key] for key in _SLOT_KEYS}}
            for slot in report["slots"]
        ],
    }


def price_of(model: str | None) -> dict[str, float] | None:
    """Return the price of a million tokens of a model, plain and from the cache, if known."""
    prices = None if model is None else prices_of(model)
    return None if prices is None else dict(zip(("input", "read"), prices, strict=True))


def _title(plans: Plans, session: str, plan: Mapping[str, Any]) -> str:
    """Return the beginning of the user's message."""
    inputs = [
        slot
        for slot in plan["slots"]
        # 0.2 wrote a flag.
        if (slot.get("kind") == "input" or slot.get("is_input")) and slot["messages"]
    ]
    if not inputs:
        return ""
    name = inputs[-1]["messages"][-1]
    text = plans.store.content(session, "report", name) if isinstance(name, str) else None
    if text is None or len(text) > MOST_TEXT:
        return ""
    content = json.loads(text).get("content")
    if not isinstance(content, str):
        content = " ".join(
            str(part.get("text", "")) for part in content or () if isinstance(part, dict)
        )
    words = " ".join(content[:400].split())
    return words if len(words) <= TITLE else f"{words[: TITLE - 1]}…"


def window(
    plans: Plans, session: str, turn: int, step: int | None = None, budget: int | None = None
) -> dict[str, Any]:
    """Return one window: its report, its tools, where the cache marks are.

    The report is the stored one; at another budget, the report of the window planned again.
    """
    record = plans.record(session, turn, step)
    stored = plans.read(session, record)
    view, why = None, None
    try:
        view = plans.view(stored, None if budget is None else check_budget(budget))
    except InvalidInput as error:
        if budget is not None:
            raise
        why = str(error)
    report = dict(stored.report)
    if view is not None and budget is not None:
        report = view.window.report.to_dict()
    return {
        "session": session,
        "turn": stored.key.turn,
        "step": stored.key.step,
        "time": stored.key.time.isoformat(timespec="milliseconds"),
        "model": stored.written.get("profile"),
        "budget": report["budget"],
        "own_budget": stored.budget,
        "most_budget": most_budget(stored),
        "report": bounded(report),
        "rules": [_rules(slot) for slot in stored.written["slots"]],
        "tools": [_tool(tool) for tool in view.window.tools] if view else [],
        "marks": _marks(stored, view.window) if view else [],
        "messages": len(view.lines) if view else 0,
        **(step_details.answer_of(plans, session, record) if budget is None else {}),
        "note": why or (_doubt(stored, view.window) if view and budget is None else None),
    }


def most_budget(stored: StoredWindow) -> int:
    """Return a budget at which everything fits, or nearly everything."""
    report = stored.report
    declared = sum(slot["tokens_asked"] for slot in report["slots"])
    added = report["tools_tokens"] + max(0, report["joined_tokens"]) + report["lead_tokens"]
    added += report["answer_tokens"]
    if counts := report.get("counts"):
        added += max(0, counts["estimated"] - counts["counted"])
    missed = [
        decision["fits_with"] or 0 for slot in report["slots"] for decision in slot["decisions"]
    ]
    most = max(declared + added, report["tokens"], stored.budget + max(missed, default=0))
    return int(most * 1.1) + 1


def _rules(slot: Mapping[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in slot.items() if key not in ("messages", "detail")}
    return {**fields, "name": slot["name"][:_NAME], "declared": count_messages(slot["messages"])}


def _tool(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = schema.get("function")
    about = inner if isinstance(inner, Mapping) else schema
    return {
        "name": str(about.get("name", ""))[:_NAME],
        "description": str(about.get("description", ""))[:_NAME],
        "schema": asdict(clip(json.dumps(schema, indent=1, ensure_ascii=False))),
    }


def _marks(stored: StoredWindow, window: Window) -> list[dict[str, Any]]:
    """Return where the breakpoints stand, in tokens from the beginning of the window."""
    if not window.breakpoints or stored.plan is None:
        return []
    counter = stored.plan.declared.counter
    sizes = [counter.message(message) for message in window.messages]
    sums = [*accumulate(sizes, initial=stored.report["tools_tokens"])]
    return [
        {"after": mark.after, "ttl": mark.ttl, "tokens": sums[min(mark.after, len(sizes))]}
        for mark in window.breakpoints
    ]


def _doubt(stored: StoredWindow, window: Window) -> str | None:
    """Say why the messages shown may differ from the messages that were sent."""
    sent, again = stored.report, window.report
    if sent["tokenizer"] != again.tokenizer:
        return (
            f"Counted by {sent['tokenizer'][:_NAME]!r} then, which cannot be found by its name: "
            f"messages and other budgets are planned again with {again.tokenizer!r}."
        )
    was = [(slot["tokens_kept"], slot["status"]) for slot in sent["slots"]]
    if was == [(slot.tokens_kept, slot.status) for slot in again.slots]:
        return None
    return (
        "Planned again from what is kept of it, this window comes out a little different; the bar "
        "and the table show the window that was sent."
    )


def messages(
    plans: Plans,
    session: str,
    turn: int,
    step: int | None = None,
    *,
    budget: int | None = None,
    offset: int = 0,
    limit: int = PAGE,
    longest: int = LONGEST,
    fold: bool = False,
) -> dict[str, Any]:
    """Return some lines of a window: its messages, and between them the messages left out.

    With `fold`, consecutive left-out messages of a slot are one line that says how to ask for them.
    """
    stored = plans.read_at(session, turn, step)
    view = plans.view(stored, None if budget is None else check_budget(budget))
    longest = min(max(longest, 100), MOST_TEXT)
    runs = _runs(view) if fold else [(place, 1) for place in range(len(view.lines))]
    answers = []
    for first, count in runs[offset : offset + min(max(limit, 1), PAGE)]:
        line = show(view.window, view.lines[first], longest)
        if count > 1:
            folded = {"slot": line.slot, "reason": line.reason, "count": count}
            answers.append({"line": first, "place": None, "fold": folded})
        else:
            answers.append({"line": first, **_line(line, stored, view)})
    return {
        "offset": offset,
        "total": len(runs),
        "every": len(view.lines),
        "kept": len(view.window.messages),
        "lines": answers,
    }


def _runs(view: WindowView) -> list[tuple[int, int]]:
    """Return the lines as (first, count): consecutive left-out messages of a slot are one run."""

    def left_out_of(number: int) -> int | None:
        line = view.lines[number]
        return line.outcome.slot.index if line.place is None and line.outcome is not None else None

    runs: list[tuple[int, int]] = []
    for slot, group in groupby(range(len(view.lines)), left_out_of):
        numbers = list(group)
        if slot is not None and len(numbers) > FEW:
            runs.append((numbers[0], len(numbers)))
        else:
            runs += [(number, 1) for number in numbers]
    return runs


def _line(line: DisplayedLine, stored: StoredWindow, view: WindowView) -> dict[str, Any]:
    tokens = None
    if line.place is not None and stored.plan is not None:
        tokens = stored.plan.declared.counter.message(view.window.messages[line.place])
    return {
        "place": line.place,
        "slot": line.slot,
        "role": line.role,
        "state": line.state,
        "reason": line.reason,
        "name": line.name and line.name[:_NAME],
        "answers": line.answers and line.answers[:_NAME],
        "tokens": tokens,
        "pieces": [asdict(piece) for piece in line.pieces],
        "calls": [{"name": name[:_NAME], "arguments": asdict(a)} for name, a in line.calls],
        "notes": [{"kind": kind, "text": asdict(text)} for kind, text in line.notes],
    }


def bounded(value: Any) -> Any:
    """Return a report with no text in it longer than a name may be."""
    if isinstance(value, str):
        return value if len(value) <= _NAME else f"{value[:_NAME]}…"
    if isinstance(value, Mapping):
        return {key: bounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(item) for item in value]
    return value
