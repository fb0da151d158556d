"""Windows that were made elsewhere, in a store: the inspector shows them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from muntin import Message, Session, assistant, user
from muntin.errors import InvalidInput, InvalidType, StoreError
from muntin.fitting import Fitter, Recorder, fit
from muntin.fitting.recorder import STEPS, ListDiverged
from muntin.fitting.talk import LazyMessages
from muntin.inspector.data import turns
from muntin.inspector.plans import Plans
from muntin.settings import counter_for
from muntin.timeline import open_store
from muntin.timeline.items import ContentKind, NoteKind, SideWrites
from muntin.timeline.store.memory import MemoryStore
from muntin.wire.lists import pieces_of
from tests.fitting.talks import growing
from tests.reliability.worker import SlowStore
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


def test_a_schema_that_no_text_can_hold_is_recorded_all_the_same(store: Any) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "\ud800"}}}
    weather = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    fitter = Fitter(2_000, model=GPT, store=store)
    fitter.fit(pieces_of([{"role": "user", "content": "Hi"}]), tools=[weather], conversation="c")
    assert len(store.reports("c")) == 1
    assert [slot["name"] for slot in turns(Plans(store), "c")["windows"][0]["slots"]]


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


def test_a_request_is_recorded_when_it_is_sent_and_its_report_with_the_answer(store: Any) -> None:
    recorder = Recorder(store)
    window = fit([{"role": "user", "content": "Where?"}], 500).window
    sent = recorder.sent("c", [user("Where?")], window, {"mine": 1})
    assert sent is not None
    assert recorder.frontier("c") == {"mine": 1}
    assert [m.text for m in Session("c", store=store).messages()] == ["Where?"]
    assert store.reports("c") == []
    recorder.answered(sent, assistant("Here."), meta={"usage": {"input": 7}})
    newest = store.read("c", newest=1)[0]
    assert (newest.message.text, newest.meta) == ("Here.", {"usage": {"input": 7}, "step": 1})
    assert [(r.turn, r.step) for r in store.reports("c")] == [(1, 1)]
    assert recorder.sent("nothing", [], window) is None


def asked(recorder: Recorder, talk: list[Any], reply: str | None = None) -> list[str]:
    """Record a request, and its answer; return what of it was new."""
    fitted = fit(talk, 2_000, model=GPT)
    new = recorder.new_in("c", LazyMessages(pieces_of(talk), counter_for(None, None)))
    sent = recorder.sent("c", new, fitted.window, fitted.frontier)
    assert sent is not None
    recorder.answered(sent, None if reply is None else assistant(reply))
    return [message.text for message in new]


def test_an_answer_that_was_recorded_is_not_new_when_it_comes_back(store: Any) -> None:
    recorder = Recorder(store)
    talk: list[Any] = [{"role": "user", "content": "Where?"}]
    assert asked(recorder, talk, "Here.") == ["Where?"]
    talk += [{"role": "assistant", "content": "Here."}, {"role": "user", "content": "Why?"}]
    assert asked(recorder, talk) == ["Why?"]
    talk += [{"role": "assistant", "content": "So."}, {"role": "user", "content": "Oh."}]
    assert asked(recorder, talk) == ["So.", "Oh."]
    said = [m.text for m in Session("c", store=store).timeline_messages()]
    assert said == ["Where?", "Here.", "Why?", "So.", "Oh."]


def test_an_answer_is_not_appended_behind_what_came_after_it(store: Any) -> None:
    """Another process goes on before the answer is recorded."""
    recorder = Recorder(store)
    talk: list[Any] = [{"role": "user", "content": "Where?"}]
    fitted = fit(talk, 2_000, model=GPT)
    sent = recorder.sent("c", [user("Where?")], fitted.window, fitted.frontier)
    assert sent is not None
    talk += [{"role": "assistant", "content": "Here."}, {"role": "user", "content": "Why?"}]
    assert asked(Recorder(store), talk) == ["Here.", "Why?"]
    recorder.answered(sent, assistant("Here."))
    said = [m.text for m in Session("c", store=store).timeline_messages()]
    assert said == ["Where?", "Here.", "Why?"]
    assert [(r.turn, r.step) for r in store.reports("c")] == [(1, 1), (2, 1)]


KILLED = """
import os, signal, sys
from muntin import user
from muntin.fitting import Recorder, fit
fitted = fit([{"role": "user", "content": "Where?"}], 2_000, model="openai/gpt-4o")
Recorder(sys.argv[1]).sent("c", [user("Where?")], fitted.window, fitted.frontier)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_between_request_and_answer_loses_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    done = subprocess.run([sys.executable, "-c", KILLED, url], timeout=60)
    assert done.returncode == -signal.SIGKILL
    talk: list[Any] = [{"role": "user", "content": "Where?"}]
    talk += [{"role": "assistant", "content": "Here."}, {"role": "user", "content": "Why?"}]
    store = open_store(url)
    assert asked(Recorder(store), talk, "So.") == ["Here.", "Why?"]
    said = [m.text for m in Session("c", store=store).timeline_messages()]
    assert said == ["Where?", "Here.", "Why?", "So."]
    assert [turn.status for turn in store.turns("c")] == ["completed"] * 2
    assert [(r.turn, r.step) for r in store.reports("c")] == [(2, 1)]


