"""Entries that async code inserts: staged, written with the next step, never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muntin import App, StoreError
from muntin.errors import MuntinError, StrategyError
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.runtime.conftest import run


def insert(ctx: Ctx) -> Any:
    return ctx.insert_context("tone", name="Tone", content="kind")


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def kept(app: App, session: str) -> list[str]:
    return [entry.content for entry in app.session(session).list_context()]


def test_an_entry_of_a_turn_that_fails_is_kept(tmp_path):
    class Failing:
        async def on_context_build(self, ctx: Ctx) -> None:
            insert(ctx)
            raise ValueError("no")

    async def talk() -> list[str]:
        async with App(url(tmp_path), model=ScriptedModel(["hi"])) as app:
            with pytest.raises(StrategyError):
                await app.conversation("c", strategy=Failing()).send("hello")
            return kept(app, "c")

    assert run(talk()) == ["kind"]


def test_an_entry_that_could_not_be_written_is_written_with_the_next_append(tmp_path):
    async def talk() -> list[str]:
        async with App(url(tmp_path), model=ScriptedModel(["hi"])) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: object) -> None:
                write = ctx.turn.write

                def away(*given: object) -> Any:
                    ctx.turn.write = write  # type: ignore[method-assign]
                    raise StoreError("the store went away")

                ctx.turn.write = away  # type: ignore[method-assign,assignment]
                with pytest.raises(StoreError):
                    await insert(ctx)
                ctx.use_agent()
                await ctx.agent.run()

            await app.ask("e/1", "hello")
            return kept(app, "e/1")

    assert run(talk()) == ["kind"]


def test_an_entry_for_a_turn_that_is_over_is_refused(tmp_path):
    left: list[Ctx] = []

    async def talk() -> list[str]:
        async with App(url(tmp_path), model=ScriptedModel(["hi"])) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: object) -> None:
                left.append(ctx)

            await app.ask("e/1", "hello")
            with pytest.raises(MuntinError, match=r"turn 1 of 'e/1' is over"):
                insert(left[0])
            return kept(app, "e/1")

    assert run(talk()) == []
