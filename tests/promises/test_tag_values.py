"""A value in a tag is rendered as its fields or its text, or refused by the path of its key; never
as the `repr` of an object."""

from __future__ import annotations

import asyncio
from collections import namedtuple
from dataclasses import make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, create_model

from muntin import (
    App,
    InvalidInput,
    aggregate,
    contribute,
    generator,
    render_tagged_context,
    xml_tag,
)
from muntin.errors import InvalidType
from muntin.testing import ScriptedModel
from tests.products import PRICED


class Address(BaseModel):
    city: str
    zip_code: int | None = None


class Customer(BaseModel):
    model_config = ConfigDict(extra="allow")

    firstName: str  # noqa: N815 - as an API sends it
    address: Address
    orders: list[str] = []
    password: str = Field(default="hunter2", exclude=True)


class Names(RootModel[list[str]]):
    pass


class Place(NamedTuple):
    row: int
    seat: str


class Colour(Enum):
    RED = "red"
    MIXED = ("red", "blue")
    NONE = None


class Level(IntEnum):
    LOW = 1


class Old(int, Enum):  # its str() is `Old.ONE`
    ONE = 1


class Word(StrEnum):
    YES = "yes"


class Loud(int):
    def __str__(self) -> str:
        return "<secret object>"

    __repr__ = __str__


ADA = Customer.model_validate(
    {
        "firstName": "Ada",
        "address": {"city": "Bonn"},
        "orders": ["4711", "4712"],
        "tier": "gold",
    }
)
ADA_RENDERED = """\
<customer>
<first-name>Ada</first-name>
<address>
<city>Bonn</city>
</address>
<orders>
4711
4712
</orders>
<tier>gold</tier>
</customer>"""


@pytest.mark.parametrize(
    ("value", "inner"),
    [
        (Address(city="a < b"), "<city>a &lt; b</city>"),
        ([Address(city="Bonn"), {"zip-code": 1}], "<city>Bonn</city>\n<zip-code>1</zip-code>"),
        (Names(["a", "b"]), "a\nb"),
        (Place(3, "b"), "<row>3</row>\n<seat>b</seat>"),
        (Colour.RED, "red"),
        (Colour.MIXED, "red\nblue"),
        ({"x": Colour.NONE, "y": Level.LOW}, "<y>1</y>"),
        (Old.ONE, "1"),
        (Word.YES, "yes"),
        (Loud(7), "7"),
        (True, "true"),
        (datetime(2024, 6, 3, 12), "2024-06-03T12:00:00"),
        (date(2024, 6, 3), "2024-06-03"),
    ],
)
def test_a_value_is_its_fields_or_its_text(value, inner):
    assert xml_tag("k", value) == f"<k>\n{inner}\n</k>"


def test_a_model_is_rendered_as_its_fields_without_the_excluded():
    assert render_tagged_context({"customer": ADA}) == ADA_RENDERED
    assert render_tagged_context(ADA).startswith("<first-name>\nAda\n</first-name>")
    assert aggregate([contribute("crm", {"customer": ADA})]).who("customer.firstName") == ("crm",)


@pytest.mark.parametrize(
    "value",
    [
        SecretStr("hunter2"), Decimal("1.5"), UUID(int=1), time(1), timedelta(1), b"x", {1},
        object(), iter("x"), ValueError("x"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_the_path_of_its_key(value):
    holder = create_model("Holder", held=(Any, ...))
    path = r"^context key 'a.held\[1\]' from 'crm': cannot render type \w+; give text"
    with pytest.raises(InvalidType, match=path) as caught:
        contribute("crm", {"a": holder(held=["x", value])})
    assert "hunter2" not in str(caught.value)


def test_a_number_too_long_to_be_written_is_refused_by_the_path_of_its_key():
    with pytest.raises(InvalidInput, match=r"^context key 'a.b': .*4300 digits"):
        render_tagged_context({"a": {"b": 10**5_000}})


def test_names_of_fields_are_checked_like_all_names():
    with pytest.raises(InvalidInput, match=r"context key 'a.role' from 'x': the tag name 'role'"):
        contribute("x", {"a": create_model("Agent", role=(str, ...))(role="boss")})


def test_a_model_that_holds_itself_is_refused():
    node = create_model("Node", inner=(Any, None))()
    node.inner = [node]  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match=r"context key 'a.inner\[0\]' contains itself"):
        render_tagged_context({"a": node})


def test_models_nest_without_limit():
    holder = create_model("Holder", a=(Any, None))
    value: Any = "x"
    for _ in range(10_000):
        value = holder.model_construct(a=value)
    assert render_tagged_context(value).count("<a>") == 10_000


@pytest.mark.parametrize(
    "written",
    [
        {"customer": ADA},
        {"customer": lambda: ADA},
        [lambda: {"customer": ADA}],
        create_model("Holder", customer=(Any, ...))(customer=ADA),
        lambda: create_model("Holder", customer=(Any, ...))(customer=ADA),
    ],
)
def test_a_generator_sends_the_fields_of_a_model(written):
    model = ScriptedModel(["yes"], name=PRICED)
    made = generator(model=model, prompt="You are a clerk.", context=written, user="go")
    asyncio.run(made.run(None, app=App("memory:"), session="g"))
    sent = model.windows[0].openai()["messages"]
    assert sent[0]["content"] == f"You are a clerk.\n\n{ADA_RENDERED}"


# The law: however a tree is written, its tags are those of the plain mapping.

LEAVES = st.none() | st.text(max_size=5) | st.integers(-5, 5) | st.booleans()
TREES = st.recursive(
    LEAVES,
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("abcd"), TREES, max_size=3), st.data())
def test_models_dataclasses_and_tuples_give_the_tags_of_the_mapping(tree, data):
    def written(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kind = data.draw(st.sampled_from(["dict", "model", "dataclass", "tuple"]))
        inner = {key: written(each) for key, each in value.items()}
        if kind == "model":
            made: Any = create_model
            return made("M", **dict.fromkeys(inner, (Any, ...)))(**inner)
        if kind == "dataclass":
            return make_dataclass("D", list(inner))(**inner)
        if kind == "tuple":
            return namedtuple("T", list(inner))(**inner)
        return inner

    plain = render_tagged_context(tree)
    assert render_tagged_context(written(tree)) == plain
    ElementTree.fromstring(f"<all>{plain}</all>")
