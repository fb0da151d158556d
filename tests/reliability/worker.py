"""Processes that the tests start, and some of which they kill.

What was acknowledged is said on standard output at once, one line each.
"""

import json
import os
import random
import resource
import sys
import tempfile
import time
from itertools import count
from typing import Any

from muntin.core.message import assistant, user
from muntin.errors import StoreError
from muntin.fitting import Fitter
from muntin.timeline.items import ContentKind, NoteKind, draft_of
from muntin.timeline.session import Session
from muntin.timeline.store import open_store
from muntin.timeline.store.sql import Store
from muntin.wire.lists import pieces_of


def say(*words: object) -> None:
    print(*words, flush=True)


def append_for_ever(url: str, session: str, seed: str) -> None:
    """Append turn after turn at full speed: each of some appends, each of some messages."""
    chance = random.Random(seed)
    say("opening")
    log = Session(session, store=url, tokenizer=len)  # so that time goes into the store
    batches = count()
    while True:
        with log.turn() as turn:
            for _ in range(chance.randint(1, 3)):
                batch, size = next(batches), chance.randint(1, 5)
                # Some messages take many pages, so that a kill finds an append half written.
                fill = "x" * chance.choice((0, 100, 20_000))
                say("trying", batch)
                items = turn.append(*(user(f"{batch} {n} {size} {fill}") for n in range(size)))
                say("appended", batch, items[0].position, size)
        say("completed", turn.number)


def begin_a_turn(url: str, session: str) -> None:
    """Begin a turn and never end it."""
    with Session(session, store=url).turn() as turn:
        turn.append(user("Book me a flight."))
        turn.append(assistant("To where?"))
        say("begun")
        sys.stdin.read()


class SlowStore(Store):
    """A store whose readers take some time until they write."""

    pause = 0.03

    def content(self, session: str, kind: ContentKind | NoteKind, name: str = "") -> str | None:
        found = super().content(session, kind, name)
        time.sleep(self.pause)
        return found


def record_with_others(url: str, session: str) -> None:
    """Fit each list that comes in, and record it."""
    fitter = Fitter(2_000, store=SlowStore(url))
    say("ready")
    for line in sys.stdin:
        fitter.fit(pieces_of(json.loads(line)), conversation=session)
        assert fitter.recorder is not None
        fitter.recorder.writes.put(lambda: None).result(60)  # a fit does not wait for its store
        say("recorded")


def fit_and_end(url: str, session: str) -> None:
    """Fit a list with a store that is slow, and end at once."""
    fitter = Fitter(2_000, store=SlowStore(url))
    fitter.fit(pieces_of(json.loads(sys.stdin.readline())), conversation=session)


def append_with_others(
    url: str, writer: int, appends: int, sessions: int, messages: int = 2
) -> None:
    """Append to several sessions in an order of one's own, and tell every position at the end."""
    chance = random.Random(writer)
    store = open_store(url)
    say("ready")
    sys.stdin.readline()
    told = []
    for number in range(appends):
        session = f"session {chance.randrange(sessions)}"
        first, *rest = [user(f"{writer} {number} {n}") for n in range(messages)]
        drafts = [draft_of(first, opens="turn", ends="completed"), *map(draft_of, rest)]
        items = store.append(session, drafts)
        told.append((session, number, [item.position for item in items]))
    say(json.dumps(told))


def fill_the_disk(url: str, session: str, limit: int) -> None:
    """Append until files may not grow, then on when they may again."""
    store = open_store(url)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    try:
        for number in range(10_000):
            # Two pages of SQLite for each: no append fits into what is left of one.
            store.append(session, [draft_of(user(f"{number} {'x' * 8_000}"), opens="turn")])
            say("appended", number)
    except StoreError as error:
        say("refused", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    store.append(session, [draft_of(user("after"), opens="turn")])
    say("appended", "after")


def write_as_nobody(url: str, session: str) -> None:
    """Try to append as a user whom permissions bind, which root is not."""
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as folder:
            open_store(f"sqlite:///{folder}/store.db").close()  # imports what nobody may read
        os.seteuid(65534)
    try:
        open_store(url).append(session, [draft_of(user("mine"), opens="turn")])
        say("appended")
    except StoreError as error:
        say("refused", error)


WORK = {
    work.__name__: work
    for work in (
        append_for_ever,
        begin_a_turn,
        append_with_others,
        record_with_others,
        fit_and_end,
        fill_the_disk,
        write_as_nobody,
    )
}

if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[2])
    WORK[sys.argv[1]](**given)
