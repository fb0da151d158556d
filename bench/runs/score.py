"""The score of a policy: what its requests were, and what they still showed, request by request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean
from typing import Any

from bench.runs.rules import faults
from bench.runs.script import MARK, NEEDLE, Call, Script, Turn
from bench.runs.wire import Line, count, lines, shared
from muntin.providers.names import caching_for
from muntin.simulator.cache import Block, Cache, Request
from muntin.simulator.requests import usual_marks

MODELS = {"openai": "openai/gpt-5", "anthropic": "anthropic/claude-sonnet-4-5"}
# What a token of output costs beside one of plain input: genai-prices, for these two models.
OUTPUT = {"openai": 8.0, "anthropic": 5.0}
PAUSE = 30.0
LAST_CALLS = 50
LAST_TURNS = 20
# The first quarter of a run, while windows fill, says nothing of what a policy keeps.
SETTLED = 0.25
# No result needs more than this share of a window; half of what it needs is a good view of it.
RESULT_SHARE, GOOD_VIEW = 0.25, 0.5


@dataclass(frozen=True)
class Row:
    """What one policy did with one window, by the rules of one provider."""

    policy: str
    window: int
    rules: str
    requests: int
    invalid: int
    over: int
    refused: int
    """Requests that were not made: the policy raised an error in this turn."""
    prefix: float
    """The share of a request that the next one begins with, inside runs."""
    prefix_all: float
    cost: float
    """Of all input and of summaries, in tokens of plain input."""
    uncached: float
    tokens: float
    """A request's, on average."""
    turns_full: float
    turns_seen: float
    """In view at least as a stub: in any form that names them."""
    calls_seen: float
    question_lost: int
    """Requests that do not show what the user asks."""
    newest_seen: float
    """How often the calls just made are seen by the model that made them."""
    newest_shown: float
    """How many of the results just returned are shown: at least half of their size, or of a quarter
    of the window if they are larger."""
    needles: float
    needles_recent: float
    named: float
    named_recent: float
    """Visible, or in a call that is visible and that a tool on offer loads."""
    seconds: float
    """Processor time between two requests, on average."""

    @property
    def relative(self) -> float:
        """Its cost beside the same requests without a cache."""
        return self.cost / self.uncached

    def values(self) -> tuple[tuple[str, float], ...]:
        """Return everything that is told, by name."""
        names = [name for name in self.__dataclass_fields__ if name not in _NAMES]
        found = [(name, float(getattr(self, name))) for name in names]
        return (*found, ("relative", self.relative))


_NAMES = ("policy", "window", "rules")


