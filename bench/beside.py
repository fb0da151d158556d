"""The same benchmark on another source tree: run in a process of its own, told side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import muntin

ROOT = Path(__file__).parent.parent

Columns = Mapping[str, tuple[str, str]]
"""What each column is called, and how its values are written, by name."""
Rows = Mapping[tuple[str, ...], Mapping[str, float | None]]


class Other:
    """A benchmark that runs with another Muntin: that of a source tree, or of its folder `src`.

    It runs while this process measures. The benchmark prints JSON if it is told `--json`.
    """

    def __init__(self, module: str, arguments: Sequence[str], tree: Path) -> None:
        tree = tree.resolve()
        source = tree if (tree / "muntin").is_dir() else tree / "src"
        if not (source / "muntin").is_dir():
            raise SystemExit(f"there is no Muntin in {tree}")
        paths = os.pathsep.join((str(source), str(ROOT)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--json", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
        )

    def result(self) -> Any:
        """Wait for the other process, and return what it measured."""
        printed, _ = self._process.communicate()
        if self._process.returncode:
            raise SystemExit(f"the benchmark of the other tree failed: {self._process.returncode}")
        return json.loads(printed)


def told(
    columns: Columns, names: Sequence[str], rows: Rows, other: Other | None, *, as_json: bool
) -> str:
    """Write what was measured: a table under its columns, or JSON; both trees if there are two.

    `names` are the titles of the parts of a row's key.
    """
    listed = [{"key": key, "values": values} for key, values in rows.items()]
    here: dict[str, Any] = {"muntin": muntin.__version__, "rows": listed}
    there = other.result() if other else None
    if as_json:
        return json.dumps({**here, "beside": there} if there else here, indent=1)
    if there is None:
        return _table(columns, names, rows, None)
    before = {tuple(row["key"]): row["values"] for row in there["rows"]}
    head = f"Muntin {there['muntin']} of the other tree → {here['muntin']} of this one"
    return f"{head}\n{_table(columns, names, rows, before)}"


def _table(columns: Columns, names: Sequence[str], rows: Rows, before: Rows | None) -> str:
    lines = [[*names, *(title for title, _ in columns.values())]]
    for key, values in rows.items():
        earlier = before.get(key, {}) if before is not None else None
        cells = [
            _written(values.get(name), form)
            if earlier is None
            else _compared(earlier.get(name), values.get(name), form)
            for name, (_, form) in columns.items()
        ]
        lines.append([*key, *cells])
    return _aligned(lines, len(names))


def _written(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _compared(before: float | None, after: float | None, form: str) -> str:
    """Write two values and their difference; shares differ in points."""
    if before is None or after is None:
        known = before is not None or after is not None
        both = (_written(each, form) or "none" for each in (before, after))
        return " → ".join(both) if known else ""
    shares = form.endswith("%}")
    signed = "{:+.1f}" if shares else form.replace(":", ":+")
    change = signed.format((after - before) * (100 if shares else 1))
    same = not change.strip("+-0.,")
    here = _written(after, form)
    return here if same else f"{_written(before, form)} → {here} ({change})"


def _aligned(lines: Iterable[Sequence[str]], left: int) -> str:
    """Write a table for a terminal; the first columns are aligned to the left."""
    items = list(lines)
    widths = [max(map(len, column)) for column in zip(*items, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in items
    )
