"""The documents are true: their examples print what they say, their links lead somewhere."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import muntin
from bench.frameworks.speak import Called, Said, speaking
from tests.docs.blocks import DOCUMENTS, blocks, matches, name_of, run_page
from tests.paths import ROOT

POSTGRES = "docs/howto/postgresql.md"


@pytest.fixture
def variables(request, monkeypatch) -> Iterator[Mapping[str, str]]:
    """Environment variables of a page: the README is given a model, one page a PostgreSQL."""
    match name_of(request.getfixturevalue("document")):
        case "README.md":
            with speaking(shop) as server:
                yield {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{server.url}/v1"}
        case name if name == POSTGRES:
            server = request.getfixturevalue("server")
            address = server.url(server.new_database())
            monkeypatch.setenv("MUNTIN_STORE", address)
            yield {"MUNTIN_STORE": address}
        case _:
            yield {}


def shop(api: str, request: dict[str, Any]) -> Said:
    """Answer as a model would: with the tool for an order, and from what the window holds."""
    texts = [str(message["content"]) for message in request["messages"]]
    if "Which number" in texts[-1]:
        assert any("order 7" in text for text in texts[:-1]), "the conversation was forgotten"
        return Said("It was order 7.")
    if request["messages"][-1]["role"] == "tool":
        return Said("Order 7 was shipped yesterday.")
    return Said(calls=(Called("c1", "find_order", '{"number": 7}'),))


# The pages of frameworks are run where those are installed, by tests/integrations/test_pages.py.
RUN = [page for page in DOCUMENTS if page.parent.name != "frameworks"]


@pytest.mark.parametrize("document", RUN, ids=name_of)
def test_examples_and_commands_print_what_the_document_says(
    document, variables, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # files that an example makes are gone afterwards
    run_page(document, tmp_path, variables)


def test_the_lines_a_command_prints_are_compared_and_an_ellipsis_stands_for_anything():
    assert matches(["made 3 files in 0.2 s"], ["made 3 files in … s"])
    assert not matches(["made 3 files in 0.2 s"], ["made 4 files in … s"])
    assert not matches(["one", "two"], ["one"])
    assert not matches(["a+b"], ["aab"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_that_exist(document):
    text = document.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r'<img src="([^"]+)"', text)
    for target in targets:
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_the_readme_shows_the_example_as_it_is_in_the_repository():
    code = next(code for language, code in blocks(ROOT / "README.md") if language == "python")
    shipped = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert code.strip() in shipped


def test_the_readme_shows_the_adapter_as_its_page_has_it():
    code = next(code for language, code in blocks(ROOT / "README.md") if language == "py")
    page = (ROOT / "docs" / "howto" / "frameworks" / "langchain.md").read_text(encoding="utf-8")
    assert code in page


def test_the_readme_shows_code_on_its_first_screen_and_no_table_of_source_files():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before = text[: text.index("```python")]
    assert before.count("\n") <= 30
    assert "<img" not in before  # a picture is as high as twenty lines
    assert "`src/" not in text


def test_the_figures_of_the_readme_are_those_of_the_benchmarks():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = re.findall(r"^\|.*\|$", text.partition("## How it compares")[2], re.MULTILINE)
    measured = [row for row in table if row.startswith(("| time", "| input cost", "| requests"))]
    figures = [
        figure
        for row in measured
        for cell in row.split("|")[2:-1]
        for figure in re.findall(r"1/[\d,]+|\d+\.\d+|\b\d+\b", cell)
    ]
    assert len(figures) > 12
    for figure in figures:
        assert f"| {figure} |" in page, figure
    for version in re.findall(r"\d+\.\d+\.\d+", table[0]):
        assert version in page, version


def test_the_architecture_page_fits_on_two_screens():
    lines = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 120


def test_the_glossary_is_in_order():
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\*\*(.+)\*\*$", page, re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(words, key=str.lower)


def test_the_readme_names_paths_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:src|tests|bench|tools|docs|examples)/[\w./]*)`", text):
        assert (ROOT / path).exists(), path


def test_every_promise_stands_on_the_page_with_its_test():
    page = ROOT.joinpath("docs", "promises.md").read_text(encoding="utf-8")
    tests = {path.name for path in ROOT.joinpath("tests", "promises").glob("test_*.py")}
    assert set(re.findall(r"\(\.\./tests/promises/(test_\w+\.py)\)", page)) == tests


def test_the_changelog_has_the_present_version():
    assert f"## {muntin.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
