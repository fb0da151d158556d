"""An append whose commit was in doubt is written once, whether it was stored or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from muntin import App
from muntin.errors import StoreError
from muntin.runtime.ctx import Ctx, Wake
from muntin.testing import ScriptedModel
from muntin.timeline.items import Draft, Item
from muntin.timeline.store.memory import MemoryStore
from tests.runtime.conftest import run


class Doubtful(MemoryStore):
    """A store whose connection breaks at the n-th commit of a turn, before or behind it."""

    def __init__(self, breaks: int, *, stored: bool, away: int) -> None:
        super().__init__()
        self.left = breaks
        self.stored = stored
        # How often the store is away when it is looked at next.
        self.away = away
        self.failing = 0

    def read(self, session: str, **given: Any) -> list[Item]:
        if self.failing:
            self.failing -= 1
            gone = StoreError("the store is away")
            gone.passing = gone.away = True
            raise gone
        return super().read(session, **given)

    def append(self, session: str, drafts: Sequence[Draft], **given: Any) -> list[Item]:
        if given.get("claim") is None or drafts[0].opens is not None:
            return super().append(session, drafts, **given)
        self.left -= 1
        if self.left:
            return super().append(session, drafts, **given)
        if self.stored:
            super().append(session, drafts, **given)
        broken = StoreError("the connection broke during the commit")
        broken.passing = broken.in_doubt = True
        self.failing = self.away
        raise broken


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("breaks", [1, 2, 3])
@pytest.mark.parametrize(
    ("door", "away"), [("conversation", 0), ("conversation", 2), ("entity", 0)]
)
def test_what_was_in_doubt_is_there_once(door: str, away: int, breaks: int, stored: bool) -> None:
    async def work() -> list[Item]:
        store = Doubtful(breaks, stored=stored, away=away)
        async with App(store, model=ScriptedModel(lambda window: "Yes.")) as app:

            @app.entity("e")
            async def handler(ctx: Ctx, wake: Wake) -> None:
                ctx.insert_context("seen", name="Seen", content="it")
                ctx.use_agent()
                await ctx.agent.run()
                ctx.insert_context("done", name="Done", content="it")

            if door == "entity":
                await app.ask("e/1", "so?")
            else:
                reply = await app.conversation("e/1").send("so?")
                assert reply.text == "Yes."
            (turn,) = store.turns("e/1")
            assert (turn.status, turn.owner, turn.attempt) == ("completed", None, 1)
            return store.read("e/1")

    kinds = [item.kind for item in run(work())]
    if door == "entity":
        assert sorted(kinds) == sorted([*["message"] * 2, "run", *["context_inserted"] * 2])
    else:
        assert kinds == ["message", "run", "message"]