class Summariser:
    """Writes summaries by a rule: the identifiers that it was given, newest last, up to a size.

    The same one for every policy that summarises, so that only what it is asked differs.
    """

    MOST = 800

    def __init__(self) -> None:
        self.read = 0
        self.written = 0

    def __call__(self, text: str) -> str:
        """Return the summary of a text."""
        found = list(dict.fromkeys(NEEDLE.findall(text)))[-self.MOST // 8 :]
        said = f"The user was helped with bookings. Cases so far: {', '.join(found) or 'none'}."
        self.read += count(text)
        self.written += count(said)
        return said


@dataclass
class Score:
    """Takes the requests of one policy, one after another."""

    script: Script
    rules: str
    window: int
    summariser: Summariser = field(default_factory=Summariser)

    def __post_init__(self) -> None:
        caching = caching_for(MODELS[self.rules])
        assert caching is not None
        self._caching = caching
        self._cache = Cache(caching)
        self._before: list[Line] = []
        self._turn = -1
        self._shared: list[tuple[bool, float]] = []
        self._tokens: list[int] = []
        self._cost = 0.0
        self._views: list[tuple[float, float, float]] = []
        self._newest: list[bool] = []
        self._returned: list[bool] = []
        self._lost = 0
        self._needles: list[tuple[bool, bool, bool]] = []
        self.seconds: list[float] = []
        self.invalid = 0
        self.faults: dict[str, int] = {}
        self._texts = self.script.results
        for turn in self.script.turns:
            self._texts[f"t{turn.number:04}"] = turn.text
            self._texts[f"a{turn.number:04}"] = turn.answer

    def take(self, turn: Turn, step: int, request: Mapping[str, Any], seconds: float) -> None:
        """Score the request before this step of a turn."""
        wrong = faults(self.rules, request)
        self.invalid += bool(wrong)
        for each in wrong[:1]:
            kind = each.partition(": ")[2] or each
            self.faults[kind] = self.faults.get(kind, 0) + 1
        found = lines(self.rules, request)
        self.seconds.append(seconds)
        self._tokens.append(sum(line.tokens for line in found))
        inside = self._turn == turn.number
        if self._before:
            self._shared.append((inside, shared(self._before, found)))
        self._before, self._turn = found, turn.number
        self._send(found)
        self._look(turn, step, found)

    def _send(self, found: Sequence[Line]) -> None:
        blocks = tuple(
            Block(line.text, line.tokens, source=line.source, run=_follows(found, place))
            for place, line in enumerate(found)
        )
        marks = tuple(place for place, line in enumerate(found, 1) if line.marked)
        if self._caching.breakpoints and not marks:
            marks = usual_marks(
                Request(blocks, places=tuple(line.message for line in found)), self._caching
            )
        at = PAUSE * len(self._tokens)
        self._cost += self._cache.send(Request(blocks, marks=marks, at=at)).cost

    def _look(self, turn: Turn, step: int, found: Sequence[Line]) -> None:
        """Tell what is in view, and whether the needles are that the user has just repeated."""
        facts = [_facts(line.text) for line in found]
        seen = {mark for marks, _ in facts for mark in marks}
        whole = self._whole(found)
        full = partial = 0.0
        results: list[str] = []
        for past in self.script.turns[: turn.number + 1]:
            steps = past.steps[:step] if past is turn else past.steps
            groups = [[f"t{past.number:04}"], *([call.mark for call in step] for step in steps)]
            groups += [[f"a{past.number:04}"]] * (past is not turn)
            results += [mark for group in groups for mark in group if mark[0] == "s"]
            full += sum(whole.issuperset(group) for group in groups) / len(groups)
            partial += sum(seen.issuperset(group) for group in groups) / len(groups)
        last = results[-LAST_CALLS:]
        calls = sum(mark in seen for mark in last) / len(last) if last else 1.0
        self._views.append((full, partial, calls))
        self._lost += f"t{turn.number:04}" not in seen
        if step:
            self._newest.append(all(call.mark in seen for call in turn.steps[step - 1]))
            self._returned += [self._is_shown(call, found) for call in turn.steps[step - 1]]
        if step == 0:
            self._ask(turn, found, facts, seen)

    def _ask(self, turn: Turn, found: Sequence[Line], facts: Any, seen: set[str]) -> None:
        own = f"t{turn.number:04}"
        there = {text for marks, texts in facts if own not in marks for text in texts}
        loads = any(line.source == "tools" and '"load_result"' in line.text for line in found)
        for needle in turn.asked:
            visible = needle.text in there
            named = visible or (loads and needle.mark in seen)
            recent = turn.number - needle.turn <= LAST_TURNS
            self._needles.append((recent, visible, named))

    def _is_shown(self, call: Call, found: Sequence[Line]) -> bool:
        """Say whether a request gives a good view of the result that a call has just returned."""
        needed = min(count(call.result), RESULT_SHARE * self.window)
        shown = sum(count(line.said) for line in found if line.result == call.id)
        return shown >= GOOD_VIEW * needed

    def _whole(self, found: Sequence[Line]) -> set[str]:
        """Return the marks of what is shown in full: results as they came, texts as they were."""
        whole: set[str] = set()
        for line in found:
            own = {line.result.removeprefix("call_")}
            marks = own if line.result else _facts(line.text)[0]
            whole.update(mark for mark in marks if self._texts.get(mark) == line.said)
        return whole

    def row(self, policy: str) -> Row:
        """Return what was found."""
        start = int(SETTLED * len(self._views))
        views = self._views[start:]
        inside = [share for within, share in self._shared if within]
        recent = [needle for needle in self._needles if needle[0]]
        used = self.summariser
        summaries = used.read + OUTPUT[self.rules] * used.written
        return Row(
            policy=policy,
            window=self.window,
            rules=self.rules,
            requests=len(self._tokens),
            invalid=self.invalid,
            over=sum(tokens > self.window for tokens in self._tokens),
            refused=self.script.requests - len(self._tokens),
            prefix=_mean(inside),
            prefix_all=_mean([share for _, share in self._shared]),
            cost=self._cost + summaries,
            uncached=sum(self._tokens) + summaries,
            tokens=_mean(self._tokens),
            turns_full=_mean([view[0] for view in views]),
            turns_seen=_mean([view[1] for view in views]),
            calls_seen=_mean([view[2] for view in views]),
            question_lost=self._lost,
            newest_seen=_mean(self._newest),
            newest_shown=_mean(self._returned),
            needles=_mean([needle[1] for needle in self._needles]),
            needles_recent=_mean([each[1] for each in recent]),
            named=_mean([needle[2] for needle in self._needles]),
            named_recent=_mean([each[2] for each in recent]),
            seconds=_mean(self.seconds[start:]),
        )


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 1.0


@lru_cache(maxsize=20_000)
def _facts(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the marks and the needles in a line."""
    return frozenset(MARK.findall(text)), frozenset(NEEDLE.findall(text))


def _follows(found: Sequence[Line], place: int) -> bool:
    return bool(place and found[place].result and found[place - 1].result)
