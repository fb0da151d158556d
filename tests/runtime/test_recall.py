"""Recall in the doors: what has left the window comes back when the input needs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from itertools import pairwise, takewhile
from operator import eq
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    Action,
    App,
    Exact,
    InvalidInput,
    Message,
    Recall,
    Session,
    Source,
    Stepped,
    Summary,
    ToolCall,
    Turns,
    Window,
    assistant,
    flow,
    generator,
    tool,
    user,
)
from muntin.agent.tools import tool_name
from muntin.composer import Composer
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from muntin.timeline.items import draft_of
from muntin.timeline.recall import Recalled
from muntin.timeline.recall.settings import LEAST_TOKENS, MOST_TOKENS
from muntin.timeline.recall.shelf import add_vectors, without_vector
from muntin.timeline.recall.stored import recall
from muntin.timeline.recall.vectors import CHUNK, Vectors, checked
from muntin.timeline.store import open_store
from muntin.wire import anthropic
from muntin.wire import chat as wire_chat
from tests.interfaces import DURABLE
from tests.plans import counted_plans
from tests.products import NAMES, THREE, cover, sample
from tests.runtime.conftest import run
from tests.runtime.test_summaries import encoded

NAME = "anthropic/claude-sonnet-4-6"
NEEDLE = "My locker is number QX7731, in the east hall."
QUESTION = "Which number has my locker?"
CHAT = "Tell me of the weather in town {}. " + "It may rain, or snow, or shine. " * 8
ANSWER = "The sky is what it is. " * 8


def awaited(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test to its end; what hangs fails."""

    @wraps(test)
    def made(**given: Any) -> None:
        run(test(**given), within=60)

    return made


def model(budget: int = 4_000, name: str = NAME) -> ScriptedModel:
    return ScriptedModel(lambda window: ANSWER, name=name, budget=budget)


async def by_conversation(
    app: App, model: ScriptedModel, text: str, session: str = "s", **options: Any
) -> None:
    await app.conversation(session, model=model, **options).send(text)


async def by_entity(
    app: App, model: ScriptedModel, text: str, session: str = "helper/s", **options: Any
) -> None:
    if "helper" not in app._wakes.handlers:

        @app.entity("helper")
        async def helper(ctx: Ctx, wake: Any) -> None:
            ctx.use_agent(model=model, **options)
            await ctx.agent.run()

    await app.ask(session, text)


async def by_generator(
    app: App, model: ScriptedModel, text: str, session: str = "s", **options: Any
) -> None:
    made = generator(name="g", model=model, history=True, user=lambda input: input, **options)
    await made.run(text, app=app, session=session)


async def by_flow(
    app: App, model: ScriptedModel, text: str, session: str = "s", **options: Any
) -> None:
    block = generator(name="g", model=model, history=True)
    action = Action(block, user_message=lambda input: input)
    made = flow("f", actions={"say": action}, history_window=Turns(500), **options)
    await made.run("say", text, session=session, app=app)


INTERFACES: dict[str, Any] = {
    "conversation": by_conversation,
    "entity": by_entity,
    "generator": by_generator,
    "flow": by_flow,
}


async def chat(ask: Any, app: App, model: ScriptedModel, turns: int = 40, **options: Any) -> Window:
    """Tell where the locker is, talk of something else, and ask; return the last window."""
    await ask(app, model, NEEDLE, **options)
    for number in range(turns):
        await ask(app, model, CHAT.format(number), **options)
    await ask(app, model, QUESTION, **options)
    return model.windows[-1]


def excerpts(window: Window) -> str:
    """Return the excerpts of a window."""
    found = [each.text for each in window.messages if each.text.startswith("<recalled ")]
    assert len(found) < 2
    return found[0] if found else ""


