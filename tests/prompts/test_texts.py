"""Texts: the conditions under which a context is there, and what resolvers give."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from muntin import InvalidInput, context, match, prompt, when
from tests.prompts.conftest import (
    Broken,
    Research,
    Tenant,
    agrees,
    dropped,
    excluded,
    kept,
    later,
    look,
    never,
    nothing_left_behind,
    say,
    schema,
    text_of,
)


def test_a_context_with_a_false_condition_is_excluded_and_never_resolved():
    out = context(
        id="out",
        when=lambda: False,
        system=never,
        use=[context(id="nested", system=never, tools=[schema("n")])],
        tools=[schema("t")],
    )
    shown = look(prompt(system="own", use=[out]))
    assert shown.system.text == "own"
    assert "context:out" in excluded(shown)
    assert list(shown.tools) == []
    assert kept(shown) == ["prompt"]
    assert dropped(shown) == []


@pytest.mark.parametrize("answer", [True, 1, "yes", [0]])
def test_a_true_condition_includes(answer):
    assert text_of(context(when=lambda: answer, system="x")) == "own\n\nx"


@pytest.mark.parametrize("answer", [False, 0, "", None, []])
def test_a_false_condition_excludes(answer):
    assert text_of(when(lambda: answer, context(system="x"))) == "own"


def test_the_wrappers_predicate_comes_before_the_contexts_own():
    asked = []

    def wrapper():
        asked.append("wrapper")
        return True

    def own():
        asked.append("own")
        return True

    look(prompt(use=[when(wrapper, context(system="x", when=own))]))
    assert asked == ["wrapper", "own"]
    assert text_of(when(lambda: False, context(system="x", when=never))) == "own"


def test_the_reason_says_which_condition_failed():
    by_wrapper = when(lambda: False, context(id="w", system="x", when=lambda: True))
    by_own = when(lambda: True, context(id="o", system="x", when=lambda: False))
    reasons = excluded(look(prompt(use=[by_wrapper, by_own])))
    assert set(reasons) == {"context:w", "context:o"}
    assert reasons["context:w"] != reasons["context:o"]


def test_a_context_excluded_on_one_path_and_taken_on_another_is_there_and_not_listed():
    shared = context(id="s", system="s")
    for uses in ([when(lambda: False, shared), shared], [shared, when(lambda: False, shared)]):
        shown = look(prompt(use=uses))
        assert shown.system.text == "s"
        assert excluded(shown) == {}


def test_a_context_excluded_on_two_paths_is_listed_once():
    out = context(id="o", system=never, when=lambda: False)
    shown = look(prompt(use=[out, context(system="x", use=[out])]))
    assert [each.source for each in shown.excluded_contexts] == ["context:o"]


def test_match_includes_the_case_that_its_value_chooses():
    cases: dict[Any, Any] = {
        "a": context(id="a", system="a"),
        "b": [context(id="b1", system="b1"), None, context(id="b2", system="b2")],
    }
    p = prompt(
        input=Tenant,
        system="own",
        use=[match(on=lambda input: input.org, cases=cases, default=context(id="d", system="d"))],
    )
    assert look(p, {"org": "a"}).system.text == "own\n\na"
    assert look(p, {"org": "b"}).system.text == "own\n\nb1\n\nb2"
    assert look(p, {"org": "z"}).system.text == "own\n\nd"


def test_cases_not_chosen_are_neither_resolved_nor_listed():
    other = context(id="other", system=never, tools=[schema("t")])
    shown = look(prompt(use=[match(on=lambda: 1, cases={1: context(system="x"), 2: other})]))
    assert shown.system.text == "x"
    assert excluded(shown) == {}
    assert list(shown.tools) == []


def test_no_case_and_no_default_is_excluded_as_the_match_quoting_the_value():
    shown = look(prompt(use=[None, match(on=lambda: "violet", cases={"red": context(system="r")})]))
    assert list(excluded(shown)) == ["match[1]"]
    assert "'violet'" in excluded(shown)["match[1]"]


def test_conditions_hold_inside_a_case():
    inner = [
        when(lambda: False, context(id="w", system=never)),
        context(id="o", system=never, when=lambda: False),
        context(id="y", system="y"),
    ]
    shown = look(prompt(use=[match(on=lambda: 1, cases={1: inner})]))
    assert shown.system.text == "y"
    assert set(excluded(shown)) == {"context:w", "context:o"}


def test_conditions_hold_inside_a_nested_use():
    owner = context(
        id="owner",
        system="owner",
        use=[
            when(lambda: False, context(id="n", system=never)),
            match(on=lambda: 1, cases={1: context(system="m")}),
        ],
    )
    shown = look(prompt(use=[owner]))
    assert shown.system.text == "m\n\nowner"
    assert list(excluded(shown)) == ["context:n"]


class _Agreeable:
    async def __call__(self) -> bool:
        return True


@pytest.mark.parametrize("predicate", [agrees, lambda: agrees(), _Agreeable()])
@pytest.mark.parametrize(
    "make",
    [
        lambda f: context(id="x", system=never, when=f),
        lambda f: when(f, context(id="x", system=never)),
        lambda f: match(on=f, cases={True: context(id="x", system=never)}),
    ],
)
def test_an_async_predicate_is_a_type_error_and_leaves_no_coroutine_behind(make, predicate):
    with nothing_left_behind(), pytest.raises(TypeError):
        look(prompt(use=[make(predicate)]))


def test_a_conditional_context_whose_fields_are_missing_is_excluded():
    research = context(
        id="r",
        input=Research,
        when=lambda input: bool(input.synthesis),
        system=lambda input: f"## Research\n{input.synthesis}",
    )
    p = prompt(use=[research], system="own")
    assert look(p, {"synthesis": "s"}).system.text == "own\n\n## Research\ns"
    assert "condition" in excluded(look(p, {"synthesis": ""}))["context:r"]
    nothings: list[Any] = [None, {}]
    for nothing in nothings:
        shown = look(p, nothing)
        assert shown.system.text == "own"
        assert "input_missing" in excluded(shown)["context:r"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda c: when(lambda: True, c),
        lambda c: match(on=lambda: 1, cases={1: c}),
        lambda c: match(on=lambda: 1, cases={1: [c]}),
        lambda c: match(on=lambda: 1, cases={2: context(system=never)}, default=c),
        lambda c: context(id="outer", system="", use=[c], when=lambda: True),
    ],
)
def test_every_condition_makes_fields_optional(wrap):
    p = prompt(use=[wrap(context(id="r", input=Research, system=lambda input: input.synthesis))])
    assert look(p, {"synthesis": "s"}).system.text == "s"
    shown = look(p)
    assert shown.system.text == ""
    assert "input_missing" in excluded(shown)["context:r"]


def test_a_wrappers_predicate_sees_missing_fields_of_conditional_contexts_as_none():
    c = when(lambda input: input.synthesis is not None, context(input=Research, system="x"))
    assert text_of(c) == "own"
    assert text_of(c, input={"synthesis": "s"}) == "own\n\nx"


def test_a_default_is_not_missing():
    class Tone(BaseModel):
        tone: str = "calm"

    c = context(input=Tone, when=lambda input: True, system=lambda input: input.tone)
    assert text_of(c) == "own\n\ncalm"


def test_a_value_of_the_wrong_type_is_an_error_even_for_a_conditional_context():
    p = prompt(use=[context(input=Research, when=lambda input: True, system="x")])
    with pytest.raises(InvalidInput, match="synthesis"):
        look(p, {"synthesis": ["no"]})


class Voice:
    def __init__(self, text: str) -> None:
        self.text = text

    def plain(self) -> str:
        return self.text

    def __call__(self, input: object) -> str:
        return f"{self.text} {type(input).__name__}"


def _with_word(word: str, input: Tenant) -> str:
    return f"{word} {input.org}"


async def _slow(input: Tenant) -> str:
    await asyncio.sleep(0)
    return f"slow {input.org}"


@pytest.mark.parametrize(
    ("resolver", "expected"),
    [
        (lambda: "none", "none"),
        (lambda input: input.org, "o"),
        (lambda anything: anything.org, "o"),
        (lambda input, ctx: f"{input.org} {ctx}", "o None"),
        (lambda input, extra="e": f"{input.org} {extra}", "o e"),
        (lambda extra="e": extra, "e"),
        (lambda *args, **kwargs: f"{args} {kwargs}", "() {}"),
        (lambda input, *, mark="!": input.org + mark, "o!"),
        (Voice("bound").plain, "bound"),
        (Voice("called"), "called Tenant"),
        (functools.partial(_with_word, "partial"), "partial o"),
        (_slow, "slow o"),
        (lambda input: _slow(input), "slow o"),
    ],
)
def test_a_resolver_takes_nothing_the_input_or_input_and_ctx(resolver, expected):
    assert (
        text_of(context(input=Tenant, system=resolver), input={"org": "o"}) == f"own\n\n{expected}"
    )


def test_more_than_two_positional_parameters_are_an_error_at_definition():
    def greedy(a, b, c):
        return "x"

    for define in (
        lambda: context(system=greedy),
        lambda: context(system="x", when=greedy),
        lambda: when(greedy, context(system="x")),
        lambda: match(on=greedy, cases={1: context(system="x")}),
        lambda: prompt(system=greedy),
        lambda: prompt(prompt=greedy),
        lambda: prompt(messages=greedy),
    ):
        with pytest.raises(InvalidInput):
            define()


def test_each_resolver_is_called_once():
    calls: list[Any] = []
    p = prompt(
        system=lambda: say(calls, "own", "own"),
        prompt=lambda: say(calls, "prompt", "prompt"),
        use=[context(system=lambda: say(calls, "context", "x" * 99))],
    )
    look(p, token_budget=10)
    assert sorted(calls) == ["context", "own", "prompt"]


@pytest.mark.parametrize("answer", [3, ["x"], {"a": 1}, b"x"])
def test_a_resolver_that_returns_no_text_is_an_error_naming_the_context(answer):
    with pytest.raises(InvalidInput, match="odd"):
        text_of(context(id="odd", system=lambda: answer))


@pytest.mark.parametrize("wrong", [3, ["x"], b"x"])
def test_a_system_text_that_is_neither_text_nor_function_is_an_error(wrong):
    with pytest.raises(InvalidInput):
        context(system=wrong)
    with pytest.raises(InvalidInput):
        prompt(system=wrong)


def _broken(*_: object) -> Any:
    raise Broken(3, "why")


async def _broken_later() -> str:
    await asyncio.sleep(0)
    raise Broken(3, "why")


def _note(p, input=None) -> str:
    with pytest.raises(Broken) as caught:
        look(p, input)
    assert type(caught.value) is Broken
    assert caught.value.args == (3, "why")
    return "\n".join(caught.value.__notes__)


def test_what_a_resolver_raises_is_unchanged_with_a_note_naming_context_and_phase():
    for resolver in (_broken, _broken_later, lambda: _broken()):
        assert "context:x" in _note(prompt(use=[context(id="x", system=resolver)]))
    assert "prompt" in _note(prompt(system=_broken))
    assert "prompt" in _note(prompt(prompt=_broken))


def test_what_a_predicate_raises_is_unchanged_with_a_note_naming_context_and_phase():
    own = _note(prompt(use=[context(id="x", system="x", when=_broken)]))
    wrapper = _note(prompt(use=[when(_broken, context(id="x", system="x"))]))
    choice = _note(prompt(use=[None, match(on=_broken, cases={1: context(system="x")})]))
    resolver = _note(prompt(use=[context(id="x", system=_broken)]))
    assert "context:x" in own
    assert "context:x" in wrapper
    assert "match[1]" in choice
    assert len({own, wrapper, choice, resolver}) == 4


def test_one_who_raises_leaves_no_coroutine_of_another_behind():
    others = [
        context(id="later", system=later),
        context(id="cached", system=later, cache=True),
    ]
    for broken in (context(id="x", system=_broken), context(id="x", system=_broken_later)):
        with nothing_left_behind():
            assert "context:x" in _note(prompt(system=later, use=[*others, broken]))


def test_a_validation_error_of_a_resolver_is_its_own():
    p = prompt(use=[context(id="x", system=lambda: Tenant.model_validate({}).org)])
    with pytest.raises(ValidationError) as caught:
        look(p)
    assert "context:x" in "\n".join(caught.value.__notes__)
