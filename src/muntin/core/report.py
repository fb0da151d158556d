"""The report: a receipt for every token, as values, as JSON and as a table.

Owns how decisions are reported, and how a table is laid out as text. Takes no decision.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from muntin.core.tool_marks import TOOL_INDEX
from muntin.errors import InvalidInput

Status: TypeAlias = Literal["kept", "trimmed", "short", "stubbed", "dropped", "excluded", "empty"]

# The columns of a report's table, and which of them hold numbers.
COLUMNS = ("slot", "status", "kept", "asked", "messages", "priority", "floor", "cap", "why")
NUMBERS = range(2, 8)
NOTHING = "-"
# A provider counts a little differently: a smaller difference is not reported.
_NEAR, _FEW = 0.05, 128


class Decision(NamedTuple):
    """What became of one group of messages of a slot.

    `first` is the index of its first message in the slot, `count` how many messages it has.
    `rank` says when it was cut: 1 was cut first. `fits_with` stands in reports of 0.2; now
    `Window.fits_with` answers how many more tokens would keep a message.
    """

    first: int
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    status: Status
    reason: str | None = None
    tokens_asked: int = 0
    tokens_kept: int = 0
    rank: int | None = None
    fits_with: int | None = None


@dataclass(frozen=True, slots=True)
class SlotReport:
    """What became of one slot. `index` is its place in the order of `add` calls."""

    name: str
    index: int
    status: Status
    reason: str | None
    detail: str | None
    priority: int
    tier: str | None
    floor: int
    cap: int | None
    tokens_asked: int
    tokens_kept: int
    asked_is_estimate: bool
    messages_asked: int
    messages_kept: int
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class NotCarried:
    """A part of the window that a provider's request could not carry.

    `message` is the index of the message in the window; None if the part is not in a message.
    """

    provider: str
    message: int | None
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Where this window differs from the turn before, although it was expected not to.

    `message` is the first message that differs, in the order of sending; `slot` the slot that
    caused it (`(tools)` for tool schemas); `tokens` were expected to be shared, and are not. The
    `reason` is `moved`, `trimmed`, `lost` (the message at the frontier is gone), `added`,
    `absent`, `tools` or `changed`.
    """

    message: int
    slot: str
    reason: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Reported:
    """The provider's own numbers for the request: the tokens of its input, and how many of them it
    read from its cache and wrote to its cache."""

    input: int
    read: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """The size of a request three times: as it is counted here, as the provider is expected to
    count it, and as the provider has reported it; None until then. `over_limit` names the limit of
    the provider, other than tokens, that what must stay exceeds."""

    counted: int
    estimated: int
    reported: int | None = None
    over_limit: str | None = None


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of the request as it is sent, and how much of it a cache may find.

    `hash` is of the whole request. `tokens` is the beginning shared with the request before, as far
    as a cache can read it: 0 if it is below the provider's minimum, or there was no request before;
    `share` is its part of the window. `expected` is the beginning that the next request is expected
    to share. `unstable` are slots whose tier says stable but whose content changed since the turn
    before. `reported` are the provider's numbers, None before it has answered.
    """

    hash: str
    tokens: int
    share: float
    moved: Moved | None = None
    unstable: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    expected: int = 0
    reported: Reported | None = None


ToolStatus: TypeAlias = Literal["declared", "found", "carried", "listed", "hidden"]
TOOL_STATUSES: tuple[ToolStatus, ...] = ("declared", "found", "carried", "listed", "hidden")


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What became of one tool, where there are toolboxes; in a stored report of `count` tools of a
    toolbox that are listed or hidden.

    A tool is declared in the request, found (a result in the window loads it), carried (loaded by a
    block in front of the history), listed by name in the index, or hidden. `reason` is `own`,
    `pinned`, `fits`, `query`, `called` or `over_share`. `query` found it, in the result at the
    message `step` of the window. `fits_with` is the input budget at which it would be declared,
    None if no budget would do.
    """

    name: str
    box: str
    status: ToolStatus
    reason: str
    rung: str | None = None
    tokens: int = 0
    tokens_asked: int = 0
    query: str | None = None
    step: int | None = None
    calls: int = 0
    fits_with: int | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """Where every token of a window went.

    `tokens` is the expected input: the sum of the tokens of all slots, `tools_tokens`,
    `joined_tokens` (added by joining texts: separators, the message around them, tokens that merge
    at a seam), `lead_tokens` (the user message that some providers want first), `answer_tokens`
    (the frame of the answer) and `provider_tokens` (what the provider adds, or counts otherwise).
    `not_carried` lists what the requests of this window so far could not carry. `input_cut` says
    that the current input was too long and lost its middle. `prefix` is None if the profile does
    not price caching and no window before is known. `warnings` are what the author may want to
    change. `tools` says what became of every tool, if there are toolboxes.
    """

    slots: tuple[SlotReport, ...]
    counts: Counts
    budget: int
    fallback: bool = False
    over_budget: bool = False
    input_cut: bool = False
    tools_tokens: int = 0
    joined_tokens: int = 0
    lead_tokens: int = 0
    answer_tokens: int = 0
    tokenizer: str = ""
    not_carried: tuple[NotCarried, ...] = ()
    prefix: Prefix | None = None
    warnings: tuple[str, ...] = ()
    tools: tuple[ToolOutcome, ...] = ()

    @property
    def tools_asked(self) -> int:
        """The tokens of the schemas of all tools, those in `tools`."""
        return sum([tool.tokens_asked for tool in self.tools])

    def __getitem__(self, name: str) -> SlotReport:
        """Return the report of the slot with this name; of several, the first."""
        for slot in self.slots:
            if slot.name == name:
                return slot
        names = ", ".join(repr(slot.name) for slot in self.slots) or "none"
        raise InvalidInput(f"the report has no slot {name!r}; its slots: {names}")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values; the keys are stable."""
        values = _values(self)
        del values["slots"], values["counts"]
        slots = tuple(
            {**_values(slot), "decisions": tuple(decision._asdict() for decision in slot.decisions)}
            for slot in self.slots
        )
        data: dict[str, Any] = {"slots": slots, "tokens": self.tokens, **values}
        data["not_carried"] = tuple(map(_values, self.not_carried))
        data["tools"] = tuple(map(_values, self.tools))
        if not self.tools:
            del data["tools"]
        if self.prefix is not None:
            data["prefix"] = _values(self.prefix)
            for name in ("moved", "reported"):
                value = getattr(self.prefix, name)
                if value is not None:
                    data["prefix"][name] = _values(value)
        data["counts"] = _values(self.counts)
        return data

    def __str__(self) -> str:
        share = f" ({self.tokens / self.budget:.0%})" if self.budget else ""
        flags = ", over budget" * self.over_budget + ", floors ignored" * self.floors_ignored
        flags += ", input cut" * self.input_cut
        sizes = f"{self.tokens:,} of {self.budget:,} tokens{share}{flags}"
        lines = [f"{sizes}, counted by {self.tokenizer}", ""]
        lines += text_table([COLUMNS, *self.rows()], NUMBERS)
        if self.tools:
            lines += ["", tool_words(self)]
        about = list(count_words(self))
        lines += ["", *about] if about else []
        if self.not_carried:
            lines += ["", "not carried"]
        for entry in self.not_carried:
            where = "" if entry.message is None else f" message {entry.message}:"
            lines.append(_escape(f"  {entry.provider}:{where} {entry.what}: {entry.reason}"))
        if self.prefix is not None:
            about = list(_prefix_lines(self.prefix))
            lines += ["", *about] if about else []
        if self.warnings:
            lines += ["", *map(_escape, self.warnings)]
        return "\n".join(lines)

    @property
    def tokens(self) -> int:
        """The expected input of the request."""
        return self.counts.estimated

    @property
    def over_limit(self) -> str | None:
        """The limit of the provider that the request exceeds, in bytes, images or messages."""
        return self.counts.over_limit

    @property
    def provider_tokens(self) -> int:
        """What the provider adds to the counted tokens; negative if it counts fewer."""
        return self.counts.estimated - self.counts.counted

    @property
    def floors_ignored(self) -> bool:
        """Whether floors were declared and could not be kept."""
        return self.fallback and any(slot.floor for slot in self.slots)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table, under `COLUMNS`: the slots, then the rest."""
        rows = [_row(slot) for slot in self.slots]
        for name in ("tools", "joined", "lead", "answer", "provider"):
            tokens = getattr(self, f"{name}_tokens")
            if tokens:
                rows.append((f"({name})", "kept", f"{tokens:,}", f"{tokens:,}", *[NOTHING] * 5))
        return rows


