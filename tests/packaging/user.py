"""A user's program, for the type checkers: it uses each interface, and every line must be typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from muntin import (
    App,
    Budget,
    BudgetExceeded,
    Decision,
    Input,
    Message,
    MuntinError,
    Report,
    Session,
    Slots,
    ToolCall,
    Turns,
    Window,
    assistant,
    context,
    generate,
    generator,
    prompt,
    system,
    tool,
    user,
)
from muntin.providers.names import context_window
from muntin.runtime.generators.definition import Generator
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store, open_store


def compose(history: Sequence[Message]) -> Window:
    slots = Slots(Budget(8_000), tokenizer="openai/gpt-4o")
    slots.add("system", "Be brief.", priority=100)
    slots.add("history", list(history), max_ratio=0.5)
    slots.add("input", Input("Hello."))
    try:
        window = slots.render()
    except BudgetExceeded as error:
        raise SystemExit(str(error)) from error
    assert_type(window, Window)
    assert_type(window.report, Report)
    return window


def remember(store: Store) -> int:
    session = Session("ada", store=store)
    session.append(
        system("Be brief."),
        user("Find my order."),
        assistant(tool_calls=[ToolCall("c1", "find_order", "{}")]),
        tool("c1", "found"),
    )
    return len(session.items.all())


async def talk() -> str:
    async with App("memory:", model=ScriptedModel(["Hello."])) as app:
        said = await app.conversation("ada").send("Hi.")
    assert_type(said.text, str)
    return said.text


async def ask() -> str:
    rules = context(id="rules", priority=100, system="Answer in one sentence.")
    bot = prompt(use=[rules], system="You are an assistant.", prompt="What is a muntin?")
    reply = await generate(bot, model=ScriptedModel(["A bar."]), token_budget=50)
    assert_type(reply.text, str)
    return reply.text


def answering() -> Generator:
    return generator(
        name="chat",
        model=ScriptedModel(["Hello."]),
        prompt="You are a helpful assistant.",
        history=Turns(8),
        user="Hi.",
    )


def main() -> None:
    window = compose([user("Hello."), assistant("Hello.")])
    for message in window.messages:
        assert_type(message, Message)
    for slot in window.report.slots:
        assert_type(slot.decisions, tuple[Decision, ...])
    with open_store("memory:") as store:
        print(remember(store))
    try:
        print(context_window("openai/gpt-4o"))
    except MuntinError as error:
        print(error)
