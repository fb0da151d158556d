"""What a page shows, done: its fenced blocks, in their order, in a folder of their own.

    ```python       run, all of a page in one namespace; a ```text block behind it is what it prints
    ```python       with a first line like `# chat.py`: written to that file instead
    ```console      lines that begin with `$ ` are given to the shell; the lines behind one are
                    what it prints, and `…` in them stands for anything. A block without `$ `
                    is not run: it installs something, or needs a key.

Other languages (```py, ```sh, ```json …) are only shown.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from tests.paths import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w-]+\.py)\n")
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def blocks(document: Path) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page as pairs of language and text."""
    return _BLOCK.findall(document.read_text(encoding="utf-8"))


def name_of(document: Path) -> str:
    """Name a page by its path from the root, for the ids of tests."""
    return str(document.relative_to(ROOT))


def run_page(document: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """Run all of a page in `folder`, which must be the present one, and compare what it prints."""
    for name in ("tests", "examples", "src"):  # what pages refer to by its path
        (folder / name).symlink_to(ROOT / name)
    names: dict[str, object] = {"__name__": document.stem}
    for (language, text), (next_language, expected) in pairwise([*blocks(document), ("", "")]):
        if language == "console":
            _run_commands(text, variables)
        elif language == "python" and (file := _FILE.match(text)):
            (folder / file[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            printed = _run_python(text, document, names)
            if next_language == "text":
                assert printed == expected


def _run_python(code: str, document: Path, names: dict[str, object]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, str(document), "exec"), names)
    return output.getvalue()


def _run_commands(text: str, variables: Mapping[str, str]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
    for command, expected in _COMMAND.findall(text):
        done = subprocess.run(
            command,
            shell=True,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=120,
        )
        printed = [line.rstrip() for line in done.stdout.splitlines()]
        assert matches(printed, expected.splitlines()), f"$ {command}\n{done.stdout}"


def matches(printed: list[str], expected: list[str]) -> bool:
    """Say whether lines are those expected, where `…` stands for anything within a line."""
    patterns = [re.escape(line).replace("…", ".*") for line in expected]
    return len(printed) == len(patterns) and all(map(re.fullmatch, patterns, printed))
