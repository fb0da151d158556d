"""Items as rows: what a store writes, and how it is read back, exactly.

Refuses drafts that cannot be written before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from muntin.core.checks import check_text, copy_json, has_surrogates, shown
from muntin.core.counting.memo import FormMemo
from muntin.core.message import Message
from muntin.errors import InvalidInput, InvalidType, StoreError
from muntin.timeline.entries import is_attribute
from muntin.timeline.items import (
    EPOCH,
    VISIBLE,
    Draft,
    Item,
    SessionInfo,
    Turn,
    Visibility,
    check_id,
    is_plain,
    own_item,
)

to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
to_ascii_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_ENTRIES = ("context_inserted", "context_removed")
_MICROSECOND = timedelta(microseconds=1)


def byte_size(text: str) -> int:
    """Return how many bytes a text has in the store."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def to_microseconds(time: datetime) -> int:
    """Return a time as whole microseconds since 1970, which every store keeps exactly."""
    return (time - EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """Return the time that `to_microseconds` wrote."""
    return EPOCH + timedelta(microseconds=value)


def written(drafts: Sequence[Draft]) -> tuple[list[str], list[str | None]]:
    """Return the contents of drafts as JSON, and which context entry each changes."""
    return [_to_data(draft) for draft in drafts], [entry_id(draft) for draft in drafts]


def _to_data(draft: Draft) -> str:
    """Write the content of a draft as JSON; raise an error naming what cannot be written."""
    message = draft.message
    meta = {"meta": draft.meta} if draft.meta else {}
    if message is None:
        return _json({"payload": draft.payload, **meta}, draft)
    content = message.content
    rest = message.tool_calls or message.attachments or message.extra
    if (
        content.__class__ is str
        and not (rest or meta)
        and message.tool_call_id is message.name is None
    ):
        # Most messages are a role and a text. Writing them by hand is three times as fast.
        return f'{{"message":{{"role":"{message.role}","content":{encode_basestring(content)}}}}}'
    plain = not message.extra and not isinstance(content, tuple)
    if plain and not any(call.extra for call in message.tool_calls):
        return _json({"message": message.to_dict(), **meta}, draft)
    # Unknown fields may hold anything: a value that would not come back equal is refused.
    data = copy_json(message.to_dict(), f"a {draft.kind} item")
    text = _json({"message": data, **meta}, draft)
    try:
        same = Message.from_dict(json.loads(text)["message"]) == message
    except InvalidInput:
        same = False
    if not same:
        raise InvalidInput(
            f"a {draft.kind} item would not be read back as it is: a field in `extra` has the name "
            f"of one of its own, or a value that JSON has not: {message!r:.300}"
        )
    return text


def _json(value: Mapping[str, Any], draft: Draft) -> str:
    try:
        text = to_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"a {draft.kind} item cannot be written as JSON: {error}") from error
    if not text.isascii() and has_surrogates(text):
        text = to_ascii_json(value)
        if json.loads(text) != value:  # two surrogates side by side would become one character
            raise InvalidInput(
                f"a {draft.kind} item has halves of characters (lone surrogates) that cannot "
                'be kept; clean the text, for example with text.encode("utf-16", '
                '"surrogatepass").decode("utf-16")'
            )
    return text


@lru_cache(maxsize=4_096)  # few tokenizers, and small numbers
def to_tokens(counts: tuple[tuple[str, int], ...]) -> str:
    """Write token counts by tokenizer as JSON."""
    return to_ascii_json(dict(counts))


def entry_id(draft: Draft) -> str | None:
    """Return the id of the context entry that a draft inserts or removes, if any."""
    if draft.kind not in _ENTRIES:
        return None
    payload = draft.payload
    if not isinstance(payload, dict) or "id" not in payload:
        raise InvalidInput(f"a {draft.kind} item needs a payload with an 'id'")
    id = check_id(payload["id"], "the id of a context entry")
    if draft.kind == "context_inserted":
        for field in ("name", "content"):
            check_text(payload.get(field), f"context entry {id!r}: {field}")
        attrs = payload.get("attrs", {})
        if not isinstance(attrs, dict):
            raise InvalidType(f"context entry {id!r}: attrs must be a mapping, not {shown(attrs)}")
        for key, value in attrs.items():
            if not is_attribute(key):
                raise InvalidInput(
                    f"context entry {id!r}: {key!r:.60} cannot be the name of an attribute; it "
                    "begins with a letter, has lower-case letters, digits and hyphens, and is not "
                    "'id' or 'name'"
                )
            check_text(value, f"context entry {id!r}: attrs[{key!r}]")
    return id


def no_session(store: str, session: str) -> StoreError:
    """Return the error for data of a session that does not exist."""
    return StoreError(
        f"{store}: there is no session {session!r}; it was deleted, or nothing was appended to it"
    )


def taken(store: str, session: str) -> InvalidInput:
    """Return the error for an id that another session has."""
    return InvalidInput(f"{store} already has a session {session!r}; give this one another id")


def to_items(rows: Sequence[Sequence[Any]], store: str, *, shared: bool = False) -> list[Item]:
    """Read rows; a row that cannot be read is damaged.

    A window is mostly the same as the window before, and a turn reads its own items several times:
    so the items of rows are remembered. An item is found by the whole row, so a changed row is read
    again. With `shared` several readers may get the same items.
    """
    items: list[Item] = []
    remember = shared or len(rows) <= _FEW  # a whole timeline is seldom read twice
    for row in rows:
        cached: Item | None = _read.get(row)
        if cached is not None:
            items.append(cached if shared else own_item(cached))
            continue
        try:
            item = _to_item(row)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"{store}: the item at position {row[0]} cannot be read: {error}; the store is "
                "damaged, restore a copy"
            ) from error
        items.append(item)
        if remember and len(row[-1]) <= _LONG and is_plain(item):
            _read.put(row, item if shared else own_item(item), len(row[-1]))
    return items


# Items by their rows, up to this many characters in all; no longer row is remembered.
_read = FormMemo(16_000_000)
_LONG = 65_536
_FEW = 32


def _to_item(row: Sequence[Any]) -> Item:
    """Read a row: position, turn, kind, run, client, history, transient, time, tokens, data."""
    position, turn, kind, run, client, history, transient, time, tokens, data = row
    content = json.loads(data)
    message = content.get("message")
    return Item(
        position,
        kind,
        turn,
        None if message is None else Message.from_dict(message),
        content.get("payload"),
        # A run position behind the item is invalid: an older Muntin imported it.
        run=run if run is None or 0 < run < position else None,
        time=from_microseconds(time),
        visibility=VISIBLE if client and history else Visibility(bool(client), bool(history)),
        transient=bool(transient),
        meta=content.get("meta") or {},
        tokens=dict(_counts(tokens)),
    )


@lru_cache(maxsize=4_096)
def _counts(tokens: str) -> dict[str, int]:
    counts: dict[str, int] = json.loads(tokens)
    return counts


def to_turn(row: Sequence[Any]) -> Turn:
    """Read a row; its columns are in the order of the fields."""
    number, status, first, owner, until, resumable, attempt, returned, after, reason, progress = row
    return Turn(
        number,
        status,
        first,
        owner,
        _time(until),
        bool(resumable),
        attempt,
        returned,
        _time(after),
        reason,
        progress,
    )


def _time(value: int | None) -> datetime | None:
    return None if value is None else from_microseconds(value)


def to_info(row: Sequence[Any]) -> SessionInfo:
    """Read a row: name, head, turn, created, updated."""
    name, head, turn, created, updated = row
    return SessionInfo(name, head, turn, from_microseconds(created), from_microseconds(updated))
