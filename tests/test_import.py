"""Importing: `import muntin` loads nothing but itself, and the core needs no package at all."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import muntin
from muntin import core

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


def test_import_muntin_loads_only_itself() -> None:
    loaded = loaded_by("import muntin")
    assert foreign(loaded) == set()
    assert {name for name in loaded if name.startswith("muntin")} == {"muntin"}


@pytest.mark.parametrize("name", CORE)
def test_the_core_needs_only_the_standard_library(name: str) -> None:
    assert foreign(loaded_by(f"import {name}")) == set()


def test_every_public_name_loads_without_any_package() -> None:
    loaded = loaded_by("import muntin\nfor name in muntin.__all__: getattr(muntin, name)")
    assert foreign(loaded) == set()


def test_every_public_name_is_listed_once() -> None:
    assert dir(muntin) == sorted(muntin.__all__)
    assert len(set(muntin.__all__)) == len(muntin.__all__)
    assert set(muntin.__all__) == {*muntin._HOME, "__version__"}


@pytest.mark.parametrize("name", sorted(muntin.__all__))
def test_every_public_name_has_its_home(name: str) -> None:
    value = getattr(muntin, name)
    assert getattr(value, "__module__", "muntin").startswith("muntin")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        muntin.nonsense  # noqa: B018
