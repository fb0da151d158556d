"""The tables of docs/design/cache-policies.md, from the figures of the last full run.

Figures that do not reach their aim are bold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from bench.cache.contest import BEST_POET, FLOOR, HUMAN, LANGCHAIN, LENT, OPTIMUM, README_POET
from bench.cache.sessions import pauses

COST = "input cost"
POLICIES = {
    "muntin Exact()": "`Exact()`",
    LANGCHAIN: "LangChain",
    HUMAN: "human first",
    "litellm": "LiteLLM",
    BEST_POET: "prompt-poet, best step",
    README_POET: "in front",
    OPTIMUM: "optimum",
}
SHARES = {"read from the cache": "read", "history kept between cuts": "kept"}

Given: TypeAlias = dict[str, Any]
# Figures by session, rules, what was measured, and the peer.
Known: TypeAlias = dict[tuple[str, str, str, str], Given]


def known(figures: Iterable[Given]) -> Known:
    """Return the figures of sessions by what they are of."""
    results = {}
    for figure in figures:
        session, _, rest = figure["work"].partition(": ")
        rules, _, what = rest.partition(": ")
        if what:
            results[session, rules, what, figure["peer"]] = figure
    return results


def cell(given: Given | None, *, share: bool = False) -> str:
    """Write one figure."""
    if given is None:
        return ""
    text = f"{given['ratio']:.1%}" if share else f"{given['ratio']:.2f}"
    return f"**{text}**" if given.get("held") is False else text


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 2) -> Iterator[str]:
    """Write a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * left}{'--:|' * (len(head) - left)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def policies(figures: Known) -> Iterator[str]:
    """Write what `Stepped()` reads and keeps, and its cost over that of each peer."""
    usual = next(iter(pauses(1)))
    seen = dict.fromkeys(
        (session, rules)
        for session, rules, *_ in figures
        if "retrieval" not in session or session.endswith(usual)
    )
    rows = []
    for place in seen:
        shares = {what: given for (*at, what, _), given in figures.items() if tuple(at) == place}
        rows.append(
            [
                *place,
                *(cell(shares.get(what), share=True) for what in SHARES),
                *(cell(figures.get((*place, COST, peer))) for peer in POLICIES),
            ]
        )
    return markdown(("session", "rules", *SHARES.values(), *POLICIES.values()), rows)


def retrieval(figures: Known) -> Iterator[str]:
    """Write what costs how much, over prompt-poet's best step, by the pause."""
    names = list(pauses(1))
    rows = []
    for session in ("recorded", "agent"):
        for rules in ("anthropic", "openai"):
            places = [(f"{session}, retrieval, {name}", rules) for name in names]
            rows.append(
                [session, rules, "`Stepped()`"]
                + [cell(figures[*place, COST, BEST_POET]) for place in places]
            )
            for peer in (OPTIMUM, LENT):
                ratios = [
                    figures[*place, COST, BEST_POET]["ratio"] / figures[*place, COST, peer]["ratio"]
                    for place in places
                ]
                rows.append([session, rules, peer, *(f"{ratio:.2f}" for ratio in ratios)])
            least = "what nobody can undercut"
            floors = [cell(figures[*place, least, BEST_POET]) for place in places]
            rows.append([session, rules, FLOOR, *floors])
    return markdown(("session", "rules", "policy", *names), rows, 3)


def others(figures: Iterable[Given]) -> Iterator[str]:
    """Write what is asked beside costs."""
    rows = [
        (
            figure["work"],
            figure["peer"],
            f"≤ {figure['at_most']}" if "at_most" in figure else f"≥ {figure['at_least']}",
            cell(figure),
        )
        for figure in figures
        if figure["work"].count(": ") < 2
    ]
    return markdown(("what", "beside", "asked", "ratio"), rows)


def tables(figures: Sequence[Given]) -> list[str]:
    """Return all tables, each as its lines."""
    sessions = known(figures)
    made = (policies(sessions), retrieval(sessions), others(figures))
    return ["\n".join(table) for table in made]


def write(figures: Sequence[Given], page: Path) -> None:
    """Put the tables into the page, each in the place of the one with the same columns."""
    text = page.read_text(encoding="utf-8")
    for table in tables(figures):
        head = re.escape(table.partition("\n")[0])
        (old,) = re.finditer(rf"{head}\n(\|.*\n)*", text)
        text = text.replace(old[0], f"{table}\n")
    page.write_text(text, encoding="utf-8")
