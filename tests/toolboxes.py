"""Toolboxes for tests and measurements: 96 tools in ten boxes, from bench/toolboxes.json."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache, partial
from typing import Any

from muntin import Tool, Toolbox
from tests.paths import ROOT


@cache
def boxes() -> list[dict[str, Any]]:
    """Return the toolboxes as the file has them."""
    text = (ROOT / "bench" / "toolboxes.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def declared(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool of the file as it is declared."""
    return {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["inputSchema"],
    }


def schemas() -> list[dict[str, Any]]:
    """Return the schemas of all tools."""
    return [declared(tool) for box in boxes() for tool in box["tools"]]


def run(called: str, **arguments: Any) -> str:
    """Say which tool ran."""
    return f"{called} ran with {json.dumps(arguments, sort_keys=True)}"


def functions(box: dict[str, Any], without: Collection[str] = ()) -> list[Tool]:
    """Return the tools of a box as tools that can be run."""
    return [
        Tool(
            partial(run, tool["name"]),
            name=tool["name"],
            description=tool["description"],
            parameters=tool["inputSchema"],
        )
        for tool in box["tools"]
        if tool["name"] not in without
    ]


def toolboxes(without: Collection[str] = ()) -> list[Toolbox]:
    """Return all toolboxes, with tools that say that they ran."""
    return [Toolbox(b["name"], functions(b, without), about=b["about"]) for b in boxes()]
