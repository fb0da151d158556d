"""Spans and metrics, read back from OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from weakref import WeakSet

import opentelemetry.metrics
import opentelemetry.trace
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from muntin import App, Message, ToolCall, context, fit, prompt, telemetry
from muntin.agent import run_agent, stream_agent
from muntin.core.model_name import ModelName
from muntin.core.planning.slots import Slots
from muntin.core.usage import Usage
from muntin.providers.model import Reply, TextDelta
from muntin.providers.names import cost_of
from muntin.runtime import Ctx
from muntin.telemetry import Names
from muntin.testing import ScriptedModel
from muntin.timeline.store.memory import MemoryStore
from tests.interfaces import DURABLE, INTERFACES, Interface
from tests.products import NAMES, THREE, sample
from tests.runtime.conftest import run
from tests.toolboxes import toolboxes
from tests.traced_worker import STEPS, app, look_inside

ROOT = Path(__file__).parent.parent
USAGE = Usage(input=1_000, output=50, cache_read=600, cache_write=100)


class Seen:
    """What the SDK exported."""

    def __init__(self, spans: InMemorySpanExporter, metrics: InMemoryMetricReader) -> None:
        self._spans, self._metrics = spans, metrics

    def all(self) -> Sequence[ReadableSpan]:
        """Return all finished spans."""
        return self._spans.get_finished_spans()

    def spans(self, operation: str) -> list[ReadableSpan]:
        """Return the finished spans of one operation, in the order they ended."""
        found = self._spans.get_finished_spans()
        return [each for each in found if attributes(each).get(Names.OPERATION) == operation]

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    spans, metrics = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([metrics])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(opentelemetry.trace, "get_tracer", tracers.get_tracer)
    monkeypatch.setattr(opentelemetry.metrics, "get_meter_provider", lambda: meters)
    monkeypatch.setattr(telemetry, "_watched", WeakSet())  # without the apps of other tests
    monkeypatch.delenv(telemetry.CONTENT, raising=False)
    yield Seen(spans, metrics)
    meters.shutdown()


def look(n: int) -> str:
    """Look something up."""
    return f"seen {n}"


def answers(*replies: Any, name: str = "openai/gpt-4o") -> ScriptedModel:
    return ScriptedModel(list(replies), name=name)


def small(_: tuple[Message, ...]) -> Any:
    """Compose a window that has no room for its document, and for half of its history."""
    slots = Slots(60, profile="openai/gpt-4o")
    slots.add("document", "word " * 200)
    slots.add("history", [Message("user", "a long question " * 5)] * 4)
    slots.add("input", "And now?")
    return slots.render()


@pytest.mark.parametrize("interface", [INTERFACES[name] for name in sample(INTERFACES, *THREE)])
def test_every_interface_tells_of_its_windows_and_calls(interface: Interface, seen: Seen) -> None:
    model = answers(
        ToolCall("c1", "look", '{"n":1}'), Reply(Message("assistant", "So."), usage=USAGE)
    )
    run(interface(App(MemoryStore(), budget=8_000), model, "What is it?", [look]))
    composed, called = seen.spans("compose_context"), seen.spans("chat")
    assert len(composed) == len(called) == len(model.windows) == 2
    for span, window in zip(composed, model.windows, strict=True):
        report, told = window.report, attributes(span)
        assert span.name == "compose_context gpt-4o"
        assert (told[Names.TOKENS], told[Names.BUDGET]) == (report.tokens, report.budget)
        assert told[Names.SLOTS] == tuple(slot.name for slot in report.slots)
        assert told[Names.SLOTS_KEPT] == tuple(slot.tokens_kept for slot in report.slots)
        assert told[Names.SLOTS_STATUS] == tuple(slot.status for slot in report.slots)
        assert len(told[Names.SLOTS_REASON]) == len(told[Names.SLOTS])
    last = attributes(called[-1])
    assert called[-1].name == "chat gpt-4o"
    assert last[Names.PROVIDER] == "openai"
    assert last[Names.FINISH_REASONS] == ("stop",)
    usage = (Names.INPUT_TOKENS, Names.OUTPUT_TOKENS, Names.CACHE_READ, Names.CACHE_WRITE)
    assert [last[name] for name in usage] == [1_000, 50, 600, 100]
    assert Names.COMPACTED not in last


def test_tools_of_toolboxes_are_counted_by_what_became_of_them(seen: Seen) -> None:
    script = [ToolCall("1", "find_tools", '{"query":"convert_to_pdf"}'), "done"]
    model = ScriptedModel(script, name="ollama/qwen3", budget=16_000)

    async def go() -> None:
        async with App("memory:", model=model) as app:
            await app.conversation("ada", tools=toolboxes()).send("Make a PDF")

    run(go())
    first, last = (attributes(span) for span in seen.spans("compose_context"))
    names = (Names.TOOLS_DECLARED, Names.TOOLS_FOUND, Names.TOOLS_LISTED, Names.TOOLS_SEARCHES)
    assert [first[name] for name in names] == [1, 0, 96, 0]
    assert [last[name] for name in names] == [1, 1, 95, 1]


@pytest.mark.parametrize("interface", [DURABLE[name] for name in sample(DURABLE, *THREE)])
def test_a_session_is_named(interface: Interface, seen: Seen) -> None:
    app = App(MemoryStore(), budget=8_000)
    run(interface(app, answers("Yes."), "Is it?", ()))
    known = {session.id for session in app.store.sessions()}
    assert {attributes(span)[Names.CONVERSATION] for span in seen.spans("chat")} <= known


def test_fitting_a_list_tells_of_its_window(seen: Seen) -> None:
    talk = [{"role": "user", "content": "a long question " * 30}] * 9
    fitted = fit(talk, 400, model="openai/gpt-4o", previous={})
    (span,) = seen.spans("compose_context")
    told = attributes(span)
    assert told[Names.TOKENS] == fitted.report.tokens
    assert told[Names.COMPACTED] is True
    assert seen.spans("chat") == []


def test_resolving_a_prompt_tells_of_its_window_once(seen: Seen) -> None:
    inner = prompt(system="Look it up.")

    async def looked_up() -> str:
        return (await inner.resolve(provider="openai", model_id="gpt-4o")).system

    asked = prompt(use=[context(system=looked_up)], system="You are a clerk.", prompt="Where?")
    made = run(asked.resolve(provider="openai", model_id="gpt-4o"))
    inside, outside = seen.spans("compose_context")
    assert [inside.name, outside.name] == ["compose_context gpt-4o"] * 2
    assert attributes(outside)[Names.TOKENS] == made.window.tokens
    assert attributes(outside)[Names.SLOTS] == tuple(slot.name for slot in made.window.report.slots)
    assert attributes(inside)[Names.TOKENS] < made.window.tokens
    run(asked.resolve())
    assert seen.spans("compose_context")[3].name == "compose_context"  # it is for no model
    run(asked.inspect())  # what is only looked at is told of by nobody
    assert len(seen.spans("compose_context")) == 5


def test_what_is_left_out_is_an_event(seen: Seen) -> None:
    run(run_agent(answers("Fine."), small))
    (span,) = seen.spans("compose_context")
    told = {dict(event.attributes or {})[Names.SLOT]: event for event in span.events}
    assert {each.name for each in told.values()} == {Names.LEFT_OUT}
    document = dict(told["document"].attributes or {})
    assert (document[Names.STATUS], document[Names.REASON]) == ("dropped", "over_budget")
    assert int(str(document[Names.LEFT_TOKENS])) > 150
    assert "input" not in told
    # Of the conversation something is missing: the call says so.
    (call,) = seen.spans("chat")
    assert attributes(call)[Names.COMPACTED] is True


def test_texts_stand_in_spans_only_when_asked_for(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compose(messages: tuple[Message, ...]) -> Any:
        slots = Slots(1_000)
        slots.add("system", "Be brief.")
        slots.add("input", "my card is 4111")
        slots.add("run", list(messages))
        return slots.render()

    model = answers(ToolCall("c1", "look", '{"n":1}'), "Done.")
    run(run_agent(model, compose, tools=[look]))
    for span in (*seen.spans("chat"), *seen.spans("compose_context")):
        assert "4111" not in str(attributes(span)) + str(span.events)
    monkeypatch.setenv(telemetry.CONTENT, "true")
    run(run_agent(answers(ToolCall("c1", "look", '{"n":1}'), "Done."), compose, tools=[look]))
    told = attributes(seen.spans("chat")[-1])
    assert json.loads(told[Names.SYSTEM]) == [{"type": "text", "content": "Be brief."}]
    sent = json.loads(told[Names.INPUT_MESSAGES])
    assert [each["role"] for each in sent] == ["user", "assistant", "tool"]
    assert sent[1]["parts"] == [
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": '{"n":1}'}
    ]
    assert sent[2]["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "seen 1"}]
    (answer,) = json.loads(told[Names.OUTPUT_MESSAGES])
    assert answer["finish_reason"] == "stop"
    assert answer["parts"] == [{"type": "text", "content": "Done."}]


def test_a_call_that_fails_says_how(seen: Seen) -> None:
    with pytest.raises(ConnectionError):
        run(run_agent(answers(ConnectionError("no route")), small))
    (span,) = seen.spans("chat")
    assert attributes(span)[Names.ERROR] == "ConnectionError"
    assert not span.status.is_ok
    (point,) = seen.points(Names.DURATION)
    assert point.attributes[Names.ERROR] == "ConnectionError"


def test_a_stream_that_is_left_early_ends_its_span(seen: Seen) -> None:
    async def leave() -> None:
        async with aclosing(stream_agent(answers("One two three."), small)) as events:
            async for event in events:
                assert isinstance(event, TextDelta)
                # The caller's own work is not inside the call.
                current = opentelemetry.trace.get_current_span()
                assert not current.get_span_context().is_valid
                break

    run(leave())
    (span,) = seen.spans("chat")
    assert span.end_time is not None
    assert Names.ERROR not in attributes(span)


def test_a_call_is_inside_the_callers_span(seen: Seen) -> None:
    async def handle() -> None:
        with opentelemetry.trace.get_tracer("app").start_as_current_span("request") as outer:
            await run_agent(answers("Fine."), small)
            context = outer.get_span_context()
        (step,) = seen.spans("step")
        assert step.parent is not None
        assert step.parent.span_id == context.span_id
        for operation in ("compose_context", "chat"):
            (span,) = seen.spans(operation)
            assert span.parent is not None
            assert span.parent.span_id == step.context.span_id

    run(handle())


def parents(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return the names of each span and of those that it is part of, in the order of beginning."""
    by_id = {span.context.span_id: span for span in spans}

    def path(span: ReadableSpan) -> str:
        above = None if span.parent is None else by_id[span.parent.span_id]
        return span.name if above is None else f"{path(above)} / {span.name}"

    return [path(span) for span in sorted(spans, key=lambda span: span.start_time or 0)]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("model", NAMES)
