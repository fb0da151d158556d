"""A scheduler that cancels a coroutine at its n-th step, as `Task.cancel` does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class CancelledAt:
    """Awaits a coroutine, and cancels the task when it waits for the n-th time.

    Some seconds `after`, so that a thread it waits for is at work. `act` is done instead of that.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, Any],
        step: int,
        after: float = 0.0,
        act: Callable[[], object] | None = None,
    ) -> None:
        self._work = work
        self._step = step
        self._after = after
        self._act = act
        # How often it waited; whether the cancellation was in time.
        self.steps = 0
        self.cancelled = False

    def __await__(self) -> Generator[Any, None, Any]:
        task = asyncio.current_task()
        work = self._work.__await__()
        sent: BaseException | None = None
        while True:
            try:
                waits = work.send(None) if sent is None else work.throw(sent)
            except StopIteration as ended:
                return ended.value
            self.steps += 1
            if self.steps == self._step and task is not None:
                self.cancelled = True
                asyncio.get_running_loop().call_later(self._after, self._act or task.cancel)
            sent = None
            try:
                yield waits
            except BaseException as error:
                sent = error
