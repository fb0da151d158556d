"""Windows with toolboxes are stored with their receipt, and planned again from it as they were."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from muntin import App
from muntin.runtime import read_plan
from tests.runtime.test_found_tools_wires import CHAT, CLAUDE, SCRIPT, scripted
from tests.toolboxes import toolboxes


@pytest.mark.parametrize("name", [CLAUDE, CHAT])
def test_a_stored_window_is_planned_again_as_it_was(name):
    async def go() -> list[tuple[Any, Any, Any]]:
        model = scripted(SCRIPT, name, 8_000)
        async with App("memory:", model=model) as app:
            for text in ("Make a PDF", "And b"):
                talk = app.conversation("ada", tools=toolboxes(), system_prompt="Help.")
                await talk.send(text)
            content = app.store.content
            return [
                (
                    json.loads(record.report),
                    read_plan(
                        json.loads(record.plan),
                        lambda name: content("ada", "report", name),
                        report=json.loads(record.report),
                    ),
                    window,
                )
                for record, window in zip(app.store.reports("ada"), model.windows, strict=True)
            ]

    for report, plan, window in asyncio.run(go()):
        assert plan.window().messages == window.messages
        assert report["tokens"] == window.tokens
        statuses = [tool["status"] for tool in report["tools"]]
        assert "declared" in statuses
        assert sum(tool["count"] for tool in report["tools"]) == 97
        assert len(json.dumps(report["tools"])) < 16_000
        (row,) = [row for row in report["slots"] if row["name"] == "(tool index)"]
        assert row["detail"].endswith("96 tools in 10 toolboxes")
