"""The lines of a session's file: the fields of each line, and how lines are written and read.

Any line gives a value that a store can keep, or an error that says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Set
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NoReturn

from muntin.core.checks import has_surrogates, shown
from muntin.core.message import Message
from muntin.errors import InvalidInput
from muntin.timeline.items import STATUSES, VISIBLE, Draft, Item, Status, Visibility
from muntin.timeline.store.rows import entry_id, to_ascii_json, to_json
from muntin.timeline.store.sql.appending import check_run

FORMAT = "muntin-session"
VERSION = 1

_HEADER = frozenset(("format", "version", "id", "created", "items"))
_TURN = frozenset(("turn", "status"))
_REQUIRED = ("position", "turn", "kind", "time")
_OPTIONAL = ("message", "payload", "run", "visibility", "transient", "meta", "tokens")
_ITEM = frozenset((*_REQUIRED, *_OPTIONAL))
_TYPES: tuple[tuple[str, type, str], ...] = (
    ("transient", bool, "true or false"),
    ("meta", dict, "an object"),
    ("tokens", dict, "counts by tokenizer"),
)
_EVERYONE = {"client": True, "history": True}


def item_to_dict(item: Item) -> dict[str, Any]:
    """Write an item as JSON values, with all its fields."""
    seen = item.visibility
    data: dict[str, Any] = {"position": item.position, "turn": item.turn, "kind": item.kind}
    if item.message is not None:
        data["message"] = item.message.to_dict()
    else:
        data["payload"] = item.payload
    data["run"] = item.run
    data["time"] = iso(item.time)
    data["visibility"] = {"client": seen.client, "history": seen.history}
    data["transient"] = item.transient
    if item.meta:
        data["meta"] = dict(item.meta)
    data["tokens"] = dict(item.tokens)
    return data


def line(value: dict[str, Any]) -> bytes:
    """Return a value as one line of a file."""
    text = to_json(value)
    if has_surrogates(text):
        text = to_ascii_json(value)
    return text.encode() + b"\n"


def iso(time: datetime) -> str:
    """Return a time as it stands in a file."""
    return time.isoformat(timespec="microseconds")


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")  # Python reads NaN and Infinity, JSON has none


_decode = json.JSONDecoder(parse_constant=_no_number).decode


class Lines:
    """The JSON values of a file, and the line that was read last.

    One value a line; any other file is read as one value.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self.number = 0
        self.size = 0
        self.alone = False

    @property
    def place(self) -> str:
        """Where the value read last stands, to be put behind the name of the file."""
        return f":{self.number}" if self.number else ""

    def __iter__(self) -> Iterator[Any]:
        begin: list[bytes] = []
        full: list[int] = []  # the numbers of the first two lines that are not blank
        for line in self._lines:
            begin.append(line if begin else line.removeprefix(b"\xef\xbb\xbf"))
            if line.strip():
                full.append(len(begin))
            if len(full) == 2:
                break
        if not full:
            raise InvalidInput("the file is empty")
        self.alone = len(full) == 1
        try:
            first = self._read(begin[full[0] - 1], full[0])
        except InvalidInput:
            if self.alone:
                raise
            self.alone = True
            yield self._read(b"".join([*begin, *self._lines]), 1)
            return
        yield first
        for number, line in enumerate(chain(begin[full[0] :], self._lines), full[0] + 1):
            if line.strip():
                yield self._read(line, number)

    def _read(self, line: bytes, number: int) -> Any:
        self.number, self.size = number, len(line)
        try:
            return _decode(line.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            self.number += line.count(b"\n", 0, error.start)
            raise InvalidInput(f"not UTF-8: {error.reason}") from error
        except json.JSONDecodeError as error:
            self.number += error.lineno - 1
            raise InvalidInput(f"not JSON: {error.msg}, column {error.colno}") from error
        except RecursionError as error:
            raise InvalidInput("nested too deeply") from error
        except ValueError as error:  # a number of thousands of digits, NaN
            raise InvalidInput(f"not JSON: {error}") from error


def read_header(value: dict[str, Any]) -> int:
    """Check the line that begins a session, and return how many items follow."""
    if value["format"] != FORMAT:
        raise InvalidInput(f"unknown format {shown(value['format'])}; {FORMAT!r} is read")
    version = _count(value, "version")
    if version > VERSION:
        raise InvalidInput(
            f"written by a newer Muntin (version {version} of the format, this one reads "
            f"{VERSION}); upgrade with: pip install -U muntin"
        )
    _check_keys(value, _HEADER, _HEADER)
    _read_time(value["created"])
    return _count(value, "items")


def read_turn(value: dict[str, Any]) -> tuple[int, Status]:
    """Return the number and the status that a turn's line tells."""
    _check_keys(value, _TURN, _TURN)
    number, status = _count(value, "turn"), value["status"]
    if status not in STATUSES:
        raise InvalidInput(f"unknown status {shown(status)}; use {', '.join(STATUSES)}")
    return number, status


def read_item(value: dict[str, Any], position: int) -> Draft:
    """Return the draft of an item's line."""
    _check_keys(value, _REQUIRED, _ITEM)
    if value["position"] != position or type(value["position"]) is not int:
        raise InvalidInput(f"position {shown(value['position'])} where {position} is due")
    if ("message" in value) == ("payload" in value):
        raise InvalidInput("an item has either a 'message' or a 'payload'")
    if type(value["turn"]) is not int:
        raise InvalidInput(f"'turn' must be a number, not {shown(value['turn'])}")
    for name, wanted, words in _TYPES:
        if type(value.get(name, wanted())) is not wanted:
            raise InvalidInput(f"{name!r} must be {words}, not {shown(value[name])}")
    draft = Draft(
        value["kind"],
        Message.from_dict(value["message"]) if "message" in value else None,
        value.get("payload"),
        run=value.get("run"),
        time=_read_time(value["time"]),
        visibility=_read_visibility(value.get("visibility")),
        transient=value.get("transient", False),
        meta=value.get("meta", {}),
        turn=value["turn"],
        tokens=value.get("tokens", {}),
    )
    entry_id(draft)  # refuses a context entry that could not be shown
    check_run(draft, position)
    return draft


def _count(value: dict[str, Any], key: str) -> int:
    number = value.get(key)
    if type(number) is not int or number < 1:
        raise InvalidInput(f"{key!r} must be a number from 1, not {shown(number)}")
    return number


def _read_time(value: object) -> datetime:
    try:
        time = datetime.fromisoformat(value)  # type: ignore[arg-type]
        if time.tzinfo is UTC:
            return time
        if time.tzinfo is not None:
            return time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(f"{shown(value)} is no time in ISO 8601 with a time zone")


def _read_visibility(value: object) -> Visibility:
    if value is None or value == _EVERYONE:
        return VISIBLE
    if isinstance(value, dict) and value.keys() == _EVERYONE.keys():
        client, history = value["client"], value["history"]
        if type(client) is bool and type(history) is bool:
            return Visibility(client, history)
    raise InvalidInput(f"'visibility' must be true or false for client and history: {shown(value)}")


def _check_keys(value: dict[str, Any], required: Collection[str], allowed: Set[str]) -> None:
    if not value.keys() <= allowed:
        raise InvalidInput(f"unknown field {shown(min(value.keys() - allowed))}")
    for key in required:
        if key not in value:
            raise InvalidInput(f"{key!r} is missing")
