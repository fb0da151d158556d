"""An agent sees what it did in this turn, what it has just received, and context as written.

This holds in every interface and for every model's name. One character is one token, so that every
model counts alike. What is looked at is the request as it is sent to OpenAI and to Anthropic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import mean
from typing import Any

import pytest

from muntin import (
    App,
    Input,
    Message,
    Slots,
    Source,
    StepLimit,
    Stepped,
    Tokens,
    ToolCall,
    Turns,
    Window,
    assistant,
    capability,
    fit,
    generator,
    user,
)
from muntin.agent import ToolLike, run_agent, tool_schema
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.interfaces import INTERFACES, SYSTEM, Interface
from tests.products import MODELS, cover, sample
from tests.runtime.conftest import run, texts
from tests.words import scripted

every_name = pytest.mark.parametrize("name", MODELS)


class Agent:
    """An agent that looks up some rows in each turn, one by one, and then answers.

    A call that is not in the request it makes again, as a model does.
    """

    def __init__(self, name: str | None, steps: int, *sizes: int) -> None:
        self.steps = steps
        self.sizes = sizes or (20,)  # of the results, in turn
        self.turn = 0
        self.rows: list[int] = []  # as they were looked up
        self.model = scripted(self.think, name)

    @property
    def windows(self) -> list[Window]:
        return self.model.windows

    def think(self, window: Window) -> Any:
        rows = range(self.turn * self.steps, (self.turn + 1) * self.steps)
        todo = [row for row in rows if row not in rows_sent(window)]
        if todo:
            return ToolCall(f"c{len(self.rows)}", "look", json.dumps({"n": todo[0]}))
        self.turn += 1
        return "a" * 40

    def look(self, n: int) -> str:
        """Look up row n."""
        self.rows.append(n)
        return self.result(n)

    def result(self, row: int) -> str:
        return f"row {row}: ".ljust(self.sizes[row % len(self.sizes)], "r")

    def check_run(self, window: Window, turn: int, step: int) -> None:
        """Fail unless a window shows the results of this turn so far, whole and last."""
        rows = [turn * self.steps + number for number in range(step)]
        results = results_sent(window)
        assert results[len(results) - step :] == [self.result(row) for row in rows], (turn, step)
        if step:
            assert window.messages[-1].text == self.result(rows[-1])

    def windows_by_turn(self) -> list[list[Window]]:
        """Return the windows of each turn, if no call was repeated."""
        count = self.steps + 1
        return [self.windows[n : n + count] for n in range(0, len(self.windows), count)]


def rows_sent(window: Window) -> list[int]:
    """Return the rows that the calls in a request ask for."""
    request: Any = window.openai()
    calls = [call for message in request["messages"] for call in message.get("tool_calls", ())]
    return [json.loads(call["function"]["arguments"])["n"] for call in calls]


def results_sent(window: Window) -> list[str]:
    """Return the results in a request, which are the same for both providers."""
    to_openai: Any = window.openai()
    answers = [message for message in to_openai["messages"] if message["role"] == "tool"]
    results = [text_of(message["content"]) for message in answers]
    to_anthropic: Any = window.anthropic()
    blocks = [block for message in to_anthropic["messages"] for block in message["content"]]
    blocks = [block for block in blocks if block["type"] == "tool_result"]
    assert [text_of(block["content"]) for block in blocks] == results
    return results


def text_of(content: Any) -> str:
    """Return the text of a content in the form of either provider."""
    if isinstance(content, str | None):
        return content or ""
    return "".join(block["text"] for block in content)


# Sources.


def woken(
    agent: Agent, messages: Sequence[str], source_budget: int, declare: Callable[[Ctx, Any], Any]
) -> None:
    """Wake an entity with each message; it declares its sources by a function of ctx and wake."""

    async def work() -> None:
        async with App("memory:", model=agent.model, tokenizer=len, budget=100_000) as app:

            @app.entity("e")
            async def handle(ctx: Ctx, wake: Any) -> None:
                ctx.use_context(source_budget=source_budget, sources=declare(ctx, wake))
                ctx.use_agent(tools=[agent.look])
                await ctx.agent.run()

            for text in messages:
                with suppress(StepLimit):  # what was called too often says more
                    await app.ask("e/1", text)

    run(work(), within=60)


def timeline(ctx: Ctx, **options: Any) -> Source:
    return Source(lambda: ctx.timeline_messages(), **options)


SOURCES: dict[str, tuple[int, Callable[[Ctx, Any], dict[str, Source]]]] = {
    "a timeline that may fill the budget": (
        15_000,
        lambda ctx, wake: {"conversation": timeline(ctx, max=15_000, cache="volatile")},
    ),
    "retrieved text": (
        8_000,
        lambda ctx, wake: {"found": Source(lambda: "found text", max=8_000)},
    ),
    "a timeline since this wake": (
        8_000,
        lambda ctx, wake: {
            "talk": Source(lambda: ctx.timeline_messages(since=wake.from_position - 1), max=8_000)
        },
    ),
    "stable text that fills the budget": (
        8_000,
        lambda ctx, wake: {"docs": Source("d" * 8_000, max=8_000, cache="stable")},
    ),
    "more than the budget": (
        8_000,
        lambda ctx, wake: {
            "talk": timeline(ctx, max=8_000),
            "found": Source(lambda: "found text", max=2_000),
        },
    ),
    "more than the budget, and nothing found": (
        8_000,
        lambda ctx, wake: {
            "talk": timeline(ctx, max=7_000),
            "found": Source(lambda: "", max=2_000),
        },
    ),
    "stable text, and a timeline that may fill the budget": (
        8_000,
        lambda ctx, wake: {
            "docs": Source("d" * 7_000, max=7_000, cache="stable"),
            "talk": timeline(ctx, max=8_000),
        },
    ),
    "a timeline without a limit": (8_000, lambda ctx, wake: {"talk": timeline(ctx)}),
    "retrieved text without a limit": (
        8_000,
        lambda ctx, wake: {"found": Source(lambda: "found text")},
    ),
}


@every_name
@pytest.mark.parametrize("sources", SOURCES)
def test_an_agent_with_sources_runs_each_call_once_and_sees_all_of_them(sources, name) -> None:
    agent = Agent(name, 3)
    woken(agent, ["go", "again", "and again"], *SOURCES[sources])
    assert agent.rows == list(range(9))
    for turn, windows in enumerate(agent.windows_by_turn()):
        for step, window in enumerate(windows):
            agent.check_run(window, turn, step)


@every_name
def test_the_budget_of_sources_does_not_cover_the_run(name) -> None:
    agent = Agent(name, 3, 2_007)

    async def work() -> None:
        async with App("memory:", model=agent.model, tokenizer=len, budget=20_000) as app:
            for turn in range(20):
                app.session("e/1").append(user(f"{turn} ".ljust(60, "q")), assistant("a" * 60))

            @app.entity("e")
            async def handle(ctx: Ctx, wake: Any) -> None:
                toc = Source("t" * 300, max=300, cache="stable")
                sources = {"toc": toc, "talk": timeline(ctx, max=900)}
                ctx.use_context(source_budget=1_000, sources=sources)
                ctx.use_agent(tools=[agent.look])
                await ctx.agent.run()

            with suppress(StepLimit):
                await app.ask("e/1", "w" * 100)

    run(work())
    assert agent.rows == [0, 1, 2]
    for step, window in enumerate(agent.windows):
        agent.check_run(window, 0, step)
        report = window.report
        assert (report["toc"].tokens_kept, report["input"].tokens_kept) == (300, 100)
        # The newest turns, and a line about the earlier ones.
        assert 240 <= report["talk"].tokens_kept <= 600
        assert "19 qqq" in " ".join(texts(window))


@every_name
def test_entries_never_keep_an_entity_from_waking(name) -> None:
    agent = Agent(name, 2)

    def declare(ctx: Ctx, wake: Any) -> dict[str, Source]:
        ctx.insert_context(
            f"fact{agent.turn}", name="fact", content=f"{agent.turn}".ljust(250, "f")
        )
        policy = Source("p" * 300, max=300, cache="pinned")
        return {"policy": policy, "talk": timeline(ctx, max=1_500)}

    woken(agent, [f"message {number}" for number in range(16)], 3_000, declare)
    assert agent.rows == list(range(32))
    for turn, windows in enumerate(agent.windows_by_turn()):
        for step, window in enumerate(windows):
            agent.check_run(window, turn, step)
            assert f"message {turn}" in texts(window)
        # The newest fact stays; what is missing are the oldest ones.
        shown = " ".join(texts(windows[-1]))
        facts = [number for number in range(turn + 1) if f'id="fact{number}"' in shown]
        assert facts == list(range(turn + 1))[-len(facts) :]
        assert facts


@every_name
@pytest.mark.parametrize("docs", [100, 400])
def test_a_marker_never_keeps_an_entity_from_waking(docs, name) -> None:
    agent = Agent(name, 2)
    woken(
        agent,
        ["one", "two", "three"],
        docs,
        lambda ctx, wake: {
            "docs": Source("d" * docs, max=docs, cache="stable"),
            "talk": timeline(ctx, max=docs),
        },
    )
    assert agent.rows == list(range(6))
    assert [texts(windows[0])[-1] for windows in agent.windows_by_turn()] == ["one", "two", "three"]


LOG = "BEGIN\n" + "4711 failed: no such file or directory\n" * 1_100 + "END"


@every_name
def test_a_pasted_log_larger_than_the_budget_of_sources_is_cut_and_wakes_the_entity(name) -> None:
    agent = Agent(name, 2)
    woken(
        agent,
        ["hello", "and you?", "fine", LOG, "what was it?"],
        18_000,
        lambda ctx, wake: {
            "toc": Source("t" * 3_000, max=3_000, cache="stable"),
            "found": Source(lambda: "f" * 3_000, max=6_000),
            "talk": timeline(ctx, max=9_000),
        },
    )
    assert agent.rows == list(range(10))
    pasted = {log_in(window) for window in agent.windows_by_turn()[3]}
    assert len(pasted) == 1
    assert 256 <= len(pasted.pop()) <= 18_000
    for window in agent.windows:
        covered = [slot for slot in window.report.slots if slot.name not in ("system", "run")]
        assert sum(slot.tokens_kept for slot in covered) <= 18_000


def log_in(window: Window) -> str:
    """Return what a window shows of the log that the user has just pasted."""
    (text,) = (text for text in texts(window) if text.startswith("BEGIN"))
    assert text.endswith("END")
    return text


HORTON = [
    # Source budget, stable, retrieved, the most of the talk, a message, an answer.
    (18_000, 3_000, 6_000, 9_000, 100, 300),
    (18_000, 3_000, 6_000, 9_000, 1_500, 300),
    (15_000, 0, 0, 15_000, 100, 300),
    (6_000, 500, 1_000, 4_000, 100, 100),
    (3_000, 400, 500, 1_500, 50, 50),
]


@pytest.mark.parametrize(("shape", "name"), cover(HORTON, MODELS))
def test_a_conversation_among_sources_keeps_most_of_what_fits(shape, name) -> None:
    budget, stable, retrieved, most, question, answer = shape
    model = scripted(lambda window: "a" * answer, name)

    async def work() -> None:
        async with App("memory:", model=model, tokenizer=len, budget=100_000) as app:
            for turn in range(40):
                message = user(f"{turn} ".ljust(question, "q"))
                app.session("e/1").append(message, assistant("a" * answer))

            @app.entity("e")
            async def handle(ctx: Ctx, wake: Any) -> None:
                sources = {"talk": timeline(ctx, max=most)}
                if stable:
                    sources["toc"] = Source("t" * stable, max=stable, cache="stable")
                    sources["found"] = Source(lambda: "f" * retrieved, max=retrieved)
                ctx.use_context(source_budget=budget, sources=sources)
                await ctx.use_agent().run()

            for turn in range(40):
                await app.ask("e/1", f"{turn} ".ljust(question, "w"))

    run(work(), within=60)
    fits = min(most, budget - stable - retrieved - question)
    assert mean(window.report["talk"].tokens_kept for window in model.windows) >= 0.7 * fits


# Every interface.


def waking(interface: str, address: str) -> Interface:
    """Return an entity that is registered with its first message."""
    registered = False

    async def ask(
        app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
    ) -> None:
        nonlocal registered
        if registered:
            await app.ask(address, text)
        else:
            registered = True
            await INTERFACES[interface](app, model, text, tools)

    return ask


def holding_a_list() -> Interface:
    """Return an app that holds a list of messages and fits it at each step."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    frontier: dict[str, Any] = {}

    async def ask(
        app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
    ) -> None:
        messages.append({"role": "user", "content": text})

        def compose(steps: tuple[Message, ...]) -> Window:
            nonlocal frontier
            fitted = fit(
                [*messages, *steps],
                app.budget,
                model=model.name,
                tools=tools,
                previous=frontier,
                tokenizer=app.tokenizer,
            )
            frontier = fitted.frontier
            return fitted.window

        steps: list[Message] = []
        await run_agent(model, compose, tools=tools, record=steps.extend)
        messages.extend(steps)

    return ask


