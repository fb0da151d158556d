"""What a small window holds of a long conversation with an assistant who answers at length.

    python -m bench.memory [--json] [--quick] [--alone] [--beside PATH]

Each line is a method, each column a budget: the share of questions whose whole evidence is in a
window of 2,000, 4,000 and 8,000 tokens. The conversations are those of `bench/memory_talks.py`, in
four languages. "a conversation" is the whole window of a conversation: its newest turns, what it
recalls, and the wishes that hold; the others are what they recall. Of facts that change, the newest
value is the evidence, and `outdated` is the share of windows of 4,000 tokens with an older value
alone. `--beside` adds the Muntin of another source tree. BM25 is that of rank_bm25 where it is
installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.beside import Other, told
from bench.memory_talks import TURNS, Question, questions
from bench.recall_peers import bm25, filled, newest
from muntin import App, History, Message
from muntin.testing import ScriptedModel

BUDGETS = (2_000, 4_000, 8_000)
# The budget at which outdated values are counted.
USUAL = 4_000
COLUMNS: Mapping[str, tuple[str, str]] = {
    **{str(budget): (f"{budget:,}", "{:.1%}") for budget in BUDGETS},
    "outdated": ("outdated", "{:.1%}"),
}
NAMES = ("conversation", "language", "method")
OURS, TALKING = "Muntin", "Muntin, a conversation"
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_]+")

# Returns the text of a window for a question.
Ask = Callable[[str, int], str]


def methods(messages: Sequence[Message], *, alone: bool) -> Iterator[tuple[str, Ask]]:
    """Yield each method with the function that asks it about a conversation; Muntin's alone."""
    history = History(messages)
    yield OURS, lambda question, tokens: history.relevant(question, tokens=tokens)
    yield TALKING, _conversation(messages)
    if alone:
        return
    by_user = [message for message in messages if message.role == "user"]
    yield "the newest", lambda question, tokens: newest(messages, question, tokens)
    yield "BM25", _ranker(messages)
    yield "BM25, the user's messages", _ranker(by_user)


def _conversation(messages: Sequence[Message]) -> Ask:
    """Return what asks one question after the other in a conversation for each budget."""
    models: dict[int, ScriptedModel] = {}
    apps: dict[int, App] = {}

    async def asked(question: str, tokens: int) -> str:
        if tokens not in apps:
            models[tokens] = ScriptedModel(lambda window: "I see.", budget=tokens)
            apps[tokens] = App("memory:", model=models[tokens])
            apps[tokens].session("talk").append(*messages)
        await apps[tokens].conversation("talk").send(question)
        shown = models[tokens].windows[-1].messages[:-1]
        return "\n".join(message.text for message in shown)

    return lambda question, tokens: asyncio.run(asked(question, tokens))


def _ranker(messages: Sequence[Message]) -> Ask:
    if not find_spec("rank_bm25"):
        return lambda question, tokens: bm25(messages, question, tokens)
    made: Any = import_module("rank_bm25").BM25Okapi
    index = made([_words(message.text) or [""] for message in messages])

    @lru_cache(1)
    def ranked(question: str) -> list[int]:
        scores = index.get_scores(_words(question))
        best = sorted(range(len(messages)), key=lambda number: (-scores[number], -number))
        return [number for number in best if scores[number] > 0]

    return lambda question, tokens: filled(messages, ranked(question), tokens)


def _words(text: str) -> list[str]:
    """Return the words of a text; Chinese characters one by one."""
    return _WORD.findall(text.lower())


def measured(
    turns: int, *, alone: bool
) -> Iterator[tuple[tuple[str, ...], dict[str, float | None]]]:
    """Yield the shares of each method, by conversation and language."""
    by_talk = groupby(questions(turns), key=lambda question: (question.kind, question.language))
    for key, asked in by_talk:
        cases = list(asked)
        for name, ask in methods(cases[0].messages, alone=alone):
            yield (*key, name), dict(_shares(cases, ask))


def _shares(cases: Sequence[Question], ask: Ask) -> Iterator[tuple[str, float | None]]:
    windows = {budget: [ask(case.text, budget) for case in cases] for budget in BUDGETS}
    for budget, texts in windows.items():
        yield str(budget), fmean(map(_shows, texts, [case.evidence for case in cases]))
    pairs = list(zip(windows[USUAL], cases, strict=True))
    yield "outdated", fmean(_misleads(*pair) for pair in pairs) if cases[0].outdated else None


def _misleads(text: str, case: Question) -> bool:
    """Say whether a window has an older value alone."""
    return not _shows(text, case.evidence) and any(_shows(text, old) for old in case.outdated)


def _shows(text: str, evidence: str) -> bool:
    return " ".join(evidence.split()) in " ".join(text.split())


def options() -> argparse.ArgumentParser:
    """Return the options of the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="conversations of 100 turns")
    parser.add_argument("--alone", action="store_true", help="without what it is compared with")
    parser.add_argument("--beside", type=Path, metavar="PATH", help="another source tree")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and tell what was found."""
    given = options().parse_args(arguments)
    asked = ["--alone", *(["--quick"] if given.quick else [])]
    other = Other("bench.memory", asked, given.beside) if given.beside else None
    rows = dict(measured(100 if given.quick else TURNS, alone=given.alone))
    if other is not None:
        there = json.loads(json.dumps(other.result()))
        for row in there["rows"]:
            *key, name = row["key"]
            if key[1] != "all":
                rows[*key, name.replace(OURS, f"{OURS} {there['muntin']}")] = row["values"]
    every: dict[tuple[str, ...], Mapping[str, float | None]] = dict(sorted(rows.items()))
    for kind, _, name in sorted(rows):
        alike = [values for key, values in rows.items() if (key[0], key[2]) == (kind, name)]
        every[kind, "all", name] = _means(alike)
    print(told(COLUMNS, NAMES, every, None, as_json=given.json))


def _means(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the mean of each column, over the languages."""
    means: dict[str, float | None] = {}
    for name in COLUMNS:
        values = [value for row in rows if (value := row[name]) is not None]
        means[name] = fmean(values) if values else None
    return means


if __name__ == "__main__":
    main()
