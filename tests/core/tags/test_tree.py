"""Tagged context: every spelling, value and author finds its place, or an error says where not."""

import re
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.core.tags.tree import (
    RESERVED_TAG_NAMES,
    aggregate,
    contribute,
    normalize_tag_name,
    raw,
    render_tagged_context,
    validate_tag_name,
    xml_tag,
)
from muntin.core.tags.xml import Share
from muntin.errors import InvalidInput, InvalidType

KEYS = st.sampled_from(["a", "b", "userDocs", "user_docs", "user-docs"])


def merged(*trees):
    return aggregate(
        contribute(author, tree) for author, tree in zip("abcdef", trees, strict=False)
    )


# --- Names ---


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("userPreferences", "user-preferences"),
        ("user_preferences", "user-preferences"),
        ("user-preferences", "user-preferences"),
        ("UserPreferences", "user-preferences"),
        ("userID", "user-id"),
        ("userIDs", "user-ids"),
        ("documentURLsOld", "document-urls-old"),
        ("XMLParser", "xml-parser"),
        ("HTTPServerError", "http-server-error"),
        ("TOOL_USE", "tool-use"),
        ("isAStar", "is-a-star"),
        ("doc2Text", "doc2-text"),
        ("SHA256Hash", "sha256-hash"),
        ("user__name", "user-name"),
        ("class_", "class"),
        ("x", "x"),
    ],
)
def test_every_spelling_of_a_key_is_one_name(key, name):
    assert normalize_tag_name(key) == name


@given(st.text() | st.from_regex("[a-zA-Z0-9_-]{,12}", fullmatch=True))
def test_a_normal_name_stays_as_it_is(name):
    assert normalize_tag_name(normalize_tag_name(name)) == normalize_tag_name(name)


@pytest.mark.parametrize(
    "name", ["", "2nd", "_private", "-x", "a b", "a.b", "größe", "a\n", "a<b", "a:b", "-", "a/"]
)
def test_a_malformed_name_is_refused(name):
    with pytest.raises(InvalidInput, match=re.escape(f"{name!r} is not a tag name; it must")):
        validate_tag_name(name)


def test_thirteen_names_are_reserved_in_every_spelling():
    assert " ".join(sorted(RESERVED_TAG_NAMES)) == (
        "active-skill answer assistant function-calls invoke message parameter role system "
        "thinking tool-result tool-use user"
    )
    for key in (*RESERVED_TAG_NAMES, "toolUse", "TOOL_USE", "tool_use", "User", "role_"):
        with pytest.raises(InvalidInput, match=r"the tag name '[a-z-]+' is reserved; choose"):
            validate_tag_name(key)


def test_a_name_must_be_text():
    with pytest.raises(InvalidType, match="a tag name must be a str, not 3"):
        validate_tag_name(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a tag name must be a str, not None"):
        xml_tag(None, "x")  # type: ignore[arg-type]


def test_nothing_at_all_is_an_empty_text():
    assert render_tagged_context({}) == render_tagged_context(None) == ""


def test_xml_tag_is_a_tree_of_one():
    assert xml_tag("userPrefs", "a < b") == "<user-prefs>\na &lt; b\n</user-prefs>"
    assert xml_tag("a", {"b": 1}) == "<a>\n<b>1</b>\n</a>"
    assert xml_tag("a", raw(xml_tag("b", "x"))) == "<a>\n<b>\nx\n</b>\n</a>"


# --- Values ---


class Mood(StrEnum):
    GOOD = "go<od"


class Markup(str):
    """A text that escapes on its own, as template libraries have."""

    def replace(self, *_):
        return self


@dataclass
class Prefs:
    themeName: str  # noqa: N815
    lines: list[str]
    hidden: None = None

    def __call__(self):
        raise AssertionError("a dataclass is a mapping, even if it can be called")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (7, "7"),
        (0, "0"),
        (1.5, "1.5"),
        (True, "true"),
        (False, "false"),
        (date(2024, 6, 3), "2024-06-03"),
        (datetime(2024, 6, 3, 9, 40), "2024-06-03T09:40:00"),
        (raw("<b>&</b>"), "<b>&</b>"),
        (Mood.GOOD, "go&lt;od"),
        (Markup("<b>"), "&lt;b&gt;"),
        (["x", None, "", 2, [True, ("y",)], raw("<z/>")], "x\n2\ntrue\ny\n<z/>"),
    ],
)
def test_values_that_are_text(value, text):
    assert xml_tag("a", value) == f"<a>\n{text}\n</a>"
    inner = f"\n{text}\n" if "\n" in text else text
    assert render_tagged_context({"a": {"b": value}}) == f"<a>\n<b>{inner}</b>\n</a>"


