"""What the planner keeps of a conversation: several loads, turn by turn, for three kinds of model.

    python -m bench.planner [--json] [--only LOAD ...] [--beside PATH]

Everything follows from fixed seeds, four characters are one token, and only Muntin's public
interface is used: so the same program measures any version. `--beside` runs it with the Muntin of
another source tree too, and tells both with their differences: first the other, then this one.

The loads:

- **horton**: an entity with a `source_budget` of 18,000: a stable table of contents of 3,000,
  retrieved pages of 6,000 that change with each wake, the conversation up to 9,000. 70 wakes, the
  waking message has 100 tokens and the answer 400. The window has 128,000.
- **horton, tools**: the same, and in each wake the model needs six results of 770 tokens. It
  answers when it sees all six, and else calls for the first that it does not see.
- **one source**: an entity whose only source is the conversation, up to the whole `source_budget`
  of 15,000. 10 wakes that need three results of 10 tokens each, as above.
- **chat**: a conversation without recall, 8,000 tokens, 150 turns of varying size.
  **chat, recall**: the same with all defaults.
- **rag**: a strategy of system text (priority 100), the history (10), passages (50) of 10 to 50 %
  of the window that change each turn, and the input; 8,000 tokens, 100 turns. The size of the
  passages is random. **rag, ceiling**: the same passages with `max_ratio=0.5`. **rag, slow**: with
  this ceiling, and a size that rises and falls over 50 turns.
- **agent**: one turn of a conversation whose model needs 80 results of 0.2 to 20 KB, in 16,000 and
  in 32,000 tokens. It calls for the first whose call it does not see. **agent, turns**: 20 turns
  that need four of these results each.
- **airline**: recorded conversations, joined, given to `fit` before each answer of the model, in
  8,000 and in 16,000 tokens.

The columns:

- **fill**: how much of its room the conversation has, on average, without the first third of the
  requests, in which windows fill. The room of horton is min(9,000, source budget - table of
  contents - retrieved pages - waking message); that of rag is window - system text - passages -
  input. There only the past is counted, up to the room. Elsewhere the room is the window, and the
  whole request is counted.
- **unchanged**: the share of a request that the request before began with. **kept**: the share of
  a request that the next one begins with. Both in tokens of the encoded request: tools, system
  text and messages as JSON, in the order in which they are sent, without cache marks.
- **cost**: of all requests, beside the same without a cache, where the unchanged beginning costs
  0.1 and the rest 1.25.
- **tokens**: of a request, and **turns**: how many earlier ones are in view by their question; both
  without the first third.
- **rest shown**: the share of requests that show all that is not conversation, or 95 % of it, from
  its beginning: table of contents, pages, passages, system text, and the question.
- **results shown**: the share of the results just returned that are shown to at least half of
  min(their size, a quarter of the window). The window of horton is that of the model.
- **repeated**: tools that ran again because their call, or result, was not in view.
- **over**, **failed**: requests over the budget, and turns that ended with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.beside import Other, told
from bench.conversations import TRACES, history
from bench.runs.rules import blocks_of
from muntin import App, Message, MuntinError, Source, ToolCall, Window, fit
from muntin.testing import ScriptedModel

# Two whose caches are priced, and one whose cache is not.
MODELS = ("anthropic/claude-sonnet-4-6", "openai/gpt-5.2", "ollama/llama3")
CHARACTERS = 4
TOKENIZER = f"chars/{CHARACTERS}"
READ, WRITE = 0.1, 1.25
# The first third of the requests, in which windows fill.
FILLING = 1 / 3
# No result needs more than this share of a window; half of what it needs is a good view of it.
RESULT_SHARE, GOOD_VIEW = 0.25, 0.5
# What shares a room with others may lose a little.
NEARLY_ALL = 0.95

_MARKS = ("cache_control", "prompt_cache_breakpoint")
_QUESTION = re.compile(r"\bt\d{4}\b")
_PAST = re.compile(r"\b[tas]\d{4}\b")

Values = dict[str, float | None]
# The columns: what each is called, and how its value is written.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "requests": ("requests", "{:.0f}"),
    "fill": ("fill", "{:.1%}"),
    "unchanged": ("unchanged", "{:.1%}"),
    "kept": ("kept", "{:.1%}"),
    "cost": ("cost", "{:.3f}"),
    "tokens": ("tokens", "{:.0f}"),
    "turns": ("turns", "{:.1f}"),
    "rest": ("rest shown", "{:.1%}"),
    "shown": ("results shown", "{:.1%}"),
    "repeated": ("repeated", "{:.0f}"),
    "over": ("over", "{:.0f}"),
    "failed": ("failed", "{:.0f}"),
}


# Texts.


@cache
def _recorded() -> str:
    """Return the words of all recorded conversations: letters and spaces."""
    return " ".join(re.findall(r"[A-Za-z]+", TRACES.read_text("utf-8")))


def words(mark: str, tokens: int, chance: random.Random) -> str:
    """Return a text of so many tokens that begins with its mark."""
    size = CHARACTERS * tokens - len(mark) - 1
    start = chance.randrange(len(_recorded()) - size)
    return f"{mark} {_recorded()[start : start + size]}"


def count(text: str) -> int:
    """Count the tokens of a text."""
    return -(-len(text) // CHARACTERS)


def size_of(message: Message) -> int:
    """Count the tokens of a message: its text, and its calls."""
    calls = [text for call in message.tool_calls for text in (call.name, call.arguments)]
    return sum(map(count, (message.text, *calls)))


# What is measured.


def sent(model: str, window: Window) -> str:
    """Return a request as its provider reads it: one text, without cache marks."""
    encode = window.anthropic if model.startswith("anthropic/") else window.openai
    request = encode(strict=False)
    pieces: list[Any] = list(request.get("tools") or ())
    pieces += blocks_of(request.get("system"))
    for message in request["messages"]:
        pieces.append({k: v for k, v in message.items() if k != "content"})
        pieces += blocks_of(message.get("content"))
    return "\n".join(json.dumps(_unmarked(piece)) for piece in pieces)


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _unmarked(each) for key, each in value.items() if key not in _MARKS}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value


def common(one: str, other: str) -> int:
    """Return the number of characters with which both texts begin."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Watch:
    """Takes the windows of a load as they are sent, one after another."""

    def __init__(self, model: str, window: int) -> None:
        self.model = model
        self.window = window
        self.ran: dict[str, int] = {}
        """How often the tool of each step ran."""
        self.failed = 0
        self._over = 0
        self._before = ""
        self._starts: list[tuple[int, int, int]] = []
        self._fills: list[float] = []
        self._tokens: list[int] = []
        self._turns: list[int] = []
        self._rest: list[bool] = []
        self._shown: list[bool] = []

    def take(
        self,
        window: Window,
        question: str,
        *,
        room: int | None = None,
        beside: Sequence[str] = (),
        returned: Mapping[str, str] | None = None,
    ) -> None:
        """Measure a request.

        `question` is the text of the current turn, `room` that of its past: the window, if None,
        and 0 where it never fills. `beside` is what else must be shown, `returned` has the results
        of the calls just made, by their ids.
        """
        request = sent(self.model, window)
        self._starts.append((common(self._before, request), len(self._before), len(request)))
        self._before = request
        self._over += window.tokens > self.window
        self._tokens.append(window.tokens)
        now = question[:5]
        seen = set(_QUESTION.findall(request))
        self._turns.append(len(seen - {now}))
        self._rest.append(all(_start(text) in request for text in (question, *beside)))
        if room is None:
            self._fills.append(window.tokens / self.window)
        elif room:
            past = [m for m in window.messages if set(_PAST.findall(m.text)) - {now}]
            used = sum(size_of(message) for message in past)
            self._fills.append(min(1.0, used / room))
        for call, text in (returned or {}).items():
            needed = min(count(text), RESULT_SHARE * self.window)
            results = [m for m in window.messages if m.tool_call_id == call]
            self._shown.append(sum(map(size_of, results)) >= GOOD_VIEW * needed)

    def values(self) -> Values:
        """Return what was found, by column; None where there was nothing to measure."""
        first = int(FILLING * len(self._tokens))
        whole = sum(size for *_, size in self._starts)
        same = sum(begun for begun, *_ in self._starts)
        after = self._starts[1:]
        return {
            "requests": len(self._tokens),
            "fill": _mean(self._fills[first:]),
            "unchanged": _mean([begun / size for begun, _, size in after]),
            "kept": _mean([begun / before for begun, before, _ in after]),
            "cost": (READ * same + WRITE * (whole - same)) / whole if whole else None,
            "tokens": _mean(self._tokens[first:]),
            "turns": _mean(self._turns[first:]),
            "rest": _mean(self._rest),
            "shown": _mean(self._shown),
            "repeated": sum(self.ran.values()) - len(self.ran) if self.ran else None,
            "over": self._over,
            "failed": self.failed,
        }


