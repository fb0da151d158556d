"""Threads for functions that may block: one for each call, used again when idle, never waiting for
each other. And calls that see none of the caller's context variables.

Knows nothing of the functions that are called.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")


async def in_thread(fn: Callable[[], T]) -> T:
    """Call a function that may block, in an idle thread.

    Not in the loop's pool: a function that hangs would block a thread there, and keep `asyncio.run`
    from ending. If the wait is cancelled, the function goes on, and its result is lost.
    """
    loop = asyncio.get_running_loop()
    context = copy_context()
    answer: asyncio.Future[_CallResult[T]] = loop.create_future()

    def tell(outcome: _CallResult[T]) -> None:
        if not answer.done():
            answer.set_result(outcome)

    hand_over(lambda: partial(loop.call_soon_threadsafe, tell, _CallResult(context, fn)))
    return (await answer).take()


class _CallResult(Generic[T]):
    """The result of a call.

    The wait may be cancelled, and the loop closed before or just after it is told. So a coroutine
    that no caller takes is closed here: it has not begun, and would warn.
    """

    def __init__(self, context: Context, fn: Callable[[], T]) -> None:
        self._value: T | None = None
        self._error: BaseException | None = None
        try:
            self._value = context.run(fn)
        except BaseException as error:
            self._error = error

    def take(self) -> T:
        """Return the value, or raise the error."""
        value, self._value = self._value, None
        if self._error is not None:
            raise self._error
        return cast("T", value)

    def __del__(self) -> None:
        if inspect.iscoroutine(self._value):
            self._value.close()


def aside(fn: Callable[[], T]) -> T:
    """Call a function that may block: in a thread beside the event loop, if one is running here.

    The event loop waits meanwhile; code that can await uses `in_thread`.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return fn()
    answer: SimpleQueue[_CallResult[T]] = SimpleQueue()
    context = copy_context()
    hand_over(lambda: partial(answer.put, _CallResult(context, fn)))
    return answer.get().take()


# Muntin's own variables: which text waits for which must be known everywhere.
_muntin_variables: list[ContextVar[Any]] = []


def register_variable(variable: ContextVar[T]) -> ContextVar[T]:
    """Register a variable of Muntin, which functions that `apart` calls can see; return it."""
    _muntin_variables.append(variable)
    return variable


async def apart(fn: Callable[[], Awaitable[T] | T]) -> T:
    """Call a function, sync or async, that sees none of the caller's context variables."""
    context = Context()
    for variable in _muntin_variables:
        context.run(variable.set, variable.get())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        value = context.run(fn)
        return await _ContextAwaitable(value, context) if inspect.isawaitable(value) else value

    async def inside() -> T:
        value = fn()
        return await value if inspect.isawaitable(value) else value

    # A task, because only a task can be cancelled in another context. A task that is cancelled
    # before it begins has called nothing, so that nothing is left to await.
    return await asyncio.create_task(inside(), context=context)


class _ContextAwaitable(Awaitable[T]):
    """Awaits something in a context, where no event loop can."""

    def __init__(self, work: Awaitable[T], context: Context) -> None:
        self._work = work
        self._context = context

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        try:
            while True:
                yield self._context.run(next, steps)
        except StopIteration as end:
            return cast("T", end.value)


# Does something, and returns the function that passes the result on.
Work: TypeAlias = Callable[[], Callable[[], object]]
# The inboxes of idle threads. To begin a thread takes longer than most calls in one.
_idle: deque[SimpleQueue[Work]] = deque()
_IDLE_SECONDS = 30.0

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads do not survive a fork


def hand_over(work: Work) -> None:
    """Have work done by an idle thread, or by a new one: it never waits for other work."""
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        Thread(target=_serve, args=(inbox,), daemon=True).start()
    inbox.put(work)


def _serve(inbox: SimpleQueue[Work]) -> None:
    while True:
        try:
            tell = inbox.get(timeout=_IDLE_SECONDS)()
        except Empty:
            with suppress(ValueError):  # taken by a call: work is on its way
                _idle.remove(inbox)
                return
        else:
            _idle.append(inbox)  # before the result is told: the next call may come at once
            with suppress(RuntimeError):  # the loop is closed
                tell()
            del tell  # an idle thread must not hold the result
