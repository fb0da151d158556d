"""Lone surrogates: halves of characters that a str may hold and UTF-8 cannot carry.

Three policies, by name: text that a caller hands in is refused, text that others made is sent with
a question mark for each, text that is only kept or hashed keeps them.
"""

from __future__ import annotations

from muntin.errors import InvalidInput


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