def test_mappings_and_dataclasses_are_nested_tags():
    nested = "<a>\n<theme-name>dark</theme-name>\n<lines>\nx\ny\n</lines>\n</a>"
    assert xml_tag("a", Prefs("dark", ["x", "y"])) == nested
    assert xml_tag("a", MappingProxyType({"theme_name": "dark", "lines": ["x", "y"]})) == nested
    assert render_tagged_context(Prefs("dark", [])) == "<theme-name>\ndark\n</theme-name>"


def test_mappings_in_a_list_merge():
    tree = [{"x": 1, "y": {"z": 1}}, None, Prefs("dark", []), {}, "", {"y": {"z": 2}, "x": 3}]
    assert render_tagged_context({"a": tree}) == (
        "<a>\n<x>\n1\n3\n</x>\n<y>\n<z>\n1\n2\n</z>\n</y>\n<theme-name>dark</theme-name>\n</a>"
    )
    assert render_tagged_context([{"a": "x"}, {"a": "y"}]) == "<a>\nx\ny\n</a>"


@pytest.mark.parametrize("value", [b"x", {1}, object(), 1j, iter("x"), range(3)])
def test_any_other_value_is_a_type_error_with_its_path(value):
    message = re.escape(
        f"context key 'memory.longTerm[1]' from 'rag': cannot render type {type(value).__name__}; "
        "give text, a number, a bool, a date, a list, a mapping, a dataclass, a Pydantic model "
        "or None"
    )
    with pytest.raises(InvalidType, match=message):
        contribute("rag", {"memory": {"longTerm": ["x", value]}})


def test_a_callable_must_be_resolved_first():
    with pytest.raises(TypeError, match=r"^context key 'a.b\[0\]' is a callable; resolve it first"):
        render_tagged_context({"a": {"b": [lambda: "x"]}})
    with pytest.raises(TypeError, match=r"^context key 'a' is a callable"):
        xml_tag("a", Prefs)
    with pytest.raises(TypeError, match=r"^the context from 'b' is a callable"):
        aggregate([contribute("b", dict)])


@pytest.mark.parametrize("tree", ["text", ["text"], 3])
def test_text_outside_any_tag_is_refused(tree):
    with pytest.raises(TypeError, match=r"the text '(text|3)' has no tag; give it a key"):
        render_tagged_context(tree)


def test_raw_is_text_that_is_not_escaped():
    assert repr(raw("<b>")) == "raw('<b>')"
    assert xml_tag("a", raw("<b>") + "<c>") == "<a>\n&lt;b&gt;&lt;c&gt;\n</a>"
    with pytest.raises(TypeError, match="raw text must be a str, not int"):
        raw(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="raw text has a lone surrogate"):
        raw("\ud800")


@pytest.mark.parametrize("key", ["toolUse", "role", "2nd", "a b"])
def test_a_wrong_key_names_path_and_author_at_every_depth(key):
    why = r"(the tag name '[a-z-]+' is reserved|'.*' is not a tag name); "
    with pytest.raises(InvalidInput, match=f"^context key '{key}' from 'rag': {why}"):
        contribute("rag", {key: None})
    with pytest.raises(InvalidInput, match=rf"^context key 'docs\[1\].x.{key}' from 'rag': {why}"):
        contribute("rag", {"docs": [{}, {"x": {key: lambda: ""}}]})
    with pytest.raises(InvalidInput, match=f"^context key 'docs.{key}': {why}"):
        render_tagged_context({"docs": {key: "x"}})


def test_a_key_that_is_not_text_is_a_type_error():
    with pytest.raises(InvalidType, match=r"^context key 'a.3' from 'x': a tag name must be a str"):
        contribute("x", {"a": {3: "x"}})


def test_a_tree_that_contains_itself_is_refused():
    tree: dict[str, object] = {"shared": {}}
    tree["again"] = tree["shared"]
    assert render_tagged_context(tree) == ""
    tree["me"] = [tree]
    with pytest.raises(InvalidInput, match=r"context key 'me\[0\]' from 'a' contains itself"):
        contribute("a", tree)


