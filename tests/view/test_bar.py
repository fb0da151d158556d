"""The window as a person sees it."""

import re
from html import escape
from html.parser import HTMLParser

import pytest

from muntin import Attachment, Input, Slots, ToolCall, assistant, tool, user
from muntin.view.bar import bar, widths


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
        self.seen.add(tag)
        if tag != "meta":  # is never closed
            self.open.append(tag)

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
    assert "<pre>see</pre><pre>File: a&amp;b.pdf</pre>" in page


def saved(window, tmp_path):
    path = tmp_path / "window.html"
    window.save_html(path)
    return path.read_text(encoding="utf-8")


def test_the_saved_file_is_whole_and_loads_nothing(tmp_path):
    page = saved(sample(), tmp_path)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert page.startswith("<!doctype html>")
    assert "script" not in tags.seen
    assert tags.seen.isdisjoint({"img", "link", "iframe", "object"})
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_saved_file_strikes_through_what_was_cut_and_says_why(tmp_path):
    slots = Slots(100, tokenizer=len)
    slots.add(
        "docs", "k" * 30 + "z" * 40, max_tokens=30, trim_behavior="char", keep="head", priority=1
    )
    slots.add("history", [user("old" * 20), user("new" * 10)])
    slots.exclude("vouchers", reason="condition_false", detail="none asked for")
    slots.add("input", Input("i" * 20))
    page = saved(slots.render(), tmp_path)
    assert f"{'k' * 30}<del>{'z' * 40}</del>" in page
    assert f"<del>{'old' * 20}</del>" in page
    assert "dropped: over_budget" in page
    assert "condition_false: none asked for" in page


def test_the_saved_file_names_tools_and_what_a_request_could_not_carry(tmp_path):
    slots = Slots(100_000, tokenizer=len, tools=[{"name": "look_up"}])
    slots.add("input", Input("see", (Attachment("1", "a.mp4", 1, "video"),)))
    window = slots.render()
    window.openai()
    page = saved(window, tmp_path)
    assert "look_up" in page
    assert window.report.not_carried
    assert "Not carried" in page
    assert escape(window.report.not_carried[0].what) in page


def test_a_thousand_left_out_messages_do_not_swell_the_file(tmp_path):
    slots = Slots(100, tokenizer=len)
    slots.add("history", [user(f"message {n:06}") for n in range(5_000)])
    page = saved(slots.render(), tmp_path)
    assert len(page) < 200_000
    assert "older messages that were left out are not shown" in page


def test_a_long_text_is_cut_in_the_file_with_a_note(tmp_path):
    slots = Slots(10_000_000, tokenizer=len)
    slots.add("input", "x" * 5_000_000)
    page = saved(slots.render(), tmp_path)
    assert len(page) < 100_000
    assert "4,980,000 more characters" in page


def test_names_that_turn_the_direction_of_writing_do_so_only_in_themselves():
    slots = Slots(100, tokenizer=len)
    slots.add("\u202ename", "x" * 50)
    assert "<bdi>\u202ename</bdi> 50" in slots.render()._repr_html_()


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
