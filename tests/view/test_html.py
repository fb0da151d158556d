"""The window as HTML: whole, safe, and not too large."""

from html import escape
from html.parser import HTMLParser

from muntin import Attachment, Input, Slots, ToolCall, assistant, tool, user
from tests.view.sample import sample


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


def test_the_saved_file_strikes_through_the_calls_of_a_message_that_was_dropped(tmp_path):
    slots = Slots(60, tokenizer=len)
    called = assistant(tool_calls=[ToolCall("c1", "look", '{"n": 1}')])
    slots.add("history", [user("Where?"), called, tool("c1", "r" * 40), assistant("There.")])
    slots.add("input", Input("i" * 20))
    page = saved(slots.render(), tmp_path)
    assert "<pre><del>→ look({&quot;n&quot;: 1})</del></pre>" in page


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
