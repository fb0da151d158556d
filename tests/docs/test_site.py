"""The site builds without a warning, loads nothing from elsewhere, and misses no public name."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import muntin
from tests.docs.blocks import DOCUMENTS, blocks
from tests.paths import ROOT
from tools.pictures import IMAGES, PICTURES
from tools.reference import FOLDER, PAGES

IMPORTED = re.compile(r"^ *from (muntin\.[\w.]+) import ([\w, ]+)$", re.MULTILINE)
# Adapters whose frameworks are installed in environments of their own; their pages show all.
FRAMEWORKS = {
    f"muntin.integrations.{page.stem.replace('-', '_')}"
    for page in (ROOT / "docs" / "howto" / "frameworks").glob("*.md")
}
# Tags and attributes by which a browser fetches something without being asked.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Loads(HTMLParser):
    """Collects what a page loads, and where it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.images_without_text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if address := given.get(LOADED.get(tag, "")):
            self.loaded.append(address)
        if tag == "img" and not given.get("alt"):
            self.images_without_text.append(given.get("src") or "?")


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto"]
    return subprocess.run(
        [*command, "-d", str(folder / "trees"), str(ROOT / "docs"), str(folder / "site")],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site that `make` has built just now, by the same command; or one of its own."""
    if ready := os.environ.get("MUNTIN_SITE"):
        return Path(ready)
    built = build(tmp_path)
    assert (built.returncode, built.stderr) == (0, "")
    return tmp_path / "site"


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))  # index and search are added
    for page in pages:
        seen = Loads()
        seen.feed(page.read_text(encoding="utf-8"))
        elsewhere = [address for address in seen.loaded if "//" in address]
        assert not elsewhere, f"{page.name} loads {elsewhere}"
        assert not seen.images_without_text, page.name
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^'\")]+", sheet.read_text())
        assert not found, f"{sheet.name} loads {found}"


def listed() -> list[str]:
    return [name for page in PAGES.values() for name in page.names]


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The pages as they are made today, in a process in which no test has wrapped anything."""
    code = "import json; from tools.reference import PAGES, written\n"
    code += "print(json.dumps({name: written(name) for name in PAGES}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(name, reference):
    assert (FOLDER / f"{name}.md").read_text("utf-8") == reference[name]


def test_the_reference_has_no_other_pages():
    assert {path.stem for path in FOLDER.glob("*.md")} == {*PAGES, "index"}


def test_every_public_name_is_in_the_reference():
    names = listed()
    for module in ("muntin", "muntin.prompts", "muntin.simulator", "muntin.testing"):
        for name in importlib.import_module(module).__all__:
            # The errors and what `muntin` itself exports are listed once, under one of their homes.
            homes = {f"{module}.{name}", f"muntin.{name}", f"muntin.errors.{name}"}
            assert homes & set(names), f"{module}.{name} is in no page of docs/reference"


def test_the_reference_has_every_name_that_the_pages_and_examples_import():
    names = {*listed(), *(f"muntin.errors.{name}" for name in muntin.__all__)}
    texts = [text for page in DOCUMENTS for language, text in blocks(page) if "py" in language]
    texts += [path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")]
    for text in texts:
        for module, found in IMPORTED.findall(text):
            if module in FRAMEWORKS:
                continue
            for name in re.findall(r"\w+", found):
                shown = {f"{module}.{name}", f"{module}.{name}.encode", f"muntin.{name}"}
                assert shown & names, f"{module}.{name} is shown to users but not in the reference"


def test_nothing_is_in_the_reference_twice():
    names = listed()
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_is_drawn_today(name):
    assert (IMAGES / f"{name}.svg").read_text("utf-8") == PICTURES[name]()
