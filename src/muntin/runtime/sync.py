"""One event loop in a thread, for code without an event loop: Flask, Django, scripts, notebooks.

Owns that thread, and nothing else: each method hands an asynchronous object's own coroutine to
the loop and waits for its result.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from functools import wraps
from queue import SimpleQueue
from threading import Event as ThreadEvent
from threading import Lock, Thread
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from muntin.errors import InvalidInput

T = TypeVar("T")
P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
F = TypeVar("F")


class LoopThread:
    """One event loop in a daemon thread, started when something is first run."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._process = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, in the caller's context, and return its result.

        Ctrl-C while it runs cancels it, waits for its end, and is raised.
        """
        try:
            loop = self._running_loop()
        except BaseException:
            coroutine.close()
            raise
        task = _Task(loop, coroutine, copy_context())
        try:
            task.finished.wait()
        except BaseException:
            task.cancel()
            task.finished.wait()
            raise
        return task.result()

    def iterate(self, events: AsyncGenerator[T, None]) -> Iterator[T]:
        """Yield what an asynchronous generator yields; it runs no further than it is asked."""
        loop = self._running_loop()
        ready: SimpleQueue[tuple[T] | None] = SimpleQueue()
        wanted = asyncio.Semaphore(0)

        async def drive() -> None:
            try:
                await wanted.acquire()
                async for event in events:
                    ready.put((event,))
                    await wanted.acquire()
            finally:
                await events.aclose()
                ready.put(None)

        task = _Task(loop, drive(), copy_context())
        try:
            while True:
                loop.call_soon_threadsafe(wanted.release)
                event = ready.get()
                if event is None:
                    break
                yield event[0]
        except BaseException:
            task.cancel()
            task.finished.wait()
            raise
        task.finished.wait()
        task.result()

    def stop(self) -> None:
        """End the loop and its thread; what is run later starts a new one."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None and self._process == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise InvalidInput(
                "a sync app would block this event loop; use the App itself here: await app.…"
            )
        with self._lock:
            if self._loop is not None and self._process != os.getpid():
                raise InvalidInput(
                    "this sync app was used before the process was forked, and its thread is not "
                    "in the new process; make or first use the app after the fork"
                )
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = Thread(
                    target=_run_loop, args=(loop,), name="muntin-sync", daemon=True
                )
                self._thread.start()
                self._loop, self._process = loop, os.getpid()
            return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, cancel what still runs on it, and close it."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        while True:
            # A task that raises one of these ends the loop; its caller raises the error again.
            with suppress(SystemExit, KeyboardInterrupt):
                runner.get_loop().run_forever()
                break


class _Task(Generic[T]):
    """A coroutine that runs on another thread's loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], context: Context
    ) -> None:
        self.finished = ThreadEvent()
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        loop.call_soon_threadsafe(self._start, coroutine, context)

    def _start(self, coroutine: Coroutine[Any, Any, T], context: Context) -> None:
        self._task = self._loop.create_task(coroutine, context=context)
        self._task.add_done_callback(lambda task: self.finished.set())

    def cancel(self) -> None:
        """Ask the coroutine to end."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())

    def result(self) -> T:
        """Return what the coroutine returned, or raise what it raised."""
        assert self._task is not None
        return self._task.result()


class Facade(Generic[A]):
    """An asynchronous object as `target`, and the `loop` that it runs on."""

    def __init__(self, target: A, loop: LoopThread) -> None:
        self.target = target
        self.loop = loop

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.target!r}>"


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade[A], P], T]:
    """Return a method that waits for what an asynchronous method returns."""

    @wraps(method)
    def call(self: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.loop.run(method(self.target, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Facade[A], P], Iterator[T]]:
    """Return a method that yields what an asynchronous method yields."""

    @wraps(method)
    def call(self: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.loop.iterate(method(self.target, *args, **kwargs))

    return call


def facing(
    method: Callable[Concatenate[A, P], B], face: Callable[[B, LoopThread], F]
) -> Callable[Concatenate[Facade[A], P], F]:
    """Return a method that returns the facade of what a method returns, on the same loop."""

    @wraps(method)
    def call(self: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> F:
        return face(method(self.target, *args, **kwargs), self.loop)

    return call
