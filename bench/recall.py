"""Recall: how often the evidence of a question is in a small window, and what a question costs.

    python bench/recall.py [--short] [--out FILE]

The harness takes any `select(messages, question, tokens)` that returns the text of a window.
Needles: a message of a recorded tool conversation names an identifier that only an earlier tool
result holds, and some two hundred turns of other conversations lie between them. Talks: the same
facts in four languages, among small talk. Then the index: how a question, an append and memory
grow with the number of messages. `bench/recall_peers.py` has what is compared.
"""

from __future__ import annotations

import gc
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from sys import getsizeof
from time import perf_counter, process_time
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import Figure, amount, exponents, memory, run
from bench.recall_peers import COUNTER, Select, peers
from bench.talks import TALKS, Talk
from muntin import History, Message, Session, messages_from, user
from muntin.timeline.items import draft_of
from muntin.timeline.recall.index import Index
from muntin.timeline.recall.packing import pack
from muntin.timeline.recall.ranking import rank, understand
from muntin.timeline.recall.related import table
from muntin.timeline.store import open_store

TRACES = Path(__file__).parent.parent / "tests" / "data" / "airline-traces.jsonl"
IDENTIFIER = re.compile(r"\b(?:[A-Z0-9]{6}|HAT\d{3}|[a-z]+_[a-z]+_\d{4})\b")
TOKENS, TURNS = 1_500, 200
TALK_TOKENS, TALK_TURNS = 300, 400
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
SHORT_SIZES = (500, 1_000, 2_000)
# A question takes this long at most: with 100 000 messages at the median and at the 95th of 100,
# and with a million at the median.
WARM, SLOWEST, LARGE = 0.005, 0.010, 0.050
# Memory is in proportion from here on. Before, more and more words are in more than 96 messages:
# those take a bit for every message of their block instead of four bytes for each that has them.
# Measured: of 3,900 words 650 at 30,000 messages (2.7 of 3.9 MB), 1,800 at 100,000 (24 of 26 MB),
# 2,100 at 131,072, where the first block is full and the next begins with few again.
WHOLE = 100_000


def recalled(messages: Sequence[Message], question: str, tokens: int) -> str:
    """Muntin's recall."""
    return History(messages, counter=COUNTER).relevant(question, tokens=tokens)


# Questions with their evidence.


class Case(NamedTuple):
    """A conversation, a question, and what a window must hold to answer it."""

    messages: Sequence[Message]
    question: str
    evidence: str


def needles(turns: int, most: int | None = None) -> Iterator[Case]:
    """Yield identifiers that a user names long after the tool result that holds them."""
    traces = [json.loads(line)["messages"] for line in TRACES.read_text("utf-8").splitlines()]
    talks = [messages_from([m for m in trace if m["role"] != "system"]) for trace in traces]
    cases = 0
    for number, talk in enumerate(talks):
        seen: dict[str, int] = {}
        for place, message in enumerate(talk):
            found = [each for each in IDENTIFIER.findall(message.text) if _has_digit(each)]
            if message.role == "user":
                for fact in dict.fromkeys(found):
                    if fact in seen and (most is None or cases < most):
                        cases += 1
                        between = _between(talks, number, place, turns)
                        # Between quotes, as results have it: to name it is no evidence.
                        yield Case(between, message.text, f'"{fact}"')
            elif message.role == "tool":
                seen.update(dict.fromkeys(found, place))


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _between(
    talks: Sequence[Sequence[Message]], number: int, place: int, turns: int
) -> list[Message]:
    """Return a conversation up to a place, then turns of the others."""
    other_rows = [talks[(number + step) % len(talks)] for step in range(1, len(talks))]
    rest: list[Message] = []
    for message in (each for talk in other_rows for each in talk):
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
    for name, select in peers():
        theirs = max(share(cases, select, TOKENS), 0.001)
        yield Figure(work=work, peer=name, ours=ours, theirs=theirs, unit="share", at_least=1.0)
    told = {talk.language: list(facts(talk, 60 if short else TALK_TURNS)) for talk in TALKS}
    shares = {name: share(cases, recalled, TALK_TOKENS) for name, cases in told.items()}
    for language, found in shares.items():
        yield Figure(
            work=f"facts found in {TALK_TOKENS} tokens, {language}",
            peer="English",
            ours=found,
            theirs=shares["English"],
            unit="share",
            at_least=0.85,
        )
    every = [case for cases in told.values() for case in cases]
    ours = share(every, recalled, TALK_TOKENS)
    work = f"facts found in {TALK_TOKENS} tokens, four languages"
    for name, select in peers():
        theirs = max(share(every, select, TALK_TOKENS), 0.001)
        yield Figure(work=work, peer=name, ours=ours, theirs=theirs, unit="share", at_least=1.0)


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


