"""Recalled excerpts are seen for one turn and stay where they stood: they move no beginning."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muntin import App
from muntin.core.caching.cleared import CLEAR_AT
from muntin.providers import as_model
from muntin.runtime import reports
from muntin.testing import ScriptedModel
from tests.enforcing import CLEAR_AT as HEADER
from tests.enforcing import EnforcingProvider
from tests.products import IS_WHOLE
from tests.providers.servers import Answer, Received, serving

TOPICS = ("kettle", "toaster", "router", "sofa", "lamp", "bike", "phone")
TURNS, BUDGET = (100, 6_000) if IS_WHOLE else (28, 2_000)
BOUND, FREE = "claude-fable-5-1", "claude-opus-5"


def read(path: str) -> str:
    """Read a file."""
    return f"{path} is fine."


def question(turn: int) -> str:
    about, said = TOPICS[turn % 7], TOPICS[turn * 3 % 7]
    ask = f"Question {turn} about the {about} of order {turn // 7}: what was said of the {said}?"
    return f"{ask} {'detail ' * (20 if IS_WHOLE else 60)}"


async def _talk(url: str, model: str, store: str, turns: Sequence[int], **options: Any) -> None:
    given = as_model(f"anthropic/{model}", base_url=url, api_key="k", max_retries=0)
    tools = options.pop("tools", ())
    chat = App(store, model=given, **{"budget": BUDGET, **options}).conversation("c", tools=tools)
    for turn in turns:
        await chat.send(question(turn))


def talk(
    model: str, turns: int = TURNS, *, store: str = "memory:", period: int = 1, **options: Any
) -> EnforcingProvider:
    """Talk for so many turns."""
    provider = EnforcingProvider(period=period, thinking=8)
    with serving(provider.answer) as server:
        asyncio.run(_talk(server.url, model, store, range(turns), **options))
    return provider


def messages(provider: EnforcingProvider) -> list[list[dict[str, Any]]]:
    return [exchange.body["messages"] for exchange in provider.exchanges]


def cleared(request: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in request if CLEAR_AT in message]


@pytest.mark.parametrize("model", [BOUND, FREE])
def test_recall_moves_no_beginning_where_the_model_knows_texts_for_one_turn(model: str) -> None:
    run, without = talk(model), talk(model, recall=False)
    assert not run.refused
    assert not without.refused
    assert sum(bool(cleared(request)) for request in messages(run)) > TURNS // 4
    assert 1 <= without.moves <= run.moves <= without.moves + 1
    assert run.moves <= 8


def test_elsewhere_excerpts_stand_before_the_question_as_the_user_s() -> None:
    run = talk("claude-sonnet-4-6")
    assert not any(map(cleared, messages(run)))
    assert any("<recalled" in str(request[-1]["content"]) for request in messages(run))


def test_excerpts_stand_behind_their_question_and_stay_there_unchanged() -> None:
    requests = messages(talk(BOUND))
    pairs = [(old, new) for old, new in pairwise(requests)
             if cleared(old) and old[0] == new[0] and len(new) > len(old)]  # fmt: skip
    assert pairs
    for old, new in pairs:
        *_, asked, excerpts = old
        assert (asked["role"], excerpts["role"]) == ("user", "system")
        assert "<recalled" in excerpts["content"][0]["text"]
        place = len(old) - 1
        assert new[place] == excerpts
        assert [message["role"] for message in new[place + 1 :]] in (
            ["assistant", "user"], ["assistant", "user", "system"])  # fmt: skip


def test_the_header_of_the_beta_is_sent_with_them_and_only_then() -> None:
    provider = EnforcingProvider(period=1)
    seen: list[tuple[bool, str]] = []

    def answer(received: Received) -> Answer:
        is_used = bool(cleared(received.body["messages"]))
        seen.append((is_used, received.headers.get("anthropic-beta", "")))
        return provider.answer(received)

    with serving(answer) as server:
        asyncio.run(_talk(server.url, FREE, "memory:", range(20)))
    assert {is_used for is_used, _ in seen} == {True, False}
    assert all((HEADER in betas) is is_used for is_used, betas in seen)


def test_in_a_run_a_fresh_copy_stands_behind_each_new_result() -> None:
    run = talk(BOUND, 16, period=3, tools=[read], budget=2_500)
    assert not run.refused
    steps = [
        request
        for request in messages(run)
        if len(cleared(request[-4:])) == 2 and "tool_result" in str(request[-2])
    ]
    assert steps
    for request in steps:
        asked, old, call, results, fresh = request[-5:]
        roles = [message["role"] for message in (asked, old, call, results, fresh)]
        assert roles == ["user", "system", "assistant", "user", "system"]
        assert old == fresh


def test_old_excerpts_count_nothing() -> None:
    sizes: list[tuple[int, int]] = []

    def look(window: Any) -> str:
        texts = [m.text for m in window.messages if (m.extra or {}).get(CLEAR_AT)]
        sizes.append((len(texts), window.tokens - sum(s.tokens_kept for s in window.report.slots)))
        return "Yes. " * 8

    async def ask() -> None:
        model = ScriptedModel(look, name=f"anthropic/{BOUND}")
        chat = App("memory:", model=model, budget=BUDGET).conversation("c")
        for turn in range(TURNS):
            await chat.send(question(turn))

    asyncio.run(ask())
    assert max(count for count, _ in sizes) >= 3
    assert len({beside for _, beside in sizes}) <= 2  # the frame of the answer, not the excerpts


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_new_process_sends_them_again_and_a_lost_text_is_a_move(
    tmp_path: Path, is_lost: bool
) -> None:
    file = tmp_path / "talk.db"
    provider = EnforcingProvider(period=1, thinking=8)
    with serving(provider.answer) as server:
        for first in range(0, TURNS, TURNS // 4):
            turns = range(first, first + TURNS // 4)
            asyncio.run(_talk(server.url, BOUND, f"sqlite:///{file}", turns))
            reports._known.clear()  # as in a new process
            if is_lost:
                with sqlite3.connect(file) as database:
                    database.execute("DELETE FROM muntin_notes WHERE kind = 'cleared'")
    assert not provider.refused
    assert max(len(cleared(request)) for request in messages(provider)) >= 3
    if not is_lost:
        assert provider.moves <= talk(BOUND).moves
        with sqlite3.connect(file) as database:
            query = "SELECT count(*) FROM muntin_notes WHERE kind = 'cleared'"
            (kept,) = database.execute(query).fetchone()
        assert kept <= len(cleared(provider.exchanges[-1].body["messages"]))


def test_after_a_turn_without_an_answer_no_text_stands_between_two_questions() -> None:
    provider = EnforcingProvider(period=1, thinking=8)
    broken = {20, 21}

    def answer(received: Received) -> Answer:
        if len(provider.exchanges) in broken:
            broken.remove(len(provider.exchanges))
            return Answer(400, {"type": "error", "error": {"type": "x", "message": "no"}})
        return provider.answer(received)

    async def ask(url: str) -> int:
        given = as_model(f"anthropic/{BOUND}", base_url=url, api_key="k", max_retries=0)
        chat = App("memory:", model=given, budget=BUDGET).conversation("c")
        errors = 0
        for turn in range(TURNS):
            try:
                await chat.send(question(turn))
            except Exception:
                errors += 1
        return errors

    with serving(answer) as server:
        assert asyncio.run(ask(server.url)) == 2
    assert not provider.refused
