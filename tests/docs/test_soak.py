"""The long tests: what they run is there, and the page tells what came out."""

from __future__ import annotations

import re

from tools.soak import BEGIN, END, PAGE, ROOT, parts, summed, table, written


def test_every_part_runs_what_is_there() -> None:
    for name, part in parts(20_000).items():
        paths = [each for each in part.command if each.startswith("tests/")]
        modules = [each for each in part.command if each.startswith("tools.")]
        assert paths or modules, name
        assert all((ROOT / each).exists() for each in paths), name
        assert all((ROOT / f"{each.replace('.', '/')}.py").exists() for each in modules), name


def test_what_was_printed_is_summed() -> None:
    printed = "15 passed, 2 warnings in 3.21s\n== 1 failed, 3 passed, 9 deselected in 3.00s ==\n"
    assert summed(printed) == "18 passed, 1 failed"
    assert summed("langchain.md: runs (3 s)\nlitellm.md: FAILS: no (1 s)\n") == (
        "1 pages run, 1 pages fail"
    )
    assert summed("make: no such file") == "nothing ran"


def test_a_table_replaces_the_one_before() -> None:
    row = {
        "what": "many kills",
        "came": "3 passed",
        "ok": False,
        "seconds": 61,
        "date": "2026-11-16",
    }
    made = table({"loop": row})
    assert "| `loop` | many kills | **failed**: 3 passed | 1:01 | 2026-11-16 |" in made
    assert written(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\nnew\n{END} b"


def test_the_page_has_a_row_of_every_part_and_none_failed() -> None:
    _, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    told, _, _ = rest.partition(END)
    assert re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE) == list(parts(20_000))
    assert "**failed**" not in told
