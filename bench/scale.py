"""How cost grows with messages, slots, contexts, sessions and concurrent turns.

    python bench/scale.py [--short] [--out FILE]

Each work is measured at sizes that grow by equal factors, all sizes in turns in one run, and the
exponent of its growth is fitted on all sizes and on the larger half of them; the worse of the two
is held against the aim. The collector of cycles is kept out of it: where more than some 30,000
messages are shown it takes longer than the work, and grows with whatever else a program holds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.conversations import TEXT, fill, turn
from bench.measure import Figure, amount, exponents, in_turns, memory, run
from muntin import (
    App,
    Ladder,
    Message,
    Results,
    Slots,
    Stepped,
    Tokens,
    ToolCall,
    Window,
    assistant,
    context,
    prompt,
    tool,
    user,
)
from muntin.prompts.definition import Prompt
from muntin.testing import ScriptedModel
from muntin.timeline.session import Session
from muntin.timeline.store import Store
from muntin.timeline.store.memory import MemoryStore

BUDGET = 8_000
# What should not grow at all, and what may grow with what is shown; both with room for noise.
FLAT, LINEAR = 0.15, 1.15
PAGE = 100

Works = Mapping[int, Callable[[], object]]


def spread(smallest: int, largest: int, steps: int) -> list[int]:
    """Return sizes that grow by equal factors."""
    factor = (largest / smallest) ** (1 / (steps - 1))
    return sorted({round(smallest * factor**step) for step in range(steps)})


def growth(
    work: str, by: str, points: Sequence[tuple[int, float]], most: float, unit: str = "s"
) -> Figure:
    """State how a cost grows, beside a linear one."""
    whole, large = exponents(points)
    return Figure(
        work=work,
        by=by,
        peer="linear growth",
        ours=max(whole, large, 0.0),
        theirs=1,
        unit="exponent",
        at_most=most,
        note=f"from {amount(points[0][1], unit)} to {amount(points[-1][1], unit)}",
        points=tuple(points),
    )


def timed(
    work: str,
    by: str,
    works: Works,
    rounds: int,
    most: float,
    *,
    each: bool = False,
    clock: Callable[[], float] = process_time,
) -> Figure:
    """Time works by their size, in turns; with `each`, what one of so many costs."""
    print(f"{work}, by {by} ...", file=sys.stderr)
    named = {str(size): run for size, run in works.items()}
    taken = in_turns(named, rounds, clock=clock, collecting=False)
    seconds = {size: taken[str(size)].seconds for size in works}
    return growth(work, by, [(n, s / n if each else s) for n, s in seconds.items()], most)


# Runs.


def working(groups: int) -> list[Message]:
    """Return the run of an agent: so many calls, with results of 400 to 8,000 characters."""
    run: list[Message] = []
    for number in range(groups):
        call = ToolCall(f"c{number}", "look", f'{{"n":{number}}}')
        result = f"line of file {number}\n" * (20, 100, 400)[number % 3]
        run += [assistant(tool_calls=[call]), tool(call.id, result)]
    return run


def step_of(run: Sequence[Message], budget: int, ladder: Ladder | None) -> Callable[[], Window]:
    """Return how the next step of a run is planned, with the window before it."""
    counter = Slots(1, tokenizer="chars/4").counter

    def plan(run: Sequence[Message], previous: Window | None) -> Window:
        slots = Slots(
            budget,
            counter=counter,
            profile="anthropic/claude-sonnet-4-5",
            trimming=Stepped(),
            previous=previous,
            results=Results() if ladder else None,
            ladder=ladder,
        )
        slots.add("input", "Look through the files.")
        slots.add("run", run)
        return slots.render()

    before = plan(run[:-2], None)
    return lambda: plan(run, before)


def runs(short: bool) -> Iterator[Figure]:
    """Measure a step of a run whose calls are all in view, most of them as stubs."""
    groups = 60 if short else 400
    run = working(groups)
    works = {
        "ladder": step_of(run, 60 * groups, Ladder()),
        "whole": step_of(run, 10_000_000, None),
    }
    shown = {name: len(work().messages) for name, work in works.items()}
    assert len(set(shown.values())) == 1, shown
    taken = in_turns(works, 5 if short else 40, clock=process_time, collecting=False)
    yield Figure(
        work=f"a step of a run, {groups} groups in view, with a ladder",
        peer="the same groups whole",
        ours=taken["ladder"].seconds,
        theirs=taken["whole"].seconds,
        at_most=2.0,
    )


# Messages.


def compose(messages: Sequence[Message], budget: int = BUDGET) -> int:
    """Compose a window of messages, and return how many of them it shows."""
    slots = Slots(budget, tokenizer="chars/4")
    slots.add("history", messages)
    return len(slots.render().messages)


def conversation(size: int) -> list[Message]:
    """Return so many messages; beyond some thousand the same ones again."""
    some = [message for number in range(min(size, 4_000) // 4) for message in turn(number)]
    return (some * (size // len(some) + 1))[-size:]


def messages(folder: Path, short: bool) -> Iterator[Figure]:
    """Measure windows on timelines of 100 to 1,000,000 messages."""
    sizes = spread(100, 3_000 if short else 1_000_000, 5 if short else 9)
    rounds = 5 if short else 40
    sessions = {}
    for size in sizes:
        print(f"a timeline of {size:,} messages ...", file=sys.stderr)
        store = Store(f"sqlite:///{folder / f'messages-{size}'}.db")
        sessions[size] = Session("s", store=store, tokenizer="chars/4")
        fill(sessions[size], size)

    def reading(session: Session) -> int:
        return compose(session.messages(Tokens(BUDGET)))

    works: Works = {size: partial(reading, session) for size, session in sessions.items()}
    yield timed("a window of 8,000 tokens from SQLite", "messages", works, rounds, FLAT)
    peaks = [(size, memory(works[size])) for size in sizes]
    yield growth("memory of such a window", "messages", peaks, FLAT, "bytes")
    one = user(TEXT[:120])
    works = {size: partial(session.append, one) for size, session in sessions.items()}
    yield timed("append one message in SQLite", "messages", works, rounds, FLAT)
    for session in sessions.values():
        session.store.close()

    kept = {}
    for size in (size for size in sizes if size <= 100_000):
        kept[size] = Session("s", store=MemoryStore(), tokenizer="chars/4")
        fill(kept[size], size)
    works = {size: partial(reading, session) for size, session in kept.items()}
    yield timed("a window of 8,000 tokens from memory", "messages", works, rounds, FLAT)

    listed = {size: conversation(size) for size in sizes}
    works = {size: partial(compose, given) for size, given in listed.items()}
    yield timed("a window of 8,000 tokens from a list", "messages", works, rounds, FLAT)
    yield from shown({n: given for n, given in listed.items() if n <= 320_000}, short)


def shown(listed: Mapping[int, list[Message]], short: bool) -> Iterator[Figure]:
    """Measure windows that grow: all of the messages fit, or half of them do."""
    rounds = 2 if short else 5
    all_fit = {size: partial(compose, given, 1_000 * size) for size, given in listed.items()}
    yield timed("a window that shows all", "messages", all_fit, rounds, LINEAR)
    half = {size: partial(compose, given, 30 * size) for size, given in listed.items()}
    yield timed("a window that shows about half", "messages", half, rounds, LINEAR)


# Slots and contexts.


def declared(number: int, share: float) -> Slots:
    """Return so many slots of different priorities, of which a share fits."""
    slots = Slots(max(80, round(share * 80 * number)), tokenizer="chars/4")
    for n in range(number):
        slots.add(f"slot {n}", f"{n}: {TEXT[:280]}", priority=n * 37 % 101, trim_behavior="slot")
    return slots


def slots(short: bool) -> Iterator[Figure]:
    """Measure windows of 1 to 1,000 slots."""
    sizes = spread(1, 100 if short else 1_000, 5 if short else 9)
    rounds = 3 if short else 15

    def render(number: int, share: float) -> int:
        window = declared(number, share).render()
        return len(window.messages) + len(window.report.slots)

    for what, share in (("all fit", 2.0), ("half of them fit", 0.5)):
        works = {size: partial(render, size, share) for size in sizes}
        yield timed(f"a window and its report, {what}", "slots", works, rounds, LINEAR)
    talk = conversation(10_000)

    def histories(number: int) -> int:
        slots = Slots(BUDGET, tokenizer="chars/4")
        for n in range(number):
            slots.add(f"slot {n}", talk[8 * n : 8 * n + 8], priority=n * 37 % 101)
        return len(slots.render().messages)

    works = {size: partial(histories, size) for size in sizes}
    yield timed("a window of 8,000 tokens, 8 messages a slot", "slots", works, rounds, LINEAR)


def contexts(short: bool) -> Iterator[Figure]:
    """Measure prompts of 1 to 500 contexts."""
    sizes = spread(1, 50 if short else 500, 4 if short else 8)
    rounds = 3 if short else 15

    def bot(number: int) -> Prompt:
        used = [
            context(id=f"c{n}", priority=n * 37 % 100, system=f"{n}: {TEXT[:280]}")
            for n in range(number)
        ]
        return prompt(system="You are an assistant.", use=used)

    bots = {size: bot(size) for size in sizes}
    for what, share in (("all fit", 2.0), ("half of them fit", 0.5)):
        works = {
            size: partial(
                bots[size].inspect_sync,
                tokenizer="chars/4",
                token_budget=max(80, round(share * 72 * size)),
            )
            for size in sizes
        }
        yield timed(f"a prompt inspected, {what}", "contexts", works, rounds, LINEAR)


# Sessions.


def crowd(path: Path, number: int) -> None:
    """Fill a store with so many sessions of two turns, all like the first, by SQL."""
    with Store(f"sqlite:///{path}") as store:
        fill(Session("s-0000000", store=store, tokenizer="chars/4"), 8)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        other_rows = f"SELECT 2 UNION ALL SELECT id + 1 FROM n LIMIT {number - 1}"
        named = "printf('s-%07d', n.id - 1)"
        for table, key in (("sessions", "id"), ("turns", "session"), ("items", "session")):
            cached = connection.execute(f"SELECT * FROM muntin_{table} LIMIT 0").description
            new = {key: "n.id", "name": named}
            columns = ", ".join(new.get(column, f"one.{column}") for column, *_ in cached)
            model = f"SELECT * FROM muntin_{table} WHERE {key} = 1"
            if number > 1:
                connection.execute(
                    f"INSERT INTO muntin_{table} WITH RECURSIVE n(id) AS ({other_rows}) "
                    f"SELECT {columns} FROM n, ({model}) AS one"
                )
    connection.close()


def remembered(number: int) -> MemoryStore:
    """Return a store in memory with so many sessions, not in order."""
    store = MemoryStore()
    for n in range(number):
        name = f"s-{n * 7_919 % number:07}"
        Session(name, store=store, tokenizer="chars/4", mend=False).append(user(TEXT[:40]))
    return store


def paging(store: Store) -> int:
    """List all sessions of a store, page by page."""
    after, found = None, 0
    while page := store.sessions(after=after, limit=PAGE):
        after, found = page[-1].id, found + len(page)
    return found


def sessions(folder: Path, short: bool) -> Iterator[Figure]:
    """Measure stores of 1 to 100,000 sessions."""
    sizes = spread(1, 1_000 if short else 100_000, 4 if short else 6)
    rounds = 3 if short else 30
    stores = {}
    for size in sizes:
        path = folder / f"sessions-{size}.db"
        crowd(path, size)
        stores[size] = Store(f"sqlite:///{path}")

    def opening(size: int) -> int:
        session = Session(f"s-{size // 2:07}", store=stores[size], tokenizer="chars/4")
        return compose(session.messages(Tokens(BUDGET)))

    works: Works = {size: partial(opening, size) for size in sizes}
    yield timed("open a session, compose its window", "sessions", works, rounds, FLAT)

    works = {size: partial(paging, store) for size, store in stores.items()}
    yield timed(f"list all in pages of {PAGE}, SQLite", "sessions", works, 3, LINEAR)
    works = {size: partial(paging, remembered(size)) for size in sizes}
    yield timed(f"list all in pages of {PAGE}, memory", "sessions", works, 3, LINEAR)
    works = {size: partial(stores[size].sessions, waiting=True, limit=PAGE) for size in sizes}
    yield timed("look for turns that wait", "sessions", works, rounds, FLAT)
    for store in stores.values():
        store.close()


# A conversation.


def conversations(folder: Path, short: bool) -> Iterator[Figure]:
    """Measure what a turn costs late in a conversation, beside a turn at its beginning; its window
    is full after some 45 turns."""
    count = 100 if short else 400
    for name, url in (("memory", "memory:"), ("SQLite", f"sqlite:///{folder / 'talk.db'}")):
        print(f"a conversation of {count} turns, {name} ...", file=sys.stderr)
        app = App(url, model=ScriptedModel(lambda window: TEXT[:60]), tokenizer="chars/4")
        talk = app.conversation("c", budget=2_000)
        seconds = []
        with asyncio.Runner() as runner:
            for number in range(count):
                began = process_time()
                runner.run(talk.send(f"{number}: {TEXT[:60]}"))
                seconds.append(process_time() - began)
            runner.run(app.close())
        fifth = count // 5
        first, last = median(seconds[:fifth]), median(seconds[-fifth:])
        yield Figure(
            work=f"a turn in the last fifth of {count} turns, {name}",
            by="turns",
            peer="a turn in the first fifth",
            ours=last,
            theirs=first,
            unit="s",
            at_most=2,
        )


# Concurrent turns.


def turns(folder: Path, short: bool) -> Iterator[Figure]:
    """Measure 1 to 200 turns at once on one app."""
    sizes = spread(1, 20 if short else 200, 4 if short else 7)
    rounds = 2 if short else 9
    for name, url in (("memory", "memory:"), ("SQLite", f"sqlite:///{folder / 'turns.db'}")):
        app = App(url, model=ScriptedModel(lambda window: TEXT[:200]), tokenizer="chars/4")
        numbers = count()

        async def together(size: int, app: App = app, numbers: Iterator[int] = numbers) -> None:
            start = next(numbers)
            talks = [app.conversation(f"c-{start}-{n}") for n in range(size)]
            await asyncio.gather(*(talk.send(TEXT[:120]) for talk in talks))

        with asyncio.Runner() as runner:

            def wait(size: int, runner: asyncio.Runner = runner) -> None:
                runner.run(together(size))

            wait(1)
            works = {size: partial(wait, size) for size in sizes}
            work = f"one of the turns on one app, in {name}"
            yield timed(work, "turns at once", works, rounds, FLAT, each=True, clock=perf_counter)
            runner.run(app.close())


def measure(short: bool) -> Iterator[Figure]:
    """Measure all growths."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield from runs(short)
        yield from messages(folder, short)
        yield from slots(short)
        yield from contexts(short)
        yield from sessions(folder, short)
        yield from conversations(folder, short)
        yield from turns(folder, short)


if __name__ == "__main__":
    run(__doc__, measure)
