"""Items: the records of a timeline, and the turns they belong to.

Values only. A `Draft` is to be appended; an `Item` was appended and has a position.
Knows nothing of how items are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from muntin.core.checks import check_size, check_text, copy_json, shown
from muntin.core.message import Message, Role, characters_of
from muntin.core.parts import Part
from muntin.core.usage import AgentCost, SessionUsage, Usage, cost_in
from muntin.errors import InvalidInput, InvalidType, error_fact, error_text

Kind: TypeAlias = Literal[
    "message",
    "tool_call",
    "tool_result",
    "reasoning",
    "run",
    "wake",
    "signal",
    "context_inserted",
    "context_removed",
    "error",
    "summary",
]
# The key under which an error keeps the text for the model, if that is not its payload.
FACT = "fact"
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]
# The kinds that are messages of a conversation; the others hold a payload.
SPOKEN: tuple[Kind, ...] = ("message", "tool_call", "tool_result", "reasoning")

Status: TypeAlias = Literal["pending", "open", "completed", "failed"]
STATUSES: tuple[Status, ...] = Status.__args__  # type: ignore[attr-defined]
UNSETTLED: tuple[Status, ...] = ("open", "pending")
# Why a content is kept: for the plans of reports, or as the original of a source.
ContentKind: TypeAlias = Literal["report", "source"]
# The frontier of the newest window of a line and the state of its summaries; the usage of failed
# summaries; parts of the recall index; the changes to standing wishes; the frontier of a recorder's
# newest request, its steps, and the digest of its past, by which it is found, with the digest of
# its answer; texts for one turn that stay in requests, by their digests.
NoteKind: TypeAlias = Literal[
    "frontier",
    "summary",
    "failed_summary_usage",
    "recall_segment",
    "recall_vectors",
    "standing",
    "recorder_frontier",
    "recorder_steps",
    "recorder_past",
    "cleared",
    "spent",
]
# The part of a timeline that is read: everything, or what the client or the model may see.
View: TypeAlias = Literal["all", "client", "history"]
# The kind of a note, and its name among the notes of its kind.
NoteKey: TypeAlias = tuple[NoteKind, str]
# The note that keeps the usage of the summaries that failed.
FAILED_SUMMARY_USAGE: NoteKey = ("failed_summary_usage", "")
# How an item may begin a turn: `turn` is worked on at once, `inbox` waits for its wake, `queue`
# waits behind earlier turns.
Opens: TypeAlias = Literal["turn", "inbox", "queue"]
OPENS: tuple[Opens, ...] = Opens.__args__  # type: ignore[attr-defined]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# An id is an index key: PostgreSQL takes at most 2,704 bytes of one.
MAX_ID = 500
# The largest count and position: a float, and so every JSON reader, still tells them apart.
MOST = 2**53


@dataclass(frozen=True, slots=True)
class Visibility:
    """Who sees an item: the client's view of the session, and the model's history."""

    client: bool = True
    history: bool = True


VISIBLE = Visibility()


@dataclass(frozen=True, slots=True)
class Draft:
    """An item to be appended: a message, or the payload of another kind of item.

    `opens` begins a turn, `turn` names one (else the newest), `ends` settles it afterwards.
    `run` is the position of the run that the item is part of. `meta` holds other facts about the
    item (who sent it, what an answer cost). `tokens` are counts by tokenizer, `weight` is what the
    item adds to the running sum.
    """

    kind: Kind
    message: Message | None = None
    payload: Any = None
    run: int | None = field(default=None, kw_only=True)
    time: datetime | None = field(default=None, kw_only=True)
    visibility: Visibility = field(default=VISIBLE, kw_only=True)
    transient: bool = field(default=False, kw_only=True)
    meta: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    opens: Opens | None = field(default=None, kw_only=True)
    turn: int | None = field(default=None, kw_only=True)
    ends: Status | None = field(default=None, kw_only=True)
    tokens: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    weight: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput(f"unknown kind {shown(self.kind)} of item; use {', '.join(KINDS)}")
        what = f"a {self.kind} item"
        if self.message is not None:
            if not isinstance(self.message, Message):
                raise InvalidType(f"{what} needs a Message, not {shown(self.message)}")
            if self.kind not in SPOKEN or self.payload is not None:
                raise InvalidInput(f"{what} holds a payload or a message, not both")
        elif self.kind in SPOKEN and (self.kind != "message" or self.payload is None):
            raise InvalidInput(f"{what} needs a message")
        elif self.payload is not None:
            object.__setattr__(self, "payload", _plain_json(self.payload, f"payload of {what}"))
        if self.meta:
            object.__setattr__(self, "meta", _plain_json(self.meta, f"meta of {what}"))
        if not isinstance(self.visibility, Visibility):
            raise InvalidType(
                f"{what}: visibility must be a Visibility, not {shown(self.visibility)}"
            )
        if self.time is not None:
            object.__setattr__(self, "time", _check_time(self.time, what))
        if self.ends is not None and self.ends not in STATUSES:
            raise InvalidInput(
                f"unknown status {shown(self.ends)} of a turn; use {', '.join(STATUSES)}"
            )
        if self.opens is not None and self.opens not in OPENS:
            raise InvalidInput(f"{what}: opens must be {', '.join(OPENS)}, not {shown(self.opens)}")
        for name, value in (("run", self.run), ("turn", self.turn), ("weight", self.weight)):
            if value is not None and not (type(value) is int and 0 <= value < MOST):
                raise _beyond(value, f"{what}: {name}")
        object.__setattr__(self, "tokens", dict(self.tokens))
        for name, value in self.tokens.items():
            if not (type(value) is int and 0 <= value < MOST):
                raise _beyond(value, f"{what}: tokens[{name!r}]")


def _beyond(value: object, what: str) -> InvalidInput:
    """Return the error for a value that is no number, or that no store can keep."""
    try:
        check_size(value, what)
    except InvalidInput as error:
        return error
    return InvalidInput(f"{what} is {value}, which is beyond any timeline")


def _plain_json(value: object, what: str) -> Any:
    """Return a payload as it will be read back: a tuple becomes a list in JSON."""
    if value.__class__ is str:
        return value
    if value.__class__ is dict and not value:
        return {}
    return copy_json(value, what, as_read=True)


def _check_time(value: object, what: str) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is UTC:
        return value
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(f"{what}: time must be a datetime with a time zone, not {shown(value)}")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{what}: the time {shown(value)} is out of range") from None


@dataclass(frozen=True, slots=True)
class Item:
    """One record of a timeline; its position never changes.

    `items` are the children of a run where it is projected, else empty.
    """

    position: int
    kind: Kind
    turn: int
    message: Message | None = None
    payload: Any = None
    run: int | None = field(default=None, kw_only=True)
    time: datetime = field(default=EPOCH, kw_only=True)
    visibility: Visibility = field(default=VISIBLE, kw_only=True)
    transient: bool = field(default=False, kw_only=True)
    meta: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)
    tokens: Mapping[str, int] = field(default_factory=dict, kw_only=True, compare=False)
    items: tuple[Item, ...] = field(default=(), kw_only=True, compare=False)

    @property
    def role(self) -> Role | None:
        """Who speaks, where the item is a message."""
        if self.message is not None:
            return self.message.role
        return "user" if self.kind == "message" else None

    @property
    def content(self) -> str | tuple[Part, ...] | Any:
        """The content of the message, or the payload."""
        return self.message.content if self.message is not None else self.payload


def is_plain(item: Item) -> bool:
    """Say whether `own_item` copies every part of an item that can be changed."""
    for entry in item.meta.values():  # such as what an answer cost
        values = entry.values() if isinstance(entry, dict) else (entry,)
        if any(isinstance(value, dict | list) for value in values):
            return False
    if item.message is not None:
        return characters_of(item.message) is not None
    return item.payload is None or item.payload == {}  # a run: most have no label


def own_item(item: Item) -> Item:
    """Return a copy of a plain item whose values the reader may change."""
    meta = item.meta
    if meta:
        meta = {
            key: dict(value) if value.__class__ is dict else value for key, value in meta.items()
        }
    return Item(
        item.position,
        item.kind,
        item.turn,
        item.message,
        None if item.payload is None else {},
        run=item.run,
        time=item.time,
        visibility=item.visibility,
        transient=item.transient,
        meta=meta or {},
        tokens=dict(item.tokens),
    )


def unshared(item: Item) -> Item:
    """Return a copy of an item that a store shares, for the reader alone; an item that is not plain
    is never shared, and is returned as it is."""
    return own_item(item) if is_plain(item) else item


@dataclass(frozen=True, slots=True)
class Turn:
    """One user request and all that followed it.

    `pending` waits for its wake, `open` is in flight. `owner` says which process works on it,
    `until` when the lease ends unless it is renewed, by the store's clock. A `resumable` turn is
    resumed when its owner died; any other turn is failed.

    `attempt` is how often the turn was taken, `progress` the last attempt that got further: it
    wrote something new. `returned` is how often the turn was handed back since. A turn is not taken
    again before `after`. `reason` says why a turn failed, where the runtime ended it: "cancelled",
    "abandoned" or "gave_up".
    """

    number: int
    status: Status
    first: int
    owner: str | None = None
    until: datetime | None = None
    resumable: bool = False
    attempt: int = 0
    returned: int = 0
    after: datetime | None = None
    reason: str | None = None
    progress: int = 0

    @property
    def tries(self) -> int:
        """How often the turn was taken since it last got further, and not handed back."""
        return self.attempt - self.progress - self.returned


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write into a turn: its owner, and the attempt for which it was taken.

    A store refuses writes of an older attempt. `attempt` is None for a turn that the owner has
    begun and not taken yet. The lease ends this long from now, by the store's clock; None means
    that it does not end.
    """

    owner: str
    attempt: int | None = None
    lease: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many turns wait and how many are worked on; since when the oldest waits.

    `messages` wait in the inbox, where one session was asked about.
    """

    waiting: int = 0
    running: int = 0
    since: datetime | None = None
    messages: int = 0


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What a store knows about a session without reading it."""

    id: str
    items: int
    turns: int
    created: datetime
    updated: datetime


