"""Assets: where the contents of attachments are kept, and how they reach a provider.

Owns storing, and which files are uploaded, inlined or only named. The wire format writes a file
into a request; the client uploads it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import mimetypes
import os
import re
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import quote
from weakref import WeakKeyDictionary

from muntin.calls import settle
from muntin.core.checks import check_optional_text, check_text, shown
from muntin.core.model_name import ModelName
from muntin.core.parts import MODALITIES, Attachment, File, Modality
from muntin.core.window import Window
from muntin.errors import BudgetExceeded, InvalidInput, InvalidType, ProviderError, UnknownAsset
from muntin.providers.model import Event, Reply
from muntin.threads import in_thread

# A file of at most this many bytes is inlined: that costs less than an upload of its own.
INLINE_BYTES = 32_768
# A larger file is not inlined, only named: base64 makes it a third larger, and the smallest
# limit of a request is 32 MB (https://docs.claude.com/en/api/overview, request size limits).
MOST_INLINE_BYTES = 20_000_000
# How long a provider keeps a file, less an hour to be safe; other providers keep it for good.
# https://ai.google.dev/gemini-api/docs/files ("Files are stored for 48 hours")
KEPT_SECONDS: Mapping[str, float] = {"google": 47 * 3600.0}

_ID = re.compile(r"[0-9a-f]{64}")


def _seconds_valid(account: str) -> float:
    return KEPT_SECONDS.get(account.partition("@")[0], float("inf"))


class Assets(Protocol):
    """Where the contents of attachments are kept. Both methods may also be async."""

    def read(self, id: str, /) -> bytes | Awaitable[bytes]:
        """Return the contents; an unknown id raises `UnknownAsset`."""

    def put(
        self, data: bytes, name: str, mime_type: str | None = None
    ) -> Attachment | Awaitable[Attachment]:
        """Store the contents, and return the attachment that refers to them."""


@runtime_checkable
class Uploads(Protocol):
    """Assets that remember, beyond this process, which files were uploaded where.

    `provider` is the provider's name; if the model tells its account, `@` and the account follow:
    one account does not have the files of another.
    """

    def file_id(self, id: str, provider: str) -> str | None:
        """Return the provider's id of this asset, if the provider should still have it."""

    def remember(self, id: str, provider: str, file_id: str) -> None:
        """Store the provider's id of this asset."""

    def forget(self, id: str, provider: str) -> None:
        """Remove the provider's id of this asset: the provider no longer has it."""


class Uploader(Protocol):
    """A client that can upload a file and refer to it afterwards."""

    async def upload(self, data: bytes, name: str, mime_type: str | None) -> str | None:
        """Return the provider's file id; None if its API takes such a file only inline."""


class FileModel(Protocol):
    """A model that takes the files of a window's attachments; it may be an `Uploader` too."""

    @property
    def name(self) -> str:
        """The name of the model."""

    async def complete(
        self, window: Window, *, settings: Mapping[str, Any], files: Files | None
    ) -> Reply:
        """Send the window with these files."""

    def stream(
        self, window: Window, *, settings: Mapping[str, Any], files: Files | None
    ) -> AsyncIterator[Event]:
        """Send the window with these files and yield the answer as it comes."""


Files: TypeAlias = Mapping[str, File]


