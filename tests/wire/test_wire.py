"""Every window the planner can produce is a valid request, and nothing is lost in silence."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given

from muntin import Image, Message, Slots, Text, Window
from tests.paths import TRACES
from tests.products import IS_WHOLE
from tests.wire.rules import CHECKS, check_json, strings
from tests.wire.windows import PROVIDERS, encode, files, windows


def body(request: dict[str, Any]) -> list[Any]:
    """The conversation of a request."""
    found = request.get("messages") or request.get("input") or request.get("contents") or []
    assert isinstance(found, list)
    return found


def check(window: Window, provider: str, given_files: Any = None) -> dict[str, Any]:
    request = encode(window, provider, strict=False, files=given_files)
    CHECKS[provider](request)
    check_json(request)
    if window.messages and not window.report.not_carried:
        assert body(request), "a window that lost nothing is not empty"
    return request


@given(window=windows(), given_files=files)
def test_every_window_is_a_valid_request_to_every_provider(window, given_files):
    for provider in PROVIDERS:
        check(window, provider, given_files)


@given(window=windows(), given_files=files)
def test_every_text_is_sent_or_listed(window, given_files):
    for provider in PROVIDERS:
        sent = strings(encode(window, provider, strict=False, files=given_files))
        name = "openai" if provider in ("chat", "responses") else provider
        lost = [entry for entry in window.report.not_carried if entry.provider == name]
        listed = {entry.message for entry in lost}
        for index, message in enumerate(window.messages):
            for text in said(message) if index not in listed else ():
                assert any(text in each for each in sent), (provider, index, text)


def said(message: Message) -> list[str]:
    """What a message holds that must not vanish: texts, addresses of images, names of files."""
    content = message.content
    parts = (Text(content),) if isinstance(content, str) else content or ()
    found = [part.text for part in parts if isinstance(part, Text)]
    found += [part.url for part in parts if isinstance(part, Image) and "," not in part.url]
    found += [f"File: {item.name}" for item in message.attachments]
    found += [call.name for call in message.tool_calls]
    return [text.rstrip() for text in found if text.strip()]


@given(window=windows())
def test_the_same_window_gives_the_same_request_and_stays_as_it_was(window):
    before = window.messages, window.tools, repr(window.messages)
    for provider in PROVIDERS:
        first = encode(window, provider, strict=False)
        lost = window.report.not_carried
        assert encode(window, provider, strict=False) == first, provider
        assert window.report.not_carried == lost, provider
    assert (window.messages, window.tools, repr(window.messages)) == before


def test_encoding_imports_no_sdk():
    script = (
        "import sys; from muntin import Slots; s = Slots(99); s.add('input', 'Hi')\n"
        "w = s.render(); w.openai(), w.openai(api='responses'), w.anthropic(), w.google()\n"
        "print({'openai', 'anthropic', 'google', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def traces() -> list[list[dict[str, Any]]]:
    lines = TRACES.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["messages"] for line in lines]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("budget", [300, 2_500, 100_000])
def test_recorded_conversations_are_valid_at_every_cut_point(provider, budget):
    whole = IS_WHOLE
    model = {"anthropic": "anthropic/claude-sonnet-4-5", "google": "google/gemini-2.5-pro"}
    for number, messages in enumerate(traces() if whole else traces()[::10]):
        for cut in range(1, len(messages) + 1, 1 if whole else 3):
            slots = Slots(budget, tokenizer="chars/4", profile=model.get(provider))
            slots.add("history", messages[:cut], priority=1)
            window = slots.render()
            request = check(window, provider)
            assert not window.report.not_carried, (number, cut)
            if len(window.messages) and messages[0]["role"] == "system":
                assert any(messages[0]["content"][-40:] in text for text in strings(request))