@pytest.mark.parametrize("trimming", [Stepped(), Exact()], ids=["stepped", "exact"])
@pytest.mark.parametrize("door", sample(INTERFACES, "conversation", "entity", "generator"))
@awaited
async def test_what_has_left_is_recalled_right_before_the_input(door, trimming):
    async with App("memory:", trimming=trimming, recall=True) as app:
        window = await chat(INTERFACES[door], app, model())
    texts = [message.text for message in window.messages]
    assert NEEDLE not in texts[:-2]
    assert "QX7731" in texts[-2]
    assert texts[-2].startswith("<recalled ")
    assert texts[-1] == QUESTION
    assert window.tokens <= 4_000
    told = window.report["recalled"]
    assert told.detail is not None
    assert "locker" in told.detail
    assert told.tokens_kept <= 600


@pytest.mark.parametrize("door", sample(INTERFACES, "conversation", "entity", "generator"))
@awaited
async def test_a_turn_with_excerpts_is_planned_once_and_twice_where_its_history_moves(door):
    asked = model()
    async with App("memory:", trimming=Stepped(), recall=True) as app:
        await chat(INTERFACES[door], app, asked, turns=40)
        begins = [start.item for start in asked.windows[-1].frontier.starts]
        moved = []
        for number in range(40, 60):
            with counted_plans() as plans:
                await INTERFACES[door](app, asked, CHAT.format(number))
            assert excerpts(asked.windows[-1])
            before, begins = begins, [s.item for s in asked.windows[-1].frontier.starts]
            assert len(plans) == 1 + (begins != before)
            moved.append(begins != before)
    assert 0 < sum(moved) < 8


# A generator reads its whole history: only a plan tells whether something has left the window.
@pytest.mark.parametrize(
    ("door", "most"), [("conversation", 2), ("entity", 2), ("generator", 3), ("flow", 3)]
)
@awaited
async def test_without_steps_a_turn_with_excerpts_is_planned_to_learn_what_is_shown(door, most):
    asked = model()
    async with App("memory:", trimming=Exact(), recall=True) as app:
        await chat(INTERFACES[door], app, asked, turns=40)
        with counted_plans() as plans:
            await INTERFACES[door](app, asked, QUESTION)
    assert "QX7731" in excerpts(asked.windows[-1])
    assert len(plans) == most


@pytest.mark.parametrize("off", [False, None])
@pytest.mark.parametrize("door", sample(INTERFACES, "conversation", "entity", "generator"))
@awaited
async def test_nothing_is_recalled_while_all_is_shown_or_when_it_is_off(door, off):
    async with App("memory:", recall=True) as app:
        made = model(budget=100_000)
        await chat(INTERFACES[door], app, made)
        assert not any(map(excerpts, made.windows))
        assert all("recalled" not in str(window.report) for window in made.windows)
    async with App("memory:", recall=True) as app:
        made = model()
        await chat(INTERFACES[door], app, made, recall=off)
        assert not any(map(excerpts, made.windows))
    async with App("memory:", recall=off) as app:
        made = model()
        await chat(INTERFACES[door], app, made, recall=Recall(tokens=300))
        assert "QX7731" in excerpts(made.windows[-1])
        assert made.windows[-1].report["recalled"].cap == 300


def without_excerpts(window: Window) -> list[Message]:
    return [each for each in window.messages if not each.text.startswith("<recalled ")]


@pytest.mark.parametrize("door", sample(INTERFACES, "conversation", "entity", "generator"))
@awaited
async def test_the_past_before_the_excerpts_stays_until_the_history_moves(door):
    async with App("memory:", recall=True) as app:
        made = model()
        await chat(INTERFACES[door], app, made, turns=60)
    assert sum(map(bool, map(excerpts, made.windows))) > 30
    moves = 0
    for one, two in pairwise(made.windows):
        before, now = (
            [(each.role, each.text) for each in without_excerpts(window)] for window in (one, two)
        )
        prefix = two.report.prefix
        assert prefix is not None
        if prefix.moved is None:
            assert now[: len(before)] == before
        else:
            assert prefix.moved.reason == "moved"
            moves += 1
        if excerpts(two):
            assert two.messages[-2].text.startswith("<recalled ")
            assert all(mark.after <= len(two.messages) - 2 for mark in two.breakpoints)
    assert 2 <= moves <= 6