class DirectoryAssets:
    """Assets in a directory: each stored once, under the hash of its contents.

    Beside the contents are name and type, and the file ids at providers. Every file is written
    whole or not at all.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __repr__(self) -> str:
        return f"DirectoryAssets({str(self._path)!r})"

    def read(self, id: str) -> bytes:
        """Return the contents of an asset."""
        try:
            return (self._folder(id) / "data").read_bytes()
        except FileNotFoundError:
            raise self._unknown(id) from None

    def put(self, data: bytes, name: str, mime_type: str | None = None) -> Attachment:
        """Store the contents; the same contents have the same id, whatever their name.

        Only the last part of a path is kept as name; without a `mime_type` the name tells the type.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidType(f"the data of an asset must be bytes, not {type(data).__name__}")
        data = bytes(data)
        attachment = _attachment(hashlib.sha256(data).hexdigest(), len(data), name, mime_type)
        folder = self._folder(attachment.id)
        if not (folder / "data").exists():
            folder.mkdir(parents=True, exist_ok=True)
            about = {
                "name": attachment.name,
                "mime_type": attachment.mime_type,
                "size": attachment.size,
            }
            _write(folder / "about.json", json.dumps(about).encode())
            _write(folder / "data", data)  # written last: a readable asset is complete
        return attachment

    def get(self, id: str) -> Attachment:
        """Return the attachment as it was first put here."""
        try:
            about = json.loads((self._folder(id) / "about.json").read_bytes())
        except FileNotFoundError:
            raise self._unknown(id) from None
        return _attachment(id, about["size"], about["name"], about["mime_type"])

    def file_id(self, id: str, provider: str) -> str | None:
        """Return the provider's id of this asset, if the provider should still have it."""
        with suppress(FileNotFoundError, UnknownAsset):
            sent = json.loads(self._sent(id, provider).read_bytes())
            if time.time() - sent["at"] < _seconds_valid(provider):
                return str(sent["file_id"])
        return None

    def remember(self, id: str, provider: str, file_id: str) -> None:
        """Store the provider's id of this asset."""
        sent = {"file_id": file_id, "at": time.time()}
        _write(self._sent(id, provider), json.dumps(sent).encode())

    def forget(self, id: str, provider: str) -> None:
        """Remove the provider's id of this asset."""
        with suppress(UnknownAsset):
            self._sent(id, provider).unlink(missing_ok=True)

    def _folder(self, id: str) -> Path:
        # A path is always a hash: no id leads out of the directory.
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise self._unknown(id)
        return self._path / id

    def _sent(self, id: str, provider: str) -> Path:
        return self._folder(id) / f"sent-{quote(provider, safe='')}.json"

    def _unknown(self, id: object) -> UnknownAsset:
        return UnknownAsset(f"no asset {id!r} in {str(self._path)!r}")


def _attachment(id: str, size: int, name: str, mime_type: str | None) -> Attachment:
    check_optional_text(mime_type, "mime_type")
    last = re.split(r"[/\\]", check_text(name, "the name of an asset"))[-1]
    # A line end would let a name write lines of the prompt.
    clean = "".join(c if c.isprintable() else " " for c in last).strip()
    if not clean:
        raise InvalidInput(f"an asset needs a name, not {shown(name)}")
    mime = mime_type or mimetypes.guess_type(clean)[0]
    kind = (mime or "").partition("/")[0]
    modality: Modality = next((name for name in MODALITIES if name == kind), "document")
    return Attachment(id, clean, size, modality, mime)


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@dataclass(slots=True)
class _Memory:
    """The uploads of this process, for assets that do not remember uploads themselves."""

    sent: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)

    def file_id(self, id: str, provider: str) -> str | None:
        file_id, at = self.sent.get((id, provider), (None, 0.0))
        seconds_valid = _seconds_valid(provider)
        return file_id if time.time() - at < seconds_valid else None

    def remember(self, id: str, provider: str, file_id: str) -> None:
        self.sent[id, provider] = file_id, time.time()

    def forget(self, id: str, provider: str) -> None:
        self.sent.pop((id, provider), None)


_memories: WeakKeyDictionary[Assets, _Memory] = WeakKeyDictionary()


def _memory_of(assets: Assets) -> Uploads:
    if isinstance(assets, Uploads):
        return assets
    try:
        return _memories.setdefault(assets, _Memory())
    except TypeError:  # not hashable, or takes no weak references
        return _Memory()


async def files_for(
    window: Window,
    *,
    provider: str,
    uploader: Uploader | None,
    assets: Assets | None,
    inline_bytes: int = INLINE_BYTES,
) -> dict[str, File]:
    """Return the files of the window's attachments, by attachment id, ready to be encoded.

    A small file is inlined, any other file is uploaded, unless the provider has it already. A file
    that cannot be uploaded is inlined. A file that is too large for that, or not in the assets, is
    left out: only its name is sent, and `report.not_carried` says so.
    """
    if assets is None:
        return {}
    wanted = {item.id: item for message in window.messages for item in message.attachments}

    async def upload(item: Attachment) -> File | None:
        try:
            if uploader is not None and item.size > inline_bytes:
                file_id = await _upload_once(item, provider, uploader, assets)
                if file_id is not None:
                    return File(file_id, name=item.name)
            data = await _read(assets, item.id)
        except UnknownAsset:
            return None
        if len(data) > MOST_INLINE_BYTES:
            return None
        mime = item.mime_type or "application/octet-stream"
        return File(name=item.name, data=f"data:{mime};base64,{b64encode(data).decode()}")

    files = await asyncio.gather(*map(upload, wanted.values()))
    return {id: file for id, file in zip(wanted, files, strict=True) if file is not None}


