"""Ceilings of providers: images, pixels, bytes and messages of one request, as it is encoded."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest

from muntin import App, Slots, assistant, fit, user
from muntin.core.message import Message
from muntin.core.parts import Image, Text
from muntin.core.profile import Profile, RequestLimits
from muntin.errors import BudgetExceeded
from muntin.fitting import Fitter
from muntin.fitting.requests import FORMS, fit_request
from muntin.testing import ScriptedModel

CLAUDE = "anthropic/claude-opus-4-6"


def png(width: int, height: int, more: int = 0) -> str:
    """Return the head of a PNG of this size in base64."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    return b64encode(b"\x89PNG\r\n\x1a\n" + chunk + b"\0" * more).decode()


def image(width: int, height: int, more: int = 0) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": png(width, height, more)}
    return {"type": "image", "source": source}


def shots(count: int, width: int = 800, height: int = 600, more: int = 0) -> list[Any]:
    """Return a talk in which the user shows pictures, one a turn."""
    talk: list[Any] = []
    for number in range(count):
        text = {"type": "text", "text": f"Picture {number}."}
        talk.append({"role": "user", "content": [text, image(width, height, more)]})
        talk.append({"role": "assistant", "content": f"I see {number}."})
    return [*talk, {"role": "user", "content": "Which was the best?"}]


def images_in(value: Any) -> int:
    """Count the images of an encoded request."""
    if isinstance(value, dict):
        own = value.get("type") == "image"
        return own + sum(map(images_in, value.values()))
    return sum(map(images_in, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize(
    ("model", "images"),
    [
        ("anthropic/claude-opus-4-6", 600),
        ("anthropic/claude-sonnet-4-6", 600),
        ("anthropic/claude-fable-5-1", 600),
        ("anthropic/claude-haiku-5-5", 600),
        ("anthropic/claude-sonnet-4-5", 100),
        ("anthropic/claude-sonnet-4-5-20250929", 100),
        ("anthropic/claude-sonnet-4-20250514", 100),
        ("anthropic/claude-haiku-4-5", 100),
        ("anthropic/claude-opus-4-1", 100),
    ],
)
def test_the_limits_of_claude_by_model(model: str, images: int) -> None:
    limits = Profile.for_model(model).limits
    assert limits == RequestLimits(32_000_000, 100_000, images, 8_000, 20, 2_000)


def test_other_makers_have_no_known_limits() -> None:
    for model in ("openai/gpt-5", "google/gemini-3-pro", "ollama/qwen3"):
        assert Profile.for_model(model).limits is None


def test_of_thirty_large_screenshots_at_most_twenty_are_sent() -> None:
    talk = shots(30, 2_560, 1_440)
    fitted = fit(talk, 500_000, model=CLAUDE, previous={})
    assert images_in(fitted.kept) == 20
    assert images_in(fitted.kept[:20]) == 0  # the oldest have left
    assert "[1 image left out]" in json.dumps(fitted.kept[0])
    assert any("images left" in warning for warning in fitted.report.warnings)
    small = fit(shots(30), 500_000, model=CLAUDE, previous={})
    assert images_in(small.kept) == 30
    other = fit(talk, 500_000, model="openai/gpt-6", previous={})
    assert images_in(other.kept) == 30


def test_between_two_moves_nothing_changes() -> None:
    """Images leave ten at once, so that most requests go on from the request before."""
    before: list[Any] = []
    moves = 0
    for count in range(1, 60):
        kept = fit(shots(count, 2_560, 1_440), 500_000, model=CLAUDE, previous={}).kept[:-1]
        moves += kept[: len(before)] != before
        assert images_in(kept) <= 20
        before = kept
    assert moves == 4


def test_six_hundred_images_are_the_most() -> None:
    kept = fit(shots(650, 8, 8), 5_000_000, model=CLAUDE, previous={}).kept
    assert 300 <= images_in(kept) <= 600
    old = fit(shots(120, 8, 8), 5_000_000, model="anthropic/claude-haiku-4-5", previous={}).kept
    assert 50 <= images_in(old) <= 100


def test_a_request_has_at_most_32_megabytes() -> None:
    talk = shots(30, more=1_500_000)  # 60 MB in base64
    body = {"model": "claude-opus-4-6", "max_tokens": 9, "messages": talk}
    sent = fit_request(Fitter(5_000_000), FORMS["anthropic"], body).body
    assert len(json.dumps(body)) > 60_000_000
    assert 8_000_000 < len(json.dumps(sent)) < 32_000_000
    assert "Which was the best?" in json.dumps(sent["messages"][-1])


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ([image(9_000, 100)], "8,000 pixels a side"),
        ([image(2_500, 100)] * 21, "2,000 pixels a side where there are more than 20 images"),
        ([image(8, 8)] * 601, "600 images, 601 must stay"),
        ([image(8, 8, 26_000_000)], "32,000,000 bytes"),
    ],
)
def test_what_must_stay_and_is_too_large_is_an_error_that_names_the_limit(
    content: list[Any], limit: str
) -> None:
    talk = [{"role": "user", "content": content}]
    with pytest.raises(BudgetExceeded, match=limit):
        fit(talk, 50_000_000, model=CLAUDE, previous={})


def test_an_image_too_large_leaves_wherever_it_stands() -> None:
    talk = shots(3)
    talk[2]["content"][1] = image(9_000, 9_000)
    kept = fit(talk, 500_000, model=CLAUDE, previous={}).kept
    assert images_in(kept) == 2
    assert images_in(kept[2]) == 0


def test_slots_and_the_encoded_request() -> None:
    url = f"data:image/png;base64,{png(2_560, 1_440)}"
    slots = Slots(500_000, profile=CLAUDE)
    history: list[Message] = []
    for number in range(30):
        history.append(Message("user", (Text(f"Picture {number}."), Image(url))))
        history.append(assistant("I see."))
    slots.add("history", history)
    slots.add("input", "Which was the best?")
    window = slots.render()
    request = window.anthropic()
    assert images_in(request["messages"]) == 20
    assert window.tokens < 500_000
    plain = Slots(500_000, profile="ollama/qwen3")
    plain.add("history", history)
    assert len(plain.render().messages) == 60


def test_a_conversation_keeps_to_the_limits_over_turns() -> None:
    url = f"data:image/png;base64,{png(2_560, 1_440)}"

    async def run() -> list[int]:
        model = ScriptedModel(lambda window: "I see.", name=CLAUDE, budget=500_000)
        async with App("memory:", model=model, recall=False) as app:
            talk = app.conversation("c")
            for number in range(25):
                talk.session.append(Message("user", (Text(f"Picture {number}."), Image(url))))
                talk.session.append(assistant("I see."))
            await talk.send("Which was the best?")
            await talk.send("And the worst?")
        return [images_in(window.anthropic()["messages"]) for window in model.windows]

    assert asyncio.run(run()) == [15, 15]


def test_too_many_messages_are_an_error() -> None:
    profile = Profile.for_model(CLAUDE)
    assert profile.limits is not None
    few = replace(profile, limits=replace(profile.limits, messages=3))
    slots = Slots(10_000, profile=few)
    slots.add("history", [user("a"), assistant("b"), user("c"), assistant("d")])
    window = slots.render()
    assert window.over_budget
    with pytest.raises(BudgetExceeded, match="3 messages, it has 4"):
        window.anthropic()
