"""A worker that prints its spans.

python -m tests.traced_worker ADDRESS MODEL
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import opentelemetry.trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from muntin import App, ToolCall
from muntin.runtime import Ctx
from muntin.testing import ScriptedModel


def look_inside(n: int) -> str:
    """Look, in a span of its own."""
    with opentelemetry.trace.get_tracer("app").start_as_current_span("SELECT"):
        return f"secret result {n}"


STEPS = [ToolCall("c1", "look_inside", '{"n":1}'), ToolCall("c2", "look_inside", '{"n":2}'), "Ok."]


def app(url: str, model: str) -> App:
    """Return an app with entities that look inside."""
    made = App(url, budget=8_000, model=ScriptedModel(STEPS, name=model))

    @made.entity("order")
    async def order(ctx: Ctx, wake: Any) -> Any:
        return ctx.use_agent(tools=[look_inside])

    return made


async def _handle(url: str, model: str) -> None:
    async with app(url, model) as worker:
        await worker.resume()


if __name__ == "__main__":
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    opentelemetry.trace.set_tracer_provider(tracers)
    asyncio.run(_handle(*sys.argv[1:]))
    print(json.dumps([json.loads(span.to_json()) for span in exporter.get_finished_spans()]))
