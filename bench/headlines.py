"""The page of headlines: a few ratios, at most five plots, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench import plot
from bench.frameworks.table import tables as adapter_tables
from bench.measure import Figure, amount, markdown, times, verdict
from bench.runs.table import places

_HEAD = """# Benchmarks

What Muntin costs in time and money, beside other libraries that do the same job. Every figure
compares two things that were measured in the same run, in turns, because machines differ. **Ratio**
is Muntin divided by the other: below 1 Muntin needs less, 1/300 is a three-hundredth, above 1
Muntin is **behind**.

{measured}

In all: {summary} [All figures](benchmarks-all.md) has each of them, with how it was measured; the
data are in `bench/results.json`.

## Headlines

{headlines}
"""

_SPEED = """## Time

Muntin tokenises only what can fit, and every text once. Without a cache written by hand, the peers
tokenise the whole history at every turn.

![The peer's time divided by Muntin's, for the tasks of the table](images/bench-speed.svg)
"""

_GROWTH = """## Growth

What a window costs when the conversation, the number of slots or the number of sessions grows. A
flat line does not grow. The dashed line grows as fast as the size.

![Cost over size, both logarithmic](images/bench-growth.svg)
"""

_CACHED = """## Prompt caches

The price of all input of a long conversation, by the provider's caching rules. Each policy has the
budget at which it keeps as much history as `Stepped()` does. [Cache
policies](design/cache-policies.md) says how the conversations were replayed.

![The input cost of each policy divided by that of Stepped()](images/bench-caching.svg)
"""

_RUNS = """## Long runs

One agent run of 400 requests. "Refused" are requests that break the provider's written rules, "too
large" those over the window. A policy that hides the model's newest call from the model is cheap,
and makes the model call again.

![The input cost of each policy in a long run](images/bench-runs.svg)

{table}
"""

_ADAPTERS = """## Adapters

