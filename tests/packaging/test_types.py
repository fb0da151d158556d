"""Types as a user's type checker sees them, with the wheel installed and no extra."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

USER = Path(__file__).with_name("user.py")
WRONG = '''\
from muntin import Budget, Slots, user

Slots("many")
Slots(100).add("input", object())
Budget(8_000).nonsense
user(None)
'''


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
