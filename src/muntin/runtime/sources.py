"""Sources: what `use_context` declares, how it is resolved, and the slots it becomes.

Resolving runs users' functions beside each other, each with a timeout: one that fails costs only
itself. Trimming, sharing and ordering are the engine's; here only slots are declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Literal, TypeAlias

from muntin.calls import arity
from muntin.core.checks import check_text, digest
from muntin.core.message import Message, as_message
from muntin.core.parts import compact_json
from muntin.core.planning.cut import Keep
from muntin.core.planning.markers import Earlier, Rest
from muntin.core.planning.slot import CONTEXT, HISTORY, TIERS, Group, Tier, Trimming
from muntin.core.planning.slots import Slots
from muntin.errors import InvalidInput, InvalidType
from muntin.prompts.contexts import Context
from muntin.prompts.definition import text_of
from muntin.threads import in_thread
from muntin.timeline.past import TimelineMessages

Place: TypeAlias = Literal["wake", "before"]

TIMEOUT = 30.0
# No token has more characters than this: what is longer than its tokens could be is cut before
# anyone counts it.
LONGEST_TOKEN = 128
# Of a longer list only the newest are looked at, and no snapshot is kept.
MOST_MESSAGES = 10_000

_VOLATILE = Group("volatile", interleave=True, share=True)


@dataclass(frozen=True, slots=True)
class Source:
    """Something that yields content for the window, and how much of it there may be.

    `content` is a text, a list of messages, a `context`, or a function of (), (input) or
    (input, ctx), sync or async, that gives one of these. `max` is in tokens. `cache` says how
    often it changes, and so where it stands. `keep` is the end of a text that survives a cut.
    Undated content stands before the message that woke the entity; `place="before"` puts it in
    front of the conversation, where it breaks the cache whenever it changes.
    """

    content: Any
    max: int | None = field(default=None, kw_only=True)
    cache: Tier = field(default="volatile", kw_only=True)
    keep: Keep = field(default="head", kw_only=True)
    place: Place = field(default="wake", kw_only=True)
    timeout: float = field(default=TIMEOUT, kw_only=True)


@dataclass(frozen=True, slots=True)
class Sources:
    """A checked `use_context`: the budget, the sources by name, how timelines are trimmed."""

    budget: int
    by_name: Mapping[str, Source]
    trimming: Trimming | None = None


def check_sources(source_budget: object, sources: object) -> Sources:
    """Check what `use_context` was given; every error names the source."""
    if not isinstance(source_budget, int) or isinstance(source_budget, bool) or source_budget < 1:
        raise InvalidInput(f"source_budget must be a positive int, not {source_budget!r}")
    if not isinstance(sources, Mapping) or not sources:
        raise InvalidInput("use_context needs at least one source, by name")
    checked = {}
    for name, source in sources.items():
        what = f"source {check_text(name, 'the name of a source')!r}"
        checked[name] = _check(source if isinstance(source, Source) else Source(source), what)
    fixed = {n: s.max or 0 for n, s in checked.items() if s.cache != "volatile"}
    if sum(fixed.values()) > source_budget:
        each = ", ".join(f"{name!r} {most:,}" for name, most in fixed.items())
        raise InvalidInput(
            f"the sources that are not volatile may take {sum(fixed.values()):,} tokens ({each}), "
            f"but source_budget is {source_budget:,}"
        )
    return Sources(source_budget, checked)


def _check(source: Source, what: str) -> Source:
    if source.cache not in TIERS:
        raise InvalidInput(f"{what}: cache must be {', '.join(TIERS)}, not {source.cache!r}")
    if source.max is None:
        if source.cache != "volatile":
            raise InvalidInput(f"{what}: max is needed, because it is {source.cache}")
    elif not isinstance(source.max, int) or isinstance(source.max, bool) or source.max < 1:
        raise InvalidInput(f"{what}: max must be a positive int, not {source.max!r}")
    if source.keep not in ("head", "tail"):
        raise InvalidInput(f"{what}: keep must be 'head' or 'tail', not {source.keep!r}")
    if source.place not in ("wake", "before"):
        raise InvalidInput(f"{what}: place must be 'wake' or 'before', not {source.place!r}")
    if not isinstance(source.timeout, int | float) or not 0 < source.timeout < float("inf"):
        raise InvalidInput(f"{what}: timeout must be a number of seconds, not {source.timeout!r}")
    if callable(source.content) and not isinstance(source.content, Context):
        arity(source.content, what)
    return source


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a source gave: a text, messages, or why it gave nothing.

    `size` is how many characters the whole content has, `snapshot` names it, `first` is where a
    timeline begins.
    """

    name: str
    source: Source
    text: str = ""
    messages: tuple[Message, ...] = ()
    error: str | None = None
    size: int = 0
    snapshot: str = ""
    original: str | None = None
    first: int | None = None


async def load_sources(sources: Sources, input: object, ctx: Any) -> list[Loaded]:
    """Resolve all sources beside each other; one that fails tells so and harms no other."""
    return list(
        await asyncio.gather(
            *(_load(name, each, sources, input, ctx) for name, each in sources.by_name.items())
        )
    )