def test_a_turn_is_one_trace_with_its_steps_tools_and_visits_to_the_store(
    model: str, streaming: bool, seen: Seen
) -> None:
    async def work() -> None:
        app = App(MemoryStore(), budget=8_000, model=answers(*STEPS, name=model))
        talk = app.conversation("c", tools=[look_inside])
        with opentelemetry.trace.get_tracer("app").start_as_current_span("POST") as outer:
            if not streaming:
                await talk.send("What is it?")
                return
            async for _ in talk.stream("What is it?"):
                assert opentelemetry.trace.get_current_span() is outer

    run(work())
    found = parents(seen.all())
    name = ModelName.parse(model).model
    for part in (
        "visit_store",
        "step",
        f"step / chat {name}",
        f"step / compose_context {name}",
        "step / execute_tool look_inside / SELECT",
    ):
        assert f"POST / turn / {part}" in found
    assert sum(each.endswith("/ step") for each in found) == 3
    assert sum(each.endswith("/ SELECT") for each in found) == 2
    assert all(each.startswith("POST") for each in found)
    texts = " ".join(str(attributes(span)) for span in seen.all())
    assert "secret" not in texts
    assert "What is it?" not in texts


@pytest.mark.parametrize("model", NAMES)
def test_a_wake_is_part_of_the_trace_of_who_sent_the_message(
    model: str, seen: Seen, tmp_path: Path
) -> None:
    """The message is sent by this process and handled by another one."""
    url = f"sqlite:///{tmp_path}/s.db"

    async def send() -> Any:
        tracer, sender = opentelemetry.trace.get_tracer("app"), app(url, model)
        engine: Any = sender._wakes.engine
        engine.start, engine.stored = lambda: None, lambda entity, turn: None  # it only sends
        for request in ("first", "second"):
            with tracer.start_as_current_span(request):
                item = await sender.send("order/1", request)
        await sender.close()
        return item

    assert run(send()).meta["trace"]["traceparent"].startswith("00-")
    worker = subprocess.run(
        [sys.executable, "-m", "tests.traced_worker", url, model],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    there = json.loads(worker.stdout)
    first, second = (span for span in seen.all() if span.name in ("first", "second"))
    ids = {f"0x{span.context.span_id:016x}": span.name for span in (first, second)}
    ids |= {span["context"]["span_id"]: span["name"] for span in there}
    above = {span["context"]["span_id"]: span["parent_id"] for span in there}

    def path(id: str) -> str:
        return f"{path(above[id])} / {ids[id]}" if above.get(id) else ids[id]

    paths = [path(span["context"]["span_id"]) for span in there]
    name = ModelName.parse(model).model
    for part in (
        "visit_store",
        f"step / chat {name}",
        "step / execute_tool look_inside",
        "step / execute_tool look_inside / SELECT",
    ):
        assert f"second / wake order / {part}" in paths, paths
    assert all(each.startswith("second / wake order") for each in paths)
    trace = f"0x{second.context.trace_id:032x}"
    assert {span["context"]["trace_id"] for span in there} == {trace}
    (wake,) = [span for span in there if span["name"] == "wake order"]
    assert wake["attributes"][Names.TURN] == 1
    (link,) = wake["links"]
    assert ids[link["context"]["span_id"]] == "first"
    assert "secret" not in worker.stdout


def test_the_text_of_an_error_is_noted_only_where_contents_are(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        app = App(MemoryStore(), budget=8_000, model=answers(RuntimeError("secret: you said x")))
        with suppress(RuntimeError):
            await app.conversation("c").send("hello")

    run(work())
    for span in seen.all():
        assert "secret" not in f"{span.attributes} {span.status.description} {span.events}"
    (chat,) = seen.spans("chat")
    assert chat.status.description == "RuntimeError"
    monkeypatch.setenv(telemetry.CONTENT, "true")
    run(work())
    assert attributes(seen.spans("chat")[-1])[Names.ERROR_TEXT] == "secret: you said x"


def test_arguments_and_results_of_tools_are_noted_only_where_contents_are(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(telemetry.CONTENT, "true")
    run(run_agent(answers(*STEPS), small, tools=[look_inside]))
    first = attributes(seen.spans("execute_tool")[0])
    assert first[Names.TOOL_ARGUMENTS] == '{"n":1}'
    assert first[Names.TOOL_RESULT] == "secret result 1"
    assert (first[Names.TOOL], first[Names.TOOL_CALL]) == ("look_inside", "c1")


def test_tokens_are_counted_by_slot_and_fate(seen: Seen) -> None:
    model = answers(Reply(Message("assistant", "Fine."), usage=USAGE))
    run(run_agent(model, small))
    found = {
        (point.attributes[Names.SLOT], point.attributes[Names.FATE]): point.value
        for point in seen.points(Names.SLOT_TOKENS)
    }
    report = model.windows[0].report
    for slot in report.slots:
        left = slot.tokens_asked - slot.tokens_kept
        assert found.get((slot.name, "kept"), 0) == slot.tokens_kept
        assert found.get((slot.name, "left_out"), 0) == left
    usage = {p.attributes[Names.TOKEN_TYPE]: p.sum for p in seen.points(Names.TOKEN_USAGE)}
    assert usage == {"input": 1_000, "output": 50}
    (cost,) = seen.points(Names.COST)
    expected = cost_of("openai/gpt-4o", USAGE)
    assert expected is not None
    assert cost.value == pytest.approx(float(expected))


def test_the_cost_of_a_call_is_the_sum_of_its_prices() -> None:
    # gpt-4o: 2.50 dollars a million tokens, 1.25 from the cache, 10 for the answer.
    assert cost_of("openai/gpt-4o", Usage(1_000_000, 100_000, 400_000)) == Decimal("3.00")
    assert cost_of("nobody/nothing", USAGE) is None


def test_the_share_of_the_prefix_is_measured(seen: Seen) -> None:
    model = answers("One.", "Two.")

    async def talk() -> None:
        chat = App(MemoryStore(), budget=8_000).conversation("c", model=model)
        await chat.send("first")
        await chat.send("second")

    run(talk())
    (point,) = seen.points(Names.PREFIX_SHARE)
    assert point.count == 2
    prefix = model.windows[1].report.prefix
    assert prefix is not None
    second = attributes(seen.spans("compose_context")[1])
    assert second[Names.PREFIX_TOKENS] == prefix.tokens


def test_wakes_that_wait_and_run_are_measured(seen: Seen) -> None:
    async def work() -> None:
        begun, go = asyncio.Event(), asyncio.Event()
        async with App(MemoryStore()) as app:

            @app.entity("slow")
            async def handle(ctx: Ctx, wake: Any) -> None:
                begun.set()
                await go.wait()

            await app.send("slow/1", "one")
            await begun.wait()
            await app.send("slow/1", "two")
            names = (Names.WAITING, Names.RUNNING)
            found = [await asyncio.to_thread(seen.points, name) for name in names]
            go.set()
        assert [[point.value for point in points] for points in found] == [[1], [1]]

    run(work())


def test_without_opentelemetry_nothing_of_it_is_imported() -> None:
    script = """
import asyncio, sys
from muntin import App
from muntin.testing import MemoryStore, ScriptedModel
chat = App(MemoryStore()).conversation("c", model=ScriptedModel(["Hello."]))
asyncio.run(chat.send("Hi"))
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_page_names_everything_that_is_emitted() -> None:
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z_.]+)`", page, re.MULTILINE))
    names = {value for name, value in vars(Names).items() if name.isupper()}
    assert rows == names
