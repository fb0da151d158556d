"""Images, files, sounds and films of a window, in one form for all encoders.

Owns how parts and attachments become `Media`, and the line that names a file. Knows no vendor's
format.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from urllib.parse import unquote, unquote_to_bytes

from muntin.core.counting.counter import file_hint
from muntin.core.message import Message
from muntin.core.parts import Attachment, File, Image, Modality, Other, Reasoning, Text
from muntin.wire.common import Files, Ledger

_MIME_BY_SUFFIX = {
    "csv": "text/csv",
    "gif": "image/gif",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "mov": "video/quicktime",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xml": "application/xml",
}
_MIME_BY_MODALITY: Mapping[Modality, str] = {
    "document": "application/pdf",
    "image": "image/jpeg",
    "audio": "audio/mpeg",
    "video": "video/mp4",
}


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a document, a sound or a film: by the provider's file id or by URL, which may be a
    data URL."""

    modality: Modality
    mime: str
    name: str | None = None
    id: str | None = None
    url: str | None = None
    detail: str | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def inline(self) -> bool:
        """Whether the content itself is in the URL."""
        return self.url is not None and self.url[:5].lower() == "data:"

    @property
    def base64(self) -> str:
        """The content, if it is inline."""
        head, _, payload = (self.url or "").partition(",")
        if head.lower().endswith(";base64"):
            return payload
        return b64encode(unquote_to_bytes(payload)).decode()

    @property
    def label(self) -> str:
        """Its name in the report."""
        return f"{self.modality} {self.name!r}" if self.name else self.modality


Content: TypeAlias = Text | Reasoning | Other | Media


# Addresses from which every provider reads images and files.
WEB = ("http://", "https://")


def contents(
    message: Message,
    index: int,
    files: Files,
    ledger: Ledger,
    *,
    vendor_types: Collection[str] = (),
    addresses: tuple[str, ...] = WEB,
) -> Iterator[Content]:
    """Yield the content of a message: images and files in one form, names of files as hints.

    Parts of the types in `own` are yielded unchanged: the API itself has them. An image or a file
    is listed, and not yielded, if its data is no base64 and its address begins with none of
    `addresses`.
    """
    for part in _contents(message, index, files, ledger, vendor_types):
        fault = None
        if isinstance(part, Media) and part.id is None:
            if part.inline:
                part, fault = _readable(part)
            else:
                fault = wrong_address(part.url or "", addresses)
        if fault is None:
            yield part
        else:
            ledger.miss(index, part.label if isinstance(part, Media) else "a part", fault)


def wrong_address(url: str, addresses: tuple[str, ...]) -> str | None:
    """Say what is wrong with an address that a provider cannot fetch; None if it is right."""
    is_known = any(
        url[: len(start)].lower() == start and len(url) > len(start) for start in addresses
    )
    return None if is_known else "it is neither base64 data nor an http address"


def _readable(media: Media) -> tuple[Media, str | None]:
    """Return media with its data as plain base64, and what is wrong with the data, or None."""
    data = media.base64
    if _is_base64(data):
        if (media.url or "").endswith(f";base64,{data}"):
            return media, None
        return replace(media, url=f"data:{media.mime};base64,{data}"), None
    plain = "".join(unquote(data).translate(_URL_SAFE).split())
    plain += "=" * (-len(plain) % 4)
    if _is_base64(plain):
        return replace(media, url=f"data:{media.mime};base64,{plain}"), None
    return media, "its data is no base64"


def _is_base64(text: str) -> bool:
    try:
        return bool(b64decode(text, validate=True))
    except ValueError:
        return False


def _contents(
    message: Message, index: int, files: Files, ledger: Ledger, vendor_types: Collection[str]
) -> Iterator[Content]:
    content = message.content
    if isinstance(content, str):
        if content:
            yield Text(content)
    else:
        for part in content or ():
            if isinstance(part, Image):
                yield _from_url(part.url, "image", detail=part.detail, extra=part.extra)
            elif isinstance(part, File):
                if part.name:
                    yield Text(file_hint(part.name))
                media = _from_file(part)
                if media is not None:
                    yield media
                else:
                    ledger.miss(index, f"file {part.name!r}", "it has neither an id nor data")
            elif isinstance(part, Other):
                yield part if part.data["type"] in vendor_types else _from_other(part) or part
            elif isinstance(part, Reasoning) or part.text or part.extra:
                yield part
    for item in message.attachments:
        yield Text(file_hint(item.name))
        media = _attachment_media(item, index, files, ledger)
        if media is not None:
            yield media


def hinted(message: Message, index: int, files: Files, ledger: Ledger) -> str | None:
    """Return a message that is sent as one text, its attachments named below; else None."""
    content = message.content
    if isinstance(content, tuple):
        return None
    if not message.attachments:
        return content or ""
    if any(item.id in files for item in message.attachments):
        return None
    for item in message.attachments:
        _attachment_media(item, index, files, ledger)
    hints = [file_hint(item.name) for item in message.attachments]
    return "\n".join([content, *hints] if content else hints)


