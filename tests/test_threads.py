"""Calling what may block: threads that wait for no other work."""

import asyncio
import gc
import os
import time
from contextvars import ContextVar
from functools import partial
from threading import Event, get_ident
from typing import Any

import pytest

from muntin.threads import in_thread


def test_an_idle_thread_is_used_again():
    async def twice() -> tuple[int, int]:
        return await in_thread(get_ident), await in_thread(get_ident)

    first, second = asyncio.run(twice())
    assert first == second != get_ident()


def test_a_function_that_hangs_holds_up_no_other():
    end = Event()

    async def work() -> list[int]:
        hanging = asyncio.create_task(in_thread(end.wait))
        others = [await in_thread(partial(abs, n)) for n in range(20)]
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        return others

    assert asyncio.run(work()) == list(range(20))  # it ends although one hangs
    end.set()


def test_many_at_once_run_beside_each_other():
    async def work() -> None:
        met = asyncio.Event()
        loop = asyncio.get_running_loop()
        arrived: list[int] = []

        def meet() -> None:
            arrived.append(get_ident())
            if len(arrived) == 10:
                loop.call_soon_threadsafe(met.set)
            asyncio.run_coroutine_threadsafe(met.wait(), loop).result()

        await asyncio.gather(*(in_thread(meet) for _ in range(10)))
        assert len(set(arrived)) == 10

    asyncio.run(work())


def test_what_is_raised_and_what_the_task_knows_pass_through():
    word: ContextVar[str] = ContextVar("word")

    async def work() -> str:
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)
        word.set("hello")
        return await in_thread(word.get)

    assert asyncio.run(work()) == "hello"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_does_not_wait_for_its_parents_threads():
    assert asyncio.run(in_thread(lambda: 1)) == 1
    child = os.fork()
    if child == 0:
        answer = 1
        try:
            answer = 0 if asyncio.run(asyncio.wait_for(in_thread(lambda: 2), 20)) == 2 else 1
        finally:
            os._exit(answer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_coroutine_that_nobody_waits_for_any_more_leaves_no_warning(recwarn):
    begun = Event()
    free = Event()

    async def late() -> str:
        return "late"

    def give() -> Any:
        begun.set()
        assert free.wait(60)
        return late()

    async def give_up() -> None:
        waiting = asyncio.create_task(in_thread(give))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.wait([waiting])
        free.set()
        await in_thread(lambda: time.sleep(0.1))  # until the other thread has told

    asyncio.run(give_up())
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


@pytest.mark.parametrize("told", ["before the loop is closed", "when it is closed"])
def test_a_coroutine_that_comes_when_the_loop_ends_leaves_no_warning(told, recwarn):
    begun, free = Event(), Event()

    async def late() -> str:
        return "late"

    def give() -> Any:
        begun.set()
        assert free.wait(60)
        return late()

    loop = asyncio.new_event_loop()
    waiting = loop.create_task(in_thread(give))
    while not begun.is_set():
        loop.run_until_complete(asyncio.sleep(0.001))
    waiting.cancel()
    loop.run_until_complete(asyncio.wait([waiting]))
    if told == "when it is closed":
        loop.close()
    free.set()
    time.sleep(0.2)  # until the thread has told; the loop does not look
    loop.close()
    gc.collect()
    assert [str(each.message) for each in recwarn] == []
