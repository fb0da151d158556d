"""Checks that values share: each returns or refuses, naming what was wrong."""

from __future__ import annotations

from collections.abc import Mapping

from muntin.errors import InvalidInput, InvalidType


def check_text(value: object, what: str) -> str:
    """Return `value` if it is text that UTF-8 can carry; raise an error naming `what` if not."""
    if not isinstance(value, str):
        raise InvalidType(f"{what} must be a str, not {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"{what} has a lone surrogate (U+{ord(value[error.start]):04X}) at character "
                f"{error.start}, which no provider can carry; clean the text first, for example "
                'with text.encode("utf-8", "replace").decode()'
            ) from None
    return value


def check_size(value: object, what: str) -> int:
    """Return `value` if it is an integer of at least 0; raise an error naming `what` if not."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidType(f"{what} must be an int, not {value!r}")
    if value < 0:
        raise InvalidInput(f"{what} must not be negative, got {value}")
    return value


def check_optional_text(value: object, what: str) -> None:
    """Refuse anything but text or None."""
    if value is not None:
        check_text(value, what)


def check_extra(value: object, what: str) -> None:
    """Refuse anything but a mapping or None."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidType(f"{what} must be a mapping or None, not {type(value).__name__}")
