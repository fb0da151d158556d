"""Markers: the line that says what was cut of a source, and how to read the missing part.

Values, so that a kept plan can write the same line again. Built from positions and content hashes:
the same state gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from muntin.core.checks import compact_json
from muntin.core.cutting import Keep
from muntin.core.planning.slot import Cut


@dataclass(frozen=True, slots=True)
class Earlier:
    """The marker of a list of messages.

    `size` and `snapshot` are of the whole list, where it is kept; `first` is where a timeline
    begins; `beyond` older messages were not even declared.
    """

    name: str
    size: int
    snapshot: str
    first: int | None
    beyond: int = 0

    def __call__(self, cut: Cut) -> str:
        """Say which messages are missing."""
        if self.first is not None and cut.last_at is not None:
            last = int(cut.last_at)
            return (
                f"[{self.name}: items {self.first} to {last} are not shown; "
                f"load_timeline_range({self.first}, {last}) reads them]"
            )
        line = f"{self.name}: {cut.messages + self.beyond} earlier messages are not shown"
        if self.snapshot:
            line += (
                f'; load_source_range("{self.name}", 0, {self.size}, "{self.snapshot}") reads all'
            )
        return f"[{line}]"


@dataclass(frozen=True, slots=True)
class Rest:
    """The marker of a text of `size` characters, of which `given` were declared.

    Without a `snapshot` the text is not kept, and the rest cannot be read.
    """

    name: str
    size: int
    given: int
    keep: Keep
    snapshot: str

    def __call__(self, cut: Cut) -> str:
        """Say which characters are missing."""
        missing = cut.characters + self.size - self.given
        start, end = (self.size - missing, self.size) if self.keep == "head" else (0, missing)
        line = f"{self.name}: characters {start} to {end} are not shown"
        if self.snapshot:
            line += (
                f'; load_source_range("{self.name}", {start}, {end}, "{self.snapshot}") reads them'
            )
        return f"[{line}]"


@dataclass(frozen=True, slots=True)
class EntryRest:
    """The marker of a context entry of `size` characters, inserted at a position.

    `loads` says that the agent has the tool that reads the entry.
    """

    id: str
    size: int
    position: int
    loads: bool = True

    def __call__(self, cut: Cut) -> str:
        """Say which characters are missing."""
        id = compact_json(self.id)
        line = f"entry {id}: characters {self.size - cut.characters} to {self.size} are not shown"
        if self.loads:
            line += f"; load_context_history({id}, {self.position}) reads it"
        return f"[{line}]"


@dataclass(frozen=True, slots=True)
class InputRest:
    """The marker of an input that is cut.

    `kept` are the position, the size and the snapshot of each of its texts.
    """

    kept: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", tuple(map(tuple, self.kept)))

    def __call__(self, cut: Cut) -> str:
        """Say how much is missing, and how to read the whole."""
        if cut.messages > 1:
            return f"[{cut.messages:,} messages, {cut.characters:,} characters, are left out here]"
        line = f"{cut.characters:,} characters of this message are left out here"
        for at, size, snapshot in self.kept:
            if at == cut.last_at or len(self.kept) == 1:
                line += f'; load_source_range("input", 0, {size}, "{snapshot}") reads all of it'
                break
        return f"[{line}]"


Made: TypeAlias = Earlier | Rest | EntryRest | InputRest
_MARKERS = (Earlier, Rest, EntryRest, InputRest)
_KINDS: dict[str, type[Made]] = {marker.__name__: marker for marker in _MARKERS}


def write_marker(marker: object) -> dict[str, Any] | None:
    """Return a marker of Muntin's as JSON; None for a caller's function: it cannot be written."""
    if not isinstance(marker, _MARKERS):
        return None
    return {"kind": type(marker).__name__, **asdict(marker)}


def read_marker(written: Mapping[str, Any]) -> Made:
    """Return the marker that was written."""
    values = dict(written)
    return _KINDS[values.pop("kind")](**values)
