"""Telemetry: spans and metrics of windows and calls, where the application uses OpenTelemetry.

Muntin speaks to OpenTelemetry's API alone, and never imports it first: where the application has
not imported it, nothing is measured. Every name that is emitted stands in `Names`. Texts of
messages are put into spans only if OpenTelemetry's own switch for contents is on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from muntin.core.message import Message
from muntin.core.model_name import ModelName
from muntin.core.report import Report
from muntin.core.usage import Usage
from muntin.core.window import Window
from muntin.errors import MuntinError
from muntin.providers.model import Reply
from muntin.providers.names import cost_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.trace import Span

SCOPE = "muntin"
# OpenTelemetry's switch for the texts of messages, and the words that say yes.
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_YES = ("true", "1", "span_only", "span_and_event")


# Errors are noted by `_fail`: OpenTelemetry would note their texts, which may repeat what was said.
_QUIET = {"record_exception": False, "set_status_on_exception": False}


class Names:
    """Every name that is emitted. The conventions for generative AI are still in development."""

    # Names of the conventions.
    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    REQUEST_MODEL = "gen_ai.request.model"
    CONVERSATION = "gen_ai.conversation.id"
    COMPACTED = "gen_ai.conversation.compacted"  # only ever true
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
    CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"  # was cache_creation
    INPUT_MESSAGES = "gen_ai.input.messages"
    OUTPUT_MESSAGES = "gen_ai.output.messages"
    SYSTEM = "gen_ai.system_instructions"
    TOKEN_TYPE = "gen_ai.token.type"
    TOKEN_USAGE = "gen_ai.client.token.usage"
    DURATION = "gen_ai.client.operation.duration"
    ERROR = "error.type"
    TOOL = "gen_ai.tool.name"
    TOOL_CALL = "gen_ai.tool.call.id"
    TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
    TOOL_RESULT = "gen_ai.tool.call.result"
    # Muntin's own names.
    ERROR_TEXT = "muntin.error.text"
    TURN = "muntin.turn"
    ATTEMPT = "muntin.attempt"
    STEP = "muntin.step"
    BUDGET = "muntin.window.budget"
    TOKENS = "muntin.window.tokens"
    OVER_BUDGET = "muntin.window.over_budget"
    INPUT_CUT = "muntin.window.input_cut"
    TOKENIZER = "muntin.window.tokenizer"
    TOOLS_DECLARED = "muntin.tools.declared"
    TOOLS_FOUND = "muntin.tools.found"
    TOOLS_CARRIED = "muntin.tools.carried"
    TOOLS_LISTED = "muntin.tools.listed"
    TOOLS_SEARCHES = "muntin.tools.searches"
    SLOTS = "muntin.slots.names"
    SLOTS_KEPT = "muntin.slots.tokens_kept"
    SLOTS_ASKED = "muntin.slots.tokens_asked"
    SLOTS_STATUS = "muntin.slots.status"
    SLOTS_REASON = "muntin.slots.reason"
    PREFIX_TOKENS = "muntin.prefix.expected_read"
    PREFIX_SHARE = "muntin.prefix.share"
    MOVED_SLOT = "muntin.prefix.moved.slot"
    MOVED_REASON = "muntin.prefix.moved.reason"
    MOVED_TOKENS = "muntin.prefix.moved.tokens"
    LEFT_OUT = "muntin.left_out"  # the event
    SLOT = "muntin.slot"
    STATUS = "muntin.status"
    REASON = "muntin.reason"
    LEFT_TOKENS = "muntin.tokens_left_out"
    FATE = "muntin.fate"
    SLOT_TOKENS = "muntin.slot.tokens"
    COST = "muntin.cost"
    WAITING = "muntin.wakes.waiting"
    RUNNING = "muntin.wakes.running"


class Work:
    """Work in a span that is the current span only where `inside` says so: a generator must not
    leave its span behind for the code that reads it."""

    __slots__ = ("_span", "context")

    def __init__(self, span: Span | None = None, context: Context | None = None) -> None:
        self._span = span
        self.context = context

    @classmethod
    def here(cls) -> Work:
        """Return the work that is current; its span is ended elsewhere."""
        if "opentelemetry.trace" not in sys.modules:
            return cls()
        from opentelemetry import context

        return cls(None, context.get_current())

    def inside(self) -> AbstractContextManager[None]:
        """Let the span be current in the block, which must not yield."""
        return nullcontext() if self.context is None else _attached(self.context)

    def note(self, name: str, value: str) -> None:
        """Note a text in the span, if the texts of messages are asked for."""
        if self._span is not None and _wants_content():
            self._span.set_attribute(name, value)

    def fail(self, error: BaseException) -> None:
        """Note an error in the span."""
        if self._span is not None:
            _fail(self._span, error)

    def end(self, error: BaseException | None = None) -> None:
        """End the span, once; nothing happens where there is none."""
        if error is not None:
            self.fail(error)
        span, self._span = self._span, None
        if span is not None:
            span.end()


@contextmanager
def _attached(here: Context) -> Iterator[None]:
    from opentelemetry import context

    token = context.attach(here)
    try:
        yield
    finally:
        context.detach(token)


def begin(
    operation: str,
    subject: str | None = None,
    conversation: str | None = None,
    *,
    under: Work | None = None,
    sent_by: Sequence[Mapping[str, Any]] = (),
    **facts: str | int,
) -> Work:
    """Begin work in a span; the keywords are facts for it, by the name in `Names`.

    It is part of the work `under` which it is done, else of the current span. `sent_by` are the
    marks of those that asked for it (`mark`), perhaps in other processes: of the last of them it is
    a part, and it is linked to the others.
    """
    if "opentelemetry.trace" not in sys.modules:
        return Work()
    trace = _trace()
    parent = None if under is None else under.context
    links = []
    if sent_by:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        senders = [TraceContextTextMapPropagator().extract(sender) for sender in sent_by]
        parent = senders.pop()
        links = [
            trace.Link(trace.get_current_span(sender).get_span_context()) for sender in senders
        ]
    name = operation if subject is None else f"{operation} {subject}"
    attributes = {getattr(Names, fact.upper()): value for fact, value in facts.items()}
    attributes |= _common_attributes(operation, None, conversation)
    span: Span = trace.get_tracer(SCOPE).start_span(
        name, context=parent, links=links, attributes=attributes
    )
    return Work(span, trace.set_span_in_context(span, parent))


@contextmanager
def doing(operation: str, subject: str | None = None, *args: Any, **facts: Any) -> Iterator[Work]:
    """Do the work of the block in a span, the current one there; see `begin`."""
    work = begin(operation, subject, *args, **facts)
    try:
        with work.inside():
            yield work
    except BaseException as error:
        work.end(error)
        raise
    finally:
        work.end()


def visiting_store(conversation: str) -> AbstractContextManager[object]:
    """Span a visit to the store; only as a part of other work: looking for work is none."""
    if "opentelemetry.trace" not in sys.modules:
        return nullcontext()
    if not _trace().get_current_span().get_span_context().is_valid:
        return nullcontext()
    return doing("visit_store", None, conversation)


def mark() -> dict[str, str]:
    """Return by what the current span is known in other processes; empty if there is none."""
    carrier: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(carrier)
    return carrier


def _fail(span: Span, error: BaseException | None) -> None:
    """Note an error in a span; its text may repeat what was said."""
    if isinstance(error, Exception):
        span.set_attribute(Names.ERROR, type(error).__qualname__)
        span.set_status(_trace().StatusCode.ERROR, type(error).__qualname__)
        if _wants_content():
            span.set_attribute(Names.ERROR_TEXT, str(error))


# Whether a window is being composed: a window composed inside of that is the same window.
_composing: ContextVar[bool] = ContextVar("muntin_composing", default=False)


# The maker of a window that another span reports.
_later: ContextVar[object] = ContextVar("muntin_told_later", default=None)


@contextmanager
def told_later(maker: object) -> Iterator[None]:
    """Do not report the window that `maker` makes in the block; its caller may report it."""
    before = _later.set(maker)
    try:
        yield
    finally:
        _later.reset(before)


@contextmanager
def composing(
    model: str | None, conversation: str | None = None, *, made_by: object = None
) -> Iterator[Callable[[Window], None]]:
    """Span the composing of one window, and yield the function to call with the window.

    Nothing is reported inside of another `composing`, nor where a caller reports the window of
    `made_by`: a window is reported once.
    """
    if _composing.get() or (made_by is not None and _later.get() is made_by):
        yield lambda window: None
        return
    span = _start_span("compose_context", model)

    def report(window: Window) -> None:
        meters = _meters()
        recording = span is not None and span.is_recording()
        if meters is None and not recording:
            return
        report = window.report
        if span is not None and recording:
            attributes = _common_attributes("compose_context", model, conversation)
            span.set_attributes({**attributes, **_of_report(report)})
            for slot in report.slots:
                if slot.status not in ("kept", "empty"):
                    about: dict[str, str | int] = {
                        Names.SLOT: slot.name,
                        Names.STATUS: slot.status,
                        Names.REASON: slot.reason or "",
                        Names.LEFT_TOKENS: slot.tokens_asked - slot.tokens_kept,
                    }
                    span.add_event(Names.LEFT_OUT, about)
        if meters is not None:
            meters.window(model, report)

    outer = _composing.set(True)
    try:
        with nullcontext() if span is None else _trace().use_span(span, **_QUIET):
            yield report
    except BaseException as error:
        if span is not None:
            _fail(span, error)
        raise
    finally:
        _composing.reset(outer)
        if span is not None:
            span.end()


@contextmanager
def calling(
    model: str,
    window: Window,
    conversation: str | None = None,
    *,
    streaming: bool,
    under: Work | None = None,
) -> Iterator[Callable[[Reply], None]]:
    """Span one call to a model, and yield the function to call with the reply.

    With `streaming` the span is not the current span: between the pieces of a stream the caller's
    own code runs. It is a part of the work `under` which it is done.
    """
    began, usage, failed = time.perf_counter(), Usage(), None
    span = _start_span("chat", model, conversation, under)
    recording = span is not None and span.is_recording()
    if span is not None and recording:
        if _compacted(window.report):
            span.set_attribute(Names.COMPACTED, True)
        if _wants_content():
            span.set_attributes(_input(window.messages))

    def report(reply: Reply) -> None:
        nonlocal usage
        usage = reply.usage
        if span is None or not recording:
            return
        span.set_attribute(Names.FINISH_REASONS, [reply.finish_reason])
        if usage != Usage():
            billed = {
                Names.INPUT_TOKENS: usage.input,
                Names.OUTPUT_TOKENS: usage.output,
                Names.CACHE_READ: usage.cache_read,
                Names.CACHE_WRITE: usage.cache_write,
            }
            span.set_attributes(billed)
        if _wants_content():
            answer = {**_as_dict(reply.message), "finish_reason": reply.finish_reason}
            span.set_attribute(Names.OUTPUT_MESSAGES, _json([answer]))

    try:
        with nullcontext() if span is None or streaming else _trace().use_span(span, **_QUIET):
            yield report
    except Exception as error:
        failed = error
        raise
    finally:
        if span is not None:
            _fail(span, failed)
            span.end()
        meters = _meters()
        if meters is not None:
            meters.call(model, usage, time.perf_counter() - began, failed)


# The apps that are asked how many wakes wait, when the metrics are read.
_watched: WeakSet[Any] = WeakSet()


def watch(app: object) -> None:
    """Let the metrics say how many wakes of an app wait and run; `app` has `wakes_now()`."""
    _watched.add(app)
    _meters()


class _Meters:
    """The instruments of one meter provider."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        meter = provider.get_meter(SCOPE)
        self._slots = meter.create_counter(
            Names.SLOT_TOKENS, unit="{token}", description="Tokens of slots, by what became of them"
        )
        self._share = meter.create_histogram(
            Names.PREFIX_SHARE,
            unit="1",
            description="Part of the window shared with the last",
        )
        self._cost = meter.create_counter(
            Names.COST, unit="{USD}", description="What the calls cost, at published prices"
        )
        self._usage = meter.create_histogram(
            Names.TOKEN_USAGE, unit="{token}", description="Tokens billed for one call"
        )
        self._duration = meter.create_histogram(
            Names.DURATION, unit="s", description="How long one call took"
        )
        for name, field in ((Names.WAITING, "waiting"), (Names.RUNNING, "running")):
            meter.create_observable_gauge(name, [_wakes(field)], unit="{wake}")

    def window(self, model: str | None, report: Report) -> None:
        attributes = _common_attributes("compose_context", model, None)
        for slot in report.slots:
            left_out = slot.tokens_asked - slot.tokens_kept
            for fate, tokens in (("kept", slot.tokens_kept), ("left_out", left_out)):
                if tokens > 0:
                    self._slots.add(tokens, {**attributes, Names.SLOT: slot.name, Names.FATE: fate})
        if report.prefix is not None:
            self._share.record(report.prefix.share, attributes)

    def call(self, model: str, usage: Usage, seconds: float, error: Exception | None) -> None:
        attributes = _common_attributes("chat", model, None)
        wrong = {} if error is None else {Names.ERROR: type(error).__qualname__}
        self._duration.record(seconds, {**attributes, **wrong})
        if usage == Usage():
            return
        for kind, tokens in (("input", usage.input), ("output", usage.output)):
            self._usage.record(tokens, {**attributes, Names.TOKEN_TYPE: kind})
        cost = cost_of(model, usage)
        if cost is not None:
            self._cost.add(float(cost), attributes)


