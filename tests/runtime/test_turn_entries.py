"""The entries of a turn: what one ctx of it writes, all of them see at once."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import App, generator
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel
from tests.runtime.conftest import run


@pytest.fixture(params=["memory:", "sqlite"])
def url(request, tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'm.db'}" if request.param == "sqlite" else request.param


def contents(ctx: Ctx) -> list[str]:
    return [entry.content for entry in ctx.list_context()]


def test_what_a_generator_writes_its_handler_sees_and_the_other_way_round(url):
    seen: dict[str, Any] = {}

    async def note(given: object, ctx: Ctx) -> str:
        seen["generator at first"] = contents(ctx)
        ctx.insert_context("b", name="B", content="of the generator")
        ctx.remove_context("a")
        seen["generator"] = contents(ctx)
        return "text"

    made = generator(model=ScriptedModel(["ok"]), user="hi", context={"x": note})

    async def work() -> None:
        async with App(url, model=ScriptedModel([])) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: object) -> None:
                ctx.insert_context("a", name="A", content="of the handler")
                seen["handler at first"] = contents(ctx)
                await ctx.run(made)
                seen["handler"] = contents(ctx)
                assert ctx.get_context("a") is None

            await app.ask("e/1", "hi")
            seen["afterwards"] = [e.content for e in app.session("e/1").list_context()]

    run(work())
    assert seen == {
        "handler at first": ["of the handler"],
        "generator at first": ["of the handler"],
        "generator": ["of the generator"],
        "handler": ["of the generator"],
        "afterwards": ["of the generator"],
    }


def test_an_entry_that_is_replaced_stands_last(url):
    async def work() -> list[str]:
        async with App(url, model=ScriptedModel([])) as app:
            for name in ("one", "two"):
                app.session("e/1").insert_context(name, name=name, content=name)
            seen: list[str] = []

            @app.entity("e")
            async def handler(ctx: Ctx, wake: object) -> None:
                ctx.insert_context("one", name="one", content="new")
                seen.extend(contents(ctx))

            await app.ask("e/1", "hi")
            assert seen == [e.content for e in app.session("e/1").list_context()]
            return seen

    assert run(work()) == ["two", "new"]
