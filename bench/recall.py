"""Recall: how often the evidence of a question is in a small window, and what a question costs.

    python bench/recall.py [--short] [--out FILE]

The harness takes any `select(messages, question, tokens)` that returns the text of a window.
Needles: a message of a recorded tool conversation names an identifier that only an earlier tool
result holds, and some two hundred turns of other conversations lie between them. Talks: the same
facts in four languages, among small talk. Then the index: how a question, an append and memory
grow with the number of messages. Beside it stand the newest turns that fit, which is what trimming
keeps, and BM25 over turns.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import tempfile
from collections import Counter as Bag
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import Figure, amount, exponents, memory, run
from bench.talks import TALKS, Talk
from muntin import History, Message, Session, messages_from, user
from muntin.core.counting import Counter
from muntin.timeline.items import draft_of
from muntin.timeline.recall.index import Index
from muntin.timeline.recall.packing import pack
from muntin.timeline.recall.ranking import rank, understand
from muntin.timeline.recall.related import table
from muntin.timeline.recall.words import terms
from muntin.timeline.store import open_store

TRACES = Path(__file__).parent.parent / "tests" / "data" / "airline-traces.jsonl"
IDENTIFIER = re.compile(r"\b(?:[A-Z0-9]{6}|HAT\d{3}|[a-z]+_[a-z]+_\d{4})\b")
TOKENS, TURNS = 1_500, 200
TALK_TOKENS, TALK_TURNS = 300, 400
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SHORT_SIZES = (500, 1_000, 2_000)
# A question with so many messages takes this long at most, at the median and at the 95th of 100.
WARM, SLOWEST = 0.005, 0.010
COUNTER = Counter.of(None)

Select: TypeAlias = Callable[[Sequence[Message], str, int], str]


# What is compared.


def recalled(messages: Sequence[Message], question: str, tokens: int) -> str:
    """Muntin's recall."""
    return History(messages, counter=COUNTER).relevant(question, tokens=tokens)


def newest(messages: Sequence[Message], question: str, tokens: int) -> str:
    """What trimming keeps: the newest messages that fit."""
    kept: list[str] = []
    for message in reversed(messages):
        tokens -= COUNTER.message(message)
        if tokens < 0:
            break
        kept.append(message.text)
    return "\n".join(kept)


def bm25(messages: Sequence[Message], question: str, tokens: int) -> str:
    """BM25 over whole messages, with the same words; the best that fit."""
    bags = [Bag(terms(message.text)) for message in messages]
    known = Bag(term for bag in bags for term in bag)
    mean = sum(bag.total() for bag in bags) / len(bags)
    scores = []
    for number, bag in enumerate(bags):
        long = 1.2 * (0.25 + 0.75 * bag.total() / mean)
        score = sum(
            math.log((len(bags) - known[term] + 0.5) / (known[term] + 0.5) + 1)
            * bag[term]
            * 2.2
            / (bag[term] + long)
            for term in set(terms(question))
        )
        scores.append((-score, -number))
    kept: list[str] = []
    for score, number in sorted(scores):
        cost = COUNTER.message(messages[-number])
        if score < 0 and cost <= tokens:
            kept.append(messages[-number].text)
            tokens -= cost
    return "\n".join(kept)


PEERS: dict[str, Select] = {"the newest that fit": newest, "BM25 over messages": bm25}


# Questions with their evidence.


class Case(NamedTuple):
    """A conversation, a question, and what a window must hold to answer it."""

    messages: Sequence[Message]
    question: str
    evidence: str


def needles(turns: int, most: int | None = None) -> Iterator[Case]:
    """Yield identifiers that a user names long after the tool result that holds them."""
    traces = [json.loads(line)["messages"] for line in TRACES.read_text("utf-8").splitlines()]
    talks = [messages_from([m for m in each if m["role"] != "system"]) for each in traces]
    cases = 0
    for number, talk in enumerate(talks):
        seen: dict[str, int] = {}
        for place, message in enumerate(talk):
            found = [each for each in IDENTIFIER.findall(message.text) if _has_digit(each)]
            if message.role == "user":
                for each in dict.fromkeys(found):
                    if each in seen and (most is None or cases < most):
                        cases += 1
                        between = _between(talks, number, place, turns)
                        # Between quotes, as results have it: to name it is no evidence.
                        yield Case(between, message.text, f'"{each}"')
            elif message.role == "tool":
                seen.update(dict.fromkeys(found, place))


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _between(
    talks: Sequence[Sequence[Message]], number: int, place: int, turns: int
) -> list[Message]:
    """Return a conversation up to a place, then turns of the others."""
    others = [talks[(number + step) % len(talks)] for step in range(1, len(talks))]
    rest: list[Message] = []
    for message in (each for talk in others for each in talk):
        turns -= message.role == "user"
        if turns < 0:
            break
        rest.append(message)
    return [*talks[number][:place], *rest]


