"""The command as a whole: help, version, completion, and what it needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import muntin
from muntin.cli.commands import COMMANDS
from tests.cli.command import MUNTIN, run, said
from tests.paths import ROOT


def test_the_version():
    ended = subprocess.run([MUNTIN, "--version"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"muntin {muntin.__version__}\n")


def test_a_command_that_is_named_loads_no_other():
    code = "import sys; from muntin.cli import main; sys.argv[1:] = ['count', '-h']\ntry: main()\n"
    loaded = python("-c", f"{code}finally: print(*sys.modules)").stdout.split()
    assert [name for name in COMMANDS if f"muntin.cli.{name}" in loaded] == ["count"]


def python(*args: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, encoding="utf-8", **options
    )


def test_it_runs_as_a_module():
    ended = python("-m", "muntin", "--version")
    assert (ended.returncode, ended.stdout) == (0, f"muntin {muntin.__version__}\n")


def test_without_the_extra_it_says_what_to_install():
    source = Path(muntin.__file__).parents[1]
    script = f"import sys, runpy; sys.path.insert(0, {str(source)!r}); runpy.run_module('muntin')"
    ended = python("-I", "-S", "-c", script)
    assert ended.returncode == 2
    assert ended.stderr == "muntin: the command line needs: pip install 'muntin[cli]'\n"


def test_every_command_has_help():
    listed = said("--help")
    for name in ("demo", "render", "count", "chat", "work", "sessions", "inspect", "doctor"):
        assert re.search(rf"\b{name}\b", listed)
        assert "Usage: muntin" in said(name, "-h")


def test_nothing_asked_is_answered_with_help():
    result = run()
    assert result.returncode == 2
    assert "Usage: muntin" in result.stdout + result.stderr


def test_shells_can_complete_commands_and_options():
    undetected = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert "_MUNTIN_COMPLETE=complete_bash" in said("--show-completion", "bash", env=undetected)
    for typed, offered in (("muntin do", "doctor"), ("muntin chat --se", "--session")):
        words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
        found = said(env={"_MUNTIN_COMPLETE": "complete_bash", **words})
        assert found.split() == [offered]


def test_the_command_starts_without_loading_any_package_it_may_not_need():
    code = "import sys; from muntin.cli.commands import app; app(); print(*sys.modules)"
    loaded = set(python("-c", code).stdout.split())
    heavy = {"openai", "anthropic", "google.genai", "psycopg", "tiktoken", "pydantic"}
    assert "muntin.cli.chat" in loaded
    assert not loaded & heavy


def test_the_page_names_every_command():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert re.search(rf"^\| `muntin {name}\b", page, re.MULTILINE), name
