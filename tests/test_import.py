"""Importing: `import muntin` loads nothing but itself, and the core needs no package at all."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

import muntin
from muntin import core
from tests.paths import ROOT
from tools.tree import layers, links, read, top

CORE = sorted(module.name for module in pkgutil.iter_modules(core.__path__, "muntin.core."))


def loaded_by(code: str) -> set[str]:
    """Return the modules that `code` loads in a new process, beyond those of an empty one."""
    source = Path(muntin.__file__).parents[1]
    script = (
        f"import json, sys; sys.path.insert(0, {str(source)!r}); before = set(sys.modules)\n"
        f"{code}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    # -I -S: no site-packages, no environment.
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, check=True, text=True
    )
    return set(json.loads(run.stdout))


def foreign(modules: set[str]) -> set[str]:
    """Return what is neither Muntin's nor the standard library's."""
    roots = {name.partition(".")[0] for name in modules}
    return roots - {"muntin"} - set(sys.stdlib_module_names)


# What running code raises, whatever it does.
QUIET = ("compile", "exec", "import", "marshal.", "object.", "sys.")


def is_import(event: str, what: str) -> bool:
    """Say whether this is the import system that looks for a module, or reads it."""
    return event == "os.listdir" or (event == "open" and what.endswith((".py", ".pyc")))


def test_import_muntin_loads_only_itself() -> None:
    loaded = loaded_by("import muntin")
    assert foreign(loaded) == set()
    assert {name for name in loaded if name.startswith("muntin")} == {"muntin"}


def test_import_muntin_touches_nothing_but_code() -> None:
    source = Path(muntin.__file__).parents[1]
    script = f"""
import sys
sys.path.insert(0, {str(source)!r})
touched = []
sys.addaudithook(lambda event, args: touched.append((event, args[0] if args else None)))
import muntin
print([(event, str(what)) for event, what in touched if not event.startswith({QUIET!r})])
"""
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", script], capture_output=True, check=True, text=True
    )
    touched = literal_eval(run.stdout)
    assert touched
    assert [(event, what) for event, what in touched if not is_import(event, what)] == []


@pytest.mark.parametrize("name", CORE)
def test_the_core_needs_only_the_standard_library(name: str) -> None:
    assert foreign(loaded_by(f"import {name}")) == set()


def test_each_layer_knows_only_what_stands_under_it() -> None:
    drawn = layers()
    height = {name: number for number, layer in enumerate(drawn) for name in layer}
    files = read(ROOT / "src" / "muntin")
    beyond = {top(module) for module in files} - {"muntin", "muntin.__main__", "__main__"}
    assert (drawn[0], len(drawn), set(height)) == (["errors"], 12, beyond)
    upwards = {
        (module, when)
        for when in ("load", "late")
        for module, one, other in links(files, when)
        if one in height and height[other] >= height[one]
    }
    # As the page says: inside of functions, which are called when all is there.
    assert upwards == {("muntin.core.budget", "late"), ("muntin.core.planning.window", "late")}


def test_every_public_name_loads_without_any_package() -> None:
    loaded = loaded_by("import muntin\nfor name in muntin.__all__: getattr(muntin, name)")
    assert foreign(loaded) == set()


def test_every_public_name_is_listed_once() -> None:
    assert dir(muntin) == sorted(muntin.__all__)
    assert len(set(muntin.__all__)) == len(muntin.__all__)
    assert set(muntin.__all__) < {*muntin._HOME, "__version__"}


@pytest.mark.parametrize("name", sorted(muntin.__all__))
def test_every_public_name_has_its_home(name: str) -> None:
    value = getattr(muntin, name)
    assert getattr(value, "__module__", "muntin").startswith("muntin")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        muntin.nonsense  # noqa: B018
