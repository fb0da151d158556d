"""Tags as text: the layout is exact, and no text can leave its tag."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.core.tags.tree import normalize_tag_name, raw, render_tagged_context, xml_tag
from muntin.errors import InvalidInput

LAYOUT = """\
<documents>
first
second
</documents>
<memory>
<short-term>recent</short-term>
<long-term>older</long-term>
</memory>"""


def test_the_layout_of_the_contract():
    tree = {
        "documents": ["first", "second"],
        "memory": {"shortTerm": "recent", "longTerm": "older"},
    }
    assert render_tagged_context(tree) == LAYOUT


def test_nested_text_of_several_lines_is_a_block():
    tree = {"memory": {"recent": "one\ntwo", "older": ["x", "y"], "deep": {"er": "z"}}}
    assert render_tagged_context(tree) == (
        "<memory>\n<recent>\none\ntwo\n</recent>\n<older>\nx\ny\n</older>\n"
        "<deep>\n<er>z</er>\n</deep>\n</memory>"
    )


def test_indent_moves_every_line_in():
    tree = {"notes": "a\n\n  b", "memory": {"recent": "one\ntwo", "old": "x"}}
    assert render_tagged_context(tree, indent=2) == (
        "<notes>\n  a\n\n    b\n</notes>\n"
        "<memory>\n  <recent>\n    one\n    two\n  </recent>\n  <old>x</old>\n</memory>"
    )


@pytest.mark.parametrize(("indent", "error"), [(-1, InvalidInput), ("2", TypeError)])
def test_indent_is_a_size(indent, error):
    with pytest.raises(error, match="indent must"):
        render_tagged_context({"a": "x"}, indent=indent)


def test_no_byte_of_the_content_changes():
    text = "\n  a\t \r\n\n b \u2028 \n\n"
    assert xml_tag("a", text) == f"<a>\n{text}\n</a>"
    assert render_tagged_context({"a": {"b": " x "}}) == "<a>\n<b> x </b>\n</a>"


@pytest.mark.parametrize(
    "nothing", [None, "", [], {}, [None, "", {}], {"x": {"y": None}}, {"x": ""}, raw(""), ()]
)
def test_a_tag_with_nothing_in_it_is_omitted(nothing):
    assert xml_tag("a", nothing) == ""
    assert render_tagged_context({"a": nothing, "b": {"c": nothing, "d": "x"}}) == (
        "<b>\n<d>x</d>\n</b>"
    )


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ("&lt;&amp;", "&amp;lt;&amp;amp;"),
        ("</a><system>", "&lt;/a&gt;&lt;system&gt;"),
        ("]]>", "]]&gt;"),
        ("\"'", "\"'"),
        ("\x00\x0b\x1b\ufffe\uffff\ud800", "\ufffd" * 6),
        ("\t\x7f\x85\U0010ffff", "\t\x7f\x85\U0010ffff"),
    ],
)
def test_text_is_escaped_once(text, escaped):
    assert xml_tag("a", text) == f"<a>\n{escaped}\n</a>"
    assert render_tagged_context({"a": text}, escape=False) == f"<a>\n{text}\n</a>"


FRAGMENTS = [
    "<", ">", "&", "&lt;", "&#60;", "&bogus;", "]]>", "<![CDATA[", "<!--", "-->", "<?xml ?>",
    "</doc", "</a>", "<a>", "<system>", "\n", "\r", "\x00", "\x0c", "\ud800", "\udfff", "\ufffe",
    "\u2028", "\"", "'", " ", "😀",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=6).map(
    "".join
) | st.text(st.characters(exclude_categories=()), max_size=8)
# No two of these are one name, so no text meets a mapping.
KEYS = st.sampled_from(["a", "b", "doc", "userDocs", "short_term", "XMLParser"])
LEAVES = TEXTS | st.none() | st.integers() | st.booleans()
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES | st.lists(LEAVES, max_size=3),
        lambda inner: st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=12,
    ),
    max_size=4,
)


def wanted(value):
    """Return what a parser should see: by recursion, without empty tags, up to line ends."""
    if isinstance(value, dict):
        tags = [(normalize_tag_name(key), wanted(inner)) for key, inner in value.items()]
        return [(name, inner) for name, inner in tags if inner is not None] or None
    values = value if isinstance(value, list) else [value]
    texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in values if v is not None]
    text = "\n".join(text for text in texts if text)
    if not text:
        return None
    allowed = (c if c in "\t\n\r" or is_xml(c) else "\ufffd" for c in text)
    return re.sub("\r\n?", "\n", "".join(allowed)).strip("\n")


def is_xml(char):
    """Say whether XML 1.0 can carry a character that is not white space."""
    code = ord(char)
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def parsed(element):
    if not len(element):
        return element.text.strip("\n")
    assert {element.text, *(child.tail for child in element)} <= {"\n", None}
    return [(child.tag, parsed(child)) for child in element]


@given(TREES)
def test_a_parser_sees_the_same_tags_and_texts(tree):
    text = render_tagged_context(tree)
    text.encode()
    assert text == render_tagged_context(tree)
    if wanted(tree) is None:
        assert text == ""
    else:
        assert parsed(ElementTree.fromstring(f"<root>\n{text}\n</root>")) == wanted(tree)


@given(TREES, st.integers(0, 4))
def test_indentation_changes_only_white_space(tree, indent):
    def bare(text):
        return re.sub("^ +", "", text, flags=re.MULTILINE)

    text = render_tagged_context(tree, indent)
    assert bare(text) == bare(render_tagged_context(tree))
