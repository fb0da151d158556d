"""A message that arrived before the run of the turn before it is shown behind that run's answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from muntin import App, assistant, user
from muntin.testing import ScriptedModel
from muntin.timeline import Draft, Session, open_store
from muntin.timeline.items import Claim, draft_of
from muntin.timeline.store import Store
from tests.interfaces import DURABLE

SAID = ["first?", "To the first.", "second?", "To the second."]


def interleaved(store: Store, session: str) -> None:
    """Write two turns; the second begins before the run of the first."""

    def begin(text: str, owner: str) -> None:
        store.append(session, [draft_of(user(text), opens="queue")], claim=Claim(owner))

    def answer(turn: int, owner: str, text: str) -> None:
        claim = Claim(owner, 1)
        (run,) = store.append(session, [Draft("run", payload={}, turn=turn)], claim=claim)
        told = draft_of(assistant(text), turn=turn, run=run.position, ends="completed")
        store.append(session, [told], claim=claim)

    begin(SAID[0], "one")
    begin(SAID[2], "two")
    answer(1, "one", SAID[1])
    assert store.take(session, "two", timedelta(hours=1), number=2) is not None
    answer(2, "two", SAID[3])


async def session_of(interface: str) -> str:
    """Return the session that an interface writes to."""
    model = ScriptedModel(lambda window: "Yes.")
    app = App("memory:", model=model)
    await DURABLE[interface](app, model, "hello", [])
    (info,) = app.store.sessions()
    await app.close()
    return info.id


@pytest.mark.parametrize("interface", DURABLE)
def test_every_interface_shows_a_question_behind_the_answer_to_the_one_before(
    interface: str,
) -> None:
    async def work() -> list[str]:
        model = ScriptedModel(lambda window: "Yes.")
        app = App("memory:", model=model)
        interleaved(app.store, await session_of(interface))
        await DURABLE[interface](app, model, "third?", [])
        await app.close()
        return [message.text for message in model.windows[-1].messages]

    shown = asyncio.run(work())
    said = [text for text in shown if text in SAID]
    assert said == ([] if interface == "generator_prompt" else SAID)  # that one shows no history
    assert any("third?" in text for text in shown)


def test_the_messages_of_a_session_stand_turn_by_turn() -> None:
    with open_store("memory:") as store:
        interleaved(store, "s")
        messages = Session("s", store=store).messages()
        assert [message.text for message in messages] == SAID
        places = [message.at for message in messages]
        assert places == sorted(places, key=float)  # type: ignore[arg-type]
        assert [message.item for message in messages] == [("s", at) for at in (1, 4, 2, 6)]
