"""LiteLLM: the hook of the SDK and of the proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import pytest

from bench.frameworks.litellm import schemas
from bench.frameworks.stage import Stage, played
from muntin.errors import BudgetExceeded
from muntin.fitting import Fitted, Fitter
from muntin.integrations.litellm import FRONTIER, MuntinHook
from muntin.timeline.store import open_store
from tests.integrations.contract import BUDGET, check, check_fits, check_same_bytes

LONG = "A sentence that says nothing. " * 40


def test_every_request_is_valid_and_fits(whole):
    check_fits(whole)


def test_the_same_bytes_are_sent_after_a_restart(whole, tmp_path):
    check_same_bytes("litellm", tmp_path, whole)


def test_the_hook_fits_what_acompletion_streams(monkeypatch):
    stage = Stage(played(3), BUDGET, check=check)
    monkeypatch.setattr(litellm, "callbacks", [MuntinHook(BUDGET)])
    talk = [{"role": "user", "content": f"{n} {LONG}"} for n in range(40)]

    async def run(url: str) -> str:
        answer = await litellm.acompletion(
            model="openai/gpt-5",
            messages=[*talk, {"role": "user", "content": stage.script.turns[1].text}],
            tools=schemas(stage.script),
            api_base=f"{url}/v1",
            api_key="none",
            stream=True,
        )
        return "".join([each.choices[0].delta.content or "" async for each in answer])

    stage.begin(stage.script.turns[1])
    with stage.open() as url:
        assert asyncio.run(run(url)) == stage.script.turns[1].answer
    row = stage.score.row("hook")
    assert (row.requests, row.invalid, row.over, row.question_lost) == (1, 0, 0, 0)
    assert len(stage.requests[0]["messages"]) < len(talk)


def test_messages_come_back_as_the_objects_they_were():
    messages: list[Any] = [
        {"role": "user", "content": "Hi"},
        litellm.Message(content="Hello", role="assistant", thinking_blocks=[{"type": "thinking"}]),
        {"role": "user", "content": "Bye", "cache_control": {"type": "ephemeral"}},
    ]
    sent = MuntinHook(1_000).fitted({"model": "gpt-5", "messages": messages})["messages"]
    assert all(one is other for one, other in zip(sent, messages, strict=True))


def test_what_cannot_be_read_is_carried_counted_and_named():
    told: list[Fitted] = []
    odd = {"role": "critic", "content": "x" * 400}
    messages = [{"role": "user", "content": "Hi"}, odd, {"role": "user", "content": "So?"}]
    sent = MuntinHook(1_000, on_fit=told.append).fitted({"model": "m", "messages": messages})
    assert sent["messages"][1] is odd
    assert "critic" in told[0].unread[0]


def test_other_calls_pass():
    given = {"model": "text-embedding-3", "input": "Hi"}
    assert asyncio.run(MuntinHook(10).async_pre_call_deployment_hook(given, "embedding")) is None
    assert MuntinHook(10).fitted(given) == given


def test_a_budget_smaller_than_the_system_text_is_an_error_that_says_so():
    messages = [{"role": "system", "content": LONG}, {"role": "user", "content": "Hi"}]
    with pytest.raises(BudgetExceeded):
        MuntinHook(50).fitted({"model": "gpt-5", "messages": messages})


def test_a_frontier_of_another_conversation_is_left_aside_and_the_report_says_so():
    told: list[Fitted] = []
    hook = MuntinHook(500, on_fit=told.append)
    for name in ("one", "other"):
        said = [{"role": "user", "content": f"{name} {n} {LONG}"} for n in range(10)]
        metadata = {FRONTIER: told[0].frontier} if told else {}
        hook.fitted({"model": "gpt-5", "messages": said, "metadata": metadata})
    assert [bool(each.fresh) for each in told] == [False, True]


def test_a_conversation_is_recorded_under_the_caller_s_name():
    store = open_store("memory:")
    hook = MuntinHook(Fitter(1_000, store=store))
    names: list[dict[str, Any]] = [
        {"litellm_session_id": "ada/1"},
        {"metadata": {"session_id": "bob/1"}},
        {"metadata": {"thread_id": "carl/1", "user_id": "carl"}},
    ]
    for given in names:
        said = [{"role": "user", "content": f"I am {given}"}]
        hook.fitted({"model": "gpt-5", "messages": said, **given})
    assert sorted(info.id for info in store.sessions()) == ["ada/1", "bob/1", "carl/1"]
