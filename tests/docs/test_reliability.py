"""The page of faults names tests that are there."""

from __future__ import annotations

import re

from tests.paths import ROOT

NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_test_that_the_page_names_is_there():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = NAMED.findall(page)
    assert len(named) > 20
    for file, name in named:
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text, f"{file}::{name}"