@pytest.mark.parametrize(
    ("door", "name"),
    cover(
        sample(INTERFACES, "conversation", "entity", "generator"),
        [NAME, "openai/gpt-4o", "some/unknown"],
    ),
)
@awaited
async def test_excerpts_of_one_turn_cost_the_next_turn_nothing(door, name, monkeypatch):
    """They are above the history: now and then they take room of it, for their turn only."""

    async def talk() -> list[Window]:
        made = model(name=name)
        async with App("memory:", recall=True) as app:
            await INTERFACES[door](app, made, NEEDLE)
            for number in range(60):
                await INTERFACES[door](app, made, CHAT.format(number))
                if number % 9 == 8:
                    await INTERFACES[door](app, made, often)
        return made.windows

    find: Any = recall
    often = "In which town may it rain, or snow, or shine?"  # finds as much as may be shown

    def seldom(session: Any, query: str, *given: Any, **options: Any) -> Recalled:
        return find(session, query, *given, **options) if query == often else Recalled()

    monkeypatch.setattr("muntin.runtime.recall.recall", seldom)
    some = await talk()
    monkeypatch.setattr("muntin.runtime.recall.recall", lambda *given, **options: Recalled())
    none = await talk()
    smaller = 0
    for one, two in zip(some, none, strict=True):
        if not excerpts(one):
            assert one.messages == two.messages
            continue
        shown, whole = without_excerpts(one), list(two.messages)
        assert shown == whole[len(whole) - len(shown) :]
        smaller += len(shown) < len(whole)
    assert sum(map(bool, map(excerpts, some))) >= 3
    assert smaller >= 1


def shared(one: str, other: str) -> int:
    """Return how much of a request the next one begins with."""
    return sum(takewhile(bool, map(eq, one, other)))


@pytest.mark.parametrize("door", sample(DURABLE, *THREE))
@awaited
async def test_what_may_be_cached_ends_at_the_excerpts_and_no_earlier(door, tmp_path, monkeypatch):
    async def talk(name: str) -> list[Window]:
        made = model(6_000)
        for number in range(40):
            async with App(f"sqlite:///{tmp_path / name}") as app:  # each has its own handlers
                await DURABLE[door](app, made, CHAT.format(number), ())
        return made.windows

    windows = await talk("a.db")
    monkeypatch.setattr("muntin.runtime.recall.recall", lambda *given, **options: Recalled())
    others = await talk("b.db")
    recalling = ("conversation", "instructed", "entity", "returned")
    assert any(map(excerpts, windows)) == (door in recalling)
    for wire in (anthropic, wire_chat):
        told, plain = ([encoded(each, wire) for each in made] for made in (windows, others))
        for n in range(1, len(told)):
            ends = len(encoded(windows[n - 1], wire, "<recalled "))
            assert shared(told[n - 1], told[n]) >= min(shared(plain[n - 1], plain[n]), ends)


@awaited
async def test_recall_is_on_by_default():
    async with App("memory:") as app:
        assert "QX7731" in excerpts(await chat(by_conversation, app, model()))


@pytest.mark.parametrize("trimming", [Stepped(), Exact()], ids=["stepped", "exact"])
@awaited
async def test_nothing_stands_in_a_window_twice(trimming):
    async with App("memory:", trimming=trimming, recall=True) as app:
        made = model()
        talk = app.conversation("s", model=made)
        for number in range(60):
            await talk.send(f"Note {number}: the weather in town {number % 7}. " + "Rain. " * 40)
    for window in made.windows:
        shown = {each.item[1] for each in window.messages if each.item is not None}
        lines = excerpts(window).splitlines()[1:-1]
        told = {int(line.split(" ")[0]) for line in lines if line.split(" ")[0].isdigit()}
        assert not shown & told
        assert window.tokens <= 4_000


