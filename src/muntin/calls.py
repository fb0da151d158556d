"""Calling: the arity rule for what users hand in, threads and awaiting for what may be sync or
async, and the sync twins of our own async methods.

One rule for every resolver and predicate: `()`, `(input)` or `(input, ctx)`, bound by position
and only to positional parameters without a default.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from muntin.errors import InvalidType, MuntinError

P = ParamSpec("P")
T = TypeVar("T")


def arity(fn: Callable[..., Any], what: str) -> int:
    """Return how many of (input, ctx) the function takes; more than two is an error."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        raise InvalidType(
            f"{what}: the signature of {fn!r} cannot be read; wrap it in a lambda"
        ) from None
    needed = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    keywords = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is parameter.KEYWORD_ONLY
    ]
    if len(needed) > 2 or keywords:
        names = ", ".join([parameter.name for parameter in needed] + keywords)
        raise InvalidType(f"{what} must take (), (input) or (input, ctx), not ({names})")
    return len(needed)


def call(fn: Callable[..., Any], what: str, *given: object) -> Any:
    """Call by the arity rule; an exception passes unchanged, with a note that says who raised."""
    try:
        return fn(*given[: arity(fn, what)])
    except Exception as error:
        note(error, what)
        raise


async def ask(fn: Callable[..., Any], what: str, *given: object) -> Any:
    """Do what `call` does with a function that may be sync or async."""
    try:
        return await settle(call(fn, what, *given))
    except Exception as error:
        note(error, what)
        raise


def note(error: BaseException, what: str) -> None:
    """Add a note saying in which phase of what an exception was raised, once."""
    text = f"raised by {what}"
    if text not in getattr(error, "__notes__", ()):
        error.add_note(text)


def check_plain(fn: object, what: str) -> None:
    """Refuse anything but a plain function of (), (input) or (input, ctx): no coroutine."""
    if not callable(fn):
        raise InvalidType(f"{what} must be a function, not {fn!r}")
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
        raise InvalidType(f"{what} must be a plain function, not a coroutine function")
    arity(fn, what)


def refuse_awaitable(value: object, what: str) -> None:
    """Refuse an awaitable where a plain value is wanted."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise InvalidType(f"{what} returned an awaitable; it must be a plain function")


async def settle(value: Awaitable[T] | T) -> T:
    """Return the value, awaited if it must be: of functions that may be sync or async."""
    return await value if inspect.isawaitable(value) else value


async def together(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all at once; the first failure, in order, is raised."""
    answers = await asyncio.gather(*work, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def in_thread(fn: Callable[[], T]) -> T:
    """Call a function that may block, in a thread that has nothing else to do.

    Not in the loop's pool: a function that hangs would keep its place there, and `asyncio.run`
    from ending. If the wait is cancelled the function goes on, unheard.
    """
    loop = asyncio.get_running_loop()
    context = copy_context()
    answer: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def tell(value: Any, error: BaseException | None) -> None:
        if not answer.done():
            answer.set_result((value, error))

    def work() -> Callable[[], object]:
        value, failed = None, None
        try:
            value = context.run(fn)
        except BaseException as error:
            failed = error
        return partial(loop.call_soon_threadsafe, tell, value, failed)

    _hand_over(work)
    value, error = await answer
    if error is not None:
        raise error
    return cast("T", value)


# Does something, and returns how to tell of it.
_Work: TypeAlias = Callable[[], Callable[[], object]]
# Threads that wait for work. To begin a thread takes longer than most of what is called in one.
_idle: deque[SimpleQueue[_Work]] = deque()
_IDLE_SECONDS = 30.0

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads do not survive a fork


def _hand_over(work: _Work) -> None:
    """Have work done by an idle thread, or by a new one: never behind other work."""
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        Thread(target=_serve, args=(inbox,), daemon=True).start()
    inbox.put(work)


def _serve(inbox: SimpleQueue[_Work]) -> None:
    while True:
        try:
            tell = inbox.get(timeout=_IDLE_SECONDS)()
        except Empty:
            with suppress(ValueError):  # something is on its way
                _idle.remove(inbox)
                return
        else:
            _idle.append(inbox)  # before it is told: whoever waited may have more
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                tell()
            del tell  # what it holds is nobody's any more


def sync_twin(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a function or method for code without an event loop; inside one it is an error."""

    @wraps(method)
    def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(method(*args, **kwargs))
        name = method.__name__
        raise MuntinError(f"{name}_sync() cannot run inside an event loop; use `await {name}(...)`")

    return _named_sync(twin)


def sync_stream(method: Callable[P, AsyncGenerator[T, None]]) -> Callable[P, Iterator[T]]:
    """Return the async generator method as a generator, for code without an event loop."""

    @wraps(method)
    def twin(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            name = method.__name__
            raise MuntinError(
                f"{name}_sync() cannot run inside an event loop; use `async for ... in {name}(...)`"
            )
        with asyncio.Runner() as runner:
            items = method(*args, **kwargs)
            end = object()

            async def step() -> T | object:
                return await anext(items, end)

            try:
                while (item := runner.run(step())) is not end:
                    yield cast("T", item)
            finally:
                runner.run(items.aclose())

    return _named_sync(twin)


def _named_sync(twin: Callable[P, T]) -> Callable[P, T]:
    """Give a twin a name and a docstring of its own."""
    doc = inspect.cleandoc(twin.__doc__ or "")
    twin.__doc__ = f"{doc}\n\nThe twin of `{twin.__name__}` for sync code."
    twin.__name__ += "_sync"
    twin.__qualname__ += "_sync"
    return twin
