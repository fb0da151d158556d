"""Generators: what they may be, and a run as a turn of its own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from muntin import (
    App,
    InvalidInput,
    MuntinError,
    assistant,
    config,
    context,
    generator,
    prompt,
    tool,
    user,
)
from muntin.errors import InvalidType
from muntin.providers.model import Finished, TextDelta
from muntin.runtime.places import place_of
from muntin.runtime.turn import ActiveTurn
from muntin.testing import ScriptedModel
from muntin.timeline.items import Draft, draft_of
from tests.runtime.conftest import call, memory, run, said, statuses, texts
from tests.runtime.generators.conftest import Ask, echo, lookup, shown, talked

rules = context(id="rules", system="Be brief & kind.", priority=100, tools=[lookup])


# On its own, and in a turn.


def test_a_run_is_a_turn_of_the_session_that_the_next_one_remembers(store_url):
    model = echo()
    chat = generator(name="chat", model=model, history=True, user=lambda i: i)

    async def talk():
        async with App(store_url) as app:
            await chat.run("one", app=app, session="s")
            reply = await chat.run("two", app=app, session="s")
            assert reply.text == "re: two"
            assert reply.window is model.windows[1]
            items = app.session("s").items
            assert said(items.all()) == ["one", "re: one", "two", "re: two"]
            assert said(items.client()) == said(items.history()) == said(items.all())
            assert statuses(app, "s") == ["completed", "completed"]
            assert [each.payload for each in items.all() if each.kind == "run"] == [
                {"generator": "chat"}
            ] * 2

    run(talk())
    assert texts(model.windows[1]) == ["one", "re: one", "two"]


def test_without_an_app_a_session_is_remembered_in_memory_and_a_nameless_one_is_new():
    model = echo()
    chat = generator(model=model, history=True, user=lambda i: i)

    async def talk():
        for text, session in (("a", "s"), ("b", "s"), ("c", None), ("d", None)):
            await chat.run(text, session=session)

    run(talk())
    assert [texts(window) for window in model.windows] == [["a"], ["a", "re: a", "b"], ["c"], ["d"]]


def test_a_window_is_composed_without_sending_or_recording():
    app = memory()
    talked(app, 1)
    before = app.session("s").items.all()
    model = echo()
    made = generator(model=model, prompt="P", history=True, user=lambda i: i)
    assert texts(run(made.window("look", app=app, session="s"))) == ["P", "q1", "re: q1", "look"]
    assert model.windows == []
    assert app.session("s").items.all() == before
    assert len(app.store.turns("s")) == 1
    assert app.store.turns("other") == []

    def write(input, ctx):
        ctx.insert_context("x", name="n", content="c")

    with pytest.raises(MuntinError, match="nothing can be recorded"):
        shown(generator(context=write), app=app, session="s")

    async def ask(input, ctx):
        return (await ctx.run(made, "x")).text

    with pytest.raises(MuntinError, match="nothing can be recorded or run"):
        shown(generator(context=ask), app=app, session="s")


def test_a_run_that_was_interrupted_goes_on_and_is_shown_once():
    model = ScriptedModel(["Done."])
    chat = generator(model=model, tools=[lookup], history=True, user="go")

    async def again():
        app = memory()
        turn = await ActiveTurn(app, app.session("s")).start(user("go"))
        place = place_of("s", 1, chat.name, ["", None, []])
        label = {"generator": chat.name}
        (begun,) = turn.append(Draft("run", payload=label, meta={"place": place}))
        for message in (assistant(tool_calls=[call("lookup", key="a")]), tool("c1", "found a")):
            turn.append(draft_of(message, run=begun.position))
        resumed = ActiveTurn(app, turn.session, 1, owner=turn.owner, attempt=turn.attempt)
        resumed.resume(turn.items())
        await chat.run_in(resumed)

    run(again())
    assert [m.role for m in model.windows[0].messages] == ["user", "assistant", "tool"]


def test_a_run_streams_and_its_turn_is_over_before_the_last_event():
    app = memory()
    chat = generator(model=echo(), user=lambda i: i)

    async def talk():
        events = chat.stream("hi", app=app, session="s")
        return [(event, statuses(app, "s")) async for event in events]

    *pieces, (last, settled) = run(talk())
    assert "".join(each.text for each, _ in pieces if isinstance(each, TextDelta)) == "re: hi"
    assert {status[0] for _, status in pieces} == {"open"}
    assert isinstance(last, Finished)
    assert settled == ["completed"]


def test_a_stream_that_is_left_early_is_marked_failed_and_holds_up_nobody():
    app = memory()
    chat = generator(model=ScriptedModel(["one two three", "ok"]), user=lambda i: i)

    async def talk():
        async with aclosing(chat.stream("count", app=app, session="s")) as events:
            async for _ in events:
                break
        return await chat.run("again", app=app, session="s")

    assert run(talk()).text == "ok"
    assert statuses(app, "s") == ["failed", "completed"]


def test_a_strategy_may_run_a_generator_in_its_turn():
    model = ScriptedModel(["short", "answer"])
    summary = generator(
        model=model, prompt="Sum up.", visibility={"client": False, "history": False}
    )

    class Strategy:
        async def on_context_build(self, ctx):
            ctx.slots.add("system", (await ctx.run(summary)).text)

    async def talk():
        app = memory(model=model)
        await app.conversation("c", strategy=Strategy()).send("hello")
        return said(app.session("c").items.client())

    assert run(talk()) == ["hello", "answer"]
    assert [texts(window) for window in model.windows] == [["Sum up.", "hello"], ["short", "hello"]]


def test_a_run_that_is_cancelled_is_marked_failed_and_holds_up_nobody():
    app = memory()
    slow = generator(model=ScriptedModel(lambda window: asyncio.sleep(60)), user="slow")
    quick = generator(model=echo(), user="quick")

    async def talk():
        first = asyncio.create_task(slow.run(app=app, session="s"))
        await asyncio.sleep(0.02)
        waiting = asyncio.create_task(quick.run(app=app, session="s"))
        await asyncio.sleep(0.02)
        waiting.cancel()
        first.cancel()
        await asyncio.gather(first, waiting, return_exceptions=True)
        return await quick.run(app=app, session="s")

    assert run(talk()).text == "re: quick"
    assert statuses(app, "s") == ["failed", "failed", "completed"]


# Input.


def test_input_is_validated_and_what_is_wrong_changes_nothing():
    app = memory()
    model = echo()
    chat = generator(name="chat", model=model, input=Ask, user=lambda i: i.message)
    for wrong in ({"topic": "x"}, {"message": 3}, "hi", 7, None):
        with pytest.raises(
            InvalidInput, match=r"generator 'chat': invalid input: (message|input): "
        ):
            run(chat.run(wrong, app=app, session="s"))
    assert model.windows == []
    assert app.store.sessions(id="s") == []

    @dataclass
    class Same:
        message: str

    for right in ({"message": "hi"}, Ask(message="hi"), Same("hi")):
        assert shown(chat, right) == [("user", "hi")]


# Settings, tools, definitions.


def test_settings_of_the_process_are_the_weakest_and_none_never_erases():
    model = echo()
    with config.local(settings={"temperature": 0.1, "top_p": 0.5}):
        run(generator(model=model, user="x", settings={"temperature": 0.3, "top_p": None}).run())
    assert model.settings[0] == {"temperature": 0.3, "top_p": 0.5}


def test_a_model_given_to_the_call_wins_over_the_generators_and_that_over_the_apps():
    one, two, three = echo(name="one"), echo(name="two"), echo(name="three")
    app = App("memory:", model=three)

    async def talk():
        await generator(user="x").run(app=app)
        await generator(user="x", model=two).run(app=app)
        await generator(user="x", model=two).run(app=app, model=one)
        with pytest.raises(InvalidInput, match="generator 'g' needs a model"):
            await generator(name="g", user="x").run()

    run(talk())
    assert [len(model.windows) for model in (one, two, three)] == [1, 1, 1]


def test_the_same_tool_from_two_sides_is_an_error_naming_both():
    with pytest.raises(
        InvalidInput, match="tool 'lookup' is contributed by generator 'g' and by con"
    ):
        shown(generator(name="g", tools=[lookup], context=[rules]))
    assert shown(generator(context=[rules, {"again": rules}]))  # one context, two places


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"model": 3}, "generator 'g': a model is a name like"),
        ({"prompt": 3}, "generator 'g': prompt must be a text"),
        ({"prompt": lambda a, b, c: ""}, "generator 'g': prompt must take"),
        ({"prompt": [3]}, "prompt 'g'"),
        ({"user": 3}, "generator 'g': user must be a text, a message or a list"),
        ({"user": [3]}, "generator 'g': user must be a text, a message or a list"),
        ({"user": lambda a, b, c: ""}, "generator 'g': user must take"),
        ({"user": {"role": "boss", "content": "x"}}, "generator 'g': user: unknown role 'boss'"),
        ({"uses": ["rag"]}, r"generator 'g': uses\[0\] must be a capability or a function"),
        ({"uses": 3}, "generator 'g': uses must be a list of capabilities"),
        ({"uses": [lambda a, b: []]}, r"generator 'g': uses\[0\] must take \(ctx\)"),
        ({"tools": [3]}, "generator 'g': a tool must be"),
        ({"tools": [lookup, lookup]}, "generator 'g': tools"),
        ({"input": dict}, "generator 'g': input must be a Pydantic model class"),
        ({"output": dict}, "generator 'g': output must be a Pydantic model class"),
        ({"visibility": True}, "generator 'g': visibility must be"),
        ({"visibility": {"model": True}}, "generator 'g': visibility must be"),
        ({"visibility": {"client": 1}}, r"generator 'g': visibility\['client'\] must be True or"),
        ({"settings": 3}, "generator 'g': settings must be a mapping"),
        ({"budget": -1}, "generator 'g': "),
        ({"max_steps": 0}, "generator 'g': max_steps must be at least 1"),
    ],
)
def test_a_wrong_definition_is_refused_by_name(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        generator(name="g", **wrong)


def test_a_generator_that_has_nothing_to_say_asks_nobody():
    model = echo()
    with pytest.raises(InvalidInput, match="generator 'g' is empty for this input: there is nothi"):
        run(generator(name="g", model=model, context={"a": lambda: None}).run())
    assert model.windows == []


def test_what_is_resolved_to_the_wrong_type_is_refused_by_name():
    with pytest.raises(InvalidType, match="the prompt of generator 'g' must be a text, not 3"):
        shown(generator(name="g", prompt=lambda: 3))
    with pytest.raises(
        InvalidType, match="generator 'g': user must be a text, a message or a list"
    ):
        shown(generator(name="g", user=lambda: 3))
    with pytest.raises(InvalidType, match="generator 'g': history must be"):
        shown(generator(name="g", history=lambda: "all"))


def test_a_cached_context_of_a_prompt_is_marked_in_a_generator_too():
    rules = context(id="rules", system="Never promise a refund. " * 500, cache=1_000)
    model = ScriptedModel([], name="anthropic/claude-sonnet-4-5")
    chat = generator(prompt=prompt(system="You sell.", use=[rules]), user="Hello.", model=model)
    request = run(chat.window(None)).anthropic()
    assert "cache_control" in request["system"][-1]
