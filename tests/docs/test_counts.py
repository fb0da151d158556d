"""Numbers in prose are true: how many rules, ways and tools there are, and what defaults are.

Each phrase stands on its page as it is here, with the number that the code has. A number word
before such a noun that is not in this table is an error: add it here, or write without a count.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from muntin import Ladder, Recall, Results, Summary, resolver_cache
from muntin.agent import loop
from muntin.core.budget import DEFAULT_BUDGET
from muntin.core.planning import compact, memory, slot, units
from muntin.core.toolboxes import finding
from muntin.prompts import liquid
from muntin.providers import assets
from muntin.runtime import app, entity_runner, next_move, recovery, sources, summaries, suspects
from muntin.runtime.ctx import Ctx
from muntin.runtime.run_rules import RunRules
from tests.docs.blocks import DOCUMENTS, name_of
from tests.paths import ROOT

NUMBERS = "no one two three four five six seven eight nine ten eleven twelve"
WORDS = NUMBERS.split()
NOUNS = (
    "rules ways doors tools views hooks levels providers stores tiers engines extras adapters "
    "frameworks layers functions protocols ideas settings reasons tokenizers switches"
)
COUNTED = re.compile(
    rf"\b({'|'.join(WORDS[2:])})\s+((?:[a-z]+\s+)?(?:{'|'.join(NOUNS.split())}))\b", re.IGNORECASE
)
# Said of an example or of a case, not of what Muntin has.
OF_A_CASE = {
    "three tools",  # of the agent in a benchmark
    "two tools",  # of one name
    "two ways",
}
FILES = [page for page in DOCUMENTS if page.name not in ("CHANGELOG.md", "benchmarks-all.md")]


def word(number: int) -> str:
    return WORDS[number]


# By page: phrases, each with the number that the code has.
PHRASES: list[tuple[str, str, Callable[[], Any]]] = [
    ("agents.md", "`max_steps` ({n})", lambda: loop.MAX_STEPS),
    ("agents.md", "`parallel` ({n})", lambda: loop.PARALLEL),
    ("agents.md", "up to {comma} bytes", lambda: assets.INLINE_BYTES),
    ("slots.md", "Up to {n} tokens it is never cut", lambda: slot.INPUT_LEAST),
    ("slots.md", "at least {n} tokens are kept", lambda: compact.LEAST),
    ("slots.md", "*short* ({n} tokens", lambda: Ladder().short_tokens),
    ("slots.md", "({word}, `keep_groups`)", lambda: Ladder().keep_groups),
    ("slots.md", "(max_ratio=.{n},", lambda: round(Results().max_ratio * 100)),
    ("slots.md", "up to {n} messages beyond", lambda: units.LOOK_BACK),
    ("caching.md", "up to {comma} messages around it", lambda: memory.SEARCH),
    ("conversations.md", "take {word} switches", lambda: len(fields(RunRules))),
    ("reference/runtime.md", "{Word} switches hold", lambda: len(fields(RunRules))),
    ("howto/toolboxes.md", "up to {word} tools in", lambda: finding.MOST_TOOLS),
    ("conversations.md", "`timeout` ({n} seconds)", lambda: round(sources.TIMEOUT)),
    ("entities.md", "`timeout` ({n} seconds)", lambda: round(sources.TIMEOUT)),
    ("entities.md", "kills its process {word} times", lambda: suspects.MAX_ATTEMPTS),
    ("entities.md", "After {n} attempts the turn fails", lambda: entity_runner.MAX_BUSY),
    ("entities.md", "have {n} seconds to end", lambda: round(app.CLOSE_SECONDS)),
    ("entities.md", "more than {comma} characters", lambda: sources.MOST_KEPT),
    ("entities.md", "more than {comma} messages", lambda: sources.MOST_MESSAGES),
    ("scale.md", "given up after {word} attempts", lambda: suspects.MAX_ATTEMPTS),
    ("howto/workers.md", "given up after {word} attempts", lambda: suspects.MAX_ATTEMPTS),
    ("howto/summaries.md", "`max_tokens` ({n})", lambda: Summary("openai/gpt-4o").max_tokens),
    ("howto/summaries.md", "grown {n} % of the way", lambda: round(next_move.NEAR * 100)),
    ("howto/summaries.md", "at most {word} times an hour", lambda: summaries.HOURLY),
    ("howto/summaries.md", "waits up to {word} seconds", lambda: round(summaries.CLOSE_SECONDS)),
    (
        "prompts.md",
        "`cache=True` means {word} minutes",
        lambda: resolver_cache.DEFAULT_TTL // 60_000,
    ),
    ("howto/model-and-budget.md", "{comma} where it is not known", lambda: DEFAULT_BUDGET),
    ("generate.md", "({comma} where that is not known)", lambda: DEFAULT_BUDGET),
    ("generators.md", "(priority {n}). Then context", lambda: slot.HISTORY),
    ("generators.md", "dropped (priority {n})", lambda: slot.CONTEXT),
    ("prompt-files.md", "may run {comma} loop iterations", lambda: liquid.LOOPS),
    ("recall.md", "`timeout={n}`", lambda: Recall().timeout),
    ("recall.md", "`ratio={n}`", lambda: Recall().ratio),
]


def text(page: str) -> str:
    """Return a page with its lines joined, as a reader reads it."""
    return " ".join((ROOT / "docs" / page).read_text("utf-8").split())


@pytest.mark.parametrize(
    ("page", "phrase", "number"), PHRASES, ids=[f"{page}-{said[:40]}" for page, said, _ in PHRASES]
)
def test_a_number_in_prose_is_what_the_code_has(page, phrase, number):
    found = number()
    count = found if isinstance(found, int) else 0
    said = phrase.format(
        n=found,
        word=word(count) if count < len(WORDS) else "",
        Word=word(count).capitalize() if count < len(WORDS) else "",
        comma=f"{found:,}",
    )
    assert said in text(page), said


def test_every_tool_that_reads_what_was_cut_is_named():
    page = text("entities.md")
    source = inspect.getsource(recovery) + inspect.getsource(Ctx)
    names = set(re.findall(r"\b(load_\w+|search_history)\b", source))
    assert len(names) > 3
    assert all(f"`{name}(" in page for name in names)


@pytest.mark.parametrize("document", FILES, ids=name_of)
def test_a_count_in_prose_is_in_the_table(document):
    known = {
        phrase.replace("{Word}", word(number())).replace("{word}", word(number()))
        for _, phrase, number in PHRASES
        if "{word}" in phrase.lower()
    }
    prose = re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.DOTALL)
    for said in COUNTED.finditer(" ".join(prose.split())):
        plain = said[0].lower()
        assert plain in OF_A_CASE or any(plain in phrase.lower() for phrase in known), said[0]
