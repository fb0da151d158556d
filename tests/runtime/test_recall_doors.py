"""Recall in every door that recalls by itself: whose text it is, and what bad input costs."""

from __future__ import annotations

from typing import Any

import pytest

from muntin import App, InvalidInput, Recall, user
from muntin.testing import ScriptedModel
from muntin.timeline.items import SideWrites, Visibility, draft_of
from muntin.timeline.recall import shelf as shelves
from muntin.timeline.recall.shelf import shelf_of
from tests.products import sample
from tests.runtime.test_recall import (
    BROKEN,
    CHAT,
    INTERFACES,
    NEEDLE,
    QUESTION,
    awaited,
    chat,
    excerpts,
    model,
)

SOME = sample(INTERFACES, "conversation", "entity", "generator")
HIDDEN = Visibility(history=False)
# What each door keeps its talk under.
SESSIONS = {"entity": "helper/s"}


def session_of(door: str) -> str:
    return SESSIONS.get(door, "s")


@pytest.mark.parametrize("door", SOME)
@awaited
async def test_nothing_crosses_from_one_tenant_to_another(door):
    prefix = "helper/" if door == "entity" else ""
    async with App("memory:") as app:
        made = model()
        for number in range(30):
            for tenant in ("ada", "bob"):
                text = f"The {tenant}-secret-{number} of the locker. " + CHAT.format(number)
                await INTERFACES[door](app, made, text, session=f"{prefix}{tenant}")
        told: dict[str, str] = {}
        for tenant in ("ada", "bob"):
            question = "Which locker has the ada-secret-3, the bob-secret-3?"
            await INTERFACES[door](app, made, question, session=f"{prefix}{tenant}")
            told[tenant] = excerpts(made.windows[-1])
    assert "ada-secret-3 " in told["ada"]
    assert "bob-secret-3 " in told["bob"]
    for tenant, window in zip(("ada", "bob") * 31, made.windows, strict=True):
        other = "bob" if tenant == "ada" else "ada"
        assert f"{other}-secret" not in excerpts(window)


@pytest.mark.parametrize("door", SOME)
@awaited
async def test_hidden_items_and_turns_that_a_history_leaves_out_are_not_recalled(door):
    async with App("memory:") as app:
        session = app.session(session_of(door))
        hidden = NEEDLE.replace("QX7731", "ZZ8888")
        session.append(draft_of(user(hidden), visibility=HIDDEN, opens="turn", ends="completed"))
        passing = NEEDLE.replace("QX7731", "ZZ9999")
        session.append(draft_of(user(passing), transient=True, opens="turn", ends="completed"))
        made = model()
        window = await chat(INTERFACES[door], app, made)
    assert "QX7731" in excerpts(window)
    assert not any("ZZ" in message.text for each in made.windows for message in each.messages)


QUERIES = {
    "of signs": "?! … ---",
    "of stop words": "the and of",
    "in another script": "أين خزانتي؟ ห้องเก็บของ 🗝️",
    "without an end": "locker " + " ".join(f"word{n}" for n in range(300)),
    "of one letter": "\u0000x",
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("door", SOME)
@awaited
async def test_any_question_is_asked_in_a_window_that_fits(door, query):
    async with App("memory:") as app:
        made = model()
        await chat(INTERFACES[door], app, made, turns=25)
        await INTERFACES[door](app, made, QUERIES[query])
    window = made.windows[-1]
    assert window.messages[-1].text == QUERIES[query]
    assert window.tokens <= 4_000
    assert ("QX7731" in excerpts(window)) == (query == "without an end")
    assert window.anthropic()
    assert window.openai()


ENORMOUS = {
    "one word": "x" * 300_000,
    "the same words": "locker " + "word " * 60_000,
    "other words": "locker " + " ".join(f"w{n}" for n in range(30_000)),
}


@pytest.mark.parametrize("query", ENORMOUS)
@pytest.mark.parametrize("door", SOME)
@awaited
async def test_an_enormous_question_is_cut_and_what_is_recalled_never_takes_its_place(door, query):
    async with App("memory:") as app:
        made = model()
        await chat(INTERFACES[door], app, made, turns=15)
        await INTERFACES[door](app, made, ENORMOUS[query])
        window = made.windows[-1]
        assert window.tokens <= 4_000
        assert window.input_cut
        assert excerpts(window) == ""
        assert window.messages[-1].text.startswith(ENORMOUS[query][:100])
        told = window.report["recalled"]
        assert told.detail is not None
        assert told.tokens_kept == 0
        await INTERFACES[door](app, made, QUESTION)
        assert made.windows[-1].messages[-1].text == QUESTION


@pytest.mark.parametrize("door", SOME)
@awaited
async def test_a_blank_question_is_refused_before_anything_is_recalled(door):
    async with App("memory:") as app:
        made = model()
        await chat(INTERFACES[door], app, made, turns=3)
        before = len(made.windows), app.session(session_of(door)).messages()
        for blank in ("", " \n"):
            with pytest.raises(InvalidInput, match="is blank"):
                await INTERFACES[door](app, made, blank)
        assert (len(made.windows), app.session(session_of(door)).messages()) == before
        await INTERFACES[door](app, made, QUESTION)


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("door", SOME)
@awaited
async def test_an_embedder_that_is_broken_leaves_what_the_words_find(door, how):
    embed, why = BROKEN[how]
    settings = Recall(tokens=400, embed=embed, timeout=0.05 if how == "hangs" else 2.0)
    async with App("memory:", recall=settings) as app:
        made = model()
        await chat(INTERFACES[door], app, made, turns=25)
    assert made.windows[-1].messages[-1].text == QUESTION
    told = " ".join(str(each.report) for each in made.windows)
    assert why in told
    assert "QX7731" in excerpts(made.windows[-1])


@pytest.mark.parametrize("damage", ["muntin-recall-0:abc", "", "muntin-recall-2:%%%"])
@pytest.mark.parametrize("door", SOME)
@awaited
async def test_an_index_of_another_version_is_made_again(door, damage, tmp_path):
    found: list[str] = []
    made: ScriptedModel = model()
    async with App(f"sqlite:///{tmp_path / 'a.db'}") as app:
        shelf_of(app.store).segment = 16
        await chat(INTERFACES[door], app, made, turns=25)
        found.append(excerpts(made.windows[-1]))
        name = session_of(door)
        assert app.store.content(name, "recall_segment", "0")
        app.store.put(name, SideWrites(notes={("recall_segment", "0"): damage}))
        shelves._shelves.pop(app.store)
        shelf_of(app.store).segment = 16
        await INTERFACES[door](app, made, QUESTION)
        kept: Any = app.store.content(name, "recall_segment", "0")
    assert "QX7731" in found[0]
    assert "QX7731" in excerpts(made.windows[-1])
    assert kept.startswith("muntin-recall-2:")
    assert kept != damage
