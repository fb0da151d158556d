"""Calling what may be sync or async: by arity, with notes, and several at once."""

import asyncio
from typing import Any

import pytest

from muntin.calls import call_async, settle, together
from muntin.errors import InvalidType


async def later(value: Any, seconds: float = 0) -> Any:
    await asyncio.sleep(seconds)
    if isinstance(value, Exception):
        raise value
    return value


def test_a_function_gets_as_many_values_as_it_takes():
    async def both(input: str, ctx: str) -> str:
        return input + ctx

    assert asyncio.run(call_async(lambda: "none", "it", "input", "ctx")) == "none"
    assert asyncio.run(call_async(lambda input: input, "it", "input", "ctx")) == "input"
    assert asyncio.run(call_async(both, "it", "input", "ctx")) == "inputctx"
    with pytest.raises(InvalidType, match=r"it must take \(\), \(input\) or \(input, ctx\)"):
        asyncio.run(call_async(lambda a, b, c: a, "it", 1, 2))


def test_what_a_function_raises_has_a_note_that_names_it_once():
    with pytest.raises(ValueError) as caught:
        asyncio.run(call_async(lambda: later(ValueError("no")), "the tool"))
    assert caught.value.__notes__ == ["raised by the tool"]


def test_values_that_need_no_waiting_are_taken_as_they_are():
    async def work() -> list[Any]:
        assert await settle(1) == await settle(later(1)) == 1
        values: list[Any] = [1, later(2, 0.01), later(3), "four"]
        return await together(values)

    assert asyncio.run(work()) == [1, 2, 3, "four"]


def test_of_several_failures_the_first_in_order_is_raised_when_all_have_ended():
    async def work() -> None:
        first, second = later(ValueError("first"), 0.02), later(KeyError("second"))
        ended = asyncio.create_task(later("ended", 0.01))
        values: list[Any] = [0, first, second, ended]
        with pytest.raises(ValueError, match="first") as caught:
            await together(values, ["a", "b", "c", "d"])
        assert caught.value.__notes__ == ["raised by b"]
        assert ended.done()

    asyncio.run(work())
