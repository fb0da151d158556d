"""Prompts made of contexts: composition, conditions, budget, input, tools and settings."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from muntin import (
    BudgetExceeded,
    InvalidInput,
    MuntinError,
    config,
    context,
    match,
    prompt,
    system,
    user,
    when,
)
from muntin.core.counting.counter import Counter
from muntin.errors import InvalidType
from muntin.prompts.inputs import missing_fields, validate


class Research(BaseModel):
    synthesis: str


class Tenant(BaseModel):
    org: str


def look(p, input=None, **options):
    """Inspect with one token a character, to keep the sums easy."""
    return p.inspect_sync(input, **{"tokenizer": len, **options})


def kept(inspection):
    return [part.source for part in inspection.system.parts if part.status == "kept"]


def dropped(inspection):
    return [each.source for each in sorted(inspection.dropped_contexts, key=lambda d: d.rank)]


def excluded(inspection):
    return {each.source: each.reason for each in inspection.excluded_contexts}


def text_of(*contexts, own="own", input=None, **options):
    return look(prompt(use=contexts, system=own), input, **options).system.text


def schema(name, wrapped=True):
    function = {"name": name, "description": "d", "parameters": {"type": "object"}}
    return {"type": "function", "function": function} if wrapped else function


def say(log: list[Any], entry: object, text: str) -> str:
    log.append(entry)
    return text


@contextmanager
def nothing_left_behind():
    """No coroutine was made and then forgotten."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(each.message) for each in caught] == []


def never(*_: object) -> Any:
    raise AssertionError("this must not be called")


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


def test_contexts_and_prompts_are_values_that_cannot_be_changed():
    with pytest.raises(AttributeError):
        setattr(context(system="x"), "priority", 1)  # noqa: B010
    with pytest.raises(AttributeError):
        setattr(prompt(system="x"), "system", "y")  # noqa: B010


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


# Sources


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


# Conditions


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


async def _agrees(*_: object) -> bool:
    return True


class _Agreeable:
    async def __call__(self) -> bool:
        return True


@pytest.mark.parametrize("predicate", [_agrees, lambda: _agrees(), _Agreeable()])
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


def test_an_async_predicate_is_refused_where_it_is_defined():
    with pytest.raises(InvalidInput):
        context(system="x", when=_agrees)
    with pytest.raises(InvalidInput):
        when(_agrees, context(system="x"))
    with pytest.raises(InvalidInput):
        match(on=_agrees, cases={1: context(system="x")})


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


# Budget


def test_the_lowest_priority_goes_first_and_the_rest_keep_their_order():
    critical = context(id="critical", priority=100, system="c" * 10)
    examples = context(id="examples", priority=20, system="e" * 10)
    guidelines = context(id="guidelines", priority=50, system="g" * 10)
    p = prompt(use=[critical, examples, guidelines], system="o" * 10)
    assert dropped(look(p, token_budget=46)) == []
    assert dropped(look(p, token_budget=45)) == ["context:examples"]
    assert look(p, token_budget=45).system.text == "\n\n".join(c * 10 for c in "ocg")
    assert dropped(look(p, token_budget=33)) == ["context:examples", "context:guidelines"]
    assert not look(p, token_budget=22).over_budget
    tight = look(p, token_budget=21)
    assert tight.over_budget
    assert tight.system.text == "\n\n".join(c * 10 for c in "oc")


def test_without_a_budget_nothing_is_dropped():
    p = prompt(use=[context(system="x" * 10_000)], system="own")
    shown = look(p)
    assert shown.token_budget is None
    assert not shown.over_budget
    assert not shown.dropped_contexts
    assert shown.total_tokens == 10_005


def test_equal_priorities_drop_the_earlier_declared_first():
    p = prompt(use=[context(id=c, system=c * 10) for c in "abc"])
    assert dropped(look(p, token_budget=33)) == ["context:a"]
    assert dropped(look(p, token_budget=10)) == ["context:a", "context:b"]


def test_the_default_priority_is_fifty():
    p = prompt(
        use=[
            context(id="above", priority=51, system="a" * 10),
            context(id="default", system="d" * 10),
            context(id="below", priority=49, system="b" * 10),
        ]
    )
    assert dropped(look(p, token_budget=5)) == ["context:below", "context:default", "context:above"]


