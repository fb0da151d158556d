"""A resolver that would wait for its own text is an error that names the cycle, never a wait
without end."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from muntin import InvalidInput, config, context, prompt
from muntin.errors import Deadlock, MuntinError, TimedOut
from muntin.prompts import ResolverCache


class Bots:
    """Prompts of one cached context each, which may resolve one another."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}

    def add(self, name: str, system: Any, **options: Any) -> None:
        options = {"cache": True, **options}
        self.made[name] = prompt(use=[context(id=name, system=system, **options)])

    async def text(self, name: str) -> str:
        text: str = (await self.made[name].resolve()).system
        return text


def running(work: Any, seconds: float = 5) -> Any:
    """Run with a cache of its own; what hangs is a failure."""

    async def main() -> Any:
        with config.local(cache=ResolverCache()):
            return await asyncio.wait_for(work(), seconds)

    return asyncio.run(main())


def test_a_cached_resolver_that_resolves_itself_is_told_so():
    bots = Bots()

    async def again() -> str:
        return await bots.text("a")

    bots.add("a", again)
    with pytest.raises(Deadlock, match="context:a → context:a") as caught:
        running(lambda: bots.text("a"))
    assert caught.value.cycle == ("context:a", "context:a")
    assert "the system text of context:a" in caught.value.__notes__[0]
    assert isinstance(caught.value, MuntinError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.cycle, str(copy)) == (caught.value.cycle, str(caught.value))


def test_a_cycle_through_another_resolver_is_named_whole():
    bots = Bots()
    bots.add("a", lambda: bots.text("b"))
    bots.add("b", lambda: bots.text("c"))
    bots.add("c", lambda: bots.text("a"))
    with pytest.raises(Deadlock, match="context:a → context:b → context:c → context:a"):
        running(lambda: bots.text("a"))


def test_a_cycle_through_one_that_has_already_failed_is_named_whole():
    bots = Bots()
    found: list[BaseException] = []

    async def patient() -> str:
        with pytest.raises(RuntimeError, match="no room"):
            await bots.text("b")
        gate.set()
        while not found:
            await asyncio.sleep(0)
        return "text"

    async def hasty() -> str:
        async with asyncio.timeout(5):
            task = asyncio.create_task(bots.text("c"))
            kept.append(task)
            await begun.wait()
        raise RuntimeError("no room")

    async def late() -> str:
        begun.set()
        await gate.wait()
        try:
            return await bots.text("a")
        except Deadlock as error:
            found.append(error)
            raise

    async def ask() -> str:
        text = await bots.text("a")
        await asyncio.gather(*kept, return_exceptions=True)
        return text

    gate, begun = asyncio.Event(), asyncio.Event()
    kept: list[asyncio.Task[str]] = []
    for name, system in (("a", patient), ("b", hasty), ("c", late)):
        bots.add(name, system)
    assert running(ask) == "text"
    (error,) = found
    assert isinstance(error, Deadlock)
    assert error.cycle == ("context:a", "context:b", "context:c", "context:a")


def test_a_cycle_through_an_uncached_context_is_found_too():
    bots = Bots()
    bots.add("a", lambda: bots.text("plain"))
    bots.add("plain", lambda: bots.text("a"), cache=None)
    with pytest.raises(Deadlock, match="context:a → context:a"):
        running(lambda: bots.text("a"))


def test_two_tasks_that_wait_for_each_other_are_both_told():
    bots = Bots()
    both = asyncio.Event()
    begun: list[str] = []

    def needs(mine: str, other: str) -> Any:
        async def resolver() -> str:
            begun.append(mine)
            if len(begun) == 2:
                both.set()
            await both.wait()
            return await bots.text(other)

        return resolver

    bots.add("a", needs("a", "b"))
    bots.add("b", needs("b", "a"))

    async def race() -> list[Any]:
        asked = (bots.text("a"), bots.text("b"))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    failed = running(race)
    assert [type(each) for each in failed] == [Deadlock, Deadlock]
    assert set(failed[0].cycle) == {"context:a", "context:b"}


def test_two_threads_that_wait_for_each_other_are_both_told():
    bots = Bots()
    both = threading.Barrier(2)

    def needs(other: str) -> Any:
        def resolver() -> Any:
            both.wait(60)
            return bots.text(other)

        return resolver

    bots.add("a", needs("b"))
    bots.add("b", needs("a"))
    cache = ResolverCache()
    failed: dict[str, BaseException] = {}

    def ask(name: str) -> None:
        with config.local(cache=cache):
            try:
                bots.made[name].resolve_sync()
            except BaseException as error:
                failed[name] = error

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert {name: type(error) for name, error in failed.items()} == {"a": Deadlock, "b": Deadlock}


