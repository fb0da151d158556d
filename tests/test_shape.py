"""The shape of the tree: knots, what is private, and what is public."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import muntin
from tests.docs.blocks import DOCUMENTS, name_of
from tests.paths import ROOT
from tools.tree import File, graph, knots, places, read

SOURCE = ROOT / "src" / "muntin"
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT / "src").parts) for path in SOURCE.rglob("__init__.py")
)

# What the library promises to export, beside `muntin.__all__`.
PROMISED = """
    Message Attachment ToolCall Input system user assistant tool Budget Slots Window Report History
    Turns Tokens Exact BudgetExceeded MuntinError
    prompt context when match generate generate_sync config set_tokenizer CacheOptions
    App Source Wake ContextEntry generator capability flow Action prompt_file Tool Stepped
    xml_tag render_tagged_context validate_tag_name normalize_tag_name RESERVED_TAG_NAMES raw
    aggregate contribute
    Session Decision SlotReport Breakpoint Frontier Pool
    MissingExtra PromptFileError TokenizerError UnknownModel
"""


@cache
def files() -> dict[str, File]:
    """Return the files of the source, read once."""
    return read(SOURCE)


def exported(module: str) -> list[str]:
    """Return what a module lists in `__all__`; adapters are read: frameworks may be missing."""
    if not module.startswith("muntin.integrations."):
        return list(getattr(import_module(module), "__all__", ()))
    (listed,) = re.findall(r"^__all__ = (\[.*\])$", files()[module].text, re.MULTILINE)
    names: list[str] = literal_eval(listed)
    return names


def imported(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules of ours that a text imports, each with the names it takes from there."""
    for module, names in re.findall(
        r"^ *from (muntin[\w.]*) import (\([^)]*\)|.*)$", text, re.MULTILINE
    ):
        yield module, re.findall(r"(\w+)(?: as \w+)?(?=[\s,)]|$)", names.partition("#")[0])
    for module in re.findall(r"^ *import (muntin[\w.]*)", text, re.MULTILINE):
        yield module, []


def test_nothing_private_is_used_elsewhere_and_only_the_core_and_the_composer_make_slots():
    seen = places(files())
    assert seen["private accesses"] == []
    makers = [maker for maker in seen["composers"] if not maker.startswith("core/")]
    assert [maker for maker in makers if not maker.startswith("composer.py")] == []
    assert [maker for maker in makers if maker.endswith("Counter(")] == []


def test_every_folder_is_a_package_that_lists_what_it_shows_and_shows_it():
    for folder in {path.parent for path in SOURCE.rglob("*.py")}:
        assert (folder / "__init__.py").exists(), folder
    for package in PACKAGES:
        module = import_module(package)
        assert len(set(module.__all__)) == len(module.__all__), package
        for name in module.__all__:
            getattr(module, name)


def test_users_are_shown_no_import_deeper_than_a_package():
    for document in [*DOCUMENTS, *sorted((ROOT / "examples").glob("*.py"))]:
        for module, names in imported(document.read_text(encoding="utf-8")):
            is_top = module.count(".") == 1 or module.startswith("muntin.integrations.")
            where = f"{name_of(document)}: {module}"
            assert module in PACKAGES or (is_top and module in files()), f"{where} is not for users"
            shown = exported(module) or names
            for name in names:
                assert module == "muntin" or name in shown, f"{where} does not show {name}"


def test_every_promised_name_is_importable_from_the_top():
    assert 45 <= len(muntin.__all__) <= 58
    for name in {*PROMISED.split(), *muntin.__all__}:
        getattr(muntin, name)


def test_no_more_than_four_modules_need_each_other():
    assert [knot for knot in knots(graph(files(), late=False)) if len(knot) > 4] == []