def test_one_conversation_fitted_in_many_threads_at_once_is_recorded_once(store: Any) -> None:
    talk = list(growing(4))[-1]
    fitter = Fitter(2_000, model=GPT, store=store)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(fitter.fit, pieces_of(talk), conversation="c")
    assert fitter.recorder is not None
    fitter.recorder.writes.put(lambda: None).result(30)  # no request waits long for its record
    assert len(Session("c", store=store).timeline_messages()) == len(talk) - 1
    steps = [(r.turn, r.step) for r in store.reports("c")]
    assert steps == [(steps[0][0], step) for step in range(1, 9)]


def test_an_answer_that_two_record_at_once_is_appended_once(tmp_path: Path) -> None:
    """Each has a Recorder of its own, as processes have."""
    store = SlowStore(f"sqlite:///{tmp_path}/s.db")
    fitted = fit([{"role": "user", "content": "Where?"}], 2_000, model=GPT)
    talk = LazyMessages(pieces_of([{"role": "user", "content": "Where?"}]), counter_for(None, None))
    recorders = [Recorder(store), Recorder(store)]
    told = [
        each.sent("c", each.new_in("c", talk), fitted.window, fitted.frontier) for each in recorders
    ]
    with ThreadPoolExecutor(2) as pool:
        for recorder, sent in zip(recorders, told, strict=True):
            assert sent is not None
            pool.submit(recorder.answered, sent, assistant("Here."))
    assert [m.text for m in Session("c", store=store).timeline_messages()] == ["Where?", "Here."]
    assert [(r.turn, r.step) for r in store.reports("c")] == [(1, 1), (1, 2)]


