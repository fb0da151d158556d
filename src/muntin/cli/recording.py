"""The demo: a real conversation of an airline agent, lived again by an App in a small window.

A scripted model says what the real one said, and the tools answer what they answered, so that it
needs neither a key nor a network. Owns the recording and the agent; prints nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from muntin.agent.tools import ToolLike
from muntin.core.message import Message, as_message
from muntin.core.planning.window import Window
from muntin.runtime.app import App
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store

TOKENIZER = "openai/gpt-4o"  # the model that was recorded
GUIDE = "Write short sentences. Offer at most three options at a time. " * 12


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded conversation: the rules of the agent, then what was said."""

    policy: str
    messages: tuple[Message, ...]

    @property
    def questions(self) -> list[str]:
        """What the user said and got an answer to."""
        answered = max(n for n, each in enumerate(self.messages) if each.role == "assistant")
        return [each.text for each in self.messages[:answered] if each.role == "user"]

    def said_by(self, role: str) -> list[Message]:
        """Return the messages of a role."""
        return [each for each in self.messages if each.role == role]


def recording() -> Recording:
    """Read the recording that ships with the package."""
    text = files("muntin.cli").joinpath("data", "airline.json").read_text(encoding="utf-8")
    first, *rest = [as_message(each) for each in json.loads(text)["messages"]]
    return Recording(first.text, tuple(rest))


@dataclass(frozen=True, slots=True)
class Agent:
    """The strategy: what goes into the window, and what gives way when it is full."""

    policy: str

    def on_context_build(self, ctx: Any) -> None:
        """Declare the slots of a turn."""
        ctx.slots.add("system", self.policy, priority=100)
        ctx.slots.add("style guide", GUIDE, role="system", priority=-1)
        ctx.slots.add("history", ctx.timeline_messages(), max_ratio=0.6)
        ctx.slots.add("input", ctx.message)


def tools(results: Iterator[str]) -> Sequence[ToolLike]:
    """Return the agent's tools; each call gives the next of the recorded results."""

    def get_user_details(user_id: str) -> str:
        """Get the details of a user."""
        return next(results)

    def get_reservation_details(reservation_id: str) -> str:
        """Get the details of a reservation."""
        return next(results)

    def search_direct_flight(origin: str, destination: str, date: str) -> str:
        """Find direct flights between two cities on a day."""
        return next(results)

    def search_onestop_flight(origin: str, destination: str, date: str) -> str:
        """Find flights with one stop between two cities on a day."""
        return next(results)

    def think(thought: str) -> str:
        """Think about something; it changes nothing."""
        return next(results)

    def calculate(expression: str) -> str:
        """Calculate the value of an expression."""
        return next(results)

    def update_reservation_flights(
        reservation_id: str, cabin: str, flights: list[dict[str, str]], payment_id: str
    ) -> str:
        """Change the flights or the cabin of a reservation."""
        return next(results)

    return (
        get_user_details,
        get_reservation_details,
        search_direct_flight,
        search_onestop_flight,
        think,
        calculate,
        update_reservation_flights,
    )


async def replay(
    store: Store, session: str, *, budget: int, advance: Callable[[], None] = lambda: None
) -> list[Window]:
    """Live the recorded conversation in a session, and return the windows the model was given.

    The session is begun anew; `advance` is called after every turn.
    """
    recorded = recording()
    model = ScriptedModel(recorded.said_by("assistant"), name="recorded", budget=budget)
    results = iter([each.text for each in recorded.said_by("tool")])
    store.delete(session)
    async with App(store, model=model, tokenizer=TOKENIZER) as app:
        chat = app.conversation(session, strategy=Agent(recorded.policy), tools=tools(results))
        for question in recorded.questions:
            await chat.send(question)
            advance()
    return model.windows