async def _read(assets: Assets, id: str) -> bytes:
    return await settle(await in_thread(partial(assets.read, id)))


# Uploads under way: all requests for the same file in the same place wait for one upload.
_flights: dict[tuple[Any, ...], asyncio.Task[str | None]] = {}


async def _upload_once(
    item: Attachment, provider: str, uploader: Uploader, assets: Assets
) -> str | None:
    memory = _memory_of(assets)
    stored_id = memory.file_id(item.id, provider)
    if stored_id is not None:
        return stored_id

    async def upload() -> str | None:
        file_id = await uploader.upload(await _read(assets, item.id), item.name, item.mime_type)
        if file_id is not None:
            memory.remember(item.id, provider, file_id)
        return file_id

    key = (asyncio.get_running_loop(), id(assets), provider, item.id)
    flight = _flights.get(key)
    if flight is None:
        flight = asyncio.create_task(upload())
        _flights[key] = flight
        flight.add_done_callback(lambda _: _flights.pop(key, None))
    # One cancelled wait does not cancel the upload for the others.
    return await asyncio.shield(flight)


class WithAssets:
    """A model that finds the files of a window's attachments in `assets`, and sends them along.

    A file that the provider no longer has is uploaded again, once.
    """

    def __init__(self, model: FileModel, assets: Assets) -> None:
        self._model = model
        self._assets = assets
        self._provider = ModelName.parse(model.name).provider or model.name
        self._uploader: Any = model if callable(getattr(model, "upload", None)) else None

    def __repr__(self) -> str:
        return f"WithAssets({self._model!r}, {self._assets!r})"

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._model.name

    @property
    def tool_loading(self) -> Any:
        """How the model's server takes tools that are found."""
        return getattr(self._model, "tool_loading", None)

    async def complete(self, window: Window, *, settings: Mapping[str, Any]) -> Reply:
        """Send the window with its files and return the whole answer."""
        files = await self._files(window)
        try:
            return await self._model.complete(window, settings=settings, files=files)
        except ProviderError as error:
            if not self._forget(error, files):
                raise
        files = await self._files(window)
        return await self._model.complete(window, settings=settings, files=files)

    async def stream(self, window: Window, *, settings: Mapping[str, Any]) -> AsyncIterator[Event]:
        """Send the window with its files and yield the answer as it comes."""
        files = await self._files(window)
        begun = False
        try:
            async for event in self._model.stream(window, settings=settings, files=files):
                begun = True
                yield event
            return
        except ProviderError as error:
            if begun or not self._forget(error, files):
                raise
        files = await self._files(window)
        async for event in self._model.stream(window, settings=settings, files=files):
            yield event

    async def _files(self, window: Window) -> dict[str, File]:
        if window.over_budget:  # neither the window nor its files are sent
            raise BudgetExceeded(window.tokens, window.report.budget, window.report)
        return await files_for(
            window, provider=self._account(), uploader=self._uploader, assets=self._assets
        )

    def _forget(self, error: ProviderError, files: Files) -> bool:
        """Forget the files that the provider says it does not have; say whether there are any."""
        if error.status not in (400, 403, 404):
            return False
        # All three name the missing file; Google's id is an address, of which they name the end.
        gone = [
            id
            for id, file in files.items()
            if file.id and file.id.rsplit("/", 1)[-1] in error.message
        ]
        for id in gone:
            _memory_of(self._assets).forget(id, self._account())
        return bool(gone)

    def _account(self) -> str:
        account = getattr(self._model, "account", None)
        return f"{self._provider}@{account}" if isinstance(account, str) else self._provider
