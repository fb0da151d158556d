"""Windows that were made elsewhere, in a store: the inspector shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muntin import Message, Session, assistant, user
from muntin.errors import InvalidType, StoreError
from muntin.fitting import Fitter, Recorder, fit
from muntin.fitting.reading import pieces_of
from muntin.inspector.data import turns
from muntin.inspector.plans import Plans
from muntin.timeline import open_store
from muntin.timeline.store.memory import MemoryStore
from tests.fitting.talks import growing
from tests.runtime.conftest import run

GPT = "openai/gpt-4o"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/s.db")


def test_a_conversation_is_recorded_once_with_a_window_for_each_request(store: Any) -> None:
    fitter = Fitter(2_000, model=GPT, store=store)
    requests = 0
    for talk in growing(4):
        fitter.fit(pieces_of(talk), conversation="c")
        requests += 1
    spoken = [(m.role, m.text) for m in Session("c", store=store).timeline_messages()]
    assert spoken == [(each["role"], each["content"] or "") for each in talk[1:-1]]
    assert len(store.reports("c")) == requests
    assert [(r.turn, r.step) for r in store.reports("c")][:6] == [
        *[(1, step) for step in (1, 2, 3, 4)],
        *[(2, step) for step in (1, 2)],
    ]


def test_the_inspector_shows_them(store: Any) -> None:
    fitter = Fitter(2_000, model=GPT, store=store)
    for talk in growing(4):
        fitted = fitter.fit(pieces_of(talk), conversation="c")
    shown = turns(Plans(store), "c")
    assert len(shown["windows"]) == 16
    assert shown["windows"][-1]["tokens"] == fitted.window.tokens
    assert {slot["name"] for slot in shown["windows"][-1]["slots"]} >= {"history", "input"}


def test_another_process_goes_on_where_the_store_says(store: Any) -> None:
    talks = [list(talk) for talk in growing(6)]
    for talk in talks:
        Fitter(2_000, model=GPT, store=store).fit(pieces_of(talk), conversation="c")
    assert len(Session("c", store=store).timeline_messages()) == len(talks[-1]) - 1
    told = Recorder(store).frontier("c")
    assert told is not None
    assert told["count"] == len(talks[-1]) - 1


def test_a_conversation_without_a_name_gets_one(store: Any) -> None:
    fitter = Fitter(2_000, model=GPT, store=store)
    for talk in growing(3):
        fitted = fitter.fit(pieces_of(talk))
    (info,) = store.sessions()
    assert info.id == fitted.frontier["session"]
    assert info.turns == 3
    again = Fitter(2_000, model=GPT, store=store)
    again.fit(pieces_of(talk), previous=fitted.frontier)
    assert len(store.sessions()) == 1


def test_a_window_can_be_recorded_by_hand(store: Any) -> None:
    recorder = Recorder(store)
    window = fit([{"role": "user", "content": "Where?"}], 500).window
    recorder.record("c", [user("Where?")], window, {"mine": 1}, reply=assistant("Here."))
    assert recorder.frontier("c") == {"mine": 1}
    assert [m.text for m in Session("c", store=store).messages()] == ["Where?", "Here."]
    recorder.record("c", [], window)
    assert [(r.turn, r.step) for r in store.reports("c")] == [(1, 1), (1, 2)]
    recorder.record("nothing", [], window)
    assert recorder.frontier("nothing") is None


def test_a_store_that_is_away_does_not_keep_a_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()

    def away(*_: Any, **__: Any) -> Any:
        raise StoreError("the server is away")

    monkeypatch.setattr(store, "append", away)
    fitted = Fitter(500, store=store).fit(pieces_of([{"role": "user", "content": "x"}]))
    assert len(fitted.placed) == 1
    assert "not recorded: the server is away" in caplog.text


def test_an_async_hook_records_off_the_event_loop(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    fitter = Fitter(500, store=store)
    run(fitter.afit(pieces_of([{"role": "user", "content": "x"}]), conversation="c"))
    assert store.session("c") is not None


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidType, match="store must be a store or its address, not 42"):
        Fitter(500, store=42)  # type: ignore[arg-type]
    assert Message("user", "x").text
