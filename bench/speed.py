"""What planning costs beside another source tree: processor time, both trees by turns.

    python -m bench.speed --beside PATH [--rounds N] [--only WORK ...]

Each tree has a process of its own, which times one work when it is asked to. They are asked by
turns, so that a busy machine slows both. The table has the least time of each work over all
rounds, and this tree's time over the other's. Only the public interface of 0.2 is used. All counts
are known before anything is timed, except those of wakes.

The works:

- **exact**, **stepped, first**, **stepped, next**: a window of 8,000 tokens of a system text, a
  history of 400 messages, passages of 1,500 tokens and an input, without and with a window before.
- **agent, first**, **agent, next**: the same system text and input, 20 turns and a run of 30 calls,
  with a ladder, in 16,000 tokens.
- **run of 200**: a step of a run of 200 groups, most of them stubs, in 12,000 tokens.
- **100 known**: 100 messages that fit.
- **fit of 22**, **fit of 62**: a list of dicts, fitted into 4,000 tokens with a frontier.
- **wake**, **wake, sources**, **wake, tools**: an entity that answers; with three sources; and with
  two tool steps. Each is the mean of 20 wakes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from bench.beside import ROOT
from muntin import (
    App,
    Exact,
    Ladder,
    Message,
    Slots,
    Source,
    Stepped,
    ToolCall,
    Window,
    assistant,
    fit,
    tool,
    user,
)
from muntin.testing import ScriptedModel

MODEL = "anthropic/claude-sonnet-4-5"
TOKENIZER = "chars/4"
WORDS = "the window shows what was said of the order and of its parts "
# A work that is quicker is repeated until it takes so long.
LEAST_SECONDS = 0.02
WAKES = 20

Work = Callable[[], float]


def talk(turns: int) -> list[Message]:
    """Return questions and answers of some 70 tokens."""
    messages = []
    for number in range(turns):
        messages.append(user(f"{number}? " + WORDS * (1 + number % 3)))
        messages.append(assistant(f"{number}! " + WORDS * (3 + number % 5)))
    return messages


def calls(groups: int) -> list[Message]:
    """Return the run of an agent: results of 400 to 8,000 characters."""
    run: list[Message] = []
    for number in range(groups):
        call = ToolCall(f"c{number}", "look", f'{{"n":{number}}}')
        run += [
            assistant(tool_calls=[call]),
            tool(call.id, f"line {number}\n" * (60, 200, 900)[number % 3]),
        ]
    return run


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that a work takes, without Python's collector of cycles."""
    gc.collect()
    gc.disable()
    times, start = 0, process_time()
    while (taken := process_time() - start) < LEAST_SECONDS:
        work()
        times += 1
    gc.enable()
    return taken / times


def windows() -> Iterator[tuple[str, Work]]:
    """Yield the works that compose a window from slots."""
    past, passages = talk(200), "p " * 3_000

    def plain(messages: Sequence[Message], trimming: Any, before: Window | None = None) -> Window:
        slots = Slots(8_000, tokenizer=TOKENIZER, profile=MODEL, trimming=trimming, previous=before)
        slots.add("system", "You answer questions. " * 20, priority=100)
        slots.add("history", messages, priority=10)
        slots.add("passages", passages, priority=50)
        slots.add("input", "Where is it?")
        return slots.render()

    earlier = plain(past[:-2], Stepped())
    yield "exact", lambda: timed(lambda: plain(past, Exact()))
    yield "stepped, first", lambda: timed(lambda: plain(past, Stepped()))
    yield "stepped, next", lambda: timed(lambda: plain(past, Stepped(), earlier))

    def agent(
        history: Sequence[Message],
        run: Sequence[Message],
        budget: int,
        before: Window | None = None,
    ) -> Window:
        slots = Slots(
            budget,
            tokenizer=TOKENIZER,
            profile=MODEL,
            trimming=Stepped(),
            previous=before,
            ladder=Ladder(),
        )
        slots.add("system", "You answer questions. " * 20, priority=100)
        slots.add("history", history, priority=10)
        slots.add("input", "Look through the files.")
        slots.add("run", run, priority=90)
        return slots.render()

    history, run, long = talk(20), calls(30), calls(200)
    before = agent(history, run[:-2], 16_000)
    longer = agent((), long[:-2], 12_000)
    yield "agent, first", lambda: timed(lambda: agent(history, run, 16_000))
    yield "agent, next", lambda: timed(lambda: agent(history, run, 16_000, before))
    yield "run of 200", lambda: timed(lambda: agent((), long, 12_000, longer))
    few = talk(50)
    yield "100 known", lambda: timed(lambda: plain(few, Exact()))