@pytest.mark.parametrize("pin", [{"priority": 100}, {"priority": 1_000}, {"required": True}])
def test_a_pinned_context_outlives_every_other(pin):
    pinned = context(id="pinned", system="p" * 50, **pin)
    other = context(id="other", priority=99, system="x")
    shown = look(prompt(use=[pinned, other], system="own"), token_budget=0)
    assert kept(shown) == ["prompt", "context:pinned"]
    assert dropped(shown) == ["context:other"]
    assert shown.over_budget


@pytest.mark.parametrize("priority", [0, -5])
def test_a_priority_of_zero_or_less_is_no_protection(priority):
    p = prompt(use=[context(id=c, priority=priority, system=c * 10) for c in "abc"])
    assert kept(look(p, token_budget=22)) == ["context:b", "context:c"]
    assert kept(look(p, token_budget=10)) == ["context:c"]


def test_inspect_and_resolve_agree_about_a_budget_of_nothing():
    for p in (prompt(use=[context(system="x")]), prompt(use=[context(system="x")], prompt="ask")):
        resolved = p.resolve_sync(tokenizer=len, token_budget=0)
        assert resolved.window.over_budget == look(p, token_budget=0).over_budget


def test_a_nested_context_is_dropped_by_its_own_priority():
    inner = context(id="inner", priority=90, system="i" * 10)
    owner = context(id="owner", priority=10, system="o" * 10, use=[inner])
    assert kept(look(prompt(use=[owner]), token_budget=10)) == ["context:inner"]


def test_the_joined_text_is_counted_with_its_separators():
    p = prompt(use=[context(id=c, system=c * 10) for c in "abc"], system="o" * 10)
    for budget in range(50):
        shown = look(p, token_budget=budget)
        assert shown.total_tokens == len(shown.system.text)
        assert shown.over_budget == (shown.total_tokens > budget)
    assert not look(p, token_budget=46).dropped_contexts
    assert look(p, token_budget=45).dropped_contexts


def test_the_total_is_the_number_compared_with_the_budget_whatever_the_overhead():
    class Heavy:
        name = "heavy"
        message_overhead = 7

        def count(self, text: str) -> int:
            return len(text)

    p = prompt(use=[context(system="x" * 10)], system="own")
    total = look(p, tokenizer=Heavy()).total_tokens
    assert not look(p, tokenizer=Heavy(), token_budget=total).dropped_contexts
    assert look(p, tokenizer=Heavy(), token_budget=total - 1).dropped_contexts


def test_a_dropped_context_says_what_was_lost_and_why():
    p = prompt(
        use=[
            context(id="a", priority=7, system="a" * 30),
            context(system="b" * 20, priority=3),
            context(id="c", system="c"),
        ]
    )
    shown = look(p, token_budget=10)
    first, second = sorted(shown.dropped_contexts, key=lambda each: each.rank)
    assert (first.source, first.text, first.tokens) == ("context[1]", "b" * 20, 20)
    assert (first.priority, first.reason, first.rank) == (3, "over_budget", 1)
    assert (second.source, second.text, second.tokens) == ("context:a", "a" * 30, 30)
    assert (second.priority, second.reason, second.rank) == (7, "over_budget", 2)


def test_the_tokens_of_a_text_far_too_long_are_exact():
    shown = look(prompt(use=[context(system="x" * 100_000)], system="own"), token_budget=10)
    assert [each.tokens for each in shown.dropped_contexts] == [100_000]


def test_what_cannot_be_dropped_and_does_not_fit_is_never_encoded():
    p = prompt(use=[context(id="r", required=True, system="r" * 20)], system="own", prompt="q")
    shown = look(p, token_budget=24)
    assert shown.over_budget
    resolved = p.resolve_sync(tokenizer=len, token_budget=24)
    assert resolved.window.over_budget
    with pytest.raises(BudgetExceeded) as caught:
        resolved.window.openai()
    assert caught.value.needed - caught.value.available == 1
    assert p.resolve_sync(tokenizer=len, token_budget=25).window.openai()["messages"]


def test_own_text_alone_may_be_over_budget():
    shown = look(prompt(system="own text", use=[context(id="x", system="x")]), token_budget=3)
    assert shown.over_budget
    assert shown.system.text == "own text"
    assert dropped(shown) == ["context:x"]


