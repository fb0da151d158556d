"""The report as a table and as JSON."""

import re

from muntin import Slots
from muntin.core.report import COLUMNS, text_table
from muntin.view.html import html
from tests.view.sample import sample


def test_text_and_html_have_the_same_rows():
    window = sample()
    rows = window.report.rows()
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert str(window.report).splitlines()[2:] == list(text_table([COLUMNS, *rows], range(2, 8)))
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", html(window))]
    told = [cell.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for cell in cells]
    assert told == ["" if cell == "-" else cell for row in rows for cell in row]


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
    assert "over_budget" in lines[5]


def test_the_report_as_json_is_stable():
    data = sample().report.to_dict()
    assert list(data) == [
        "slots",
        "tokens",
        "budget",
        "fallback",
        "over_budget",
        "input_cut",
        "tools_tokens",
        "joined_tokens",
        "lead_tokens",
        "answer_tokens",
        "tokenizer",
        "not_carried",
        "prefix",
        "warnings",
        "counts",
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
        "fits_with": None,
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
