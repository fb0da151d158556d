"""The wide tables of the long runs: every policy in one row, from the figures of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from bench.measure import Figure

# The columns: what each is called, and how its value is written.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "invalid": ("invalid", "{:.0f}"),
    "over": ("over", "{:.0f}"),
    "prefix": ("kept in runs", "{:.1%}"),
    "prefix_all": ("kept", "{:.1%}"),
    "relative": ("cost / uncached", "{:.2f}"),
    "each": ("cost a request", "{:,.0f}"),
    "tokens": ("tokens a request", "{:,.0f}"),
    "turns_full": ("turns, full", "{:.1f}"),
    "turns_seen": ("turns, named", "{:.1f}"),
    "calls_seen": ("last 50 calls", "{:.1%}"),
    "newest_seen": ("newest call", "{:.1%}"),
    "newest_shown": ("just-returned results shown", "{:.1%}"),
    "needles_recent": ("needles, 20 turns", "{:.1%}"),
    "named_recent": ("or named", "{:.1%}"),
    "needles": ("needles, all", "{:.1%}"),
    "named": ("or named", "{:.1%}"),
    "time": ("time", "{:.2f}"),
}
Values = dict[str, float]


def places(figures: Iterable[Figure]) -> dict[str, dict[str, Values]]:
    """Return what was measured of each policy, by window and provider."""
    results: dict[str, dict[str, Values]] = {}
    for figure in figures:
        if figure.values:
            place = figure.work.partition(": ")[0]
            policy = figure.note or figure.peer
            results.setdefault(place, {})[policy] = dict(figure.values)
    for policies in results.values():
        own = next(iter(policies.values()))
        for values in policies.values():
            values["each"] = values["cost"] / max(1.0, values["requests"])
            if "seconds" in values:  # told only if all ran in one go
                values["time"] = values["seconds"] / own["seconds"]
            values["invalid"] += values["refused"]
    return results


def tables(figures: Iterable[Figure]) -> Iterator[str]:
    """Write a table for each window and provider."""
    for place, policies in places(figures).items():
        known = [key for key in COLUMNS if all(key in policy for policy in policies.values())]
        head = ["policy", *(COLUMNS[key][0] for key in known)]
        lines = [head, ["---", *["--:"] * len(known)]]
        for policy, values in policies.items():
            cells = [COLUMNS[key][1].format(values[key]) for key in known]
            lines.append([policy, *cells])
        rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        yield f"### A window of {place}\n\n{rows}\n"
