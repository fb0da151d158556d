"""Fitting a history into a budget, side by side with LangChain's and LiteLLM's trimmers.

    python bench/compose.py [--short] [--out FILE]

All contestants do the same work with the same exact tokenizer, on messages built beforehand, in
turns in one run, and what is measured is processor time, so that the ratios hold on a busy machine
too. Muntin is measured beside the peers that are installed, and where none is, beside itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.conversations import Dict, exchanges, history
from bench.measure import Figure, in_turns, run
from muntin import Message, Slots, Window, fit, messages_from
from muntin.core.counting.exact import ExactTokenizer, openai_tokenizer

SMALL, LARGE = 8_000, 128_000
SIZES = (100, 1_000, 10_000, 100_000)
# LiteLLM counts all it has kept again for every message it keeps: beyond this, minutes a call.
LITELLM_MOST = {SMALL: 100_000, LARGE: 1_000}
CACHED = "LangChain, counts cached by the user"
# The aims, by work and peer, for 10,000 messages as agents have them into 8,000 tokens.
AIMS = {
    ("first call", "LangChain"): 1 / 300,
    ("first call", "LiteLLM"): 1 / 300,
    ("next turn", "LangChain"): 1 / 3_000,
}


# The contestants.


class Plain:
    """The exact tokenizer as a new object, which no memo knows."""

    def __init__(self, exact: ExactTokenizer) -> None:
        self.name = exact.name
        self.message_overhead = exact.message_overhead
        self.count = exact.count


class Recording(Plain):
    """The exact tokenizer, remembering the texts it is asked to count."""

    def __init__(self, exact: ExactTokenizer) -> None:
        super().__init__(exact)
        self.asked: list[str] = []
        self.count = self._count
        self._exact = exact

    def _count(self, text: str) -> int:
        self.asked.append(text)
        return self._exact.count(text)


@dataclass(frozen=True)
class Contestant:
    """Something that trims: how its messages are built, and how they are trimmed.

    `trim` returns how many messages it kept; `remembers` says whether a second call can be faster.
    """

    name: str
    build: Callable[[Dict], Any]
    trim: Callable[[list[Any], int], int]
    remembers: bool = False


def compose(messages: Sequence[Message], budget: int, tokenizer: Plain) -> Window:
    """Fit messages into a budget with Muntin."""
    slots = Slots(budget, tokenizer=tokenizer)
    slots.add("history", messages)
    return slots.render()


def muntin(exact: ExactTokenizer, *, remembers: bool) -> Contestant:
    """Return Muntin; unless it `remembers`, every call gets a tokenizer that no memo knows."""
    known = Plain(exact)

    def trim(messages: list[Any], budget: int) -> int:
        return len(compose(messages, budget, known if remembers else Plain(exact)).messages)

    return Contestant("Muntin", Message.from_dict, trim, remembers)


def langchain(exact: ExactTokenizer) -> list[Contestant]:
    """Return LangChain's trimmer with the forms of counter its documentation offers.

    The last one remembers counts in a cache of the user's, which LangChain does not.
    """
    lc = import_module("langchain_core.messages")

    def build(message: Dict) -> Any:
        match message["role"]:
            case "system":
                return lc.SystemMessage(message["content"])
            case "user":
                return lc.HumanMessage(message["content"])
            case "tool":
                return lc.ToolMessage(message["content"], tool_call_id=message["tool_call_id"])
        calls = [
            {"id": call["id"], "name": call["function"]["name"], "args": json.loads(arguments)}
            for call in message.get("tool_calls", ())
            if (arguments := call["function"]["arguments"])
        ]
        return lc.AIMessage(message["content"], tool_calls=calls)

    def counter(size: Callable[[str], int]) -> Callable[[Any], int]:
        def count_one(message: Any) -> int:
            tokens = exact.message_overhead + size(message.content)
            if message.type == "ai":
                for call in message.tool_calls:
                    tokens += size(call["name"]) + size(json.dumps(call["args"]))
            return tokens

        # LangChain tells the two forms apart by this annotation.
        count_one.__annotations__["message"] = lc.BaseMessage
        return count_one

    def trimmer(name: str, token_counter: Callable[[Any], int], cached: bool = False) -> Contestant:
        def trim(messages: list[Any], budget: int) -> int:
            trimmed = lc.trim_messages(
                messages,
                max_tokens=budget,
                token_counter=token_counter,
                strategy="last",
                include_system=True,
            )
            return len(trimmed)

        return Contestant(name, build, trim, cached)

    one = counter(exact.count)
    return [
        trimmer("LangChain, counter of a message", one),
        trimmer("LangChain, counter of a list", lambda messages: sum(map(one, messages))),
        trimmer(CACHED, counter(lru_cache(maxsize=None)(exact.count)), cached=True),
    ]


def litellm(exact: ExactTokenizer) -> list[Contestant]:
    """Return LiteLLM's trimmer; it has no parameter for a tokenizer, so its own is replaced."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import downloads
    utils = import_module("litellm.utils")
    inner: Any = import_module("litellm.litellm_core_utils.token_counter")
    inner._get_exact_count_function = lambda model, custom_tokenizer=None: exact.count

    def call(messages: list[Any], budget: int) -> int:
        return len(utils.trim_messages(messages, "gpt-4o", trim_ratio=1, max_tokens=budget))

    # With 4 to 10 tokens left it goes on through the whole history, counting all it has kept for
    # every message: it gets the luckiest of a few budgets, where it does not.
    def seconds(budget: int) -> float:
        start = process_time()
        call(history(300), budget)
        return process_time() - start

    lucky = {most: min(range(most, most - 50, -10), key=seconds) for most in (SMALL, LARGE)}

    def trim(messages: list[Any], budget: int) -> int:
        return call(messages, lucky.get(budget, budget))

    return [Contestant("LiteLLM", dict, trim)]


