"""The documents are true: their examples print what they say, their links lead somewhere."""

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

import pytest

import muntin

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_run_and_print_what_the_document_says(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files that an example makes are gone afterwards
    (tmp_path / "tests").symlink_to(ROOT / "tests")  # recorded conversations
    names: dict[str, object] = {"__name__": document.stem}
    found = blocks(document)
    for (language, code), (next_language, expected) in pairwise([*found, ("", "")]):
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(code, str(document), "exec"), names)
            if next_language == "text":
                assert output.getvalue() == expected


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_that_exist(document):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_the_readme_shows_the_example_as_it_is_in_the_repository():
    code = next(code for language, code in blocks(ROOT / "README.md") if language == "python")
    shipped = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert code.strip() in shipped


def test_the_architecture_page_names_every_source_file():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for source in (ROOT / "src" / "muntin").rglob("*.py"):
        if source.name != "__init__.py":
            assert f"`{source.relative_to(ROOT / 'src' / 'muntin')}`" in page, source


def test_the_changelog_has_the_present_version():
    assert f"## {muntin.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
