"""load_result: the newest result of a call, from the store, in pieces, as projections show it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from muntin import App, Message, ToolCall, Window, assistant, tool, user
from muntin.agent.tools import call_tool
from muntin.core.counting.counter import Counter
from muntin.runtime import Ctx
from muntin.runtime.recovery import MOST_CHARACTERS, Reader
from muntin.testing import ScriptedModel
from muntin.timeline.items import Item


def load(app: App, session: str, call_id: str, *span: int, projection: Any = None) -> str:
    made = Reader(app.session(session), projection).tools[-1]
    given = dict(zip(("call_id", "start", "end"), (call_id, *span), strict=False))
    call = ToolCall("x", "load_result", json.dumps(given))
    return asyncio.run(call_tool(made, call, Counter(len)))


@pytest.fixture
def app(store_url: str) -> App:
    app = App(store_url, tokenizer=len)
    for number in range(2):  # models use the ids of calls again
        app.session("s").append(
            user("go"),
            assistant("", tool_calls=[ToolCall("c1", "read", "{}"), ToolCall("c2", "read", "{}")]),
            tool("c1", f"{number}" * 50_000),
            tool("c2", f"second {number}"),
            assistant("done"),
        )
    return app


def test_it_gives_the_newest_result_of_the_call(app):
    assert load(app, "s", "c2") == "second 1"
    assert load(app, "s", "c1", 10, 14) == "1111\n[characters 10 to 14 of 50000; " + (
        "load_result('c1', 14) reads on]"
    )


def test_a_long_result_is_read_piece_by_piece(app):
    read, start = "", 0
    while start < 50_000:
        piece, _, note = load(app, "s", "c1", start).partition("\n")
        assert len(piece) <= MOST_CHARACTERS
        read, start = read + piece, start + len(piece)
        assert f"to {start} of 50000" in note
    assert read == "1" * 50_000


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("c9",), "there is no result of a call 'c9'"),
        (("c1", -1), "start must be at least 0"),
        (("c1", 5, 4), "start must be at least 0 and not after end"),
        (("c2", 99), "has 8 characters"),
    ],
)
def test_what_cannot_be_read_is_an_error_the_model_can_read(app, given, told):
    assert told in load(app, "s", *given)


def answers(window: Window) -> Any:
    if window.messages[-1].role == "tool":
        return "done"
    return ToolCall("secret", "peek", "{}")


def peek() -> str:
    """Peek."""
    return "the password is 1234"


def test_what_a_projection_hides_it_hides(store_url):
    model = ScriptedModel(answers)

    def censored(item: Item) -> Any:
        return [assistant("(hidden)")] if item.kind == "run" else None

    def told(item: Item) -> Any:
        shown = [child.message for child in item.items if child.message is not None]
        if item.kind != "run":
            return None
        return [m if m.role != "tool" else tool("secret", "(a password)") for m in shown]

    async def talk() -> App:
        app = App(store_url, model=model)
        await app.conversation("s", tools=[peek]).send("go")
        return app

    app = asyncio.run(talk())
    assert load(app, "s", "secret") == "the password is 1234"
    assert load(app, "s", "secret", projection=censored) == "Error: this result is not shown."
    assert load(app, "s", "secret", projection=told) == "(a password)"


def test_the_projection_of_a_strategy_is_in_force(store_url):
    def reading(window: Window) -> Any:
        last = window.messages[-1]
        if last.role == "user":
            return ToolCall("r", "load_result", '{"call_id": "secret"}')
        return answers(window)

    class Hiding:
        def on_context_build(self, ctx: Ctx) -> Any:
            def hide(item: Item) -> Any:
                return [] if item.kind == "run" else None

            ctx.slots.add("past", ctx.timeline_messages(projection=hide))

    model = ScriptedModel(reading)

    async def talk() -> list[Message]:
        async with App(store_url) as app:
            await app.conversation("s", tools=[peek], model=ScriptedModel(answers)).send("go")
            talk = app.conversation("s", tools=[peek], model=model, strategy=Hiding())
            await talk.send("read it")
        return [m for m in model.windows[-1].messages if m.role == "tool"]

    assert [m.text for m in asyncio.run(talk())] == ["Error: this result is not shown."]
