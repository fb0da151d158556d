"""Shared by the requests of all APIs: the parts of a request, reading that never fails, marks.

Knows no vendor's format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from muntin.core.checks import shown
from muntin.core.message import Message
from muntin.core.window import Breakpoint
from muntin.errors import InvalidInput, MuntinError
from muntin.wire.common import as_text, clean
from muntin.wire.pieces import Fitted, Piece

Body: TypeAlias = Mapping[str, Any]

# Why a request that asks its provider to compact the conversation is sent unchanged.
ASKS = "it asks the provider to compact the conversation ({!r})"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to be fitted: its messages, also as pieces, and the texts before them.

    `model` is named like `openai/gpt-4o`. `user` is the user that the request names. `output` is
    the schema of the answer. `passes` says why the request is to be sent unchanged; None if it is
    to be fitted. `held` names the parameter that says that the provider holds the past. `remark`
    is what is wrong with the request, and stays so. If it `folds`, later system messages leave with
    their turns, and their text goes to the system text.
    """

    items: Sequence[Any]
    pieces: Sequence[Piece] = ()
    system: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    model: str | None = None
    user: str | None = None
    passes: str | None = None
    output: Mapping[str, Any] | None = None
    held: str | None = None
    remark: str | None = None
    folds: bool = False


def inside(body: Body, *keys: str) -> Mapping[str, Any] | None:
    """Return the mapping under nested keys; None if it is no mapping."""
    value: Any = body
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) and value else None


def asks_for_compaction(settings: Mapping[str, Any]) -> str | None:
    """Say that the parameters of a request ask its provider to compact the conversation; None if
    they do not. SDKs take what they do not know in `extra_body`."""
    asks = inside(settings, "compaction") or inside(settings, "extra_body", "compaction")
    return ASKS.format("compaction") if asks else None


def holder_of(settings: Mapping[str, Any]) -> str | None:
    """Name the parameter by which a request goes on from a past that its provider holds; None if
    the request holds its past itself."""
    thread = inside(settings, "thread") or inside(settings, "extra_body", "thread")
    if thread is not None and thread.get("type") == "continue":
        return "thread"
    beside = inside(settings, "config") or {}
    named = (key for key in _HELD if settings.get(key) or beside.get(key))
    return next(named, None)


_HELD = ("previous_response_id", "conversation", "cached_content", "cachedContent")


def held_by_provider(name: str) -> str:
    """Say that a provider holds the past, by the parameter that says so."""
    return f"the past is held by the provider ({name!r})"


def listed(body: Body, key: str, what: str) -> Sequence[Any]:
    """Return a list of a request; refuse anything else by name."""
    items = body.get(key) if isinstance(body, Mapping) else body
    if not isinstance(items, list | tuple):
        raise InvalidInput(f"{what} needs a list {key!r}, not {shown(items)}")
    return items


def body_tools(body: Body) -> tuple[Mapping[str, Any], ...]:
    """Return the tools of a request that are dicts."""
    tools = body.get("tools")
    if not isinstance(tools, list | tuple):
        return ()
    return tuple(tool for tool in tools if isinstance(tool, Mapping))


def named(provider: str, model: object) -> str | None:
    """Return the model of a request as Muntin names it."""
    return f"{provider}/{model}" if isinstance(model, str) and model else None


def text_of(value: object) -> str | None:
    """Return a text that is not blank, else None."""
    return value if isinstance(value, str) and value else None


def system_message(read: Callable[[Any], Message], content: Any) -> tuple[Message, ...]:
    """Read the system text of a request; a text that cannot be read counts by its size."""
    for text in (content, clean(content)):
        with suppress(MuntinError, KeyError, TypeError, AttributeError, ValueError):
            return (read(text),)
    return (Message("system", as_text(content)),)


def is_whole(pieces: Sequence[Piece], fitted: Fitted) -> bool:
    """Say whether a whole request stays unchanged, and nothing is added."""
    return len(fitted.placed) == len(pieces) and all(part.is_whole for part in fitted.placed)


def breakpoints(fitted: Fitted) -> list[tuple[int, Breakpoint]]:
    """Return where to cache: the index of the placed message, -1 if before all of them."""
    points = [
        (-1, fitted.system_breakpoint),
        *((n, e.breakpoint) for n, e in enumerate(fitted.placed)),
    ]
    return [(place, point) for place, point in points if point is not None]


def count_marks(value: Any, mark: str) -> int:
    """Return how many cache marks there are in JSON values."""
    if isinstance(value, Mapping):
        return bool(value.get(mark)) + count_marks(list(value.values()), mark)
    if isinstance(value, list | tuple):
        return sum(count_marks(item, mark) for item in value)
    return 0


def last_marks(points: Iterable[tuple[int, Breakpoint]], room: int) -> list[tuple[int, Breakpoint]]:
    """Return the last `room` places to cache behind."""
    return list(points)[-room:] if room > 0 else []
