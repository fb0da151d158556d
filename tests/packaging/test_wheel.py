"""The wheel and the sdist: what is in them, what is not, and what they say of themselves."""

from __future__ import annotations

import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import muntin
from tests.packaging.conftest import ROOT, do

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CACHES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".venv"}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def source_files() -> set[str]:
    source = ROOT / "src"
    return {
        file.relative_to(source).as_posix()
        for file in (source / "muntin").rglob("*")
        if file.is_file() and not CACHES.intersection(file.parts)
    }


def test_the_wheel_has_every_file_of_the_source_and_nothing_else(built):
    names = {name for name in contents(built.wheel) if ".dist-info/" not in name}
    assert names == source_files()


def test_the_wheel_has_what_is_not_code(built):
    assert {
        "muntin/py.typed",
        "muntin/core/counting/vocab/LICENSE",
        "muntin/core/counting/vocab/cl100k_base.bin",
        "muntin/core/counting/vocab/o200k_base.bin",
        "muntin/cli/data/airline.json",
        "muntin/inspector/static/index.html",
        "muntin/inspector/static/app.js",
        "muntin/inspector/static/style.css",
        "muntin/timeline/recall/table/README.md",
        "muntin/timeline/recall/table/words.bin",
    } <= set(contents(built.wheel))


def test_the_wheel_runs_on_any_machine(built):
    assert built.wheel.name == f"muntin-{muntin.__version__}-py3-none-any.whl"


def test_the_sdist_has_all_that_is_needed_to_test_it_and_no_caches(built):
    with tarfile.open(built.sdist) as file:
        names = [Path(*Path(name).parts[1:]) for name in file.getnames()]
    assert {"src", "tests", "docs", "examples", "bench", "Makefile", "LICENSE"} <= {
        name.parts[0] for name in names
    }
    assert [name for name in names if CACHES.intersection(name.parts)] == []
    # What SQLite leaves beside a file that is open.
    assert [name for name in names if name.suffix in (".db-shm", ".db-wal")] == []


def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built.sdist) as file:
        file.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    do(*build, cwd=unpacked)
    assert contents(tmp_path / built.wheel.name) == contents(built.wheel)


def test_the_metadata_are_those_of_the_project(built):
    said = built.metadata.metadata
    assert said["Name"] == "muntin"
    assert said["Version"] == muntin.__version__
    assert said["Summary"] == PROJECT["description"]
    assert said["Requires-Python"] == ">=3.11"
    assert set(said.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])


def test_the_readme_is_the_long_description(built):
    said = built.metadata.metadata
    assert said["Description-Content-Type"] == "text/markdown"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (said.get_payload() or said["Description"]).strip() == readme.strip()


def test_without_extras_nothing_is_required(built):
    requires = built.metadata.requires or []
    assert [text for text in requires if "extra ==" not in text] == []


def test_every_licence_is_named_and_carried(built):
    said = built.metadata.metadata
    # The vocabularies and the conversation of the demo are others', under the MIT License; the
    # words of recall's table are in the public domain.
    assert said["License-Expression"] == "Apache-2.0 AND MIT AND PDDL-1.0"
    files = contents(built.wheel)
    for name in said.get_all("License-File"):
        carried = files[f"muntin-{muntin.__version__}.dist-info/licenses/{name}"]
        assert carried == (ROOT / name).read_bytes()
    assert {
        "LICENSE",
        "src/muntin/core/counting/vocab/LICENSE",
        "src/muntin/cli/data/README.md",
        "src/muntin/timeline/recall/table/README.md",
    } == set(said.get_all("License-File"))


def test_the_oldest_python_named_is_the_oldest_allowed(built):
    start = "Programming Language :: Python :: 3."
    named = sorted(
        int(line.removeprefix(start))
        for line in built.metadata.metadata.get_all("Classifier")
        if line.startswith(start)
    )
    assert built.metadata.metadata["Requires-Python"] == f">=3.{named[0]}"
    assert named == list(range(named[0], named[-1] + 1))


def test_the_command_is_muntin(built):
    (script,) = built.metadata.entry_points
    assert (script.group, script.name, script.value) == (
        "console_scripts",
        "muntin",
        "muntin.cli:main",
    )
