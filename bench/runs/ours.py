"""Muntin's policies, used as its users do: an entity's agent, a conversation, and plain slots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Any, TypeAlias

import muntin
from bench.runs.score import MODELS, Score
from bench.runs.script import Script, Turn
from bench.runs.wire import ENCODING
from muntin import App, Exact, Slots, Stepped, ToolCall, Window, assistant, tool, user
from muntin.agent import run_agent, tool_schema
from muntin.testing import MemoryStore, ScriptedModel
from muntin.wire import anthropic
from muntin.wire import chat as openai

ENCODERS: Mapping[str, Any] = {"openai": openai, "anthropic": anthropic}
MAX_STEPS = 100_000


class Player:
    """Plays the model of a script: scores every window it is asked with, and says what comes next.

    The processor time between an answer and the next question is what the policy takes.
    """

    def __init__(self, script: Script, score: Score) -> None:
        self.script = script
        self.score = score
        self.turn: Turn = script.turns[0]
        self.step = 0
        self.started = 0.0
        self.results = script.results
        self.model = ScriptedModel(self.answer, name=MODELS[score.rules])
        self.tools = [self._tool(name) for name in script.names]

    def begin(self, turn: Turn) -> str:
        """Begin a turn, and return what the user says."""
        self.turn, self.step = turn, 0
        self.started = process_time()
        return turn.text

    def answer(self, window: Window) -> Any:
        """Be asked."""
        seconds = process_time() - self.started
        request = ENCODERS[self.score.rules].encode(window)
        self.score.take(self.turn, self.step, request, seconds)
        self.model.windows.clear()
        step, self.step = self.step, self.step + 1
        self.started = process_time()
        if step == len(self.turn.steps):
            return self.turn.answer
        return [ToolCall(each.id, each.name, each.arguments) for each in self.turn.steps[step]]

    def _tool(self, name: str) -> Callable[..., str]:
        def look(step: str, arguments: dict[str, Any]) -> str:
            return self.results[step]

        look.__name__ = name
        look.__doc__ = about(name)
        return look


def about(name: str) -> str:
    """Describe a tool of the script."""
    return f"Use `{name}` of the airline's system; `step` names the step of the work."


# The doors.


Send: TypeAlias = Callable[[str], Awaitable[Any]]


def by_entity(app: App, player: Player) -> Send:
    """Return how a turn is sent to an entity that runs an agent."""

    async def handler(ctx: Any, wake: Any) -> None:
        ctx.use_agent(system_prompt=player.script.system, tools=player.tools, max_steps=MAX_STEPS)
        await ctx.agent.run()

    app.entity("clerk")(handler)
    return lambda text: app.ask("clerk/1", text)


class Strategy:
    """The strategy of the docs."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def on_context_build(self, ctx: Any) -> Window:
        """Compose the window of a turn."""
        ctx.slots.add("system", self.text, priority=9)
        ctx.slots.add("history", ctx.history.recent(10_000))
        ctx.slots.add("input", ctx.message)
        window: Window = ctx.slots.render()
        return window


def by_strategy(app: App, player: Player) -> Send:
    """Return how a turn is sent to a conversation with a strategy."""
    strategy = Strategy(player.script.system)
    conversation = app.conversation("c", strategy=strategy, tools=player.tools, max_steps=MAX_STEPS)
    return conversation.send


def known(name: str) -> Any:
    """Return what this version of Muntin calls so, or None."""
    return getattr(muntin, name, None)


# Doors have a ladder and recall by default, where there are such; plain slots have neither.
PLAIN: dict[str, Any] = {"recall": False} if known("Recall") else {}
WITHOUT: dict[str, Any] = {"ladder": None, **PLAIN} if known("Ladder") else {}


@dataclass(frozen=True)
class Policy:
    """A way to run: a door, and what the app, or the slots, are given."""

    door: Callable[[App, Player], Send] | None
    options: Mapping[str, Any] = field(default_factory=dict)
    summary: bool = False


async def play(policy: Policy, script: Script, score: Score) -> None:
    """Run a whole script; a turn that fails is left behind."""
    player = Player(script, score)
    given = dict(policy.options)
    if policy.summary:
        given["summary"] = known("Summary")(model=_writer(score))
    if policy.door is None:
        await _by_slots(player, given)
        return
    app = App(MemoryStore(), model=player.model, budget=score.window, tokenizer=ENCODING, **given)
    async with app:
        send = policy.door(app, player)
        for turn in script.turns:
            try:
                await send(player.begin(turn))
            except muntin.MuntinError as error:
                score.faults[type(error).__name__] = score.faults.get(type(error).__name__, 0) + 1


async def _by_slots(player: Player, options: Mapping[str, Any]) -> None:
    """Compose every window from a list of all messages, in the agent loop."""
    said: list[Any] = []
    before: list[Window] = []

    def compose(run: Any) -> Window:
        slots = Slots(
            player.score.window,
            profile=player.model.name,
            tokenizer=ENCODING,
            tools=schemas,
            previous=before[-1] if before else None,
            **options,
        )
        slots.add("system", player.script.system, priority=9, required=True)
        slots.add("history", said)
        slots.add("input", asked, role="user", priority=8, required=True)
        slots.add("run", [*run], priority=1)
        before[:] = [slots.render()]
        return before[0]

    schemas = [tool_schema(tool) for tool in player.tools]
    asked = ""
    for turn in player.script.turns:
        asked = player.begin(turn)
        await run_agent(player.model, compose, tools=player.tools, max_steps=MAX_STEPS)
        said.append(user(asked))
        for step in turn.steps:
            made = [ToolCall(each.id, each.name, each.arguments) for each in step]
            said.append(assistant(tool_calls=made))
            said += [tool(each.id, each.result) for each in step]
        said.append(assistant(turn.answer))


def _writer(score: Score) -> ScriptedModel:
    def write(window: Window) -> str:
        return score.summariser("\n".join(message.text for message in window.messages))

    return ScriptedModel(write, name="summariser")


# Everything Muntin does, by name. What this version has not is left out.
POLICIES: dict[str, Policy] = {
    "Muntin Exact()": Policy(by_entity, {"trimming": Exact()} | WITHOUT),
    "Muntin Stepped()": Policy(by_entity, {"trimming": Stepped()} | WITHOUT),
    "Muntin Stepped(), a strategy": Policy(by_strategy, {"trimming": Stepped()} | WITHOUT),
    "Muntin Stepped(), plain slots": Policy(None, {"trimming": Stepped()}),
}
STEPPED, LADDER, SUMMARY = "Muntin Stepped()", "Muntin, ladder", "Muntin, ladder and summary"
RECALL = "Muntin, ladder and recall"
if known("Ladder"):
    _LADDER = {"trimming": Stepped(), "ladder": known("Ladder")()}
    POLICIES |= {
        "Muntin Exact(), ladder": Policy(by_entity, {**_LADDER, **PLAIN, "trimming": Exact()}),
        LADDER: Policy(by_entity, _LADDER | PLAIN),
        "Muntin, ladder, a strategy": Policy(by_strategy, _LADDER | PLAIN),
        "Muntin, ladder, plain slots": Policy(None, _LADDER | {"results": known("Results")()}),
    }
    if known("Summary"):
        POLICIES[SUMMARY] = Policy(by_entity, _LADDER | PLAIN, summary=True)
    if known("Recall"):  # what an App does that is told nothing
        POLICIES[RECALL] = Policy(by_entity, _LADDER)
# What the aims are held against.
OWN = next(name for name in (RECALL, LADDER, STEPPED) if name in POLICIES)