def peers(exact: ExactTokenizer) -> list[Contestant]:
    """Return the peers that are installed."""
    contestants: list[Contestant] = []
    for name, make in (("langchain_core", langchain), ("litellm", litellm)):
        if find_spec(name):
            contestants += make(exact)
    for peer in contestants:  # what is loaded on first use is not timed
        peer.trim([peer.build(message) for message in history(10)], 2_000)
    return contestants


# The jobs. Each trims, and returns how many messages it kept.


Job = Callable[[], int]


def first_call(who: Contestant, given: Sequence[Dict], budget: int) -> Job:
    """Return the job of trimming messages that were built beforehand."""
    messages = [who.build(message) for message in given]
    return lambda: who.trim(messages, budget)


def next_turn(
    who: Contestant, given: Sequence[Dict], budget: int, times: int, traffic: str = "agent"
) -> Job:
    """Return the job of trimming again with one more exchange, a new one each of so many times."""
    messages = [who.build(message) for message in given]
    turns = islice(exchanges(traffic), times)
    new = [[who.build(message) for message in turn] for turn in turns]
    new.reverse()  # all contestants begin with the same
    if who.remembers:
        who.trim(messages, budget)

    def trim() -> int:
        messages[len(given) :] = new.pop()
        return who.trim(messages, budget)

    return trim


def compare(
    work: str,
    own: tuple[Job, int],
    other_jobs: dict[str, tuple[Job, int]],
    most: Callable[[str], float | None] = lambda peer: None,
) -> Iterator[Figure]:
    """Run Muntin's job and the others in turns, each so many times."""
    print(f"{work} ...", file=sys.stderr)
    jobs = {"": own, **other_jobs}
    taken = in_turns(
        {name: job for name, (job, _) in jobs.items()},
        {name: times for name, (_, times) in jobs.items()},
        clock=process_time,
    )
    ours = taken.pop("")
    for peer, theirs in taken.items():
        yield Figure(
            work=work,
            peer=peer,
            ours=ours.seconds,
            theirs=theirs.seconds,
            at_most=most(peer),
            note=f"messages kept: {theirs.result} and {ours.result}",
        )


