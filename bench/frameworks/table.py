"""The table of the adapters: Muntin beside each framework's own means, from a run's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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


def tables(figures: Sequence[Figure]) -> Iterator[str]:
    """Write one table of all frameworks."""
    head = ["in", "with", *(title for title, _ in COLUMNS.values())]
    rows = [head, ["---", "---", *["--:"] * len(COLUMNS)]]
    for figure in figures:
        if figure.values:
            values = dict(figure.values)
            framework = _framework(figure)
            cells = [_cell(key, form, values.get(key)) for key, (_, form) in COLUMNS.items()]
            rows.append([framework, figure.note or figure.peer, *cells])
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
    yield _behind(figures)


def _behind(figures: Sequence[Figure]) -> str:
    """Say who is billed less, or keeps more, and what it shows for it."""
    own = {_framework(f): dict(f.values) for f in figures if f.values and f.note}
    said = []
    for figure in figures:
        values, name = dict(figure.values), _framework(figure)
        if not values or figure.note or name not in own:
            continue
        ours = own[name]
        cheaper, keeps = values["cost"] < ours["cost"], values["prefix_all"] > ours["prefix_all"]
        if cheaper or keeps:
            what = " and ".join(["is billed less"] * cheaper + ["keeps more"] * keeps)
            turns = f"{values['turns_seen']:.1f} turns beside {ours['turns_seen']:.1f}"
            bad = {"over": "over budget", "question_lost": "without the question"}
            told = [
                f", {values[key]:.0f} requests {word}" for key, word in bad.items() if values[key]
            ]
            said.append(f"{figure.peer} in {name} {what} ({turns}{''.join(told)})")
    return f"Muntin is **behind** here: {'; '.join(said)}.\n" if said else ""


def _framework(figure: Figure) -> str:
    return figure.work.partition(": ")[0]


def _cell(key: str, form: str, value: float | None) -> str:
    return form.format(value * _SCALE.get(key, 1)) if value else "0" if value == 0 else "-"
