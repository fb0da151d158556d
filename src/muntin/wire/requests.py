"""Shared by the requests of all APIs: the parts of a request, reading that never fails, marks.

Knows no vendor's format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from muntin.core.checks import compact_json, replace_surrogates, shown
from muntin.core.counting.memo import FormMemo
from muntin.core.message import Message, Role
from muntin.core.parts import Other, Text
from muntin.core.window import Breakpoint
from muntin.errors import InvalidInput
from muntin.wire.pieces import Fitted, Piece, Placed

Body: TypeAlias = Mapping[str, Any]
# A key that tells a message from all others, in any form.
Key: TypeAlias = tuple[str | None, ...]
_UNREADABLE = (InvalidInput, KeyError, TypeError, AttributeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to be fitted: its messages as pieces, and the texts before them.

    `model` is named like `openai/gpt-4o`. `user` is the user that the request names. `output` is
    the schema of the answer. `passes` says why the request is to be sent unchanged; None if it is
    to be fitted.
    """

    pieces: Sequence[Piece]
    system: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    model: str | None = None
    user: str | None = None
    passes: str | None = None
    output: Mapping[str, Any] | None = None


def inside(body: Body, *keys: str) -> Mapping[str, Any] | None:
    """Return the mapping under nested keys; None if it is no mapping."""
    found: Any = body
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) and found else None


def listed(body: Body, key: str, what: str) -> Sequence[Any]:
    """Return a list of a request; refuse anything else by name."""
    found = body.get(key) if isinstance(body, Mapping) else body
    if not isinstance(found, list | tuple):
        raise InvalidInput(f"{what} needs a list {key!r}, not {shown(found)}")
    return found


def body_tools(body: Body) -> tuple[Mapping[str, Any], ...]:
    """Return the tools of a request that are dicts."""
    found = body.get("tools")
    if not isinstance(found, list | tuple):
        return ()
    return tuple(tool for tool in found if isinstance(tool, Mapping))


def named(provider: str, model: object) -> str | None:
    """Return the model of a request as Muntin names it."""
    return f"{provider}/{model}" if isinstance(model, str) and model else None


def text_of(value: object) -> str | None:
    """Return a text that is not blank, else None."""
    return value if isinstance(value, str) and value else None


def read_piece(
    read: Callable[[Any], Message],
    data: Any,
    ref: Any,
    role: Role = "user",
    simpler: Callable[[Any], Any] | None = None,
    key: Key | None = None,
) -> Piece:
    """Read a message; a message that cannot be read is sent unchanged, and the piece says why.

    Text that no provider can carry is read with question marks. `simpler` returns the readable part
    of a message, so that calls and results stay together. With a `key` the message means the same
    wherever it stands, and is read once.
    """
    known = None if key is None else recall(key)
    if known is not None:
        return Piece(known, ref)
    try:
        message = read(data)
        if key is not None:
            _known.put(key, message, 2 * sum([len(each or "") for each in key]))
        return Piece(message, ref)
    except _UNREADABLE as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    with suppress(*_UNREADABLE):
        cleaned = clean(data)
        if cleaned != data:
            return Piece(read(cleaned), ref)
    with suppress(*_UNREADABLE):
        if simpler is not None:
            return Piece(read(clean(simpler(data))), ref, opaque=why)
    # Not a text that could be cut: the message is sent unchanged, or not at all.
    unread = Other({"type": "unread", "value": as_text(data)})
    return Piece(Message(role, (unread,)), ref, opaque=why)


# Most messages of a request were in the request before.
_known = FormMemo(32_000_000)


def recall(key: Key) -> Message | None:
    """Return a message that was read before."""
    known: Message | None = _known.get(key)
    return known


def key_of(form: str, data: Any) -> Key | None:
    """Return the key of a message of a form; None if it has none."""
    if data.__class__ is not dict:
        return None
    role, content = data.get("role"), data.get("content")
    if role.__class__ is str and content.__class__ is str:
        if len(data) == 2:
            return form, role, content
        called = data.get("tool_call_id")
        if len(data) == 3 and called.__class__ is str:
            return form, role, content, called
    try:
        return form, json.dumps(data)
    except (TypeError, ValueError, RecursionError):
        return None


def as_text(data: Any) -> str:
    """Return roughly the text of a value as it is sent."""
    try:
        return compact_json(clean(data))
    except (TypeError, ValueError, RecursionError):
        return replace_surrogates(repr(data))


def clean(value: Any) -> Any:
    """Return JSON values without lone surrogates."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {clean(key): clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [clean(each) for each in value]
    return value


def is_whole(pieces: Sequence[Piece], fitted: Fitted) -> bool:
    """Say whether a whole request stays unchanged, and nothing is added."""
    return len(fitted.placed) == len(pieces) and all(each.is_whole for each in fitted.placed)


def breakpoints(fitted: Fitted) -> list[tuple[int, Breakpoint]]:
    """Return where to cache: the index of the placed message, -1 if before all of them."""
    found = [
        (-1, fitted.system_breakpoint),
        *((n, e.breakpoint) for n, e in enumerate(fitted.placed)),
    ]
    return [(place, point) for place, point in found if point is not None]


def count_marks(value: Any, mark: str) -> int:
    """Return how many cache marks there are in JSON values."""
    if isinstance(value, Mapping):
        return bool(value.get(mark)) + count_marks(list(value.values()), mark)
    if isinstance(value, list | tuple):
        return sum(count_marks(each, mark) for each in value)
    return 0


def with_texts(
    parts: Sequence[Any],
    placed: Placed,
    text: Callable[[Any], str | None],
    stays: Callable[[Any], bool],
    made: Callable[[str], Any],
) -> list[Any]:
    """Return the parts of a message with its new texts.

    `text` returns the text of a part that is only text. If the message has one text now, the first
    such part gets it, and other parts are kept only if `stays` accepts them.
    """
    content = placed.message.content
    texts = [placed.text or ""]
    several = False
    if isinstance(content, tuple):
        own = [part.text for part in content if isinstance(part, Text)]
        several = len(own) == sum(text(part) is not None for part in parts)
        texts = own if several else texts
    found: list[Any] = []
    for part in parts:
        was = text(part)
        if was is not None:
            now = texts.pop(0) if texts else ""
            if now.strip():
                found.append(part if now == was else {**part, "text": now})
        elif several or stays(part):
            found.append(part)
    return [*found, *(made(each) for each in texts if each.strip())]


def is_refusal(part: Any) -> bool:
    """Say whether a part is a refusal of the model's: it stays whatever its text is."""
    return isinstance(part, Mapping) and part.get("type") == "refusal"


def last_marks(points: Iterable[tuple[int, Breakpoint]], room: int) -> list[tuple[int, Breakpoint]]:
    """Return the last `room` places to cache behind."""
    return list(points)[-room:] if room > 0 else []
