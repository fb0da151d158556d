"""The long run that every policy is given: recorded tool conversations, joined.

Everything follows from the recorded conversations and the tables below; nothing is random.

- The calls of all conversations stand one behind the other. Each keeps its name and arguments; one
  step in nine makes two calls at once. A turn has as many steps as `RUNS` says, by turns: most are
  short, some are work of many steps. Users and answers speak the recorded sentences.
- A result is as large as `KILOBYTES` says, by turns: 0.4 to 60. It is a JSON list of recorded
  results: that of the call, if it fits, and others behind it.
- Each message has a mark (`t0007` the user's, `s0012a` a call's and its result's, `a0007` the
  answer's), so that no text comes twice, and what a request still shows can be told.
- A needle is an identifier that is said once, in the text of a user, in arguments, in a result at
  its beginning, middle or end, or in an answer; the user's message so many turns later (`AFTER`)
  repeats it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parents[2] / "tests" / "data" / "airline-traces.jsonl"

RUNS = (1, 3, 2, 8, 1, 5, 2, 24)
KILOBYTES = (0.4, 2, 0.8, 5, 1.2, 0.6, 12, 3, 0.5, 8, 1.5, 20, 0.7, 2.5, 1, 60)
TWO_CALLS = 9
PLACES = ("user", "first", "arguments", "middle", "last", "answer")
AFTER = (1, 3, 7, 12, 18, 2, 30, 5, 45, 15)
NEEDLES = 2

MARK = re.compile(r"(?<![A-Za-z0-9])[sta]\d{4,5}[ab]?(?![A-Za-z0-9])")
NEEDLE = re.compile(r"NV-\d{5}")


@dataclass(frozen=True)
class Call:
    """A call with its result; `mark` stands in its id, its arguments and its result."""

    mark: str
    name: str
    arguments: str
    result: str

    @property
    def id(self) -> str:
        """The id that the model gives the call."""
        return f"call_{self.mark}"


@dataclass(frozen=True)
class Needle:
    """An identifier, the turn and the mark of the message that has it."""

    text: str
    turn: int
    mark: str


@dataclass(frozen=True)
class Turn:
    """What the user says, what the model calls step by step, what it answers."""

    number: int
    text: str
    steps: tuple[tuple[Call, ...], ...]
    answer: str
    asked: tuple[Needle, ...] = ()
    """The needles that the user's text repeats."""

    @property
    def requests(self) -> int:
        """How often the model is asked."""
        return len(self.steps) + 1


@dataclass(frozen=True)
class Script:
    """A whole run."""

    system: str
    names: tuple[str, ...]
    turns: tuple[Turn, ...]

    @property
    def requests(self) -> int:
        """How often the model is asked."""
        return sum(turn.requests for turn in self.turns)

    @property
    def results(self) -> dict[str, str]:
        """The result of each call, by its mark."""
        return {call.mark: call.result for call in calls(self.turns)}


def calls(turns: tuple[Turn, ...]) -> Iterator[Call]:
    """Yield every call, in order."""
    for turn in turns:
        for step in turn.steps:
            yield from step


# What was recorded.


@dataclass(frozen=True)
class _Recorded:
    system: str
    calls: tuple[tuple[str, dict[str, Any], Any], ...]
    results: tuple[tuple[int, Any], ...]
    users: tuple[str, ...]
    answers: tuple[str, ...]