def _start(text: str) -> str:
    return text[: int(NEARLY_ALL * len(text))]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


class Scripted:
    """A model that needs some results in each turn: it calls for the first that is not in view.

    It answers when the calls of all are in view; if it `reads`, when all results are.
    """

    def __init__(self, watch: Watch, *, reads: bool = False) -> None:
        self.watch = watch
        self.reads = reads
        self.answer = ""
        self.question = ""
        self.room: int | None = None
        self.beside: Sequence[str] = ()
        self.results: dict[str, str] = {}
        self.calls = 0
        self._returned: dict[str, str] = {}
        self.model = ScriptedModel(self._reply, name=watch.model)

    def begin(
        self,
        question: str,
        answer: str,
        *,
        room: int | None = None,
        beside: Sequence[str] = (),
        results: Mapping[str, str] | None = None,
    ) -> str:
        """Begin a turn, and return its question; `results` are those that it needs, by step."""
        self.question, self.answer, self.room = question, answer, room
        self.beside, self.results = beside, dict(results or {})
        self._returned = {}
        return question

    def look(self, step: str) -> str:
        """Look something up."""
        self.watch.ran[step] = self.watch.ran.get(step, 0) + 1
        self._returned = {f"call{self.calls}": self.results[step]}
        return self.results[step]

    def _reply(self, window: Window) -> Any:
        self.model.windows.clear()
        self.watch.take(
            window,
            self.question,
            room=self.room,
            beside=self.beside,
            returned=self._returned,
        )
        missing = [step for step in self.results if step not in self._known(window)]
        if not missing:
            return self.answer
        self.calls += 1
        return ToolCall(f"call{self.calls}", "look", json.dumps({"step": missing[0]}))

    def _known(self, window: Window) -> set[str]:
        """Return the steps that the model knows of, because it sees their call, or their result."""
        if self.reads:
            return {message.text[:5] for message in window.messages if message.role == "tool"}
        calls = [call for message in window.messages for call in message.tool_calls]
        return {json.loads(call.arguments).get("step", "") for call in calls}


