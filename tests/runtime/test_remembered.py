"""What a process remembers of a timeline: found again, and never stale, whoever changed it."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from muntin import App, Message, Session, ToolCall
from muntin.core.counting.memo import FormMemo
from muntin.core.parts import Reasoning, Text
from muntin.core.planning.slots import Slots
from muntin.testing import ScriptedModel
from muntin.timeline import project
from muntin.timeline.items import Draft, SideWrites, Visibility, draft_of
from muntin.timeline.past import TimelineMessages
from muntin.timeline.recall.stored import recall
from muntin.timeline.store import rows
from muntin.timeline.store.sql import Store
from tests.products import sample
from tests.words import look

WORDS = ("the flight to Boston", "a seat at the window", "two bags", "the refund of May 20")


class Forgetful(FormMemo):
    """Remembers nothing."""

    def get(self, key: Any) -> Any:
        return None


@contextmanager
def nothing_remembered() -> Iterator[None]:
    """Read as a process does that has just begun."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((rows, "_read"), (project, "_placed"), (project, "_joined")):
            patch.setattr(module, name, Forgetful(0))
        yield


def seen(store: Store, **given: Any) -> Any:
    """Return all that a window shows of a timeline, its report, and what is recalled."""
    session = Session("s", store=store, mend=False)
    turn = (info.turns if (info := next(iter(store.sessions(id="s")), None)) else 0) + 1
    told: list[Any] = []
    for tokens in (60, 1_000_000):
        messages = TimelineMessages(session, turn, **given).newest(tokens)
        told += [(m.to_dict(), m.at, m.item, session.counter.message(m)) for m in messages]
        slots = Slots(400, counter=session.counter)
        slots.add("history", messages)
        window = slots.render()
        told += [[each.to_dict() for each in window.messages], window.report.to_dict()]
    items = [(item, item.tokens) for item in store.read("s")]
    return told, items, str(recall(session, "a seat to Boston", 200, keep=False))


def spoken(chance: random.Random) -> list[Message | Draft]:
    """Return what one append may hold, in every form that is kept differently."""
    text = f"{chance.choice(WORDS)} {chance.randrange(9)}"
    call = ToolCall(f"c{chance.randrange(3)}", "look", '{"at": 1}')
    carried = Message("assistant", text, extra={"id": {"deep": [1]}})
    return chance.choice(
        [
            [Message("user", text), draft_of(Message("assistant", text), meta=usage(chance))],
            [Message("user", text), Message("assistant", None, tool_calls=(call,))],
            [Message("tool", text * 9, tool_call_id=call.id)],
            [carried, Message("user", (Text(text), Text("and more")))],
            [draft_of(Message("assistant", text), meta={"list": [1, {"deep": text}]})],
            [Draft("signal", payload={"type": "paid", "payload": [text]}, opens="turn")],
            [Draft("signal", payload=text, transient=True, opens="turn")],
            [Draft("error", payload=text, visibility=Visibility(True, chance.random() < 0.5))],
        ]
    )


def usage(chance: random.Random) -> dict[str, Any]:
    return {"usage": {"input": chance.randrange(99), "output": 1}}


def ran(session: Session, chance: random.Random) -> None:
    """Record a run with reasoning; it may fail."""
    with session.turn() as turn:
        turn.append(Message("user", chance.choice(WORDS)))
        (run,) = turn.append(Draft("run", payload={"label": 1} if chance.random() < 0.5 else {}))
        thought = Message("assistant", (Reasoning("hm", signature="x"),))
        said = draft_of(Message("assistant", chance.choice(WORDS)), meta=usage(chance))
        turn.append(
            Draft("reasoning", thought, run=run.position),
            Draft(said.kind, said.message, meta=said.meta, run=run.position),
        )
        if chance.random() < 0.4:
            raise RuntimeError("the handler failed")


def counted(chance: random.Random, last: int) -> SideWrites:
    """Return a count of another tokenizer for one of the items."""
    return SideWrites(counts={chance.randint(1, last): {"other": chance.randrange(9)}})


def change(store: Store, chance: random.Random) -> None:
    """Change a session in one of the ways in which anybody may."""
    session = Session("s", store=store, mend=False)
    last = sum(info.items for info in store.sessions(id="s")) or 1
    ways: list[Callable[[], object]] = [
        lambda: session.append(*spoken(chance)),
        lambda: ran(session, chance),
        lambda: session.insert_context(f"e{chance.randrange(2)}", name="n", content=WORDS[0]),
        lambda: session.remove_context(f"e{chance.randrange(2)}"),
        lambda: session.hide(chance.randint(1, last)),
        lambda: session.append(*spoken(chance), beside=counted(chance, last)),
        lambda: store.prune(before=None, most=0),
        lambda: store.delete("s") if chance.random() < 0.3 else None,
    ]
    with suppress(RuntimeError):
        chance.choices(ways, weights=(6, 4, 2, 1, 3, 2, 1, 2))[0]()