def test_mappings_nest_without_limit():
    deep: object = "x"
    for _ in range(10_000):
        deep = {"a": deep}
    text = "<a>\n" * 9_999 + "<a>x</a>\n" + "</a>\n" * 9_999
    tagged = merged(deep, deep)
    assert render_tagged_context(deep) == text[:-1]
    assert tagged.render() == text[:-1].replace("<a>x</a>", "<a>\nx\nx\n</a>")
    assert tagged.who("a.a") == ("a", "b")
    assert len(tagged.inner["a"]) == len(tagged.render()) - len("<a>\n\n</a>")
    with pytest.raises(InvalidInput, match="has both text from 'b' and nested tags from 'a'"):
        merged({"a": deep}, deep)
    repr(tagged)


# --- Aggregation ---


def test_three_spellings_from_three_sources_are_one_tag():
    trees = (
        {"userPreferences": "from one source"},
        {"user_preferences": "from another"},
        {"user-preferences": "from a third"},
    )
    text = "<user-preferences>\nfrom one source\nfrom another\nfrom a third\n</user-preferences>"
    assert merged(*trees).render() == text
    together = {key: value for tree in trees for key, value in tree.items()}
    assert render_tagged_context(together) == text


def test_generator_and_capabilities_share_a_tag():
    tagged = aggregate(
        [
            contribute("generator", {"documents": "from generator itself"}),
            contribute("source-a", {"documents": "from A"}),
            contribute("source-b", {"documents": "from B"}),
        ]
    )
    assert tagged.render() == ("<documents>\nfrom generator itself\nfrom A\nfrom B\n</documents>")
    assert tagged.provenance == {
        "documents": (
            Share("generator", "from generator itself"),
            Share("source-a", "from A"),
            Share("source-b", "from B"),
        )
    }


def test_placeholders_reserve_their_place():
    first = {"documents": None, "memory": "", "skills": {}, "more": {"x": None}, "unfilled": None}
    second = {"extra": "e", "more": {"y": "1", "x": "2"}, "skills": "s", "memory": {"m": "m"}}
    assert merged(first, second, {"documents": "d"}).render() == (
        "<documents>\nd\n</documents>\n<memory>\n<m>m</m>\n</memory>\n<skills>\ns\n</skills>\n"
        "<more>\n<x>2</x>\n<y>1</y>\n</more>\n<extra>\ne\n</extra>"
    )


@pytest.mark.parametrize("neutral", [None, "", {}, [], [None, ""], raw("")])
@pytest.mark.parametrize("value", ["text", {"nested": "x"}])
def test_nothing_goes_with_text_and_with_tags(neutral, value):
    alone = render_tagged_context({"a": value})
    assert merged({"a": neutral}, {"a": value}).render() == alone
    assert merged({"a": value}, {"a": neutral}).render() == alone
    assert render_tagged_context({"a": [neutral, value, neutral]}) == alone


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        (
            ({"docs": "x"}, {"docs": {"y": "z"}}),
            "context key 'docs' has both text from 'a' and nested tags from 'b'; choose one",
        ),
        (
            ({"docs": {"y": "z"}}, {}, {"docs": "x"}),
            "context key 'docs' has both text from 'c' and nested tags from 'a'; choose one",
        ),
        (
            ({"m": {"shortTerm": {"y": None}}}, {"m": {"short_term": 3}}),
            "context key 'm.short-term' has both text from 'b' and nested tags from 'a'; choose",
        ),
        (
            ({"docs": ["x", {"y": "z"}]},),
            "context key 'docs' has both text from 'a' and nested tags from 'a'; choose one",
        ),
    ],
)
def test_text_against_tags_names_path_and_both_authors(trees, message):
    with pytest.raises(InvalidInput, match=f"^{re.escape(message)}"):
        merged(*trees)


def test_text_against_tags_in_one_tree_needs_no_author():
    with pytest.raises(InvalidInput, match=r"^context key 'a' has both text and nested tags; cho"):
        render_tagged_context({"A": {"b": "x"}, "a": "y"})


def test_only_contributions_are_aggregated():
    with pytest.raises(InvalidType, match=r"cannot aggregate \{'a': 'x'\}; make it with contrib"):
        aggregate([{"a": "x"}])  # type: ignore[list-item]
    with pytest.raises(InvalidType, match="the author must be a str, not int"):
        contribute(3, {})  # type: ignore[arg-type]


def test_who_gave_what():
    tagged = merged(
        {"memory": {"shortTerm": None, "longTerm": "1"}, "docs": ["x", raw("<y/>")]},
        {"memory": {"long_term": "2"}, "memo": "m"},
        {"memory": {"short-term": "3"}},
    )
    assert tagged.authors == ("a", "b", "c")
    assert tagged.who("memory") == ("a", "b", "c")
    assert tagged.who("memory.longTerm") == ("a", "b")
    assert tagged.who("mem") == tagged.who("memory.nope") == ()
    assert list(tagged.provenance) == ["memory.short-term", "memory.long-term", "docs", "memo"]
    assert tagged.provenance["docs"] == (Share("a", "x"), Share("a", "<y/>"))


