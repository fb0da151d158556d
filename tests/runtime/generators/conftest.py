"""What tests of generators ask, and what they see of the answer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from muntin import App, generator
from muntin.testing import ScriptedModel
from tests.runtime.conftest import run


class Ask(BaseModel):
    message: str
    topic: str = "lamps"


def echo(**given: Any) -> ScriptedModel:
    return ScriptedModel(lambda window: f"re: {window.messages[-1].text}", **given)


def shown(made, input=None, **given) -> list[tuple[str, str]]:
    """Return the role and text of each message that a generator would send."""
    given.setdefault("model", echo())
    return [(each.role, each.text) for each in run(made.window(input, **given)).messages]


def lookup(key: str) -> str:
    """Look something up."""
    return f"found {key}"


def talked(app: App, turns: int = 5, session: str = "s") -> None:
    """Have a generator talk for some turns."""

    async def talk() -> None:
        chat = generator(name="chat", model=echo(), user=lambda i: i)
        for number in range(1, turns + 1):
            await chat.run(f"q{number}", app=app, session=session)

    run(talk())