def holding_slots() -> Interface:
    """Return an app that holds its history and composes slots at each step."""
    history: list[Message] = []
    previous: Window | None = None

    async def ask(
        app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
    ) -> None:
        def compose(steps: tuple[Message, ...]) -> Window:
            nonlocal previous
            slots = Slots(
                app.budget or 8_000,
                tokenizer=app.tokenizer,
                profile=model.name if "/" in model.name else None,
                tools=[tool_schema(tool) for tool in tools],
                trimming=Stepped(),
                ladder=True,
                previous=previous,
            )
            slots.add("system", SYSTEM, priority=100)
            slots.add("history", history, priority=10)
            slots.add("input", Input(text))
            slots.add("run", [*steps], run=True)
            previous = slots.render()
            return previous

        steps: list[Message] = []
        await run_agent(model, compose, tools=tools, record=steps.extend)
        history.extend([user(text), *steps])

    return ask


def remembering(history: Any) -> Interface:
    """Return a generator that is shown this much of its history."""

    async def ask(
        app: App, model: ScriptedModel, text: str, tools: Sequence[ToolLike] = ()
    ) -> None:
        block = generator(
            model=model, prompt=SYSTEM, history=history, user=lambda text: text, tools=tools
        )
        await block.run(text, app=app, session="g")

    return ask


