"""Inputs: who sees which part of what was given, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from muntin import InvalidInput, context, match, prompt, user, when
from muntin.prompts.contexts import missing_fields, validate
from tests.prompts.conftest import Research, Tenant, excluded, look, never, say, text_of


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


def test_validation_happens_before_anything_is_resolved():
    p = prompt(use=[context(system=never), context(input=Tenant, system="x")])
    with pytest.raises(InvalidInput):
        look(p, {})


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
