"""Calling users' functions: the arity rule, awaiting functions that may be sync or async, and the
sync twins of async methods.

One rule for every resolver and predicate: `()`, `(input)` or `(input, ctx)`, bound by position
and only to positional parameters without a default.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import suppress
from functools import partial, wraps
from types import FunctionType, MethodType
from typing import Any, ParamSpec, TypeVar, cast

from muntin.core.checks import shown
from muntin.errors import InvalidType, MuntinError, TimedOut
from muntin.threads import in_thread

P = ParamSpec("P")
T = TypeVar("T")

# How many seconds a user's function may take by default.
TIMEOUT = 30.0


def arity(fn: Callable[..., Any], what: str) -> int:
    """Return how many of (input, ctx) the function takes; more than two is an error."""
    plain = _plain_arity(fn)
    if plain is not None and 0 <= plain <= 2:
        return plain
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        raise InvalidType(
            f"{what}: the signature of {shown(fn)} cannot be read; wrap it in a lambda"
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


def _plain_arity(fn: Callable[..., Any]) -> int | None:
    """Return how many arguments a plain function needs, read from its code, which is fast: a
    handler declares its sources at every wake. None for other functions."""
    bound = isinstance(fn, MethodType)
    function = fn.__func__ if isinstance(fn, MethodType) else fn
    if type(function) is not FunctionType or function.__dict__:  # it may wrap another function
        return None
    code, defaults = function.__code__, function.__defaults__ or ()
    if code.co_kwonlyargcount > len(function.__kwdefaults__ or ()):
        return None
    return code.co_argcount - len(defaults) - bound


def call(fn: Callable[..., Any], what: str, *args: object) -> Any:
    """Call by the arity rule; an exception passes unchanged, with a note that names `what`."""
    try:
        return fn(*args[: arity(fn, what)])
    except Exception as error:
        note(error, what)
        raise


async def call_async(
    fn: Callable[..., Any], what: str, *args: object, timeout: float | None = TIMEOUT
) -> Any:
    """Do the same as `call` for a function that may be sync or async, within `timeout` seconds."""
    try:
        return await off_loop(fn, *args[: arity(fn, what)], timeout=timeout, what=what)
    except Exception as error:
        note(error, what)
        raise


async def off_loop(
    fn: Callable[..., Any], *args: Any, timeout: float | None = None, what: str = "a function"
) -> Any:
    """Call a user's function from async code: a sync function in a thread, an async one directly.

    A thread cannot be stopped: after `timeout` seconds its result is lost.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            if is_async(fn):
                return await fn(*args)
            # The result may be awaitable too, as of a lambda around a coroutine.
            return await settle(await in_thread(partial(fn, *args)))
    except TimeoutError as error:
        if timeout is None or not limit.expired():
            raise
        raise TimedOut(what, timeout) from error


def is_async(fn: Callable[..., Any]) -> bool:
    """Say whether a function, or a callable object, is async."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def note(error: BaseException, what: str) -> None:
    """Add a note to an exception that names the function that raised it, once."""
    text = f"raised by {what}"
    if text not in getattr(error, "__notes__", ()):
        error.add_note(text)


def check_plain(fn: object, what: str) -> None:
    """Refuse anything but a plain function of (), (input) or (input, ctx): no coroutine."""
    if not callable(fn):
        raise InvalidType(f"{what} must be a function, not {shown(fn)}")
    if is_async(fn):
        raise InvalidType(f"{what} must be a plain function, not a coroutine function")
    arity(fn, what)


def refuse_awaitable(value: object, what: str) -> None:
    """Refuse an awaitable where a plain value is wanted."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise InvalidType(f"{what} returned an awaitable; it must be a plain function")


async def settle(value: Awaitable[T] | T) -> T:
    """Return the result of a function that may be sync or async: awaited, if it is awaitable."""
    return await value if inspect.isawaitable(value) else value


async def together(values: Iterable[Awaitable[T]], names: Sequence[str] = ()) -> list[T]:
    """Await all awaitable values at once; of several failures the first in order is raised. `names`
    are the origins of the values, for a note on a failure."""
    results: list[Any] = list(values)
    waiting = [n for n, value in enumerate(results) if inspect.isawaitable(value)]
    answers = await asyncio.gather(*(results[n] for n in waiting), return_exceptions=True)
    for n, answer in zip(waiting, answers, strict=True):
        if isinstance(answer, BaseException):
            if names:
                note(answer, names[n])
            raise answer
        results[n] = answer
    return results


def takes_arguments_of(
    method: Callable[P, Any],
) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function the parameters of another one, for type checkers and for `inspect`."""

    def decorate(function: Callable[..., T]) -> Callable[P, T]:
        returned = inspect.signature(function).return_annotation
        signature = inspect.signature(method).replace(return_annotation=returned)
        vars(function)["__signature__"] = signature
        return function

    return decorate


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
