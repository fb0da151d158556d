"""The user's messages: recorded, and in the window exactly once."""

from __future__ import annotations

import pytest

from muntin import Message, Text, generator, system
from muntin.testing import ScriptedModel
from muntin.timeline.items import Visibility
from tests.runtime.conftest import memory, run, said, statuses, texts
from tests.runtime.generators.conftest import echo, shown


def test_the_question_is_recorded_before_anything_comes_of_it():
    app = memory()
    worker = generator(name="worker", model=echo(), user="dig")

    async def research(input, ctx):
        assert ctx.message.text == input
        await ctx.run(worker)
        if input == "bad":
            raise LookupError("nothing there")

    chat = generator(model=echo(), context={"research": research}, user=lambda i: i)

    async def talk():
        await chat.run("good", app=app, session="s")
        with pytest.raises(LookupError):
            await chat.run("bad", app=app, session="s")

    run(talk())
    assert said(app.session("s").items.all()) == ["good", "re: dig", "re: good", "bad", "re: dig"]
    assert statuses(app, "s") == ["completed", "failed"]


@pytest.mark.parametrize(
    ("visibility", "client", "history"),
    [
        (None, True, True),
        ({"client": True, "history": False}, True, False),
        ({"client": False}, False, True),
        (Visibility(client=False, history=False), False, False),
    ],
)
def test_question_and_answer_have_the_visibility_that_was_asked_for(visibility, client, history):
    app = memory()
    worker = generator(model=echo(), user="task", visibility=visibility)
    run(worker.run(app=app, session="s"))
    items = app.session("s").items
    assert said(items.all()) == ["task", "re: task"]
    assert said(items.client()) == (said(items.all()) if client else [])
    assert said(items.history()) == (said(items.all()) if history else [])
    later = generator(history=True, user="now")
    assert len(shown(later, app=app, session="s")) == (3 if history else 1)


def test_a_sub_generator_runs_in_the_same_turn():
    app = memory()
    worker_model, model = echo(), echo()
    worker = generator(
        name="worker",
        model=worker_model,
        user=lambda i: f"Task: {i}",
        visibility={"history": False},
    )

    async def research(input, ctx):
        return (await ctx.run(worker, input)).text

    chat = generator(model=model, context={"research": research}, history=True, user=lambda i: i)

    async def talk():
        await chat.run("one", app=app, session="s")
        await chat.run("two", app=app, session="s")

    run(talk())
    assert statuses(app, "s") == ["completed", "completed"]
    assert texts(worker_model.windows[0]) == ["Task: one"]
    assert texts(model.windows[1]) == [
        "<research>\nre: Task: two\n</research>",
        "one",
        "re: one",
        "two",
    ]


def test_in_an_entity_the_answer_is_what_was_asked_for_and_the_question_is_the_waking_message():
    model = ScriptedModel(["first", "hidden"])
    chat = generator(model=model, prompt="P", history=True)
    hidden = generator(model=model, user="Note it.", visibility={"client": False, "history": False})

    async def talk():
        app = memory()

        @app.entity("e")
        async def handle(ctx, wake):
            await ctx.run(chat)
            await ctx.run(hidden)

        reply = await app.ask("e/1", "hello")
        await app.close()
        return reply

    reply = run(talk())
    assert reply is not None
    assert reply.text == "first"
    assert [texts(window) for window in model.windows] == [["P", "hello"], ["Note it."]]


def test_a_prebuilt_message_and_parts_pass_unchanged():
    given = Message("user", (Text("a"), Text("b")), name="Ann")
    window = run(generator(context=[system("s")], user=given).window(model=echo()))
    assert window.messages == (system("s"), given)