def _attachment_media(item: Attachment, index: int, files: Files, ledger: Ledger) -> Media | None:
    file = files.get(item.id)
    media = _from_file(file, item) if file is not None else None
    if media is None:
        why = "no file was given for it" if file is None else "its File has neither id nor data"
        ledger.miss(index, f"attachment {item.name!r}", f"{why}; only its name is sent")
    return media


def _from_file(file: File, item: Attachment | None = None) -> Media | None:
    name = item.name if item else file.name
    mime = item.mime_type if item else None
    if file.id is None and not file.data:
        return None
    if file.data and file.data[:5].lower() == "data:":
        media = _from_url(file.data, item.modality if item else None, name=name, extra=file.extra)
        return media if file.id is None else _with_id(media, file.id)
    mime = mime or _mime_of(name) or _MIME_BY_MODALITY[item.modality if item else "document"]
    modality = item.modality if item else _modality(mime)
    if file.id is not None:
        return Media(modality, mime, name, id=file.id, extra=file.extra)
    url = f"data:{mime};base64,{file.data}"
    return Media(modality, mime, name, url=url, extra=file.extra)


def _with_id(media: Media, file_id: str) -> Media:
    return Media(media.modality, media.mime, media.name, id=file_id, extra=media.extra)


def _from_url(
    url: str,
    modality: Modality | None,
    *,
    name: str | None = None,
    detail: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Media:
    if url[:5].lower() == "data:":
        mime = url[5 : url.find(",")].partition(";")[0].lower() or "text/plain"
        modality = modality or _modality(mime)
    else:
        modality = modality or "document"
        path = url.partition("?")[0].partition("#")[0]
        mime = _mime_of(path) or _MIME_BY_MODALITY[modality]
    return Media(modality, mime, name, url=url, detail=detail, extra=extra)


def _from_other(part: Other) -> Media | None:
    """Read another vendor's image, document or sound, if all of it is known."""
    kind, data = part.data["type"], part.data
    if kind == "input_audio" and isinstance(data.get("input_audio"), Mapping):
        sound = data["input_audio"]
        if isinstance(sound.get("data"), str) and isinstance(sound.get("format"), str):
            url = f"data:audio/{sound['format']};base64,{sound['data']}"
            return _from_url(url, "audio", extra=_rest(data, "input_audio"))
    if kind in ("inline_data", "file_data") and isinstance(data.get(kind), Mapping):
        return _from_google(kind, data)
    if kind in ("input_image", "input_file"):
        return _from_responses(kind, data)
    source = data.get("source")
    if kind not in ("image", "document") or not isinstance(source, Mapping):
        return None
    name = data.get("title") if isinstance(data.get("title"), str) else None
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        url = f"data:{source.get('media_type')};base64,{source['data']}"
    elif source.get("type") == "text" and isinstance(source.get("data"), str):
        url = f"data:text/plain;base64,{b64encode(source['data'].encode()).decode()}"
    elif source.get("type") == "url" and isinstance(source.get("url"), str):
        url = source["url"]
    else:
        return None
    modality: Modality = "image" if kind == "image" else "document"
    return _from_url(url, modality, name=name, extra=_rest(data, "source", "title"))


def _from_google(kind: str, data: Mapping[str, Any]) -> Media | None:
    held = data[kind]
    mime, name = str(held.get("mime_type") or ""), held.get("display_name")
    if kind == "inline_data" and isinstance(held.get("data"), str) and mime:
        url = f"data:{mime};base64,{held['data'].translate(_URL_SAFE)}"
        return _from_url(url, None, name=name, extra=_rest(data, kind))
    if kind == "file_data" and isinstance(held.get("file_uri"), str):
        modality = _modality(mime)
        return Media(modality, mime, name, url=held["file_uri"], extra=_rest(data, kind))
    return None


_URL_SAFE = str.maketrans("-_", "+/")


def _from_responses(kind: str, data: Mapping[str, Any]) -> Media | None:
    """Read an image by its file id, or a file by its address."""
    if kind == "input_image" and isinstance(data.get("file_id"), str):
        extra = _rest(data, "file_id", "detail", "image_url")
        detail = data.get("detail")
        return Media("image", "image/jpeg", id=data["file_id"], detail=detail, extra=extra)
    if kind == "input_file" and isinstance(data.get("file_url"), str):
        extra = _rest(data, "file_url", "filename")
        return _from_url(data["file_url"], "document", name=data.get("filename"), extra=extra)
    return None


def _rest(data: Mapping[str, Any], *names: str) -> dict[str, Any] | None:
    return {k: v for k, v in data.items() if k not in names and k != "type"} or None


def _mime_of(name: str | None) -> str | None:
    return _MIME_BY_SUFFIX.get(name.rpartition(".")[2].lower()) if name else None


def _modality(mime: str) -> Modality:
    kind = mime.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"  # type: ignore[return-value]


def miss_detail(media: Media, message: int, ledger: Ledger) -> None:
    """List an image's level of detail, where one was asked for and the API has none."""
    if media.detail not in (None, "auto"):
        ledger.miss(message, f"detail {media.detail!r} of an image", "the API has none")
