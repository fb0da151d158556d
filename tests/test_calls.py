"""Calling what may be sync or async: by arity, with notes, and several at once."""

import asyncio
from functools import partial, wraps
from typing import Any

import pytest

from muntin.calls import arity, call_async, settle, together
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


class _Callable:
    def __call__(self, input: Any) -> None: ...

    def method(self, input: Any, *, option: int = 1) -> None: ...

    def many(self, *inputs: Any) -> None: ...


def _two(input: Any, ctx: Any, /, more: int = 1) -> None: ...


@wraps(_two)
def _wrapped(*given: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (lambda: None, 0),
        (lambda input, ctx=None: None, 1),
        (_two, 2),
        (_wrapped, 2),
        (partial(_two, 1), 1),
        (_Callable(), 1),
        (_Callable().method, 1),
        (_Callable().many, 0),
        (lambda *, option=1: None, 0),
    ],
)
def test_what_a_function_needs_is_read_from_its_signature(fn, count):
    assert arity(fn, "it") == count


@pytest.mark.parametrize("fn", [lambda a, b, c: None, lambda *, option: None])
def test_what_takes_more_is_refused(fn):
    with pytest.raises(InvalidType, match="must take"):
        arity(fn, "it")
