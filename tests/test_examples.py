"""Every example runs, fits on a screen, and says something."""

import subprocess
import sys

import pytest

from tests.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_offline_and_prints(example):
    run = subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={"PYTHONIOENCODING": "utf-8", "HTTPS_PROXY": "http://127.0.0.1:9"},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert not run.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_fits_on_a_screen(example):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 65
