"""Stepped trimming through the doors: a frontier that stays, is stored, and survives a restart."""

import asyncio

import pytest

from muntin import App, Exact, Source, Stepped, generator
from muntin.testing import ScriptedModel

NAME = "anthropic/claude-sonnet-4-5"
TEXT = "What about the flight to Oslo on day {}? " + "Please tell me everything. " * 12


def model():
    return ScriptedModel(lambda window: "Here is all I know. " * 15, name=NAME, budget=4_000)


def shown(window):
    return [(message.role, message.text) for message in window.messages]


def starts(windows):
    """Return which message of the conversation each window begins with."""
    return [next(m.text for m in window.messages if m.role == "user") for window in windows]


async def talk(url, turns, *, restart=False, trimming=None, first=0):
    asked = model()
    app = App(url, model=asked, trimming=trimming)
    for turn in range(first, first + turns):
        await app.conversation("c").send(TEXT.format(turn))
        if restart:
            await app.close()
            app = App(url, model=asked, trimming=trimming)
    await app.close()
    return asked.windows


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'a.db'}"


def test_the_default_assembly_moves_its_beginning_rarely_where_caching_is_priced(url):
    stepped = starts(asyncio.run(talk(url, 40)))
    assert 1 < len(set(stepped)) <= 8
    assert stepped == sorted(stepped, key=lambda text: int(text.split("day ")[1].split("?")[0]))


def test_exact_trimming_is_there_for_who_asks_for_it(url):
    exact = starts(asyncio.run(talk(url, 40, trimming=Exact())))
    assert len(set(exact)) > 15


def test_a_restart_between_any_two_turns_changes_no_byte(tmp_path):
    through = asyncio.run(talk(f"sqlite:///{tmp_path / 'a.db'}", 30))
    again = asyncio.run(talk(f"sqlite:///{tmp_path / 'b.db'}", 30, restart=True))
    assert [shown(w) for w in through] == [shown(w) for w in again]
    assert [w.breakpoints for w in through] == [w.breakpoints for w in again]


def test_no_report_need_be_kept_for_it(url):
    async def run():
        asked = model()
        for turn in range(30):
            async with App(url, model=asked, keep_reports=0) as app:
                await app.conversation("c").send(TEXT.format(turn))
        return asked.windows

    assert len(set(starts(asyncio.run(run())))) <= 6


def test_a_timeline_among_sources_is_cut_in_steps(url):
    asked = model()

    async def run():
        async with App(url, model=asked) as app:

            @app.entity("e")
            async def handler(ctx, wake):
                ctx.use_context(
                    source_budget=2_500,
                    sources={
                        "rules": Source("Be brief. " * 20, max=200, cache="stable"),
                        "chat": Source(ctx.timeline_messages, max=2_000),
                    },
                )
                ctx.use_agent(system_prompt="You are an agent.")
                await ctx.agent.run()

            for turn in range(30):
                await app.ask("e/1", TEXT.format(turn))

    asyncio.run(run())
    assert 1 < len(set(starts(asked.windows))) <= 10
    assert all(window.tokens <= 4_000 for window in asked.windows)


@pytest.mark.parametrize("history", [True, 40, 20])
def test_a_generator_whose_history_outgrows_its_room_is_cut_in_steps(url, history):
    """A history of so few turns that they always fit slides with every turn: the author's limit is
    no matter of room."""
    asked = model()
    chat = generator(
        name="chat", model=asked, prompt="Be brief.", history=history, user=lambda input: input
    )

    async def run():
        async with App(url) as app:
            for turn in range(45):
                await chat.run(TEXT.format(turn), app=app, session="s")

    asyncio.run(run())
    moved = len(set(starts(asked.windows)))
    assert 1 < moved <= 8 if history != 20 else moved == 25


def test_a_generator_may_ask_for_steps(url):
    asked = model()
    chat = generator(
        model=asked,
        prompt="Be brief.",
        history=40,
        user=lambda input: input,
        trimming=Stepped(low=0.5),
    )

    async def run():
        async with App(url) as app:
            for turn in range(30):
                await chat.run(TEXT.format(turn), app=app, session="s")

    asyncio.run(run())
    assert len(set(starts(asked.windows))) <= 6
