"""Planner and oracle side by side over whole sessions that step down a ladder."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muntin import Ladder, Message, Slots, Stepped, Window, assistant, user
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.shapes import Forms, Level, Shape
from tests.core.planning.beside import EXAMPLES, slow
from tests.core.planning.oracle_stepladder import Known, Rules, Unit, in_view, play
from tests.core.planning.test_run import called

LEVELS: tuple[Level, ...] = ("full", "short", "stub")
SYSTEM = "s" * 12


def shape_of(ladder: Ladder) -> Shape:
    return Shape(Forms(Slots(1, tokenizer=len).counter), ladder=ladder)


def units_of(messages: list[Message], asked: int, shape: Shape) -> list[Unit]:
    """Return the units of a past; the message `asked` is the input."""
    units: list[Unit] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        if message.tool_calls:
            group = tuple(messages[place : place + 1 + len(message.tool_calls)])
            sizes = tuple(shape.group(level, group)[2] for level in LEVELS)
            units.append(Unit("g", place, place + len(group), sizes))
        else:
            kind = "i" if place == asked else "u" if message.role == "user" else "a"
            units.append(Unit(kind, place, place + 1, (len(message.text),)))
        place = units[-1].end
    return units


def expected(messages: list[Message], units: list[Unit], known: Known, shape: Shape) -> list[Any]:
    """Return the messages that the oracle demands."""
    found: list[Any] = []
    for unit in in_view(units, known.state):
        group = tuple(messages[unit.first : unit.end])
        if unit.kind == "g":
            group = shape.group(LEVELS[known.state.level(unit)], group)[0]
        found += [(each.text, each.tool_calls) for each in group]
    return found


def render(
    said: list[Message],
    asked: Message,
    run: list[Message],
    rules: Rules,
    ladder: Ladder,
    previous: Window | Frontier | None,
) -> Window:
    slots = Slots(
        rules.high + len(SYSTEM),
        tokenizer=len,
        trimming=Stepped(low=rules.low),
        ladder=ladder,
        results=None,
        previous=previous,
    )
    slots.add("system", SYSTEM)
    slots.add("history", said)
    slots.add("input", [asked])
    slots.add("run", run)
    return slots.render()


def agree(rules: Rules, ladder: Ladder, turns: list[Any], restarts: list[bool]) -> None:
    """Play a session with both, and compare every request."""
    shape = shape_of(ladder)
    said: list[Message] = []
    known: Known | None = None
    window: Window | None = None
    requests = 0
    for number, (asks, steps, answers) in enumerate(turns):
        asked = user(f"{number}?".ljust(asks, "q"))
        run: list[Message] = []
        for step in (None, *enumerate(steps)):
            if step is not None:
                run = [*run, *called(100 * number + step[0], *step[1])]
            again = restarts[requests % len(restarts)]
            requests += 1
            previous: Any = window
            if window is not None and again:
                previous = Frontier.from_dict(json.loads(json.dumps(window.frontier.to_dict())))
            window = render(said, asked, run, rules, ladder, previous)
            past = [*said, asked, *run]
            units = units_of(past, len(said), shape)
            known = play(units, rules, known)
            (start,) = window.frontier.starts
            case = f"turn {number}, request {requests}, {rules}: {units}"
            assert (start.first, start.stubs, start.shorts) == (
                known.state.gone,
                known.state.stubs,
                known.state.shorts,
            ), case
            sent = [(each.text, each.tool_calls) for each in window.messages[1:]]
            assert sent == expected(past, units, known, shape), case
            assert not window.over_budget
        said = [*said, asked, *run, assistant("a" * answers)]


@st.composite
def sessions(draw: st.DrawFn) -> tuple[Rules, Ladder, list[Any], list[bool]]:
    sizes = st.lists(st.sampled_from((1, 30, 64, 65, 100, 150, 300, 700)), min_size=1, max_size=2)
    steps = st.lists(sizes, max_size=10)
    turn = st.tuples(st.integers(3, 90), steps, st.integers(1, 60))
    ladder = Ladder(draw(st.integers(64, 120)), draw(st.integers(0, 4)), draw(st.booleans()))
    rules = Rules(
        draw(st.integers(400, 2_000)),  # the input and the newest group fit, if it is short
        draw(st.sampled_from((0.0, 0.3, 0.5, 0.8))),
        ladder.keep_groups,
        ladder.stubs,
    )
    turns = draw(st.lists(turn, min_size=1, max_size=6))
    return rules, ladder, turns, draw(st.lists(st.booleans(), min_size=1, max_size=4))


@settings(slow, max_examples=EXAMPLES // 2)
@given(sessions())
def test_a_past_steps_down_the_ladder_as_the_oracle_demands(session: Any) -> None:
    agree(*session)


def test_every_high_level_of_a_long_run_is_stepped_as_the_oracle_demands() -> None:
    turns = [(20, [[100], [30, 150], [64], [300]] * 6, 40), (30, [[65], [120]] * 5, 20), (9, [], 5)]
    for high in range(400, 2_000, 90):
        for low, keep in ((0.3, 0), (0.5, 3), (0.8, 1)):
            ladder = Ladder(64, keep)
            agree(Rules(high, low, keep), ladder, turns, [False, True])