class Busy(MemoryStore):
    """A store in which, for half a second, another thread writes whenever a recorder has read."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0
        self.until = 0.0
        self.rival = ThreadPoolExecutor(1)

    def content(self, session: str, kind: ContentKind | NoteKind, name: str = "") -> str | None:
        found = super().content(session, kind, name)
        if (kind, name) == STEPS and time.monotonic() < self.until:
            self.tries += 1
            counted = SideWrites(notes={STEPS: f"[{self.tries + 10}, {{}}]"})
            self.rival.submit(self.put, session, counted).result()
        return found


def test_a_recorder_that_is_overtaken_keeps_out_of_the_way_until_it_comes_through() -> None:
    store = Busy()
    recorder = Recorder(store)
    window = fit([user("Hello.")], 1_000, model=GPT).window
    recorder.record("c", [user("Hello.")], window)
    store.until = time.monotonic() + 0.5
    recorder.record("c", [user("And now?")], window)
    assert 2 <= store.tries < 50
    assert [m.text for m in Session("c", store=store).timeline_messages()] == ["Hello.", "And now?"]
    store.rival.shutdown()


def test_an_answer_that_comes_after_the_next_turn_began_takes_no_others_report(store: Any) -> None:
    recorder = Recorder(store)
    talk: list[Any] = [{"role": "user", "content": "Where?"}]
    assert asked(recorder, talk, "Here.") == ["Where?"]
    window = fit(talk, 2_000, model=GPT).window
    late = recorder.sent("c", [], window)
    recorder.record("c", [user("Why?")], window)
    assert late is not None
    recorder.answered(late)
    recorder.record("c", [], window)
    assert [(r.turn, r.step) for r in store.reports("c")] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_the_steps_of_an_older_version_are_gone_on_with(store: Any) -> None:
    recorder = Recorder(store)
    talk: list[Any] = [{"role": "user", "content": "Where?"}]
    asked(recorder, talk)
    store.put("c", SideWrites(notes={STEPS: "[1,1]"}))
    asked(recorder, talk)
    assert [(r.turn, r.step) for r in store.reports("c")] == [(1, 1), (1, 2)]


def test_reports_are_bounded(store: Any) -> None:
    for recorder, kept in ((Recorder(store, keep=3), 3), (Recorder(store, report_bytes=0), 0)):
        for talk in growing(2):
            asked(recorder, talk)
        assert len(store.reports("c")) == kept
    with pytest.raises(InvalidInput, match="report_age must be a timedelta or None, not 5"):
        Recorder(store, report_age=5)  # type: ignore[arg-type]


def test_counts_are_stored_by_the_counter_that_composes(store: Any) -> None:
    Fitter(2_000, model=GPT, store=store).fit(pieces_of(list(growing(2))[-1]), conversation="c")
    (name,) = {name for item in store.read("c") for name in item.tokens}
    assert name.startswith("o200k_base+")


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
    assert store.sessions(id="c")


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidType, match="store must be a store or its address, not 42"):
        Fitter(500, store=42)  # type: ignore[arg-type]
    assert Message("user", "x").text


def recorded(recorder: Recorder, talk: list[Any], **given: Any) -> None:
    """Record a request as a gateway does."""
    spoken = LazyMessages(pieces_of(talk), counter_for(None, None))
    fitted = fit(talk, 2_000, model=GPT)
    sent = recorder.sent_of("c", spoken, fitted.window, fitted.frontier, **given)
    assert sent is not None
    recorder.answered(sent)


def said_so_far(count: int) -> list[Any]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": f"{'qa'[at % 2]}{at // 2}"} for at in range(count)]


def test_a_list_that_comes_late_adds_nothing(store: Any) -> None:
    recorder = Recorder(store)
    for count in (1, 5, 3, 7, 5, 1):
        recorded(recorder, said_so_far(count))
    said = [m.text for m in Session("c", store=store).timeline_messages()]
    assert said == ["q0", "a0", "q1", "a1", "q2", "a2", "q3"]
    assert len(store.reports("c")) == 6, "each of them was a request"
    told = recorder.frontier("c")
    assert told is not None
    assert told["count"] == 7, "the next request goes on from the longest"


def test_a_list_that_was_edited_adds_what_stands_behind_the_edit(store: Any) -> None:
    recorder = Recorder(store)
    recorded(recorder, said_so_far(5))
    edited = [*said_so_far(2), {"role": "user", "content": "another q1"}]
    recorded(recorder, edited)
    said = [m.text for m in Session("c", store=store).timeline_messages()]
    assert said == ["q0", "a0", "q1", "a1", "q2", "another q1"]


def test_a_list_that_does_not_go_on_is_refused_where_it_must_stand_alone(store: Any) -> None:
    recorder = Recorder(store)
    recorded(recorder, said_so_far(3), past="p", owner="me", alone=True)
    assert store.sessions_at("p") == [("c", "")]
    other = [*said_so_far(2), {"role": "user", "content": "another q1"}]
    with pytest.raises(ListDiverged):
        recorded(recorder, other, past="o", owner="me", alone=True)
    recorded(recorder, said_so_far(5), past="q", owner="me", alone=True)
    assert (store.sessions_at("p"), store.sessions_at("q")) == ([], [("c", "")])
