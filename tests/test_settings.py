"""Defaults of the process, and of one task and its children."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from muntin import MuntinError, config
from muntin.settings import defaults

TENANTS = ({"tenant": "a"}, {"tenant": "b"})


def test_blocks_in_two_threads_leave_nothing_behind():
    before = defaults()
    gate = threading.Barrier(2)
    seen: list[Any] = []

    def serve(settings: dict[str, str]) -> None:
        block = config.local(settings=settings)
        gate.wait()
        with block:
            gate.wait()  # both are inside
            seen.append((settings, defaults().settings))
            gate.wait()
        gate.wait()
        seen.append((before.settings, defaults().settings))

    threads = [threading.Thread(target=serve, args=(each,), daemon=True) for each in TENANTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(seen) == 4
    assert all(wanted == found for wanted, found in seen)
    assert defaults() is before


def test_blocks_in_two_tasks_leave_nothing_behind():
    before = defaults()

    async def serve(settings: dict[str, str], gate: asyncio.Barrier) -> None:
        with config.local(settings=settings):
            await gate.wait()
            assert defaults().settings == settings
            inside = await asyncio.create_task(asyncio.to_thread(lambda: defaults().settings))
            assert inside == settings  # a child's thread too
            await gate.wait()
        assert defaults() is before

    async def both() -> None:
        gate = asyncio.Barrier(2)
        await asyncio.gather(*(serve(each, gate) for each in TENANTS))

    asyncio.run(both())
    assert defaults() is before


WITH_CONFIG = """
from muntin import MuntinError, config
from muntin.settings import defaults

try:
    with config(settings={"a": 1}):
        print("inside")
except MuntinError as error:
    print(error)
print(defaults().settings)
"""


def test_config_as_a_block_is_an_error_that_names_config_local():
    run = subprocess.run([sys.executable, "-c", WITH_CONFIG], capture_output=True, text=True)
    said, left = run.stdout.splitlines()
    assert "with config.local(...)" in said
    assert left == "{'a': 1}"  # as every call of config does, and the error says


def test_a_wrong_default_is_refused_and_changes_nothing():
    before = defaults()
    for wrong in ({"settings": 3}, {"tokenizer": 3}, {"cache": 3}):
        with pytest.raises(MuntinError):
            config(**wrong)  # type: ignore[arg-type]
        with pytest.raises(MuntinError), config.local(**wrong):  # type: ignore[arg-type]
            pass
    assert defaults() is before