# The loads.


SOURCE_BUDGET, CONTENTS, FOUND, TALK, ROOMY = 18_000, 3_000, 6_000, 9_000, 128_000
WAKES, WAKING, ANSWER = 70, 100, 400
STEPS, STEP = 6, 770
ALONE, FEW, NEEDS, SMALL = 15_000, 10, 3, 10


async def horton(model: str, *, steps: int) -> Values:
    """Wake an entity of three sources."""
    watch = Watch(model, ROOMY)
    player = Scripted(watch, reads=True)
    chance = random.Random(1)
    contents = words("contents", CONTENTS, chance)
    found = ""
    app = App("memory:", model=player.model, budget=ROOMY, tokenizer=TOKENIZER)

    async def handler(ctx: Any, wake: Any) -> None:
        sources = {
            "contents": Source(contents, max=CONTENTS, cache="stable"),
            "found": Source(lambda: found, max=FOUND, cache="volatile"),
            "conversation": Source(ctx.timeline_messages, max=TALK, cache="volatile"),
        }
        ctx.use_context(source_budget=SOURCE_BUDGET, sources=sources)
        ctx.use_agent(system_prompt="You are Horton.", tools=[player.look] if steps else [])
        await ctx.agent.run()

    app.entity("horton")(handler)
    async with app:
        for number in range(WAKES):
            found = words(f"found {number}", FOUND, chance)
            names = [f"s{steps * number + each:04}" for each in range(steps)]
            question = player.begin(
                words(f"t{number:04}", WAKING, chance),
                words(f"a{number:04}", ANSWER, chance),
                room=min(TALK, SOURCE_BUDGET - CONTENTS - FOUND - WAKING),
                beside=(contents, found),
                results={name: words(name, STEP, chance) for name in names},
            )
            try:
                await app.ask("horton/1", question)
            except MuntinError:
                watch.failed += 1
    return watch.values()


