"""The secrets of a request, kept out of errors and of the SDKs' logs.

Secrets are keys, the values of headers that a caller adds, and user and query of an address. Knows
no SDK except the names of the loggers that write addresses and headers.
"""

from __future__ import annotations

import html
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, unquote_plus, urlsplit

_KEY = 8  # a shorter key, such as "none" for a local server, is no secret
_VALUE = 4  # a header or a password may be shorter than a key
_STARS = "***"
# Settings that hold headers: in OpenAI's and Anthropic's SDKs, and in Google's.
_HEADERS = ("extra_headers", "headers")
_HOLDERS = ("http_options", "httpOptions")
_LOGGERS = (
    "httpx", "httpx2", "httpcore.http11", "httpcore.http2", "httpcore2.http11", "httpcore2.http2",
    "httpcore.connection", "httpcore2.connection", "openai._base_client", "anthropic._base_client",
)  # fmt: skip


def find_secrets(
    keys: Iterable[str | None], addresses: Iterable[str | None], settings: Mapping[str, Any]
) -> list[str]:
    """Return all texts that must not be shown, the longest first, in all their spellings."""
    secrets = {key for key in keys if key and len(key) >= _KEY}
    for address in addresses:
        secrets.update(_of_address(address or ""))
    secrets.update(_of_settings(settings))
    for _ in range(2):  # a JSON text may stand in a text that Python wrote
        secrets.update([way for secret in secrets for way in _written_forms(secret)])
    return sorted(secrets, key=len, reverse=True)


def _of_address(address: str) -> Iterator[str]:
    try:
        parts = urlsplit(address)
    except ValueError:
        yield address
        return
    user_info, at, _ = parts.netloc.rpartition("@")
    if at:
        user, _, password = user_info.partition(":")
        yield user_info if len(user_info) >= _VALUE else user_info + at
        yield b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        if len(user) >= (_KEY if password else _VALUE):
            yield user
        if len(password) >= _VALUE:
            yield password
    if parts.query:
        yield parts.query if len(parts.query) >= _VALUE else f"?{parts.query}"
        yield from (value for _, value in parse_qsl(parts.query) if len(value) >= _VALUE)


def bare_address(address: str) -> str:
    """Return an address without its secret parts: user, password and query."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address.rpartition("@")[2].partition("?")[0]
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()


def _of_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if not isinstance(value, Mapping):
            continue
        if name in _HOLDERS:
            yield from _of_settings(value)
        elif name in _HEADERS or name == "extra_query":
            for text in map(_text, value.values()):
                # The part behind the scheme, as in "Bearer ...".
                ways = (text, text.partition(" ")[2].strip())
                yield from (way for way in ways if len(way) >= _VALUE)


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _written_forms(text: str) -> Iterator[str]:
    yield from (unquote(text), unquote_plus(text), quote(text, safe=""), quote_plus(text))
    yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    yield from (repr(text)[1:-1], html.escape(text), html.escape(text, quote=False))


def clean(text: str, secrets: Iterable[str]) -> str:
    """Return a text with stars in the place of each secret."""
    for secret in secrets:
        text = text.replace(secret, _STARS)
    return text


def scrub(error: BaseException, secrets: list[str]) -> None:
    """Remove the secrets from everything that a traceback shows: a server may have echoed them."""
    waiting, seen = [error], {id(error)}
    while waiting:
        link = waiting.pop()
        link.args = tuple(_clean_value(value, secrets) for value in link.args)
        # The notes, and the SDKs' attributes of an answer: `message`, `body`, `details`.
        with suppress(Exception):
            vars(link).update({k: _clean_value(value, secrets) for k, value in vars(link).items()})
        for name in ("__cause__", "__context__"):
            further = getattr(link, name)
            if further is None or id(further) in seen:
                continue
            seen.add(id(further))
            waiting.append(further)
    _cut(error, secrets)


def _cut(error: BaseException, secrets: list[str]) -> None:
    """Drop a cause that cannot be cleaned: some errors make their text from hidden values."""
    seen = {id(error)}
    link: BaseException | None = error
    while link is not None:
        for name in ("__cause__", "__context__"):
            further = getattr(link, name)
            if further is not None and (id(further) in seen or shows(further, secrets)):
                setattr(link, name, None)
        link = link.__cause__ or link.__context__
        seen.add(id(link))


def shows(error: BaseException, secrets: Iterable[str]) -> bool:
    """Say whether an error's own text contains a secret."""
    text = f"{error} {error!r}"
    return any(secret in text for secret in secrets)


def _clean_value(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return clean(value, secrets)
    if isinstance(value, bytes):
        return clean(value.decode("latin-1"), secrets).encode("latin-1")
    if type(value) is dict:
        return {clean(str(k), secrets): _clean_value(item, secrets) for k, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_clean_value(item, secrets) for item in value)
    # The repr of a request shows its address.
    return None if any(secret in repr(value) for secret in secrets) else value


# Returns what must not be logged while an SDK works; called only when something is logged.
_hidden: ContextVar[Callable[[], list[str]] | None] = ContextVar("muntin_hidden", default=None)


@contextmanager
def hidden(secrets: Callable[[], list[str]]) -> Iterator[None]:
    """Keep secrets out of the logs of the SDKs and their transports in the block."""
    before = _hidden.set(secrets)
    try:
        yield
    finally:
        _hidden.reset(before)


def _censor(record: logging.LogRecord) -> bool:
    find = _hidden.get()
    if find is None:
        return True
    secrets = find()
    message = record.getMessage()
    text = clean(message, secrets)
    if text != message:
        record.msg, record.args = text, ()
    if record.exc_info and record.exc_info[0]:
        trace = logging.Formatter().formatException(record.exc_info)
        if clean(trace, secrets) != trace:
            record.exc_text, record.exc_info = clean(trace, secrets), None
    return True


def watch_logs() -> None:
    """Have the loggers of the SDKs and their transports leave out hidden secrets."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_censor)  # adding it twice has no effect
