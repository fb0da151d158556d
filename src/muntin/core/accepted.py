"""Names that an API accepts: refused characters are replaced, long names are cut.

Owns how a name becomes another name; knows nothing of where names stand. The same name always
becomes the same name, so that requests stay alike from turn to turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from re import Pattern
from zlib import crc32


@dataclass(frozen=True, slots=True)
class NameRule:
    """The most characters of a name, and the characters that are refused (None: no character)."""

    limit: int
    refused: Pattern[str] | None = None

    def accepts(self, name: str) -> bool:
        """Say whether a name is sent unchanged."""
        if not name or len(name) > self.limit:
            return False
        # Letters, digits and underscores are accepted everywhere, except a digit at the beginning.
        if self.refused is None or (name.isascii() and name.isidentifier()):
            return True
        return self.refused.search(name) is None

    def fitted(self, name: str) -> str:
        """Return the name if it is accepted; else the nearest accepted name."""
        if self.accepts(name):
            return name
        return self.marked(name) if len(name) > self.limit else self._replaced(name)

    def marked(self, name: str) -> str:
        """Return a form with a digest: two names that begin alike or become alike still differ."""
        return f"{self._replaced(name)[: self.limit - 9]}_{crc32(name.encode()):08x}"

    def _replaced(self, name: str) -> str:
        return (self.refused.sub("_", name) if self.refused is not None else name) or "_"


# https://developers.openai.com/api/docs/guides/function-calling
OPENAI = NameRule(64, re.compile(r"[^a-zA-Z0-9_-]"))
