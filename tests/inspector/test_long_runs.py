"""A long run in the inspector: levels, summaries, what was billed, what the cache was read for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from muntin import App, Summary, ToolCall, Window
from muntin.inspector import data
from muntin.inspector.plans import Plans
from muntin.providers.model import Reply, Usage
from muntin.testing import ScriptedModel
from muntin.timeline.store import Store, open_store
from tests.inspector.conftest import apart, inspecting, picture, until
from tests.words import read_file

NAME = "anthropic/claude-sonnet-4-5"
SESSION = "agent/long"


class Billed(ScriptedModel):
    """Says that the cache had nothing from the 30th request on."""

    async def complete(self, window: Window, **given: Any) -> Reply:
        reply = await super().complete(window, **given)
        prefix = window.report.prefix
        read = 0 if len(self.windows) > 30 or prefix is None else prefix.tokens
        usage = Usage(window.tokens, 10, cache_read=read)
        return Reply(reply.message, usage=usage, finish_reason=reply.finish_reason)


async def live(url: str) -> None:
    calls = 0

    def answer(window: Window) -> Any:
        nonlocal calls
        calls += 1
        if not calls % 6:
            return "Done with this part of it. " * 20
        return ToolCall(f"call_{calls}", "read_file", json.dumps({"path": f"f{calls}"}))

    model = Billed(answer, name=NAME, budget=6_000)
    summariser = ScriptedModel(lambda window: "The files so far hold nothing of note.")
    async with App(url, model=model, summary=Summary(summariser, max_tokens=200)) as app:
        talk = app.conversation(SESSION, tools=[read_file])
        for part in range(14):
            await talk.send(f"Please do part {part}. " + "As we agreed, be thorough. " * 20)
            while any("_make" in repr(task) for task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "a.db"
    apart(lambda: asyncio.run(live(f"sqlite:///{path}")))
    return path


@pytest.fixture
def store(lived: Path) -> Any:
    with open_store(f"sqlite:///{lived}") as opened:
        yield opened


def windows(store: Store) -> list[dict[str, Any]]:
    return [json.loads(each.report) for each in store.reports(SESSION)]


def decided(record: Any) -> list[str]:
    slots = json.loads(record.report)["slots"]
    return [each["status"] for slot in slots for each in slot["decisions"]]


def last_stubbed(store: Store) -> Any:
    """Return the newest record with a group as one line, and a summary."""
    found = [each for each in store.reports(SESSION) if "stubbed" in decided(each)]
    return [each for each in found if '"reason":"summary"' in each.report][-1]


def test_levels_and_the_summary_are_in_the_data(store):
    record = last_stubbed(store)
    told = data.messages(Plans(store), SESSION, record.turn, record.step, limit=100)
    states = [line.get("state") for line in told["lines"]]
    assert "stubbed" in states
    shown = [line for line in told["lines"] if line.get("place") is not None]
    text = "".join(piece["text"] for line in shown for piece in line["pieces"] if not piece["cut"])
    assert "<summary until=" in text


def test_what_was_billed_is_told_apart(store):
    used = data.usage(Plans(store), SESSION)
    assert used["summaries"]["input"] > 0
    assert used["answers"]["output"] == 10 * len(windows(store))
    assert [line.partition(":")[0] for line in used["words"]] == [
        "billed for answers",
        "price of the answers",
        "billed for summaries",
    ]


def test_the_page_shows_levels_the_summary_the_claim_and_what_was_read(page, store):
    record = last_stubbed(store)
    prefix = json.loads(record.report)["prefix"]
    assert prefix["tokens"] > 1_000
    assert prefix["reported"]["read"] == 0
    with inspecting(store) as inspector:
        page.goto(inspector.link(SESSION, f"/{record.turn}.{record.step}"))
        page.wait_for_selector(".message")
        told = page.text_content(".prefix")
        assert f"{prefix['tokens']:,} tokens" in told
        assert "the provider read 0." in told
        (sentence,) = page.locator("[data-differs]").all_text_contents()
        assert sentence.startswith("The provider read 0 of")
        missing = f"{prefix['tokens']:,} that are shared with the request before were not read."
        assert sentence.endswith(missing)
        count = sum(each == "stubbed" for each in decided(record))
        assert page.text_content("[data-level=stubbed]").split()[0] == str(count)
        assert "a summary of" in page.text_content("[data-level=summary]")
        assert page.locator(".message .status.stubbed").count()
        assert "<summary until=" in page.text_content(".messages")
        picture(page, "long-run")
        page.goto(inspector.link(SESSION, f"/{record.turn}.{record.step}?view=session"))
        until(page, "document.querySelectorAll('[data-usage]').length === 3")
        assert "billed for summaries" in page.text_content(".facts")
        picture(page, "long-run-session")
