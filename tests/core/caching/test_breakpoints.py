"""Breakpoints: where they pay, within the provider's limits, never below its minimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    Breakpoint,
    CacheOptions,
    File,
    Group,
    Message,
    Profile,
    Slots,
    Stepped,
    Text,
    ToolCall,
    Window,
    assistant,
    context,
    prompt,
    system,
    tool,
    user,
)
from muntin.core.caching.breakpoints import blocks, user_breakpoints
from muntin.core.caching.frontier import Frontier
from muntin.core.caching.wire_order import as_sent, is_sent_unchanged
from muntin.core.profile import Caching

BLOCKS = Caching(50, 1.25, 0.1, breakpoints=4, lookback=20)
EXACTLY = Caching(50, 1.25, 0.1, breakpoints=4, assistant_breakpoints=False)
TIERS = ("pinned", "stable", "slow-changing")


def size(text: str) -> int:
    return len(text)


def talk(turns: int) -> list[Message]:
    return [m for n in range(turns) for m in (user(f"u{n:09}"), assistant(f"a{n:09}"))]


def render(
    *contents: tuple[str, Any],
    caching: Caching | None = BLOCKS,
    previous: Window | Frontier | None = None,
    tools: Sequence[dict[str, Any]] = (),
    system_first: bool = False,
    tiers: dict[str, Any] | None = None,
    **options: Any,
) -> Window:
    profile = Profile("test/model", caching=caching, system_first=system_first)
    slots = Slots(
        10_000,
        tokenizer=size,
        profile=profile,
        trimming=Stepped(),
        previous=previous,
        tools=tools,
    )
    for name, content in contents:
        slots.add(name, content, tier=(tiers or {}).get(name), **options.get(name, {}))
    return slots.render()


def marks(window: Window) -> list[int]:
    return [each.after for each in window.breakpoints]


def test_the_tail_and_the_beginning_of_the_conversation_are_marked() -> None:
    window = render(("system", "s" * 60), ("history", talk(3)), ("input", "now"))
    assert marks(window) == [1, 8]


def test_the_tail_ends_before_what_the_next_turn_will_not_have() -> None:
    contents = [("system", "s" * 60), ("history", talk(3)), ("docs", "d" * 99), ("input", "now")]
    assert marks(render(*contents)) == [1, 7]


def test_between_tool_steps_the_end_is_marked_too() -> None:
    step = [user("now"), assistant(tool_calls=[ToolCall("1", "look", "{}")]), tool("1", "seen")]
    contents = [("system", "s" * 60), ("history", talk(3)), ("docs", "d" * 99), ("input", step)]
    assert marks(render(*contents)) == [1, 7, 11]


def test_without_marks_or_a_profile_there_are_none() -> None:
    contents = [("system", "s" * 60), ("history", talk(3))]
    assert marks(render(*contents, caching=None)) == []
    assert marks(render(*contents, caching=replace(BLOCKS, breakpoints=0))) == []
    slots = Slots(1_000)
    slots.add("system", "s" * 60)
    assert slots.render().breakpoints == ()


def test_nothing_is_marked_below_the_minimum_prefix() -> None:
    contents = [("system", "s" * 40), ("history", talk(3))]
    assert marks(render(*contents)) == [7]
    assert marks(render(*contents, caching=replace(BLOCKS, min_prefix=101))) == []
    assert marks(render(*contents, caching=replace(BLOCKS, min_prefix=100))) == [7]


def test_tools_count_towards_the_minimum_prefix() -> None:
    schema = {"name": "look", "parameters": {}}
    window = render(("system", "s" * 40), ("history", talk(3)), tools=[schema])
    assert marks(window) == [1, 7]


ALL = [("pinned", "p" * 60), ("stable", "q" * 60), ("slow-changing", "r" * 60)]
ALL_TIERS = {name: name for name in TIERS}


def test_too_many_candidates_leave_tail_frontier_and_the_later_tiers() -> None:
    contents = [*ALL, ("history", talk(3)), ("input", "now")]
    assert marks(render(*contents, tiers=ALL_TIERS)) == [1, 2, 3, 10]
    for most, expected in ((3, [2, 3, 10]), (2, [3, 10]), (1, [10])):
        few = replace(BLOCKS, breakpoints=most)
        assert marks(render(*contents, tiers=ALL_TIERS, caching=few)) == expected


def test_marks_of_the_users_own_are_counted_and_not_doubled() -> None:
    marked = replace(user("m" * 60), extra={"cache_control": {"type": "ephemeral"}})
    part = Message("user", (Text("x" * 9, extra={"cache_control": {"type": "ephemeral"}}),))
    contents = [*ALL, ("history", [marked, part, *talk(3)]), ("input", "now")]
    window = render(*contents, tiers=ALL_TIERS)
    assert marks(window) == [3, 12]
    assert user_breakpoints(window.messages) == [4, 5]
    last = replace(user("now"), extra={"prompt_cache_breakpoint": {"mode": "explicit"}})
    assert marks(render(("system", "s" * 60), ("history", [*talk(3), last]))) == [1]
    schemas = [{"name": str(n), "cache_control": {"type": "ephemeral"}} for n in range(4)]
    assert marks(render(*contents, tools=schemas)) == []


def test_a_slot_may_ask_for_a_mark() -> None:
    contents = [("system", "s" * 60), ("guide", "g" * 60), ("history", talk(3))]
    window = render(*contents, guide={"breakpoint": True})
    assert marks(window) == [1, 2, 8]


def test_a_joined_text_is_marked_if_one_of_its_parts_asks_for_it() -> None:
    profile = Profile("test/model", caching=replace(BLOCKS, breakpoints=2))
    slots = Slots(10_000, tokenizer=size, profile=profile)
    for name in ("one", "two"):
        slots.add(
            name, name * 30, role="system", group=Group("all", join="\n"), breakpoint=name == "two"
        )
    slots.add("more", "m" * 60, role="system")
    slots.add("history", talk(3))
    assert marks(slots.render()) == [1, 8]


@pytest.mark.parametrize("provider", [True, False])
def test_a_context_cached_with_the_provider_asks_for_a_mark(
    provider: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = {}
    add = Slots.add

    def spy(self: Slots, name: str, content: Any, *, breakpoint: bool = False, **rest: Any) -> None:
        marked[name] = breakpoint
        add(self, name, content, breakpoint=breakpoint, **rest)

    monkeypatch.setattr(Slots, "add", spy)
    guide = context(id="guide", system=lambda: "g", cache=CacheOptions(provider=provider))
    prompt(system="Be brief.", use=[guide, context(id="plain", system="p")]).resolve_sync()
    assert marked["context:guide"] is provider
    assert not marked["prompt"]
    assert not marked["context:plain"]


def following(caching: Caching, added: int) -> tuple[Window, Window]:
    history = talk(3)
    before = render(("system", "s" * 60), ("history", history), caching=caching)
    history = [*history, *[user(f"more {n}") for n in range(added)]]
    after = render(("system", "s" * 60), ("history", history), caching=caching, previous=before)
    return before, after


def test_an_anchor_stands_where_a_read_could_not_look_back() -> None:
    before, after = following(BLOCKS, 19)
    assert marks(before) == [1, 7]
    assert marks(after) == [1, 26]  # 20 blocks back from the mark, its own included
    before, after = following(BLOCKS, 20)
    assert marks(after) == [1, 7, 27]


def test_an_exact_match_needs_the_mark_of_the_turn_before() -> None:
    before, after = following(EXACTLY, 1)
    assert marks(before) == [1, 6]  # the last user message: an answer cannot be marked
    assert marks(after) == [1, 6, 8]


def test_the_anchor_is_the_same_after_a_restart() -> None:
    before, after = following(EXACTLY, 3)
    history = [*talk(3), *[user(f"more {n}") for n in range(3)]]
    stored = Frontier.from_dict(before.frontier.to_dict())
    again = render(("system", "s" * 60), ("history", history), caching=EXACTLY, previous=stored)
    assert again == after


def test_a_mark_that_no_longer_stands_is_no_anchor() -> None:
    before = render(("system", "s" * 60), ("history", talk(3)), caching=EXACTLY)
    other = [user(f"other {n}") for n in range(9)]
    after = render(("system", "s" * 60), ("history", other), caching=EXACTLY, previous=before)
    assert marks(after) == [1]
    again = render(("system", "s" * 60), ("history", other), caching=EXACTLY, previous=after)
    assert marks(again) == [1, 10]
    # A list that is another one every time is never marked.
    found = []
    for turn in (1, 2, 3, 3):
        third = [user(f"{turn} third {n}") for n in range(9)]
        after = render(("system", "s" * 60), ("history", third), caching=EXACTLY, previous=after)
        found.append(marks(after))
    assert found == [[1], [1], [1], [1, 10]]


def test_marks_follow_the_order_on_the_wire() -> None:
    history = [user("u" * 60), system("note"), assistant("a" * 9), user("more")]
    window = render(("system", "s" * 60), ("history", history), system_first=True)
    # Text of the system that comes later is sent where it stands.
    assert marks(window) == [1, 5]
    calls = assistant(tool_calls=[ToolCall("1", "look", "{}")])
    history = [user("u" * 60), calls, user("wait"), tool("1", "seen")]
    window = render(("system", "s" * 60), ("history", history), ("docs", "d" * 60))
    # Sent as: system, u, calls, seen, wait.
    assert [window.messages[place - 1].text for place in marks(window)] == ["s" * 60, "wait"]


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
@pytest.mark.parametrize("tier", [None, "volatile"])
def test_no_mark_stands_on_text_behind_the_conversation(role: str, tier: str | None) -> None:
    contents = [("system", "s" * 60), ("history", talk(3)), ("docs", "d" * 99), ("input", "now")]
    tiers = {"system": "pinned", "docs": tier} if tier else {}
    for system_first in (False, True):
        window = render(*contents, docs={"role": role}, system_first=system_first, tiers=tiers)
        assert marks(window) == [1, 7]


def test_no_mark_stands_on_or_behind_text_that_changed() -> None:
    def at(
        turn: int, text: str, previous: Window | Frontier | None, tier: str | None = None
    ) -> Window:
        contents = [("rules", "s" * 60), ("found", text), ("history", talk(turn)), ("input", "x")]
        options: dict[str, Any] = {"rules": {"role": "system"}, "found": {"role": "system"}}
        tiers = {"rules": "pinned", "found": tier} if tier else None
        return render(*contents, previous=previous, tiers=tiers, **options)

    first = at(1, "a" * 60, None)
    assert marks(first) == [2, 5]  # nothing is known of it yet
    second = at(2, "b" * 60, first)
    assert marks(second) == [1]
    stored = Frontier.from_dict(second.frontier.to_dict())
    assert marks(at(3, "c" * 60, second)) == [1]
    assert marks(at(3, "b" * 60, second)) == marks(at(3, "b" * 60, stored)) == [2, 8]
    # A tier says that a text stays, and is not believed while it does not.
    slow = at(2, "b" * 60, at(1, "a" * 60, None, "slow-changing"), "slow-changing")
    assert marks(slow) == [1]
    assert marks(at(3, "c" * 60, slow, "slow-changing")) == [1]


def test_an_hour_is_asked_for_where_the_rules_or_a_later_mark_do() -> None:
    contents = [("system", "s" * 60), ("history", talk(3))]
    assert {each.ttl for each in render(*contents).breakpoints} == {None}
    hour = replace(BLOCKS, write=2.0, ttl=3_600)
    assert render(*contents, caching=hour).breakpoints == (Breakpoint(1, "1h"), Breakpoint(7, "1h"))
    long = replace(user("m" * 60), extra={"cache_control": {"type": "ephemeral", "ttl": "1h"}})
    window = render(("system", "s" * 60), ("history", [long, *talk(3)]))
    assert window.breakpoints == (Breakpoint(1, "1h"), Breakpoint(8))


@pytest.mark.parametrize(
    ("message", "count"),
    [
        (user("hi"), 1),
        (Message("user", (Text("a"), Text("b"))), 2),
        (assistant("so", tool_calls=[ToolCall("1", "f", "{}"), ToolCall("2", "f", "{}")]), 3),
        (assistant(tool_calls=[ToolCall("1", "f", "{}")]), 1),
        (tool("1", ""), 1),
    ],
)
def test_blocks_of_a_message(message: Message, count: int) -> None:
    assert blocks(message) == count


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=25),
    st.integers(0, 5),
    st.sampled_from([None, 3, 20]),
    st.booleans(),
    st.integers(0, 300),
)
def test_marks_stay_within_the_limits(
    added: list[int], most: int, lookback: int | None, on_answers: bool, least: int
) -> None:
    caching = Caching(
        least, 1.25, 0.1, breakpoints=most, lookback=lookback, assistant_breakpoints=on_answers
    )
    history: list[Message] = []
    window: Window | None = None
    for turn, count in enumerate(added):
        history += [user(f"{turn}.{n}") for n in range(count)] + [assistant(f"answer {turn}")]
        contents = [("system", "s" * 60), ("history", history), ("docs", "d" * turn or None)]
        window = render(*contents, caching=caching, previous=window)
        places = marks(window)
        assert len(places) <= most
        assert places == sorted(set(places))
        for place in places:
            assert 0 < place <= len(window.messages)
            assert sum(size(m.text) for m in window.messages[:place]) >= least
            assert on_answers or window.messages[place - 1].role != "assistant"
        assert render(*contents, caching=caching, previous=window).messages == window.messages


def test_a_file_with_its_data_inside_carries_no_mark() -> None:
    file = Message("user", (File(name="a.pdf", data="data:application/pdf;base64,AAAA"),))
    assert user_breakpoints([file]) == []


CALLS = st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True)
SENT = st.lists(
    st.one_of(
        st.sampled_from([system("Rules."), user("Hi"), user(""), assistant("Yes"), assistant("")]),
        CALLS.map(lambda ids: assistant(tool_calls=[ToolCall(each, "look", "{}") for each in ids])),
        st.sampled_from("abc").map(lambda called: tool(called, "")),
        st.sampled_from("abc").map(lambda called: tool(called, "found")),
    ),
    max_size=12,
)


@given(SENT, st.sampled_from([None, "openai/gpt-4o", "anthropic/claude-sonnet-4-5"]))
def test_what_is_said_to_go_as_it_stands_does(messages: list[Message], name: str | None) -> None:
    profile = None if name is None else Profile.for_model(name)
    pieces = as_sent(messages, profile)
    if is_sent_unchanged(messages, profile):
        numbers = list(range(len(messages)))
        assert [piece.place for piece in pieces] == [piece.owner for piece in pieces] == numbers
        assert all(piece.message is one for piece, one in zip(pieces, messages, strict=True))


def test_most_conversations_go_as_they_stand() -> None:
    talk = [
        system("Rules."),
        user("Hi"),
        assistant(tool_calls=[ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}")]),
        tool("a", ""),
        tool("b", "found"),
        assistant("Yes"),
    ]
    assert is_sent_unchanged(talk, Profile.for_model("openai/gpt-4o"))
    assert not is_sent_unchanged(talk[:-2])
    assert not is_sent_unchanged([*talk[:3], talk[4], talk[3]])
