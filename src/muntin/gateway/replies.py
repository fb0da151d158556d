"""Answers as they pass: whole or streamed, read on the side, never delayed.

An answer that cannot be read is not recorded; that is no error: the client still gets it.
"""

from __future__ import annotations

import json
from typing import Any

from muntin.errors import MuntinError
from muntin.providers.model import Reply
from muntin.wire import anthropic, chat, responses

_FORMS: dict[str, Any] = {"chat": chat, "responses": responses, "anthropic": anthropic}
# A longer answer is not read.
_MOST = 32 * 1024 * 1024
_UNREADABLE = (MuntinError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Reading:
    """Reads one answer from the bytes of a response."""

    def __init__(self, form: str, streamed: bool) -> None:
        wire = _FORMS.get(form)
        self._decode = None if wire is None else wire.decode
        self._assembler = wire.Assembler() if wire is not None and streamed else None
        self._pieces: list[bytes] = []
        self._size = 0
        self._rest = b""
        self._failed = wire is None

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._size += len(data)
        if self._failed or self._size > _MOST:
            self._failed = True
            self._pieces.clear()
        elif self._assembler is None:
            self._pieces.append(data)
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._line(line)

    def _line(self, line: bytes) -> None:
        name, _, data = line.partition(b":")
        data = data.strip()
        if name != b"data" or data == b"[DONE]" or self._assembler is None:
            return
        try:
            self._assembler.feed(json.loads(data))
        except _UNREADABLE:
            self._failed = True

    def reply(self) -> Reply | None:
        """Return the answer, if it is whole and can be read."""
        if self._failed or self._decode is None:
            return None
        try:
            if self._assembler is not None:
                assembled: Reply = self._assembler.reply()
                return assembled
            decoded: Reply = self._decode(json.loads(b"".join(self._pieces)))
            return decoded
        except _UNREADABLE:
            return None
