"""`muntin count --tools`: what tools cost, by toolbox and by rung."""

from __future__ import annotations

import json

import pytest

from tests.cli.command import fails, said
from tests.paths import ROOT
from tests.toolboxes import boxes

FILE = ROOT / "bench" / "toolboxes.json"
TOOL = {"name": "a", "description": "Does it. Slowly.", "inputSchema": {"type": "object"}}

pytestmark = pytest.mark.usefixtures("here")


def test_tools_by_toolbox_and_rung_and_what_an_index_costs():
    counted = json.loads(said("count", "--tools", FILE, "--json", "--tokenizer", "o200k_base"))
    assert list(counted["toolboxes"]) == [box["name"] for box in boxes()]
    assert counted["total"] == {"tools": 96, "full": 7_141, "lean": 5_785, "brief": 5_706}
    assert counted["index"] == {"lines": 1_247, "names": 364, "boxes": 156, "titles": 61}
    lines = said("count", "--tools", FILE, "--tokenizer", "o200k_base").splitlines()
    assert lines[0].split() == ["toolbox", "tools", "full", "lean", "brief"]
    assert lines[1].split() == ["github", "12", "1,112", "867", "847"]
    assert lines[11].split() == ["total", "96", "7,141", "5,785", "5,706"]
    assert lines[14].split()[:2] == ["names", "364"]
    assert lines[-1] == "96 tools, counted by o200k_base"


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"tools": [TOOL]}, ["mine"]),
        ([TOOL, {"type": "function", "function": {"name": "b"}}], ["mine"]),
        ({"one": [TOOL], "two": [{**TOOL, "name": "b"}]}, ["one", "two"]),
        ([{"name": "one", "tools": [TOOL]}], ["one"]),
    ],
)
def test_files_as_servers_and_programs_write_them(here, data, names):
    (here / "mine.json").write_text(json.dumps(data))
    counted = json.loads(said("count", "--tools", "mine.json", "--json"))
    assert list(counted["toolboxes"]) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no", "no JSON"),
        ("3", "expected a list of tools"),
        ("[]", "no tools"),
        ('{"tools": [3]}', "must be a schema with a name"),
        ('{"tools": [{"description": "x"}]}', "must be a schema with a name"),
        ('{"a": 3}', "expected a list of tools"),
    ],
)
def test_a_file_of_something_else_is_refused_by_name(here, text, why):
    (here / "mine.json").write_text(text)
    error = fails("count", "--tools", "mine.json")
    assert "mine" in error
    assert why in error


def test_tools_or_files_not_both_nor_none():
    assert "--tools" in fails("count", "--tools", FILE, FILE)
    assert "--tools" in fails("count")
