"""Contexts of a prompt go from the lowest priority until the rest fits; but one that cannot fit
even alone beside the pinned ones takes nobody with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import App, config, context, generate, generate_sync, generator, prompt
from muntin.testing import ScriptedModel
from tests.products import NAMES, PRICED


def bot(sizes: dict[str, int], own: int = 3, **options: Any) -> Any:
    """Return a prompt whose contexts are named after their letter and their priority: `a10`."""
    uses = [
        context(id=name, system=name[0] * size, priority=int(name[1:]))
        for name, size in sizes.items()
    ]
    return prompt(use=uses, system="o" * own, **options)


def look(made: Any, **options: Any) -> tuple[list[str], list[str]]:
    """Return what was kept, and what was dropped, the least protected first."""
    shown = made.inspect_sync(tokenizer=len, **options)
    kept = [part.source for part in shown.system.parts if part.status == "kept"][1:]
    return (
        [source.removeprefix("context:") for source in kept],
        [each.source.removeprefix("context:") for each in shown.dropped_contexts],
    )


@pytest.mark.parametrize(
    ("sizes", "budget", "kept", "dropped"),
    [
        # A document too large for the budget empties nothing.
        ({"a10": 10, "b20": 10, "c90": 101}, 100, ["a10", "b20"], ["c90"]),
        # Pinned text leaves too little room for it.
        ({"a10": 10, "p100": 60, "c90": 40}, 100, ["a10", "p100"], ["c90"]),
        # Neither do two of them.
        ({"a10": 10, "b95": 200, "c90": 101}, 100, ["a10"], ["c90", "b95"]),
        # One that fits alone takes those below it with it, as it always did.
        ({"a10": 10, "b20": 10, "c90": 90}, 100, ["c90"], ["a10", "b20"]),
        # It fits exactly: own 3, a blank line of 2, and 95.
        ({"a10": 10, "c90": 95}, 100, ["c90"], ["a10"]),
        ({"a10": 10, "c90": 96}, 100, ["a10"], ["c90"]),
        # When the large one is gone, the rest goes by priority.
        ({"a10": 60, "b20": 60, "c90": 101}, 100, ["b20"], ["a10", "c90"]),
    ],
)
def test_what_cannot_fit_even_alone_takes_nobody_with_it(sizes, budget, kept, dropped):
    assert look(bot(sizes), token_budget=budget) == (kept, dropped)
    asked = bot(sizes, prompt="p" * 50)
    assert look(asked, budget=budget + 50) == (kept, dropped)  # of the whole request


async def by_generate(made: Any, model: ScriptedModel) -> None:
    await generate(made, model=model)


async def by_generator(made: Any, model: ScriptedModel) -> None:
    await generator(model=model, prompt=made).run({}, app=App("memory:"), session="g")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("interface", [by_generate, by_generator])
def test_the_model_is_sent_what_fits(interface, name):
    model = ScriptedModel(["yes"], budget=150, name=name)

    async def main() -> None:
        with config.local(tokenizer=len):
            await interface(bot({"a10": 10, "b20": 10, "c90": 101}, prompt="p" * 50), model)

    asyncio.run(main())
    sent = model.windows[0].openai()["messages"]
    assert sent[0]["content"] == "ooo\n\n" + "a" * 10 + "\n\n" + "b" * 10
    assert sent[1]["content"] == "p" * 50


@pytest.mark.parametrize("name", NAMES)
def test_the_same_contexts_are_sent_whatever_the_user_says(name):
    sizes = {"a99": 53, "b50": 20, "c99": 36}
    assert look(bot(sizes, own=19), token_budget=93) == (["c99"], ["b50", "a99"])
    for text in ("hi", "h" * 500):
        model = ScriptedModel(["yes"], name=name)
        with config.local(tokenizer=len):
            generate_sync(bot(sizes, own=19, prompt=text), model=model, token_budget=93)
        (system, _) = model.windows[0].openai()["messages"]
        assert system["content"] == "o" * 19 + "\n\n" + "c" * 36


def test_a_cached_context_has_a_mark_of_its_own_beside_text_made_for_each_request():
    blocks = []
    for number in range(3):
        brand = context(id="brand", system="Brand. " * 1_200, cache=True)
        now = context(id="now", system=f"Retrieved passage {number}. " * 100)
        model = ScriptedModel(["yes"], name=PRICED)
        generate_sync(prompt(use=[now, brand], system="You write.", prompt="q"), model=model)
        first, _ = model.windows[0].anthropic()["system"]
        assert "Brand." in first["text"]
        blocks.append(first)
    assert blocks == [{**blocks[0], "cache_control": {"type": "ephemeral"}}] * 3


SIZES = st.lists(st.tuples(st.integers(1, 40), st.sampled_from([10, 20, 50, 100])), max_size=8)


@given(SIZES, st.integers(1, 80))
def test_the_window_is_that_of_the_prompt_without_what_is_too_large(sizes, budget):
    named = {f"{chr(97 + n)}{priority}": size for n, (size, priority) in enumerate(sizes)}
    pinned = [size for name, size in named.items() if name.endswith("100")]
    room = budget - 3 - sum(size + 2 for size in pinned)
    large = {name for name, size in named.items() if size + 2 > room and not name.endswith("100")}
    whole = look(bot(named), token_budget=budget)
    rest = {name: size for name, size in named.items() if name not in large}
    alone = look(bot(rest), token_budget=budget)
    assert whole[0] == alone[0]
    assert set(whole[1]) == large | set(alone[1])
    assert [name for name in whole[1] if name not in large] == alone[1]
    priorities = [int(name[1:]) for name in whole[1]]
    assert priorities == sorted(priorities)
