"""Generators: the messages of a call, in order, and what is recorded of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from muntin import (
    App,
    Budget,
    InvalidInput,
    Message,
    MuntinError,
    Text,
    Tokens,
    Turns,
    assistant,
    capability,
    config,
    context,
    generator,
    match,
    prompt,
    prompt_file,
    system,
    tool,
    user,
    when,
)
from muntin.errors import BudgetExceeded, InvalidType, OutputInvalid
from muntin.providers.model import Finished, TextDelta
from muntin.runtime.recorded_run import Work, queue
from muntin.testing import ScriptedModel
from muntin.timeline.items import Draft, Visibility, draft_of
from tests.runtime.conftest import call, memory, run, said, statuses, texts


class Ask(BaseModel):
    message: str
    topic: str = "lamps"


def echo(**given: Any) -> ScriptedModel:
    return ScriptedModel(lambda window: f"re: {window.messages[-1].text}", **given)


def shown(made, input=None, **given) -> list[tuple[str, str]]:
    """Return the role and text of each message that a generator would send."""
    given.setdefault("model", echo())
    return [(each.role, each.text) for each in run(made.window(input, **given)).messages]


def lookup(key: str) -> str:
    """Look something up."""
    return f"found {key}"


# The order of the messages.


def test_the_messages_stand_in_the_order_system_texts_history_user():
    chat = generator(
        name="chat",
        model=echo(),
        prompt="You are a research assistant.",
        context=[
            "Background.",
            {"documents": ["first", "second"]},
            lambda i: f"About {i.topic}.",
            {"memory": {"shortTerm": "recent", "longTerm": "older"}},
            {"role": "assistant", "content": "(an example)"},
        ],
        history=True,
        user=lambda i: i.message,
        input=Ask,
    )

    async def talk():
        await chat.run({"message": "one"}, session="s")
        return await chat.window({"message": "two"}, session="s")

    assert [(m.role, m.content) for m in run(talk()).messages] == [
        (
            "system",
            "You are a research assistant.\n\n"
            "<documents>\nfirst\nsecond\n</documents>\n"
            "<memory>\n<short-term>recent</short-term>\n<long-term>older</long-term>\n</memory>",
        ),
        ("system", "Background."),
        ("system", "About lamps."),
        ("assistant", "(an example)"),
        ("user", "one"),
        ("assistant", "re: one"),
        ("user", "two"),
    ]


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        ({}, []),
        ({"prompt": ""}, []),
        ({"prompt": lambda: None}, []),
        ({"context": {"notes": None, "more": {}}}, []),
        ({"prompt": "P"}, [("system", "P")]),
        ({"context": {"notes": "n"}}, [("system", "<notes>\nn\n</notes>")]),
        ({"prompt": "P", "context": {"notes": "n"}}, [("system", "P\n\n<notes>\nn\n</notes>")]),
        ({"prompt": "P", "context": "plain"}, [("system", "P"), ("system", "plain")]),
        ({"context": "plain"}, [("system", "plain")]),
        ({"context": lambda: {"a": "b"}}, [("system", "<a>\nb\n</a>")]),
        ({"prompt": "P", "context": [None, "", False, {}, [], lambda: None]}, [("system", "P")]),
        ({"context": [["a", ["b"]], "c"]}, [("system", "a"), ("system", "b"), ("system", "c")]),
        ({"user": "hi"}, [("user", "hi")]),
        ({"user": ["a", None, user("b"), "", lambda: ["c", "d"]]}, [("user", c) for c in "abcd"]),
        ({"user": {"role": "user", "content": "hi"}}, [("user", "hi")]),
        ({"user": [assistant("So?"), "hi"]}, [("assistant", "So?"), ("user", "hi")]),
    ],
)
def test_a_part_that_is_empty_leaves_no_trace(given, messages):
    assert shown(generator(**given)) == messages


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_plain_texts_are_sent_byte_for_byte(text):
    assert shown(generator(prompt="P", context=[text, {"t": "x"}]))[1] == ("system", text)


def test_texts_from_functions_and_capabilities_follow_in_author_order():
    one = capability("one", presets={"p": {"context": ["from one", lambda: "and again"]}})
    made = generator(context=[lambda: ["own", "own too"]], uses=[one])
    assert [text for _, text in shown(made)] == ["own", "own too", "from one", "and again"]


# Context.


@dataclass
class Notes:
    first: str
    count: int


def test_functions_at_every_depth_are_called_by_arity_sync_or_async():
    async def later(i, ctx):
        await asyncio.sleep(0)
        return {"inner": lambda i: [i.topic, lambda: None], "id": ctx.session.id}

    made = generator(
        context={
            "a": later,
            "b": lambda: Notes("x", 3),
            "c": [lambda i: i.message, date(2024, 6, 3)],
        },
        input=Ask,
    )
    assert shown(made, {"message": "1 < 2"}, session="s1") == [
        (
            "system",
            "<a>\n<inner>lamps</inner>\n<id>s1</id>\n</a>\n"
            "<b>\n<first>x</first>\n<count>3</count>\n</b>\n"
            "<c>\n1 &lt; 2\n2024-06-03\n</c>",
        )
    ]


def nested(depth: int, end: Any) -> Any:
    value = end
    for _ in range(depth):
        value = (lambda inner: lambda: inner)(value)
    return value


@pytest.mark.parametrize("form", [lambda v: {"a": v}, lambda v: [v]])
def test_functions_may_give_functions_32_deep_and_no_deeper(form):
    assert len(shown(generator(context=form(nested(32, "x"))))) == 1
    with pytest.raises(InvalidInput, match="from 'generator deep': functions give functions more"):
        shown(generator(name="deep", context=form(nested(33, "x"))))
    with pytest.raises(InvalidInput, match="more than 32 deep"):
        shown(generator(user=nested(40, "x")))


def test_mappings_nest_without_limit():
    tree: Any = "x"
    for _ in range(3_000):
        tree = {"a": tree}
    assert shown(generator(context=tree))[0][1].count("<a>") == 3_000


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"role": "manager", "content": "x"}, "[1].role"),
        ({"role": lambda: "Analyst"}, "[1].role"),
        ({"role": "user"}, "[1].role"),
        ({"role": "developer", "content": "x"}, "[1].role"),
    ],
)
def test_a_mapping_with_a_role_that_is_no_message_is_refused_where_it_is_defined(entry, path):
    with pytest.raises(InvalidInput) as caught:
        generator(name="chat", context=["text", entry])
    said = str(caught.value)
    assert f"context key '{path}' from 'generator chat'" in said
    assert "the tag name 'role' is reserved" in said
    assert "choose another name, such as agent-role" in said
    with pytest.raises(InvalidInput, match="the tag name 'role' is reserved"):
        shown(generator(context=lambda: entry))


def test_a_mapping_with_role_and_content_is_a_message_as_it_is():
    call_made = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
    }
    result = {"role": "tool", "tool_call_id": "c", "content": "done"}
    window = run(generator(context=[call_made, result], user="hi").window(model=echo()))
    assert [m.role for m in window.messages] == ["assistant", "tool", "user"]
    assert window.messages[0].tool_calls[0].name == "f"
    assert shown(generator(context={"role": "user", "content": "x"})) == [("user", "x")]


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"tool_use": "x"}, "context key 'tool_use' from 'generator g': .*'tool-use' is reserved"),
        ({"a": [{"b": {"system": 1}}]}, r"context key 'a\[0\].b.system' from 'generator g'"),
        (
            {"a": {"1x": lambda: ""}},
            "context key 'a.1x' from 'generator g': '1x' is not a tag name",
        ),
        (["ok", {"Role": "x"}], "context key 'Role' from 'generator g'"),
        ({"a": object()}, "context key 'a' from 'generator g': cannot render type object"),
        ([3], r"context\[0\] from 'generator g': cannot use a int"),
        (ENDLESS, "from 'generator g': lists are nested more than 32 deep"),
        ([True], r"context\[0\] from 'generator g': cannot use a bool"),
        ({"a": lambda a, b, c: ""}, "context key 'a' from 'generator g' must take"),
        ([lambda a, b, c: ""], r"context\[0\] from 'generator g' must take"),
    ],
)
def test_static_context_is_checked_where_it_is_defined(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        generator(name="g", context=wrong)


def test_what_functions_give_is_checked_when_it_is_there():
    with pytest.raises(InvalidInput, match=r"context key 'a\.invoke' from 'generator g'"):
        shown(generator(name="g", context={"a": lambda: {"invoke": "x"}}))
    with pytest.raises(TypeError, match=r"context\[0\] from 'generator g': cannot use a int"):
        shown(generator(name="g", context=[lambda: 3]))


def test_text_against_nested_tags_names_the_path_and_both_authors():
    rag = capability("rag", presets={"p": {"context": lambda: {"docs": {"recent": "x"}}}})
    with pytest.raises(InvalidInput) as caught:
        shown(generator(name="chat", context={"docs": "text"}, uses=[rag]))
    assert str(caught.value) == (
        "context key 'docs' has both text from 'generator chat' and nested tags from "
        "'capability rag'; choose one of them"
    )


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"context": {"a": lambda: 1 / 0}}, "raised by context key 'a' from 'generator g'"),
        ({"context": [lambda: 1 / 0]}, "raised by context[0] from 'generator g'"),
        ({"prompt": lambda: 1 / 0}, "raised by the prompt of generator 'g'"),
        ({"user": lambda: 1 / 0}, "raised by generator 'g': user"),
        ({"history": lambda: 1 / 0}, "raised by history of generator 'g'"),
    ],
)
def test_an_exception_passes_unchanged_with_a_note_of_who_raised_it(given, note):
    with pytest.raises(ZeroDivisionError) as caught:
        shown(generator(name="g", **given))
    assert caught.value.__notes__ == [note]


def test_context_that_takes_its_time_is_waited_for_together():
    started: list[str] = []
    all_there = asyncio.Event()

    async def slow(name):
        started.append(name)
        if len(started) == 3:
            all_there.set()
        await all_there.wait()
        return name

    made = generator(context=[{"a": lambda: slow("1"), "b": lambda: slow("2")}, lambda: slow("3")])
    assert len(shown(made)) == 2


# Contexts and prompts of `muntin.prompts`.


class Topic(BaseModel):
    topic: str


rules = context(id="rules", system="Be brief & kind.", priority=100, tools=[lookup])
about = context(
    id="about", input=Topic, system=lambda i, ctx: f"{i.topic} in {ctx.session.id}", priority=20
)


def test_a_context_is_a_message_of_its_own_a_tag_or_part_of_the_prompt():
    assert shown(generator(context=[rules, "x"])) == [
        ("system", "Be brief & kind."),
        ("system", "x"),
    ]
    tagged = generator(context={"rules": rules, "more": [lambda: about]})
    assert shown(tagged, {"topic": "lamps"}, session="s") == [
        (
            "system",
            "<rules>\nBe brief &amp; kind.\n</rules>\n<more>\nlamps in s\n</more>",
        )
    ]
    joined = generator(prompt=["You help.", rules, about], context={"a": "b"})
    assert shown(joined, {"topic": "lamps"}, session="s") == [
        ("system", "You help.\n\nBe brief & kind.\n\nlamps in s\n\n<a>\nb\n</a>")
    ]
    assert shown(generator(prompt=rules)) == [("system", "Be brief & kind.")]


def test_a_context_brings_its_tools_and_its_conditions():
    quiet = when(lambda i: i.message == "hush", context(id="quiet", system="Whisper."))
    chosen = match(on=lambda i: i.topic, cases={"lamps": context(system="Lamps!")})
    made = generator(context=[rules, quiet, {"t": chosen}], input=Ask, user=lambda i: i.message)
    window = run(made.window({"message": "hush"}, model=echo()))
    assert texts(window) == ["<t>\nLamps!\n</t>", "Be brief & kind.", "Whisper.", "hush"]
    assert [each["function"]["name"] for each in window.tools] == ["lookup"]
    window = run(made.window({"message": "hi", "topic": "x"}, model=echo()))
    assert texts(window) == ["Be brief & kind.", "hi"]
    excluded = [row for row in window.report.slots if row.status == "excluded"]
    assert [(row.name, row.reason) for row in excluded] == [
        ("context:quiet", "condition_false"),
        ("match[0]", "condition_false"),
    ]


def test_a_prompt_brings_text_user_tools_settings_and_output():
    class Answer(BaseModel):
        text: str

    bot = prompt(
        id="bot",
        system="You help.",
        prompt=lambda i: f"Asked: {i.message}",
        use=[rules],
        output=Answer,
        settings={"temperature": 0.5},
        adapt={"*": {"append_system": "Thanks."}},
    )
    model = ScriptedModel(['{"text": "yes"}'])
    reply = run(generator(prompt=bot, context={"a": "b"}, model=model).run({"message": "hi"}))
    assert texts(model.windows[0]) == [
        "You help.\n\nBe brief & kind.\n\nThanks.\n\n<a>\nb\n</a>",
        "Asked: hi",
    ]
    assert reply.output == Answer(text="yes")
    assert model.settings[0]["temperature"] == 0.5
    assert model.windows[0].tools
    own = generator(prompt=bot, user="Mine.", settings={"temperature": 0.9})
    assert shown(own, {"message": "hi"})[-1] == ("user", "Mine.")
    with pytest.raises(InvalidInput, match="generator 'g': a prompt with messages="):
        generator(name="g", prompt=prompt(messages=[user("x")]))


# History.


def talked(app: App, turns: int = 5, session: str = "s") -> None:
    async def talk():
        chat = generator(name="chat", model=echo(), user=lambda i: i)
        for number in range(1, turns + 1):
            await chat.run(f"q{number}", app=app, session=session)

    run(talk())


def turn(*numbers: int) -> list[str]:
    return [text for n in numbers for text in (f"q{n}", f"re: q{n}")]


@pytest.mark.parametrize(
    ("history", "past"),
    [
        (None, []),
        (False, []),
        (True, turn(1, 2, 3, 4, 5)),
        (2, turn(4, 5)),
        (Turns(2), turn(4, 5)),
        (Turns(0), []),
        (Turns(-1), []),
        (Turns(99), turn(1, 2, 3, 4, 5)),
        (Tokens(16), turn(4, 5)),
        (Tokens(15), turn(5)),
        (Tokens(0), turn(5)),
        (lambda i, ctx: ctx.history.recent(3), ["re: q4", "q5", "re: q5"]),
        (lambda: Turns(1), turn(5)),
        (lambda: None, []),
        (lambda: True, turn(1, 2, 3, 4, 5)),
        (lambda: [user("made up"), {"role": "assistant", "content": "up"}], ["made up", "up"]),
    ],
)
def test_history_is_whole_turns_within_its_limit(history, past):
    app = memory()
    talked(app)
    made = generator(history=history, user="now")
    assert [text for _, text in shown(made, app=app, session="s")] == [*past, "now"]


def test_tool_traffic_rides_along_in_its_turn():
    app = memory()
    model = ScriptedModel([call("lookup", key="a"), "It is found a."])

    async def talk():
        chat = generator(model=model, tools=[lookup], user=lambda i: i)
        await chat.run("where is a?", app=app, session="s")
        return await generator(history=1, user="and?").window(model=echo(), app=app, session="s")

    window = run(talk())
    assert [m.role for m in window.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert window.messages[2].text == "found a"


def test_a_turn_that_failed_is_shown_until_one_succeeds():
    app = memory()
    model = ScriptedModel([OSError("down"), "Here.", "Again."])
    chat = generator(model=model, history=1, user=lambda i: i)

    async def talk():
        with pytest.raises(OSError, match="down"):
            await chat.run("question", app=app, session="s")
        await chat.run("try again", app=app, session="s")
        await chat.run("more", app=app, session="s")

    run(talk())
    assert statuses(app, "s") == ["failed", "completed", "completed"]
    assert texts(model.windows[1])[0] == "question"
    assert texts(model.windows[1])[-1] == "try again"
    assert texts(model.windows[2]) == ["try again", "Here.", "more"]


def test_turns_that_wait_behind_this_one_are_not_its_past():
    app = memory()
    model = ScriptedModel(lambda window: asyncio.sleep(0.02, f"re: {window.messages[-1].text}"))
    chat = generator(model=model, history=True, user=lambda i: i)

    async def talk():
        return await asyncio.gather(*(chat.run(f"q{n}", app=app, session="s") for n in (1, 2, 3)))

    assert texts([reply.message for reply in run(talk())]) == ["re: q1", "re: q2", "re: q3"]
    assert [texts(window) for window in model.windows] == [
        ["q1"],
        ["q1", "re: q1", "q2"],
        ["q1", "re: q1", "q2", "re: q2", "q3"],
    ]


@pytest.mark.parametrize("wrong", ["all", 1.5, {"limit": 8}, [user("x")]])
def test_a_history_that_is_none_is_refused(wrong):
    with pytest.raises(InvalidType, match="generator 'g': history must be True, a number of turns"):
        generator(name="g", history=wrong)


# Each model step.


def test_prompt_and_context_are_resolved_at_each_step_history_and_user_once():
    asked: list[str] = []

    def tell(name):
        def resolver():
            asked.append(name)
            return f"{name} {asked.count(name)}"

        return resolver

    model = ScriptedModel([call("lookup", "c1", key="a"), call("lookup", "c2", key="b"), "Done."])
    chat = generator(
        model=model,
        prompt=tell("prompt"),
        context=[{"tag": tell("tag")}, tell("text")],
        history=lambda: [user(tell("history")())],
        user=tell("user"),
        tools=[lookup],
    )
    run(chat.run())
    assert [texts(window)[:4] for window in model.windows] == [
        [f"prompt {n}\n\n<tag>\ntag {n}\n</tag>", f"text {n}", "history 1", "user 1"]
        for n in (1, 2, 3)
    ]
    assert texts(model.windows[2])[4:] == ["", "found a", "", "found b"]


def test_what_a_tool_changed_is_in_the_context_of_the_next_step():
    found: list[str] = []

    def search(words: str) -> str:
        """Search."""
        found.append(words)
        return "see documents"

    model = ScriptedModel([call("search", words="lamps"), "Found."])
    run(
        generator(model=model, context={"documents": lambda: found}, tools=[search], user="?").run()
    )
    assert texts(model.windows[1])[0] == "<documents>\nlamps\n</documents>"


# Under pressure.


@settings(max_examples=150, deadline=None)
@given(
    budget=st.integers(0, 220),
    sizes=st.lists(st.integers(1, 25), max_size=6),
    tag=st.integers(0, 40),
    plain=st.lists(st.integers(1, 20), max_size=2),
)
def test_history_goes_first_in_whole_turns_then_context_and_never_prompt_or_user(
    budget, sizes, tag, plain
):
    app = memory()
    past = []
    for number, size in enumerate(sizes):
        turn = [f"q{number}" + "?" * size, f"a{number}" + "!" * size]
        app.session("s").append(user(turn[0]), assistant(turn[1]))
        past.append(turn)
    made = generator(
        prompt="PROMPT",
        context=[{"t": "x" * tag}, *("y" * size for size in plain)],
        history=True,
        user="USER",
        budget=budget,
    )
    window = run(made.window(app=app, session="s", model=echo()))
    found = texts(window)
    assert found[0].startswith("PROMPT")
    assert found[-1] == "USER"
    assert window.over_budget == (budget < 10)
    kept = [text for text in found if text[0] in "qa"]
    suffixes = [[text for turn in past[n:] for text in turn] for n in range(len(past) + 1)]
    assert kept in suffixes
    block = f"\n\n<t>\n{'x' * tag}\n</t>" if tag else ""
    context = [f"PROMPT{block}", *("y" * size for size in plain)]
    if kept:  # then nothing of the context went
        assert [text for text in found if text[0] not in "qaU"] == context
    if kept != suffixes[0]:  # only what was needed went
        more = suffixes[suffixes.index(kept) - 1]
        whole = sum(map(len, [*context, *more, "USER"]))
        assert whole > budget or [text for text in found if text[0] not in "qaU"] != context


def test_a_context_keeps_its_own_priority_and_a_pinned_one_stays():
    made = generator(
        context=[
            context(id="pinned", system="Be brief & kind.", priority=100),
            "y" * 20,
            context(id="low", system="z" * 20, priority=20),
        ],
        user="USER",
        budget=45,
    )
    window = run(made.window(app=memory(), model=echo()))
    assert texts(window) == ["Be brief & kind.", "y" * 20, "USER"]
    assert [row.name for row in window.report.slots if row.status == "dropped"] == ["context:low"]


def test_what_cannot_be_dropped_and_does_not_fit_is_never_sent():
    model = echo()
    made = generator(model=model, prompt="P" * 50, user="U" * 50, budget=80)
    with pytest.raises(BudgetExceeded):
        run(made.run(app=memory()))
    assert model.windows == []
    assert run(made.window(app=memory())).over_budget


def test_the_budget_is_the_generators_else_the_apps_else_the_models():
    def budget(made, **given):
        return run(made.window(**given)).report.budget

    small = echo(budget=1_000)
    assert budget(generator(model=small)) == 1_000
    assert budget(generator(model=echo())) == 128_000
    assert budget(generator(model=small), app=App("memory:", budget=500)) == 500
    assert budget(generator(model=small, budget=Budget(300)), app=App("memory:", budget=500)) == 300


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


def test_without_an_app_a_session_is_remembered_in_memory_and_a_nameless_one_is_new():
    model = echo()
    chat = generator(model=model, history=True, user=lambda i: i)

    async def talk():
        for text, session in (("a", "s"), ("b", "s"), ("c", None), ("d", None)):
            await chat.run(text, session=session)

    run(talk())
    assert [texts(window) for window in model.windows] == [["a"], ["a", "re: a", "b"], ["c"], ["d"]]


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


def test_a_run_that_was_interrupted_goes_on_and_is_shown_once():
    model = ScriptedModel(["Done."])
    chat = generator(model=model, tools=[lookup], history=True, user="go")

    async def again():
        app = memory()
        work = await queue(app, app.session("s"), draft_of(user("go")))
        (begun,) = await work.append(Draft("run", payload={"generator": chat.name}))
        for message in (assistant(tool_calls=[call("lookup", key="a")]), tool("c1", "found a")):
            await work.append(draft_of(message, run=begun.position))
        resumed = Work(app, work.session, work.turn, work.owner)
        resumed.resume(await resumed.items())
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


# Input and output.


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
    assert app.store.session("s") is None

    @dataclass
    class Same:
        message: str

    for right in ({"message": "hi"}, Ask(message="hi"), Same("hi")):
        assert shown(chat, right) == [("user", "hi")]


class Answer(BaseModel):
    city: str
    nights: int


def test_an_answer_of_a_given_form_is_read():
    model = ScriptedModel(['Here:\n```json\n{"city": "Bonn", "nights": 2}\n```'])
    reply = run(generator(model=model, output=Answer, user="?").run())
    assert reply.output == Answer(city="Bonn", nights=2)
    assert model.settings[0]["output_name"] == "Answer"


def test_a_wrong_answer_is_repaired_once_with_all_that_led_to_it():
    app = memory()
    model = ScriptedModel([call("lookup", key="a"), "Bonn", '{"city": "Bonn", "nights": 2}', "ok"])
    book = generator(model=model, output=Answer, tools=[lookup], user="book", history=True)
    reply = run(book.run(app=app, session="s"))
    assert reply.output == Answer(city="Bonn", nights=2)
    roles = [m.role for m in model.windows[2].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert texts(model.windows[2])[-1].startswith("Your answer is not a valid Answer: ")
    assert reply.usage.input == sum(window.tokens for window in model.windows)
    client = said(app.session("s").items.client())
    assert client == ["book", "", "found a", "Bonn", '{"city": "Bonn", "nights": 2}']
    assert statuses(app, "s") == ["completed"]
    other = generator(model=model, history=True)
    run(other.run(app=app, session="s"))
    assert [m.role for m in model.windows[3].messages] == [*roles, "assistant"]


def test_an_answer_that_stays_wrong_is_an_error_and_the_turn_failed():
    app = memory()
    model = ScriptedModel(["a", "b"])
    with pytest.raises(OutputInvalid, match="not a valid Answer"):
        run(generator(model=model, output=Answer, user="?").run(app=app, session="s"))
    assert statuses(app, "s") == ["failed"]


# Prompt files.

FILE = """---
name: support
model: openai/gpt-4o
temperature: 0.2
max_tokens: 100
---
<system>
You are {{ config.name }} of {{ input.message }}, {{ config.temperature }}.
</system>
"""
USER = "<user>About {{ input.topic }} in {{ ctx.session.id }}</user>\n"
CONTEXT = """<context>
{% if config.context.userDocs %}Documents: {{ config.context.user_docs }}{% endif %}
</context>
"""


@pytest.fixture
def write(tmp_path):
    def file(*parts: str) -> Any:
        path = tmp_path / "chat.md"
        path.write_text("".join(parts), encoding="utf-8")
        return prompt_file(path)

    return file


def test_a_prompt_file_is_a_prompt_and_the_block_follows_it(write):
    made = generator(prompt=write(FILE, USER), context={"user-docs": "a & b"}, input=Ask)
    assert (made.name, made.model) == ("support", "openai/gpt-4o")
    assert shown(made, {"message": "Fenster"}, session="s1") == [
        ("system", "You are support of Fenster, 0.2.\n\n<user-docs>\na &amp; b\n</user-docs>"),
        ("user", "About lamps in s1"),
    ]


def test_a_context_section_owns_the_block(write):
    made = generator(prompt=write(FILE, CONTEXT), context=[{"userDocs": ["a", "<b>"]}, "plain"])
    assert shown(made, {"message": "Fenster"}) == [
        (
            "system",
            "You are support of Fenster, 0.2.\n\n<context>\nDocuments: a\n&lt;b&gt;\n</context>",
        ),
        ("system", "plain"),
    ]
    empty = generator(prompt=write(FILE, CONTEXT), context={"other": "x"})
    assert shown(empty, {"message": "F"}) == [("system", "You are support of F, 0.2.")]


def test_a_template_sees_what_capabilities_gave_and_its_user_section_is_recorded(write):
    app = memory()
    model = echo()
    notes = capability("my-notes", functions=lambda ctx: {"title": "N", "count": 3})
    file = write("<system>{{ ctx.cap.my_notes.title }} {{ ctx.session.id }}</system>\n", USER)
    made = generator(model=model, prompt=file, uses=[notes])
    run(made.run({"topic": "t"}, app=app, session="s"))
    assert texts(model.windows[0]) == ["N s", "About t in s"]
    assert said(app.session("s").items.all()) == ["About t in s", "re: About t in s"]


def test_explicit_arguments_win_over_the_front_matter_and_user_over_its_section(write):
    model = echo()
    made = generator(
        name="mine",
        model=model,
        prompt=write(FILE, USER),
        user="My own.",
        settings={"temperature": 0.9},
    )
    run(made.run({"message": "F", "topic": "t"}))
    assert texts(model.windows[0]) == ["You are mine of F, 0.9.", "My own."]
    assert model.settings[0] == {"temperature": 0.9, "max_tokens": 100}


def test_the_block_of_a_prompt_file_goes_under_pressure_and_its_text_stays(write):
    file = write(
        "<system>PROMPT</system><context>{{ config.context.a }}</context>".replace("><c", ">\n<c")
    )
    made = generator(prompt=file, context={"a": "x" * 50}, user="U", budget=30)
    assert shown(made, app=memory()) == [("system", "PROMPT"), ("user", "U")]


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


def test_a_prebuilt_message_and_parts_pass_unchanged():
    given = Message("user", (Text("a"), Text("b")), name="Ann")
    window = run(generator(context=[system("s")], user=given).window(model=echo()))
    assert window.messages == (system("s"), given)


@pytest.mark.parametrize(("front", "marked"), [("caching: true", True), ("caching: false", False)])
def test_a_prompt_file_may_say_that_it_is_not_to_be_cached(write, front, marked):
    rules = "Never promise a refund before the order was found. " * 300
    file = write(f"---\n{front}\n---\n<system>{rules}</system>")
    chat = generator(prompt=file, model=ScriptedModel([], name="anthropic/claude-sonnet-4-5"))
    window = run(chat.window("Hello."))
    assert bool(window.breakpoints) is marked


def test_a_cached_context_of_a_prompt_is_marked_in_a_generator_too():
    rules = context(id="rules", system="Never promise a refund. " * 500, cache=1_000)
    model = ScriptedModel([], name="anthropic/claude-sonnet-4-5")
    chat = generator(prompt=prompt(system="You sell.", use=[rules]), user="Hello.", model=model)
    request = run(chat.window(None)).anthropic()
    assert "cache_control" in request["system"][-1]