@awaited
@pytest.mark.parametrize("trimming", [Stepped(), Exact()], ids=["stepped", "exact"])
async def test_of_a_long_run_what_has_left_is_recalled_though_its_question_stays(trimming):
    def read(page: int) -> str:
        """Read a page."""
        return NEEDLE if page == 2 else f"Page {page}. {ANSWER}"

    calls = [ToolCall(f"c{page}", "read", f'{{"page": {page}}}') for page in range(120)]
    scripted = ScriptedModel([*calls, "All is read.", "QX7731."], name=NAME, budget=4_000)
    async with App("memory:", model=scripted, trimming=trimming) as app:
        chat = app.conversation("c", tools=[read], max_steps=200)
        await chat.send("Read all pages, please.")
        await chat.send(QUESTION)
    window = scripted.windows[-1]
    (recalled,) = [each.text for each in window.messages if each.text.startswith("<recalled")]
    assert NEEDLE in recalled
    shown = {each.item[1] for each in window.messages if each.item is not None}
    lines = recalled.splitlines()[1:-1]
    assert not shown & {int(line.split()[0]) for line in lines if line.split()[0].isdigit()}
    if isinstance(trimming, Stepped):
        assert window.messages[0].text == "Read all pages, please."


@pytest.mark.parametrize("name", NAMES)
@awaited
async def test_results_of_tools_are_not_recalled_where_that_is_switched_off(name):
    def read(page: int) -> str:
        """Read a page."""
        return NEEDLE if page == 2 else f"Page {page}. {ANSWER}"

    calls = [ToolCall(f"c{page}", "read", f'{{"page": {page}}}') for page in range(120)]
    scripted = ScriptedModel([*calls, "All is read.", "?"], name=name, budget=4_000)
    async with App("memory:", model=scripted, recall=Recall(results=False)) as app:
        chat = app.conversation("c", tools=[read], max_steps=200)
        await chat.send("Read all pages with the code, please.")
        await chat.send(QUESTION)
    texts = "".join(each.text for each in scripted.windows[-1].messages)
    assert NEEDLE not in texts
    assert "result of read" not in texts


@awaited
async def test_the_excerpts_are_chosen_once_a_turn_and_stay_during_its_run():
    calls = [ToolCall(f"c{n}", "look", "{}") for n in range(3)]

    def answer(window: Window) -> Any:
        if window.messages[-1].text == QUESTION or window.messages[-1].role == "tool":
            return calls.pop() if calls else ANSWER
        return ANSWER

    made = ScriptedModel(answer, name=NAME, budget=4_000)

    def look() -> str:
        """Look."""
        return "the locker QX7731 is locked"

    async with App("memory:", recall=True) as app:
        await chat(by_conversation, app, made, tools=[look])
    last = [excerpts(window) for window in made.windows[-4:]]
    assert "QX7731" in last[0]
    assert len(set(last)) == 1
    for one, two in zip(made.windows[-4:-1], made.windows[-3:], strict=True):
        assert two.messages[: len(one.messages)] == one.messages
        # Between the steps of a turn all of it may be cached, the excerpts too.
        assert two.breakpoints[-1].after == len(two.messages)


@awaited
async def test_windows_with_excerpts_are_valid_on_four_wires():
    async with App("memory:", recall=True) as app:
        window = await chat(by_conversation, app, model())
    assert "QX7731" in excerpts(window)
    for request in (
        window.openai(),
        window.openai(api="responses"),
        window.anthropic(),
        window.google(),
    ):
        assert "QX7731" in str(request)
    sent = window.anthropic()["messages"]
    assert [each["role"] for each in sent[-2:]] == ["assistant", "user"]
    marked = [
        part
        for each in sent
        for part in each["content"]
        if isinstance(part, dict) and "cache_control" in part
    ]
    assert marked
    assert not any("<recalled " in str(part) for part in marked)


