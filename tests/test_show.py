"""The window as a person sees it."""

import re
from html.parser import HTMLParser

import pytest

from muntin import Attachment, Input, Slots, ToolCall, assistant, tool, user
from muntin.show import bar, widths


def sample():
    slots = Slots(100, tokenizer=len, tools=[{"n": 1}])
    slots.add("system", "s" * 20)
    slots.add("history", [user("a" * 25), user("<script>alert(1)</script>12345")])
    slots.add("<b>&", None)
    slots.add("input", Input("i" * 20))
    return slots.render()


def test_the_bar_has_the_width_asked_for_and_a_legend_that_adds_up():
    line, legend = bar(sample(), width=60, colour=False).split("\n")
    assert len(line) == 60
    assert sum(int(number) for number in re.findall(r"(\d+)(?:   |$)", legend)) == 100


def test_colours_are_only_used_when_asked_for():
    assert "\x1b" not in bar(sample(), colour=False)
    assert "\x1b[38;5;" in bar(sample())


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ([], 10, []),
        ([1, 1], 10, [5, 5]),
        ([99, 1], 10, [9, 1]),
        ([1000, 1, 1], 10, [8, 1, 1]),
        ([1, 2], 9, [3, 6]),
        ([5, 5, 5], 2, [1, 1, 1]),
    ],
)
def test_columns_are_divided_in_proportion_and_nobody_vanishes(sizes, total, expected):
    assert widths(sizes, total) == expected


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_in_a_notebook_the_window_draws_itself_and_content_cannot_become_markup():
    page = sample()._repr_html_()
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.seen
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;&amp;" in page


def test_tool_calls_and_files_are_shown_with_their_message():
    slots = Slots(100_000, tokenizer=len)
    call = ToolCall("c", "look_up", '{"city": "<Oslo>"}')
    slots.add("history", [assistant("", tool_calls=[call]), tool("c", "found")])
    slots.add("input", Input("see", (Attachment("1", "a&b.pdf", 1, "document"),)))
    page = slots.render()._repr_html_()
    assert "→ look_up({&quot;city&quot;: &quot;&lt;Oslo&gt;&quot;})" in page
    assert "see\nFile: a&amp;b.pdf" in page


def test_the_report_is_a_table_with_a_line_a_slot():
    lines = str(sample().report).splitlines()
    assert lines[0] == "77 of 100 tokens (77%), counted by len"
    assert [line.split()[0] for line in lines[4:]] == [
        "system",
        "history",
        "<b>&",
        "input",
        "(tools)",
    ]
    assert "over_budget, needs +" in str(sample().report)


def test_the_report_as_json_is_stable():
    data = sample().report.to_dict()
    assert list(data) == [
        "slots",
        "tokens",
        "budget",
        "fallback",
        "over_budget",
        "tools_tokens",
        "joined_tokens",
        "lead_tokens",
        "tokenizer",
        "not_carried",
        "prefix",
    ]
    assert list(data["slots"][0]) == [
        "name",
        "index",
        "status",
        "reason",
        "detail",
        "priority",
        "tier",
        "floor",
        "cap",
        "tokens_asked",
        "tokens_kept",
        "asked_is_estimate",
        "messages_asked",
        "messages_kept",
        "decisions",
    ]
    assert data["slots"][1]["decisions"][0] == {
        "first": 0,
        "count": 1,
        "status": "dropped",
        "reason": "over_budget",
        "tokens_asked": 25,
        "tokens_kept": 0,
        "rank": 1,
        "fits_with": 2,
    }


def test_the_report_keeps_its_columns_with_wide_and_multi_line_names():
    slots = Slots(100, tokenizer=len)
    for name in ("历史记录", "a\nb\x1b", "e\u0301", "plain"):
        slots.add(name, "x")
    lines = str(slots.render().report).split("\n")[2:]
    assert len(lines) == 6
    assert [line.partition(" ")[0] for line in lines[2:]] == [
        "历史记录", "a\\nb\\x1b", "e\u0301", "plain",
    ]  # fmt: skip
    # Four wide characters take four columns more than len says, one accent one less.
    starts = [line.index("kept") for line in lines[2:]]
    assert starts == [starts[3] - 4, starts[3], starts[3] + 1, starts[3]]