@cache
def _recorded() -> _Recorded:
    traces = [json.loads(line)["messages"] for line in TRACES.read_text("utf-8").splitlines()]
    messages = [message for trace in traces for message in trace]
    made = []
    for before, after in pairwise(messages):
        if before.get("tool_calls") and after["role"] == "tool":
            function = before["tool_calls"][0]["function"]
            result = _parsed(after["content"])
            made.append((function["name"], json.loads(function["arguments"]), result))
    results = [(len(json.dumps(each[2])), each[2]) for each in made if each[2]]

    def said(role: str) -> tuple[str, ...]:
        return tuple(m["content"] for m in messages if m["role"] == role and m["content"])

    return _Recorded(
        traces[0][0]["content"], tuple(made), tuple(results), said("user"), said("assistant")
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_INSIDE = {"first", "middle", "last"}


def _result(number: int, mark: str, needles: dict[str, str], sizes: Sequence[float]) -> str:
    """Return the result of a call: recorded ones up to its size, the needles in their places."""
    recorded = _recorded()
    left = int(1_000 * sizes[number % len(sizes)]) - 40 - 24 * len(_INSIDE & needles.keys())
    own = recorded.calls[number % len(recorded.calls)][2]
    candidates = recorded.results
    shown: list[Any] = []
    # The call's own result first; then others from a place that differs from call to call.
    other_rows = (
        candidates[(37 * number + n) % len(candidates)] for n in range(3 * len(candidates))
    )
    for size, each in [*[(len(json.dumps(own)), own)] * bool(own), *other_rows]:
        if size + 2 <= left:
            shown.append(each)
            left -= size + 2
        if left < 60:
            break
    places = {"first": 0, "middle": len(shown) // 2, "last": len(shown)}
    for place in ("last", "middle", "first"):
        if place in needles:
            shown.insert(places[place], {"case": needles[place]})
    return json.dumps({"step": mark, "found": shown})


# The run.


def script(
    requests: int, *, runs: Sequence[int] = RUNS, kilobytes: Sequence[float] = KILOBYTES
) -> Script:
    """Return a run in which the model is asked so often."""
    recorded = _recorded()
    names = tuple(dict.fromkeys(name for name, *_ in recorded.calls))
    turns: list[Turn] = []
    asked: dict[int, list[Needle]] = {}
    made = steps = 0
    for number in count():
        left = requests - made
        if left <= 0:
            return Script(recorded.system, names, tuple(turns))
        length = min(runs[number % len(runs)], left - 1)
        turn = _turn(number, steps, length, asked, kilobytes)
        turns.append(turn)
        steps += length
        made += turn.requests
    raise AssertionError


def _turn(
    number: int, first: int, length: int, asked: dict[int, list[Needle]], sizes: Sequence[float]
) -> Turn:
    recorded = _recorded()
    planted: dict[str, str] = {}
    for each in range(NEEDLES):
        kind = NEEDLES * number + each
        place = PLACES[kind % len(PLACES)]
        if not length and place not in ("user", "answer"):
            place = ("user", "answer")[each]
        text = f"NV-{10_000 + 7_919 * kind % 90_000}"
        planted[place] = text
        holder = {"user": f"t{number:04}", "answer": f"a{number:04}"}
        mark = holder.get(place, f"s{first + length // 2:04}a")
        later = number + AFTER[kind % len(AFTER)]
        asked.setdefault(later, []).append(Needle(text, number, mark))
    repeated = asked.pop(number, [])
    words = [recorded.users[number % len(recorded.users)]]
    words += [f"The case is {text}." for place, text in planted.items() if place == "user"]
    words += [f"And what did we say about {each.text}?" for each in repeated]
    answer = recorded.answers[number % len(recorded.answers)]
    if "answer" in planted:
        answer += f" I filed it as {planted['answer']}."
    middle = first + length // 2
    steps = [_step(n, planted if n == middle else {}, sizes) for n in range(first, first + length)]
    said = " ".join(words)
    return Turn(
        number,
        f"{said} (t{number:04})",
        tuple(steps),
        f"{answer} (a{number:04})",
        tuple(repeated),
    )


def _step(number: int, planted: dict[str, str], sizes: Sequence[float]) -> tuple[Call, ...]:
    recorded = _recorded()
    results = []
    for which in "ab"[: 2 if number % TWO_CALLS == TWO_CALLS // 2 else 1]:
        mark, needles = f"s{number:04}{which}", planted if which == "a" else {}
        place = number + (which == "b") * 100
        name, given, _ = recorded.calls[place % len(recorded.calls)]
        if "arguments" in needles:
            given = {**given, "case": needles["arguments"]}
        arguments = json.dumps({"step": mark, "arguments": given})
        results.append(Call(mark, name, arguments, _result(place, mark, needles, sizes)))
    return tuple(results)
