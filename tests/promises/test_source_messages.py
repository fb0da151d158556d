"""A dated message of a source is never lost, whatever its date."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Message, Source, assistant, user
from muntin.runtime.app import App
from muntin.runtime.ctx import Ctx
from tests.runtime.conftest import memory, run, texts, window_of

CLOCK = 1_763_000_000


def of_timeline(**options: Any) -> Any:
    def of_ctx(ctx: Ctx) -> Source:
        return Source(lambda: ctx.timeline_messages(**options))

    return of_ctx


def shown(app: App, payload: str = "wake", **sources: Any) -> list[str]:
    """Return the texts of the window of one wake, tokens being characters."""
    (window,) = run(window_of(app, payload, sources=sources, source_budget=100_000))
    return texts(window)


def with_past() -> App:
    app = memory()
    app.session("e/1").append(user("q"), assistant("a"))
    return app


@pytest.mark.parametrize(
    "at", [0, 3, 3.0, 2.5, 4, -1, -(2.0**60), CLOCK, CLOCK + 0.25, 2**53, 1e308, -1e308]
)
@pytest.mark.parametrize("tier", ["stable", "volatile"])
def test_a_message_is_there_whatever_its_date(at, tier):
    source = Source([Message("user", "dated", at=at)], max=100, cache=tier)
    found = shown(with_past(), chat=of_timeline(), log=source)
    assert sorted(found) == ["a", "dated", "q", "wake"]
    assert found[-1] == "wake"


def test_clock_times_interleave_among_themselves_and_the_waking_message_is_last():
    one = [Message("user", "one", at=CLOCK), Message("user", "three", at=CLOCK + 2)]
    two = [Message("user", "two", at=CLOCK + 1.5)]
    found = shown(with_past(), chat=of_timeline(), a=Source(one), b=Source(two))
    assert found == ["q", "a", "one", "two", "three", "wake"]


def test_undated_text_stands_directly_before_the_waking_message_beside_any_date():
    log = [Message("user", "log", at=CLOCK)]
    found = shown(with_past(), found=Source("retrieved"), log=Source(log), chat=of_timeline())
    assert found == ["q", "a", "log", "retrieved", "wake"]


def test_what_stands_before_the_conversation_stands_before_any_date():
    log = [Message("user", "log", at=-(10.0**9))]
    (window,) = run(
        window_of(
            with_past(),
            "wake",
            sources={
                "log": Source(log),
                "chat": of_timeline(),
                "found": Source("retrieved", place="before"),
            },
            source_budget=1_000,
        )
    )
    assert texts(window) == ["retrieved", "log", "q", "a", "wake"]
    assert "cache" in (window.report["found"].detail or "")


def test_a_message_at_the_position_of_the_waking_message_is_not_the_waking_message():
    """The past has two items, so the waking message stands at 3."""
    found = shown(with_past(), log=Source([Message("user", "not it", at=3)]))
    assert found == ["not it", "wake"]


def test_the_timeline_of_another_session_is_not_this_ones():
    app = with_past()
    app.session("other").append(*(user(f"other {n}") for n in range(5)))
    other = app.session("other").timeline_messages()
    found = shown(app, other=Source(other))
    assert found == [*(f"other {n}" for n in range(5)), "wake"]


@pytest.mark.parametrize("since", [-1, -5, -(10**12)])
def test_since_below_the_beginning_is_the_beginning(since):
    assert shown(with_past(), chat=of_timeline(since=since)) == ["q", "a", "wake"]


DATES = st.one_of(
    st.none(),
    st.integers(-10, 10),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(
    lists=st.lists(st.lists(DATES, max_size=5), min_size=1, max_size=3),
    chat=st.booleans(),
    tier=st.sampled_from(["volatile", "pinned"]),
)
def test_no_date_loses_a_message_or_changes_the_order_of_its_source(lists, chat, tier):
    sources: dict[str, Any] = {"chat": of_timeline()} if chat else {}
    for n, dates in enumerate(lists):
        messages = [Message("user", f"{n}.{m}", at=at) for m, at in enumerate(dates)]
        sources[f"s{n}"] = Source(messages, max=1_000, cache=tier)
    found = shown(with_past(), **sources)
    for n, dates in enumerate(lists):
        own = [text for text in found if text.startswith(f"{n}.")]
        assert own == [f"{n}.{m}" for m in range(len(dates))]
    assert [text for text in found if text in ("q", "a")] == (["q", "a"] if chat else [])
    assert found[-1] == "wake"
    assert found.count("wake") == 1
