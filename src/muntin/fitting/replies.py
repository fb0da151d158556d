"""Answers as they pass: whole or streamed, read on the side, never delayed.

An answer that cannot be read is not recorded, and nothing is learned from it; that is no error: the
client still gets it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

from muntin.errors import MuntinError
from muntin.providers.model import Reply
from muntin.wire import anthropic, chat, responses

# Where the streams of SDKs keep their events.
_EVENTS = "_iterator"
# Takes a function that returns the answer, if it can be read.
Enter: TypeAlias = Callable[[Callable[[], Reply | None]], None]

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
        self._reply: Reply | None = None

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
        if self._failed or self._decode is None or self._reply is not None:
            return self._reply
        try:
            if self._assembler is not None:
                self._reply = self._assembler.reply()
            else:
                self._reply = self._decode(json.loads(b"".join(self._pieces)))
        except _UNREADABLE:
            self._failed = True
        return self._reply


def reading_of(form: str, headers: Any) -> Reading | None:
    """Return what reads an answer, by the headers of its response; None if it cannot be read."""
    encoding = headers.get("content-encoding") or "identity"
    if encoding not in ("identity", "gzip", "deflate"):
        return None
    reading = Reading(form, "event-stream" in (headers.get("content-type") or ""))
    return reading if encoding == "identity" else _Unpacking(reading)


class _Unpacking(Reading):
    """Reads an answer that is compressed."""

    def __init__(self, reading: Reading) -> None:
        self.__dict__.update(vars(reading))
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        try:
            super().feed(self._unpack.decompress(data, _MOST))
        except zlib.error:
            self._failed = True


def watch_body(form: str, response: Any, enter: Enter) -> None:
    """Read the body of a response as it passes; at its end, enter how to read it."""
    reading = reading_of(form, response.headers)
    content = getattr(response, "_content", None)
    if isinstance(content, bytes):  # all of it is there already
        reading = Reading(form, "event-stream" in (response.headers.get("content-type") or ""))
        reading.feed(content)
        enter(reading.reply)
    elif reading is not None:
        reply = reading.reply
        kinds = [kind for kind in type(response.stream).__mro__ if kind.__name__ in _STREAMS]
        watched = type("Watched", (_Watched, *kinds[:2]), {})
        response.stream = watched(response.stream, reading, lambda: enter(reply))


# The classes of httpx, and of its forks, that the body of a response is an object of.
_STREAMS = ("SyncByteStream", "AsyncByteStream")


class _Watched:
    """The body of a response that is read as it passes; `end` is called when all of it has."""

    def __init__(self, body: Any, reading: Reading, end: Callable[[], None]) -> None:
        self._body = body
        self._reading = reading
        self._end = end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def close(self) -> None:
        """Close the body."""
        self._body.close()

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()

    def __iter__(self) -> Iterator[bytes]:
        for data in self._body:
            self._reading.feed(data)
            yield data
        self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._body:
            self._reading.feed(data)
            yield data
        self._end()


def watch(form: str, answer: Any, enter: Enter) -> None:
    """Enter an answer of an SDK: an object now, a stream when it has ended."""
    events = getattr(answer, _EVENTS, None) if hasattr(answer, "response") else None
    if form not in _FORMS:
        return
    if events is None:
        enter(lambda: _read(_FORMS[form].decode, answer))
    elif hasattr(events, "__anext__"):
        vars(answer)[_EVENTS] = _atapped(events, _FORMS[form].Assembler(), enter)
    else:
        vars(answer)[_EVENTS] = _tapped(events, _FORMS[form].Assembler(), enter)


def _read(read: Callable[..., Reply], *values: Any) -> Reply | None:
    try:
        return read(*values)
    except _UNREADABLE:
        return None


def _tapped(events: Iterator[Any], assembler: Any, enter: Enter) -> Iterator[Any]:
    for event in events:
        with suppress(*_UNREADABLE):
            assembler.feed(event)
        yield event
    enter(lambda: _read(assembler.reply))


async def _atapped(events: AsyncIterator[Any], assembler: Any, enter: Enter) -> AsyncIterator[Any]:
    async for event in events:
        with suppress(*_UNREADABLE):
            assembler.feed(event)
        yield event
    enter(lambda: _read(assembler.reply))
