"""Comparing windows: with another budget, with another turn.

Owns what came, what went, where two windows part and which slot parted them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import accumulate, takewhile
from typing import Any

from muntin.core.message import Message
from muntin.core.parts import compact_json
from muntin.core.planning.window import Window
from muntin.core.report import SlotReport
from muntin.errors import InvalidInput
from muntin.inspector.costs import price_of
from muntin.inspector.data import PAGE, bounded, most_budget, planned_of, window
from muntin.inspector.plans import Planned, Plans, Sight, key_of
from muntin.timeline.items import Record, check_session_id
from muntin.view.lines import Line, clip

# How many of what changed one answer names, and how much of each text.
NAMED = 100
EXCERPT = 240


def what_if(plans: Plans, session: str, turn: int, step: int | None, budget: int) -> dict[str, Any]:
    """Return a window planned again at another budget, and what comes and goes."""
    told = window(plans, session, turn, step, budget)
    planned = planned_of(plans, session, turn, step)
    own, other = plans.sight(planned), plans.sight(planned, budget)
    before, after = _present(own.lines), _present(other.lines)
    came = [after[each] for each in after if each not in before]
    went = [before[each] for each in before if each not in after]
    changed = [after[each] for each in after if each in before and after[each] != before[each]]
    told["changes"] = {
        name: {"count": len(found), "lines": [_excerpt(*each) for each in found[:NAMED]]}
        for name, found in (("came", came), ("went", went), ("changed", changed))
    }
    return told


def _present(lines: Sequence[Line]) -> dict[tuple[int, int], tuple[int, Message]]:
    """Return the declared messages that a window shows, by slot and place in it."""
    found: dict[tuple[int, int], tuple[int, Message]] = {}
    for line in lines:
        for fate in (line.fate, *line.joined):
            if fate is not None and fate.shown is not None:
                index = fate.slot.index
                found[index, fate.first] = index, fate.shown
    return found


def _excerpt(slot: int | None, message: Message) -> dict[str, Any]:
    text = clip(message.text or ", ".join(call.name for call in message.tool_calls), EXCERPT)
    return {"slot": slot, "role": message.role, "text": text.text, "hidden": text.hidden}


def survival(plans: Plans, session: str, turn: int, step: int | None, slot: int) -> dict[str, Any]:
    """Return the smallest budgets at which something of a slot, and all of it, is kept."""
    planned = planned_of(plans, session, turn, step)
    return plans.remember(("survival", planned.key, slot), lambda: _survival(plans, planned, slot))


def _survival(plans: Plans, planned: Planned, slot: int) -> dict[str, Any]:
    plans.sight(planned, planned.budget + 1)  # says why, if it cannot be planned again
    plan = planned.plan
    assert plan is not None  # else the line above has raised
    declared = plan.declared.slots
    if not 0 <= slot < len(declared):
        raise InvalidInput(f"there is no slot {slot}; there are {len(declared)}")
    most = max(most_budget(planned), planned.budget * 4)
    known: dict[int, tuple[SlotReport, bool]] = {}

    def outcome(budget: int) -> tuple[SlotReport, bool]:
        """Return what becomes of the slot, and whether the window could be sent."""
        if budget not in known:
            made = plan.at(budget)
            found = next(each for each in made.report().slots if each.index == slot)
            known[budget] = found, not made.over_budget
        return known[budget]

    def kept(budget: int) -> bool:
        report, sendable = outcome(budget)
        return sendable and report.tokens_kept > 0

    def whole(budget: int) -> bool:
        return kept(budget) and outcome(budget)[0].status == "kept"

    end, _ = outcome(most)
    return {
        "slot": slot,
        "name": declared[slot].name[:NAMED],
        "some": _smallest(kept, most),
        "all": _smallest(whole, most),
        "tried": len(known),
        "most": most,
        "reason": None if end.status == "kept" else end.reason,
        "status": end.status,
    }


def _smallest(holds: Callable[[int], bool], most: int) -> int | None:
    """Return the smallest budget found for which something holds; None if not even for `most`.

    Halving finds an edge; a slot may also live at smaller budgets, when a larger one lets a
    better-protected neighbour in. So a few of those are tried too.
    """
    if not holds(most):
        return None
    low, high = -1, most
    for _ in range(2):
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        steps = [high * part // 12 for part in range(1, 12)]
        smaller = next((each for each in steps if each < high and holds(each)), None)
        if smaller is None:
            break
        low, high = -1, smaller
    return high


def difference(
    plans: Plans,
    session: str,
    turn: int,
    step: int | None,
    other_turn: int,
    other_step: int | None,
) -> dict[str, Any]:
    """Return how a window differs from an earlier one, and where the two part."""
    planned = planned_of(plans, session, turn, step)
    earlier = planned_of(plans, session, other_turn, other_step)
    sight, sight_before = plans.sight(planned), plans.sight(earlier)
    now, before = sight.window, sight_before.window
    same = _alike(now, before)
    return {
        "session": session,
        "turn": planned.key.turn,
        "step": planned.key.step,
        "other_turn": earlier.key.turn,
        "other_step": earlier.key.step,
        "shared_messages": same,
        "shared_tokens": _shared_tokens(planned, now, before),
        "tokens": now.tokens,
        "other_tokens": before.tokens,
        "parted": _parted(sight, sight_before, same),
        "prefix": bounded(planned.report.get("prefix")),
        "price": price_of(planned.written.get("profile")),
        "slots": _slots(planned.report, earlier.report),
        "came": _gone(now, before),
        "went": _gone(before, now),
    }


def _digest(message: Message) -> bytes:
    """Return a hash of all that is sent of a message: its place on the timeline is not."""
    data = {key: value for key, value in message.to_dict().items() if key != "at"}
    text = compact_json(data).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=12).digest()


def _alike(now: Window, before: Window) -> int:
    """Return how many messages two windows begin with alike."""
    pairs = zip(now.messages, before.messages, strict=False)
    return sum(1 for _ in takewhile(lambda pair: _digest(pair[0]) == _digest(pair[1]), pairs))


def _sizes(planned: Planned, window: Window) -> list[int]:
    assert planned.plan is not None  # it was planned again
    return [planned.plan.declared.counter.message(message) for message in window.messages]


def _shared_tokens(planned: Planned, now: Window, before: Window) -> int:
    """Return the tokens of the beginning two windows share; tools come first on the wire."""
    if _tools(now) != _tools(before):
        return 0
    same = _alike(now, before)
    whole = same == len(now.messages)
    sums = [*accumulate(_sizes(planned, now), initial=planned.report["tools_tokens"])]
    return now.tokens if whole else min(now.tokens, sums[same])


def _tools(window: Window) -> list[str]:
    return [compact_json(dict(tool)) for tool in window.tools]


def _parted(sight: Sight, sight_before: Sight, same: int) -> dict[str, Any] | None:
    """Say where a window stops being like the one before; None if it only goes on."""
    now, before = sight.window, sight_before.window
    if _tools(now) != _tools(before):
        return {"message": 0, "slot": None, "name": "(tools)", "how": "the tools changed"}
    if same == len(before.messages):
        return None
    was = before.messages[same]
    new = now.messages[same] if same < len(now.messages) else None
    said = {_digest(message) for message in now.messages}
    window, how = before, "what stood here is gone"
    if _digest(was) in said:
        window, how = now, "something was put in before what stood here"
    elif any(_digest(message) in said for message in before.messages[same + 1 :]):
        how = "what stood here was left out, and what stood behind it moved up"
    origin = window.origins[same]
    name = _name(window, origin)
    if new is not None and window is before and _name(now, now.origins[same]) == name:
        if origin is None:
            name, how = _joined(sight, sight_before, same)
        elif _count(now, now.origins[same]) == 1 == _count(before, origin):
            how = "its text changed"
    return {
        "message": same,
        "slot": origin,
        "name": name,
        "how": how,
        "was": _excerpt(before.origins[same], was),
        "now": None if new is None else _excerpt(now.origins[same], new),
    }


def _count(window: Window, slot: int | None) -> int:
    return window.origins.count(slot)


def _joined(sight: Sight, sight_before: Sight, place: int) -> tuple[str, str]:
    """Name the first slot by which two joined messages differ, and say how."""

    def texts(lines: Sequence[Line]) -> dict[str, str | None]:
        fates = next((line.joined for line in lines if line.place == place), ())
        return {fate.slot.name: fate.shown.text if fate.shown else None for fate in fates}

    was, new = texts(sight_before.lines), texts(sight.lines)
    for name in [*was, *new]:
        before, now = was.get(name), new.get(name)
        if before != now:
            how = "it was left out" if now is None else "it came in"
            return name, how if before is None or now is None else "its text changed"
    return "(joined)", "the texts were put together in another way"


def _name(window: Window, slot: int | None) -> str:
    if slot is None:
        return "(joined)"
    return next((each.name for each in window.report.slots if each.index == slot), "?")


def _slots(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what every slot of either window kept, by name and number of that name."""
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