def test_the_budget_covers_neither_prompt_nor_tools():
    p = prompt(
        system="own",
        use=[context(id="x", system="x" * 10, tools=[schema("t")])],
        prompt="p" * 1_000,
        tools=[schema("u")],
    )
    shown = look(p, token_budget=15)
    assert not shown.over_budget
    assert not shown.dropped_contexts
    assert shown.total_tokens == 15
    assert shown.prompt == "p" * 1_000
    assert shown.prompt_tokens == 1_000
    assert shown.tool_tokens == Counter(len).tools([schema("t"), schema("u")])
    resolved = p.resolve_sync(tokenizer=len, token_budget=15)
    assert not resolved.window.over_budget
    assert resolved.window.openai()["messages"][1]["content"] == "p" * 1_000


def test_a_dropped_context_was_resolved():
    calls: list[Any] = []
    look(prompt(use=[context(system=lambda: say(calls, 1, "x" * 9))]), token_budget=1)
    assert calls == [1]


@pytest.mark.parametrize("budget", [-1, 1.5, "many", float("nan"), True])
def test_a_budget_that_is_no_size_is_an_error(budget):
    with pytest.raises(InvalidInput):
        look(prompt(system="x"), token_budget=budget)


@pytest.mark.parametrize("priority", ["high", None, float("nan"), [1]])
def test_a_priority_that_is_no_number_is_an_error(priority):
    with pytest.raises(InvalidInput, match="priority"):
        context(id="x", system="x", priority=priority)


