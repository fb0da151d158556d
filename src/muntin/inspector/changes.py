"""Comparing windows: with another budget, with another turn.

Owns how the differences and the parting of two windows are told. `core.caching.prefix` has the
rule where and why they part; reports use it too.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from muntin.core.caching.frontier import LazyFrontier
from muntin.core.caching.prefix import (
    REASONS,
    Difference,
    Pieces,
    find_difference,
    pieces,
    shared_tokens,
)
from muntin.core.caching.wire_order import SentMessage, as_sent
from muntin.core.message import Message
from muntin.core.report import SlotReport
from muntin.core.window import Window
from muntin.errors import InvalidInput
from muntin.inspector.data import PAGE, bounded, most_budget, price_of, window
from muntin.inspector.plans import Plans, StoredWindow, WindowView, key_of
from muntin.inspector.step_details import call_words
from muntin.timeline.items import Record, check_session_id
from muntin.view.lines import Line, clip

# How many changes one answer names, and how much of each text.
NAMED = 100
EXCERPT = 240
# How long windows are compared before it is told what is known: other questions wait meanwhile.
SECONDS = 0.5


def what_if(plans: Plans, session: str, turn: int, step: int | None, budget: int) -> dict[str, Any]:
    """Return a window planned again at another budget, and the messages that come and go."""
    answer = window(plans, session, turn, step, budget)
    stored = plans.read_at(session, turn, step)
    before = _present(plans.view(stored).lines)
    after = _present(plans.view(stored, budget).lines)
    came = [after[key] for key in after if key not in before]
    went = [before[key] for key in before if key not in after]
    changed = [after[key] for key in after if key in before and after[key] != before[key]]
    answer["changes"] = {
        name: {"count": len(changes), "lines": [_excerpt(*key) for key in changes[:NAMED]]}
        for name, changes in (("came", came), ("went", went), ("changed", changed))
    }
    return answer


def _present(lines: Sequence[Line]) -> dict[tuple[int, int], tuple[int, Message]]:
    """Return the declared messages that a window shows, by slot and index in the slot."""
    present: dict[tuple[int, int], tuple[int, Message]] = {}
    for line in lines:
        for outcome in (line.outcome, *line.joined):
            if outcome is not None and outcome.shown is not None:
                index = outcome.slot.index
                present[index, outcome.first] = index, outcome.shown
    return present


def _excerpt(slot: int | None, message: Message) -> dict[str, Any]:
    text = clip(message.text or ", ".join(map(call_words, message.tool_calls)), EXCERPT)
    return {"slot": slot, "role": message.role, "text": text.text, "hidden": text.hidden}


def survival(plans: Plans, session: str, turn: int, step: int | None, slot: int) -> dict[str, Any]:
    """Return the smallest budgets at which a part of a slot, and all of it, is kept.

    A slot may also be kept at smaller budgets, when a larger budget lets a better-protected
    neighbour in: `some` and `all` are the smallest budgets found; from `some_from` and `all_from`
    on, every larger budget keeps the slot.
    """
    stored = plans.read_at(session, turn, step)
    return plans.remember(("survival", stored.key, slot), lambda: _survival(plans, stored, slot))


def _survival(plans: Plans, stored: StoredWindow, slot: int) -> dict[str, Any]:
    plans.view(stored, stored.budget + 1)  # raises why, if it cannot be planned again
    plan = stored.plan
    assert plan is not None  # else the line above has raised
    declared = plan.declared.slots
    if not 0 <= slot < len(declared):
        raise InvalidInput(f"there is no slot {slot}; there are {len(declared)}")
    most = max(most_budget(stored), stored.budget * 4)
    survivals: dict[int, tuple[SlotReport, bool]] = {}

    def outcome(budget: int) -> tuple[SlotReport, bool]:
        """Return the report of the slot, and whether the window could be sent."""
        if budget not in survivals:
            trial = plan.at(budget)
            report = next(report for report in trial.report().slots if report.index == slot)
            survivals[budget] = report, not trial.over_budget
        return survivals[budget]

    def is_shown(budget: int) -> bool:
        report, is_sendable = outcome(budget)
        return is_sendable and report.tokens_kept > 0

    def is_whole(budget: int) -> bool:
        return is_shown(budget) and outcome(budget)[0].status == "kept"

    end, _ = outcome(most)
    budgets = {
        name: _budgets(holds, stored.budget, most)
        for name, holds in (("some", is_shown), ("all", is_whole))
    }
    return {
        "slot": slot,
        "name": declared[slot].name[:NAMED],
        **{name: smallest for name, (_, smallest) in budgets.items()},
        **{f"{name}_from": edge for name, (edge, _) in budgets.items()},
        "tried": len(survivals),
        "most": most,
        "reason": None if end.status == "kept" else end.reason,
        "status": end.status,
    }


def _budgets(
    holds: Callable[[int], bool], own_budget: int, most: int
) -> tuple[int | None, int | None]:
    """Return the budget from which on `holds` is true, and the smallest such budget found.

    None if `holds` is false even for `most`. If it is false for the window's `own` budget, the
    first number is larger than that. A few smaller budgets are tried too.
    """
    if not holds(most):
        return None, None
    edge = smallest = _edge(holds, -1 if holds(own_budget) else own_budget, most)
    for _ in range(2):
        steps = [smallest * part // 12 for part in range(1, 12)]
        smaller = next((budget for budget in steps if budget < smallest and holds(budget)), None)
        if smaller is None:
            break
        smallest = _edge(holds, -1, smaller)
    return edge, smallest


def _edge(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return, by halving, a budget for which something holds, and not for one less."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def difference(
    plans: Plans,
    session: str,
    turn: int,
    step: int | None,
    other_turn: int,
    other_step: int | None,
    other_session: str | None = None,
) -> dict[str, Any]:
    """Return how a window differs from another one, and where the two part."""
    stored = plans.read_at(session, turn, step)
    earlier = plans.read_at(other_session or session, other_turn, other_step)
    now, before = _SentWindow.of(plans, stored), _SentWindow.of(plans, earlier)
    there = find_difference(now.pieces, before.pieces)
    return {
        "session": session,
        "turn": stored.key.turn,
        "step": stored.key.step,
        "other_session": earlier.key.session,
        "other_turn": earlier.key.turn,
        "other_step": earlier.key.step,
        "shared_messages": len(before.messages) if there is None else there.message,
        "shared_tokens": now.shared_tokens(before),
        "tokens": now.window.tokens,
        "other_tokens": before.window.tokens,
        "parted": None if there is None else _describe_difference(now, before, there),
        "prefix": bounded(stored.report.get("prefix")),
        "price": price_of(stored.written.get("profile")),
        "slots": _slots(stored.report, earlier.report),
        "came": _gone(now, before),
        "went": _gone(before, now),
    }


@dataclass(frozen=True, slots=True)
class _SentWindow:
    """A window as it was sent: its messages in the order of the request, and their keys."""

    stored: StoredWindow
    view: WindowView
    sent: Sequence[SentMessage]
    pieces: Pieces

    @classmethod
    def of(cls, plans: Plans, stored: StoredWindow) -> _SentWindow:
        view = plans.view(stored)
        profile = stored.plan.declared.profile if stored.plan is not None else None
        sent = as_sent(view.window.messages, profile)
        return cls(stored, view, sent, pieces(view.window.frontier))

    @property
    def window(self) -> Window:
        return self.view.window

    @property
    def messages(self) -> list[tuple[int | None, Message]]:
        """The slot of each message, and the message."""
        origins = self.window.origins
        return [(origins[piece.owner], piece.message) for piece in self.sent]

    def shared_tokens(self, before: _SentWindow) -> int:
        """Return the tokens of the beginning that this window shares with another."""
        now = self.window.lazy_frontier
        assert isinstance(now, LazyFrontier)  # the window was planned again
        return min(self.window.tokens, shared_tokens(now, before.window.frontier))


def _describe_difference(
    now: _SentWindow, before: _SentWindow, there: Difference
) -> dict[str, Any]:
    """Tell where a window stops being like the window before, in the words of its report."""
    if there.place == 0:
        return {"message": 0, "slot": None, "name": there.slot, "how": REASONS[there.reason]}
    was = before.messages[there.message]
    new = now.messages[there.message] if there.message < len(now.sent) else None
    name, how = there.slot, REASONS[_reported_reason(now.stored, there) or there.reason]
    if new is not None and was[0] is new[0] is None:
        name, how = _describe_joined(now, before, there.message)
    return {
        "message": there.message,
        "slot": was[0],
        "name": name,
        "how": how,
        "was": _excerpt(*was),
        "now": None if new is None else _excerpt(*new),
    }


def _reported_reason(stored: StoredWindow, there: Difference) -> str | None:
    """Return the reason in the stored report, which knows the decisions, if it fits."""
    moved = (stored.report.get("prefix") or {}).get("moved") or {}
    same = (moved.get("message"), moved.get("slot")) == (there.message, there.slot)
    return moved["reason"] if same and moved["reason"] in REASONS else None


def _describe_joined(now: _SentWindow, before: _SentWindow, message: int) -> tuple[str, str]:
    """Name the first slot in which two joined messages differ, and say how."""

    def texts(sent: _SentWindow) -> dict[str, str | None]:
        place = sent.sent[message].place
        outcomes = next((line.joined for line in sent.view.lines if line.place == place), ())
        return {
            outcome.slot.name: outcome.shown.text if outcome.shown else None for outcome in outcomes
        }

    was, new = texts(before), texts(now)
    for name in [*was, *new]:
        old, text = was.get(name), new.get(name)
        if old != text:
            how = "it was left out" if text is None else "it came in"
            return name, how if old is None or text is None else REASONS["changed"]
    return "(joined)", "the texts were put together in another way"


def _name(window: Window, slot: int | None) -> str:
    if slot is None:
        return "(joined)"
    return next((report.name for report in window.report.slots if report.index == slot), "?")


def _slots(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tokens of every slot of either window, by name and number of that name."""
    both: dict[tuple[str, int], list[Any]] = {}
    for side, report in enumerate((before, now)):
        seen: dict[str, int] = {}
        for slot in report["slots"]:
            number = seen[slot["name"]] = seen.get(slot["name"], 0) + 1
            both.setdefault((slot["name"], number), [None, None])[side] = slot
    return [
        {
            "name": name[:NAMED],
            "before": None if was is None else was["tokens_kept"],
            "now": None if new is None else new["tokens_kept"],
            "status_before": None if was is None else was["status"],
            "status": None if new is None else new["status"],
        }
        for (name, _), (was, new) in both.items()
    ]