@awaited
async def test_recall_costs_only_itself(monkeypatch, caplog):
    def fail(*given: Any, **options: Any) -> Any:
        raise RuntimeError("the index is broken")

    monkeypatch.setattr("muntin.runtime.recall.recall", fail)
    async with App("memory:", recall=True) as app:
        window = await chat(by_conversation, app, model())
    assert excerpts(window) == ""
    assert window.messages[-1].text == QUESTION
    assert "the index is broken" in str(window.report)
    records = [record for record in caplog.records if "nothing was recalled" in record.message]
    assert records
    assert {record.levelname for record in records} == {"WARNING"}
    assert "in fail" in caplog.text  # the traceback


@awaited
async def test_an_index_in_the_making_is_told_and_used_later():
    async with App("memory:", recall=Recall(timeout=1e-9)) as app:
        session = app.session("s")
        session.append(user(NEEDLE))
        for number in range(1_500):
            session.append(user(CHAT.format(number)))
        made = model()
        talk = app.conversation("s", model=made)
        await talk.send(QUESTION)
        assert "the index is being made" in str(made.windows[-1].report)
        await talk.send(QUESTION)
        assert "QX7731" in excerpts(made.windows[-1])


@awaited
async def test_a_small_window_is_left_to_the_history():
    async with App("memory:", recall=True) as app:
        made = model(budget=LEAST_TOKENS * 6)
        await chat(by_conversation, app, made, turns=10)
        assert not any(map(excerpts, made.windows))
        assert Recall().most(LEAST_TOKENS * 6) == 0
        assert Recall().most(1_000_000) == MOST_TOKENS
        assert Recall(tokens=9_000).most(1_000_000) == 9_000


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"tokens": 0}, "Recall.tokens"),
        ({"ratio": 1.5}, "Recall.ratio"),
        ({"ratio": True}, "Recall.ratio"),
        ({"timeout": 0}, "Recall.timeout"),
        ({"limit": "x"}, "Recall.limit"),
        ({"results": 0}, "Recall.results"),
    ],
)
def test_wrong_settings_are_refused_by_name(given, what):
    with pytest.raises(InvalidInput, match=what):
        Recall(**given)


@awaited
async def test_a_door_refuses_what_is_no_recall_and_a_strategy_recalls_by_itself():
    class Strategy:
        def on_context_build(self, ctx: Ctx) -> Any:
            ctx.slots.add("recalled", ctx.history.relevant(ctx.message.text, tokens=400))
            ctx.slots.add("input", ctx.message)
            return ctx.slots.render()

    async with App("memory:") as app:
        with pytest.raises(InvalidInput, match="recall must be"):
            app.conversation("s", model=model(), recall=3)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match=r"ctx\.history\.relevant"):
            app.conversation("s", model=model(), strategy=Strategy(), recall=True)
        window = await chat(by_conversation, app, model(), strategy=Strategy(), turns=5)
        assert len(window.messages) == 2
        assert "QX7731" in excerpts(window)


@awaited
async def test_ctx_relevant_is_a_source():
    made = model()
    async with App("memory:", recall=True) as app:

        @app.entity("helper")
        async def helper(ctx: Ctx, wake: Any) -> None:
            ctx.use_context(
                source_budget=1_500,
                sources={
                    "recalled": Source(ctx.relevant, max=400),
                    "timeline": Source(ctx.timeline_messages(), max=800),
                },
            )
            ctx.use_agent(model=made)
            await ctx.agent.run()

        await app.ask("helper/s", NEEDLE)
        for number in range(30):
            await app.ask("helper/s", CHAT.format(number))
        await app.ask("helper/s", QUESTION)
    window = made.windows[-1]
    assert "QX7731" in excerpts(window)
    assert window.report["recalled"].tokens_kept <= 400
    assert not any(mark.after == len(window.messages) - 1 for mark in window.breakpoints)