def facts(talk: Talk, turns: int) -> Iterator[Case]:
    """Yield the facts of a talk among so many turns of small talk."""
    chance = random.Random(7)
    small = [user(talk.small[n % len(talk.small)].format(n)) for n in range(turns)]
    places = sorted(chance.sample(range(turns * 3 // 4), len(talk.facts)))
    messages = [*small]
    for place, (fact, _) in reversed(list(zip(places, talk.facts, strict=True))):
        messages.insert(place, user(fact))
    for fact, question in talk.facts:
        yield Case(messages, question, fact)


def share(cases: Sequence[Case], select: Select, tokens: int) -> float:
    """Return the share of questions whose evidence is in the window."""
    found = 0
    for case in cases:
        text = select(case.messages, case.question, tokens)
        found += " ".join(case.evidence.split()) in " ".join(text.split())
    return found / len(cases)


def evidence(short: bool) -> Iterator[Figure]:
    """Measure how often the evidence is there, beside what others keep."""
    cases = list(needles(60 if short else TURNS, 8 if short else None))
    ours = share(cases, recalled, TOKENS)
    work = f"needles found in {TOKENS:,} tokens, {len(cases)} questions"
    yield Figure(work=work, peer="all of them", ours=ours, theirs=1, unit="share", at_least=0.97)
    for name, select in PEERS.items():
        theirs = max(share(cases, select, TOKENS), 0.001)
        yield Figure(work=work, peer=name, ours=ours, theirs=theirs, unit="share", at_least=1.0)
    shares: dict[str, float] = {}
    for talk in TALKS:
        told = list(facts(talk, 60 if short else TALK_TURNS))
        shares[talk.language] = share(told, recalled, TALK_TOKENS)
        yield Figure(
            work=f"facts found in {TALK_TOKENS} tokens, {talk.language}",
            peer="English",
            ours=shares[talk.language],
            theirs=shares["English"],
            unit="share",
            at_least=0.85,
        )


# What it costs.


class Chatter:
    """Messages of frequent words, as often as words are in a language."""

    def __init__(self) -> None:
        self._chance = random.Random(1)
        data = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
        known = sorted(set(re.findall(r"[a-z]{2,}", data.casefold())))
        self.words = [*known, *(f"{a}{b}" for a in known[:80] for b in known[:150])]
        self._weights = list(accumulate(1 / (n + 30) for n in range(len(self.words))))

    def text(self) -> str:
        """Return a message."""
        count = self._chance.randint(4, 24)
        return " ".join(self._chance.choices(self.words, cum_weights=self._weights, k=count))

    def question(self) -> str:
        """Return a question."""
        return "what was said about " + " ".join(self._chance.sample(self.words[:3_000], 5))


def growth(sizes: Sequence[int]) -> Iterator[Figure]:
    """Measure questions, appends and memory at ever more messages."""
    chatter, index, asked = Chatter(), Index(), 60
    ask_points, add_points = [], []
    for size in sizes:
        before, start = len(index), perf_counter()
        while len(index) < size:
            index.add(chatter.text())
        add_points.append((size, (perf_counter() - start) / (size - before)))
        taken = sorted(_asked(index, chatter.question()) for _ in range(asked))
        ask_points.append((size, median(taken)))
        if size == 100_000:
            yield _bound("a question, 100,000 messages, warm", median(taken), WARM)
            yield _bound(
                "a question, 100,000 messages, 95th of 100", taken[int(0.95 * asked)], SLOWEST
            )
        if size == 1_000_000:
            yield _bound("a question, 1,000,000 messages, warm", median(taken), 0.050)
    yield _grown("a question", ask_points, 1.15, "s")
    yield _grown("adding a message", add_points, 0.15, "s")
    yield from _sizes(index, chatter, min(sizes[-1], 32_768))


def _asked(index: Index, question: str) -> float:
    """Return the seconds of a question whose words were looked up before."""
    understand(index, question, table())
    start = perf_counter()
    list(islice(rank(index, understand(index, question, table())), 200))
    return perf_counter() - start


def _bound(work: str, seconds: float, most: float) -> Figure:
    return Figure(work=work, peer="the aim", ours=seconds, theirs=most, at_most=1.0)


def _grown(work: str, points: Sequence[tuple[int, float]], most: float, unit: str) -> Figure:
    return Figure(
        work=work,
        by="messages",
        peer="linear growth",
        ours=max(*exponents(points), 0.0),
        theirs=1,
        unit="exponent",
        at_most=most,
        note=f"from {amount(points[0][1], unit)} to {amount(points[-1][1], unit)}",
        points=tuple(points),
    )


def _sizes(index: Index, chatter: Chatter, count: int) -> Iterator[Figure]:
    """Measure the bytes of a message, stored and in memory."""
    segment, days, positions = index.part(0)
    text = pack(segment, days, positions)
    yield Figure(
        work="bytes of a message, stored",
        peer="the aim",
        ours=len(text) / segment.size,
        theirs=60,
        unit="bytes each",
        at_most=1.0,
    )
    texts = [chatter.text() for _ in range(count)]

    def build() -> Index:
        made = Index()
        for each in texts:
            made.add(each)
        return made

    yield Figure(
        work="bytes of a message, in memory",
        peer="the aim",
        ours=memory(build) / count,
        theirs=1_024,
        unit="bytes each",
        at_most=1.0,
    )


def appending(count: int) -> Figure:
    """Measure appends to SQLite with an index that follows, beside appends without one."""
    chatter = Chatter()
    texts = [chatter.text() for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/a.db") as store:
        plain = followed = 0.0
        one, other = Session("plain", store=store), Session("followed", store=store)
        other.search("nothing")
        for text in texts:  # in turns: the disk is as quick for both
            draft = draft_of(user(text), opens="turn")
            start = perf_counter()
            one.append(draft)
            between = perf_counter()
            other.append(draft)
            followed += perf_counter() - between
            plain += between - start
        start = perf_counter()
        other.search("nothing")
        followed += perf_counter() - start
    return Figure(
        work=f"{count:,} appends, and the index brought up to date",
        peer="the same appends without an index",
        ours=followed,
        theirs=plain,
        at_most=1.3,
    )


def measure(short: bool) -> Iterator[Figure]:
    """Measure everything."""
    yield from evidence(short)
    yield from growth(SHORT_SIZES if short else SIZES)
    yield appending(200 if short else 5_000)


if __name__ == "__main__":
    run(__doc__, measure)
