"""The claimed prefix is the shared beginning of the two encoded requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import Exact, Message, Profile, Slots, Stepped, ToolCall, Window, assistant, tool, user
from muntin.core.caching.frontier import CHUNK, Frontier
from muntin.core.checks import compact_json
from muntin.core.message import system
from muntin.core.planning.slot import Group
from muntin.core.profile import Caching
from tests.wire.shared import blocks, shared
from tests.wire.windows import encode

MODELS = {
    "chat": ("openai/gpt-5", "openai/gpt-5.6"),
    "responses": ("openai/gpt-5", "openai/gpt-5.6"),
    "anthropic": ("anthropic/claude-sonnet-4-5",),
    "google": ("google/gemini-2.5-pro",),
}


def profile_of(model: str, least: int = 1) -> Profile:
    """Return the profile of a model whose minimum is small, so that small windows show the rest."""
    profile = Profile.for_model(model)
    assert profile.caching is not None
    return replace(profile, caching=replace(profile.caching, min_prefix=least))


def size(text: str) -> int:
    return len(text)


def check(window: Window, previous: Window, provider: str, caching: Caching) -> None:
    """Hold the claim of a report against what is sent."""
    prefix = window.report.prefix
    assert prefix is not None
    by_itself = not caching.breakpoints
    now, before = (encode(each, provider, strict=False) for each in (window, previous))
    measured = shared(now, before, within=by_itself)
    # Tools are counted by their schemas, which is not what they are sent as.
    same = [
        tool for tool, other in zip(window.tools, previous.tools, strict=False) if tool == other
    ]
    measured += sum(size(compact_json(each)) - size(_sent_name(each)) for each in same)
    slack = max(caching.granularity, CHUNK) if by_itself else 0
    claimed = prefix.tokens
    assert caching.readable(measured) - slack <= claimed <= caching.readable(measured), (
        claimed,
        measured,
        blocks(now),
        blocks(before),
    )


def _sent_name(tool: Any) -> str:
    return f'"{tool.get("function", tool)["name"]}"'


# No text ends in white space: Anthropic's wire cuts it off where an answer is to be continued, and
# sends the whole text once it is history.
TEXTS = st.one_of(
    st.sampled_from(["a", "bb", "hello", "e" * 300, "f" * 150 + "g" * 150, "f" * 300]),
    st.integers(0, 3).map(lambda n: (f"text {n} " * 30).strip()),
)
SCHEMAS = [
    {"name": name, "description": name, "input_schema": {"type": "object", "properties": {}}}
    for name in ("ask", "look", "tell")
]


@st.composite
def conversations(draw: Any) -> list[Message]:
    """Return turns of text and calls; a result may come late, or never."""
    messages: list[Message] = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["turn", "turn", "call", "late", "never", "note", "answer"]))
        if kind != "answer":
            messages.append(user(f"{number} {draw(TEXTS)}"))
        if kind == "note":
            messages.append(system(draw(TEXTS)))
        if kind in ("call", "late", "never"):
            call = ToolCall(f"c{number}", "look", '{"q":1}')
            messages.append(assistant(draw(st.sampled_from(["", "so"])), tool_calls=[call]))
        if kind == "late":
            messages.append(user("wait"))
        if kind in ("call", "late"):
            messages.append(tool(f"c{number}", draw(TEXTS)))
        if kind in ("turn", "note", "answer"):
            messages.append(assistant(f"{number} {draw(TEXTS)}"))
    return messages


@st.composite
def declarations(draw: Any) -> dict[str, Any]:
    """Return what the slots of a window hold, and their order."""
    return {
        "rules": draw(st.none() | TEXTS),
        "parts": draw(st.lists(TEXTS, max_size=2)),
        "history": draw(conversations()),
        "docs": draw(st.none() | TEXTS),
        "role": draw(st.sampled_from(["system", "user"])),
        "front": draw(st.booleans()),
        "input": draw(st.none() | TEXTS),
        "tools": SCHEMAS[: draw(st.integers(0, 3))],
        "budget": draw(st.sampled_from([300, 900, 5_000])),
    }


def window_of(
    given: dict[str, Any], profile: Profile, previous: Window | Frontier | None, trimming: Any
) -> Window:
    slots = Slots(
        given["budget"],
        tokenizer=size,
        profile=profile,
        previous=previous,
        trimming=trimming,
        tools=given["tools"],
    )
    slots.add("rules", given["rules"], role="system")
    for number, text in enumerate(given["parts"]):
        slots.add(f"part {number}", text, role="system", group=Group("parts", join="\n\n"))
    position = 0 if given["front"] else None
    slots.add("docs", given["docs"], role=given["role"], position=position)
    slots.add("history", given["history"])
    slots.add("input", given["input"])
    return slots.render()


@pytest.mark.parametrize("provider", MODELS)
@given(st.data())
def test_the_claimed_prefix_is_the_shared_beginning_of_what_is_sent(
    provider: str, data: st.DataObject
) -> None:
    profile = profile_of(data.draw(st.sampled_from(MODELS[provider])))
    trimming = data.draw(st.sampled_from([Exact(), Stepped()]))
    given = data.draw(declarations())
    window: Window | None = None
    for _ in range(3):
        previous, stored = window, data.draw(st.booleans())
        known = previous.frontier if previous is not None and stored else previous
        window = window_of(given, profile, known, trimming)
        if previous is not None:
            assert profile.caching is not None
            check(window, previous, provider, profile.caching)
        given = {**given, **_changes(data.draw, given)}


def _changes(draw: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return what is different in the next window: more said, and now and then something else."""
    other = draw(declarations())
    changed = draw(st.lists(st.sampled_from([*given]), max_size=2))
    more = [*given["history"], user("more"), assistant("said")]
    return {"history": more, **{name: other[name] for name in changed}}