# Interfaces that are asked again and again.
LASTING: dict[str, Callable[[], Interface]] = {
    "conversation": lambda: INTERFACES["conversation"],
    "strategy": lambda: INTERFACES["strategy"],
    "entity": lambda: waking("entity", "plain/1"),
    "entity with sources": lambda: waking("sources", "sourced/1"),
    "flow": lambda: INTERFACES["flow"],
    "generator with eight turns": lambda: remembering(Turns(8)),
    "generator with some tokens": lambda: remembering(Tokens(9_000)),
    "generator with all turns": lambda: remembering(True),
    "fit": holding_a_list,
    "slots": holding_slots,
}
SOME = sample(LASTING, "conversation", "entity with sources", "generator with some tokens")


def converse(ask: Interface, agent: Agent, messages: Sequence[str], budget: int) -> None:
    """Send messages, one after another, to an agent through an interface."""

    async def work() -> None:
        async with App("memory:", tokenizer=len, budget=budget) as app:
            for text in messages:
                with suppress(StepLimit):
                    await ask(app, agent.model, text, [agent.look])

    run(work(), within=60)


@pytest.mark.parametrize(("interface", "name"), cover(SOME, MODELS))
def test_an_agent_sees_its_run_whole_in_every_turn(interface, name) -> None:
    # Three turns fill the window. A run has a third of it.
    agent = Agent(name, 3, 1_200)
    converse(LASTING[interface](), agent, [f"message {number}" for number in range(8)], 12_000)
    assert agent.rows == list(range(24))
    for turn, windows in enumerate(agent.windows_by_turn()):
        for step, window in enumerate(windows):
            assert window.tokens <= 12_000
            agent.check_run(window, turn, step)
            assert f"message {turn}" in texts(window)


