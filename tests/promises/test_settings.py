"""Defaults of one block never reach another thread or task; `with config(...)` is refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import MuntinError, config, generator
from muntin.settings import counter_for, defaults
from muntin.testing import ScriptedModel
from tests.products import PRICED
from tests.runtime.conftest import run


def words(text: str) -> int:
    return len(text.split())


def counted(text: str = "one two three") -> int:
    return counter_for(None, None).text_once(text)


@given(order=st.permutations(["enter a", "enter b", "leave a", "leave b"]))
def test_blocks_in_two_threads_end_in_any_order(order):
    """Each thread sees its own tokenizer, whoever leaves first, and nothing stays behind."""
    before = counted()
    gates = {step: threading.Event() for step in order}
    done = {step: threading.Event() for step in order}
    seen: dict[str, int] = {}
    wanted = {"a": words, "b": len}

    def work(name: str) -> None:
        gates[f"enter {name}"].wait(60)
        with config.local(tokenizer=wanted[name]):
            done[f"enter {name}"].set()
            gates[f"leave {name}"].wait(60)
            seen[name] = counted()
        seen[f"{name} after"] = counted()
        done[f"leave {name}"].set()

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for step in sorted(order, key=lambda each: (each.startswith("leave"), order.index(each))):
        gates[step].set()
        assert done[step].wait(60)
    for thread in threads:
        thread.join(5)
    assert seen["b"] > seen["a"]
    assert {seen["a after"], seen["b after"], counted()} == {before}


def test_blocks_in_two_tasks_do_not_meet():
    async def work() -> tuple[int, int]:
        async def one(tokenizer: Any) -> int:
            with config.local(tokenizer=tokenizer):
                await asyncio.sleep(0.01)
                return counted()

        return await asyncio.gather(one(words), one(len))

    few, many = run(work())
    assert few < many


def test_a_sync_function_of_a_generator_sees_the_block_it_was_called_in():
    seen: list[Any] = []

    def look() -> str:
        seen.append((threading.get_ident(), defaults().tokenizer))
        return "text"

    made = generator(model=ScriptedModel(["ok"], name=PRICED), user="hi", context={"x": look})
    with config.local(tokenizer=words):
        run(made.run())
    ((thread, tokenizer),) = seen
    assert tokenizer is words
    assert thread != threading.get_ident()


def test_with_config_is_refused_with_what_to_write():
    before = defaults()
    with pytest.raises(MuntinError, match=r"config\.local"), config():
        pass
    assert defaults() == before
