"""Rules that hold in every interface: exact counts, one plan a step, the input once, and a store
that is never used on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from muntin import App, Message, Stepped, ToolCall, Window
from muntin.core.checks import compact_json
from muntin.core.counting.counter import COUNTING
from muntin.core.counting.exact import openai_tokenizer
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from muntin.timeline import open_store
from muntin.timeline.store.memory import MemoryStore
from tests.interfaces import DURABLE, INTERFACES, Interface
from tests.plans import counted_plans
from tests.runtime.conftest import run
from tests.wired import WIRED

interfaces = pytest.mark.parametrize("interface", INTERFACES.values(), ids=INTERFACES)
sent = pytest.mark.parametrize(
    "interface", [*INTERFACES.values(), *WIRED.values()], ids=[*INTERFACES, *WIRED]
)
durable = pytest.mark.parametrize("interface", DURABLE.values(), ids=DURABLE)

QUESTION = "Where is my order 4711? Größe 42, naïve café, 東京."
# What OpenAI's chat format adds to each message beside its texts.
OVERHEAD = 4
ANSWER = 3  # what begins the answer, by the same formula


def look(n: int) -> str:
    """Look something up."""
    return f"seen {n}"


def steps(asked: int) -> list[Any]:
    """Return a script that calls the tool so often, and then answers."""
    calls = [ToolCall(f"c{n}", "look", f'{{"n":{n}}}') for n in range(asked)]
    return [*calls, "It is on its way."]


def counted(window: Window) -> int:
    """Count a window by hand: each text with OpenAI's vocabulary, and what the format adds."""
    size = openai_tokenizer("o200k_base").count

    def of(message: Message) -> int:
        calls = sum(size(call.name) + size(call.arguments) for call in message.tool_calls)
        return OVERHEAD + size(message.text) + calls

    tools = sum(OVERHEAD + size(compact_json(tool)) for tool in window.tools)
    return tools + sum(of(message) for message in window.messages) + ANSWER


@interfaces
def test_every_interface_counts_exactly_where_the_vocabulary_is_known(interface: Interface) -> None:
    model = ScriptedModel(steps(2), name="openai/gpt-4o")
    run(interface(App(MemoryStore(), budget=8_000), model, QUESTION, [look]))
    assert len(model.windows) == 3
    for window in model.windows:
        assert window.report.tokenizer == "o200k_base"
        assert window.tokens == counted(window)


@durable
def test_every_interface_stores_counts_of_the_counter_that_composes(interface: Interface) -> None:
    store = MemoryStore()
    model = ScriptedModel(steps(1), name="openai/gpt-4o")
    run(interface(App(store, model=model, budget=8_000), model, QUESTION, [look]))
    (info,) = store.sessions()
    spoken = [item for item in store.read(info.id) if item.message is not None]
    assert len(spoken) == 4
    for item in spoken:
        assert set(item.tokens) == {f"o200k_base+{OVERHEAD}#{COUNTING}"}


@interfaces
def test_every_interface_plans_once_a_step(interface: Interface) -> None:
    model = ScriptedModel(steps(3), name="openai/gpt-4o")
    with counted_plans() as plans:
        run(interface(App(MemoryStore(), budget=8_000), model, QUESTION, [look]))
    assert len(plans) == len(model.windows) == 4


@sent
def test_every_interface_sends_the_question_once_and_the_run_behind_it(
    interface: Interface,
) -> None:
    model = ScriptedModel(steps(2), name="openai/gpt-4o")
    run(interface(App(MemoryStore(), budget=8_000), model, QUESTION, [look]))
    for step, window in enumerate(model.windows):
        sent = [m for m in window.openai()["messages"] if m["role"] == "user"]
        assert [m["content"] for m in sent if QUESTION in m["content"]] == [QUESTION]
        roles = [m["role"] for m in window.openai()["messages"]]
        behind = roles[len(roles) - 1 - roles[::-1].index("user") + 1 :]
        assert [role for role in behind if role != "system"] == ["assistant", "tool"] * step


class Steady:
    """A strategy that renders what is sent, and remembers it."""

    def __init__(self) -> None:
        self.rendered: list[Window] = []

    async def on_context_build(self, ctx: Ctx) -> Window:
        ctx.slots.add("system", "Be brief.", priority=9)
        ctx.slots.add("history", ctx.history.recent(500))
        ctx.slots.add("input", ctx.message)
        self.rendered.append(ctx.slots.render())
        return self.rendered[-1]


def test_what_a_strategy_renders_is_the_window_that_is_sent() -> None:
    """60 turns of a conversation that is trimmed in steps."""
    strategy = Steady()
    model = ScriptedModel(lambda window: "word " * 30, name="anthropic/claude-sonnet-4-5")
    app = App(MemoryStore(), budget=1_500, trimming=Stepped())
    chat = app.conversation("c", strategy=strategy, model=model)

    async def talk() -> None:
        for turn in range(60):
            await chat.send(f"question {turn} " + "words " * 20)

    with counted_plans() as plans:
        run(talk())
    assert len(plans) == 60
    for rendered, sent in zip(strategy.rendered, model.windows, strict=True):
        assert rendered is sent
    starts = [window.messages[1].text for window in model.windows]
    assert 1 < len(set(starts)) < 30  # it stepped, and not at every turn


class OffLoop:
    """A store that fails when it is called on the thread of an event loop."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return value(*args, **options)
            raise AssertionError(f"{name} was called on the event loop")

        return call


@pytest.fixture
def off_loop(tmp_path: Any) -> Iterator[Any]:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    yield OffLoop(store)
    store.close()


@durable
def test_no_interface_uses_the_store_on_the_event_loop(interface: Interface, off_loop: Any) -> None:
    async def twice() -> None:
        async with App(off_loop, budget=8_000) as app:
            await interface(app, ScriptedModel(steps(2), name="openai/gpt-4o"), QUESTION, [look])
        async with App(off_loop, budget=8_000) as app:
            await interface(app, ScriptedModel(steps(1), name="openai/gpt-4o"), "And now?", [look])

    run(twice())


@pytest.mark.parametrize("interface", WIRED.values(), ids=WIRED)
def test_no_adapter_uses_the_store_on_the_event_loop(interface: Interface, off_loop: Any) -> None:
    model = ScriptedModel(steps(2), name="openai/gpt-4o")
    run(interface(App(off_loop, budget=8_000), model, QUESTION, [look]))
    assert len(model.windows) == 3


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("projection", [None, lambda item: None])
def test_the_whole_timeline_is_not_read_on_the_event_loop(
    off_loop: Any, projection: Any, awaited: bool
) -> None:
    """In an async handler, an async source and an async strategy."""
    seen: list[int] = []
    model = ScriptedModel(lambda window: "ok", name="openai/gpt-4o")

    async def whole(ctx: Ctx) -> list[Message]:
        messages = ctx.timeline_messages(projection=projection)
        if awaited:
            await messages.load()
        seen.append(len(messages))
        return list(messages)

    class Listing:
        async def on_context_build(self, ctx: Ctx) -> Any:
            return await whole(ctx)

    async def work() -> None:
        async with App(off_loop, budget=2_000) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Any) -> None:
                async def source() -> list[Message]:
                    return await whole(ctx)

                await whole(ctx)
                ctx.use_context(source_budget=500, sources={"chat": source})
                ctx.use_agent(model=model)
                await ctx.agent.run()

            for payload in ("one", "two"):
                await app.ask("e/1", payload)
            await app.conversation("c", model=model, strategy=Listing()).send("hello")

    run(work())
    assert seen == [1, 1, 3, 3, 1]
