"""Defaults of the process, and of one task and its children."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from muntin import InvalidInput, MuntinError, config, prompt
from muntin.settings import defaults
from tests.prompts.conftest import Broken

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

    threads = [threading.Thread(target=serve, args=(tenant,), daemon=True) for tenant in TENANTS]
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
        await asyncio.gather(*(serve(tenant, gate) for tenant in TENANTS))

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


def total(tokenizer=None):
    return prompt(system="x" * 100).inspect_sync(tokenizer=tokenizer).total_tokens


def ten(text: str) -> int:
    return 10 if text else 0


def test_a_with_block_sets_the_tokenizer_and_ends():
    before = total()
    with config.local(tokenizer=len):
        assert total() == 100
        with config.local(tokenizer=ten):
            assert total() == 10
        assert total() == 100
    assert total() == before


def test_a_with_block_that_ends_by_an_exception_ends():
    before = total()
    with pytest.raises(Broken), config.local(tokenizer=len):
        raise Broken(1, "x")
    assert total() == before


def test_a_per_call_tokenizer_wins():
    with config.local(tokenizer=ten):
        assert total(len) == 100
        assert total("chars/4") == 25


def test_what_an_inner_block_does_not_name_stays_as_outside():
    with config.local(tokenizer=len), config.local(settings={"a": 1}), config.local(tokenizer=ten):
        assert total() == 10
        assert prompt(system="x").inspect_sync().settings == {"a": 1}
    with config.local(tokenizer=len), config.local(settings={"a": 1}):
        assert total() == 100


def test_a_with_block_holds_for_its_task_and_children_only():
    async def asked(tokenizer: Callable[[str], int], gate: asyncio.Barrier) -> int:
        with config.local(tokenizer=tokenizer):
            await gate.wait()
            child = asyncio.create_task(prompt(system="x" * 100).inspect())
            return (await child).total_tokens

    async def outside(gate: asyncio.Barrier) -> int:
        await gate.wait()
        return (await prompt(system="x" * 100).inspect()).total_tokens

    async def all_three():
        gate = asyncio.Barrier(3)
        return await asyncio.gather(asked(len, gate), asked(ten, gate), outside(gate))

    before = total()
    assert asyncio.run(all_three()) == [100, 10, before]


def test_a_with_block_does_not_reach_another_thread():
    before = total()
    seen: list[Any] = []
    with config.local(tokenizer=ten):
        thread = threading.Thread(target=lambda: seen.append(total()))
        thread.start()
        thread.join()
    assert seen == [before]


PROCESS_DEFAULT = """
import threading
from muntin import config, prompt, set_tokenizer

p = prompt(system="x" * 100, settings={"b": 2})

def total():
    return p.inspect_sync().total_tokens

def in_thread(call):
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(call()))
    thread.start(); thread.join()
    return seen[0]

config(tokenizer=len, settings={"a": 1})
assert total() == in_thread(total) == 100
assert p.inspect_sync().settings == {"a": 1, "b": 2}
set_tokenizer(lambda text: 7)
assert total() == in_thread(total) == 7
assert p.inspect_sync().settings == {"a": 1, "b": 2}
with config.local(tokenizer=lambda text: 5):
    assert total() == 5
    assert in_thread(total) == 7
    assert p.inspect_sync(tokenizer=len).total_tokens == 100
    set_tokenizer(lambda text: 8)
    assert total() == 5
assert total() == in_thread(total) == 8
config(settings={"c": 3})
assert total() == 8
later = config.local(tokenizer=lambda text: 5)
set_tokenizer(lambda text: 9)
with later:
    assert total() == 5
assert total() == 9
print("done")
"""


def test_config_and_set_tokenizer_set_the_default_of_the_process():
    run = subprocess.run(
        [sys.executable, "-c", PROCESS_DEFAULT], capture_output=True, text=True, check=False
    )
    assert run.stdout == "done\n", run.stderr


@pytest.mark.parametrize("wrong", [3, ["len"], "no such tokenizer"])
def test_a_tokenizer_that_is_none_is_an_error(wrong):
    with pytest.raises(InvalidInput):
        total(wrong)
    with pytest.raises(InvalidInput), config.local(tokenizer=wrong):
        total()