def trimming(
    rivals: Sequence[Contestant], size: int, budget: int, repeats: int, traffic: str = "agent"
) -> Iterator[Figure]:
    """Compare first calls, and at one size next turns, with the peers."""
    exact = openai_tokenizer("o200k_base")
    given = history(size, traffic)
    rivals = [peer for peer in rivals if peer.name != "LiteLLM" or size <= LITELLM_MOST[budget]]
    what = f"{size:,} messages ({traffic}) into {budget:,}"

    def most(work: str, peer: str) -> float | None:
        aimed = (size, budget, traffic) == (10_000, SMALL, "agent") and peer != CACHED
        return AIMS.get((work, peer.partition(",")[0])) if aimed else None

    own = muntin(exact, remembers=False)
    # On a first call a cache has nothing to remember.
    first = {
        peer.name: (first_call(peer, given, budget), repeats)
        for peer in rivals
        if not peer.remembers
    }
    if first:
        job = (first_call(own, given, budget), 5 * repeats)
        yield from compare(f"first call: {what}", job, first, partial(most, "first call"))
    # LiteLLM has nothing to remember: its next turn is its first call.
    turns = {
        peer.name: (next_turn(peer, given, budget, repeats, traffic), repeats)
        for peer in rivals
        if peer.name != "LiteLLM"
    }
    if turns and size == 10_000:
        own = muntin(exact, remembers=True)
        job = (next_turn(own, given, budget, 20 * repeats, traffic), 20 * repeats)
        yield from compare(f"next turn: {what}", job, turns, partial(most, "next turn"))


def ourselves(small: int, large: int, budget: int, repeats: int) -> Iterator[Figure]:
    """Compare Muntin with itself: ten times the history, and the next turn with the first."""
    exact = openai_tokenizer("o200k_base")
    fresh = muntin(exact, remembers=False)
    few, many = (first_call(fresh, history(size), budget) for size in (small, large))
    aimed = budget == SMALL
    yield from compare(
        f"first call: {large:,} messages (agent) into {budget:,}",
        (many, repeats),
        {f"Muntin, {small:,} messages": (few, repeats)},
        lambda peer: 1.3 if aimed else None,
    )
    turn = next_turn(muntin(exact, remembers=True), history(small), budget, 10 * repeats)
    yield from compare(
        f"next turn: {small:,} messages (agent) into {budget:,}",
        (turn, 10 * repeats),
        {"Muntin, first call": (few, repeats)},
        lambda peer: 0.1 if aimed else None,
    )


def planning(repeats: int, size: int) -> Iterator[Figure]:
    """Compare planning a window of `size` messages, all counts known, with counting it once."""
    exact = openai_tokenizer("o200k_base")
    messages = [Message.from_dict(message) for message in history(10 * size)]
    window = [messages[0], *messages[1 - size :]]
    known = Plain(exact)
    budget = compose(window, LARGE * size, known).tokens
    texts = [text for message in window for text in texts_of(message)]

    def count() -> int:
        return len(window) if sum(map(exact.count, texts)) else 0

    def plan() -> int:
        return len(compose(messages, budget, known).messages)

    plan()
    yield from compare(
        f"planning a window of {size:,} messages, all counts known",
        (plan, 5 * repeats),
        {"tiktoken, counting it once": (count, repeats)},
        lambda peer: 0.1,
    )