class Pieces:
    """Counts as a real tokenizer would, the whole not being the sum of its parts; and remembers."""

    name = "pieces"
    message_overhead = 0

    def __init__(self, per_token: int) -> None:
        self.per_token = per_token
        self.seen: list[str] = []

    def count(self, text: str) -> int:
        self.seen.append(text)
        return -(-len(text) // self.per_token)


DECLARED = st.lists(
    st.tuples(
        st.text("ab", min_size=0, max_size=12),
        st.sampled_from([-1, 0, 10, 20, 50, 50, 50, 99, 100, 120]),
        st.booleans(),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=14,
)


@given(DECLARED, st.text("o", max_size=8), st.integers(1, 120), st.integers(1, 4))
def test_the_dropped_are_the_shortest_prefix_of_the_fixed_order_that_fits(
    declared, own, budget, per_token
):
    uses = [
        context(
            id=str(i),
            system=text,
            priority=priority,
            required=required and i % 3 == 0,
            when=lambda included=included: included,
        )
        for i, (text, priority, required, included) in enumerate(declared)
    ]
    tokenizer = Pieces(per_token)
    p = prompt(use=uses, system=own)
    shown = p.inspect_sync(tokenizer=tokenizer, token_budget=budget)

    active = [i for i, (text, _, _, included) in enumerate(declared) if text and included]
    pinned = {i for i in active if declared[i][1] >= 100 or (declared[i][2] and i % 3 == 0)}
    order = sorted((i for i in active if i not in pinned), key=lambda i: (declared[i][1], i))

    def left(count: int) -> str:
        gone = set(order[:count])
        texts = [own, *(declared[i][0] for i in active if i not in gone)]
        return "\n\n".join(text for text in texts if text)

    def size(count):
        return -(-len(left(count)) // per_token)

    fewest = next((n for n in range(len(order) + 1) if size(n) <= budget), len(order))
    assert dropped(shown) == [f"context:{i}" for i in order[:fewest]]
    assert [each.rank for each in sorted(shown.dropped_contexts, key=lambda d: d.rank)] == list(
        range(1, fewest + 1)
    )
    assert fewest == 0 or size(fewest - 1) > budget
    assert shown.system.text == left(fewest)
    assert shown.total_tokens == size(fewest)
    assert shown.over_budget == (size(fewest) > budget)
    own_source = ["prompt"] if own else []
    gone = set(order[:fewest])
    assert kept(shown) == own_source + [f"context:{i}" for i in active if i not in gone]
    assert all(f"context:{i}" in kept(shown) for i in pinned)
    assert set(excluded(shown)) == {
        f"context:{i}" for i, (_, _, _, included) in enumerate(declared) if not included
    }

    joined = [text for text in tokenizer.seen if "\n\n" in text]
    assert len(joined) <= 2 + math.ceil(math.log2(max(1, len(active))))

    resolved = p.resolve_sync(tokenizer=tokenizer, token_budget=budget)
    assert resolved.system == shown.system.text
    assert resolved.window.over_budget == shown.over_budget


@given(st.integers(1, 200), st.data())
def test_the_cut_is_found_in_few_counts_of_joined_text(n, data):
    priorities = data.draw(st.lists(st.integers(0, 99), min_size=n, max_size=n))
    budget = data.draw(st.integers(0, 8 * n + 10))
    tokenizer = Pieces(1)
    p = prompt(
        use=[context(system=f"{i:06}", priority=priority) for i, priority in enumerate(priorities)],
        system="own",
    )
    p.resolve_sync(tokenizer=tokenizer, token_budget=budget)
    joined = [text for text in tokenizer.seen if "\n\n" in text]
    assert len(joined) <= 2 + math.ceil(math.log2(n))


def test_a_second_resolve_counts_nothing():
    tokenizer = Pieces(1)
    p = prompt(use=[context(system=f"{i:06}") for i in range(50)], system="own")
    p.resolve_sync(tokenizer=tokenizer, token_budget=240)
    asked = len(tokenizer.seen)
    p.resolve_sync(tokenizer=tokenizer, token_budget=240)
    assert len(tokenizer.seen) == asked


# Input


def test_a_resolver_sees_an_instance_of_its_own_model_and_nothing_else():
    seen: list[Any] = []
    spy = context(input=Research, system=lambda input: say(seen, input, "x"))
    text_of(spy, context(input=Tenant, system="y"), input={"synthesis": "s", "org": "o"})
    assert seen == [Research(synthesis="s")]
    assert type(seen[0]) is Research
    assert not hasattr(seen[0], "org")


def test_a_predicate_sees_an_instance_of_its_contexts_own_model():
    seen: list[Any] = []
    spy = context(input=Research, when=lambda input: seen.append(input), system="x")
    text_of(spy, context(input=Tenant, system="y"), input={"synthesis": "s", "org": "o"})
    assert seen == [Research(synthesis="s")]
    assert type(seen[0]) is Research


def test_a_context_without_a_model_sees_the_merged_input():
    class Own(BaseModel):
        question: str

    both = context(system=lambda input: f"{input.org} {input.question}")
    p = prompt(input=Own, use=[both, context(input=Tenant, system=lambda input: input.org)])
    assert look(p, {"org": "o", "question": "q"}).system.text == "o q\n\no"


def test_wrappers_see_the_merged_input():
    class Own(BaseModel):
        question: str

    seen: list[Any] = []

    def spy(input):
        seen.append((input.org, input.question))
        return True

    p = prompt(
        input=Own,
        use=[
            context(input=Tenant, system="t"),
            when(spy, context(input=Research, system="r")),
            match(on=spy, cases={True: context(system="m")}),
        ],
    )
    assert look(p, {"org": "o", "question": "q"}).system.text == "t\n\nm"
    assert seen == [("o", "q"), ("o", "q")]


def test_the_prompts_own_texts_see_its_own_model():
    p = prompt(
        input=Tenant,
        system=lambda input: f"For {input.org}.",
        prompt=lambda input: f"Ask {input.org}.",
    )
    resolved = p.resolve_sync({"org": "Acme"})
    assert resolved.system == "For Acme."
    assert resolved.prompt == "Ask Acme."


def test_messages_may_be_resolved_from_the_input():
    p = prompt(input=Tenant, messages=lambda input: [user(input.org)])
    assert [m.text for m in p.resolve_sync({"org": "Acme"}).window.messages] == ["Acme"]


def test_two_contexts_claiming_one_field_are_an_error_naming_both():
    class Other(BaseModel):
        org: int = 3

    one = context(id="one", input=Tenant, system="1")
    two = context(id="two", input=Other, system="2")
    with pytest.raises(InvalidInput, match="org") as caught:
        prompt(use=[one, two])
    assert "one" in str(caught.value)
    assert "two" in str(caught.value)
    with pytest.raises(InvalidInput, match="org"):
        prompt(use=[one, context(system="x", use=[when(lambda: False, two)])])


def test_the_prompts_own_field_wins():
    class Own(BaseModel):
        org: str = "ours"

    class Other(BaseModel):
        org: str

    p = prompt(
        input=Own,
        system=lambda input: input.org,
        use=[
            context(id="a", input=Tenant, system=lambda input: f"a {input.org}"),
            context(id="b", input=Other, system=lambda input: f"b {input.org}"),
        ],
    )
    assert look(p).system.text == "ours\n\na ours\n\nb ours"
    assert look(p, {"org": "x"}).system.text == "x\n\na x\n\nb x"


def test_a_missing_field_of_an_unconditional_context_is_a_validation_error():
    p = prompt(use=[context(id="r", input=Research, system="x")])
    for nothing in (None, {}, {"synthesis": 3}):
        with pytest.raises(InvalidInput, match="synthesis") as caught:
            look(p, nothing)
        assert isinstance(caught.value.__cause__, ValidationError)


def test_a_missing_field_of_the_prompt_is_a_validation_error():
    with pytest.raises(InvalidInput, match="org") as caught:
        look(prompt(input=Tenant, system="x"))
    assert isinstance(caught.value.__cause__, ValidationError)


@pytest.mark.parametrize("nonsense", ["text", 3, ["org"]])
def test_an_input_that_is_no_mapping_is_an_error(nonsense):
    with pytest.raises(InvalidInput):
        look(prompt(input=Tenant, system="x"), nonsense)


def test_input_names_are_texts():
    with pytest.raises(InvalidInput):
        look(prompt(system="x"), {1: 2})


def test_a_field_may_go_by_other_names():
    class Aliased(BaseModel):
        org: str = Field(validation_alias=AliasChoices("org", "organisation"))

    class Short(BaseModel):
        name: str = Field(alias="n")

    p = prompt(
        use=[
            context(input=Aliased, system=lambda input: input.org),
            context(input=Short, when=lambda: True, system=lambda input: input.name),
        ]
    )
    assert look(p, {"organisation": "o", "n": "x"}).system.text == "o\n\nx"


def test_the_given_input_is_not_changed():
    given_input = {"org": "o", "more": [1]}
    look(prompt(input=Tenant, system="x"), given_input)
    assert given_input == {"org": "o", "more": [1]}


@pytest.mark.parametrize("model", [dict, "Tenant", Tenant(org="o"), 3])
def test_an_input_that_is_no_pydantic_model_is_an_error(model):
    with pytest.raises(InvalidInput):
        context(system="x", input=model)
    with pytest.raises(InvalidInput):
        prompt(system="x", input=model)


def test_validation_happens_before_anything_is_resolved():
    p = prompt(use=[context(system=never), context(input=Tenant, system="x")])
    with pytest.raises(InvalidInput):
        look(p, {})


# Resolvers


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


class Broken(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)


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
        context(id="later", system=_agree_text),
        context(id="cached", system=_agree_text, cache=True),
    ]
    for broken in (context(id="x", system=_broken), context(id="x", system=_broken_later)):
        with nothing_left_behind():
            assert "context:x" in _note(prompt(system=_agree_text, use=[*others, broken]))


def test_a_validation_error_of_a_resolver_is_its_own():
    p = prompt(use=[context(id="x", system=lambda: Tenant.model_validate({}).org)])
    with pytest.raises(ValidationError) as caught:
        look(p)
    assert "context:x" in "\n".join(caught.value.__notes__)


# Definitions


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


# Tools


def search() -> None:
    """Stand for a tool given as a function."""


class Named:
    __name__ = "named"

    def __call__(self) -> None:
        """Stand for a tool given as an object."""


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


# Inspect


def test_inspect_shows_parts_in_use_order_with_tokens_and_status():
    p = prompt(
        system="own",
        use=[
            context(id="a", system="aaaa"),
            context(id="b", priority=1, system="bbbbb"),
            context(id="c", system="cccccc"),
        ],
        prompt="question",
    )
    shown = look(p, token_budget=20)
    assert [(part.source, part.text, part.tokens, part.status) for part in shown.system.parts] == [
        ("prompt", "own", 3, "kept"),
        ("context:a", "aaaa", 4, "kept"),
        ("context:b", "bbbbb", 5, "dropped"),
        ("context:c", "cccccc", 6, "kept"),
    ]
    assert shown.total_tokens == 17
    assert shown.token_budget == 20
    assert shown.prompt == "question"
    assert shown.prompt_tokens == 8
    assert shown.tool_tokens == 0


def test_inspect_and_resolve_agree():
    p = prompt(
        system="own",
        use=[context(id="a", system="a" * 10), context(id="b", priority=9, system="b" * 10)],
        prompt="ask",
        tools=[schema("t")],
        settings={"temperature": 1},
        adapt={"x": {"append_system": "after", "prepend_prompt": "now ", "settings": {"k": 1}}},
    )
    options: dict[str, Any] = {
        "tokenizer": len,
        "token_budget": 30,
        "provider": "x",
        "settings": {"top_p": 1},
    }
    shown, resolved = p.inspect_sync(**options), p.resolve_sync(**options)
    assert dropped(shown) == ["context:b"]
    assert shown.system.text == resolved.system == "own\n\naaaaaaaaaa\n\nafter"
    assert shown.prompt == resolved.prompt == "now ask"
    assert shown.settings == resolved.settings == {"temperature": 1, "k": 1, "top_p": 1}
    assert list(shown.tools) == ["t"]
    assert list(resolved.tools) == [schema("t")]
    assert shown.over_budget is resolved.window.over_budget is False


def test_the_asynchronous_calls_give_the_same():
    p = prompt(system="own", use=[context(id="a", system=_agree_text)], prompt="ask")

    async def both():
        return await p.inspect(tokenizer=len), await p.resolve(tokenizer=len)

    shown, resolved = asyncio.run(both())
    assert shown.system.text == resolved.system == p.resolve_sync(tokenizer=len).system
    assert shown.system.text == "own\n\nlater"


async def _agree_text() -> str:
    await asyncio.sleep(0)
    return "later"


@pytest.mark.parametrize("name", ["inspect", "resolve"])
def test_a_sync_twin_inside_a_running_loop_is_a_clear_error(name):
    p = prompt(system=_agree_text)

    async def inside():
        getattr(p, f"{name}_sync")()

    with nothing_left_behind(), pytest.raises(MuntinError, match=rf"await .*{name}\("):
        asyncio.run(inside())


def test_a_sync_twin_works_in_a_thread_beside_a_running_loop():
    p = prompt(system=_agree_text)

    async def beside():
        return await asyncio.to_thread(p.resolve_sync)

    assert asyncio.run(beside()).system == "later"


# Adaptations

ADAPT: dict[str, Any] = {
    "anthropic": {"append_system": "\nReturn raw JSON, no markdown fences."},
    "openai": {"prepend_prompt": "Think step by step.\n\n", "settings": {"temperature": 0.1}},
    "*": {"append_system": "\nRespond with valid JSON only."},
}


def test_an_adaptation_is_joined_by_one_blank_line_without_its_outer_newlines():
    p = prompt(system="You are a helpful assistant.", prompt="Hi", adapt=ADAPT)
    claude = look(p, provider="anthropic")
    assert claude.system.text == (
        "You are a helpful assistant.\n\nReturn raw JSON, no markdown fences."
    )
    gpt = look(p, provider="openai")
    assert gpt.system.text == "You are a helpful assistant."
    assert gpt.prompt == "Think step by step.\n\nHi"
    assert gpt.settings == {"temperature": 0.1}
    other = look(p, provider="mistral")
    assert other.system.text == "You are a helpful assistant.\n\nRespond with valid JSON only."
    assert look(p).system.text == other.system.text


@pytest.mark.parametrize(
    ("provider", "model_id", "key"),
    [
        ("a", None, "a"),
        ("a", "b/m", "a"),
        ("x", "b/m", "b"),
        (None, "b/m", "b"),
        ("x", "b/a/m", "b"),
        ("x", "y/a/m", "*"),
        ("x", "y/m", "*"),
        ("x", None, "*"),
        (None, None, "*"),
    ],
)
def test_exactly_one_entry_applies(provider, model_id, key):
    adapt = {name: {"append_system": f"for {name}"} for name in ("*", "b", "a")}
    shown = look(prompt(system="own", adapt=adapt), provider=provider, model_id=model_id)
    assert shown.system.text == f"own\n\nfor {key}"
    assert kept(shown) == ["prompt", f"adaptation:{key}"]


def test_no_entry_applies_when_none_matches():
    p = prompt(system="own", adapt={"a": {"append_system": "x"}})
    assert look(p, provider="b", model_id="c/a").system.text == "own"


def test_an_adaptation_stands_around_own_text_and_contexts_as_parts_of_its_own():
    p = prompt(
        system="own",
        use=[context(id="c", system="c")],
        prompt="ask",
        adapt={
            "a": {
                "prepend_system": "\n\nbefore\n",
                "append_system": "after\n\n",
                "prepend_prompt": "\nnow ",
                "append_prompt": " please\n",
            }
        },
    )
    shown = look(p, provider="a")
    assert shown.system.text == "before\n\nown\n\nc\n\nafter"
    assert [(part.source, part.text) for part in shown.system.parts] == [
        ("adaptation:a", "before"),
        ("prompt", "own"),
        ("context:c", "c"),
        ("adaptation:a", "after"),
    ]
    assert shown.prompt == "\nnow ask please\n"
    assert shown.prompt_tokens == len(shown.prompt)


def test_an_adaptation_is_counted_in_the_budget_and_never_dropped():
    p = prompt(
        system="own",
        use=[context(id="c", system="c" * 10)],
        adapt={"a": {"prepend_system": "b" * 10, "append_system": "d" * 10}},
    )
    assert not look(p, token_budget=15).dropped_contexts
    assert not look(p, token_budget=39, provider="a").dropped_contexts
    tight = look(p, token_budget=38, provider="a")
    assert dropped(tight) == ["context:c"]
    assert kept(tight) == ["adaptation:a", "prompt", "adaptation:a"]
    over = look(p, token_budget=26, provider="a")
    assert over.over_budget
    assert over.system.text == tight.system.text


def test_unknown_fields_of_an_adaptation_are_an_error_naming_them():
    with pytest.raises(InvalidInput, match="append_sytem"):
        prompt(system="own", adapt={"a": {"append_sytem": "x"}})
    with pytest.raises(InvalidInput, match="appendSystem"):
        prompt(system="own", adapt={"*": {"appendSystem": "x"}})


@pytest.mark.parametrize(
    "adapt",
    [
        ["a"],
        {"a": "text"},
        {3: {}},
        {"a": {"append_system": 3}},
        {"a": {"prepend_prompt": ["x"]}},
        {"a": {"settings": "hot"}},
    ],
)
def test_a_malformed_adaptation_is_an_error(adapt):
    with pytest.raises(InvalidInput):
        prompt(system="own", adapt=adapt)


# Settings


def test_settings_merge_from_config_to_prompt_to_adaptation_to_call():
    p = prompt(
        system="own",
        settings={"b": "prompt", "c": "prompt", "d": "prompt"},
        adapt={"x": {"settings": {"c": "adapt", "d": "adapt"}}},
    )
    with config.local(settings=dict.fromkeys("abcd", "config")):
        shown = p.inspect_sync(provider="x", settings={"d": "call"})
    assert shown.settings == {"a": "config", "b": "prompt", "c": "adapt", "d": "call"}


def test_none_never_erases():
    p = prompt(
        system="own",
        settings={"a": None, "b": 0, "c": 1},
        adapt={"*": {"settings": {"b": None, "c": None}}},
    )
    with config.local(settings={"a": 3}):
        shown = p.inspect_sync(settings={"a": None, "b": None, "c": None})
    assert shown.settings == {"a": 3, "b": 0, "c": 1}


def test_settings_are_not_changed_by_a_call():
    own = {"a": 1}
    p = prompt(system="own", settings=own)
    shown = p.inspect_sync(settings={"a": 2})
    assert shown.settings == {"a": 2}
    assert own == {"a": 1}
    assert p.inspect_sync().settings == {"a": 1}


@pytest.mark.parametrize("settings", ["hot", 3, [("a", 1)], {3: 4}])
def test_settings_are_a_mapping_of_names(settings):
    with pytest.raises(InvalidInput):
        prompt(system="own", settings=settings)
    with pytest.raises(InvalidInput):
        prompt(system="own").inspect_sync(settings=settings)


# Tokenizer


def total(tokenizer=None):
    return prompt(system="x" * 100).inspect_sync(tokenizer=tokenizer).total_tokens


def ten(text: str) -> int:
    return 10 if text else 0


def test_a_with_block_sets_the_tokenizer_and_ends():
    before = total()
    with config.local(tokenizer=len):
        assert total() == 100
        with config.local(tokenizer=ten):
            assert total() == 10
        assert total() == 100
    assert total() == before


def test_a_with_block_that_ends_by_an_exception_ends():
    before = total()
    with pytest.raises(Broken), config.local(tokenizer=len):
        raise Broken(1, "x")
    assert total() == before


def test_a_per_call_tokenizer_wins():
    with config.local(tokenizer=ten):
        assert total(len) == 100
        assert total("chars/4") == 25


def test_what_an_inner_block_does_not_name_stays_as_outside():
    with config.local(tokenizer=len), config.local(settings={"a": 1}), config.local(tokenizer=ten):
        assert total() == 10
        assert prompt(system="x").inspect_sync().settings == {"a": 1}
    with config.local(tokenizer=len), config.local(settings={"a": 1}):
        assert total() == 100


def test_a_with_block_holds_for_its_task_and_children_only():
    async def asked(tokenizer: Callable[[str], int], gate: asyncio.Barrier) -> int:
        with config.local(tokenizer=tokenizer):
            await gate.wait()
            child = asyncio.create_task(prompt(system="x" * 100).inspect())
            return (await child).total_tokens

    async def outside(gate: asyncio.Barrier) -> int:
        await gate.wait()
        return (await prompt(system="x" * 100).inspect()).total_tokens

    async def all_three():
        gate = asyncio.Barrier(3)
        return await asyncio.gather(asked(len, gate), asked(ten, gate), outside(gate))

    before = total()
    assert asyncio.run(all_three()) == [100, 10, before]


def test_a_with_block_does_not_reach_another_thread():
    before = total()
    seen: list[Any] = []
    with config.local(tokenizer=ten):
        thread = threading.Thread(target=lambda: seen.append(total()))
        thread.start()
        thread.join()
    assert seen == [before]


PROCESS_DEFAULT = """
import threading
from muntin import config, prompt, set_tokenizer

p = prompt(system="x" * 100, settings={"b": 2})

def total():
    return p.inspect_sync().total_tokens

def in_thread(call):
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(call()))
    thread.start(); thread.join()
    return seen[0]

config(tokenizer=len, settings={"a": 1})
assert total() == in_thread(total) == 100
assert p.inspect_sync().settings == {"a": 1, "b": 2}
set_tokenizer(lambda text: 7)
assert total() == in_thread(total) == 7
assert p.inspect_sync().settings == {"a": 1, "b": 2}
with config.local(tokenizer=lambda text: 5):
    assert total() == 5
    assert in_thread(total) == 7
    assert p.inspect_sync(tokenizer=len).total_tokens == 100
    set_tokenizer(lambda text: 8)
    assert total() == 5
assert total() == in_thread(total) == 8
config(settings={"c": 3})
assert total() == 8
later = config.local(tokenizer=lambda text: 5)
set_tokenizer(lambda text: 9)
with later:
    assert total() == 5
assert total() == 9
print("done")
"""


def test_config_and_set_tokenizer_set_the_default_of_the_process():
    run = subprocess.run(
        [sys.executable, "-c", PROCESS_DEFAULT], capture_output=True, text=True, check=False
    )
    assert run.stdout == "done\n", run.stderr


@pytest.mark.parametrize("wrong", [3, ["len"], "no such tokenizer"])
def test_a_tokenizer_that_is_none_is_an_error(wrong):
    with pytest.raises(InvalidInput):
        total(wrong)
    with pytest.raises(InvalidInput), config.local(tokenizer=wrong):
        total()


# What is wrong is said early, and only of what takes part


class Count(BaseModel):
    count: int


def test_the_input_of_a_context_that_a_condition_leaves_out_is_not_validated():
    counts = context(id="c", input=Count, system=lambda input: f"{input.count}")
    asked = []
    left_out = prompt(use=[when(lambda input: asked.append(input.count), counts)])
    assert "condition_false" in excluded(look(left_out, {"count": "many"}))["context:c"]
    assert asked == ["many"]
    other = match(on=lambda: "b", cases={"a": counts, "b": context(system="b")})
    assert look(prompt(use=[other]), {"count": "many"}).system.text == "b"


def test_the_input_of_a_conditional_context_is_validated_when_it_takes_part():
    counts = context(id="c", input=Count, system=lambda input: f"{input.count}")
    p = prompt(use=[when(lambda: True, counts)])
    assert look(p, {"count": "7"}).system.text == "7"
    with pytest.raises(InvalidInput, match=r"context:c: invalid input: count: "):
        look(p, {"count": "many"})


def test_an_input_is_validated_once():
    made = []

    class Watched(BaseModel):
        size: int

        def model_post_init(self, _: Any) -> None:
            made.append(self.size)

    for condition in (None, lambda input: input.size):
        made.clear()
        look(prompt(use=[context(system="x", input=Watched, when=condition)]), {"size": 3})
        assert made == [3]


def test_a_context_looks_only_at_its_own_fields_of_the_input():
    class Counting(dict[str, Any]):
        looks = 0

        def __getitem__(self, key: str) -> Any:
            Counting.looks += 1
            return super().__getitem__(key)

        def items(self) -> Any:
            raise AssertionError("all of the input was read")

    given = Counting({f"field{n}": n for n in range(100)} | {"count": 1})
    assert validate(Count, given, "context:c") == Count(count=1)
    assert missing_fields(Count, given) == []
    assert Counting.looks == 1


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
        assert kept(look(prompt(use=[nested(31, wrap)]))) == ["context:x"]
        with pytest.raises(InvalidInput, match="nested deeper than 32"):
            nested(32, wrap)


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
