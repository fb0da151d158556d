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
from muntin.core.counting.exact import hf_tokenizer
from muntin.errors import MissingExtra
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


# What a line needs, and where no package is installed does not find.
EXTRAS = {
    **{
        f"import muntin.integrations.{name}": name.replace("_", "-")
        for name in (
            *("agent_framework", "anthropic", "google_adk", "haystack", "langchain", "langgraph"),
            *("litellm", "llama_index", "openai_agents", "pydantic_ai", "strands"),
        )
    },
    "import muntin.runtime.engine.procrastinate": "engine",
    "from muntin.cli.commands import app; app()": "cli",
    "from muntin.inspector.server import check_installed; check_installed()": "inspector",
    "from muntin.gateway.server import check_installed; check_installed()": "gateway",
    "from muntin.mcp import mcp_server; mcp_server(None, 'ada')": "mcp",
    "from muntin import prompt_file; prompt_file('x.md')": "prompts",
    "from muntin.core.counting.exact import hf_tokenizer; hf_tokenizer('x.json')": "hf",
    "from muntin.core.counting.exact import openai_encoding; openai_encoding('o200k')": "tokens",
    "from muntin import Budget; Budget.for_model('openai/gpt-4o')": "prices",
    "from muntin.providers import Client; Client('openai/gpt-5.2')": "openai",
    "from muntin.timeline.store import open_store; open_store('postgresql:///x')": "postgres",
}


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


# What the page on the architecture names: inside of functions, called when all is there.
UPWARDS = ("budget", "forms", "planning.slots", "window")


def test_each_layer_knows_only_what_stands_under_it() -> None:
    drawn = layers()
    height = {name: number for number, layer in enumerate(drawn) for name in layer}
    files = read(ROOT / "src" / "muntin")
    beyond = {top(module) for module in files} - {"muntin", "muntin.__main__", "__main__"}
    assert (drawn[0], len(drawn), set(height)) == (["errors"], 14, beyond)
    upwards = {
        (module, when)
        for when in ("load", "late")
        for module, one, other in links(files, when)
        if one in height and height[other] >= height[one]
    }
    assert upwards == {(f"muntin.core.{name}", "late") for name in UPWARDS}


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


def test_every_adapter_is_among_the_lines_that_need_an_extra() -> None:
    files = read(ROOT / "src" / "muntin")
    needs = {module for module, file in files.items() if "\nwith needing(" in file.text}
    assert {line.removeprefix("import ") for line in EXTRAS} >= needs
    guarded = [file.path for file in files.values() if "except ImportError" in file.text]
    # These go on without the package.
    assert guarded == ["agent/signatures.py", "agent/tools.py", "errors.py"]


@pytest.mark.parametrize("line", EXTRAS)
def test_what_a_missing_package_is_needed_for_is_one_traceback(line: str) -> None:
    source = Path(muntin.__file__).parents[1]
    script = f"import sys; sys.path.insert(0, {str(source)!r})\n{line}"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, check=False, text=True
    )
    assert run.stderr.count("Traceback") == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith("muntin.errors.MissingExtra: ")
    assert f"pip install 'muntin[{EXTRAS[line]}]'" in last


def test_a_package_that_is_there_and_too_old_is_told_of(tmp_path, monkeypatch) -> None:
    (tmp_path / "tokenizers.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tokenizers", raising=False)
    with pytest.raises(MissingExtra, match=r"muntin\[hf\]") as raised:
        hf_tokenizer("tokenizer.json")
    assert "cannot import name 'Tokenizer'" in str(raised.value.__cause__)
