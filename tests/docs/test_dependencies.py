"""The page of dependencies names exactly what is in pyproject.toml."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
SECTION = re.compile(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(.+?)` \|", re.MULTILINE)
# Title of a section: the rows of its table. Three extras share one.
SECTIONS = {title: ROW.findall(text) for title, text in SECTION.findall(PAGE)}


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_names_what_is_declared(title):
    if title == "To build":
        assert SECTIONS[title] == PROJECT["build-system"]["requires"]
        return
    declared = [line for extra in re.findall(r"`([\w-]+)`", title) for line in EXTRAS[extra]]
    assert SECTIONS[title] == declared


def test_every_extra_has_a_section():
    assert sorted(re.findall(r"`([\w-]+)`", " ".join(SECTIONS))) == sorted(EXTRAS)


def test_the_package_alone_needs_nothing():
    assert PROJECT["project"]["dependencies"] == []
