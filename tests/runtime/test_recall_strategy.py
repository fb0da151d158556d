"""Recall in a strategy: excerpts repeat nothing that the window shows, in any order of slots."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import App, Exact, Stepped, Window, user
from muntin.testing import ScriptedModel
from tests.runtime.test_recall import ANSWER, CHAT, NAME, NEEDLE, QUESTION, awaited, excerpts


def positions(window: Window) -> tuple[set[int], set[int]]:
    """Return the positions that a window shows, and those of its excerpts."""
    shown = {m.item[1] for m in window.messages if m.item is not None}
    lines = [line.split(" ")[0] for line in excerpts(window).splitlines()]
    return shown, {int(first) for first in lines if first.isdigit()}


class Recalling:
    """A strategy that recalls before, or behind, its history."""

    def __init__(self, is_first: bool, newest: int | None) -> None:
        self._is_first, self._newest = is_first, newest

    def on_context_build(self, ctx: Any) -> Any:
        def recall() -> None:
            ctx.slots.add("recalled", ctx.history.relevant(ctx.input, tokens=600), priority=20)

        if self._is_first:
            recall()
        history = (
            ctx.timeline_messages() if self._newest is None else ctx.history.recent(self._newest)
        )
        ctx.slots.add("history", history, priority=10)
        if not self._is_first:
            recall()
        return ctx.slots.render() if self._newest is None else None


@pytest.mark.parametrize("trimming", [Stepped(), Exact()], ids=["stepped", "exact"])
@pytest.mark.parametrize("newest", [None, 6])
@pytest.mark.parametrize("is_first", [True, False])
@awaited
async def test_excerpts_repeat_nothing_that_the_window_shows(is_first, newest, trimming):
    made = ScriptedModel(lambda window: ANSWER, name=NAME, budget=3_000)
    async with App("memory:", trimming=trimming) as app:
        chat = app.conversation("s", model=made, strategy=Recalling(is_first, newest))
        for text in (NEEDLE, *(CHAT.format(number) for number in range(25)), QUESTION):
            await chat.send(text)
    for window in made.windows:
        shown, recalled = positions(window)
        assert not shown & recalled
        assert window.tokens <= 3_000
    assert "QX7731" in excerpts(made.windows[-1])


@awaited
async def test_excerpts_of_another_session_stay_where_positions_are_alike():
    made = ScriptedModel(lambda window: ANSWER, name=NAME, budget=3_000)
    async with App("memory:") as app:
        other = app.session("other")
        other.append(user("The zeppelin is in Lucerne."))

        class Both:
            def on_context_build(self, ctx: Any) -> None:
                ctx.slots.add("history", ctx.timeline_messages())
                ctx.slots.add("recalled", other.items.relevant("zeppelin", tokens=200))

        await app.conversation("s", model=made, strategy=Both()).send("Where is it?")
        await app.conversation("s", model=made, strategy=Both()).send("And now?")
    assert "1 user: The zeppelin is in Lucerne." in excerpts(made.windows[-1])