async def one_source(model: str) -> Values:
    """Wake an entity whose conversation may have all that its sources have."""
    watch = Watch(model, ROOMY)
    player = Scripted(watch, reads=True)
    chance = random.Random(5)
    app = App("memory:", model=player.model, budget=ROOMY, tokenizer=TOKENIZER)

    async def handler(ctx: Any, wake: Any) -> None:
        talk = Source(ctx.timeline_messages, max=ALONE, cache="volatile")
        ctx.use_context(source_budget=ALONE, sources={"conversation": talk})
        ctx.use_agent(tools=[player.look])
        await ctx.agent.run()

    app.entity("clerk")(handler)
    async with app:
        for number in range(FEW):
            names = [f"s{NEEDS * number + each:04}" for each in range(NEEDS)]
            question = player.begin(
                words(f"t{number:04}", WAKING, chance),
                words(f"a{number:04}", ANSWER, chance),
                room=0,
                results={name: words(name, SMALL, chance) for name in names},
            )
            try:
                await app.ask("clerk/1", question)
            except MuntinError:
                watch.failed += 1
    return watch.values()


CHAT, TURNS = 8_000, 150
ASKED, ANSWERED = (10, 40, 15, 120, 25, 60, 300), (60, 250, 120, 400, 30, 800, 180, 90, 350)


async def chat(model: str, *, recall: bool) -> Values:
    """Talk, with all defaults, or without recall."""
    watch = Watch(model, CHAT)
    player = Scripted(watch)
    chance = random.Random(2)
    async with App("memory:", model=player.model, budget=CHAT, tokenizer=TOKENIZER) as app:
        conversation = app.conversation("chat", recall=recall)
        for number in range(TURNS):
            question = words(f"t{number:04}", ASKED[number % len(ASKED)], chance)
            answer = words(f"a{number:04}", ANSWERED[number % len(ANSWERED)], chance)
            await conversation.send(player.begin(question, answer))
    return watch.values()


WINDOW, QUESTIONS, RULES, INPUT = 8_000, 100, 200, 40
LEAST, MOST, SWING = 0.1, 0.5, 50
REPLIES = (120, 200, 60, 320, 180)


class Rag:
    """The strategy of a talk about passages."""

    def __init__(self, rules: str, ceiling: float) -> None:
        self.rules = rules
        self.ceiling = ceiling
        self.passages = ""

    def on_context_build(self, ctx: Any) -> Window:
        """Compose the window of a turn."""
        ctx.slots.add("system", self.rules, role="system", priority=100)
        ctx.slots.add("history", ctx.history.recent(1_000), priority=10)
        ctx.slots.add("passages", self.passages, priority=50, max_ratio=self.ceiling)
        ctx.slots.add("input", ctx.input)
        window: Window = ctx.slots.render()
        return window


def random_share(number: int, chance: random.Random) -> float:
    """Return how much of the window the passages of a turn have, at random."""
    return chance.uniform(LEAST, MOST)


def slow_share(number: int, chance: random.Random) -> float:
    """Return how much of the window the passages of a turn have, rising and falling slowly."""
    return (LEAST + MOST) / 2 + (MOST - LEAST) / 2 * math.sin(2 * math.pi * number / SWING)


Share = Callable[[int, random.Random], float]


async def rag(model: str, *, ceiling: float, share: Share) -> Values:
    """Talk about passages that change with each question."""
    watch = Watch(model, WINDOW)
    player = Scripted(watch)
    chance = random.Random(3)
    strategy = Rag(words("rules", RULES, chance), ceiling)
    async with App("memory:", model=player.model, budget=WINDOW, tokenizer=TOKENIZER) as app:
        conversation = app.conversation("rag", strategy=strategy)
        for number in range(QUESTIONS):
            size = int(share(number, chance) * WINDOW)
            strategy.passages = words(f"passages {number}", size, chance)
            question = player.begin(
                words(f"t{number:04}", INPUT, chance),
                words(f"a{number:04}", REPLIES[number % len(REPLIES)], chance),
                room=WINDOW - RULES - size - INPUT,
                beside=(strategy.rules, strategy.passages),
            )
            await conversation.send(question)
    return watch.values()


