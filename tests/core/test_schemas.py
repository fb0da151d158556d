"""The schemas of tools are checked, copied and written once, however often they are counted."""

import asyncio
import json
import pickle

import pytest

from muntin import App, InvalidInput, Slots, Tool
from muntin.agent.tools import as_tools
from muntin.core import checks, schemas
from muntin.core.counting.counter import Counter
from muntin.core.schemas import Schemas
from muntin.errors import InvalidType
from muntin.testing import ScriptedModel


def look(city: str) -> str:
    """Look at the sky.

    Args:
        city: Where.
    """
    return city


SCHEMA = {"type": "function", "function": {"name": "b", "parameters": {"enum": ("x", "y")}}}


def test_what_a_user_does_with_a_schema_or_with_a_window_changes_no_other_window():
    given = {"name": "a", "parameters": {"type": "object"}}
    slots = Slots(500, tools=[given])
    slots.add("input", "Hello.")
    first = slots.render()
    given["name"] = "changed"
    first.tools[0]["parameters"]["type"] = "changed"
    assert [dict(each) for each in slots.render().tools] == [
        {"name": "a", "parameters": {"type": "object"}}
    ]


def test_a_functions_schema_that_was_changed_is_not_offered():
    window = Slots(500, tools=as_tools([look], "here").schemas)
    window.add("input", "Hello.")
    window.render().tools[0]["function"]["name"] = "changed"
    assert as_tools([look], "here").schemas[0]["function"]["name"] == "look"


def test_a_functions_schema_follows_its_name_docstring_and_description():
    def told() -> None:
        """One."""

    def said(tool: object) -> str:
        return str(as_tools([tool], "here").schemas[0]["function"]["description"])

    assert said(told) == "One."
    told.__doc__ = "Two."
    assert said(told) == "Two."
    assert said(Tool(told, description="Three.")) == "Three."


def test_a_turn_writes_each_schema_once_at_most(monkeypatch):
    written: list[object] = []
    write = checks.compact_json

    def noted(value: object) -> str:
        written.append(value)
        return write(value)

    def is_schema(value: object) -> bool:
        return isinstance(value, dict) and "function" in value

    asked = [{"type": "function", "function": {"name": f"f{n}"}} for n in range(3)]

    async def talk() -> None:
        async with App("memory:", model=ScriptedModel(lambda window: "Hi.")) as app:
            chat = app.conversation("c", tools=[look, *asked])
            await chat.send("Hello.")
            for module in (
                *("agent.tools", "core.schemas", "core.counting.counter", "core.digests"),
                "timeline.stored_plans",
            ):
                monkeypatch.setattr(f"muntin.{module}.compact_json", noted)
            await chat.send("Again.")

    asyncio.run(talk())
    texts = [json.dumps(each, sort_keys=True) for each in written if is_schema(each)]
    assert len(texts) == len(set(texts)) <= len(asked)


def test_a_counter_counts_the_schemas_of_a_turn_once():
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    counter, offered = Counter(count), as_tools([look, SCHEMA], "here").schemas
    total = counter.tools(offered)
    assert total == counter.tools(offered) == counter.tools(list(offered))
    assert total == sum(map(len, offered.texts)) + 2 * counter.overhead
    assert len(counted) == 2


def test_schemas_that_cannot_be_sent_are_refused_by_place_and_name():
    with pytest.raises(InvalidType, match=r"tools\[1\] must be a mapping"):
        Schemas.of([{"name": "a"}, "b"])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match=r"tools\[0\] 'a' cannot be written as JSON"):
        Schemas.of([{"name": "a", "x": float("nan")}])
    with pytest.raises(InvalidType, match="tools must be a list of schemas"):
        Schemas.of({"name": "a"})  # type: ignore[dict-item]


def test_the_order_of_names_is_kept_where_the_user_has_marked_a_tool():
    plain = Schemas.of([{"name": "b"}, {"name": "a"}])
    assert [each["name"] for each in plain.by_name] == ["a", "b"]
    marked = Schemas.of([{"name": "b", schemas.USER_BREAKPOINTS[0]: {"x": 1}}, {"name": "a"}])
    assert marked.by_name is marked


def test_schemas_can_be_pickled():
    made = as_tools([look, SCHEMA], "here").schemas
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert again.texts == made.texts


class Word(str):
    """A text that is more than one."""


@pytest.mark.parametrize("word", ["text", Word("text")])
def test_schemas_that_are_given_away_are_copies(word):
    schemas = Schemas.of([{"name": "look", "parameters": {"enum": [word, ("a", 1)]}}])
    one, other = schemas.copied(), schemas.copied()
    assert one == other == tuple(schemas)
    one[0]["parameters"]["enum"].append("b")
    assert other == tuple(schemas) == schemas.copied()


def test_functions_that_are_offered_again_have_the_same_schemas():
    def find(number: int) -> str:
        """Find something."""
        return str(number)

    given = {"name": "look", "parameters": {}}
    assert as_tools([find], "tools").schemas is as_tools([find], "tools").schemas
    first = as_tools([find, given], "tools").schemas
    given["parameters"] = {"type": "object"}  # what is given may be changed
    assert as_tools([find, given], "tools").schemas[1] == given != first[1]