# A report of at most so many decisions is stored unchanged; in a longer one, decisions of this many
# tokens are not joined.
SHORT, _LARGE = 100, 4_096


def in_ranges(report: Report) -> Report:
    """Return a long report in its stored form: neighbours with one fate become one decision."""
    if report.tools:
        report = replace(report, tools=tuple(joined_tools(report.tools)))
    if sum(len(slot.decisions) for slot in report.slots) <= SHORT:
        return report
    slots = [replace(slot, decisions=tuple(ranges(slot.decisions))) for slot in report.slots]
    return replace(report, slots=tuple(slots))


def ranges(decisions: Sequence[Decision]) -> Iterator[Decision]:
    """Yield decisions; neighbours with one fate become one.

    Their tokens are added up; the rank is the first of them.
    """
    start = 0
    for place in range(1, len(decisions)):
        one, other = decisions[place - 1], decisions[place]
        if not (
            one.first + one.count == other.first
            and one.status == other.status
            and one.reason == other.reason
            and other.tokens_asked < _LARGE
            and (place - start > 1 or one.count > 1 or one.tokens_asked < _LARGE)
        ):
            yield _join_decisions(decisions[start:place])
            start = place
    if decisions:
        yield _join_decisions(decisions[start:])


def joined_tools(tools: Iterable[ToolOutcome]) -> Iterator[ToolOutcome]:
    """Yield what became of tools; those of a toolbox that are not loaded become one."""
    joined: dict[tuple[str, ToolStatus], ToolOutcome] = {}
    for tool in tools:
        if tool.status not in ("listed", "hidden"):
            yield tool
            continue
        first = joined.get((tool.box, tool.status))
        joined[tool.box, tool.status] = replace(
            first or tool,
            name="",
            tokens_asked=tool.tokens_asked + (first.tokens_asked if first else 0),
            count=tool.count + (first.count if first else 0),
        )
    yield from joined.values()


