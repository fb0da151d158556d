"""The page of all figures, as tables, with plots, machine and versions; both pages written.

Both are made from `bench/results.json` alone, so a test can compare them with what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import headlines, plot
from bench.cache import table
from bench.frameworks.table import tables as adapter_tables
from bench.measure import HEAD, Figure, cells, exponents, markdown
from bench.runs.table import tables
from bench.sections import SECTIONS

_HEAD = """# All figures

Every figure of the last full run, made by `python -m bench` from `bench/results.json`. A test
compares this page with that file. [Benchmarks](benchmarks.md) has the headlines.

**theirs** and **Muntin** are what each took. **ratio** is Muntin divided by the other: below 1
Muntin needs less, 1/300 is a three-hundredth. Peers whose versions cannot be installed together
have an environment each, and Muntin is measured again in every one of them. Where Muntin is
**behind** somebody else, or an aim is **not held**, the last column says so.

{measured}

{summary}

![The peers' time divided by Muntin's](images/bench-peers.svg)
"""

_GROWTH = """## How cost grows

What happens to a cost when something grows by equal factors. n^0 does not grow, n^1 is linear. The
exponent is fitted by least squares on the logarithms: once over all sizes, and once over the larger
half of them, where a constant cost hides nothing. The worse of the two must meet the aim. For
the memory of recall's index the aim begins at 100 000 messages: below, few words are frequent
enough to be kept as a mask. The cost of a window should not depend on what cannot fit, and should
be at most linear in what can. Each line begins at the cost of its smallest size; the dashed
line is linear growth. Python's collector of cycles is kept out of the times: where a window shows
more than some 30 000 messages, the collector doubles the time.

![Cost over size, both logarithmic](images/bench-growth.svg)
"""


def row(figure: Figure) -> list[str]:
    """Return the cells of a figure; what is lost stands out."""
    *most, said = (cell.replace("|", "\\|") for cell in cells(figure))
    for words in ("not held", "behind"):
        said = said.replace(words, f"**{words}**")
    return [*most, said]


def growths(figures: Sequence[Figure]) -> str:
    """Write the table of the exponents."""
    head = ("cost of", "by", "sizes", "from and to", "all sizes", "larger half", "aim", "")
    rows = []
    for figure in figures:
        whole, large = exponents(figure.points)
        sizes = f"{figure.points[0][0]:,} to {figure.points[-1][0]:,}"
        *_, asked, said = row(figure)
        found = (f"n^{whole:.2f}", f"n^{large:.2f}", asked.replace("≤ ", "≤ n^"), said)
        rows.append((figure.work, figure.by, sizes, figure.note.removeprefix("from "), *found))
    return markdown(head, rows, 4)


def summary(figures: Sequence[Figure]) -> str:
    """Say how many aims are held, and where Muntin is behind."""
    aimed = [figure for figure in figures if figure.held is not None]
    held = sum(figure.held is True for figure in aimed)
    behind = sum("behind" in cells(figure)[-1] for figure in figures)
    text = f"{len(figures)} figures; {held} of {len(aimed)} aims are held"
    return f"{text}; Muntin is behind in {behind}."


def versions(environments: Mapping[str, Any]) -> str:
    """Name what was compared, with its version."""
    wanted = (
        "muntin",
        "tiktoken",
        "langchain",
        "langchain-core",
        "litellm",
        "prompt-poet",
        "agent-framework-core",
        "rank-bm25",
        "scikit-learn",
        "langgraph",
        "pydantic-ai-slim",
        "openai-agents",
        "google-adk",
        "strands-agents",
        "haystack-ai",
        "llama-index-core",
    )
    results: dict[str, list[str]] = {}
    for name in wanted:
        for environment in environments.values():
            version = environment["versions"].get(name)
            if version and version not in results.setdefault(name, []):
                results[name].append(version)
    pythons = sorted({environment["python"] for environment in environments.values()})
    named = [f"{name} {' and '.join(given)}" for name, given in results.items() if given]
    return ", ".join([f"Python {' and '.join(pythons)}", *named])


def sections(
    measured: Mapping[str, Sequence[Figure]],
    notes: Mapping[str, str] | None = None,
    dates: Mapping[str, str] | None = None,
) -> Iterator[str]:
    notes, dates = notes or {}, dates or {}
    for name, (title, said) in SECTIONS.items():
        if measured.get(name):
            dated = f" Measured on {dates[name]}." if name in dates else ""
            yield f"## {title}\n\n`bench/{name}.py`.{dated} {said}\n"
            if note := notes.get(name):
                yield f"**{note}**\n"
            yield from (adapter_tables if name == "adapters" else tables)(measured[name])
            yield markdown(HEAD, map(row, measured[name]), 2) + "\n"


def _grows(figure: Figure) -> bool:
    return bool(figure.points)


def about(results: Mapping[str, Any]) -> str:
    """Say when, where and with which versions was measured."""
    machine = results["machine"]
    text = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    return f"Measured on {results['date']}: {text}. {versions(results['environments'])}."


def pages(results: Mapping[str, Any], measured: Mapping[str, Sequence[Figure]]) -> dict[str, str]:
    """Return both pages and their plots: each file's path in docs/, and its text."""
    every = [figure for figures in measured.values() for figure in figures]
    told = {"measured": about(results), "summary": summary(every)}
    found = {"images/bench-peers.svg": plot.peers(every)}
    parts = [_HEAD.format(**told)]
    sized = measured.get("scale", ())
    grown = [*filter(_grows, sized), *filter(_grows, measured.get("recall", ()))]
    if grown:
        found["images/bench-growth.svg"] = plot.growth(grown)
        parts += [_GROWTH, growths(grown) + "\n"]
    if others := [figure for figure in sized if not _grows(figure)]:
        parts.append(markdown(HEAD, map(row, others), 2) + "\n")
    notes = results.get("notes", {})
    found["benchmarks-all.md"] = "\n".join(
        [*parts, *sections(measured, notes, results.get("dates"))]
    )
    return found | headlines.page(measured, told, results["environments"], notes)


def write(results: Mapping[str, Any], measured: Mapping[str, Sequence[Figure]], docs: Path) -> None:
    """Write the pages and their plots, and the tables of the page of cache policies."""
    for path, text in pages(results, measured).items():
        docs.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        docs.joinpath(path).write_text(text, encoding="utf-8")
    if measured.get("caching") and not results["short"]:
        table.write(
            [figure.to_dict() for figure in measured["caching"]],
            docs / "design" / "cache-policies.md",
        )
