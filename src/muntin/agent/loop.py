"""The agent loop: the model answers and its tools are run, until it calls no tool.

Owns the order: what is recorded when, what runs side by side, where a run goes on after a crash.
Knows neither stores nor prompts: a subclass makes the windows and keeps the messages.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from operator import itemgetter
from sys import maxsize
from typing import Any, TypeAlias, TypeVar

from muntin import telemetry
from muntin.agent.tools import ToolLike, Tools, as_tools, call_tool, is_refusal, near_names
from muntin.calls import off_loop, takes_arguments_of
from muntin.core.checks import check_count, shown
from muntin.core.compaction import newest_compaction
from muntin.core.counting.book import CountedRequest
from muntin.core.counting.counter import Counter, TokenizerLike
from muntin.core.forms import messages_from
from muntin.core.message import Message, answered, tool
from muntin.core.parts import ToolCall
from muntin.core.planning.slot import MessageLike
from muntin.core.profile import Profile
from muntin.core.report import Reported
from muntin.core.tool_marks import CALL, FIND, is_boxed
from muntin.core.toolboxes.finding import (
    SCHEMA_WORDS,
    answer_search,
    load_for_error,
    target,
    with_marks,
)
from muntin.core.toolboxes.offer import ToolOffer
from muntin.core.window import Window
from muntin.errors import BudgetExceeded, InvalidType, MuntinError, StepLimit
from muntin.providers.model import Event, Finished, Model, Reply, ToolCalled, ToolFinished, Usage
from muntin.providers.names import as_model
from muntin.settings import check_settings, counter_for
from muntin.wire.reply import BROKEN_OFF
from muntin.wire.requests import asks_for_compaction

T = TypeVar("T")

MAX_STEPS = 20
PARALLEL = 8
# A turn goes on so many times after an answer that its provider broke off, to be sent back.
PAUSES = 10

Compose: TypeAlias = Callable[[tuple[Message, ...]], Window | Awaitable[Window]]
Recorder: TypeAlias = Callable[[tuple[Message, ...]], Any]


def is_paused(message: Message) -> bool:
    """Say whether an answer was broken off, and goes on in the next one of its turn."""
    return bool(message.extra and message.extra.get("paused"))


async def last_reply(events: AsyncGenerator[Event, None]) -> Reply:
    """Read events to their end, close them, and return their last Reply."""
    reply = None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Finished):
                reply = event.reply
    if reply is None:
        raise MuntinError("the run ended without an answer")
    return reply


class Run(ABC):
    """One run of an agent: its messages so far, and their cost."""

    def __init__(
        self,
        model: Model,
        *,
        counter: Counter,
        tools: Tools,
        resume: Sequence[Message],
        max_steps: int,
        settings: Mapping[str, Any],
        parallel: int = PARALLEL,
        conversation: str | None = None,
    ) -> None:
        self._model = model
        self._counter = counter
        self._tools = tools.by_name
        # What requests say of toolboxes, if tools are searched.
        schemas = tools.schemas
        is_search = isinstance(schemas, ToolOffer) and schemas.is_search
        self._offer = schemas if isinstance(schemas, ToolOffer) and is_search else None
        self._messages = _in_call_order(resume)
        self._max_steps = max_steps
        self._settings = settings
        self._conversation = conversation  # its id in telemetry
        # The work that this run is part of, and the step that is done.
        self._caller = self._work = telemetry.Work.here()
        self._gate = asyncio.Semaphore(parallel)
        self._lock = asyncio.Lock()
        self._pauses = sum(map(is_paused, self._messages))
        self._steps = sum([message.role == "assistant" for message in self._messages])
        self._steps -= self._pauses
        self._usages = [Usage()]

    @abstractmethod
    async def compose(self, messages: tuple[Message, ...]) -> Window:
        """Return the window of the next step, for the messages of the run so far."""

    async def record(self, message: Message) -> Message:
        """Keep an answer or a result; return the message as later windows show it."""
        return message

    async def record_failure(self, error: Exception) -> None:  # noqa: B027 - may keep nothing
        """Keep the error that ends the run."""

    def learn_size(self, counted: CountedRequest, reported: int) -> None:  # noqa: B027 - as above
        """Keep what the provider reported of a request that was counted."""

    def inside(self, call: ToolCall | None = None) -> AbstractContextManager[None]:
        """Run users' functions in the block: the tool of a call, or others."""
        return nullcontext()

    async def events(self, *, streaming: bool) -> AsyncGenerator[Event, None]:
        """Run to the end. Without `streaming` the model is asked for whole answers."""
        reply = self._recorded_reply()
        try:
            while True:
                if reply is not None:
                    calls = _unanswered(self._messages)
                    # A tool that is only described cannot be run here.
                    ours = [c for c in calls if not isinstance(self._tools.get(c.name), Mapping)]
                    if ours:
                        self._check_steps(reply)
                        async with aclosing(self._run_calls(ours)) as finished:
                            async for event in finished:
                                yield event
                    paused = self.answer is not None and is_paused(self.answer)
                    if not paused and (not reply.tool_calls or len(ours) < len(calls)):
                        yield Finished(reply)
                        return
                self._check_steps(reply)
                self._work.end()
                self._work = telemetry.begin(
                    "step", None, self._conversation, under=self._caller, step=self._steps + 1
                )
                async with aclosing(self._ask(streaming)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            reply = event.reply
                        else:
                            yield event
        except Exception as error:
            self._work.end(error)
            with self._caller.inside():
                await self.record_failure(error)
            raise
        finally:
            self._work.end()

    def _recorded_reply(self) -> Reply | None:
        """Return the last recorded answer, if it ends the run or waits for results."""
        newest = self._messages[_last_answer(self._messages) :]
        if not newest or newest[0].role != "assistant":
            return None
        answer = newest[0]
        if is_paused(answer):
            return None
        if answer.tool_calls:
            return Reply(answer, finish_reason="tool_calls")
        return Reply(answer, finish_reason="stop") if len(newest) == 1 else None

    def _check_steps(self, reply: Reply | None) -> None:
        if self._steps >= self._max_steps:
            raise StepLimit(self._max_steps, reply, tuple(self._messages))

    async def _ask(self, streaming: bool) -> AsyncGenerator[Event, None]:
        """Ask the model once, and record its answer."""
        name = self._model.name
        with self._work.inside(), telemetry.composing(name, self._conversation) as report_window:
            with self.inside():
                window = await self.compose(tuple(self._messages))
            report_window(window)
            if window.over_budget:
                raise self._exceeded(window)
        offer = self._offer
        with telemetry.calling(
            name, window, self._conversation, streaming=streaming, under=self._work
        ) as report_reply:
            if streaming:
                answer = None
                async with _closing(self._model.stream(window, settings=self._settings)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            answer = event.reply
                        elif offer is not None and isinstance(event, ToolCalled):
                            yield ToolCalled(target(event.call, offer))
                        else:
                            yield event
                if answer is None:
                    raise MuntinError(f"the stream of {name!r} ended without Finished")
            else:
                with self.inside():
                    answer = await self._model.complete(window, settings=self._settings)
            report_reply(answer)
        if offer is not None:
            answer = replace(answer, message=with_marks(answer.message, offer, window.messages))
        usage = answer.usage
        self._usages.append(usage)
        message = answer.message
        if self._is_broken_off(answer):
            self._pauses += 1
            message = replace(message, extra={**(message.extra or {}), "paused": True})
        else:
            self._steps += 1
        self._messages.append(await self._keep(self._learn(window, message, usage)))
        total = sum(self._usages, Usage())
        yield Finished(replace(answer, usage=total, window=answer.window or window))

    def _is_broken_off(self, answer: Reply) -> bool:
        """Say whether the provider wants an answer back, to go on with it."""
        is_asked_for = asks_for_compaction(self._settings) is not None
        may_go_on = self._pauses < PAUSES and not answer.tool_calls and not is_asked_for
        return answer.finish_reason in BROKEN_OFF and may_go_on

    def _learn(self, window: Window, answer: Message, usage: Usage) -> Message:
        """Enter what the provider reported of a request; return the answer with its tokens."""
        counted, reported = window.counted, usage.request
        if not reported:  # a model may report none
            return answer
        window.enter_reported(Reported(reported, usage.cache_read, usage.cache_write))
        if counted is None or not counted.is_plausible(reported):
            return answer
        self.learn_size(counted, reported)
        return answered(answer, usage.answer(in_run=True))

    def _exceeded(self, window: Window) -> BudgetExceeded:
        """Name what does not fit; the newest results, which must be shown, are listed by tool."""
        error = BudgetExceeded(window.tokens, window.report.budget, window.report)
        newest = self._messages[_last_answer(self._messages) :]
        names = {call.id: call.name for call in newest[0].tool_calls} if newest else {}
        visible = {message.tool_call_id: message for message in window.messages}
        count = self._counter.message
        results = [
            f"{names[id]!r} {count(visible[id]):,} of {count(message):,}"
            for message in newest[1:]
            if (id := message.tool_call_id) in names and id in visible
        ]
        tools, notes = window.report.tools_tokens, []
        if results:
            notes.append(f"The newest results must be shown, in tokens: {', '.join(results)}.")
        if tools > error.available // 2 and not window.report.tools:
            notes.append(f"The tools have {tools:,} tokens: put them into a Toolbox.")
        if not notes:
            return error
        why = " ".join([str(error), *notes])
        return BudgetExceeded(error.needed, error.available, error.report, why)

    async def _run_calls(self, calls: Sequence[ToolCall]) -> AsyncGenerator[Event, None]:
        """Run the calls side by side, and yield each result when it is recorded."""
        tasks = [asyncio.create_task(self._run_call(call)) for call in calls]
        try:
            for done in asyncio.as_completed(tasks):
                event, message = await done
                self._messages.append(message)
                yield event
        finally:
            for task in tasks:
                task.cancel()
            # A call that has finished by now is recorded; an unfinished call is not.
            await asyncio.gather(*tasks, return_exceptions=True)
        last = _last_answer(self._messages)
        self._messages[last:] = _in_call_order(self._messages[last:])

    async def _run_call(self, call: ToolCall) -> tuple[ToolFinished, Message]:
        """Run a call; return the event, and the result as it was recorded."""
        function, offer = self._tools.get(call.name), self._offer
        if offer is not None and call.name == FIND:
            result = answer_search(call, offer, self._counter, self._before())
            return ToolFinished(call, result), await self._keep(result)
        extra: dict[str, Any] = {}
        if function is None:
            text = self._no_tool(call)
        else:
            async with self._gate:
                with (
                    telemetry.doing(
                        "execute_tool",
                        call.name,
                        self._conversation,
                        under=self._work,
                        tool=call.name,
                        tool_call=call.id,
                    ) as work,
                    self.inside(call),
                ):
                    work.note(telemetry.Names.TOOL_ARGUMENTS, call.arguments)
                    text = await call_tool(function, call, self._counter)
                    if offer is not None and is_boxed(call) and is_refusal(text, call):
                        text, extra = self._with_schema(call, text, offer)
                    work.note(telemetry.Names.TOOL_RESULT, text)
        result = replace(tool(call.id, text), extra=extra or None)
        # Here, not where events are yielded: a slow reader of events must not delay recording.
        return ToolFinished(call, result), await self._keep(result)

    def _no_tool(self, call: ToolCall) -> str:
        """Say that there is no such tool, and which tools have names like it."""
        if call.name == CALL and self._offer is not None:
            return f"Error: {CALL} needs the name of a tool and its arguments."
        if is_boxed(call):  # it was loaded, and its toolbox has it no more
            return f"Error: tool {call.name!r} is not there any more."
        more = ""
        if self._offer is not None:
            near, more = self._offer.catalogue.near(call.name), f" {FIND} searches others."
        else:
            near = near_names(call.name, self._tools)
        names = f" Near: {', '.join(near)}." if near else ""
        return f"Error: there is no tool {call.name!r}.{names}{more}"

    def _with_schema(
        self, call: ToolCall, text: str, offer: ToolOffer
    ) -> tuple[str, dict[str, Any]]:
        """Show the schema with the first error of a tool's arguments in this run."""
        boxed = offer.catalogue.by_name.get(call.name)
        before = self._before()
        same = {c.id for message in before for c in message.tool_calls if c.name == call.name}
        shown = any(m.tool_call_id in same and SCHEMA_WORDS in m.text for m in before)
        if boxed is None or shown:
            return text, {}
        return load_for_error(boxed, call, text, offer.loading)

    def _before(self) -> list[Message]:
        """Return the messages of this run before the last answer."""
        return self._messages[: _last_answer(self._messages)]

    async def _keep(self, message: Message) -> Message:
        """Record a message; finish recording even if the run is cancelled meanwhile."""

        async def write() -> Message:
            async with self._lock:
                with self._work.inside():
                    return await self.record(message)

        return await to_the_end(write())

    @property
    def answer(self) -> Message | None:
        """The last answer, whose calls are run."""
        return self._messages[_last_answer(self._messages)] if self._messages else None

    def forget(self, position: int) -> None:
        """Drop the messages before a position of the timeline: no window shows them again."""
        messages = self._messages
        end = next(
            (n for n, m in enumerate(messages) if m.item is None or m.item[1] >= position),
            len(messages),
        )
        summary = newest_compaction(messages[:end])
        if summary is not None:  # it stays, with the results of its calls
            last = summary + 1
            while last < end and messages[last].role == "tool":
                last += 1
            messages[:end] = messages[summary:last]
        else:
            del messages[:end]


class FunctionRun(Run):
    """A run whose windows are made, and whose messages are kept, by functions."""

    def __init__(
        self,
        model: str | Model,
        compose: Compose,
        *,
        tools: Sequence[ToolLike] = (),
        record: Recorder | None = None,
        resume: Iterable[MessageLike] = (),
        max_steps: int = MAX_STEPS,
        settings: Mapping[str, Any] | None = None,
        tokenizer: TokenizerLike | None = None,
        parallel: int = PARALLEL,
    ) -> None:
        model = as_model(model)
        check_settings(settings, "agent")
        checked = as_tools(tools, "agent")
        super().__init__(
            model,
            counter=counter_for(Profile.of(model.name), tokenizer),
            tools=checked,
            resume=messages_from(resume),
            max_steps=check_count(max_steps, "max_steps"),
            settings=dict(settings or {}),
            parallel=check_count(parallel, "parallel"),
        )
        self._compose = compose
        self._record = record
        self._boxes = checked.boxes

    async def events(self, *, streaming: bool) -> AsyncGenerator[Event, None]:
        """Ask toolboxes for their tools, and run to the end."""
        for box in self._boxes:
            self._tools = {**(await box.ask()).functions, **self._tools}
        if self._boxes and self._recorded_reply() is not None:  # what was said of tools is needed
            await self.compose(tuple(self._messages[: _last_answer(self._messages)]))
        async with aclosing(super().events(streaming=streaming)) as events:
            async for event in events:
                yield event

    async def compose(self, messages: tuple[Message, ...]) -> Window:
        """Call the function, which may be sync or async."""
        window = await off_loop(self._compose, messages)
        if not isinstance(window, Window):
            raise InvalidType(f"compose must return a Window, not {shown(window)}")
        if self._boxes:
            search = window.tool_search
            self._offer = None if search is None else search.offer
        return window

    async def record(self, message: Message) -> Message:
        """Call the function; a Message that it returns replaces the message."""
        recorded = None if self._record is None else await off_loop(self._record, (message,))
        return recorded if isinstance(recorded, Message) else message


@takes_arguments_of(FunctionRun)
async def run_agent(*args: Any, **options: Any) -> Reply:
    """Ask the model and run the tools it calls, until it answers without calling a tool.

    `compose(messages)` makes the window of the next step from the messages of this run so far; its
    tools are offered to the model, `tools` are the tools that can be run. `record(messages)` keeps
    new messages: every answer before its tools are run, every result as soon as it is there. A
    Message that it returns replaces the recorded one. Both may be async. `resume` are the messages
    that an earlier attempt at this run recorded: a call with a result is not repeated, a call
    without a result is run.

    The Reply is the last answer, with the usage of all steps. A call of a tool that has only a
    schema cannot be run here: the Reply with that call is returned, and with the caller's
    results in `resume` the run goes on. After `max_steps` answers `StepLimit` is raised.
    """
    return await last_reply(FunctionRun(*args, **options).events(streaming=False))


@takes_arguments_of(FunctionRun)
def stream_agent(*args: Any, **options: Any) -> AsyncGenerator[Event, None]:
    """Do the same as `run_agent`, and yield the events; the last event is `Finished`."""
    return FunctionRun(*args, **options).events(streaming=True)


@asynccontextmanager
async def _closing(events: AsyncIterator[Event]) -> AsyncIterator[AsyncIterator[Event]]:
    """Close a model's stream afterwards, if it can be closed."""
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


# Set when the caller of this work was cancelled.
_hurry: ContextVar[asyncio.Event | None] = ContextVar("muntin_hurry", default=None)


async def hurried(seconds: float) -> bool:
    """Wait for some time; return True, and at once, if the caller of this work was cancelled."""
    hurry = _hurry.get()
    if hurry is None:
        await asyncio.sleep(seconds)
        return False
    with suppress(TimeoutError):
        await asyncio.wait_for(hurry.wait(), seconds)
    return hurry.is_set()


async def to_the_end(work: Awaitable[T]) -> T:
    """Await `work` to its end; a cancellation is raised afterwards, and `work` is told to hurry."""
    if isinstance(work, asyncio.Future) and work.done():
        done: T = await work
        return done
    hurry = asyncio.Event()
    token = _hurry.set(hurry)
    try:
        task = asyncio.ensure_future(work)
    finally:
        _hurry.reset(token)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        hurry.set()
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled() and task.exception() is not None:
            raise cancelled from task.exception()
        raise


def _in_call_order(messages: Sequence[Message]) -> list[Message]:
    """Put results right behind their answer, in the order of its calls.

    Results are recorded in the order in which they finish. A result belongs to the nearest answer
    before it: models use the ids of calls again.
    """
    places: list[tuple[int, int]] = []
    answers, order = 0, {}
    for message in messages:
        if message.role == "assistant":
            answers += 1
            order = {call.id: n for n, call in enumerate(message.tool_calls)}
            places.append((answers, -1))
        else:
            places.append((answers, order.pop(message.tool_call_id or "", maxsize)))
    return [message for _, message in sorted(zip(places, messages, strict=True), key=itemgetter(0))]


def _last_answer(messages: Sequence[Message]) -> int:
    """Return the index of the last answer, 0 if there is none."""
    answers = (n for n in range(len(messages) - 1, 0, -1) if messages[n].role == "assistant")
    return next(answers, 0)


def _unanswered(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last answer that have no result."""
    answer, *results = messages[_last_answer(messages) :]
    done = {message.tool_call_id for message in results}
    return [call for call in answer.tool_calls if call.id not in done]
