"""Sizes of images: width and height from the first bytes of a PNG, JPEG, GIF or WebP file.

Reads nothing else of an image, and knows nothing but bytes.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator

# This much of a file is read: a JPEG may hold a preview of itself before its size.
_LOOKED_AT = 256 * 1024
# The segments of a JPEG that tell its size; the three codes left out are of another kind.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Markers that no length follows.
_BARE = frozenset({0x01, *range(0xD0, 0xDA)})


def size_of_url(url: str) -> tuple[int, int] | None:
    """Return width and height of the image in a data URL; None if it is not found."""
    head, comma, _ = url[:512].partition(",")
    if not comma or head[:5].lower() != "data:" or not head.lower().endswith(";base64"):
        return None
    return size_of_base64(url[len(head) + 1 :])


def size_of_base64(data: str) -> tuple[int, int] | None:
    """Return width and height of an image that is written in base64."""
    try:
        # A multiple of four characters; most files have the size in the first 64.
        for most in (64, _LOOKED_AT // 3 * 4):
            size = size_of(b64decode(data[:most]))
            if size is not None or len(data) <= most:
                return size
    except (binascii.Error, ValueError):
        pass
    return None


def size_of(data: bytes) -> tuple[int, int] | None:
    """Return width and height of an image file by its first bytes; None if they do not tell."""
    size = None
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        size = _number(data[16:20]), _number(data[20:24])
    elif data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        size = _little(data[6:8]), _little(data[8:10])
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        size = _webp(data)
    elif data[:2] == b"\xff\xd8":
        size = next(_jpeg(data), None)
    return size if size is not None and all(size) else None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return _little(data[24:27]) + 1, _little(data[27:30]) + 1
    if kind == b"VP8L" and len(data) >= 25:
        bits = _little(data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and len(data) >= 30:
        return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF
    return None


def _jpeg(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the sizes that the segments of a JPEG tell."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # filled up
            place += 1
        elif marker in _BARE:
            place += 2
        else:
            if marker in _FRAMES:
                yield _number(data[place + 7 : place + 9]), _number(data[place + 5 : place + 7])
            place += 2 + _number(data[place + 2 : place + 4])


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