def _gone(one: Window, other: Window) -> dict[str, Any]:
    """Return what one window has and the other has not."""
    left: dict[bytes, int] = {}
    for message in other.messages:
        digest = _digest(message)
        left[digest] = left.get(digest, 0) + 1
    found = []
    for message, origin in zip(one.messages, one.origins, strict=True):
        digest = _digest(message)
        if left.get(digest):
            left[digest] -= 1
        else:
            found.append({**_excerpt(origin, message), "name": _name(one, origin)[:NAMED]})
    return {"count": len(found), "lines": found[:NAMED]}


def shares(plans: Plans, session: str, *, first: int, count: int = 20) -> dict[str, Any]:
    """Return, for some turns, how much of each window begins like the window before it."""
    last = first + min(max(count, 1), PAGE) - 1
    records = plans.store.reports(check_session_id(session), first=max(1, first - 1), last=last)
    told = []
    for before, record in zip([None, *records], records, strict=False):
        if record.turn >= first:
            what = "share", key_of(session, record), before and key_of(session, before)
            share = plans.remember(what, partial(_share, plans, session, before, record))
            told.append({"turn": record.turn, "step": record.step, **share})
    return {"first": first, "last": last, "windows": told}


def _share(plans: Plans, session: str, before: Record | None, record: Record) -> dict[str, Any]:
    report = json.loads(record.report)
    prefix = report.get("prefix")
    if before is None:
        return {"shared_tokens": None, "why": "nothing before it is kept"}
    try:
        planned = plans.planned(session, record)
        earlier = plans.planned(session, before)
        now, was = plans.sight(planned).window, plans.sight(earlier).window
    except InvalidInput as error:
        return {"shared_tokens": None, "why": str(error)}
    moved = prefix.get("moved") if isinstance(prefix, Mapping) else None
    return {"shared_tokens": _shared_tokens(planned, now, was), "moved": bounded(moved)}