def _wakes(field: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(options: CallbackOptions) -> Iterable[Observation]:
        from opentelemetry.metrics import Observation

        states = []
        for app in list(_watched):
            with suppress(MuntinError):  # the store is away, or closed
                states.append(app.wakes_now())
        if states:
            yield Observation(sum(getattr(state, field) for state in states))

    return read


_meters_in_use: list[_Meters] = []


def _meters() -> _Meters | None:
    """Return the instruments of the application's meter provider; None if it measures nothing."""
    metrics = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return None
    provider = metrics.get_meter_provider()
    if not _meters_in_use or _meters_in_use[-1].provider is not provider:
        _meters_in_use[:] = [_Meters(provider)]
    return _meters_in_use[-1]


def _trace() -> Any:
    return sys.modules["opentelemetry.trace"]


def _start_span(
    operation: str,
    model: str | None,
    conversation: str | None = None,
    under: Work | None = None,
) -> Span | None:
    """Begin a span; None where the application has not imported OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    name = operation if model is None else f"{operation} {ModelName.parse(model).model}"
    options: dict[str, Any] = {"context": None if under is None else under.context}
    if operation == "chat":
        options["kind"] = _trace().SpanKind.CLIENT
        options["attributes"] = _common_attributes(operation, model, conversation)
    span: Span = _trace().get_tracer(SCOPE).start_span(name, **options)
    return span


def _common_attributes(
    operation: str, model: str | None, conversation: str | None
) -> dict[str, str]:
    """Return what every span and metric says: the operation, the model, the conversation."""
    attributes = {Names.OPERATION: operation}
    if model is not None:
        name = ModelName.parse(model)
        attributes[Names.REQUEST_MODEL] = name.model
        provider = name.provider or name.maker
        if provider is not None:
            attributes[Names.PROVIDER] = provider
    if conversation is not None:
        attributes[Names.CONVERSATION] = conversation
    return attributes


def _of_report(report: Report) -> dict[str, Any]:
    slots = report.slots
    attributes: dict[str, Any] = {
        Names.BUDGET: report.budget,
        Names.TOKENS: report.tokens,
        Names.OVER_BUDGET: report.over_budget,
        Names.INPUT_CUT: report.input_cut,
        Names.TOKENIZER: report.tokenizer,
        Names.SLOTS: [slot.name for slot in slots],
        Names.SLOTS_KEPT: [slot.tokens_kept for slot in slots],
        Names.SLOTS_ASKED: [slot.tokens_asked for slot in slots],
        Names.SLOTS_STATUS: [slot.status for slot in slots],
        Names.SLOTS_REASON: [slot.reason or "" for slot in slots],
    }
    if _compacted(report):
        attributes[Names.COMPACTED] = True
    if report.tools:
        attributes |= _of_tools(report)
    prefix = report.prefix
    if prefix is not None:
        attributes |= {Names.PREFIX_TOKENS: prefix.tokens, Names.PREFIX_SHARE: prefix.share}
        if prefix.moved is not None:
            attributes |= {
                Names.MOVED_SLOT: prefix.moved.slot,
                Names.MOVED_REASON: prefix.moved.reason,
                Names.MOVED_TOKENS: prefix.moved.tokens,
            }
    return attributes


def _of_tools(report: Report) -> dict[str, Any]:
    """Return how many tools the model sees, and how many searches found them."""
    statuses = Counter([tool.status for tool in report.tools])
    searches = {tool.step for tool in report.tools if tool.status == "found"}
    return {
        Names.TOOLS_DECLARED: statuses["declared"],
        Names.TOOLS_FOUND: statuses["found"],
        Names.TOOLS_CARRIED: statuses["carried"],
        Names.TOOLS_LISTED: statuses["listed"],
        Names.TOOLS_SEARCHES: len(searches),
    }


def _compacted(report: Report) -> bool:
    """Say whether the window holds less than the conversation: of a list of messages, some are left
    out, or are shorter."""
    whole = ("kept", "empty", "excluded")
    return any(slot.messages_asked > 1 and slot.status not in whole for slot in report.slots)


def _wants_content() -> bool:
    return os.environ.get(CONTENT, "").strip().lower() in _YES


def _input(messages: Sequence[Message]) -> dict[str, str]:
    system = [part for message in messages if message.role == "system" for part in _parts(message)]
    conversation = [_as_dict(message) for message in messages if message.role != "system"]
    attributes = {Names.INPUT_MESSAGES: _json(conversation)}
    return {**attributes, Names.SYSTEM: _json(system)} if system else attributes


def _as_dict(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": _parts(message)}


def _parts(message: Message) -> list[Mapping[str, Any]]:
    """Return a message in the form of the conventions for texts, calls and results."""
    if message.role == "tool":
        answer = {"type": "tool_call_response", "id": message.tool_call_id}
        return [{**answer, "response": message.text}]
    texts = [{"type": "text", "content": message.text}] if message.text else []
    calls = [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return [*texts, *calls]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
