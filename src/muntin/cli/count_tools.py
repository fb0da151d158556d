"""`muntin count --tools`: what tools cost, by toolbox and by rung."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muntin.cli.terminal import console, many, plain_table, safe
from muntin.cli.transcripts import read_bytes
from muntin.core.checks import compact_json, shown
from muntin.core.counting.counter import Counter
from muntin.core.toolboxes.offer import INDEX_RUNGS, write_index
from muntin.core.toolboxes.rungs import RUNGS, BoxedTool, as_boxed_tool
from muntin.errors import InvalidInput


def read_toolboxes(path: Path) -> tuple[list[BoxedTool], dict[str, str]]:
    """Read the tools of a file, and what their toolboxes are about.

    It holds a list of schemas, what an MCP server lists, toolboxes with `name` and `tools`, or a
    mapping of names to lists of schemas.
    """
    name = str(path)
    try:
        data = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name}: no JSON: {error}") from error
    if isinstance(data, Mapping) and isinstance(data.get("tools"), list):
        data = [{"name": path.stem, **data}]
    elif isinstance(data, Mapping):
        data = [{"name": box, "tools": tools} for box, tools in data.items()]
    elif isinstance(data, list) and not any(map(_is_box, data)):
        data = [{"name": path.stem, "tools": data}]
    if not isinstance(data, list) or not data or not all(_is_box(entry) for entry in data):
        raise InvalidInput(f"{name}: expected a list of tools, or of toolboxes with 'tools'")
    tools = []
    for box in data:
        for number, schema in enumerate(box["tools"]):
            tool = as_boxed_tool(schema, str(box["name"])) if isinstance(schema, Mapping) else None
            if tool is None or not tool.name:
                where = f"{name}: {box['name']}: tools[{number}]"
                raise InvalidInput(f"{where} must be a schema with a name, not {shown(schema)}")
            tools.append(tool)
    if not tools:
        raise InvalidInput(f"{name}: there are no tools in it")
    return tools, {str(box["name"]): str(box.get("about") or "") for box in data}


def _is_box(entry: Any) -> bool:
    return (
        isinstance(entry, Mapping)
        and isinstance(entry.get("tools"), list)
        and isinstance(entry.get("name"), str)
    )


def count_toolboxes(path: Path, counter: Counter) -> dict[str, Any]:
    """Return the tokens of tools at each rung, by toolbox and together, and of each index."""
    tools, about = read_toolboxes(path)
    boxes: dict[str, dict[str, int]] = {}
    for tool in tools:
        box = boxes.setdefault(tool.box, {"tools": 0, **dict.fromkeys(RUNGS, 0)})
        box["tools"] += 1
        for rung in RUNGS:
            box[rung] += counter.overhead + counter.text(compact_json(tool.at(rung)))
    texts = {rung: write_index(tools, about, rung) for rung in INDEX_RUNGS if rung != "none"}
    return {
        "file": str(path),
        "toolboxes": boxes,
        "total": {key: sum(box[key] for box in boxes.values()) for key in ("tools", *RUNGS)},
        "index": {rung: counter.text(text) for rung, text in texts.items()},
        "tokenizer": counter.name,
    }


def show_toolboxes(counts: Mapping[str, Any]) -> None:
    """Print the tables."""
    table = plain_table()
    table.add_column("toolbox", overflow="fold")
    for column in ("tools", *RUNGS):
        table.add_column(column, justify="right", no_wrap=True)
    rows = dict(counts["toolboxes"])
    if len(rows) > 1:
        rows["total"] = counts["total"]
    for name, row in rows.items():
        table.add_row(safe(name), *(f"{row[key]:,}" for key in ("tools", *RUNGS)))
    console().print(table)
    index = plain_table()
    index.add_column("index", no_wrap=True)
    index.add_column("tokens", justify="right", no_wrap=True)
    index.add_column("says", overflow="fold")
    for rung, tokens in counts["index"].items():
        index.add_row(rung, f"{tokens:,}", _SAYS[rung])
    console().print(index)
    tools = many(counts["total"]["tools"], "tool")
    console().print(safe(f"{tools}, counted by {counts['tokenizer']}"))


_SAYS = {
    "lines": "names with their first sentences",
    "names": "names by toolbox",
    "boxes": "toolboxes with what they are about",
    "titles": "toolboxes with their number of tools",
}