@pytest.mark.parametrize(("interface", "name"), cover(SOME, MODELS))
def test_a_result_that_was_just_received_is_shown_to_a_quarter_of_the_window(
    interface, name
) -> None:
    # A turn has several times the tokens of the window.
    agent = Agent(name, 16, 2_000, 100, 1_500, 4_000, 400, 6_000, 1_000)
    budget = 9_000 if interface == "entity with sources" else 6_000
    converse(LASTING[interface](), agent, ["first", "second", "third"], budget)
    assert agent.rows == list(range(48))
    for turn, windows in enumerate(agent.windows_by_turn()):
        for step, window in enumerate(windows[1:]):
            assert window.tokens <= budget
            row = turn * 16 + step
            newest = results_sent(window)[-1]
            assert newest.startswith(f"row {row}:")
            quarter = (budget - window.report.tools_tokens) // 4
            assert len(newest) >= min(len(agent.result(row)), quarter) / 2, (turn, step)


@pytest.mark.parametrize(("interface", "name"), cover(SOME, MODELS))
def test_a_message_larger_than_the_window_leaves_room_for_the_run(interface, name) -> None:
    agent = Agent(name, 3, 300)
    log = LOG[:14_394] + "\nEND"
    converse(LASTING[interface](), agent, ["hello", log, "what was it?"], 12_000)
    assert agent.rows == list(range(9))
    shown = set()
    for step, window in enumerate(agent.windows_by_turn()[1]):
        agent.check_run(window, 1, step)
        assert window.tokens <= 12_000
        assert window.input_cut
        shown.add(log_in(window))
    assert len(shown) == 1
    assert 1_000 < len(shown.pop()) <= 6_000


