"""The frontier over a session: restarts, moves, and what it costs to plan with caching on."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

from bench.cache.sessions import MODELS, TOKENIZER, Session
from muntin import App
from muntin.core.caching.frontier import Frontier
from muntin.core.planning.slot import Stepped
from muntin.core.planning.slots import Slots
from muntin.core.window import Window
from muntin.testing import ScriptedModel
from muntin.timeline.store.sql import Store


def windows(session: Session, trimming: Stepped, *, restart: bool = False) -> Iterator[Window]:
    """Compose the windows of a session; with `restart`, only what is stored comes along."""
    previous: Window | Frontier | None = None
    for moment in session.replay(MODELS[0]).moments:
        slots = Slots(
            session.budget,
            tokenizer=TOKENIZER,
            profile=MODELS[0],
            trimming=trimming,
            previous=previous,
        )
        slots.add("system", moment.system, tier="pinned")
        slots.add("history", moment.past)
        if moment.volatile is not None:
            slots.add("retrieval", moment.volatile.text, max_ratio=0.25)
        window = slots.render()
        yield window
        previous = window
        if restart:
            previous = Frontier.from_dict(json.loads(json.dumps(window.frontier.to_dict())))


def same_after_restarts(session: Session) -> tuple[int, int]:
    """Return how many windows are the same when the process is restarted between any two turns,
    and how many there are."""
    pairs = zip(windows(session, Stepped()), windows(session, Stepped(), restart=True), strict=True)
    same = [(a.messages, a.breakpoints) == (b.messages, b.breakpoints) for a, b in pairs]
    return sum(same), len(same)


@dataclass(frozen=True)
class Moves:
    """How a frontier moved: how often at all, how often backward, and in which move the history
    had grown least since the one before, in tokens, beside what that move had left free."""

    moves: int
    backward: int
    grown: int
    free: int


def moves(session: Session, trimming: Stepped) -> Moves:
    """Follow the frontier through a session."""
    replay = session.replay(MODELS[0])
    room = replay.history_budget  # as if every turn brought the largest text
    said = [point.history for point in replay.points()]
    results: list[tuple[int, int]] = []
    first = backward = moved_at = left = 0
    for window, now in zip(windows(session, trimming), said, strict=True):
        starts = window.frontier.starts  # none before the assistant has spoken
        begins = starts[0].first if starts else 0
        backward += begins < first
        if begins != first:
            results.append((now - moved_at, room - left))
            first, moved_at = begins, now
            left = window.report["history"].tokens_kept
    grown, free = min(results, key=lambda move: move[0] / move[1])
    return Moves(len(results), backward, grown, free)


def plain_windows(session: Session) -> Iterator[Window]:
    """Compose the same windows without caching: no rules, nothing remembered, exact trimming."""
    for moment in session.replay(MODELS[0]).moments:
        slots = Slots(session.budget, tokenizer=TOKENIZER)
        slots.add("system", moment.system)
        slots.add("history", moment.past)
        yield slots.render()


def planning(session: Session, repeats: int) -> tuple[float, float]:
    """Return the seconds of planning all windows with caching on, and without."""
    works: tuple[Callable[[], Iterator[Window]], ...] = (
        lambda: windows(session, Stepped()),
        lambda: plain_windows(session),
    )
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for work, times in zip(works, seconds, strict=True):
            start = process_time()
            for _ in work():
                pass
            times.append(process_time() - start)
    return min(seconds[0]), min(seconds[1])


def turns(session: Session, rounds: int) -> tuple[float, float]:
    """Return the seconds of a turn in SQLite with caching on, and without, all that is written
    included: the messages, the report, and with caching the frontier."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_turns(session, Path(folder), rounds))


async def _turns(session: Session, folder: Path, rounds: int) -> tuple[float, float]:
    # The windows of a model that caches are stepped by themselves; of another they are not.
    names = {MODELS[0]: "cached", "scripted": "plain"}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    apps = {
        name: App(
            Store(f"sqlite:///{folder / file}.db"),
            model=ScriptedModel(lambda window: "It is done.", name=name),
            budget=session.budget,
            tokenizer=TOKENIZER,
        )
        for name, file in names.items()
    }
    for app in apps.values():
        app.session("talk").append(*session.messages[1:])
    for number in range(rounds + 2):
        for name, app in apps.items():
            start = process_time()
            await app.conversation("talk").send(f"{number}: and the next one?")
            if number > 1:  # what is made once is not a turn's
                seconds[name].append(process_time() - start)
    for app in apps.values():
        await app.close()
        app.store.close()
    return median(seconds[MODELS[0]]), median(seconds["scripted"])
