"""Files: which are text, what data URLs hold, what other makers' parts hold."""

from __future__ import annotations

import pytest

from muntin.core.counting.files import data_of, file_tokens, held_file, is_text


@pytest.mark.parametrize(
    ("mime", "text"),
    [
        ("text/plain", True),
        ("text/csv; charset=utf-8", True),
        ("application/json", True),
        ("application/ld+json", True),
        ("image/svg+xml", True),
        ("application/pdf", False),
        ("image/png", False),
    ],
)
def test_which_types_are_text(mime: str, text: bool) -> None:
    assert is_text(mime) is text


def test_data_urls() -> None:
    assert data_of("data:text/plain;base64,aGk=") == ("text/plain", b"hi")
    assert data_of("data:text/plain,a%20b") == ("text/plain", b"a b")
    assert data_of("https://x.test") is None
    assert data_of("data:;base64,a") is None


def test_what_parts_of_other_makers_hold() -> None:
    source = {"type": "url", "url": "https://x.test/a.pdf"}
    assert held_file({"type": "document", "source": source}) is None
    assert held_file({"type": "odd"}) is None
    sound = {"data": "aGk=", "format": "wav"}
    held = held_file({"type": "input_audio", "input_audio": sound})
    assert held == (None, "data:audio/wav;base64,aGk=", None)


def test_an_empty_file_costs_its_least() -> None:
    assert file_tokens("document", 0) == 0
    assert file_tokens("document", 0, mime_type="application/pdf") == 4_568
    assert file_tokens("audio", 0) == 32
    assert file_tokens("video", 0) == 300
