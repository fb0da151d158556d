"""Runs under pressure: worked windows, then sessions of any size, ladder, profile and wire."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    BudgetExceeded,
    Exact,
    Ladder,
    Message,
    Profile,
    Results,
    Slots,
    Stepped,
    ToolCall,
    Window,
    assistant,
    tool,
    user,
)
from muntin.core.planning.frontier import Frontier, Start
from muntin.core.planning.shapes import Forms, Level, Shape
from muntin.core.planning.stored import read_plan, write_plan
from tests.core.planning.oracle_ladder import go_down
from tests.core.planning.scenes import many
from tests.providers.wire import rules
from tests.providers.wire.test_shared import MODELS, check, profile_of
from tests.providers.wire.windows import encode

CHECKS = {
    "chat": rules.check_chat,
    "responses": rules.check_responses,
    "anthropic": rules.check_anthropic,
    "google": rules.check_google,
}
TOOLS = [{"name": "look", "description": "Look.", "parameters": {"type": "object"}}]


def called(number: int, *sizes: int) -> list[Message]:
    """One step: calls, and results of so many characters."""
    calls = [ToolCall(f"c{number}.{n}", "look", "{}") for n in range(len(sizes))]
    results = [
        tool(call.id, f"{call.id} ".ljust(size, "r"))
        for call, size in zip(calls, sizes, strict=True)
    ]
    return [assistant(tool_calls=calls), *results]


def steps(*sizes: int) -> list[Message]:
    return [message for number, size in enumerate(sizes) for message in called(number, size)]


def compose(
    run: Sequence[Message], budget: int, previous: Window | Frontier | None = None, **options: Any
) -> Window:
    options = {"ladder": Ladder(short_tokens=64), "results": Results(1.0), **options}
    history = options.pop("history", [])
    slots = Slots(budget, tokenizer=len, previous=previous, **options)
    slots.add("system", "s" * 10)
    slots.add("history", history)
    slots.add("input", "i" * 10)
    slots.add("run", run)
    return slots.render()


def statuses(window: Window, name: str = "run") -> list[str]:
    return [each.status for each in window.report[name].decisions]


# Worked windows: a token is a character. A group of one result of 100 has 106: its call has 6,
# short it has 6 + 64, as a stub 6 + 28.


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (20 + 5 * 106, ["kept"] * 5),
        (20 + 4 * 106 + 70, ["short", *["kept"] * 4]),
        (20 + 3 * 106 + 140, ["short", "short", *["kept"] * 3]),
        (20 + 3 * 106 + 70 + 34, ["stubbed", "short", *["kept"] * 3]),
        (20 + 3 * 106 + 34 + 34, ["stubbed", "stubbed", *["kept"] * 3]),
        (20 + 2 * 106 + 70 + 68, ["stubbed", "stubbed", "short", "kept", "kept"]),
        (20 + 3 * 70 + 68, ["stubbed", "stubbed", "short", "short", "short"]),
        (20 + 70 + 4 * 34, ["stubbed"] * 4 + ["short"]),
        (20 + 70 + 3 * 34, ["dropped"] + ["stubbed"] * 3 + ["short"]),
        (20 + 70, ["dropped"] * 4 + ["short"]),
    ],
)
def test_exact_takes_as_few_steps_as_it_needs(budget: int, expected: list[str]) -> None:
    window = compose(steps(*[100] * 5), budget, trimming=Exact())
    assert statuses(window) == expected
    assert window.tokens <= budget
    told = window.report["run"]
    assert told.tokens_asked == 5 * 106  # also where the oldest were not read
    assert told.tokens_kept == sum(each.tokens_kept for each in told.decisions)


@many
@given(
    st.lists(st.sampled_from((1, 40, 64, 65, 100, 150, 300)), min_size=1, max_size=9),
    st.integers(90, 1_500),
    st.integers(0, 4),
    st.booleans(),
    st.integers(64, 120),
)
def test_exact_goes_down_as_the_oracle_demands(
    sizes: list[int], room: int, keep: int, stubs: bool, short: int
) -> None:
    run = steps(*sizes)
    shape = Shape(Forms(Slots(1, tokenizer=len).counter), ladder=Ladder(short))
    groups = [tuple(run[n : n + 2]) for n in range(0, len(run), 2)]
    levels: tuple[Level, ...] = ("full", "short", "stub")
    forms = [[shape.group(level, group)[2] for level in levels] for group in groups]
    expected = go_down(forms, room, keep, stubs)
    window = compose(run, room + 20, trimming=Exact(), ladder=Ladder(short, keep, stubs))
    kept = [each.tokens_kept for each in window.report["run"].decisions]
    shown = len(kept) - (window.report["run"].asked_is_estimate)  # the oldest are one decision
    if sum(expected) <= room:  # else the newest results are cut further
        assert kept[len(kept) - shown :] == expected[len(expected) - shown :]
        assert not any(expected[: len(expected) - shown])


def test_the_newest_results_are_cut_to_no_less_than_64_each() -> None:
    window = compose(called(0, 400, 90), 200, trimming=Exact())
    assert not window.over_budget
    assert window.tokens <= 200
    first, second = (message.text for message in window.messages[-2:])
    assert len(first) >= 64
    assert len(second) >= 64
    assert statuses(window) == ["short"]


@pytest.mark.parametrize("trimming", [Exact(), Stepped()])
def test_a_run_whose_newest_calls_do_not_fit_is_refused_by_tool_and_size(trimming: Any) -> None:
    window = compose(called(0, 400, 400), 100, trimming=trimming)
    assert window.over_budget
    assert [message.role for message in window.messages[-3:]] == ["assistant", "tool", "tool"]
    with pytest.raises(BudgetExceeded, match=r"'run' 140 \(look: 400 tokens, cut to 64; look"):
        window.openai()


def test_a_list_before_the_input_is_no_run() -> None:
    slots = Slots(60, tokenizer=len)
    slots.add("history", called(0, 200))
    slots.add("input", "i" * 10)
    assert len(slots.render().messages) == 1


def test_a_run_steps_all_at_once_and_then_stays() -> None:
    window: Window | None = None
    before: tuple[Message, ...] = ()
    moves = 0
    for count in range(1, 60):
        window = compose(steps(*[400] * count), 4_000, window, trimming=Stepped())
        assert window.tokens <= 4_000
        same = window.messages[: len(before)] == before
        moves += not same
        before = window.messages
    assert 3 < moves < 16
    assert window is not None
    assert "stubbed" in statuses(window)


def test_the_report_says_which_way_was_taken_and_what_both_would_cost() -> None:
    few = compose(steps(*[100] * 9), 1_000, trimming=Stepped())
    many_more = compose(steps(*[100] * 12), 1_000, few, trimming=Stepped())
    detail = many_more.report["history"].detail or many_more.report["run"].detail
    assert detail is not None
    assert detail.startswith("shortening keeps ")
    assert " groups at about " in detail
    assert "; dropping would keep " in detail
    assert few.report["history"].detail is None


def test_a_low_level_that_was_given_is_gone_down_to() -> None:
    run = steps(*[100] * 12)
    for low in (0.3, 0.5, 0.8):
        window = compose(run, 1_000, trimming=Stepped(low=low), ladder=Ladder(64, keep_groups=1))
        kept = window.tokens - 10
        assert kept <= low * 990 + 36  # a stub more or less


def test_levels_go_over_into_the_history_of_the_next_turn() -> None:
    run = steps(*[100] * 12)
    window = compose(run, 1_000, trimming=Stepped())
    history = [user("i" * 10), *run, assistant("done")]
    following = compose([], 1_000, window, trimming=Stepped(), history=history)
    shared = len(window.messages)
    assert following.messages[:shared] == window.messages
    stored = Frontier.from_dict(json.loads(json.dumps(window.frontier.to_dict())))
    assert compose([], 1_000, stored, trimming=Stepped(), history=history) == following


def test_forms_are_made_once_for_each_group_and_level(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = Shape._made

    def counting(self: Any, level: Any, messages: Any) -> Any:
        made.append((level, messages[0].tool_calls[0].id))
        return original(self, level, messages)

    monkeypatch.setattr(Shape, "_made", counting)
    window: Window | None = None
    slots = Slots(10, tokenizer=len)
    for count in range(1, 60):
        run = steps(*[100] * count)
        window = compose(run, 1_000, window, trimming=Stepped(), counter=slots.counter)
    assert len(made) == len(set(made))


def test_the_next_step_counts_only_what_is_new() -> None:
    counted: list[str] = []

    @dataclass(frozen=True)
    class Recording:
        name: str = "recording"
        message_overhead: int = 0

        def count(self, text: str) -> int:
            counted.append(text)
            return len(text)

    run = steps(*[3_000] * 40)
    slots = Slots(10, tokenizer=Recording())
    window = compose(run, 20_000, trimming=Stepped(), counter=slots.counter)
    counted.clear()
    run += called(40, 2_900)
    compose(run, 20_000, window, trimming=Stepped(), counter=slots.counter)
    assert sum(map(len, counted)) < 3 * 2_900


# Sessions of any size.


@dataclass(frozen=True)
class Session:
    """Turns of an agent, and the rules it runs under."""

    budget: int
    turns: tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]
    options: dict[str, Any]
    restarts: tuple[bool, ...]

    def windows(self, profile: Profile | None, restart: bool | None = None) -> Iterator[Window]:
        said: list[Message] = []
        window: Window | None = None
        request = 0
        for number, (asked, made) in enumerate(self.turns):
            question = user(f"{number}?".ljust(asked, "q"))
            run: list[Message] = []
            for step in (None, *enumerate(made)):
                if step is not None:
                    run = [*run, *called(100 * number + step[0], *step[1])]
                again = self.restarts[request % len(self.restarts)] if restart is None else restart
                request += 1
                previous: Any = window
                if window is not None and again:
                    previous = Frontier.from_dict(json.loads(json.dumps(window.frontier.to_dict())))
                slots = Slots(
                    self.budget, tokenizer=len, profile=profile, previous=previous, **self.options
                )
                slots.add("system", "s" * 20)
                slots.add("history", said)
                slots.add("input", [question])
                slots.add("run", run)
                window = slots.render()
                yield window
            said = [*said, question, *run, assistant(f"answer {number}")]


LADDERS = st.one_of(
    st.none(),
    st.builds(Ladder, st.integers(64, 120), st.integers(0, 4), st.booleans()),
)


@st.composite
def sessions(draw: st.DrawFn, trimming: Any = None) -> Session:
    sizes = st.sampled_from((0, 1, 30, 64, 65, 100, 150, 300, 700))
    made = st.lists(st.lists(sizes, min_size=1, max_size=2).map(tuple), max_size=8).map(tuple)
    turns = draw(st.lists(st.tuples(st.integers(3, 60), made), min_size=1, max_size=5).map(tuple))
    trims = st.sampled_from([Exact(), Stepped(), Stepped(low=0.4), Stepped(retain=0.9)])
    options = {
        "trimming": draw(trims) if trimming is None else trimming,
        "ladder": draw(LADDERS),
        "results": draw(st.sampled_from([None, Results(), Results(0.1, ("head",))])),
        "recovery": draw(st.booleans()),
        "tools": TOOLS,
    }
    restarts = draw(st.lists(st.booleans(), min_size=1, max_size=5).map(tuple))
    return Session(draw(st.integers(300, 2_000)), turns, options, restarts)


def size_of(window: Window) -> int:
    """Count a window from scratch."""
    found = 0
    for message in window.messages:
        found += len(message.text)
        found += sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return found + window.report.tools_tokens + window.report.lead_tokens


@many
@given(sessions())
def test_no_window_is_over_budget_unflagged_and_totals_add_up(session: Session) -> None:
    for window in session.windows(None):
        report = window.report
        assert window.tokens == size_of(window) == report.tokens
        assert window.over_budget == (window.tokens > session.budget)
        for slot in report.slots:
            assert slot.tokens_kept == sum(each.tokens_kept for each in slot.decisions)
            assert all(each.tokens_kept <= each.tokens_asked for each in slot.decisions)
            for each in slot.decisions:
                assert each.status not in ("short", "stubbed") or each.tokens_kept > 0
        asked = window.report["run"].messages_asked
        if asked:  # the calls just made are seen
            assert window.messages[-1].role == "tool"


@many
@given(sessions(Stepped()))
def test_the_past_stays_between_steps_and_levels_only_go_down(session: Session) -> None:
    before: Window | None = None
    for window in session.windows(None):
        if before is not None and before.frontier.starts and window.frontier.starts:
            was, now = before.frontier.starts[0], window.frontier.starts[0]
            if was.first or was.shorts:
                assert _levels(now) >= _levels(was) or now.requests == 0
            same = _levels(now) == _levels(was) and was.slot == now.slot
            if same and not before.over_budget:
                old = [m.text for m in before.messages]
                assert [m.text for m in window.messages[: len(old)]] == old or _was_cut(before)
        before = window


def _levels(start: Start) -> tuple[int, int, int]:
    return start.first, start.stubs, start.shorts


def _was_cut(window: Window) -> bool:
    """Say whether something had to be cut beyond what the frontier says: the newest results, or
    the input, for want of room."""
    return window.input_cut or any(
        each.reason in ("over_budget", "fallback")
        for slot in window.report.slots
        for each in slot.decisions
    )


@many
@given(sessions())
def test_a_stored_frontier_gives_the_same_bytes(session: Session) -> None:
    profile = profile_of("anthropic/claude-sonnet-4-5")
    runs = [list(session.windows(profile, restart)) for restart in (False, True, None)]
    sent = [[(w.messages, w.breakpoints, w.tokens, str(w.report)) for w in run] for run in runs]
    assert sent[0] == sent[1] == sent[2]


def test_a_stored_plan_keeps_every_result_that_is_one_line() -> None:
    talk = [
        message
        for n in range(60)
        for message in (
            assistant("", tool_calls=[ToolCall(f"c{n}", "look", f'{{"n":{n}}}')]),
            tool(f"c{n}", "r" * 9_000),
        )
    ]
    slots = Slots(3_000, tokenizer=len, ladder=Ladder(), results=Results())
    slots.add("run", talk)
    slots.add("input", "?")
    window = slots.render()
    assert len(window.messages) == 121
    plan: Any = window.explained
    contents: dict[str, str] = {}
    again = read_plan(write_plan(plan, contents), contents.get, tokenizer=len)
    assert again.window().messages == window.messages


@many
@given(sessions(), st.integers(100, 3_000))
def test_a_stored_plan_gives_the_same_window_at_any_budget(session: Session, other: int) -> None:
    *_, window = session.windows(None, False)
    plan: Any = window.explained
    contents: dict[str, str] = {}
    written = json.loads(json.dumps(write_plan(plan, contents)))
    again = read_plan(written, contents.get, tokenizer=len)
    assert again.window().messages == window.messages
    assert again.at(other).window().messages == plan.at(other).window().messages


@pytest.mark.parametrize("provider", CHECKS)
@many
@given(st.data())
def test_requests_are_valid_and_share_what_the_report_claims(
    provider: str, data: st.DataObject
) -> None:
    profile = profile_of(data.draw(st.sampled_from(MODELS[provider])))
    session = data.draw(sessions())
    before: Window | None = None
    for window in session.windows(profile):
        CHECKS[provider](encode(window, provider, strict=False))
        if before is not None:
            assert profile.caching is not None
            check(window, before, provider, profile.caching)
        before = window
    assert replace(profile) == profile