@dataclass(frozen=True, slots=True)
class Record:
    """The kept report of one composed window, and the plan to compose it again.

    Both are JSON. The plan names contents by hash.
    """

    turn: int
    step: int
    time: datetime
    report: str
    plan: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted: how many reports, and how many bytes with their contents."""

    reports: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SideWrites:
    """Data kept beside a timeline, written alone or with an append.

    `names` are all contents that the plan of the report `record` needs: they are kept as long as
    one of the newest `keep` reports names them. `contents` are the contents that the store may not
    have yet. `originals` are the sources of a turn; originals first kept before the turn `forget`
    are deleted. `notes` replace the notes of the same kind and name; None deletes one. `seen` are
    the notes that this was made from, as they were read; None for a missing one. If one of them
    has changed since, nothing is written (`Overtaken`). `check` is called in the transaction, with
    a function that returns the sessions at a past and the texts of their notes; if it raises,
    nothing is written either. `counts` are token counts, by position and tokenizer, of items
    already appended.
    """

    record: Record | None = None
    contents: Mapping[str, str] = field(default_factory=dict)
    names: Collection[str] = ()
    keep: int = 0
    turn: int = 0
    originals: Mapping[str, str] = field(default_factory=dict)
    forget: int = 0
    notes: Mapping[NoteKey, str | None] = field(default_factory=dict)
    seen: Mapping[NoteKey, str | None] = field(default_factory=dict)
    check: Callable[[Callable[[str], list[Any]]], None] | None = None
    counts: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


def draft_of(message: Message, **fields: Any) -> Draft:
    """Return a message as a draft of its kind."""
    kind: Kind = "message"
    if message.role == "tool":
        kind = "tool_result"
    elif message.tool_calls:
        kind = "tool_call"
    return Draft(kind, message if message.at is None else replace(message, at=None), **fields)


def error_draft(error: BaseException, before: str = "") -> Draft:
    """Return an error as an item: the payload is for people, the fact in `meta` for the model."""
    text, fact = error_text(error), error_fact(error)
    meta = {} if fact == text else {FACT: before + fact}
    return Draft("error", payload=before + text, meta=meta)


def usage_of(items: Iterable[Item]) -> SessionUsage:
    """Return what answers and summaries among these items cost."""
    summaries = Usage()
    agents: dict[int, str] = {}
    by_agent: dict[str, AgentCost] = {}
    for item in items:
        if item.kind == "summary" and isinstance(item.payload, Mapping):
            summaries += Usage.from_dict(item.payload.get("usage"))
        elif item.kind == "run":
            label = item.payload if isinstance(item.payload, Mapping) else {}
            agents[item.position] = str(label.get("generator", ""))
        if item.kind != "summary" and "usage" in item.meta:
            used, name = item.meta["usage"], agents.get(item.run or 0, "")
            before = by_agent.get(name, AgentCost(Usage(), Decimal(0)))
            by_agent[name] = AgentCost(
                before.usage + Usage.from_dict(used), before.cost + cost_in(used)
            )
    parts = by_agent.values()
    answers = sum([part.usage for part in parts], Usage())
    cost = sum([part.cost for part in parts], Decimal(0))
    return SessionUsage(answers, summaries, cost, by_agent)


def check_session_id(value: object) -> str:
    """Return a session id that every store can keep; refuse others, saying why."""
    return check_id(value, "a session id")


def check_id(value: object, what: str) -> str:
    """Return an id that every store can keep; refuse others, saying why."""
    if not isinstance(value, str) or not value.isascii():
        value = check_text(value, what)
    if not value:
        raise InvalidInput(f"{what} must not be empty")
    if len(value) > MAX_ID:
        raise InvalidInput(f"{what} has {len(value):,} characters; at most {MAX_ID} are kept")
    if "\x00" in value:
        raise InvalidInput(f"{what} must not hold a NUL character: {shown(value)}")
    return value