def _join_decisions(alike: Sequence[Decision]) -> Decision:
    one, last = alike[0], alike[-1]
    if one is last:
        return one
    return Decision(
        one.first,
        last.first + last.count - one.first,
        one.status,
        one.reason,
        sum([decision.tokens_asked for decision in alike]),
        sum([decision.tokens_kept for decision in alike]),
        min([rank for decision in alike if (rank := decision.rank) is not None], default=None),
    )


def _values(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _names(value.__class__)}


@cache
def _names(kind: type[Any]) -> list[str]:
    return [spec.name for spec in fields(kind)]


def _prefix_lines(prefix: Prefix) -> Iterable[str]:
    """Say how much is shared with the request before, what moved it, and what the provider read."""
    yield from prefix_words(prefix)
    if prefix.moved is not None:
        moved = prefix.moved
        slot = _escape(moved.slot)
        yield (
            f"the prefix moved at message {moved.message}: slot {slot} ({moved.reason}), "
            f"{moved.tokens:,} tokens less than expected"
        )
    for slot in prefix.unstable:
        yield f"slot {_escape(slot)} claims to be stable, but changed since the turn before"
    for warning in prefix.warnings:
        yield _escape(warning)


def prefix_words(prefix: Prefix) -> Iterable[str]:
    """Say how much of a request is shared with the one before, and how much the provider read."""
    if prefix.tokens:
        yield f"shared with the request before: {prefix.tokens:,} tokens ({prefix.share:.0%})"
    elif prefix.moved is not None:
        yield "shared with the request before: nothing that a cache could read"
    if prefix.expected:
        coming = f"{prefix.expected:,} tokens, prefix {prefix.hash}"
        yield f"the next request is expected to share: {coming}"
    if prefix.reported is not None:
        yield reported_words(prefix.tokens, prefix.reported)


