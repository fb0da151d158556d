"""What every adapter must do, played with the real framework in processes of their own.

A model on this machine holds each request against the wire rules; the same conversation is played
in one process and in several, each of which has nothing but what the framework keeps.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.frameworks.stage import Stage, played
from bench.runs.rules import combined
from bench.runs.score import Row
from muntin.fitting import Fitter
from muntin.timeline.store import open_store
from tests.paths import ROOT
from tests.wire.rules import CHECKS

REQUESTS, BUDGET = 44, 4_000
# What a request has beside the window.
_BESIDE = ("stream", "stream_options", "max_tokens", "temperature", "n", "extra_body")


def check(api: str, request: Mapping[str, Any]) -> None:
    """Hold a request against the vendor's types and rules."""
    body = {key: value for key, value in request.items() if key not in _BESIDE}
    if api == "anthropic":
        body["messages"] = combined(body["messages"])
        if isinstance(body.get("system"), str):
            body["system"] = [{"type": "text", "text": body["system"]}]
    if api == "chat":  # an answer that only calls may leave its content out
        body["messages"] = [{"content": None, **each} for each in body["messages"]]
    CHECKS[api](body)


@dataclass(frozen=True)
class Played:
    """What arrived at the model, and its score."""

    requests: list[dict[str, Any]]
    row: Row


def play(framework: str, folder: Path, ends: Sequence[int] = ()) -> Played:
    """Play the script; a new process begins after each of these turns."""
    script = played(REQUESTS)
    stage = Stage(script, BUDGET, check=check)
    borders = [0, *ends, len(script.turns)]
    with stage.open() as url:
        for first, end in pairwise(borders):
            stage.begin(script.turns[first])
            numbers = map(str, (REQUESTS, first, end, BUDGET))
            command = [sys.executable, "-m", "bench.frameworks.resume", framework, url]
            done = subprocess.run(
                [*command, str(folder), *numbers], cwd=ROOT, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr[-3_000:]
    return Played(stage.requests, stage.score.row(framework))


def session_of(framework: str, folder: Path) -> str:
    """Return the session under which a conversation is recorded, after it has gone on in another
    Fitter, as after a restart."""
    script = played(8)
    stage = Stage(script, BUDGET, check=check)
    asked = [turn.text for turn in script.turns]
    assert len(asked) > 2
    with stage.open() as url, open_store(f"sqlite:///{folder}/records.db") as store:
        for turns in (script.turns[:1], script.turns[1:]):
            stage.begin(turns[0])
            resume = import_module(f"bench.frameworks.{framework}").resume
            resume(script, url, folder, turns, Fitter(BUDGET, store=store))
        (session,) = store.sessions()
        items = store.read(session.id)
    assert [item.message.text for item in items if item.role == "user" and item.message] == asked
    return session.id


def check_fits(whole: Played) -> None:
    """All requests arrived, are valid, fit, and show the question; the past had to be cut."""
    row = whole.row
    assert len(whole.requests) == REQUESTS
    assert (row.requests, row.invalid, row.over, row.refused) == (REQUESTS, 0, 0, 0)
    assert row.question_lost == 0
    assert row.newest_seen == 1
    assert row.turns_seen < len(played(REQUESTS).turns) / 2
    assert row.prefix_all > 0.8


def check_same_bytes(framework: str, folder: Path, whole: Played) -> None:
    """A conversation that three processes went on with sends what one process sends."""
    again = play(framework, folder, ends=(5, 9))
    assert len(again.requests) == len(whole.requests)
    for number, (one, other) in enumerate(zip(whole.requests, again.requests, strict=True)):
        assert one == other, f"request {number}"