def fits() -> Iterator[tuple[str, Work]]:
    """Yield the works that fit a list of dicts."""
    for groups in (10, 30):
        listed = [user("Look through the files."), *calls(groups)]
        messages = [message.to_dict() for message in [Message("system", "You answer."), *listed]]
        before = fit(messages[:-2], 4_000, model=MODEL, previous={}).frontier

        def again(given: Any = messages, before: Any = before) -> Any:
            return fit(given, 4_000, model=MODEL, previous=before)

        yield f"fit of {len(messages)}", partial(timed, again)


def wakes() -> Iterator[tuple[str, Work]]:
    """Yield the works that wake an entity."""
    yield "wake", lambda: asyncio.run(_wake(False, 0))
    yield "wake, sources", lambda: asyncio.run(_wake(True, 0))
    yield "wake, tools", lambda: asyncio.run(_wake(False, 2))


def look(n: int) -> str:
    """Look something up."""
    return WORDS * 10


async def _wake(has_sources: bool, steps: int) -> float:
    def reply(window: Window) -> Any:
        done = 0
        for message in reversed(window.messages):
            if message.role == "user":
                break
            done += message.role == "tool"
        if done < steps:
            return ToolCall(f"c{len(model.windows)}", "look", f'{{"n":{done}}}')
        return "It is there. " + WORDS

    model = ScriptedModel(reply, name=MODEL)
    app = App("memory:", model=model, budget=4_000, tokenizer=TOKENIZER)

    async def handler(ctx: Any, wake: Any) -> None:
        if has_sources:
            sources = {
                "contents": Source("contents " * 100, max=400, cache="stable"),
                "found": Source(lambda: "found " * 200, max=500, cache="volatile"),
                "conversation": Source(ctx.timeline_messages, max=1_500, cache="volatile"),
            }
            ctx.use_context(source_budget=3_000, sources=sources)
        ctx.use_agent(system_prompt="You answer.", tools=[look] if steps else [])
        await ctx.agent.run()

    app.entity("clerk")(handler)
    async with app:
        for number in range(3):
            await app.ask("clerk/1", f"{number}? {WORDS}")
        gc.collect()
        gc.disable()
        start = process_time()
        for number in range(WAKES):
            await app.ask("clerk/1", f"{number}? {WORDS}")
        taken = process_time() - start
        gc.enable()
    return taken / WAKES


def works() -> dict[str, Work]:
    """Return all works, by name."""
    return {**dict(windows()), **dict(fits()), **dict(wakes())}


def serve() -> None:
    """Time the works that are asked for, one in each line, until nothing more is asked."""
    known = works()
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        print(known[line.strip()](), flush=True)


class Tree:
    """A process that times works with the Muntin of a source tree."""

    def __init__(self, source: Path) -> None:
        if not (source / "muntin").is_dir():
            raise SystemExit(f"there is no Muntin in {source}")
        paths = os.pathsep.join((str(source), str(ROOT)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.speed", "--serve"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.names: list[str] = json.loads(self._read())

    def seconds(self, work: str) -> float:
        """Time a work once."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the benchmark of a tree failed")
        return line


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.speed")
    parser.add_argument("--beside", type=Path, help="the source tree to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="works whose names begin so")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve()
        return
    if asked.beside is None:
        parser.error("--beside PATH is needed")
    trees = Tree(asked.beside.resolve() / "src"), Tree(ROOT / "src")
    prefixes = tuple(asked.only or ("",))
    names = [name for name in trees[1].names if name.startswith(prefixes)]
    least = {(name, tree): float("inf") for name in names for tree in trees}
    for _ in range(asked.rounds):
        for name, tree in least:
            least[name, tree] = min(least[name, tree], tree.seconds(name))
    print(f"{'work':16}{'other, ms':>12}{'here, ms':>12}{'here / other':>14}")
    for name in names:
        other, here = (1_000 * least[name, tree] for tree in trees)
        print(f"{name:16}{other:12.3f}{here:12.3f}{here / other:14.2f}")
    for tree in trees:
        tree.close()


if __name__ == "__main__":
    main()