def _gone(one: _SentWindow, other: _SentWindow) -> dict[str, Any]:
    """Return the messages that one window has and the other does not have."""
    unmatched = Counter(key for key, _ in other.pieces[1:])
    messages = []
    for (key, _), (origin, message) in zip(one.pieces[1:], one.messages, strict=True):
        if unmatched[key]:
            unmatched[key] -= 1
        else:
            messages.append(
                {**_excerpt(origin, message), "name": _name(one.window, origin)[:NAMED]}
            )
    return {"count": len(messages), "lines": messages[:NAMED]}


def shares(
    plans: Plans, session: str, *, first: int = 1, step: int = 1, count: int = 20, most: int = PAGE
) -> dict[str, Any]:
    """Return how much of each window begins like the one before it, from a step of a turn on.

    It tells of `count` turns and of `most` windows, and stops after a while; `next` is where to go
    on, None at the end.
    """
    last = first + min(max(count, 1), PAGE) - 1
    records = plans.store.reports(check_session_id(session), first=max(1, first - 1), last=last)
    until = time.monotonic() + SECONDS
    windows: list[dict[str, Any]] = []
    for before, record in zip([None, *records], records, strict=False):
        at = {"turn": record.turn, "step": record.step}
        if (record.turn, record.step) < (first, step):
            continue
        if windows and (len(windows) >= most or time.monotonic() > until):
            return {"first": first, "last": last, "windows": windows, "next": at}
        what = "share", key_of(session, record), before and key_of(session, before)
        share = plans.remember(what, partial(_share, plans, session, before, record))
        windows.append({**at, **share})
    return {"first": first, "last": last, "windows": windows, "next": None}


def _share(plans: Plans, session: str, before: Record | None, record: Record) -> dict[str, Any]:
    report = json.loads(record.report)
    prefix = report.get("prefix")
    if before is None:
        return {"shared_tokens": None, "why": "nothing before it is kept"}
    try:
        now = _SentWindow.of(plans, plans.read(session, record))
        was = _SentWindow.of(plans, plans.read(session, before))
    except InvalidInput as error:
        return {"shared_tokens": None, "why": str(error)}
    moved = prefix.get("moved") if isinstance(prefix, Mapping) else None
    return {"shared_tokens": now.shared_tokens(was), "moved": bounded(moved)}
