"""What a file costs in tokens, by its kind and its size in bytes.

Owns which files are text, and the formulas for files whose content is not at hand. The formulas
err high: a window that turns out smaller than counted is still sent.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from muntin.core.checks import compact_json
from muntin.core.counting.images import image_tokens

# A token of text has 3 bytes or more: English has about 4.5, code and Chinese about 3.
TEXT_BYTES = 3
# A page of a PDF or an office file: its text at the upper end of what Anthropic names, and its
# image: https://platform.claude.com/docs/en/build-with-claude/pdf-support
PAGE_TOKENS = 3_000 + 1_568
PAGE_BYTES = 50_000
# The most pages that any vendor reads: https://ai.google.dev/gemini-api/docs/document-processing
MOST_PAGES = 1_000
# 32 tokens a second (Gemini 3: 25): https://ai.google.dev/gemini-api/docs/tokens
AUDIO_TOKENS = 32
# Bytes a second: speech at 64 kbit/s; uncompressed, 16 bits at 16 kHz.
AUDIO_BYTES, PLAIN_AUDIO_BYTES = 8_000, 32_000
# About 300 tokens a second, a frame and its sound, at 1 Mbit/s:
# https://ai.google.dev/gemini-api/docs/video-understanding
VIDEO_TOKENS, VIDEO_BYTES = 300, 125_000

_PAGED = frozenset(
    ("pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "epub", "pages")
)
_PAGED_TYPES = ("pdf", "msword", "officedocument", "opendocument", "ms-excel", "ms-powerpoint")
_PLAIN_AUDIO = ("wav", "wave", "aiff", "aif", "flac", "pcm", "l16")


def file_tokens(
    modality: str,
    size: int,
    *,
    name: str | None = None,
    mime_type: str | None = None,
    formula: str = "openai-tiles",
) -> int:
    """Return the estimated tokens of a file of `size` bytes.

    An image costs as much as an image of unknown size by the `formula` of the model; a document
    without a type is taken for text.
    """
    if modality == "image":
        return image_tokens(None, None, formula=formula)
    suffix = name.rpartition(".")[2].lower() if name and "." in name else ""
    if modality == "audio":
        kind = (mime_type or "").lower().rpartition("/")[2].removeprefix("x-") or suffix
        rate = PLAIN_AUDIO_BYTES if kind in _PLAIN_AUDIO else AUDIO_BYTES
        return AUDIO_TOKENS * max(1, -(-size // rate))
    if modality == "video":
        return VIDEO_TOKENS * max(1, -(-size // VIDEO_BYTES))
    mime = (mime_type or "").lower()
    if mime in ("", "application/octet-stream"):
        has_pages = suffix in _PAGED
    else:
        has_pages = any(kind in mime for kind in _PAGED_TYPES)
    if has_pages:
        return PAGE_TOKENS * min(MOST_PAGES, max(1, -(-size // PAGE_BYTES)))
    return -(-size // TEXT_BYTES)


def is_text(mime: str) -> bool:
    """Say whether a MIME type is a text type."""
    kind = mime.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.rpartition("/")[2].rpartition("+")[2] in (
        "json",
        "xml",
        "yaml",
        "x-yaml",
        "javascript",
        "toml",
        "sql",
    )


def data_of(url: str) -> tuple[str, bytes] | None:
    """Return the type and the bytes of a data URL; None if it is no data URL, or is broken."""
    if url[:5].lower() != "data:":
        return None
    head, _, payload = url[5:].partition(",")
    try:
        if not head.lower().endswith(";base64"):
            return head.partition(";")[0].lower(), unquote_to_bytes(payload)
        return head.partition(";")[0].lower(), b64decode(payload)
    except (binascii.Error, ValueError):
        return None


def held_file(data: Mapping[str, Any]) -> tuple[str | None, str | None, str | None] | None:
    """Return the text, data URL and name of a file in another maker's part; None without a file."""
    kind = data["type"]
    source, blob, sound = data.get("source"), data.get("inline_data"), data.get("input_audio")
    if kind in ("image", "document") and isinstance(source, Mapping):
        name = data.get("title") if isinstance(data.get("title"), str) else None
        if isinstance(source.get("data"), str):
            if source.get("type") == "text":
                return source["data"], None, name
            return None, f"data:{source.get('media_type')};base64,{source['data']}", name
        if source.get("type") == "content":
            content = source.get("content")
            return content if isinstance(content, str) else compact_json(content), None, name
    if kind == "inline_data" and isinstance(blob, Mapping) and isinstance(blob.get("data"), str):
        plain = blob["data"].translate(_URL_SAFE)
        return None, f"data:{blob.get('mime_type')};base64,{plain}", blob.get("display_name")
    if kind == "input_audio" and isinstance(sound, Mapping) and isinstance(sound.get("data"), str):
        return None, f"data:audio/{sound.get('format')};base64,{sound['data']}", None
    return None


_URL_SAFE = str.maketrans("-_", "+/")
