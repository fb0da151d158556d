"""Sizes of images from the first bytes of their files."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Image, Message, messages_from
from muntin.core.counting.counter import Counter
from muntin.core.counting.images import image_tokens
from muntin.core.counting.sizes import size_of, size_of_base64, size_of_url
from tests.paths import ROOT


def png(width: int, height: int) -> bytes:
    head = struct.pack(">II", width, height) + b"\x08\x02\x00\x00\x00"
    body = b"IHDR" + head
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\r" + body + struct.pack(">I", zlib.crc32(body))


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00\x00\x00"


def jpeg(width: int, height: int, before: int = 0) -> bytes:
    preview = b"\xff\xe1" + struct.pack(">H", before + 2) + b"\x00" * before if before else b""
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03" + b"\x00" * 9
    return b"\xff\xd8\xff\xff\xc4\x00\x04\x00\x00" + preview + frame


def webp(kind: bytes, width: int, height: int) -> bytes:
    if kind == b"VP8X":
        said = b"\x00" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        said = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
    else:
        said = b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + b"\x00\x00\x00\x00" + said + b"\x00" * 8


FILES = {
    "png": png(640, 480),
    "gif": gif(640, 480),
    "jpeg": jpeg(640, 480),
    "jpeg with a preview": jpeg(640, 480, 60_000),
    "webp, extended": webp(b"VP8X", 640, 480),
    "webp, lossless": webp(b"VP8L", 640, 480),
    "webp": webp(b"VP8 ", 640, 480),
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_the_size_is_in_the_first_bytes(data: bytes) -> None:
    assert size_of(data) == (640, 480)
    written = b64encode(data).decode()
    assert size_of_base64(written) == (640, 480)
    assert size_of_url(f"data:image/any;base64,{written}") == (640, 480)


def test_a_file_that_another_program_wrote() -> None:
    found = size_of((ROOT / "docs" / "images" / "inspector.png").read_bytes())
    assert found is not None
    assert min(found) > 300


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "data:image/png,abc",
        "data:image/png;base64,",
        "data:image/png;base64,????",
        "data:image/png;base64,AAAA",
        "data:image/svg+xml;base64,PHN2Zz4=",
        "",
    ],
)
def test_what_does_not_say_its_size_has_none(url: str) -> None:
    assert size_of_url(url) is None


@given(st.sampled_from(list(FILES.values())), st.integers(0, 60))
def test_a_file_that_was_cut_is_no_error(data: bytes, end: int) -> None:
    assert size_of(data[:end]) in (None, (640, 480))


@given(st.binary(max_size=200), st.sampled_from([b"\xff\xd8\xff", b"RIFF0000WEBPVP8L", b"GIF89a"]))
def test_no_bytes_are_an_error(data: bytes, head: bytes) -> None:
    found = size_of(head + data)
    assert found is None or min(found) > 0


def test_an_image_in_a_message_counts_by_its_real_size() -> None:
    counter = Counter("chars/4")
    written = b64encode(FILES["png"]).decode()
    url = f"data:image/png;base64,{written}"
    counted = image_tokens(640, 480)
    assert counted != image_tokens(None, None)
    assert counter.message(Message("user", (Image(url),))) == counted
    source = {"type": "base64", "media_type": "image/png", "data": written}
    (shown,) = messages_from([{"role": "user", "content": [{"type": "image", "source": source}]}])
    assert counter.message(shown) == counted


def test_a_size_that_is_told_wins() -> None:
    url = f"data:image/png;base64,{b64encode(FILES['png']).decode()}"
    told = Message("user", (Image(url, width=2048, height=2048),))
    assert Counter("chars/4").message(told) == image_tokens(2048, 2048)