@pytest.mark.parametrize(
    ("history", "name"), cover([Turns(8), Tokens(12_000), True], MODELS), ids=str
)
def test_turns_of_the_past_leave_before_the_run_is_cut(history, name) -> None:
    # Six turns fill the window.
    agent = Agent(name, 4, 450)
    converse(remembering(history), agent, [f"message {number}" for number in range(12)], 12_800)
    assert agent.rows == list(range(48))
    for turn, windows in enumerate(agent.windows_by_turn()):
        for step, window in enumerate(windows):
            agent.check_run(window, turn, step)


# Context in the author's order.


def sent_to_openai(window: Window) -> list[tuple[str, str]]:
    request: Any = window.openai()
    return [(message["role"], text_of(message["content"])) for message in request["messages"]]


def sent_to_anthropic(window: Window) -> list[tuple[str, str]]:
    """Return role and text of every block of text, the system's first."""
    request: Any = window.anthropic()
    system = request["system"]
    blocks = [{"text": system}] if isinstance(system, str) else system
    sent = [("system", block["text"]) for block in blocks]
    for message in request["messages"]:
        blocks = [block for block in message["content"] if block["type"] == "text"]
        sent += [(message["role"], block["text"]) for block in blocks]
    return sent


def contexts(name: str | None, **options: Any) -> list[Window]:
    """Return the windows of two turns with two calls each of a generator with a context."""
    agent = Agent(name, 2)

    async def work() -> None:
        block = generator(
            model=agent.model,
            prompt="P",
            user=lambda text: text,
            tools=[agent.look],
            history=True,
            **options,
        )
        async with App("memory:", tokenizer=len, budget=20_000) as app:
            await block.run("q", app=app, session="g")
            await block.run("q", app=app, session="g")

    run(work())
    assert agent.rows == [0, 1, 2, 3]
    return agent.windows


@every_name
def test_messages_of_a_context_stand_as_written(name) -> None:
    windows = contexts(
        name,
        context=[
            lambda: {"role": "user", "content": "Example question of today"},
            {"role": "assistant", "content": "Example answer"},
        ],
    )
    written = [
        ("system", "P"),
        ("user", "Example question of today"),
        ("assistant", "Example answer"),
        ("user", "q"),
    ]
    for window in windows:
        assert sent_to_openai(window)[:4] == written
        assert sent_to_anthropic(window)[:4] == written


@every_name
def test_texts_of_a_context_stand_as_written(name) -> None:
    lines = ["--- search results begin ---", "hit", "--- search results end ---"]
    windows = contexts(name, context=[lines[0], lambda: lines[1], lines[2]])
    for window in windows:
        assert sent_to_openai(window)[:4] == [("system", text) for text in ["P", *lines]]
        system = [text for role, text in sent_to_anthropic(window) if role == "system"]
        places = ["\n".join(system).index(text) for text in ["P", *lines]]
        assert places == sorted(places)


@every_name
def test_a_placeholder_that_a_capability_fills_keeps_its_place(name) -> None:
    finds = capability("finds", presets={"all": {"context": lambda: {"documents": "found"}}})
    windows = contexts(name, context={"documents": None, "rules": "static"}, uses=[finds])
    block = "P\n\n<documents>\nfound\n</documents>\n<rules>\nstatic\n</rules>"
    for window in windows:
        assert sent_to_openai(window)[:2] == [("system", block), ("user", "q")]
        system = [text for role, text in sent_to_anthropic(window) if role == "system"]
        assert "".join(system) == block


@every_name
def test_tags_are_one_system_message_though_a_function_fills_one_of_them(name) -> None:
    windows = contexts(
        name,
        context={
            "documents": ["first", "second"],
            "userPreferences": lambda: "short answers",
            "memory": {"shortTerm": "recent", "longTerm": "older"},
        },
    )
    block = (
        "P\n\n<documents>\nfirst\nsecond\n</documents>\n"
        "<user-preferences>\nshort answers\n</user-preferences>\n"
        "<memory>\n<short-term>recent</short-term>\n<long-term>older</long-term>\n</memory>"
    )
    for window in windows:
        assert sent_to_openai(window)[:2] == [("system", block), ("user", "q")]
        system = [text for role, text in sent_to_anthropic(window) if role == "system"]
        assert "".join(system) == block