def test_a_sync_resolver_that_resolves_itself_is_told_so():
    bots = Bots()
    bots.add("a", lambda: bots.made["a"].resolve_sync().system)
    with pytest.raises(Deadlock, match="context:a → context:a"):
        running(lambda: bots.text("a"))


@pytest.mark.parametrize("how", ["task", "thread", "gather"])
def test_a_cycle_is_found_across_tasks_and_threads(how):
    bots = Bots()

    async def again() -> str:
        if how == "task":
            return await asyncio.create_task(bots.text("a"))
        if how == "thread":
            return await asyncio.to_thread(lambda: bots.made["a"].resolve_sync().system)
        return "".join(await asyncio.gather(bots.text("b"), bots.text("a")))

    bots.add("a", again)
    bots.add("b", lambda: "b")
    with pytest.raises(Deadlock, match="context:a → context:a"):
        running(lambda: bots.text("a"))


def test_a_wait_that_nobody_can_see_through_is_bounded():
    bots = Bots()

    async def again() -> str:
        loop = asyncio.get_running_loop()  # its threads do not inherit context variables
        with_cache = config.local(cache=cache)

        def elsewhere() -> str:
            with with_cache:
                text: str = bots.made["a"].resolve_sync().system
            return text

        return await loop.run_in_executor(None, elsewhere)

    bots.add("a", again)
    cache = ResolverCache(max_wait=0.2)

    async def main() -> None:
        with config.local(cache=cache):
            await asyncio.wait_for(bots.text("a"), 60)

    with pytest.raises(TimedOut, match=r"the resolver of context:a.* longer than 0.2 s"):
        asyncio.run(main())


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1"])
def test_a_bound_that_is_no_time_is_refused(seconds):
    with pytest.raises(InvalidInput, match="max_wait"):
        ResolverCache(max_wait=seconds)


def test_an_uncached_resolver_that_resolves_its_own_prompt_is_told_so():
    bots = Bots()
    bots.add("a", lambda: bots.text("a"), cache=None)
    with pytest.raises(InvalidInput, match=r"more than 32 deep, at last a prompt \(context:a\)"):
        running(lambda: bots.text("a"))


# What only looks like a cycle.


class Depth(BaseModel):
    depth: int


def test_a_resolver_may_resolve_itself_for_another_input():
    async def down(input: Depth) -> str:
        if input.depth == 0:
            return "0"
        return f"{input.depth} {(await bot.resolve({'depth': input.depth - 1})).system}"

    bot = prompt(use=[context(id="down", input=Depth, system=down, cache=True)])

    async def ask() -> str:
        text: str = (await bot.resolve({"depth": 5})).system
        return text

    assert running(ask) == "5 4 3 2 1 0"


def test_what_a_resolver_begins_and_leaves_may_need_its_text_when_it_is_there():
    bots = Bots()
    later: list[Any] = []

    async def text() -> str:
        gate = asyncio.Event()

        async def refresh() -> str:
            await gate.wait()
            return await bots.text("a")

        later.append((gate, asyncio.create_task(refresh())))
        return "text"

    bots.add("a", text)

    async def ask() -> str:
        await bots.text("a")
        gate, task = later[0]
        gate.set()
        found: str = await task
        return found

    assert running(ask) == "text"


@given(st.lists(st.sets(st.integers(0, 5), max_size=3), min_size=1, max_size=6), st.booleans())
def test_every_graph_of_resolvers_ends_with_a_text_or_a_cycle(needs, threads):
    bots = Bots()
    number = len(needs)
    needed = {n: sorted(each for each in given if each < number) for n, given in enumerate(needs)}

    def resolver(mine: int) -> Any:
        async def ask() -> str:
            await asyncio.sleep(0)
            found = await asyncio.gather(*(bots.text(str(each)) for each in needed[mine]))
            return f"{mine}({','.join(found)})"

        return (lambda: ask()) if threads else ask

    for n in range(number):
        bots.add(str(n), resolver(n))

    def in_a_cycle(n: int, above: frozenset[int] = frozenset()) -> bool:
        return n in above or any(in_a_cycle(each, above | {n}) for each in needed[n])

    async def ask_all() -> list[Any]:
        asked = (bots.text(str(n)) for n in range(number))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    for n, found in enumerate(running(ask_all)):
        if in_a_cycle(n):
            assert isinstance(found, Deadlock)
            assert found.cycle[0] == found.cycle[-1]
            steps = zip(found.cycle, found.cycle[1:], strict=False)
            assert all(int(b[-1]) in needed[int(a[-1])] for a, b in steps)
        else:
            assert isinstance(found, str)
            assert found.startswith(f"{n}(")
