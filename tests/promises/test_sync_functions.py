"""A user's sync function never holds up the event loop: it runs in a thread, beside the others,
with the time-out of its interface."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from muntin import App, MuntinError, Slots, Source, capability, flow, generator
from muntin.agent import run_agent
from muntin.runtime import Action, Ctx
from muntin.testing import MemoryStore, ScriptedModel
from tests.products import PRICED
from tests.runtime.conftest import call, run, texts

MODEL = ScriptedModel(lambda window: "ok", name=PRICED)


def memory(**given: Any) -> App:
    return App(MemoryStore(), model=MODEL, **given)


class Meeting:
    """Functions that return when all of them are called; alone they fail."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties)

    def __call__(self) -> str:
        self._barrier.wait(timeout=5)
        return f"thread {threading.get_ident()}"


# Each uses three sync functions, through one interface.


async def context_tags(meet: Callable[[], Any]) -> None:
    await generator(model=MODEL, user="hi", context={"a": meet, "b": meet, "c": meet}).run()


async def context_list(meet: Callable[[], Any]) -> None:
    await generator(model=MODEL, user="hi", context=[meet, {"b": meet}, {"c": meet}]).run()


async def users(meet: Callable[[], Any]) -> None:
    await generator(model=MODEL, user=[meet, meet, meet]).run()


async def capabilities(meet: Callable[[], Any]) -> None:
    uses = [capability(name, functions=lambda ctx: meet()) for name in "abc"]
    await generator(model=MODEL, user="hi", uses=uses).run()


async def presets(meet: Callable[[], Any]) -> None:
    uses = [capability(name, presets={"p": {"context": {name: meet}}}) for name in ("a", "b", "c")]
    await generator(model=MODEL, user="hi", uses=uses).run()


async def tools(meet: Callable[[], Any]) -> None:
    def use() -> str:
        """Meet."""
        return str(meet())

    model = ScriptedModel([[call("use", id=name) for name in "abc"], "done"], name=PRICED)
    made = generator(model=model, user="hi", tools=[use])
    await made.run()
    assert "Error" not in " ".join(texts(model.windows[-1]))


async def sources(meet: Callable[[], Any]) -> None:
    app = memory()

    @app.entity("e")
    async def handler(ctx: Ctx, wake: object) -> None:
        made = {name: Source(meet, max=100) for name in "abc"}
        ctx.use_context(source_budget=1_000, sources=made)
        ctx.use_agent()
        await ctx.agent.run()

    await app.ask("e/1", "hi")
    assert "could not be read" not in str(MODEL.windows[-1].messages)
    await app.close()


@pytest.mark.parametrize(
    "interface", [context_tags, context_list, users, capabilities, presets, sources]
)
def test_functions_that_need_not_wait_for_each_other_run_side_by_side(interface):
    run(interface(Meeting(3)), within=20)


# Each uses one sync function, through one interface.


def use_prompt(slow: Callable[[], Any]) -> Any:
    return generator(model=MODEL, prompt=slow, user="hi").run()


def use_context(slow: Callable[[], Any]) -> Any:
    return generator(model=MODEL, context={"a": slow}, user="hi").run()


def use_user(slow: Callable[[], Any]) -> Any:
    return generator(model=MODEL, user=slow).run()


def use_history(slow: Callable[[], Any]) -> Any:
    def history() -> list[Any]:
        slow()
        return []

    return generator(model=MODEL, user="hi", history=history).run()


def use_uses(slow: Callable[[], Any]) -> Any:
    def uses(ctx: Ctx) -> list[Any]:
        slow()
        return []

    return generator(model=MODEL, user="hi", uses=[uses]).run()


def use_functions(slow: Callable[[], Any]) -> Any:
    uses = [capability("a", functions=lambda ctx: slow())]
    return generator(model=MODEL, user="hi", uses=uses).run()


def use_user_message(slow: Callable[[], Any]) -> Any:
    block = generator(model=MODEL, prompt="p")
    return flow("f", actions={"do": Action(block, user_message=slow)}).run("do")


def use_strategy(slow: Callable[[], Any]) -> Any:
    class Strategy:
        def on_context_build(self, ctx: Ctx) -> None:
            slow()

    return memory().conversation("c", strategy=Strategy()).send("hi")


def use_compose(slow: Callable[[], Any]) -> Any:
    def compose(messages: Any) -> Any:
        slow()
        slots = Slots(1_000)
        slots.add("input", "hi")
        return slots.render()

    return run_agent(MODEL, compose)


def use_record(slow: Callable[[], Any]) -> Any:
    slots = Slots(1_000)
    slots.add("input", "hi")
    return run_agent(MODEL, lambda messages: slots.render(), record=lambda messages: slow())


ONE = [
    use_prompt,
    use_context,
    use_user,
    use_history,
    use_uses,
    use_functions,
    use_user_message,
    use_strategy,
    use_compose,
    use_record,
]


@pytest.mark.parametrize("interface", ONE)
def test_the_event_loop_goes_on_while_a_sync_function_runs(interface):
    ticks = 0
    seen: list[int] = []

    def slow() -> str:
        before, last = ticks, time.monotonic() + 5
        while ticks < before + 3 and time.monotonic() < last:
            time.sleep(0.01)
        seen.append(ticks - before)
        return "text"

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    async def work() -> None:
        ticking = asyncio.create_task(tick())
        await interface(slow)
        ticking.cancel()

    run(work())
    assert seen
    assert min(seen) >= 3


