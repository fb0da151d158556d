"""Inspections show what would be sent, and agree with what is resolved."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muntin import MuntinError, context, prompt
from tests.prompts.conftest import dropped, later, look, nothing_left_behind, schema


def test_inspect_shows_parts_in_use_order_with_tokens_and_status():
    p = prompt(
        system="own",
        use=[
            context(id="a", system="aaaa"),
            context(id="b", priority=1, system="bbbbb"),
            context(id="c", system="cccccc"),
        ],
        prompt="question",
    )
    shown = look(p, token_budget=20)
    assert [(part.source, part.text, part.tokens, part.status) for part in shown.system.parts] == [
        ("prompt", "own", 3, "kept"),
        ("context:a", "aaaa", 4, "kept"),
        ("context:b", "bbbbb", 5, "dropped"),
        ("context:c", "cccccc", 6, "kept"),
    ]
    assert shown.total_tokens == 17
    assert shown.token_budget == 20
    assert shown.prompt == "question"
    assert shown.prompt_tokens == 8
    assert shown.tool_tokens == 0


def test_inspect_and_resolve_agree():
    p = prompt(
        system="own",
        use=[context(id="a", system="a" * 10), context(id="b", priority=9, system="b" * 10)],
        prompt="ask",
        tools=[schema("t")],
        settings={"temperature": 1},
        adapt={"x": {"append_system": "after", "prepend_prompt": "now ", "settings": {"k": 1}}},
    )
    options: dict[str, Any] = {
        "tokenizer": len,
        "token_budget": 30,
        "provider": "x",
        "settings": {"top_p": 1},
    }
    shown, resolved = p.inspect_sync(**options), p.resolve_sync(**options)
    assert dropped(shown) == ["context:b"]
    assert shown.system.text == resolved.system == "own\n\naaaaaaaaaa\n\nafter"
    assert shown.prompt == resolved.prompt == "now ask"
    assert shown.settings == resolved.settings == {"temperature": 1, "k": 1, "top_p": 1}
    assert list(shown.tools) == ["t"]
    assert list(resolved.tools) == [schema("t")]
    assert shown.over_budget is resolved.window.over_budget is False


def test_the_asynchronous_calls_give_the_same():
    p = prompt(system="own", use=[context(id="a", system=later)], prompt="ask")

    async def both():
        return await p.inspect(tokenizer=len), await p.resolve(tokenizer=len)

    shown, resolved = asyncio.run(both())
    assert shown.system.text == resolved.system == p.resolve_sync(tokenizer=len).system
    assert shown.system.text == "own\n\nlater"


@pytest.mark.parametrize("name", ["inspect", "resolve"])
def test_a_sync_twin_inside_a_running_loop_is_a_clear_error(name):
    p = prompt(system=later)

    async def inside():
        getattr(p, f"{name}_sync")()

    with nothing_left_behind(), pytest.raises(MuntinError, match=rf"await .*{name}\("):
        asyncio.run(inside())


def test_a_sync_twin_works_in_a_thread_beside_a_running_loop():
    p = prompt(system=later)

    async def beside():
        return await asyncio.to_thread(p.resolve_sync)

    assert asyncio.run(beside()).system == "later"
