"""What tests of the planner beside the oracle share: both asked for the same window."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from muntin import Cut, Message, Profile, Slots, Window
from tests.core.planning.oracle import judge
from tests.core.planning.oracle_slots import Given, Verdict, places

EXAMPLES = int(os.environ.get("MUNTIN_EXAMPLES", "400"))
LETTERS = "".join(chr(c) for c in (*range(97, 123), *range(65, 91), *range(0x3B1, 0x3C9)))

slow = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@dataclass(frozen=True)
class Characters:
    """Counts characters, and a constant for every message."""

    message_overhead: int = 0
    name: str = field(default="characters", init=False)

    def count(self, text: str) -> int:
        return len(text)


def render(
    slots: Sequence[Given], budget: int, overhead: int = 0, *, user_first: bool = False
) -> Window:
    """Let the planner compose the window."""
    profile = Profile("test/model", user_first=True) if user_first else None
    planner = Slots(budget, tokenizer=Characters(overhead), profile=profile, results=None)
    for slot in slots:
        options: dict[str, Any] = {
            each.name: getattr(slot, each.name)
            for each in fields(slot)
            if each.name not in ("name", "content")
        }
        if slot.marker is not None:
            options["marker"] = partial(_line, slot.marker)
        planner.add(slot.name, slot.content, run=False, **options)
    return planner.render()


def _line(line: str, cut: Cut) -> str:
    assert cut.messages or cut.characters
    return line


def shown(messages: Sequence[Message], overhead: int) -> list[tuple[object, ...]]:
    """Say what a model would see; what costs nothing is not compared."""
    return [
        (m.role, m.text, m.tool_calls, m.tool_call_id)
        for m in messages
        if overhead or m.text or m.tool_calls
    ]


def outcome(verdict: Verdict | Window, overhead: int) -> tuple[object, ...]:
    fallback = verdict.report.fallback if isinstance(verdict, Window) else verdict.fallback
    return shown(verdict.messages, overhead), verdict.over_budget, fallback


def brief(slot: Given) -> str:
    """Write a slot in one line, without what was left at its default."""
    defaults = Given(slot.name, None)
    options = [
        f"{key}={getattr(slot, key)!r}"
        for key in (each.name for each in fields(defaults))
        if key not in ("name", "content") and getattr(slot, key) != getattr(defaults, key)
    ]
    content = [(m.role, m.text, m.tool_calls, m.tool_call_id) for m in slot.messages()]
    return f"  {slot.name}: {content} {' '.join(options)}"


def agree(
    slots: Sequence[Given],
    budget: int,
    overhead: int = 0,
    *,
    user_first: bool = False,
    oracle: Callable[..., Verdict] = judge,
) -> None:
    """Assert that planner and oracle agree on messages, over_budget and fallback."""
    given = {"user_first": True} if user_first else {}
    actual = render(slots, budget, overhead, user_first=user_first)
    expected = oracle(slots, budget, overhead=overhead, **given)
    case = f"budget {budget}, overhead {overhead}\n" + "\n".join(map(brief, slots))
    assert outcome(actual, overhead) == outcome(expected, overhead), case


class Texts:
    """Hands out texts of which no two share a character, so that a cut can be seen."""

    def __init__(self) -> None:
        self.used = 0

    def __call__(self, length: int) -> str:
        start, self.used = self.used, self.used + length + 1
        return "".join(LETTERS[i % len(LETTERS)] for i in range(start, start + length))


def budgets(slots: Sequence[Given], overhead: int) -> st.SearchStrategy[int]:
    """Any budget up to a little more than all that was given."""
    return st.integers(0, sum(place.size(place.full) for place in places(slots, overhead)) + 2)
