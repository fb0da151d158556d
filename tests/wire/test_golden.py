"""Golden requests: one file a feature, with what each provider gets and what it cannot carry.

`MUNTIN_WRITE_GOLDEN=1` writes the files anew; read the difference before you keep it.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muntin import (
    Attachment,
    File,
    Image,
    Message,
    Reasoning,
    Slots,
    Text,
    ToolCall,
    Window,
    assistant,
    system,
    tool,
    user,
)
from muntin.core.parts import Other
from muntin.core.window import Breakpoint
from tests.wire.rules import CHECKS
from tests.wire.windows import (
    ODD_TOOLS,
    PDF,
    PNG,
    PROVIDERS,
    SEARCH,
    SIGNATURE,
    TOOLS,
    encode,
)

GOLDEN = Path(__file__).parent / "golden"
REPORT = Attachment("1", "report.pdf", 9, "document", "application/pdf")
PHOTO = Attachment("2", "photo.png", 9, "image")
SONG = Attachment("3", "song.mp3", 9, "audio", "audio/mpeg")


def window(*messages: Message, tools: Any = ()) -> Window:
    slots = Slots(100_000, tokenizer=len, tools=tools)
    slots.add("history", list(messages))
    return slots.render()


def call(*ids: str, text: str | None = None) -> Message:
    calls = [ToolCall(each, "look_up", json.dumps({"q": each})) for each in ids]
    return assistant(text, tool_calls=calls)


def cache_marks() -> Window:
    made = window(system("rules"), user("a"), assistant("b"), user("c"))
    return replace(made, breakpoints=(Breakpoint(1, "1h"), Breakpoint(3)))


def long_marks() -> Window:
    """A tool marked for 5 minutes, and marks for an hour behind it, of ours and of the user."""
    short = {**TOOLS[2], "cache_control": {"type": "ephemeral", "ttl": "5m"}}
    own = Text("c", extra={"cache_control": {"type": "ephemeral", "ttl": "1h"}})
    made = window(
        system("rules"), user("a"), assistant("b"), Message("user", (own,)), tools=[short]
    )
    return replace(made, breakpoints=(Breakpoint(1, "1h"),))


def twice() -> list[Message]:
    """An answer of Responses with its reasoning, a search and a call."""
    answer = Message(
        "assistant",
        (
            Reasoning("hm", signature="enc", extra={"id": "rs_1", "summary": []}),
            Other({**SEARCH, "id": "ws_1"}),
            Text("yes", extra={"item_id": "msg_1"}),
        ),
        tool_calls=(ToolCall("c", "f", "{}", extra={"item_id": "fc_1"}),),
    )
    return [answer, tool("c", "1")]


FEATURES: dict[str, Callable[[], Window]] = {
    "plain": lambda: window(system("Be brief."), user("Hi"), assistant("Hello"), user("Bye")),
    "parallel-calls": lambda: window(
        user("q"), call("a", "b", text="Looking."), tool("b", "2"), tool("a", "1"), assistant("3")
    ),
    "call-without-result": lambda: window(user("q"), call("a"), user("well?")),
    "result-after-other-messages": lambda: window(
        user("q"), call("a"), user("wait"), tool("a", "1")
    ),
    "ids-used-again": lambda: window(
        user("q"), call("a"), tool("a", "1"), call("a"), tool("a", "2")
    ),
    "ids-refused": lambda: window(user("q"), call("functions.f:0"), tool("functions.f:0", "1")),
    "result-of-nothing": lambda: window(user("q"), Message("tool", "42")),
    "empty-result": lambda: window(user("q"), call("a"), tool("a", "")),
    "failed-result": lambda: window(
        user("q"), call("a"), Message("tool", "boom", tool_call_id="a", extra={"is_error": True})
    ),
    "picture-in-result": lambda: window(
        user("q"), call("a"), Message("tool", (Text("see"), Image(PNG)), tool_call_id="a")
    ),
    "assistant-first": lambda: window(system("s"), assistant("Hello"), user("Hi")),
    "system-later": lambda: window(system("s"), user("Hi"), system("Now in French."), user("Go")),
    "system-only": lambda: window(system("Write a poem.")),
    "same-role-twice": lambda: window(user("a"), user("b"), assistant("c"), assistant("d")),
    "reasoning-of-anthropic": lambda: window(
        user("q"),
        Message(
            "assistant",
            (
                Reasoning("hm", signature="sig"),
                Other({"type": "redacted_thinking", "data": "x"}),
                Text("yes"),
            ),
        ),
    ),
    "reasoning-of-openai": lambda: window(
        user("q"),
        Message(
            "assistant",
            (
                Reasoning("hm", signature="enc", extra={"id": "rs_1", "summary": []}),
                Text("yes", extra={"item_id": "msg_1"}),
            ),
            tool_calls=(ToolCall("c", "f", "{}", extra={"item_id": "fc_1"}),),
        ),
        tool("c", "1"),
    ),
    "reasoning-of-google": lambda: window(
        user("q"),
        Message(
            "assistant",
            (Reasoning("hm", extra={"thought": True}),),
            tool_calls=(ToolCall("c", "f", "{}", extra={"thought_signature": SIGNATURE}),),
        ),
        tool("c", "1"),
    ),
    "reasoning-in-the-open": lambda: window(
        user("q"), Message("assistant", "yes", extra={"reasoning_content": "hm"})
    ),
    "reasoning-alone": lambda: window(
        user("q"), Message("assistant", (Reasoning("hm", signature="sig"),)), user("well?")
    ),
    "images": lambda: window(
        Message("user", (Text("See"), Image("https://example.org/a.png", detail="low"), Image(PNG)))
    ),
    "files": lambda: window(
        Message("user", (Text("Read"), File("file-1", name="a.pdf"), File(data=PDF, name="b.pdf")))
    ),
    "sound": lambda: window(
        Message(
            "user",
            (Other({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),),
        )
    ),
    "attachments-hinted": lambda: window(user("See", attachments=[REPORT, PHOTO])),
    "attachments-sent": lambda: window(user("See", attachments=[REPORT, PHOTO, SONG])),
    "arguments-that-are-no-object": lambda: window(
        user("q"),
        assistant(tool_calls=[ToolCall("a", "f", "oops"), ToolCall("b", "g", "")]),
        tool("a", "1"),
        tool("b", "2"),
    ),
    "cache-marks": cache_marks,
    "cache-marks-of-the-user": lambda: window(
        Message("user", (Text("long", extra={"cache_control": {"type": "ephemeral"}}),)),
    ),
    "refusal": lambda: window(
        user("q"), Message("assistant", (Other({"type": "refusal", "refusal": "No."}),)), user("?")
    ),
    "unknown-parts-and-fields": lambda: window(
        Message("user", (Text("a"), Other({"type": "mystery"})), name="ann", extra={"x": 1})
    ),
    "developer": lambda: window(
        Message.from_dict({"role": "developer", "content": "rules"}), user("Hi")
    ),
    "tools": lambda: window(user("Hi"), tools=TOOLS),
    "tools-of-odd-names": lambda: window(
        user("Hi"),
        assistant(tool_calls=[ToolCall("1", "server.tool"), ToolCall("2", "server_tool")]),
        tool("1", "a"),
        tool("2", "b"),
        assistant(tool_calls=[ToolCall("3", "server tool"), ToolCall("4", "n" * 151)]),
        tool("3", "c"),
        tool("4", "d"),
        tools=[*TOOLS, *ODD_TOOLS],
    ),
    "failed-result-of-nothing": lambda: window(
        user("q"),
        call("a", "b", "c"),
        Message("tool", "", tool_call_id="a", extra={"is_error": True}),
        Message("tool", (Text(" "), Image(PNG)), tool_call_id="b", extra={"is_error": True}),
        Message("tool", (Text("x"), Image(PNG)), tool_call_id="c", extra={"is_error": True}),
    ),
    "thoughts-of-a-second-run": lambda: window(
        user("q"),
        assistant("First run."),
        Message(
            "assistant",
            (Reasoning("hm", signature="sig"), Text("Second run.")),
            tool_calls=(ToolCall("a", "look_up"),),
        ),
        tool("a", "1"),
    ),
    "thoughts-of-two-runs": lambda: window(
        user("q"),
        Message("assistant", (Reasoning("one", signature="s1"), Text("First run."))),
        Message(
            "assistant",
            (Reasoning("two", signature="s2"), Text("Second run.")),
            tool_calls=(ToolCall("a", "look_up"),),
        ),
        tool("a", "1"),
    ),
    "cache-marks-of-many-lengths": long_marks,
    "items-that-stand-twice": lambda: window(user("q"), *twice(), user("again"), *twice()),
    "empty-texts": lambda: window(
        user("q"),
        Message(
            "assistant",
            (
                Other({"type": "refusal", "refusal": ""}),
                Reasoning("", extra={"thought": True}),
                Reasoning("", signature="no base64!", extra={"thought": True}),
                Text("", extra={"part_metadata": {"a": 1}}),
                Text("", extra={"thought_signature": SIGNATURE}),
                Text("so"),
            ),
        ),
        Message("user", (Text(""), Text("well?"))),
    ),
    "images-and-files-that-are-none": lambda: window(
        Message(
            "user",
            (
                Text("See"),
                Image("file:///tmp/a.png"),
                Image("gs://bucket/a.png"),
                Image("data:image/png;base64,not base64!"),
                Image("data:image/png;base64,cGljdHVyZQ"),
                File(data="no base64 at all", name="a.pdf"),
                File(data="data:text/plain,hello%20there", name="b.txt"),
                Other({"type": "input_file", "file_url": "ftp://example.org/c.pdf"}),
                Other({"type": "input_audio", "input_audio": {"data": "?", "format": "wav"}}),
                Other({"type": "file_data", "file_data": {"mime_type": "a/b", "file_uri": "d"}}),
            ),
        )
    ),
}
FILES = {"1": File("file-9"), "2": File(data=PNG), "3": File(data="AAAA")}


def plain(value: Any) -> str:
    assert isinstance(value, bytes)
    return "base64:" + b64encode(value).decode()


def golden(feature: str) -> str:
    made = FEATURES[feature]()
    files = FILES if feature == "attachments-sent" else None
    requests = {provider: encode(made, provider, files=files) for provider in PROVIDERS}
    lost = []
    for provider in PROVIDERS:
        encode(made, provider, files=files)
        name = "openai" if provider in ("chat", "responses") else provider
        for entry in made.report.not_carried:
            if entry.provider == name:
                where = "" if entry.message is None else f"message {entry.message}: "
                lost.append(f"{provider}: {where}{entry.what}: {entry.reason}")
    for provider, request in requests.items():
        CHECKS[provider](request)
    whole = {**requests, "not carried": lost}
    return json.dumps(whole, indent=2, ensure_ascii=False, default=plain) + "\n"


@pytest.mark.parametrize("feature", FEATURES)
def test_a_request_is_as_recorded(feature):
    path = GOLDEN / f"{feature}.json"
    if os.environ.get("MUNTIN_WRITE_GOLDEN"):
        path.write_text(golden(feature), encoding="utf-8")
    assert golden(feature) == path.read_text(encoding="utf-8")


def test_every_file_is_of_a_feature():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(FEATURES)