@awaited
async def test_an_agent_searches_what_its_window_does_not_show():
    found: list[str] = []
    made = model()
    async with App("memory:") as app:

        @app.entity("helper")
        async def helper(ctx: Ctx, wake: Any) -> None:
            ctx.use_context(source_budget=500, sources={"none": Source("nothing", max=10)})
            by_name = {tool_name(each): each for each in ctx.tools}
            search: Any = by_name["search_history"]
            found.append(await search("locker number"))
            ctx.use_agent(model=made)
            await ctx.agent.run()

        await app.ask("helper/s", NEEDLE)
        await app.ask("helper/s", "Where is it?")
    assert found[0] == "(nothing was found)"
    assert "QX7731" in found[1]
    offered = [str(each) for each in made.windows[-1].tools]
    assert any("search_history" in each for each in offered)


# Embedders.

PARAPHRASE = "The canine swallowed a battery."
PUZZLE = "Anything about dogs and health?"


def meaning(texts: list[str]) -> list[list[float]]:
    """Embed a text by whether it is about an ailing dog."""
    return [[1.0, 0.2] if "canine" in t or "dogs" in t else [-1.0, 0.2] for t in texts]


async def embedded_chat(app: App, made: ScriptedModel, ask: str = PUZZLE) -> Window:
    talk = app.conversation("s", model=made)
    await talk.send(PARAPHRASE)
    for number in range(40):
        await talk.send(CHAT.format(number))
    await talk.send("And now something else.")
    for _ in range(200):  # the vectors are made in the background
        if not app.embeddings._tasks:
            break
        await asyncio.sleep(0.005)
    await talk.send(ask)
    return made.windows[-1]


@pytest.mark.parametrize("kind", ["sync", "async"])
@awaited
async def test_an_embedder_finds_what_no_word_does(kind, tmp_path):
    given: list[int] = []

    def embed(texts: list[str]) -> Any:
        given.append(len(texts))
        return meaning(texts)

    async def later(texts: list[str]) -> Any:
        return embed(texts)

    settings = Recall(tokens=300, limit=2, embed=embed if kind == "sync" else later)
    async with App(f"sqlite:///{tmp_path / 'a.db'}", recall=settings) as app:
        window = await embedded_chat(app, model())
        assert "canine" in excerpts(window)
        total = sum(given)
        await app.conversation("s", model=model()).send(PUZZLE)
        assert sum(given) < total + 10  # each message once
    async with App("memory:", recall=Recall(tokens=300, limit=2)) as app:
        assert "canine" not in excerpts(await embedded_chat(app, model()))


def _raises(texts: list[str]) -> Any:
    raise RuntimeError("no quota left")


def _hangs(texts: list[str]) -> Any:
    time.sleep(1)


def _changes(texts: list[str]) -> Any:
    """One dimension for questions, and another for all other messages."""
    return [[1.0] * (2 if text.endswith("?") else 3) for text in texts]


BROKEN = {
    "raises": (_raises, "no quota left"),
    "hangs": (_hangs, "took longer than 0.05"),
    "changes its dimension": (_changes, "dimensions"),
    "gives too few": (lambda texts: [], "gave 0 vectors"),
    "gives no numbers": (lambda texts: ["abc" for _ in texts], "no vector"),
    "gives nothing finite": (lambda texts: [[float("nan")] for _ in texts], "not finite"),
    "gives nothing": (lambda texts: None, "gave None vectors"),
}


@pytest.mark.parametrize("how", BROKEN)
@awaited
async def test_a_broken_embedder_costs_only_itself_and_the_report_says_why(how):
    embed, why = BROKEN[how]
    settings = Recall(tokens=400, embed=embed, timeout=0.05 if how == "hangs" else 2.0)
    async with App("memory:", recall=settings) as app:
        made = model()
        window = await embedded_chat(app, made, "What did the canine swallow?")
    assert "canine swallowed a battery" in excerpts(window)
    told = " ".join(
        str(each.report["recalled"].detail) for each in made.windows[-30:] if excerpts(each)
    )
    assert why in told


