"""Processes that tests start, talk to and kill."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

Start: TypeAlias = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def workers(program: Path) -> Iterator[Start]:
    """Give what starts the program with some work; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(work: str, **given: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(program), work, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:  # closes its pipes and waits for its end
            pass
