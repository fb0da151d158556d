"""Checks of values: each returns the value, or refuses it with an error that names it; and the text
and the digest of values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from hashlib import blake2b
from typing import Any

from muntin.errors import InvalidInput, InvalidType


def check_text(value: object, what: str) -> str:
    """Return `value` if it is text that UTF-8 can carry; raise an error naming `what` if not."""
    if not isinstance(value, str):
        raise InvalidType(f"{what} must be a str, not {type(value).__name__}")
    if not value.isascii():
        refuse_surrogates(value, what)
    return value


def refuse_blank(value: object, what: str) -> None:
    """Refuse a blank text; values of other types pass."""
    if isinstance(value, str) and not value.strip():
        raise InvalidInput(f"{what} is blank ({value!r:.40}): it must say something")


def digest(text: str, size: int) -> str:
    """Return a digest of a text: `size` bytes, written in hexadecimal."""
    # The same as `keep_surrogates`, but a call less: this runs for every message of a window.
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def compact_json(value: object) -> str:
    """Write `value` as JSON with sorted keys and no spaces: the same value, the same bytes."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def check_size(value: object, what: str) -> int:
    """Return `value` if it is an integer of at least 0; raise an error naming `what` if not."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidType(f"{what} must be an int, not {shown(value)}")
    if value < 0:
        raise InvalidInput(f"{what} must not be negative, got {shown(value)}")
    return value


def check_count(value: object, what: str) -> int:
    """Return `value` if it is an integer of at least 1; raise an error naming `what` if not."""
    count = check_size(value, what)
    if count == 0:
        raise InvalidInput(f"{what} must be at least 1")
    return count


def check_seconds(value: object, what: str) -> float:
    """Return a number of seconds, finite and above 0; refuse anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidType(f"{what} must be a number of seconds, not {shown(value)}")
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{what} must be a number of seconds above 0, got {shown(value)}")
    return value


def check_optional_text(value: object, what: str) -> None:
    """Refuse anything but text or None."""
    if value is not None:
        check_text(value, what)


def copy_extra(value: object, what: str) -> dict[Any, Any]:
    """Return a deep copy of a mapping, so that a frozen value cannot change from outside."""
    if not isinstance(value, Mapping):
        raise InvalidType(f"{what} must be a mapping or None, not {type(value).__name__}")
    copied = {}
    for key, item in value.items():
        try:
            copied[key] = deepcopy(item)
        except Exception as error:  # a lock, a value nested too deeply, a __deepcopy__ that fails
            raise InvalidInput(f"{what}[{shown(key)}] cannot be copied: {error}") from error
    return copied


def copy_json(value: object, what: str, *, as_read: bool = False) -> Any:
    """Return a copy of JSON values; raise an error naming `what` for anything else.

    With `as_read` it is the copy that reading the JSON gives: a tuple becomes a list.
    """
    try:
        return _copy_json(value, what, list if as_read else tuple)
    except RecursionError:
        raise InvalidInput(
            f"{what} cannot be written as JSON: it is nested too deeply, or holds itself"
        ) from None


# Python writes no int of more than 4,300 digits (sys.set_int_max_str_digits), in bits.
_LONGEST_INT = 14_284


# How much of a value an error shows: enough to find it, never a whole file or conversation.
_SHOWN = 100


def shown(value: object) -> str:
    """Return a value as errors show it: its beginning, or its type if it cannot be written."""
    if isinstance(value, int) and value.bit_length() > _LONGEST_INT:
        return "an int of more than 4,300 digits"
    try:
        text = repr(value[:_SHOWN] if isinstance(value, str | bytes) else value)
    except Exception:  # nested too deeply, or a __repr__ that fails
        return f"a {type(value).__name__} that cannot be shown"
    cut = len(text) > _SHOWN or (isinstance(value, str | bytes) and len(value) > _SHOWN)
    return f"{text[:_SHOWN]}…" if cut else text


# Walking is cheaper than writing JSON: a long text, such as an inline image, is not read.
def _copy_json(value: object, what: str, sequence: type[list[Any] | tuple[Any, ...]]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{what} cannot be written as JSON: it holds {value!r}")
    if value is None or isinstance(value, str | int | float):
        if isinstance(value, int) and value.bit_length() > _LONGEST_INT:
            raise InvalidInput(
                f"{what} cannot be written as JSON: it holds an int of more than 4,300 digits"
            )
        return value
    if isinstance(value, Mapping):
        copied = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidType(f"{what} cannot be written as JSON: its key {key!r} is no str")
            copied[key] = _copy_json(item, what, sequence)
        return copied
    if isinstance(value, list | tuple):
        items = [_copy_json(item, what, sequence) for item in value]
        return items if isinstance(value, list) else sequence(items)
    raise InvalidType(f"{what} cannot be written as JSON: it holds a {type(value).__name__}")


# Lone surrogates: halves of characters that a str may hold and UTF-8 cannot carry. A caller's text
# with one is refused; text from others is sent with a question mark for each; text that is only
# stored or hashed keeps them.


def has_surrogates(text: str) -> bool:
    """Say whether UTF-8 cannot carry a text."""
    return _first(text) is not None


def refuse_surrogates(text: str, what: str) -> None:
    """Raise an error naming `what` if a text has a lone surrogate."""
    place = _first(text)
    if place is not None:
        raise InvalidInput(
            f"{what} has a lone surrogate (U+{ord(text[place]):04X}) at character "
            f"{place}, which no provider can carry; clean the text first, for example "
            'with text.encode("utf-8", "replace").decode()'
        )


def replace_surrogates(text: str) -> str:
    """Return a text with a question mark in the place of each lone surrogate."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def keep_surrogates(text: str) -> bytes:
    """Return bytes that keep lone surrogates: to be hashed, never sent."""
    return text.encode("utf-8", "surrogatepass")


def _first(text: str) -> int | None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return error.start
    return None