def test_vectors_are_kept_in_chunks_and_those_of_another_version_are_not_read():
    one = Vectors()
    one.add(checked([[n, 1.0, -2.0] for n in range(CHUNK + 3)], CHUNK + 3))
    again = Vectors()
    assert again.take(one.pack(0))
    assert len(again) == CHUNK
    near = range(CHUNK)
    assert again.near([1.0, 0.0, 0.0], near) == one.near([1.0, 0.0, 0.0], near)
    for broken in ("", "x", "muntin-vectors-0:3:abc", "muntin-vectors-1:3:abc", one.pack(0)[:-5]):
        assert not Vectors().take(broken)
    with pytest.raises(InvalidInput, match="4 dimensions, and 3 before"):
        one.add([[1.0, 0.0, 0.0, 0.0]])


def test_kept_vectors_are_read_again(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        session = Session("s", store=store)
        session.append(*[draft_of(user(f"word{n}"), opens="turn") for n in range(CHUNK + 10)])
        first, texts = without_vector(session, "e", 1_000)
        assert (first, len(texts)) == (0, CHUNK + 10)
        add_vectors(session, "e", 0, checked([[1.0, n] for n in range(len(texts))], len(texts)))
        assert without_vector(session, "e", 10) == (CHUNK + 10, [])
    with open_store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        first, texts = without_vector(Session("s", store=store), "e", 1_000)
        assert (first, texts[0]) == (CHUNK, f"word{CHUNK}")
        assert without_vector(Session("s", store=store), "other", 5)[0] == 0


# Stores, restarts, projections.


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
@awaited
async def test_after_a_restart_the_same_is_recalled(store_url):
    windows = []
    for turns in (40, 0):
        async with App(store_url, recall=True) as app:
            made = model()
            talk = app.conversation("s", model=made)
            if turns:
                await chat(by_conversation, app, made, turns)
            else:
                await talk.send(QUESTION)
            windows.append(made.windows[-1])
    assert "QX7731" in excerpts(windows[0])
    assert excerpts(windows[0]).splitlines()[1] == excerpts(windows[1]).splitlines()[1]


@awaited
async def test_what_a_projection_hides_is_hidden_from_sources_and_tools():
    found: list[str] = []
    made = model()

    def hide(item: Any) -> Any:
        text = item.message.text if item.message is not None else ""
        return [user("My locker is [removed].")] if "QX7731" in text else None

    async with App("memory:") as app:

        @app.entity("helper")
        async def helper(ctx: Ctx, wake: Any) -> None:
            sources = {
                "timeline": Source(ctx.timeline_messages(projection=hide), max=300),
                "recalled": Source(ctx.relevant, max=400),
            }
            ctx.use_context(source_budget=1_200, sources=sources)
            search: Any = {tool_name(each): each for each in ctx.tools}["search_history"]
            found.append(await search("locker QX7731"))
            ctx.use_agent(model=made)
            await ctx.agent.run()

        await app.ask("helper/s", NEEDLE)
        for number in range(8):
            await app.ask("helper/s", CHAT.format(number))
        await app.ask("helper/s", "Where is my locker, QX7731 or so?")
    assert "My locker is [removed]." in found[-1]
    assert not any("QX7731" in each for each in found)
    window = made.windows[-1]
    assert "My locker is [removed]." in excerpts(window)
    assert "QX7731" not in "".join(message.text for message in window.messages[:-1])


@pytest.mark.parametrize("door", sample(INTERFACES, "conversation", "entity", "generator"))
@awaited
async def test_while_all_is_shown_the_store_is_not_asked_for_more(door, monkeypatch):
    looked: list[Any] = []
    monkeypatch.setattr("muntin.timeline.recall.stored.in_window", looked.append)
    async with App("memory:", recall=True) as app:
        made = model()
        for number in range(3):
            await INTERFACES[door](app, made, CHAT.format(number))
    assert looked == []


# Windows with excerpts, whatever they hold.

MODELS = (NAME, "openai/gpt-4o", "google/gemini-2.5-pro", "scripted")


@st.composite
def talks(draw: Any) -> list[Message]:
    """Draw a conversation, with tool groups."""
    messages: list[Message] = []
    for number, size in enumerate(draw(st.lists(st.integers(1, 60), min_size=1, max_size=60))):
        messages.append(user(f"Question {number}. " + "word " * size))
        if draw(st.booleans()):
            call = ToolCall(f"c{number}", "look", "{}")
            messages += [assistant(tool_calls=[call]), tool(call.id, "result " * size)]
        messages.append(assistant("Answer. " * (size % 20 + 1)))
    return messages


@given(
    talks(),
    st.sampled_from(MODELS),
    st.integers(400, 3_000),
    st.sampled_from([Stepped(), Exact()]),
    st.integers(0, 400),
)
def test_excerpts_of_any_size_leave_windows_valid_and_take_only_the_room_they_need(
    messages, name, budget, trimming, words
):
    composer = Composer.of(name, budget=budget, tokenizer="estimate", trimming=trimming)
    most = budget // 5

    def compose(text: str, composer: Composer) -> Window:
        slots = composer.slots()
        slots.add("history", messages, trimming=trimming)
        slots.add("input", "What now?")
        return composer.with_recalled(slots, text, most).render()

    first = compose("", composer)
    texts = ["", composer.filler(most), "<recalled>" + "word " * words + "</recalled>"]
    windows = [first, *(compose(text, composer.after(first)) for text in texts)]
    for window in windows:
        assert window.tokens <= budget
        assert window.report["recalled"].tokens_kept <= most
        assert window.messages[-1].text == "What now?"
        for request in (window.openai, window.anthropic, window.google):
            assert request()
        assert window.openai(api="responses")
        if isinstance(trimming, Stepped):
            past = [
                [m for m, origin in zip(w.messages, w.origins, strict=True) if origin == 0]
                for w in (first, window)
            ]
            if first.tokens + window.report["recalled"].tokens_kept <= budget:
                assert past[0] == past[1]
            assert window.report["history"].tokens_kept <= first.report["history"].tokens_kept


@awaited
async def test_nothing_is_recalled_from_another_conversation():
    async with App("memory:", recall=True) as app:
        made, other = model(), model()
        await app.conversation("tenant-2/s", model=other).send(NEEDLE.replace("QX7731", "ZZ9999"))
        window = await chat(by_conversation, app, made)
        assert "QX7731" in excerpts(window)
        assert not any("ZZ9999" in excerpts(each) for each in made.windows)


@awaited
async def test_a_summary_stands_in_front_and_the_excerpts_behind():
    writer = ScriptedModel(lambda window: "They spoke of the weather.")
    summary = Summary(writer, max_tokens=100)
    async with App("memory:", recall=True, summary=summary) as app:
        made = model()
        talk = app.conversation("s", model=made)
        await talk.send(NEEDLE)
        for number in range(40):
            await talk.send(CHAT.format(number))
            await asyncio.sleep(0.01)
        await talk.send(QUESTION)
    texts = [message.text for message in made.windows[-1].messages]
    assert texts[0].startswith("<summary ")
    assert "QX7731" in texts[-2]
    assert made.windows[-1].tokens <= 4_000


@awaited
async def test_every_ctx_recalls_what_its_turn_was_asked():
    found: list[str] = []

    async def note(input: Any, ctx: Ctx) -> None:
        found.append(ctx.relevant(tokens=200))

    async with App("memory:") as app:
        action = Action(note, user_message=lambda input: input)
        made = flow("f", actions={"say": action})
        for text in (NEEDLE, QUESTION):
            await made.run("say", text, session="s", app=app)
    assert found[0] == ""
    assert "QX7731" in found[1]
