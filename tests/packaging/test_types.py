"""Types as a user's type checker sees them, with the wheel installed and no extra."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import REAL, Environment, do, install

USER = Path(__file__).with_name("user.py")
WRONG = """\
from muntin import Budget, Slots, user

Slots("many")
Slots(100).add("input", object())
Budget(8_000).nonsense
user(None)
"""


def mypy(bare, file: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run mypy on a file outside of the source tree, where the wheel is installed."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", ""]
    options = ["--python-executable", bare.python, "--cache-dir", tmp_path.parent / "mypy"]
    return subprocess.run(
        [*command, *options, file], capture_output=True, cwd=tmp_path, text=True, check=False
    )


def test_a_users_program_is_typed(bare, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(USER.read_text())
    checked = mypy(bare, program, tmp_path)
    assert checked.stdout == "Success: no issues found in 1 source file\n"


def test_a_users_mistakes_are_found(bare, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(WRONG)
    checked = mypy(bare, program, tmp_path)
    found = re.findall(r"program\.py:(\d+): error: .*\[(.+)\]", checked.stdout)
    assert found == [("3", "arg-type"), ("4", "arg-type"), ("5", "attr-defined"), ("6", "arg-type")]


@pytest.mark.skipif(not REAL, reason="MUNTIN_EXTRAS=all installs pyright")
def test_pyright_finds_every_type_of_a_users_program(with_extra, tmp_path):
    folder = tmp_path / "pyright"
    do(sys.executable, "-m", "venv", "--without-pip", folder)
    install(folder, "pyright[nodejs]")  # Node.js from a wheel
    (tmp_path / "program.py").write_text(USER.read_text())
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    checked = Environment(folder).run(
        "pyright", "--pythonpath", with_extra("all").python, "program.py", cwd=tmp_path
    )
    assert checked.stdout == "0 errors, 0 warnings, 0 informations\n"
