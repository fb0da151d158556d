"""How much of a history that steps is kept does not depend on what happens to be empty."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import Message, Stepped, assistant, user
from tests.promises.composing import compose, slot

HISTORY: list[Message] = [user("u" * 20), assistant("a" * 20)] * 20


def kept(docs: Any, **options: Any) -> int:
    """Return how many messages of the history a turn with these documents keeps."""
    window = compose(
        600,
        slot("system", "S" * 40),
        slot("history", HISTORY, trimming=Stepped(low=0.5)),
        slot("docs", docs, **options),
        slot("input", "what now?"),
    )
    return window.report["history"].messages_kept


@pytest.mark.parametrize("options", [{"max_tokens": 100}, {"max_ratio": 0.25}, {}])
def test_an_empty_text_keeps_its_room_free(options: dict[str, Any]) -> None:
    full, empty = kept("D" * 90, **options), kept("", **options)
    assert full == empty == kept(None, **options)