NEEDED = 80
KILOBYTES = (0.2, 2, 0.8, 5, 1.2, 12, 3, 0.5, 8, 20)


async def agent(model: str, *, budget: int, turns: int) -> Values:
    """Run an agent that needs many results, in one turn or in several."""
    watch = Watch(model, budget)
    player = Scripted(watch)
    chance = random.Random(4)
    each = NEEDED // turns
    async with App("memory:", model=player.model, budget=budget, tokenizer=TOKENIZER) as app:
        conversation = app.conversation("agent", tools=[player.look], max_steps=2 * NEEDED)
        for number in range(turns):
            results = {}
            for step in range(each * number, each * (number + 1)):
                size = int(1_000 * KILOBYTES[step % len(KILOBYTES)] / CHARACTERS)
                results[f"s{step:04}"] = words(f"s{step:04}", size, chance)
            question = words(f"t{number:04}", 60, chance)
            answer = words(f"a{number:04}", 200, chance)
            try:
                await conversation.send(player.begin(question, answer, results=results))
            except MuntinError:
                watch.failed += 1
    return watch.values()


RECORDED = 1_000


def airline(model: str, *, budget: int) -> Values:
    """Fit recorded conversations before each answer."""
    watch = Watch(model, budget)
    messages: list[dict[str, Any]] = []
    returned: dict[str, str] = {}
    question, previous, number = "", None, 0
    for given in history(RECORDED, "recorded"):
        message = dict(given)
        if message["role"] == "user":
            question = message["content"] = f"t{number:04} {message['content']}"
            number += 1
        if message["role"] == "assistant":
            fitted = fit(messages, budget, model=model, tokenizer=TOKENIZER, previous=previous)
            previous = fitted.frontier
            asked = json.dumps(question)[1:-1]
            watch.take(fitted.window, asked, returned=returned)
            returned = {}
        if message["role"] == "tool":
            returned[message["tool_call_id"]] = message["content"]
        messages.append(message)
    return watch.values()


def _run(load: Callable[..., Any], model: str) -> Values:
    values: Values = asyncio.run(load(model))
    return values


LOADS: Mapping[str, Callable[[str], Values]] = {
    "horton": partial(_run, partial(horton, steps=0)),
    "horton, tools": partial(_run, partial(horton, steps=STEPS)),
    "one source": partial(_run, one_source),
    "chat": partial(_run, partial(chat, recall=False)),
    "chat, recall": partial(_run, partial(chat, recall=True)),
    "rag": partial(_run, partial(rag, ceiling=1.0, share=random_share)),
    "rag, ceiling": partial(_run, partial(rag, ceiling=MOST, share=random_share)),
    "rag, slow": partial(_run, partial(rag, ceiling=MOST, share=slow_share)),
    "agent, 16k": partial(_run, partial(agent, budget=16_000, turns=1)),
    "agent, 32k": partial(_run, partial(agent, budget=32_000, turns=1)),
    "agent, turns, 16k": partial(_run, partial(agent, budget=16_000, turns=20)),
    "agent, turns, 32k": partial(_run, partial(agent, budget=32_000, turns=20)),
    "airline, 8k": partial(airline, budget=8_000),
    "airline, 16k": partial(airline, budget=16_000),
}


# The program.


def measured(names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Values]]:
    """Run the loads for every model."""
    for name in names:
        for model in MODELS:
            yield (name, model), LOADS[name](model)


def options() -> argparse.ArgumentParser:
    """Return what can be asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.planner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--only", nargs="+", choices=list(LOADS), default=list(LOADS), metavar="LOAD"
    )
    parser.add_argument("--beside", type=Path, metavar="PATH", help="another source tree")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and tell what was found."""
    given = options().parse_args(arguments)
    asked = ["--only", *given.only]
    other = Other("bench.planner", asked, given.beside) if given.beside else None
    found = dict(measured(given.only))
    print(told(COLUMNS, ("load", "model"), found, other, as_json=given.json))


if __name__ == "__main__":
    main()
