"""Prompts: texts, messages and tools put together."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import InvalidInput, context, prompt, system, user
from muntin.errors import InvalidType
from tests.prompts.conftest import Tenant, dropped, look, say, schema, text_of

# Composition


def test_own_text_stands_first_then_contexts_in_use_order_joined_by_one_blank_line():
    low = context(id="low", priority=1, system="low")
    high = context(id="high", priority=99, system="high")
    assert text_of(low, high) == "own\n\nlow\n\nhigh"
    assert text_of(high, low) == "own\n\nhigh\n\nlow"


def test_a_nested_use_stands_before_its_owner():
    deep = context(system="deep")
    inner = context(system="inner", use=[deep])
    owner = context(system="owner", use=[inner, context(system="second")])
    assert text_of(owner, context(system="last")).split("\n\n") == [
        "own",
        "deep",
        "inner",
        "second",
        "owner",
        "last",
    ]


@pytest.mark.parametrize("empty", ["", lambda: "", lambda: None])
def test_empties_leave_no_trace(empty):
    assert text_of(context(system=empty), context(system="x"), context(system=empty)) == "own\n\nx"


@pytest.mark.parametrize("own", [None, "", lambda: "", lambda: None])
def test_a_prompt_without_text_of_its_own_begins_with_its_first_context(own):
    assert text_of(context(system="x"), context(system="y"), own=own) == "x\n\ny"


def test_a_prompt_of_nothing_has_an_empty_system_text_and_no_system_message():
    resolved = prompt(prompt="hi").resolve_sync()
    assert resolved.system == ""
    assert list(resolved.window.messages) == [user("hi")]


def test_an_empty_context_is_not_dropped_under_pressure():
    shown = look(
        prompt(use=[context(id="e", system=""), context(id="x", system="x" * 9)]), token_budget=3
    )
    assert dropped(shown) == ["context:x"]


@pytest.mark.parametrize("nothing", [False, None])
def test_false_and_none_entries_are_skipped(nothing):
    inner = context(system="inner", use=[nothing])
    assert text_of(nothing, inner, nothing) == "own\n\ninner"


def test_the_same_context_reached_twice_contributes_once_at_its_first_place():
    calls: list[Any] = []
    shared = context(id="s", input=Tenant, system=lambda: say(calls, 1, "shared"))
    owner = context(system="owner", use=[shared])
    assert text_of(owner, shared, own="own", input={"org": "o"}) == "own\n\nshared\n\nowner"
    assert text_of(shared, owner, input={"org": "o"}) == "own\n\nshared\n\nowner"
    assert len(calls) == 2


def test_an_anonymous_context_used_twice_contributes_once():
    one = context(system="one")
    assert text_of(one, one) == "own\n\none"


def test_a_list_changed_after_the_definition_changes_nothing():
    uses = [context(system="x")]
    p = prompt(use=uses, system="own")
    uses.append(context(system="y"))
    assert look(p).system.text == "own\n\nx"


def test_messages_and_settings_changed_after_the_definition_change_nothing():
    talk, settings = [user("a")], {"k": 1}
    p = prompt(messages=talk, adapt={"*": {"settings": settings}})
    talk.append(user("b"))
    settings["k"] = 2
    resolved = p.resolve_sync()
    assert [message.text for message in resolved.messages] == ["a"]
    assert resolved.settings == {"k": 1}


def test_the_window_has_the_system_message_then_the_prompt():
    resolved = prompt(system="own", use=[context(system="x")], prompt="ask").resolve_sync()
    assert resolved.system == "own\n\nx"
    assert resolved.prompt == "ask"
    assert list(resolved.window.messages) == [system("own\n\nx"), user("ask")]
    assert list(resolved.messages) == list(resolved.window.messages)


def test_messages_stand_after_the_contexts():
    talk = [user("hi"), {"role": "assistant", "content": "hello"}, user("bye")]
    resolved = prompt(messages=talk, use=[context(system="x")]).resolve_sync()
    assert [m.text for m in resolved.window.messages] == ["x", "hi", "hello", "bye"]
    assert resolved.system == "x"


@pytest.mark.parametrize("other", [{"system": "s"}, {"prompt": "p"}])
def test_messages_exclude_system_and_prompt(other):
    with pytest.raises(InvalidInput, match="messages"):
        prompt(messages=[user("hi")], **other)


def search() -> None:
    """Stand for a tool given as a function."""


class Named:
    __name__ = "named"

    def __call__(self) -> None:
        """Stand for a tool given as an object."""


# Tools


@pytest.mark.parametrize(
    ("given_tool", "name"),
    [
        (schema("a"), "a"),
        (schema("b", wrapped=False), "b"),
        (search, "search"),
        (Named(), "named"),
    ],
)
def test_a_tool_is_known_by_its_name(given_tool, name):
    assert list(look(prompt(tools=[given_tool])).tools) == [name]
    assert list(look(prompt(use=[context(system="x", tools=[given_tool])])).tools) == [name]
    assert list(look(prompt(system="x"), tools=[given_tool]).tools) == [name]


@pytest.mark.parametrize("nameless", [{}, {"function": {}}, 3, {"name": 3}, {"name": ""}])
def test_a_tool_without_a_name_is_an_error(nameless):
    with pytest.raises(InvalidInput):
        look(prompt(tools=[nameless]))
    with pytest.raises(InvalidInput):
        look(prompt(use=[context(system="x", tools=[nameless])]))


def test_tools_of_prompt_and_contexts_come_together():
    inner = context(system="i", tools=[schema("inner")])
    p = prompt(
        tools=[schema("own")],
        use=[context(system="x", tools=[schema("x")], use=[inner])],
    )
    assert set(look(p, tools=[schema("call")]).tools) == {"own", "x", "inner", "call"}


def test_tools_of_a_dropped_context_survive_and_those_of_an_excluded_one_do_not_exist():
    p = prompt(
        use=[
            context(id="d", system="d" * 9, tools=[schema("dropped")]),
            context(id="e", system="e", tools=[schema("excluded")], when=lambda: False),
            context(id="n", system="", tools=[schema("empty")]),
        ]
    )
    shown = look(p, token_budget=1)
    assert dropped(shown) == ["context:d"]
    assert set(shown.tools) == {"dropped", "empty"}


def test_a_tool_name_contributed_twice_is_an_error_naming_both():
    one = context(id="one", system="1", tools=[schema("dup")])
    two = context(id="two", system="2", tools=[schema("dup", wrapped=False)])
    with pytest.raises(InvalidInput, match="dup") as caught:
        look(prompt(use=[one, two]))
    assert "context:one" in str(caught.value)
    assert "context:two" in str(caught.value)
    with pytest.raises(InvalidInput, match="dup") as caught:
        look(prompt(use=[one], tools=[schema("dup")]))
    assert "context:one" in str(caught.value)
    assert "prompt" in str(caught.value)
    with pytest.raises(InvalidInput, match="dup"):
        look(prompt(tools=[schema("dup"), schema("dup")]))


def test_only_what_is_there_can_collide():
    p = prompt(
        input=Tenant,
        use=[
            context(id="a", system="a", tools=[schema("t")], when=lambda input: input.org == "a"),
            context(id="b", system="b", tools=[schema("t")], when=lambda input: input.org != "a"),
        ],
    )
    assert list(look(p, {"org": "a"}).tools) == ["t"]
    assert list(look(p, {"org": "b"}).tools) == ["t"]


def test_tools_passed_at_the_call_win():
    mine = {"name": "t", "description": "mine", "parameters": {}}
    p = prompt(tools=[schema("t"), schema("u")])
    resolved = p.resolve_sync(tools=[mine])
    assert len(resolved.tools) == 2
    assert mine in list(resolved.tools)
    assert schema("t") not in list(resolved.tools)
    assert set(p.inspect_sync(tools=[mine]).tools) == {"t", "u"}


def test_a_context_used_twice_does_not_collide_with_itself():
    shared = context(system="s", tools=[schema("t")])
    p = prompt(use=[shared, context(system="x", use=[shared])])
    assert list(look(p).tools) == ["t"]


# What is wrong is said early


@pytest.mark.parametrize(
    ("define", "named"),
    [
        (lambda: prompt(output=5), "prompt: output must be a Pydantic model class, not 5"),  # type: ignore[arg-type]
        (lambda: prompt(id="p", input=5), "prompt 'p': input must be a Pydantic"),  # type: ignore[arg-type]
        (lambda: context(system="", description=5), "context: description must be a str"),  # type: ignore[arg-type]
        (lambda: prompt(messages=user("x")), "prompt: messages must be a list or a function"),
        (lambda: prompt(messages="x"), "prompt: messages must be a list or a function"),
        (lambda: prompt().resolve_sync(provider=["a"]), "provider must be a str"),  # type: ignore[arg-type]
        (lambda: prompt().resolve_sync(provider=5), "provider must be a str"),  # type: ignore[arg-type]
        (lambda: prompt().inspect_sync(model_id=5), "model_id must be a str"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_the_wrong_type_is_named(define, named):
    with pytest.raises(InvalidType, match=named):
        define()


@pytest.mark.parametrize("said", ["x", user("x"), {"role": "user", "content": "x"}, 5])
def test_a_function_for_messages_must_return_a_list(said):
    with pytest.raises(InvalidType, match="the messages of the prompt must be a list"):
        prompt(messages=lambda: said).resolve_sync()


def test_two_tools_of_one_name_in_one_list_are_an_error_naming_both_places():
    twice = [schema("dup"), schema("other"), schema("dup", wrapped=False)]
    named = r"tools\[0\] and tools\[2\] both have the name 'dup'"
    for define in (
        lambda: prompt(tools=twice),
        lambda: context(system="x", tools=twice),
        lambda: prompt().resolve_sync(tools=twice),
    ):
        with pytest.raises(InvalidInput, match=named):
            define()


def test_a_function_that_cannot_be_a_tool_is_an_error_at_definition():
    def search(*words: str) -> None: ...

    for define in (lambda: prompt(tools=[search]), lambda: context(system="x", tools=[search])):
        with pytest.raises(InvalidInput, match="tool 'search': parameter 'words'"):
            define()
