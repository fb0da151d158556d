"""The result as a picture."""

from __future__ import annotations

import pytest

from muntin import InvalidInput
from tests.simulator.cases import chat, replayed


def test_the_picture_is_one_page_that_loads_nothing(tmp_path):
    def sly(messages, budget):
        return messages

    result = replayed(chat(900), policies={"<b>": sly, "exact": "exact"}, best=False)
    result.save(tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text()
    assert page.count("<svg") == 3
    assert "<b>" not in page
    assert "http" not in page
    assert len(page) < 100_000
    with pytest.raises(InvalidInput, match=r"saved as \.html"):
        result.save(tmp_path / "out.png")