def fitting(size: int, repeats: int) -> Iterator[Figure]:
    """Compare `fit` of a long list of dicts, its next request, with reading all of it."""
    many, few = history(size), history(size // 100)

    def next_request(messages: list[Dict]) -> Job:
        before = fit(messages, SMALL, model="openai/gpt-4o", previous={}).frontier
        return lambda: len(fit(messages, SMALL, model="openai/gpt-4o", previous=before).kept)

    yield from compare(
        f"fit, next request: {size:,} messages (agent) into {SMALL:,}",
        (next_request(many), 4 * repeats),
        {
            "reading all of them": (lambda: len(messages_from(many)), repeats),
            f"Muntin, {size // 100:,} messages": (next_request(few), 4 * repeats),
        },
        lambda peer: 0.1 if peer == "reading all of them" else 2.0,
    )


IMPORT = "import time; t = time.process_time(); import {}; print(time.process_time() - t)"


def importing(repeats: int) -> Iterator[Figure]:
    """Compare the time to import, each in a new process, in turns."""
    aims = {"langchain_core.messages": 0.2, "litellm": None}
    found = ["muntin", *(name for name in aims if find_spec(name.partition(".")[0]))]
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for _, name in product(range(repeats), found):
        command = [sys.executable, "-c", IMPORT.format(name)]
        done = subprocess.run(command, capture_output=True, check=True)
        seconds[name].append(float(done.stdout.split()[-1]))
    for name in found[1:]:
        yield Figure(
            work="import muntin",
            peer=f"import {name}",
            ours=median(seconds["muntin"]),
            theirs=median(seconds[name]),
            at_most=aims[name],
        )


# What is tokenised.


def texts_of(message: Message) -> list[str]:
    """Return the texts of a message that are counted."""
    calls = [text for call in message.tool_calls for text in (call.name, call.arguments)]
    return [message.text, *calls]


@dataclass(frozen=True)
class Asked:
    """What the tokenizer was asked; `needless` are texts it need not have seen."""

    texts: int
    characters: int
    needless: int


def asked(size: int, budget: int) -> tuple[Asked, Asked]:
    """Record what a first call and the next turn have tokenised."""
    tokenizer = Recording(openai_tokenizer("o200k_base"))
    messages = [Message.from_dict(message) for message in history(size)]
    new = [Message.from_dict(message) for message in next(exchanges())]

    def record(given: Sequence[Message], needed: Callable[[Window], Sequence[Message]]) -> Asked:
        tokenizer.asked.clear()
        window = compose(given, budget, tokenizer)
        wanted = {text for message in needed(window) for text in texts_of(message)}
        found = tokenizer.asked
        needless = sum(text not in wanted for text in found)
        return Asked(len(found), sum(map(len, found)), needless)

    cold = record(messages, lambda window: window.messages)
    return cold, record(messages + new, lambda window: new)


def tokenised(size: int, budget: int) -> Iterator[Figure]:
    """State what is tokenised beside what must be."""
    cold, turn = asked(size, budget)
    what = f"{size:,} messages (agent) into {budget:,}"
    # The group that no longer fits is counted to know that: a call's name, arguments, result.
    yield Figure(
        work=f"first call: {what}: texts tokenised that are not shown",
        peer="one group that no longer fits",
        ours=cold.needless,
        theirs=3,
        unit="texts",
        at_most=1,
    )
    yield Figure(
        work=f"next turn: {what}: texts tokenised",
        peer="texts that are new",
        ours=turn.texts,
        theirs=turn.texts - turn.needless,
        unit="texts",
        at_most=1,
    )


def measure(short: bool) -> Iterator[Figure]:
    """Measure beside the peers that are installed, or beside Muntin itself."""
    exact = openai_tokenizer("o200k_base")
    exact.count("loaded before anything is timed")
    repeats, budgets = (1, (SMALL,)) if short else (5, (SMALL, LARGE))
    largest = 10_000 if short else 100_000
    rivals = peers(exact)
    if rivals:
        for size, budget in product((size for size in SIZES if size <= largest), budgets):
            yield from trimming(rivals, size, budget, repeats)
        for budget in budgets:
            yield from trimming(rivals, 10_000, budget, repeats, "recorded")
        yield from importing(3 * repeats)
        return
    for budget in budgets:
        yield from ourselves(largest // 10, largest, budget, 4 * repeats)
        yield from tokenised(largest, budget)
    yield from planning(4 * repeats, largest // 100)
    yield from fitting(40_000, repeats)


if __name__ == "__main__":
    run(__doc__, measure)
