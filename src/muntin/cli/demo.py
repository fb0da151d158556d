"""`muntin demo`: the main job in a minute, without a key or a network.

A real conversation of an airline agent is replayed in a small window: a scripted model gives the
recorded answers, and the tools give the recorded results.
"""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from muntin.agent.tools import ToolLike
from muntin.cli.options import AsJson
from muntin.cli.terminal import (
    failing,
    has_colours,
    print_json,
    progress,
    safe_text,
    this_command,
    width,
)
from muntin.core.message import Message, as_message
from muntin.core.report import Report
from muntin.core.window import Window
from muntin.errors import InvalidInput
from muntin.runtime.app import App
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store, open_store
from muntin.view.bar import bar

# The same conversation in a small window and in a roomy one: session, tokens.
SESSIONS = {"airline-small": 2_500, "airline-roomy": 8_000}
DEMO_SESSION = "airline-small"
TOKENIZER = "openai/gpt-4o"  # the model of the recording
GUIDE = "Write short sentences. Offer at most three options at a time. " * 12


@failing()
def demo(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FOLDER", help="A folder for what the demo writes."),
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """Compose a real conversation into a small window.

    Shows where every token went. Writes muntin-demo.db, the sessions with their reports, and
    muntin-demo.html, the receipt of one window.
    """
    if output.is_file():
        raise InvalidInput(f"{output}: this is a file; name a folder")
    output.mkdir(parents=True, exist_ok=True)
    database, page = output / "muntin-demo.db", output / "muntin-demo.html"
    store = f"sqlite:///{database}"
    # The window in which the last question was first put to the model.
    question = recording().questions[-1]
    window = next(w for w in _replay(store) if w.messages[-1].text == question)
    window.save_html(page)
    if as_json:
        print_json(
            {
                "store": store,
                "sessions": list(SESSIONS),
                "html": str(page),
                "report": window.report.to_dict(),
            }
        )
        return
    print(
        f"{len(recording().messages) + 1} messages of a real airline agent, replayed turn by turn "
        f"in a window of {SESSIONS[DEMO_SESSION]:,} tokens.\nThe window of the last question:\n"
    )
    print(bar(window, width=width(), colour=has_colours(sys.stdout)))
    print(f"\n{window.report}\n\nWhat was left out or shortened, first to last:\n")
    print(_cuts(window.report))
    print("\nThe same window as an OpenAI request:\n")
    print(_request(window))
    print(
        f"\nWritten: {page} (this receipt, to open in a browser)\n"
        f"         {database} ({len(SESSIONS)} sessions with the report of every window)\n"
        f"\nLook at every turn, and at other budgets:\n\n"
        f"  {this_command()} inspect --store {shlex.quote(str(database))}"
    )


def _replay(store: str) -> list[Window]:
    """Replay the conversation in each session, and return the windows of the session shown."""
    turns = len(recording().questions)
    windows: dict[str, list[Window]] = {}
    with open_store(store) as opened, progress("replaying", total=turns * len(SESSIONS)) as step:
        done = count(1)
        for session, budget in SESSIONS.items():
            windows[session] = asyncio.run(
                replay(opened, session, budget=budget, advance=lambda: step(next(done), "turns"))
            )
    return windows[DEMO_SESSION]


def _cuts(report: Report) -> str:
    cuts = [
        (decision.rank or 0, slot.name, decision)
        for slot in report.slots
        for decision in slot.decisions
        if decision.status not in ("kept", "empty")
    ]
    lines = []
    for rank, name, cut in sorted(cuts, key=lambda cut: cut[0]):
        last = cut.first + cut.count - 1
        what = f"messages {cut.first} to {last}" if cut.count > 1 else f"message {cut.first}"
        # Messages too old to be read are not counted.
        about = "-" if rank else "about -"
        lost = f"{about}{cut.tokens_asked - cut.tokens_kept:,} tokens"
        lines.append(f"  {name:12} {what:18} {cut.status:8} {cut.reason:12} {lost}")
    return "\n".join(lines)


def _request(window: Window) -> str:
    """Return the window as OpenAI's SDK takes it: one line a message, cut to the width."""
    lines = []
    for name, values in window.openai().items():
        lines += [f"{name}=[", *(f"  {json.dumps(v, ensure_ascii=False)}," for v in values), "]"]
    most = width()
    return safe_text("\n".join(x if len(x) <= most else f"{x[: most - 1]}…" for x in lines))


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """A recorded conversation: the rules of the agent, then the messages."""

    policy: str
    messages: tuple[Message, ...]

    @property
    def questions(self) -> list[str]:
        """The user's messages that got an answer."""
        answered = max(n for n, message in enumerate(self.messages) if message.role == "assistant")
        return [message.text for message in self.messages[:answered] if message.role == "user"]

    def messages_of_role(self, role: str) -> list[Message]:
        """Return the messages of a role."""
        return [message for message in self.messages if message.role == role]


def recording() -> RecordedConversation:
    """Read the recording that ships with the package."""
    text = files("muntin.cli").joinpath("data", "airline.json").read_text(encoding="utf-8")
    first, *rest = [as_message(message) for message in json.loads(text)["messages"]]
    return RecordedConversation(first.text, tuple(rest))


@dataclass(frozen=True, slots=True)
class AirlineStrategy:
    """The strategy: what goes into the window, and what leaves it first."""

    policy: str

    def on_context_build(self, ctx: Any) -> None:
        """Declare the slots of a turn."""
        ctx.slots.add("system", self.policy, priority=100, required=True)
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
    """Replay the recorded conversation in a session, and return the windows of the model.

    The session begins anew; `advance` is called after every turn.
    """
    recorded = recording()
    model = ScriptedModel(recorded.messages_of_role("assistant"), name="recorded", budget=budget)
    results = iter([message.text for message in recorded.messages_of_role("tool")])
    store.delete(session)
    async with App(store, model=model, tokenizer=TOKENIZER) as app:
        chat = app.conversation(
            session, strategy=AirlineStrategy(recorded.policy), tools=tools(results)
        )
        for question in recorded.questions:
            await chat.send(question)
            advance()
    return model.windows