Each framework's own agent, once with Muntin at the framework's hook and once with what the
framework brings itself. [All figures](benchmarks-all.md#adapters) explains the columns.
"""

_FIRST_TOKEN = """## Time to the first token

The same run on the key-value cache of a GPU: how long a model of the shape of an 8B one reads
before its first token, in a window of 32,000 tokens.

{table}
"""

_AGAIN = """## Measure it yourself

`make bench` makes an environment for each peer and measures everything (some 45 minutes). It writes
`bench/results.json` and both pages. `make bench-short` measures small sizes without the peers (a
minute) and writes nothing. `python -m bench --only` writes the pages again from the stored figures.
"""


class Headline(NamedTuple):
    """One row: what was done beside whom, and the figure that tells it."""

    said: str
    beside: str
    """The peer, with {} where its version is named."""
    package: str
    """Whose version that is."""
    benchmark: str
    work: str
    peer: str


LANGCHAIN = "LangChain {} `trim_messages`"
LITELLM = "LiteLLM {} `trim_messages`"
POET = "prompt-poet {}"
_FIRST = "first call: 10,000 messages (agent) into 8,000"
_NEXT = "next turn: 10,000 messages (agent) into 8,000"
_POET = "a template, 10,000 messages and a question into 8,000, first time"
_SMALL = "first call: 100 messages (agent) into 128,000"
_CHAT = "recorded: anthropic: input cost"
_RUN = "16,000 tokens, openai: input cost"
_CHARS = "four characters a token"

HEADLINES = tuple(
    Headline(*each)
    for each in (
        (
            "fit 10,000 messages into 8,000 tokens, first call",
            LANGCHAIN,
            "langchain-core",
            "compose",
            _FIRST,
            "LangChain, counter of a list",
        ),
        ("the same", LITELLM, "litellm", "compose", _FIRST, "LiteLLM"),
        (
            "the same, next turn",
            LANGCHAIN,
            "langchain-core",
            "compose",
            _NEXT,
            "LangChain, counter of a message",
        ),
        (
            "the same, next turn, counts cached by hand",
            LANGCHAIN,
            "langchain-core",
            "compose",
            _NEXT,
            "LangChain, counts cached by the user",
        ),
        (
            "fit a template and 10,000 messages into 8,000 tokens",
            POET,
            "prompt-poet",
            "templates",
            _POET,
            "prompt-poet",
        ),
        (
            "drop 8 of 20 parts of a prompt, first time",
            POET,
            "prompt-poet",
            "templates",
            "20 parts under a budget that drops 8, first time",
            "prompt-poet",
        ),
        (
            "fit 100 messages that all fit, first call",
            LANGCHAIN,
            "langchain-core",
            "compose",
            _SMALL,
            "LangChain, counter of a list",
        ),
        (
            "import",
            "`langchain_core.messages` {}",
            "langchain-core",
            "compose",
            "import muntin",
            "import langchain_core.messages",
        ),
        (
            "input cost with a prompt cache, a chat",
            LANGCHAIN,
            "langchain-core",
            "caching",
            _CHAT,
            "langchain",
        ),
        ("the same", LITELLM, "litellm", "caching", _CHAT, "litellm"),
        (
            "the same",
            f"{POET}, its best step",
            "prompt-poet",
            "caching",
            _CHAT,
            "prompt-poet, best step",
        ),
        (
            "the same, an agent with retrieval",
            f"{POET}, its best step",
            "prompt-poet",
            "caching",
            "agent, retrieval, 30 s: anthropic: input cost",
            "prompt-poet, best step",
        ),
        (
            "input cost of a long run",
            "LangChain {} `SummarizationMiddleware`",
            "langchain",
            "long_runs",
            _RUN,
            "LangChain SummarizationMiddleware",
        ),
        (
            "the same",
            "Agent Framework {}, compaction",
            "agent-framework-core",
            "long_runs",
            _RUN,
            "Agent Framework compaction",
        ),
        (
            "the same, where the other hides the newest call",
            f"{LANGCHAIN}, human first",
            "langchain-core",
            "long_runs",
            _RUN,
            "LangChain trim_messages, human first",
        ),
        (
            "make one turn of 4 items durable",
            "bare `sqlite3`, the same rows",
            "",
            "store",
            "append one turn of 4 items, durable, counted",
            "sqlite3, the same rows in one transaction",
        ),
        (
            "count 2,000 messages exactly, first pass",
            "tiktoken {}, encoding their texts",
            "tiktoken",
            "estimate",
            "count 2,000 recorded messages exactly, first pass, o200k_base",
            "tiktoken, encoding their texts",
        ),
        (
            "mean error of the estimate, Chinese",
            _CHARS,
            "",
            "estimate",
            "mean error of the estimate: chinese",
            _CHARS,
        ),
        (
            "mean error of the estimate, Italian",
            _CHARS,
            "",
            "estimate",
            "mean error of the estimate: italian",
            _CHARS,
        ),
    )
)
# Of the plots: which sessions and policies of the caches, and which run.
_CACHES = {
    "recorded": "recorded chats",
    "agent": "an agent, a request a turn",
    "agent, steps": "an agent, a request a step",
}
_POLICIES = {
    "langchain": "LangChain trim_messages",
    "litellm": "LiteLLM trim_messages",
    "optimum": "the best possible",
}
_PLACE = "16,000 tokens, anthropic"
_COLUMNS = {
    "invalid": ("refused", "{:.0f}"),
    "over": ("too large", "{:.0f}"),
    "newest_seen": ("sees its newest call", "{:.0%}"),
    "turns_seen": ("turns in view", "{:.1f}"),
    "each": ("cost a request", "{:,.0f}"),
}


def page(
    measured: Mapping[str, Sequence[Figure]],
    told: Mapping[str, str],
    environments: Mapping[str, Any],
    notes: Mapping[str, str],
) -> dict[str, str]:
    """Return the page and its plots: each file's path in docs/, and its text."""
    rows = list(headlines(measured, environments))
    head = ("what is done", "beside", "theirs", "Muntin", "ratio", "")
    parts = [_HEAD.format(**told, headlines=markdown(head, rows, 2))]
    files = {}
    headline_figures = [find(measured, headline) for headline in HEADLINES]
    fast = [figure for figure in headline_figures if figure and figure.unit == "s"]
    if plot.rivals(fast):
        files["images/bench-speed.svg"] = plot.peers(fast)
        parts.append(_SPEED)
    if measured.get("scale"):
        parts.append(_GROWTH)  # its plot is that of the page of all figures
    if groups := cached(measured.get("caching", ())):
        title = "the policy's input cost divided by that of Stepped()"
        files["images/bench-caching.svg"] = plot.bars(title, groups)
        parts.append(_CACHED)
    if policies := places(measured.get("long_runs", ())).get(_PLACE):
        costs = [(name, values["each"], _sound(values)) for name, values in policies.items()]
        title = f"input cost a request in tokens of plain input, {_PLACE}"
        files["images/bench-runs.svg"] = plot.bars(title, {"": costs})
        parts.append(_RUNS.format(table=runs(policies)) + note(notes, "long_runs"))
    if measured.get("first_token"):
        parts.append(_FIRST_TOKEN.format(table=first_tokens(measured["first_token"])))
        parts[-1] += note(notes, "first_token")
    if measured.get("adapters"):
        parts += [_ADAPTERS, *adapter_tables(measured["adapters"])]
    files["benchmarks.md"] = "\n".join([*parts, _AGAIN])
    return files


def first_tokens(figures: Sequence[Figure]) -> str:
    """Write the mean and the 95th percentile of each policy."""
    results: dict[str, list[str]] = {}
    for figure in figures:
        name = figure.peer.removeprefix("the same, ")
        said = "**behind**" if "behind" in verdict(figure) else ""
        results.setdefault(name, []).extend([amount(figure.theirs, figure.unit), said])
    rows = [[name, mean, high, said] for name, (mean, said, high, _) in results.items()]
    return markdown(("policy", "mean", "95th percentile", ""), rows, 1)


def find(measured: Mapping[str, Sequence[Figure]], headline: Headline) -> Figure | None:
    """Return the figure of a headline, if it was measured."""
    wanted = headline.work, headline.peer
    of_it = measured.get(headline.benchmark, ())
    return next((figure for figure in of_it if (figure.work, figure.peer) == wanted), None)


def headlines(
    measured: Mapping[str, Sequence[Figure]], environments: Mapping[str, Any]
) -> Iterator[list[str]]:
    """Yield a row for each headline that was measured."""
    for headline in HEADLINES:
        if figure := find(measured, headline):
            beside = headline.beside.format(version(environments, headline.package))
            sides = [amount(value, figure.unit) for value in (figure.theirs, figure.ours)]
            said = "**behind**" if "behind" in verdict(figure) else ""
            yield [headline.said, beside, *sides, times(figure.ratio), said]


def version(environments: Mapping[str, Any], package: str) -> str:
    """Return the version of a package that was measured, or nothing."""
    found = (environment["versions"].get(package) for environment in environments.values())
    return next(filter(None, found), "")


def cached(figures: Sequence[Figure]) -> dict[str, list[tuple[str, float, bool]]]:
    """Return what each policy costs beside `Stepped()`, by session."""
    groups: dict[str, list[tuple[str, float, bool]]] = {}
    for name, said in _CACHES.items():
        work = f"{name}: anthropic: input cost"
        costs = [(_policy(f.peer), f.theirs / f.ours, True) for f in figures if f.work == work]
        if costs:
            groups[f"{said}, Anthropic's rules"] = [("Muntin Stepped()", 1.0, True), *costs]
    return groups


def _policy(name: str) -> str:
    """Name a policy as its makers do."""
    who, comma, more = name.partition(",")
    return f"{_POLICIES.get(who, who)}{comma}{more}".replace("muntin ", "Muntin ")


def note(notes: Mapping[str, str], benchmark: str) -> str:
    """Write what must be known of the figures of a benchmark, if anything."""
    return f"\n**{notes[benchmark]}**\n" if benchmark in notes else ""


def runs(policies: Mapping[str, Mapping[str, float]]) -> str:
    """Write the table of a long run."""
    head = ["policy", *(title for title, _ in _COLUMNS.values())]
    rows = [
        [name, *(form.format(values[key]) for key, (_, form) in _COLUMNS.items())]
        for name, values in policies.items()
    ]
    return markdown(head, rows, 1)


def _sound(values: Mapping[str, float]) -> bool:
    """Say whether every request of a policy can be sent, and shows the model its newest call."""
    return not values["invalid"] and not values["over"] and values["newest_seen"] == 1
