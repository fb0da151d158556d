"""In every interface, whatever the model is called: no request is over its budget, calls stand with
their results, the newest result is shown, and the question is there once.

Sessions are random and short: some turns with some calls each, and results of any size. With one
token a character every model is sent the same messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muntin import App, Message, ToolCall, Window
from muntin.core.checks import compact_json
from muntin.testing import ScriptedModel
from tests.core.planning.scenes import Counting, check_requests, opens_with_user, recount
from tests.interfaces import DURABLE, INTERFACES, Interface
from tests.products import EXAMPLES, NAMES, THREE, sample
from tests.runtime.conftest import run
from tests.wired import WIRED

# A session is some twenty requests for each name, so that a few of them are many windows.
few = settings(max_examples=max(1, EXAMPLES // 20))

NAMELESS = "scripted"
# An entity is registered with its first message, and woken by the others.
ADDRESSES = {"entity": "plain/1", "returned": "returned/1", "sources": "sourced/1"}
# The budget that an entity's sources have.
SOURCES = 4_000


@dataclass(frozen=True)
class Session:
    """Sizes of what is said: of each turn's question, its results and its answer."""

    budget: int
    questions: tuple[int, ...]
    results: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]

    def beside(self, tokens: int) -> Session:
        """Return the same session with that much more budget."""
        return replace(self, budget=self.budget + tokens)

    @property
    def turns(self) -> range:
        return range(len(self.questions))

    def question(self, turn: int) -> str:
        return f"question {turn} ".ljust(self.questions[turn], "q")

    def result(self, turn: int, step: int) -> str:
        return f"row {turn}.{step}: ".ljust(self.results[turn][step], "r")

    def replies(self) -> list[ToolCall | str]:
        """Return what the model says: so many calls, and an answer, in each turn."""
        said: list[ToolCall | str] = []
        for turn in self.turns:
            for step in range(len(self.results[turn])):
                call_id = f"c{turn}.{step}"
                said.append(ToolCall(call_id, "look", f'{{"turn":{turn},"step":{step}}}'))
            said.append(f"answer {turn} ".ljust(self.answers[turn], "a"))
        return said

    def places(self) -> list[tuple[int, int]]:
        """Return turn and step of each request."""
        return [(turn, step) for turn in self.turns for step in range(len(self.results[turn]) + 1)]


@st.composite
def sessions(draw: st.DrawFn, turns: int = 4) -> Session:
    budget = draw(st.sampled_from((3_000, 4_500, 6_000)))
    sizes = st.integers(20, 200) | st.integers(20, budget * 2)
    count = draw(st.integers(min(2, turns), turns))
    return Session(
        budget,
        tuple(draw(st.integers(20, 200)) for _ in range(count)),
        tuple(tuple(draw(st.lists(sizes, min_size=2, max_size=4))) for _ in range(count)),
        tuple(draw(st.integers(20, 600)) for _ in range(count)),
    )


def requests(interface: str, session: Session, name: str) -> list[Window]:
    """Hold a session in an interface; return the windows that the model was sent."""
    ask: Interface = {**INTERFACES, **WIRED}[interface]
    model = ScriptedModel(session.replies(), name=name, budget=session.budget)

    def look(turn: int, step: int) -> str:
        """Look up a row."""
        return session.result(turn, step)

    async def work() -> None:
        async with App("memory:", tokenizer=len, budget=session.budget) as app:
            for turn in session.turns:
                if turn and interface in ADDRESSES:
                    await app.ask(ADDRESSES[interface], session.question(turn))
                else:
                    await ask(app, model, session.question(turn), [look])

    run(work(), within=60)
    assert len(model.windows) == len(session.places())
    return model.windows


def check(windows: Sequence[Window], session: Session) -> None:
    """Fail unless each request is what it must be."""
    for (turn, step), window in zip(session.places(), windows, strict=True):
        check_requests(window)
        asked = [m for m in window.messages if session.question(turn) in m.text]
        assert len(asked) == 1, (turn, step)
        if step:
            check_newest(window.messages[-1], session, (turn, step - 1), window)


def check_newest(newest: Message, session: Session, place: tuple[int, int], window: Window) -> None:
    """Fail unless a result is shown to half of what a quarter of the window allows."""
    turn, step = place
    assert newest.tool_call_id == f"c{turn}.{step}"
    quarter = (session.budget - window.report.tools_tokens) // 4
    assert len(newest.text) >= min(len(session.result(turn, step)), quarter) / 2, place


@pytest.mark.parametrize("interface", sample(INTERFACES, *THREE))
@few
@given(sessions(), st.sampled_from([*NAMES, NAMELESS]))
def test_every_request_is_within_its_budget_and_shows_the_question_and_the_newest_result(
    interface: str, session: Session, name: str
) -> None:
    assume(interface != "slots" or name != NAMELESS)  # a profile needs a name
    session = session.beside(SOURCES if interface == "sources" else 0)
    windows = requests(interface, session, name)
    assert all(window.tokens <= session.budget and not window.over_budget for window in windows)
    check(windows, session)


@pytest.mark.parametrize("interface", sample(WIRED))
@few
@given(sessions(turns=1), st.sampled_from(NAMES))
def test_the_same_holds_for_requests_as_they_are_sent(
    interface: str, session: Session, name: str
) -> None:
    windows = requests(interface, session, name)
    for window in windows:
        sent = recount(window.messages, Counting("characters", len))
        assert sent + sum(len(compact_json(tool)) for tool in window.tools) <= session.budget
    check(windows, session)


@pytest.mark.parametrize("interface", sample(DURABLE, *THREE))
@few
@given(sessions())
def test_every_model_is_sent_the_same_messages_where_one_character_is_one_token(
    interface: str, session: Session
) -> None:
    """Some models want the user's message first, and get one where the assistant's would be."""
    session = session.beside(SOURCES if interface == "sources" else 0)
    unnamed = requests(interface, session, NAMELESS)
    assume(all(map(opens_with_user, unnamed)))
    for name in NAMES:
        named = requests(interface, session, name)
        assert [window.messages for window in named] == [window.messages for window in unnamed]
