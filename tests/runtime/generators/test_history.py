"""The history of a generator: whole turns, within a limit."""

from __future__ import annotations

import asyncio

import pytest

from muntin import Tokens, Turns, generator, user
from muntin.errors import InvalidType
from muntin.testing import ScriptedModel
from tests.runtime.conftest import call, memory, run, statuses, texts
from tests.runtime.generators.conftest import echo, lookup, shown, talked


def turn(*numbers: int) -> list[str]:
    return [text for n in numbers for text in (f"q{n}", f"re: q{n}")]


@pytest.mark.parametrize(
    ("history", "past"),
    [
        (None, []),
        (False, []),
        (True, turn(1, 2, 3, 4, 5)),
        (2, turn(4, 5)),
        (Turns(2), turn(4, 5)),
        (Turns(0), []),
        (Turns(-1), []),
        (Turns(99), turn(1, 2, 3, 4, 5)),
        (Tokens(16), turn(4, 5)),
        (Tokens(15), turn(5)),
        (Tokens(0), turn(5)),
        (lambda i, ctx: ctx.history.recent(3), ["re: q4", "q5", "re: q5"]),
        (lambda: Turns(1), turn(5)),
        (lambda: None, []),
        (lambda: True, turn(1, 2, 3, 4, 5)),
        (lambda: [user("made up"), {"role": "assistant", "content": "up"}], ["made up", "up"]),
    ],
)
def test_history_is_whole_turns_within_its_limit(history, past):
    app = memory()
    talked(app)
    made = generator(history=history, user="now")
    assert [text for _, text in shown(made, app=app, session="s")] == [*past, "now"]


def test_tool_traffic_rides_along_in_its_turn():
    app = memory()
    model = ScriptedModel([call("lookup", key="a"), "It is found a."])

    async def talk():
        chat = generator(model=model, tools=[lookup], user=lambda i: i)
        await chat.run("where is a?", app=app, session="s")
        return await generator(history=1, user="and?").window(model=echo(), app=app, session="s")

    window = run(talk())
    assert [m.role for m in window.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert window.messages[2].text == "found a"


def test_a_turn_that_failed_is_shown_until_one_succeeds():
    app = memory()
    model = ScriptedModel([OSError("down"), "Here.", "Again."])
    chat = generator(model=model, history=1, user=lambda i: i)

    async def talk():
        with pytest.raises(OSError, match="down"):
            await chat.run("question", app=app, session="s")
        await chat.run("try again", app=app, session="s")
        await chat.run("more", app=app, session="s")

    run(talk())
    assert statuses(app, "s") == ["failed", "completed", "completed"]
    assert texts(model.windows[1])[0] == "question"
    assert texts(model.windows[1])[-1] == "try again"
    assert texts(model.windows[2]) == ["try again", "Here.", "more"]


def test_turns_that_wait_behind_this_one_are_not_its_past():
    app = memory()
    model = ScriptedModel(lambda window: asyncio.sleep(0.02, f"re: {window.messages[-1].text}"))
    chat = generator(model=model, history=True, user=lambda i: i)

    async def talk():
        return await asyncio.gather(*(chat.run(f"q{n}", app=app, session="s") for n in (1, 2, 3)))

    assert texts([reply.message for reply in run(talk())]) == ["re: q1", "re: q2", "re: q3"]
    assert [texts(window) for window in model.windows] == [
        ["q1"],
        ["q1", "re: q1", "q2"],
        ["q1", "re: q1", "q2", "re: q2", "q3"],
    ]


@pytest.mark.parametrize("wrong", ["all", 1.5, {"limit": 8}, [user("x")]])
def test_a_history_that_is_none_is_refused(wrong):
    with pytest.raises(InvalidType, match="generator 'g': history must be True, a number of turns"):
        generator(name="g", history=wrong)
