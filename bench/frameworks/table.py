"""The table of the adapters: Muntin beside each framework's own means, from a run's figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from bench.measure import Figure

# The columns: what each is called, and how its value is written.
COLUMNS: Mapping[str, tuple[str, str]] = {
    "requests": ("requests", "{:.0f}"),
    "invalid": ("invalid", "{:.0f}"),
    "over": ("over budget", "{:.0f}"),
    "question_lost": ("question lost", "{:.0f}"),
    "prefix_all": ("kept", "{:.0%}"),
    "cost": ("billed", "{:,.0f}"),
    "turns_seen": ("turns seen", "{:.1f}"),
    "seconds": ("ms added", "{:.1f}"),
    "lines": ("lines", "{:.0f}"),
}
# What the rows have in other units than the table.
_SCALE = {"seconds": 1_000}


def tables(figures: Iterable[Figure]) -> Iterator[str]:
    """Write one table of all frameworks."""
    head = ["in", "with", *(title for title, _ in COLUMNS.values())]
    rows = [head, ["---", "---", *["--:"] * len(COLUMNS)]]
    for figure in figures:
        if figure.values:
            values = dict(figure.values)
            framework = figure.work.partition(": ")[0]
            cells = [_cell(key, form, values.get(key)) for key, (_, form) in COLUMNS.items()]
            rows.append([framework, figure.note or figure.peer, *cells])
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _cell(key: str, form: str, value: float | None) -> str:
    return form.format(value * _SCALE.get(key, 1)) if value else "0" if value == 0 else "-"
