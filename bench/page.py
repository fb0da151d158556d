"""The benchmarks' page: all figures as tables, with plots, machine and versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import plot
from bench.cache import table
from bench.frameworks.table import tables as adapter_tables
from bench.measure import HEAD, Figure, cells, exponents
from bench.runs.table import tables

# What each benchmark compares, in the order of the page.
SECTIONS: Mapping[str, tuple[str, str]] = {
    "compose": (
        "Fitting a history",
        """A history of N messages is fitted into 8 000 and 128 000 tokens, beside
`langchain_core.messages.trim_messages` and `litellm.utils.trim_messages`. All do the same work
with the same exact tokenizer (o200k_base), on messages built beforehand; processor time, medians,
and what takes over 4 seconds is run once. One in five messages is a tool result. "agent": texts
as long as those of agents that read files and search, some 1 100 characters on average;
"recorded": as short as in the recorded conversations they are made of, 260 on average. LangChain
is given both forms of counter it documents. LiteLLM is given the luckiest budget within 50
tokens: at others, with a few tokens left over, it walks the whole history again for every message
it keeps. It is left out above 1 000 messages into 128 000: minutes a call.

Where everything fits, all count everything once and nobody is faster. With short messages a first
call is bound by the tokenizer: LangChain tokenises the whole history, Muntin only what can fit.""",
    ),
    "templates": (
        "Prompts from templates",
        """Beside the real prompt-poet, from the same data to the same messages: a template of 20
parts rendered (Jinja2 and YAML there, Liquid here); such parts dropped by priority until a budget
is met (truncation priorities there, contexts here, whose joined text is really counted); and a
system text from a template, a history and a question fitted into 8 000 tokens. "First time" is a
tokenizer that has counted nothing yet; "next turn" has one message more than the turn before.
prompt-poet remembers nothing, so its every call is its first.""",
    ),
    "prompts": (
        "Prompts and contexts",
        """A prompt of 50 contexts of 800 characters, under a budget that drops 20 of them. Two
ratios are of times, all else is counted.""",
    ),
    "store": (
        "The store",
        """SQLite sessions beside bare `sqlite3` with the same tables, the same pragmas and
`synchronous=FULL`, and long sessions beside short ones. How an append compares depends on the
disk: the quicker its commit, the more of what Muntin adds to it shows.""",
    ),
    "wire": (
        "The wire",
        """A window of 1 000 messages encoded beside one `json.dumps` of the same request; and
what a piece of a streamed reply costs when the reply is ten times as long.""",
    ),
    "runtime": (
        "The runtime",
        """One wake of an entity with a scripted model: send, compose a window of 8 000 tokens
from a long timeline of recorded conversations, run, record. Its commits are the message, the taking
of the turn, the begin of the run, the answer and the end of the turn; where the handler returns its
agent the last two are one. Against as many bare commits of a write-ahead log, on SQLite and on
PostgreSQL: the quicker a disk commits, the more of a wake's own work shows. Processor time is that
of Muntin's process.""",
    ),
    "gateway": (
        "The gateway",
        """A request through the gateway beside the same request through a plain proxy on the same
server and HTTP client. The provider answers at once: what differs is what Muntin does.""",
    ),
    "engine": (
        "Engines",
        """Wakes in workers (procrastinate) beside the embedded engine, on one PostgreSQL:
how soon a wake begins that another process sent, how many empty ones a second, how that grows with
workers, and what idle entities and waiting jobs cost.""",
    ),
    "caching": (
        "Prompt caches",
        """Sessions are replayed against the providers' published caching rules, every policy with
the budget at which it retains as much history as `Stepped()` does; what is compared is the cost
of all input. [The simulator's page](simulator.md) has the settings and says what the aims are.""",
    ),
    "long_runs": (
        "Long runs",
        """One run of 400 requests and 62 turns, made of recorded tool conversations: results of 0.4
to 60 KB, runs of 1 to 24 steps, identifiers ("needles") that a later message of the user repeats.
Every policy plays the same script; each library's own code decides what is sent and encodes it.
All count with o200k_base, and each is given the whole room: LangChain's `trim_messages` (from a
message of the user or the model on, and from a user's only, as its guides have it),
`ContextEditingMiddleware` with `ClearToolUsesEdit`, `SummarizationMiddleware` (half of the room
kept), and Microsoft Agent Framework's `ContextWindowCompactionStrategy`. One scripted summariser
serves all: it keeps identifiers, up to 100 of them.

**invalid**: requests that the provider refuses, by its written rules, or that were not made;
**over**: larger than the window. **kept**: how much of an encoded request the next one begins with,
inside runs and on the whole. **cost**: by the rules of the provider's cache, 30 s between requests,
summaries included, in tokens of plain input. **turns**: how many are in view, in parts; full, or
named in some form. **last 50 calls**: those that the model can still see that it made; **newest
call**: how often it sees the call that it made just before. **needles**: those that are in the
window when the user repeats them, of the last 20 turns and all; "or named" adds those in a call
that is visible and can be loaded. **time**: processor time between two requests, beside the first
row's, where all ran in one go. The first quarter of the run, in which windows fill, is left out of
turns and calls. The aim for cost is the cheapest peer whose requests are all valid, all fit, and
always show the newest call. What can be kept inside runs has a limit, because a result that becomes
a stub is rewritten: see [Prompt caching](caching.md#long-runs-measured).""",
    ),
    "recall": (
        "Recall",
        """How often a small window holds what a question needs. **needles**: a message of a
recorded tool conversation names an identifier that only an earlier tool result holds, with 200
turns of other conversations between them. **facts**: the same twelve in four languages, among 400
turns of small talk. Beside it stand the newest messages that fit, LangChain's `trim_messages`, BM25
with recall's words and with those of `rank_bm25`, and LangChain's vector store with hashed words,
weighed by how rare they are: an embedding model would have to be downloaded. All fill the same
tokens with whole messages, best first. Then what the index costs in processor time: a question, an
append, and bytes, stored and in memory. [Recall](recall.md) says how it works and what it cannot
find.""",
    ),
    "adapters": (
        "Adapters",
        """Each framework's agent is played against a model on this machine, which speaks the
provider's API over HTTP: 60 turns, 178 requests, fourteen tools, 8 000 tokens; results of 0.4 to
8 KB, runs of up to 11 steps. First with Muntin at the framework's hook, then with what the
framework brings itself. **invalid** and **over budget** as under long runs; **question lost**:
requests that do not show what the user asks; **kept**: how much of a request the next one begins
with; **billed**: input by the rules of the provider's cache, summaries included; **turns seen**: in
view in any form that names them; **ms added**: processor time of the hook for each request, where
it could be measured; **lines**: of the adapter.""",
    ),
    "estimate": (
        "The estimate",
        """The mean error of the offline estimate, beside the rule of four characters a token,
against exact counts of o200k_base. [Counting tokens](tokens.md) has more.""",
    ),
}

