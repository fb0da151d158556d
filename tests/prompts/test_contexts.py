"""Contexts: their names, their nesting, and what cannot be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muntin import InvalidInput, context, match, prompt, when
from tests.prompts.conftest import Tenant, agrees, dropped, kept, look, text_of


def test_contexts_and_prompts_are_values_that_cannot_be_changed():
    with pytest.raises(AttributeError):
        setattr(context(system="x"), "priority", 1)  # noqa: B010
    with pytest.raises(AttributeError):
        setattr(prompt(system="x"), "system", "y")  # noqa: B010


def test_sources_are_spelled_by_id_or_by_place_with_skipped_entries_counted():
    shown = look(
        prompt(
            system="own",
            use=[None, context(system="a"), context(id="b", system="b"), context(system="c")],
        )
    )
    assert kept(shown) == ["prompt", "context[1]", "context:b", "context[3]"]


def test_a_nested_anonymous_source_is_prefixed_by_its_parent():
    named = context(id="owner", system="o", use=[False, context(system="n")])
    nameless = context(system="p", use=[context(system="m"), context(id="named", system="q")])
    first, _, second, third, _ = kept(look(prompt(use=[named, nameless])))
    assert first.startswith("context:owner")
    assert first.endswith("context[1]")
    assert second.startswith("context[1]")
    assert second.endswith("context[0]")
    assert third == "context:named"


def test_two_different_contexts_with_one_id_in_a_prompt_are_an_error():
    one, two = context(id="same", system="1"), context(id="same", system="2")
    with pytest.raises(InvalidInput, match="same"):
        prompt(use=[one, two])
    with pytest.raises(InvalidInput, match="same"):
        prompt(use=[one, context(system="x", use=[two])])
    with pytest.raises(InvalidInput, match="same"):
        prompt(use=[one, when(lambda: False, two)])
    with pytest.raises(InvalidInput, match="same"):
        prompt(use=[one, match(on=lambda: "a", cases={"a": [two]})])


def test_an_async_predicate_is_refused_where_it_is_defined():
    with pytest.raises(InvalidInput):
        context(system="x", when=agrees)
    with pytest.raises(InvalidInput):
        when(agrees, context(system="x"))
    with pytest.raises(InvalidInput):
        match(on=agrees, cases={1: context(system="x")})


@pytest.mark.parametrize("predicate", [True, "yes", 1, context(system="x")])
def test_a_predicate_that_is_no_function_is_an_error(predicate):
    with pytest.raises(InvalidInput):
        context(system="x", when=predicate)
    with pytest.raises(InvalidInput):
        when(predicate, context(system="x"))


@pytest.mark.parametrize("thing", ["x", None, 1])
def test_when_takes_a_context(thing):
    with pytest.raises(InvalidInput):
        when(lambda: True, thing)


@pytest.mark.parametrize("cases", [{"a": "text"}, {"a": ["text"]}, ["a"], {"a": 1}])
def test_the_cases_of_a_match_are_contexts_or_lists_of_them(cases):
    with pytest.raises(InvalidInput):
        match(on=lambda: "a", cases=cases)


def test_the_default_priority_is_fifty():
    p = prompt(
        use=[
            context(id="above", priority=51, system="a" * 10),
            context(id="default", system="d" * 10),
            context(id="below", priority=49, system="b" * 10),
        ]
    )
    assert dropped(look(p, token_budget=5)) == ["context:below", "context:default", "context:above"]


@pytest.mark.parametrize("priority", ["high", None, float("nan"), [1]])
def test_a_priority_that_is_no_number_is_an_error(priority):
    with pytest.raises(InvalidInput, match="priority"):
        context(id="x", system="x", priority=priority)


@pytest.mark.parametrize("model", [dict, "Tenant", Tenant(org="o"), 3])
def test_an_input_that_is_no_pydantic_model_is_an_error(model):
    with pytest.raises(InvalidInput):
        context(system="x", input=model)
    with pytest.raises(InvalidInput):
        prompt(system="x", input=model)


@pytest.mark.parametrize("entry", ["x", True, 1, lambda: None, ["x"]])
def test_what_is_no_context_cannot_be_used(entry):
    with pytest.raises(InvalidInput):
        prompt(use=[entry])
    with pytest.raises(InvalidInput):
        context(system="x", use=[entry])


def test_use_takes_a_list():
    with pytest.raises(InvalidInput):
        prompt(use=context(system="x"))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        prompt(use="x")


def chain(length: int):
    link = context(system="0")
    for number in range(1, length):
        link = context(system=str(number), use=[link])
    return link


def test_use_may_be_nested_thirty_two_deep():
    assert text_of(chain(32)).startswith("own\n\n0\n\n1")


@pytest.mark.parametrize("depth", [34, 100, 5_000])
def test_use_nested_deeper_than_thirty_two_is_an_error(depth):
    with pytest.raises(InvalidInput, match="32"):
        prompt(use=[chain(depth)])


def test_a_nest_that_doubles_at_every_level_is_walked_once():
    link = context(system="0")
    for number in range(1, 31):
        link = context(system=str(number), use=[link, link])
    assert text_of(link).startswith("own\n\n0\n\n1\n\n2")


@pytest.mark.parametrize("wrong", ["", 3, ["x"]])
def test_an_id_is_a_text(wrong):
    with pytest.raises(InvalidInput, match="id"):
        context(id=wrong, system="x")


def test_conditions_do_not_count_as_nested_contexts_but_have_a_limit_of_their_own():
    inner: Any = context(id="0", system="0")
    for number in range(1, 20):
        inner = context(id=str(number), system=str(number), use=[when(lambda: True, inner)])
    assert len(kept(look(prompt(use=[inner])))) == 20

    def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
        use: Any = context(id="x", system="x")
        for _ in range(depth):
            use = wrap(use)
        return use

    for wrap in (
        lambda use: when(lambda: True, use),
        lambda use: match(on=lambda: 1, cases={1: use}),
    ):
        assert kept(look(prompt(use=[nested(32, wrap)]))) == ["context:x"]
        with pytest.raises(InvalidInput, match="nested deeper than 32"):
            nested(33, wrap)
