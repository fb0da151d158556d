"""A model of a provider, on the provider's official SDK: one shape for all of them.

Encodes, sends, decodes and maps errors. The table in `sdks` says which SDK, and how.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal
from weakref import WeakKeyDictionary

from muntin.calls import sync_stream, sync_twin
from muntin.core.checks import check_optional_text, check_size, check_text, digest, shown
from muntin.core.parts import File
from muntin.core.window import Window
from muntin.errors import (
    AuthenticationFailed,
    InvalidInput,
    InvalidType,
    ProviderError,
    ProviderUnavailable,
)
from muntin.providers.failures import failure, failure_within
from muntin.providers.model import Event, Finished, Reply
from muntin.providers.sdks import (
    CHAT,
    COMPATIBLE,
    NO_KEY,
    Api,
    Options,
    close,
    find_api,
    with_settings,
)
from muntin.providers.secrets import bare_address, find_secrets, hidden, shows, watch_logs

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Client:
    """A model of OpenAI, Anthropic, Google, or a server compatible with one of them.

    The SDK's client is opened at the first request, once for each event loop. It is closed by
    `aclose()`, at the end of an `async with` block, or with its loop. A pickled or copied client
    has no key, and no user and query in its `base_url`.
    """

    def __init__(
        self,
        name: str,
        *,
        api: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int | None = None,
    ) -> None:
        check_text(name, "a model name")
        check_optional_text(base_url, "base_url")
        check_optional_text(api_key, "api_key")
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            raise InvalidType(f"timeout must be a positive number of seconds, not {shown(timeout)}")
        if max_retries is not None:
            check_size(max_retries, "max_retries")
        self._name = name
        self._api_name = api
        self._api, self._model = find_api(name, api)
        self._options = Options(
            base_url=base_url, api_key=api_key, timeout=timeout, max_retries=max_retries
        )
        self._sdk = self._api.load()
        watch_logs()
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The name with which it was made, `provider/model`."""
        return self._name

    @property
    def account(self) -> str:
        """The owner of files at the provider: a digest of key and address."""
        keys = (self._options.api_key, *(os.environ.get(name) for name in self._api.keys))
        address = self._options.base_url or os.environ.get(self._api.address)
        return digest(f"{next(filter(None, keys), '')} {address or ''}", 8)

    @property
    def tool_loading(self) -> Literal["reference", "item", "text"] | None:
        """How this server takes tools that are found in a conversation; None where the model's
        profile knows. Servers that only speak a vendor's API take them as text."""
        try:
            is_elsewhere = self._api.elsewhere(self._options.base_url)
        except InvalidInput:  # the first request says what is wrong with the address
            return "text"
        if is_elsewhere:
            return "text"
        return "item" if self._api.wire == "responses" else None

    async def complete(
        self,
        window: Window,
        *,
        settings: Mapping[str, Any] = _NOTHING,
        files: Mapping[str, File] | None = None,
    ) -> Reply:
        """Send the window and return the whole answer."""
        client, api, request = await self._prepare(window, settings, files)
        with self._mapped_errors(settings):
            with self._hidden(settings):
                answer = await api.send(client, request, False)
            self._check(answer, settings)
            reply: Reply = _wire(api).decode(answer, window)
        return reply

    async def stream(
        self,
        window: Window,
        *,
        settings: Mapping[str, Any] = _NOTHING,
        files: Mapping[str, File] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Send the window and yield the answer as it comes, ending with `Finished`."""
        client, api, request = await self._prepare(window, settings, files)
        assembler = _wire(api).Assembler(window)
        with self._mapped_errors(settings):
            with self._hidden(settings):
                chunks = await api.send(client, request, True)
            try:
                while (chunk := await self._next(chunks, settings)) is not None:
                    self._check(chunk, settings)
                    for event in assembler.feed(chunk):
                        yield event
            finally:
                await close(chunks)
            if not assembler.finished:  # a connection may close as if the answer were whole
                raise ProviderUnavailable(
                    api.provider, self._model, None, "the stream broke off before the answer ended"
                )
            reply = assembler.reply(window)
        yield Finished(reply)

    complete_sync = sync_twin(complete)
    stream_sync = sync_stream(stream)

    async def upload(self, data: bytes, name: str, mime_type: str | None) -> str | None:
        """Give the provider a file; return its id there, or None if it must be inline."""
        api, client = await self._ready()
        with self._mapped_errors(), self._hidden():
            return await api.upload(client, data, name, mime_type)

    async def aclose(self) -> None:
        """Close the SDK's client of this event loop; the next request opens another."""
        session, *_ = self._sessions.pop(asyncio.get_running_loop(), (None,))
        if session is not None:
            await session.aclose()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Client({self._name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        options = replace(self._options, api_key=None)
        if options.base_url is not None:
            options = replace(options, base_url=bare_address(options.base_url))
        return partial(Client, self._name, api=self._api_name, **options.given()), ()

    async def _prepare(
        self, window: Window, settings: Mapping[str, Any], files: Mapping[str, File] | None
    ) -> tuple[Any, Api, dict[str, Any]]:
        """Return the SDK's client, the API in use and the whole request."""
        wire = _wire(self._api)
        request = wire.encode(window, files=files)
        settings = wire.names_of(window).chosen(settings)
        api, client = await self._ready()
        request = with_settings(api, client, self._sdk, request, settings)
        return client, api, {"model": self._model, **request}

    async def _ready(self) -> tuple[Api, Any]:
        """Return the API in use, and the SDK's client of this event loop."""
        elsewhere = self._api.elsewhere(self._options.base_url)
        api = COMPATIBLE if elsewhere and self._api is CHAT else self._api
        loop = asyncio.get_running_loop()
        names = (*self._api.keys, self._api.address)
        environment = [os.environ.get(name) for name in names]
        _, client, opened_in = self._sessions.get(loop, (None, None, None))
        if environment != opened_in:  # a notebook may set the key after the first try
            for closed in [session for session in self._sessions if session.is_closed()]:
                del self._sessions[closed]
            client = self._open(elsewhere)
            session = _session(client, close)
            await anext(session)  # never waits, so no other task opens a client meanwhile
            self._sessions[loop] = session, client, environment
        return api, client

    def _open(self, elsewhere: bool) -> Any:
        key = self._options.api_key
        keyless = key is None and not any(os.environ.get(name) for name in self._api.keys)
        if key == "" or (keyless and elsewhere):
            key = NO_KEY
        try:
            return self._api.open(self._sdk, replace(self._options, api_key=key))
        except Exception as error:
            if keyless:
                raise AuthenticationFailed(
                    self._api.provider,
                    self._model,
                    None,
                    f"no key: set {self._api.keys[0]} in the environment, "
                    "or pass api_key= to as_model",
                ) from None
            reason = failure(error, self._api.provider, self._model, self._secrets())
            raise InvalidInput(
                f"{self._name}: the SDK's client cannot be made: {reason.message}"
            ) from self._cause(error)

    async def _next(self, chunks: Any, settings: Mapping[str, Any]) -> Any:
        with self._hidden(settings):  # Google's SDK sends at the first read
            return await anext(chunks, None)

    def _check(self, answer: object, settings: Mapping[str, Any]) -> None:
        secrets = partial(self._secrets, settings)
        reason = failure_within(answer, self._api.provider, self._model, secrets)
        if reason is not None:
            raise reason

    @contextmanager
    def _mapped_errors(self, settings: Mapping[str, Any] = _NOTHING) -> Iterator[None]:
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:
            secrets = self._secrets(settings)
            reason = failure(error, self._api.provider, self._model, secrets)
            raise reason from self._cause(error, settings)

    def _cause(self, error: Exception, settings: Mapping[str, Any] = _NOTHING) -> Exception | None:
        """Return an SDK's error as a cause, unless its text cannot be cleaned."""
        return None if shows(error, self._secrets(settings)) else error

    def _hidden(self, settings: Mapping[str, Any] = _NOTHING) -> AbstractContextManager[None]:
        # Without the client itself: tasks that a transport begins keep these context variables.
        return hidden(partial(_secrets_of, self._options, self._api, settings))

    def _secrets(self, settings: Mapping[str, Any] = _NOTHING) -> list[str]:
        return _secrets_of(self._options, self._api, settings)


def _secrets_of(options: Options, api: Api, settings: Mapping[str, Any]) -> list[str]:
    keys = [options.api_key, *(os.environ.get(name) for name in api.keys)]
    addresses = [options.base_url, os.environ.get(api.address)]
    return find_secrets(keys, addresses, settings)


async def _session(
    client: Any, end: Callable[[Any], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    # A generator, because an event loop closes the generators that it has run when it ends, and the
    # garbage collector closes a forgotten one.
    try:
        yield
    finally:
        await end(client)


def _wire(api: Api) -> Any:
    return import_module(f"muntin.wire.{api.wire}")
