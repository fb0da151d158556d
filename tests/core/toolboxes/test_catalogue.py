"""The catalogue: rungs that never lose structure, and a search made for tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.core.toolboxes.catalogue import Catalogue
from muntin.core.toolboxes.rungs import BoxedTool, as_boxed_tool, without_words
from muntin.core.toolboxes.words import first_sentence, terms
from tests.toolboxes import boxes, schemas


def catalogue() -> Catalogue:
    tools = [as_boxed_tool(tool, box["name"]) for box in boxes() for tool in box["tools"]]
    return Catalogue(tools, {box["name"]: box["about"] for box in boxes()})


WORDS = ("description", "title", "$schema", "examples", "example", "default", "$comment")


def structure(schema: Any, path: str = "", *, names: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every path of a schema with its value, words left out."""
    if isinstance(schema, dict):
        yield path, "object"
        for key, value in schema.items():
            if names or key not in WORDS:
                is_named = not names and key in ("properties", "$defs", "definitions")
                yield from structure(value, f"{path}/{key}", names=is_named)
    elif isinstance(schema, list):
        for number, value in enumerate(schema):
            yield from structure(value, f"{path}/{number}")
    else:
        yield path, json.dumps(schema)


@pytest.mark.parametrize("rung", ["lean", "brief"])
def test_a_rung_keeps_every_path_type_enum_and_limit(rung):
    for schema in schemas():
        tool = as_boxed_tool(schema)
        full = tool.at("full")["parameters"]
        assert list(structure(tool.at(rung)["parameters"])) == list(structure(full))


def test_a_parameter_called_description_stays_and_its_text_goes():
    schema = {
        "type": "object",
        "description": "All of it",
        "properties": {
            "description": {"type": "string", "description": "What it is", "title": "Description"},
            "default": {"type": "integer", "default": 3, "minimum": 1},
            "kind": {"enum": ["title", "default"], "description": "Which"},
        },
        "required": ["description"],
    }
    assert without_words(schema) == {
        "type": "object",
        "properties": {
            "description": {"type": "string"},
            "default": {"type": "integer", "minimum": 1},
            "kind": {"enum": ["title", "default"]},
        },
        "required": ["description"],
    }


JSON_SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "boolean"])})
    | st.fixed_dictionaries({"enum": st.lists(st.text(), min_size=1, max_size=3)}),
    lambda inner: (
        st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from([*WORDS, "path", "lines"]), inner),
                "description": st.text(max_size=20),
                "required": st.lists(st.sampled_from([*WORDS, "path"]), max_size=2),
            }
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner, "title": st.text()})
    ),
)


@given(JSON_SCHEMAS)
def test_no_schema_loses_structure(schema):
    assert list(structure(without_words(schema))) == list(structure(schema))


def test_a_name_is_that_tool_and_nothing_else():
    names = [tool.name for tool in catalogue().search("create_document, add_paragraph", 8)]
    assert names == ["create_document", "add_paragraph"]
    for query in ("createDocument", "create document", "create-document", "CREATE_DOCUMENT"):
        assert [tool.name for tool in catalogue().search(query, 8)] == ["create_document"]


def test_every_tool_is_found_by_its_exact_name():
    known = catalogue()
    for tool in known.tools:
        assert [match.name for match in known.search(tool.name, 8)] == [tool.name]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("convert to pdf", "convert_to_pdf"),
        ("when are Ada and Bob both free next week", "find_free_time"),
        ("which SQL statements are slow", "find_slow_queries"),
        ("post a note in the team's channel", "send_message"),
        ("weather of the next days in Oslo", "forecast"),
        ("is a storm coming", "weather_warnings"),
        ("replace lines of a source file", "edit_text_file_contents"),
        ("bar chart of the numbers", "create_chart"),
        ("walking route to the station", "find_route"),
    ],
)
def test_words_find_the_tool_among_the_first_five(query, name):
    assert name in [tool.name for tool in catalogue().search(query, 5)]


def test_the_lines_of_a_query_take_turns():
    names = [tool.name for tool in catalogue().search("convert to pdf\nweather warnings", 4)]
    assert {"convert_to_pdf", "weather_warnings"} <= set(names[:2])


def test_a_tool_in_the_window_takes_no_place():
    known = catalogue()
    first = [tool.name for tool in known.search("read the weather", 3)]
    later = [tool.name for tool in known.search("read the weather", 3, loaded=first)]
    assert len(later) == 3
    assert not set(first) & set(later)


def test_the_question_of_the_user_decides_between_equal_tools():
    tools = [BoxedTool("send_a", "Send a parcel"), BoxedTool("send_b", "Send a letter")]
    known = Catalogue(tools, {})
    assert [t.name for t in known.search("send", 1)] == ["send_a"]
    assert [t.name for t in known.search("send", 1, "my letter to Ada")] == ["send_b"]


def test_nothing_is_found_for_words_that_no_tool_has():
    assert catalogue().search("zzzz qqqq", 8) == []


def test_names_like_an_unknown_name_are_near():
    assert "create_issue" in catalogue().near("open_issue_create")
    assert len(catalogue().near("read")) == 5


def test_a_catalogue_of_dense_script_is_searched_by_pairs_of_characters():
    tools = [BoxedTool("a", "天気予報を読む"), BoxedTool("b", "メールを送る")]
    assert [tool.name for tool in Catalogue(tools, {}).search("明日の天気", 1)] == ["a"]


@pytest.mark.parametrize(
    ("text", "stems"),
    [
        ("createDocument HTTPServer", ["creat", "docu", "http", "serv"]),
        ("studies", ["study"]),
        ("classes", ["class"]),
        ("the user's 2 files", ["2", "fil"]),
    ],
)
def test_identifiers_are_split_and_endings_cut(text, stems):
    assert terms(text) == stems


def test_a_first_sentence_is_one_line_of_some_length():
    assert first_sentence("Read a file.\nIt may be large.") == "Read a file."
    long = first_sentence("word " * 60)
    assert len(long) <= 120
    assert long.endswith("\u2026")