@pytest.mark.parametrize("interface", ONE)
def test_context_variables_reach_a_sync_function(interface):
    wanted: ContextVar[str] = ContextVar("wanted", default="nothing")
    seen: list[str] = []

    def look() -> str:
        seen.append(wanted.get())
        return "text"

    async def work() -> None:
        wanted.set("this")
        await interface(look)

    run(work())
    assert set(seen) == {"this"}


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"prompt": time.sleep}, "the prompt of generator 'g'"),
        ({"context": {"a": time.sleep}}, "context key 'a' from 'generator g'"),
        ({"context": [time.sleep]}, "context[0] from 'generator g'"),
        ({"user": time.sleep}, "generator 'g': user"),
        ({"history": time.sleep}, "history of generator 'g'"),
        ({"uses": [time.sleep]}, "uses of generator 'g'"),
    ],
)
@pytest.mark.parametrize("sync", [True, False])
def test_a_function_of_a_generator_that_hangs_is_an_error_that_names_it(part, told, sync):
    ((name, value),) = part.items()

    def hang() -> None:
        time.sleep(60)

    async def hang_async() -> None:
        await asyncio.sleep(60)

    fn = hang if sync else hang_async
    given: Any = fn
    if isinstance(value, dict):
        given = dict.fromkeys(value, fn)
    elif isinstance(value, list):
        given = [fn]
    made = generator(name="g", model=MODEL, timeout=0.1, **{"user": "hi", name: given})
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"took longer than 0\.1 s") as caught:
        run(made.run())
    assert told in str(caught.value)
    assert time.monotonic() - start < 30


def test_functions_of_a_capability_that_hang_are_an_error_that_names_it():
    uses = [capability("slow", functions=lambda ctx: time.sleep(2))]
    made = generator(model=MODEL, user="hi", uses=uses, timeout=0.1)
    with pytest.raises(MuntinError, match=r"functions of capability slow took longer than 0\.1 s"):
        run(made.run())


def test_functions_of_capabilities_wait_for_those_they_need():
    order: list[str] = []

    def note(name: str, seconds: float) -> Callable[[Any], str]:
        def functions(ctx: Any) -> str:
            time.sleep(seconds)
            order.append(name)
            return "+".join([name, *(vars(ctx.cap)[need] for need in needs.get(name, []))])

        return functions

    needs = {"top": ["left", "right"], "left": ["base"], "right": ["base"]}
    base = capability("base", functions=note("base", 0.1))
    left = capability("left", uses=[base], functions=note("left", 0.1))
    right = capability("right", uses=[base], functions=note("right", 0.0))
    top = capability("top", uses=[left, right], functions=note("top", 0.0))
    seen: list[str] = []
    made = generator(
        model=MODEL, user="hi", uses=[top], context={"x": lambda i, ctx: seen.append(ctx.cap.top)}
    )
    run(made.run())
    assert order == ["base", "right", "left", "top"]
    assert seen == ["top+left+base+right+base"]


def test_a_function_in_uses_sees_what_those_before_it_gave():
    extra = capability("extra", presets={"p": {"context": {"extra": "text"}}})

    def flag(ctx: Any) -> bool:
        time.sleep(0.05)
        return True

    def more(ctx: Any) -> list[Any]:
        return [extra] if ctx.cap.flag else []

    made = generator(model=MODEL, user="hi", uses=[capability("flag", functions=flag), more])
    run(made.run())
    assert "<extra>" in MODEL.windows[-1].messages[0].text


def test_an_error_of_one_function_is_told_while_others_run():
    def fail(ctx: Any) -> None:
        raise ValueError("no such file")

    uses = [
        capability("a", functions=lambda ctx: time.sleep(0.05)),
        capability("b", functions=fail),
    ]
    with pytest.raises(ValueError, match="no such file") as caught:
        run(generator(model=MODEL, user="hi", uses=uses).run())
    assert "raised by functions of capability b" in caught.value.__notes__


# Annotations that name what does not exist when the program runs.


def strange(word: str) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    """Say a word."""
    return f"said {word}"


async def strange_async(given: Any, ctx: Ctx) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return "text"


def test_a_tool_works_whose_return_annotation_names_nothing():
    model = ScriptedModel([call("strange", word="yes"), "done"], name=PRICED)
    run(generator(model=model, user="hi", tools=[strange]).run())
    assert "said yes" in " ".join(texts(model.windows[-1]))


def test_a_parameter_whose_annotation_names_nothing_is_named():
    def lost(word: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
        return "x"

    with pytest.raises(MuntinError, match=r"tool 'lost': parameter 'word': .*Nowhere"):
        generator(model=MODEL, tools=[lost])


@pytest.mark.parametrize("part", ["prompt", "context", "user"])
def test_other_functions_need_no_annotations_that_can_be_read(part):
    given: dict[str, Any] = {"user": "hi", part: strange_async}
    run(generator(model=MODEL, **given).run())
    assert "text" in " ".join(texts(MODEL.windows[-1]))


def test_functions_of_capabilities_need_no_annotations_that_can_be_read():
    def functions(ctx: Nowhere) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return "given"

    seen: list[str] = []
    made = generator(
        model=MODEL,
        user="hi",
        uses=[capability("a", functions=functions)],
        context={"x": lambda i, ctx: seen.append(ctx.cap.a)},
    )
    run(made.run())
    assert seen == ["given"]
