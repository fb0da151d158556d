"""Markers: the line that says what was cut of a source, and how to read it.

Values, so that a kept plan can write the same line again. Built from positions and content hashes:
the same state gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from muntin.core.planning.cut import Keep
from muntin.core.planning.slot import Cut


@dataclass(frozen=True, slots=True)
class Earlier:
    """The marker of a list of messages.

    `size` and `snapshot` are those of the whole list, where it is kept; `first` is where a
    timeline begins.
    """

    name: str
    size: int
    snapshot: str
    first: int | None

    def __call__(self, cut: Cut) -> str:
        """Say which messages are missing."""
        if self.snapshot:
            return (
                f"[{self.name}: {cut.messages} earlier messages are not shown; "
                f'load_source_range("{self.name}", 0, {self.size}, "{self.snapshot}") reads all]'
            )
        if cut.first_at is None or cut.last_at is None:
            return f"[{self.name}: {cut.messages} earlier messages are not shown]"
        first = int(cut.first_at) if self.first is None else self.first
        last = int(cut.last_at)
        return (
            f"[{self.name}: items {first} to {last} are not shown; "
            f"load_timeline_range({first}, {last}) reads them]"
        )


@dataclass(frozen=True, slots=True)
class Rest:
    """The marker of a text of `size` characters, of which `given` were declared."""

    name: str
    size: int
    given: int
    keep: Keep
    snapshot: str

    def __call__(self, cut: Cut) -> str:
        """Say which characters are missing."""
        missing = cut.characters + self.size - self.given
        start, end = (self.size - missing, self.size) if self.keep == "head" else (0, missing)
        return (
            f"[{self.name}: characters {start} to {end} are not shown; "
            f'load_source_range("{self.name}", {start}, {end}, "{self.snapshot}") reads them]'
        )


_KINDS = {each.__name__: each for each in (Earlier, Rest)}


def write_marker(marker: object) -> dict[str, Any] | None:
    """Return a marker of ours as JSON; that of others is a function, and cannot be written."""
    if not isinstance(marker, Earlier | Rest):
        return None
    return {"kind": type(marker).__name__, **asdict(marker)}


def read_marker(written: Mapping[str, Any]) -> Earlier | Rest:
    """Return the marker that was written."""
    values = dict(written)
    made: Earlier | Rest = _KINDS[values.pop("kind")](**values)
    return made