@pytest.mark.parametrize("seed", sample(range(6)))
def test_a_process_that_remembers_sees_what_one_sees_that_does_not(seed, lasting_url):
    chance = random.Random(seed)
    with Store(lasting_url) as ours, Store(lasting_url) as theirs:
        for _ in range(25):
            for _ in range(chance.randint(1, 3)):
                change(chance.choice([ours, theirs]), chance)
            warm = seen(ours)
            with nothing_remembered():
                assert seen(theirs) == warm
            given: dict[str, Any] = {
                "projection": lambda item: [] if item.position % 3 == 0 else None
            }
            warm = seen(ours, **given)
            with nothing_remembered():
                assert seen(ours, **given) == warm
            _spoil(ours)


def _spoil(store: Store) -> None:
    """Change all that a reader is given: it is the reader's own."""

    def spoiled(item: Any) -> None:
        item.meta["spoiled"] = item.tokens["spoiled"] = 1
        for each in item.meta.values():
            if isinstance(each, dict):
                each.clear()
        if isinstance(item.payload, dict):
            item.payload["spoiled"] = 1

    for item in store.read("s"):
        spoiled(item)
    session = Session("s", store=store, mend=False)
    list(TimelineMessages(session, 10_000, projection=lambda item: spoiled(item)))
    list(session.timeline_messages(projection=lambda item: spoiled(item)))


def test_the_same_messages_come_back_turn_after_turn(lasting_url):
    with Store(lasting_url) as store:
        session = Session("s", store=store)
        for number in range(20):
            session.append(Message("user", f"question {number}"), Message("assistant", "yes"))
        first = TimelineMessages(session, 21).newest(10_000)
        session.append(Message("user", "one more"))
        second = TimelineMessages(session, 22).newest(10_000)
    assert len(first) == 40
    assert all(one is other for one, other in zip(first, second[:40], strict=True))


CHANGES = """
import sys
from muntin import Message, Session
session = Session("s", store=sys.argv[1])
{change}
"""


@pytest.mark.parametrize(
    "change",
    [
        'session.append(Message("user", "from elsewhere"))',
        "session.hide(1)",
        'session.store.delete("s")',
        'session.store.delete("s"); session.append(Message("assistant", "question 1"))',
        'session.insert_context("e", name="n", content="c")',
    ],
)
def test_what_another_process_changed_is_seen(change, lasting_url):
    with Store(lasting_url) as store:
        session = Session("s", store=store)
        for number in range(3):
            session.append(Message("user", f"question {number}"), Message("assistant", "yes"))
        before = seen(store)
        given = [sys.executable, "-c", CHANGES.format(change=change), lasting_url]
        subprocess.run(given, check=True, timeout=60)
        after = seen(store)
        with nothing_remembered():
            assert seen(store) == after
    assert after != before


@pytest.mark.parametrize("door", ["entity", "conversation"])
def test_windows_are_the_same_with_and_without_what_is_remembered(door, tmp_path):
    def windows(name: str) -> Any:
        model = ScriptedModel(lambda window: "Hi there, and more words than one.")
        app = App(f"sqlite:///{tmp_path / name}", model=model, budget=600)

        @app.entity("e")
        async def handle(ctx: Any, wake: Any) -> None:
            await ctx.use_agent(system_prompt="Be short.", tools=[look]).run()

        async def work() -> None:
            async with app:
                for number in range(25):
                    text = f"question {number} about a seat to Boston"
                    if door == "entity":
                        await app.ask("e/1", text)
                    else:
                        await app.conversation("c", tools=[look]).send(text)

        asyncio.run(work())
        told = [([m.to_dict() for m in w.messages], w.tokens) for w in model.windows]
        with Store(f"sqlite:///{tmp_path / name}") as store:
            (session,) = store.sessions()
            reports = [(each.report, each.plan) for each in store.reports(session.id)]
            kept = [(i.position, i.kind, i.turn, i.message) for i in store.read(session.id)]
        return told, reports, kept

    with nothing_remembered():
        cold = windows("cold.db")
    assert windows("warm.db") == cold