def tool_words(report: Report) -> str:
    """Say in a line how many tools are declared, found, carried and listed."""
    counts = []
    for status in TOOL_STATUSES:
        count = sum([tool.count for tool in report.tools if tool.status == status])
        if count or status == "declared":
            counts.append(f"{count:,} {status}")
    return f"tools: {', '.join(counts)}; all would be {report.tools_asked:,} tokens"


def count_words(report: Report) -> Iterable[str]:
    """Say how many tokens were counted, expected and reported, where these are not the same."""
    counts = report.counts
    if {counts.estimated, counts.reported} <= {counts.counted, None}:
        return
    words = f"counted {counts.counted:,} tokens, expected {counts.estimated:,}"
    yield words if counts.reported is None else f"{words}, reported {counts.reported:,}"


def level_words(report: Report) -> Iterable[str]:
    """Say how much of the past is shown shorter, and whether a summary stands in front of it."""
    decisions = [decision for slot in report.slots for decision in slot.decisions]
    statuses = [decision.status for decision in decisions]
    counts = [f"{statuses.count(s):,} {s}" for s in ("short", "stubbed") if s in statuses]
    if counts:
        yield f"groups of calls and results: {', '.join(counts)}"
    for decision in decisions:
        if decision.reason == "summary" and not decision.count:
            tokens = decision.tokens_kept
            yield f"a summary of {tokens:,} tokens stands in front of the history"


def reported_words(shared: int, reported: Reported) -> str:
    """Compare the tokens that the provider read from its cache with the shared tokens."""
    words = f"the provider read {reported.read:,} of {reported.input:,} tokens from its cache"
    missing = shared - reported.read
    if not shared or abs(missing) <= max(_NEAR * shared, _FEW):
        return words
    if missing < 0:
        return f"{words}, {-missing:,} more than are shared with the request before"
    return f"{words}: {missing:,} that are shared with the request before were not read"


def _row(slot: SlotReport) -> tuple[str, ...]:
    about = "~" if slot.asked_is_estimate else ""
    why = slot.reason or ""
    if why and slot.detail is not None:
        why = f"{why}: {slot.detail}"
    elif slot.name == TOOL_INDEX and slot.detail is not None:
        why = slot.detail
    return (
        slot.name,
        slot.status,
        f"{slot.tokens_kept:,}",
        f"{about}{slot.tokens_asked:,}",
        f"{slot.messages_kept:,}/{slot.messages_asked:,}",
        str(slot.priority),
        f"{slot.floor:,}" if slot.floor else NOTHING,
        NOTHING if slot.cap is None else f"{slot.cap:,}",
        why,
    )


def text_table(rows: Sequence[Sequence[str]], numbers: Container[int]) -> Iterable[str]:
    """Lay out rows in columns under the first row; the columns `numbers` are right-aligned."""
    rows = [[_escape(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - _width(cell))
            cells.append(blank + cell if i in numbers else cell + blank)
        yield "  ".join(cells).rstrip()
        if number == 0:
            yield "  ".join("-" * width for width in widths)


def _escape(cell: str) -> str:
    """Write line ends and control characters as escapes, so that a row stays one line."""
    if cell.isprintable():
        return cell
    characters = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in cell)
    return "".join(characters)


def _width(cell: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if cell.isascii():
        return len(cell)
    marks = sum(unicodedata.combining(c) != 0 for c in cell)
    return len(cell) - marks + sum(unicodedata.east_asian_width(c) in "WF" for c in cell)