_HEAD = """# Benchmarks

`make bench` makes an environment for each peer, runs everything in `bench/` in one go, prints one
table and writes this page and `bench/results.json`. `make bench-short` is the same in a minute,
without the peers and with small sizes; the tests run it, to keep it alive.

Every figure is a ratio of two things measured in the same run, in turns, because machines differ
and are noisy: **ratio** is what Muntin takes over what the other takes, so below 1 Muntin is
ahead; 1/300 means a three-hundredth. Peers whose versions cannot be installed together have an
environment each, and Muntin is measured again in every one of them. All that was measured is
here; where Muntin is **behind** somebody else, or an aim is **not held**, the table says so.

Measured on {date}: {machine}. {versions}.

{summary}

![The peers' time over Muntin's](images/bench-peers.svg)
"""

_GROWTH = """## How cost grows

What a cost does when something grows by equal factors, with the exponent of its growth fitted by
least squares on the logarithms: n^0 does not grow, n^1 is linear. The exponent is fitted over all
sizes, and over the larger half of them, where a constant cost hides nothing; the worse of the two
is held against the aim. A window's cost should not depend on what cannot fit, and be at most
linear in what can. Each line begins at the cost at its smallest size; the dashed line is linear
growth. The collector of cycles of Python is kept out of the times: where a window shows more than
some 30 000 messages it doubles them.

![Cost over size, both logarithmic](images/bench-growth.svg)
"""


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """Write a table, its first columns to the left."""
    marks = ["---" if place < left else "--:" for place in range(len(head) - 1)] + ["---"]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, marks, *rows))


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
    said = f"{len(figures)} figures; {held} of {len(aimed)} aims are held"
    return f"{said}; Muntin is behind in {behind}."


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
    )
    found: dict[str, list[str]] = {}
    for name in wanted:
        for each in environments.values():
            version = each["versions"].get(name)
            if version and version not in found.setdefault(name, []):
                found[name].append(version)
    pythons = sorted({each["python"] for each in environments.values()})
    named = [f"{name} {' and '.join(given)}" for name, given in found.items() if given]
    return ", ".join([f"Python {' and '.join(pythons)}", *named])


def sections(
    measured: Mapping[str, Sequence[Figure]], dates: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Write each benchmark's section, with the date of those that were measured alone."""
    for name, (title, said) in SECTIONS.items():
        if measured.get(name):
            dated = f" Measured on {dates[name]}." if dates and name in dates else ""
            yield f"## {title}\n\n`bench/{name}.py`.{dated} {said}\n"
            yield from (adapter_tables if name == "adapters" else tables)(measured[name])
            yield markdown(HEAD, map(row, measured[name]), 2) + "\n"


def _grows(figure: Figure) -> bool:
    return bool(figure.points)


def write(results: Mapping[str, Any], measured: Mapping[str, Sequence[Figure]], docs: Path) -> None:
    """Write the page and its plots."""
    every = [figure for figures in measured.values() for figure in figures]
    images = docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    images.joinpath("bench-peers.svg").write_text(plot.peers(every), encoding="utf-8")
    machine = results["machine"]
    said = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    parts = [
        _HEAD.format(
            date=results["date"],
            machine=said,
            versions=versions(results["environments"]),
            summary=summary(every),
        )
    ]
    grown = [*measured.get("scale", ()), *filter(_grows, measured.get("recall", ()))]
    if grown:
        images.joinpath("bench-growth.svg").write_text(plot.growth(grown), encoding="utf-8")
        parts += [_GROWTH, growths(grown) + "\n"]
    if measured.get("caching") and not results["short"]:
        table.write([figure.to_dict() for figure in measured["caching"]], docs / "simulator.md")
    docs.joinpath("benchmarks.md").write_text(
        "\n".join([*parts, *sections(measured, results.get("dates"))]), "utf-8"
    )
