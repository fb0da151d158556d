"""Sources: what `use_context` may declare, and how sources are resolved.

Resolving runs users' functions side by side, each with a timeout. A function that fails costs only
its own source.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from muntin.calls import arity, off_loop
from muntin.core.checks import (
    check_count,
    check_seconds,
    check_text,
    compact_json,
    digest,
    refuse_blank,
    shown,
)
from muntin.core.cutting import Keep
from muntin.core.forms import messages_from
from muntin.core.message import Message, as_message
from muntin.core.planning.slot import TIERS, Tier, Trimming
from muntin.core.tags import validate_tag_name
from muntin.core.tags.xml import escape_text
from muntin.errors import InvalidInput, InvalidType, NeedsConversation
from muntin.prompts.contexts import Context
from muntin.prompts.definition import text_of
from muntin.threads import in_thread
from muntin.timeline.past import TimelineMessages

SourcePlace: TypeAlias = Literal["wake", "before"]

TIMEOUT = 30.0
# No token has more characters: a text too long for its tokens is cut before it is counted.
LONGEST_TOKEN = 128
# Of a longer list only the newest messages are read, and no snapshot is kept.
MOST_MESSAGES = 10_000
# No snapshot with more characters is kept.
MOST_KEPT = 5_000_000
# Names of slots that the window of an entity has besides its sources.
RESERVED = ("system", "input", "run", "entries")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """Content for the window, and how much of it there may be.

    `content` is a text, a list of messages, a `context`, or a function of (), (input) or
    (input, ctx), sync or async, that returns one of these. `max` is in tokens. `cache` says how
    often it changes, and so where it goes. `keep` is the end of a text that survives a cut.
    Undated content comes before the message that woke the entity; `place="before"` puts it in
    front of the conversation, where each change breaks the cache. `tag` is for text from outside:
    the text is put between tags of this name, and cannot imitate a tag.
    """

    content: Any
    max: int | None = field(default=None, kw_only=True)
    cache: Tier = field(default="volatile", kw_only=True)
    keep: Keep = field(default="head", kw_only=True)
    place: SourcePlace = field(default="wake", kw_only=True)
    timeout: float = field(default=TIMEOUT, kw_only=True)
    tag: str | None = field(default=None, kw_only=True)


_OPTIONS = tuple(spec.name for spec in fields(Source))


@dataclass(frozen=True, slots=True)
class Sources:
    """A checked `use_context`: the budget, the sources by name, how timelines are trimmed."""

    budget: int
    by_name: Mapping[str, Source]
    trimming: Trimming | None = None


def check_sources(source_budget: object, sources: object) -> Sources:
    """Check the arguments of `use_context`; every error names the source."""
    budget = check_count(source_budget, "source_budget")
    if not isinstance(sources, Mapping) or not sources:
        raise InvalidInput("use_context needs at least one source, by name")
    checked = {}
    for name, source in sources.items():
        refuse_blank(check_text(name, "the name of a source"), "the name of a source")
        what = f"source {name!r}"
        if name in RESERVED:
            raise InvalidInput(f"{what}: the window has a {name!r} of its own; choose another name")
        checked[name] = _check(_source(source, what), what)
    fixed = {n: s.max or 0 for n, s in checked.items() if s.cache != "volatile"}
    if sum(fixed.values()) > budget:
        parts = ", ".join(f"{name!r} {most:,}" for name, most in fixed.items())
        raise InvalidInput(
            f"the sources that are not volatile may take {sum(fixed.values()):,} tokens ({parts}), "
            f"but source_budget is {budget:,}"
        )
    return Sources(budget, checked)


def _source(value: object, what: str) -> Source:
    """Return a source: given as it is, as a mapping of options, or as content without options."""
    if isinstance(value, Source):
        return value
    # A mapping with a role and no option of a source is a message.
    if not isinstance(value, Mapping) or ("role" in value and not {*_OPTIONS[1:]} & {*value}):
        return Source(value)
    for key in value:
        if key not in _OPTIONS:
            raise InvalidInput(f"{what}: unknown key {shown(key)}; known are {', '.join(_OPTIONS)}")
    if "content" not in value:
        raise InvalidInput(f"{what}: 'content' is missing")
    return Source(**value)


def _check(source: Source, what: str) -> Source:
    if source.cache not in TIERS:
        raise InvalidInput(f"{what}: cache must be {', '.join(TIERS)}, not {shown(source.cache)}")
    if source.max is None:
        if source.cache != "volatile":
            raise InvalidInput(f"{what}: max is needed, because it is {source.cache}")
    else:
        check_count(source.max, f"{what}: max")
    if source.keep not in ("head", "tail"):
        raise InvalidInput(f"{what}: keep must be 'head' or 'tail', not {shown(source.keep)}")
    if source.place not in ("wake", "before"):
        raise InvalidInput(f"{what}: place must be 'wake' or 'before', not {shown(source.place)}")
    check_seconds(source.timeout, f"{what}: timeout")
    try:
        tag = None if source.tag is None else validate_tag_name(source.tag)
        _check_content(source.content, what)
    except InvalidInput as error:
        message = str(error)
        raise error if message.startswith(what) else type(error)(f"{what}: {message}") from error
    return source if tag == source.tag else replace(source, tag=tag)


def _check_content(content: object, what: str) -> None:
    """Refuse content that can never be read; a timeline is not read here."""
    if content is None or isinstance(content, Context | TimelineMessages | Message):
        return
    if isinstance(content, str):
        check_text(content, "its text")
    elif callable(content):
        arity(content, what)
    elif isinstance(content, Mapping):
        as_message(content)
    elif not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise InvalidType(
            "content must be a text, a list of messages, a context or a function that gives one "
            f"of these, not {type(content).__name__}"
        )
    elif len(content) <= MOST_MESSAGES:
        for number, message in enumerate(content):
            try:
                as_message(message)
            except InvalidInput as error:
                raise type(error)(f"message {number}: {error}") from error


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a source: a text, messages, or why it gave nothing.

    `size` is how many characters the whole content has, `snapshot` names it if it can be kept.
    `first` is where a timeline begins, `plain` says that it has no projection, `beyond` is how many
    older messages were not read; `earlier` is about how many messages and tokens a timeline has
    before those that were read.
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
    plain: bool = False
    beyond: int = 0
    earlier: tuple[int, int] = (0, 0)


async def load_sources(sources: Sources, input: object, ctx: Any) -> list[Loaded]:
    """Resolve all sources side by side; a source that fails is reported, the others go on."""
    return list(
        await asyncio.gather(
            *(_load(name, source, sources, input, ctx) for name, source in sources.by_name.items())
        )
    )


async def _load(name: str, source: Source, sources: Sources, input: object, ctx: Any) -> Loaded:
    try:
        async with asyncio.timeout(source.timeout) as limit:
            most = source.max or sources.budget
            value = await _resolve(name, source, input, ctx)
            timeline = value if isinstance(value, TimelineMessages) else None
            if timeline is not None:
                value = await in_thread(partial(timeline.newest, most))
        if timeline is None:
            return _loaded(name, source, value, most)
        # Messages of the timeline can be read from the timeline.
        is_short = 0 < len(value) <= MOST_MESSAGES
        loaded = Loaded(name, source, messages=tuple(value)) if is_short else None
        loaded = loaded or _loaded(name, source, value, most)
        earlier = getattr(value, "earlier", (0, 0))
        return replace(loaded, first=timeline.first, plain=timeline.plain, earlier=earlier)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
            raise  # this task was cancelled, not the source
        if isinstance(error, TimeoutError) and limit.expired():
            reason = f"it took longer than {source.timeout:g} s"
            _log.warning("source %r of %r failed: %s", name, ctx.session.id, reason)
            return Loaded(name, source, error=reason)
        _log.warning("source %r of %r failed", name, ctx.session.id, exc_info=error)
        text = str(error).partition("\n")[0][:200]
        return Loaded(name, source, error=f"{type(error).__name__}: {text}".rstrip(": "))


async def _resolve(name: str, source: Source, input: object, ctx: Any) -> Any:
    content = source.content
    if isinstance(content, Context):
        prompt_input = input if content.input is not None or isinstance(input, Mapping) else None
        return (await text_of(content, prompt_input, ctx)).system
    if not callable(content):
        return content
    values = (input, ctx)[: arity(content, f"source {name!r}")]
    return await off_loop(content, *values)


def _loaded(name: str, source: Source, value: Any, most: int) -> Loaded:
    if value is None:
        return Loaded(name, source)
    if isinstance(value, str):
        check_text(value, f"source {name!r}")
        # A text between tags is escaped, and so is the original that can be read later.
        text = value if source.tag is None else escape_text(value)
        bound = most * LONGEST_TOKEN + 1
        cut = text[:bound] if source.keep == "head" else text[max(0, len(text) - bound) :]
        return _with_snapshot(Loaded(name, source, cut), text)
    if isinstance(value, Mapping | Message) or hasattr(value, "model_dump"):
        value = [value]
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray):
        raise InvalidType(f"it gave a {type(value).__name__}, not a text or a list of messages")
    if len(value) > MOST_MESSAGES:
        try:
            newest = _newest(value, most * LONGEST_TOKEN)
        except NeedsConversation:
            value = messages_from(value)
            newest = _newest(value, most * LONGEST_TOKEN)
        return Loaded(name, source, messages=newest, beyond=len(value) - len(newest))
    messages = tuple(messages_from(value))
    loaded = Loaded(name, source, messages=messages)
    if messages and all(
        message.item and message.at and message.item[1] >= message.at for message in messages
    ):
        return loaded  # the timeline's own messages are read from it
    whole = compact_json([message.to_dict() for message in messages])
    return _with_snapshot(loaded, whole if source.tag is None else escape_text(whole))


def _with_snapshot(loaded: Loaded, whole: str) -> Loaded:
    """Name the whole content by its snapshot, if it is kept."""
    if len(whole) > MOST_KEPT:
        return replace(loaded, size=len(whole))
    return replace(loaded, size=len(whole), snapshot=digest(whole, 8), original=whole)


def _newest(messages: Sequence[Any], characters: int) -> tuple[Message, ...]:
    """Return the newest messages of a long list, as many as could be shown."""
    newest: list[Message] = []
    for message in reversed(messages):
        newest.append(as_message(message))
        characters -= len(newest[-1].text) + 1
        if characters < 0:
            break
    return tuple(reversed(newest))
