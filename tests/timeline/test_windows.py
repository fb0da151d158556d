"""Windows against a slow twin that follows the rule word by word."""

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import assistant, user
from muntin.timeline.history import Tokens, Turns
from muntin.timeline.items import STATUSES, Draft, Visibility
from muntin.timeline.session import Session
from muntin.timeline.store import open_store
from tests.timeline.words import Words, words


@dataclass
class Said:
    """One item: a message of so many tokens, or (None) a run, which is no message."""

    tokens: int | None
    visible: bool = True
    transient: bool = False
    position: int = 0


@dataclass
class Past:
    """One turn, as the rule sees it."""

    status: str
    items: list[Said] = field(default_factory=list)

    def messages(self, *, over: bool) -> list[Said]:
        """Return what it shows; once it is over, without what was only for the moment."""
        return [
            item
            for item in self.items
            if item.tokens is not None and item.visible and not (over and item.transient)
        ]


def window(turns: list[Past], most: int | None, tokens: int | None) -> list[int]:
    """Return the positions that the rule shows: `most` completed turns within `tokens`."""
    completed = [turn for turn in turns if turn.status == "completed"]
    last = max((i for i, turn in enumerate(turns) if turn.status == "completed"), default=-1)
    in_flight = [
        turn
        for index, turn in enumerate(turns)
        if turn.status in ("open", "pending") or (turn.status == "failed" and index > last)
    ]
    chosen: list[Past] = []
    total, any_messages = 0, False
    newest_first = completed[::-1] if most is None else completed[::-1][: max(0, most)]
    for turn in newest_first:
        messages = turn.messages(over=True)
        total += sum(message.tokens or 0 for message in messages)
        # The newest turn that has any messages is kept even if it alone is too large.
        if tokens is not None and total > tokens and any_messages:
            break
        chosen.append(turn)
        any_messages = any_messages or bool(messages)
    shown = [message for turn in chosen for message in turn.messages(over=True)]
    shown += [message for turn in in_flight for message in turn.messages(over=False)]
    # Turn by turn, each in the order in which it was said.
    numbers = {item.position: n for n, turn in enumerate(turns) for item in turn.items}
    positions = [message.position for message in shown]
    return sorted(positions, key=lambda position: (numbers[position], position))


said = st.builds(
    Said,
    st.sampled_from([None, 0, 1, 1, 2, 3]),
    st.sampled_from([True, True, True, True, False]),
    st.sampled_from([False, False, False, False, True]),
)
statuses = st.sampled_from([*STATUSES, *["completed"] * 5])
# Each step adds an item to a new turn (None) or to an earlier one, as several writers do; the
# status is what the turn comes to in the end.
places = st.sampled_from([None, None, 0, 1, 2, 3])
steps = st.lists(st.tuples(places, said, statuses), max_size=12)
LIMITS = [None, *map(Turns, range(-1, 5)), *map(Tokens, range(12))]
ceilings = st.sampled_from([*[Turns(50)] * 4, Turns(0), Turns(2), Tokens(3), Tokens(50)])


def play(session: Session, steps: list[Any]) -> list[Past]:
    """Append the steps and return them as the turns of the twin."""
    turns: list[Past] = []
    drafts: list[Draft] = []
    for position, (turn, item, status) in enumerate(steps, 1):
        number = None if turn is None or not turns else turn % len(turns)
        if number is None:
            turns.append(Past(status))
        item.position = position
        turns[-1 if number is None else number].items.append(item)
        text = "w " * (item.tokens or 0)
        message = user(text) if number is None else assistant(text)
        drafts.append(
            Draft(
                "run" if item.tokens is None else "message",
                None if item.tokens is None else message,
                visibility=Visibility(history=item.visible),
                transient=item.transient,
                opens="turn" if number is None else None,
                turn=None if number is None else number + 1,
            )
        )
    for turn in turns:
        last = turn.items[-1].position - 1
        drafts[last] = replace(drafts[last], ends=turn.status)  # type: ignore[arg-type]
    session.append(*drafts)
    return turns


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def kept(request, tmp_path_factory):
    file = tmp_path_factory.mktemp("windows") / "store.db"
    with open_store("memory:" if request.param == "memory" else f"sqlite:///{file}") as store:
        yield store


names = count()


@given(
    steps=steps,
    ceiling=ceilings,
    counted_by=st.sampled_from([Words(), words, "chars/4"]),
    read_by=st.sampled_from([Words(), words]),
)
def test_a_window_shows_what_the_rule_says(kept, steps, ceiling, counted_by, read_by):
    id = str(next(names))
    turns = play(Session(id, store=kept, tokenizer=counted_by), steps)
    session = Session(id, store=kept, tokenizer=read_by, window=ceiling)
    for limit in LIMITS:
        given = [each for each in (ceiling, limit) if each is not None]
        most = min((each.count for each in given if isinstance(each, Turns)), default=None)
        tokens = min((each.count for each in given if isinstance(each, Tokens)), default=None)
        messages = session.messages(limit)
        shown = [message.item and message.item[1] for message in messages]
        assert shown == window(turns, most, tokens), limit
        places = [message.at or 0 for message in messages]
        assert places == sorted(places), limit
