"""A process that is killed at every step of a run with toolboxes: each request has the bytes that
it would have had, over finds, calls and a move."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.products import sample
from tests.runtime.tool_worker import FINDS, STEPS

CLAUDE, GPT, CHAT = "anthropic/claude-sonnet-5", "openai/gpt-5.6", "ollama/qwen3"


def requests(folder: Path, model: str, mode: str) -> list[tuple[int, str]]:
    """Run a worker; return its requests, each with its step."""
    folder.mkdir()
    worker = [sys.executable, "-m", "tests.runtime.tool_worker", str(folder), model, mode]
    subprocess.run(worker, cwd=ROOT, check=True, timeout=120)
    lines = (folder / "requests").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition(" ") for line in lines]
    return [(int(step), text) for step, _, text in pairs]


@pytest.mark.parametrize("model", sample([CLAUDE, GPT, CHAT], CLAUDE))
def test_every_request_has_the_same_bytes_whenever_processes_are_killed(model, tmp_path):
    whole = dict(requests(tmp_path / "whole", model, "live"))
    killed = requests(tmp_path / "killed", model, "die")
    assert len(whole) == STEPS + 1
    assert len(killed) == 2 * (STEPS + 1)  # each is sent again by the next process
    deaths = {path.name for path in (tmp_path / "killed").iterdir() if "-" in path.name}
    assert {f"search-f{step}" for step in FINDS} <= deaths
    for step, request in killed:
        assert request == whole[step], step
    moves = sum('"carried"' in text for text in whole.values())
    assert 0 < moves < STEPS
    assert '"convert_to_pdf' in json.dumps(json.loads(whole[STEPS]))
