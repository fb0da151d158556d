"""The documents are true: their examples print what they say, their links lead somewhere."""

import re
from collections.abc import Iterator, Mapping

import pytest

import muntin
from tests.docs.blocks import DOCUMENTS, blocks, matches, name_of, run_page
from tests.paths import ROOT
from tests.reliability.server import running_server

POSTGRES = "docs/howto/postgresql.md"


@pytest.fixture
def variables(request, monkeypatch) -> Iterator[Mapping[str, str]]:
    """Environment variables of a page: the one on PostgreSQL is given a real server."""
    if name_of(request.getfixturevalue("document")) != POSTGRES:
        yield {}
        return
    with running_server() as server:
        address = server.url(server.new_database())
        monkeypatch.setenv("MUNTIN_STORE", address)
        yield {"MUNTIN_STORE": address}


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
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_the_readme_shows_the_example_as_it_is_in_the_repository():
    code = next(code for language, code in blocks(ROOT / "README.md") if language == "python")
    shipped = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert code.strip() in shipped


def listed_files() -> Iterator[tuple[str, str]]:
    """Yield the files of the tree in docs/contributing.md, each with what it owns."""
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    folders: list[str] = []
    for line in re.findall(r"^    ( *\S.*)$", page.partition("## The tree\n")[2], re.MULTILINE):
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, owns = line.strip().partition(" ")
        folders[depth:] = [name]
        yield "".join(folders) + ("__init__.py" if name.endswith("/") else ""), owns.strip()


def test_the_tree_that_the_docs_show_is_the_tree_of_the_source():
    shown = dict(listed_files())
    source = ROOT / "src" / "muntin"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert set(shown) == files - {"__init__.py"}
    assert all(shown.values())


def test_the_architecture_page_fits_on_two_screens():
    lines = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 90
    assert max(map(len, lines)) <= 120


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
