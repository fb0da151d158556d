"""What `context=` may hold, and what it becomes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from muntin import InvalidInput, capability, context, generator, match, prompt, user, when
from muntin.testing import ScriptedModel
from tests.runtime.conftest import run, texts
from tests.runtime.generators.conftest import Ask, echo, lookup, shown


@dataclass
class Notes:
    first: str
    count: int


# Context.


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


class Topic(BaseModel):
    topic: str


rules = context(id="rules", system="Be brief & kind.", priority=100, tools=[lookup])


about = context(
    id="about", input=Topic, system=lambda i, ctx: f"{i.topic} in {ctx.session.id}", priority=20
)


# Contexts and prompts of `muntin.prompts`.


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
    assert [each["function"]["name"] for each in window.tools] == ["lookup", "load_result"]
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


class Answer(BaseModel):
    city: str
    nights: int
