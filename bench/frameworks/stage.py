"""The play that every framework is given, and the stage that it is played on.

The script is the one of the long runs with smaller results: 60 turns, 178 requests, fourteen tools.
The user of a framework writes an agent with these tools; the model on this machine plays its part,
and every request that arrives is held against the vendors' rules and scored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from time import thread_time
from typing import Any, ParamSpec, TypeAlias, TypeVar

from bench.frameworks.speak import Called, Said, speaking
from bench.runs.ours import about
from bench.runs.score import Score
from bench.runs.script import Script, Turn, script
from bench.runs.wire import lines

P = ParamSpec("P")
T = TypeVar("T")
BUDGET, REQUESTS = 8_000, 178
RUNS = (1, 0, 2, 1, 1, 0, 1, 2, 1, 11)
KILOBYTES = (0.4, 2, 0.8, 5, 1.2, 0.6, 3, 0.5, 1.5, 8, 0.7, 2.5, 1)
# The APIs that requests are scored for, and the rules of the vendor.
RULES = {"chat": "openai", "anthropic": "anthropic"}
# The first words of the requests that a framework's own summaries make.
SUMMARISING = "<summarise>"


def played(requests: int = REQUESTS) -> Script:
    """Return the script."""
    return script(requests, runs=RUNS, kilobytes=KILOBYTES)


Means: TypeAlias = "Callable[[Stage, str], None]"
"""Plays the whole script against the model at an address."""


class Stage:
    """The model's side of the play: says what comes next, and scores what it is asked with."""

    def __init__(
        self,
        script: Script,
        window: int = BUDGET,
        *,
        rules: str = "openai",
        check: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.script = script
        self.score = Score(script, rules, window)
        self.requests: list[dict[str, Any]] = []
        self.spent = 0.0
        self._check = check
        self._turn: Turn = script.turns[0]
        self._step = 0

    def begin(self, turn: Turn) -> str:
        """Begin a turn, also if the one before broke off, and return what the user says."""
        self._turn, self._step = turn, 0
        return turn.text

    def speak(self, api: str, request: dict[str, Any]) -> Said:
        """Be the model: be asked, and say what the script says."""
        if SUMMARISING in json.dumps(request):
            return Said(self.score.summariser(json.dumps(request)))
        self.requests.append(request)
        if self._check is not None:
            self._check(api, request)
        read = 0
        if RULES.get(api) == self.score.rules:
            self.score.take(self._turn, self._step, request, self.spent)
            read = sum(line.tokens for line in lines(self.score.rules, request))
        self.spent = 0.0
        step, self._step = self._step, self._step + 1
        turn = self._turn
        if step >= len(turn.steps):
            if turn.number + 1 < len(self.script.turns):
                self.begin(self.script.turns[turn.number + 1])
            return Said(turn.answer, read=read)
        calls = [Called(each.id, each.name, each.arguments) for each in turn.steps[step]]
        return Said(calls=tuple(calls), read=read)

    def summarise(self, text: str) -> str:
        """Write a summary, on the bill."""
        return self.score.summariser(text)

    def failed(self, error: Exception) -> None:
        """Note that a turn broke off."""
        name = type(error).__name__
        self.score.faults[name] = self.score.faults.get(name, 0) + 1

    def timed(self, hook: Callable[P, T]) -> Callable[P, T]:
        """Wrap the synchronous work of a hook: what it takes is added to the next request."""

        @wraps(hook)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            start = thread_time()
            try:
                return hook(*args, **kwargs)
            finally:
                self.spent += thread_time() - start

        return run

    @contextmanager
    def open(self) -> Iterator[str]:
        """Serve the model, and give its address."""
        with speaking(self.speak) as server:
            yield server.url


def looker(results: Mapping[str, str], name: str) -> Callable[..., str]:
    """Return a tool of the script as a plain function."""

    def look(step: str, arguments: dict[str, Any]) -> str:
        return results[step]

    look.__name__, look.__doc__ = name, about(name)
    return look


def lookers(script: Script) -> list[Callable[..., str]]:
    """Return all tools of the script."""
    results = script.results
    return [looker(results, name) for name in script.names]