def test_the_inner_texts_of_the_top_level_tags():
    inner = merged(
        {"userDocs": ["a < b", "c"], "unfilled": None, "memory": {"x": "1", "y": {"z": "2\n3"}}}
    ).inner
    assert dict(inner) == {
        "user-docs": "a &lt; b\nc",
        "memory": "<x>1</x>\n<y>\n<z>\n2\n3\n</z>\n</y>",
    }
    assert inner["userDocs"] == inner["user_docs"] == inner["user-docs"] == inner.get("UserDocs")
    assert "user_docs" in inner
    assert "unfilled" not in inner
    assert 3 not in inner
    assert len(inner) == 2
    assert repr(merged({"a": "x"}).inner) == "Inner({'a': 'x'})"


@given(st.lists(st.tuples(st.sampled_from("abc"), KEYS, st.text(max_size=3)), max_size=8))
def test_aggregation_keeps_the_authors_order(given_texts):
    tagged = aggregate(contribute(author, {key: text}) for author, key, text in given_texts)
    names = [normalize_tag_name(key) for _, key, _ in given_texts]
    full = [
        (name, author, text) for name, (author, _, text) in zip(names, given_texts, strict=True)
    ]
    assert list(tagged.authors) == list(dict.fromkeys(author for author, _, _ in given_texts))
    shares = {
        name: tuple(Share(author, text) for own, author, text in full if own == name and text)
        for name in dict.fromkeys(names)
    }
    assert list(tagged.provenance.items()) == [item for item in shares.items() if item[1]]
    assert list(tagged.inner) == list(tagged.provenance)


# --- Callables ---


def test_callables_are_found_in_order_and_filled_in_place():
    tree = {
        "docs": ["x", (one := lambda: 1), "y"],
        "memory": [{"a": "1"}, (two := lambda: 2), {"c": (three := lambda: 3)}],
    }
    given = contribute("rag", tree)
    tree.clear()
    assert [(call.path, call.function) for call in given.calls] == [
        ("docs[1]", one),
        ("memory[1]", two),
        ("memory[2].c", three),
    ]
    filled = given.fill(["from one", {"b": ["2", one]}, None])
    assert [(call.path, call.function) for call in filled.calls] == [("memory[1].b[1]", one)]
    assert aggregate([filled.fill(["last"])]).render() == (
        "<docs>\nx\nfrom one\ny\n</docs>\n<memory>\n<a>1</a>\n<b>\n2\nlast\n</b>\n</memory>"
    )
    assert len(given.calls) == 3


def test_a_result_follows_the_rules():
    given = contribute("rag", {"docs": lambda: None})
    with pytest.raises(InvalidInput, match=r"context key 'docs.x.role' from 'rag': the tag name"):
        given.fill([{"x": {"role": "x"}}])
    with pytest.raises(TypeError, match="context key 'docs' from 'rag': cannot render type bytes"):
        given.fill([b"x"])
    with pytest.raises(InvalidInput, match="1 results are needed from 'rag', got 0"):
        given.fill([])


def test_a_whole_tree_may_be_a_callable():
    given = contribute("rag", lambda: None)
    assert [call.path for call in given.calls] == [""]
    assert aggregate([given.fill([{"a": "x"}])]).render() == "<a>\nx\n</a>"
    with pytest.raises(TypeError, match="the text 'x' from 'rag' has no tag; give it a key"):
        aggregate([given.fill(["x"])])


@pytest.mark.parametrize("wrong", [None, 5, contribute("a", {"x": "1"})])
def test_what_is_not_a_list_of_contributions_cannot_be_aggregated(wrong):
    with pytest.raises(InvalidType, match=r"cannot aggregate .*; give a list of contributions"):
        aggregate(wrong)


def test_values_of_lazy_types_are_left_to_the_door_like_callables():
    @dataclass
    class Later:
        text: str

    given = contribute("a", {"now": "x", "later": [Later("y")]}, (Later,))
    assert [(call.path, call.function) for call in given.calls] == [("later[0]", Later("y"))]
    again = given.fill([{"inner": Later("z")}])
    assert [call.path for call in again.calls] == ["later[0].inner"]
    assert aggregate([again.fill(["z"])]).render() == (
        "<now>\nx\n</now>\n<later>\n<inner>z</inner>\n</later>"
    )