class Costs(NamedTuple):
    """What an index of some size costs: seconds of questions and of an append, bytes of it all.

    `fresh` questions have words that nobody has asked for yet; `asked` ones are the same again.
    """

    size: int
    fresh: Sequence[float]
    asked: Sequence[float]
    append: float
    held: int


def costs(sizes: Sequence[int], questions: int = 100) -> Iterator[Costs]:
    """Measure an index as it grows, in processor time: nobody waits for anything."""
    chatter, index = Chatter(), Index()
    for size in sizes:
        before, start = len(index), process_time()
        while len(index) < size:
            index.add(chatter.text())
        append = (process_time() - start) / (size - before)
        fresh, asked = [], []
        gc.collect()
        gc.freeze()  # what was built before is nobody's burden
        for _ in range(questions):
            question = chatter.question()
            fresh.append(_seconds(index, question))
            asked.append(_seconds(index, question))
        gc.unfreeze()
        yield Costs(size, sorted(fresh), sorted(asked), append, held(index))


def _seconds(index: Index, question: str) -> float:
    start = process_time()
    list(islice(rank(index, understand(index, question, table())), 200))
    return process_time() - start


def held(index: Index) -> int:
    """Return the bytes of an index, object by object."""
    size = getsizeof(index.days) + getsizeof(index.positions) + getsizeof(index.frequency)
    known = {id(term): term for term in index.frequency}
    for block in index.blocks:
        known.update((id(term), term) for term in block.terms)
        size += getsizeof(block.terms)
        lanes = [*block.classes, *block.speakers.values()]
        for posting in (*block.terms.values(), *lanes):
            size += getsizeof(posting)
            if isinstance(posting, list):
                size += sum(map(getsizeof, posting))
    return size + sum(map(getsizeof, known.values()))


def growth(sizes: Sequence[int]) -> Iterator[Figure]:
    """Measure questions, appends and memory at ever more messages."""
    found = list(costs(sizes))
    for each in found:
        if each.size == 100_000:
            yield _bound("a question, 100,000 messages", median(each.asked), WARM)
            late = int(0.95 * len(each.asked))
            work = "a question, 100,000 messages, 95th of 100"
            yield _bound(work, each.asked[late], SLOWEST)
            yield _bound(f"{work}, new words", each.fresh[late], SLOWEST)
        if each.size == 1_000_000:
            yield _bound("a question, 1,000,000 messages", median(each.asked), LARGE)
    yield _grown("a question", [(each.size, median(each.asked)) for each in found], 1.15, "s")
    yield _grown("adding a message", [(each.size, each.append) for each in found], 0.15, "s")
    yield _grown("memory", [(each.size, each.held) for each in found], 1.15, "bytes", WHOLE)
    last = found[-1]
    work = f"bytes of a message in memory, {last.size:,} messages"
    yield _small(work, last.held / last.size, 1_024)


def sizes(count: int) -> Iterator[Figure]:
    """Measure the bytes of a message, stored and in memory."""
    chatter = Chatter()
    texts = [chatter.text() for _ in range(count)]

    def build() -> Index:
        made = Index()
        for text in texts:
            made.add(text)
        return made

    segment, days, positions = build().part(0)
    found = {
        "stored": (len(pack(segment, days, positions)) / segment.size, 60),
        "in memory": (memory(build) / count, 1_024),
    }
    for where, (ours, most) in found.items():
        yield _small(f"bytes of a message, {where}", ours, most)


def _bound(work: str, seconds: float, most: float) -> Figure:
    return Figure(work=work, peer="the aim", ours=seconds, theirs=most, at_most=1.0)


def _small(work: str, ours: float, most: float) -> Figure:
    return Figure(work=work, peer="the aim", ours=ours, theirs=most, unit="bytes each", at_most=1.0)


def _grown(
    work: str, points: Sequence[tuple[int, float]], most: float, unit: str, since: int = 0
) -> Figure:
    """Tell how something grows, from a size on if there are more."""
    late = [point for point in points if point[0] >= since]
    return Figure(
        work=work,
        by="indexed messages",
        peer="linear growth",
        ours=max(*exponents(late if len(late) > 1 else points), 0.0),
        theirs=1,
        unit="exponent",
        at_most=most,
        note=f"from {amount(points[0][1], unit)} to {amount(points[-1][1], unit)}",
        points=tuple(points),
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
    yield from sizes(1_000 if short else 32_768)
    yield from growth(SHORT_SIZES if short else SIZES)
    yield appending(200 if short else 5_000)


if __name__ == "__main__":
    run(__doc__, measure)
