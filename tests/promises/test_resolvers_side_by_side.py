"""Sync resolvers of a prompt hold up neither the event loop nor one another."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from muntin import config, context, generate, generate_sync, prompt
from muntin.errors import MuntinError
from muntin.prompts import ResolverCache, texts
from muntin.testing import ScriptedModel
from tests.products import PRICED


class Blocking:
    """Functions that block, until the event loop sees all six of them inside."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.seen = threading.Event()

    def __call__(self, text: str) -> Any:
        def resolver() -> str:
            self.inside.append(text)
            assert self.seen.wait(30), f"only {self.inside} were inside, or the loop was held up"
            return text

        return resolver

    def bot(self, cache: bool) -> Any:
        uses = [context(id=c, system=self(c), cache=cache) for c in "abcd"]
        return prompt(system=self("own"), prompt=self("ask"), use=uses)


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("interface", ["resolve", "inspect", "gather", "generate"])
def test_functions_that_block_run_side_by_side_and_leave_the_loop_alone(interface, cache):
    blocking = Blocking()

    async def watch() -> None:
        while len(blocking.inside) < 6:
            await asyncio.sleep(0.01)
        blocking.seen.set()

    async def main() -> Any:
        watching = asyncio.create_task(watch())
        made = blocking.bot(cache)
        with config.local(cache=ResolverCache()):
            if interface == "generate":
                await generate(made, model=ScriptedModel(["yes"], name=PRICED))
            else:
                await getattr(made, interface)()
        await watching

    asyncio.run(main())
    assert sorted(blocking.inside) == ["a", "ask", "b", "c", "d", "own"]


def test_the_texts_stand_in_their_order_whoever_was_first():
    def after(seconds: float, text: str) -> Any:
        def resolver() -> str:
            time.sleep(seconds)
            return text

        return resolver

    made = prompt(
        system=after(0.1, "a"), use=[context(system=after(0.05 * n, str(n))) for n in (2, 1, 0)]
    )

    async def main() -> str:
        text: str = (await made.resolve()).system
        return text

    assert asyncio.run(main()) == "a\n\n2\n\n1\n\n0"


def test_a_function_that_hangs_is_an_error_naming_its_context(monkeypatch):
    monkeypatch.setattr(texts, "TIMEOUT", 0.1)
    gate = threading.Event()
    made = prompt(
        use=[context(id="fine", system="x"), context(id="stuck", system=lambda: gate.wait(60))]
    )

    async def main() -> None:
        await made.resolve()

    try:
        with pytest.raises(
            MuntinError, match=r"the system text of context:stuck .*0.1 s"
        ) as caught:
            asyncio.run(main())
    finally:
        gate.set()
    assert isinstance(caught.value, TimeoutError)


def test_a_caller_that_gives_up_is_not_held_up():
    gate = threading.Event()
    made = prompt(system=lambda: str(gate.wait(60)))

    async def main() -> None:
        await asyncio.wait_for(made.resolve(), 0.1)

    before = time.perf_counter()
    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert time.perf_counter() - before < 20
    gate.set()


def test_what_a_function_raises_comes_through_with_its_name():
    def broken() -> str:
        raise KeyError("customer")

    made = prompt(use=[context(id="x", system=broken)])

    async def main() -> None:
        await made.resolve()

    with pytest.raises(KeyError) as caught:
        asyncio.run(main())
    assert caught.value.__notes__ == ["raised by the system text of context:x"]


def test_sync_code_has_its_functions_called_in_its_own_thread():
    threads: list[Any] = []

    def resolver() -> str:
        threads.append(threading.current_thread())
        return "text"

    made = prompt(
        system=resolver, prompt=resolver, use=[context(id="c", system=resolver, cache=True)]
    )
    with config.local(cache=ResolverCache()):
        made.resolve_sync()
        made.inspect_sync()
        generate_sync(made, model=ScriptedModel(["yes"], name=PRICED))
    assert set(threads) == {threading.current_thread()}