async def _load(name: str, source: Source, sources: Sources, input: object, ctx: Any) -> Loaded:
    try:
        async with asyncio.timeout(source.timeout) as limit:
            most = source.max or sources.budget
            given, first = await _resolve(name, source, most, input, ctx)
        return replace(_loaded(name, source, given, most), first=first)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise  # it is we who are cancelled, not the source that says so
        if isinstance(error, TimeoutError) and limit.expired():
            return Loaded(name, source, error=f"it took longer than {source.timeout:g} s")
        text = str(error).partition("\n")[0][:200]
        return Loaded(name, source, error=f"{type(error).__name__}: {text}".rstrip(": "))


async def _resolve(
    name: str, source: Source, most: int, input: object, ctx: Any
) -> tuple[Any, int | None]:
    """Return what a source gives, and where it begins if it is a timeline."""
    content = source.content
    if isinstance(content, Context):
        given = input if content.input is not None or isinstance(input, Mapping) else None
        return (await text_of(content, given, ctx)).system, None
    if isinstance(content, TimelineMessages):
        return await in_thread(lambda: _read(content, most))
    if not callable(content):
        return content, None
    values = (input, ctx)[: arity(content, f"source {name!r}")]
    if iscoroutinefunction(content):
        given = await content(*values)
    else:
        # In a thread of its own: one that hangs holds up nobody.
        given, first = await in_thread(lambda: _read(content(*values), most))
        if not isawaitable(given):
            return given, first
        given = await given
    return (
        await in_thread(lambda: _read(given, most))
        if isinstance(given, TimelineMessages)
        else (given, None)
    )


def _read(given: Any, most: int) -> tuple[Any, int | None]:
    """Read a timeline, only as far back as could be shown; anything else is there already."""
    return (
        (given.newest(most), given.first) if isinstance(given, TimelineMessages) else (given, None)
    )


def _loaded(name: str, source: Source, given: Any, most: int) -> Loaded:
    if given is None:
        return Loaded(name, source)
    if isinstance(given, str):
        check_text(given, f"source {name!r}")
        key = _hash(given)
        bound = most * LONGEST_TOKEN + 1
        cut = given[:bound] if source.keep == "head" else given[max(0, len(given) - bound) :]
        return Loaded(name, source, cut, size=len(given), snapshot=key, original=given)
    if isinstance(given, Mapping | Message):
        given = [given]
    if isinstance(given, Sequence) and not isinstance(given, bytes):
        if len(given) > MOST_MESSAGES:
            return Loaded(name, source, messages=_newest(given, most * LONGEST_TOKEN))
        messages = tuple(as_message(message) for message in given)
        if any(message.at is not None for message in messages):
            return Loaded(name, source, messages=messages)
        whole = compact_json([message.to_dict() for message in messages])
        return Loaded(
            name,
            source,
            messages=messages,
            size=len(whole),
            snapshot=_hash(whole),
            original=whole,
        )
    raise InvalidType(f"it gave a {type(given).__name__}, not a text or a list of messages")


def _newest(given: Sequence[Any], characters: int) -> tuple[Message, ...]:
    """Return the newest messages of a long list, as many as could be shown."""
    newest: list[Message] = []
    for message in reversed(given):
        newest.append(as_message(message))
        characters -= len(newest[-1].text) + 1
        if characters < 0:
            break
    return tuple(reversed(newest))


def _hash(text: str) -> str:
    return digest(text, 8)


def declare_sources(
    slots: Slots, loaded: Sequence[Loaded], entries: str, *, before: float, trimming: Trimming
) -> None:
    """Declare the slots of the sources and of the entries.

    `before` is the position of the waking message: dated messages from there on are not the
    sources' to show. `trimming` is that of timelines.
    """
    for each in loaded:
        if each.source.cache != "volatile":
            _declare(slots, each, before, trimming)
    if entries:
        slots.add(
            "entries", entries, role="system", tier="slow-changing", required=True, priority=CONTEXT
        )
    for each in loaded:
        if each.source.cache == "volatile":
            _declare(slots, each, before, trimming)


def _declare(slots: Slots, each: Loaded, before: float, trimming: Trimming) -> None:
    source = each.source
    volatile = source.cache == "volatile"
    options: dict[str, Any] = {
        "tier": source.cache,
        "priority": HISTORY if volatile else CONTEXT,
        "max_tokens": source.max,
        "group": _VOLATILE if volatile else None,
    }
    if volatile and source.place == "before":
        options["detail"] = "stands before the conversation: when it changes, the cache is lost"
    at = -1.0 if source.place == "before" else before - 0.5
    if each.error is not None:
        slots.exclude(each.name, reason="source_failed", detail=each.error)
        text = f"[source {each.name!r} could not be read]"
        note = [Message("system", text, at=at)] if volatile else text
        role: Any = None if volatile else "system"
        slots.add(each.name, note, role=role, trim_behavior="slot", changes=True, **options)
        return
    if each.messages:
        messages: Sequence[Message] = each.messages
        if volatile:
            messages = [m for m in messages if m.at is None or m.at < before]
        if volatile and not any(message.at is not None for message in messages):
            messages = [replace(message, at=at) for message in messages]
            options["changes"] = True  # no conversation: it was found for this turn
        marker = Earlier(each.name, each.size, each.snapshot, each.first)
        if each.first is not None and volatile:
            options["trimming"] = trimming
        slots.add(each.name, messages, marker=marker, **options)
    elif each.text:
        rest = Rest(each.name, each.size, len(each.text), source.keep, each.snapshot)
        options.update(trim_behavior="char", keep=source.keep, marker=rest)
        # Dated, so that it finds its place among the others.
        slots.add(each.name, each.text, role="system", at=at if volatile else None, **options)
    else:
        slots.add(each.name, None, **options)
