"""Windows of every kind, rendered by the real planner from generated slots."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from muntin import Attachment, File, Image, Message, Reasoning, Slots, Text, ToolCall, Window
from muntin.core.parts import Other
from muntin.core.window import Breakpoint

PROVIDERS = ("chat", "responses", "anthropic", "google")
PNG = "data:image/png;base64," + b64encode(b"picture").decode()
PDF = "data:application/pdf;base64," + b64encode(b"%PDF-1.4").decode()
SIGNATURE = b64encode(b"signed").decode()


def encode(window: Window, provider: str, **options: Any) -> dict[str, Any]:
    if provider in ("chat", "responses"):
        return window.openai(api=provider, **options)  # type: ignore[arg-type]
    return getattr(window, provider)(**options)  # type: ignore[no-any-return]


SEARCH = {
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
words = st.text("ab é漢😀\n", max_size=20)
texts = st.one_of(words, st.sampled_from(["", " ", "\n", "end \n", "a" * 200]))
names = st.sampled_from(
    ["f", "look_up", "functions.look:0", "server.tool", "server_tool", "a b", "9", "n" * 150]
)
arguments = st.sampled_from(
    [
        "{}",
        "",
        '{"x": 1}',
        ' {"x": [1, {"y": null}]} ',
        "[1]",
        "oops",
        '{"x": NaN}',
        '{"x": 1e999}',
        '{"x":"\\ud800"}',
        '{"x":' * 9_000,
    ]
)
marks = st.sampled_from(
    [
        None,
        {"cache_control": {"type": "ephemeral"}},
        {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
)


@st.composite
def reasonings(draw: Any, number: int) -> Any:
    return draw(
        st.sampled_from(
            [
                Reasoning("hm"),
                Reasoning("hm", signature=SIGNATURE),
                Reasoning("", signature=SIGNATURE),
                Reasoning("hm", signature="enc", extra={"id": f"rs_{number}", "summary": []}),
                Reasoning("hm", signature="enc", extra={"id": "rs_again", "summary": []}),
                Reasoning("hm", signature=SIGNATURE, extra={"thought": True}),
                Reasoning("", signature="no base64!", extra={"thought": True}),
                Reasoning("", extra={"thought": True}),
                Reasoning("hm", extra={"thought": True}),
                Other({"type": "redacted_thinking", "data": "x"}),
            ]
        )
    )


media = st.sampled_from(
    [
        Image("https://example.org/a.png", detail="low", width=10, height=10),
        Image(PNG),
        Image("data:image/tiff;base64,AAAA"),
        Image("data:image/png;base64,not base64!"),
        Image("data:image/png;base64,"),
        Image("data:image/png;base64,cGljdHVyZQ"),
        Image("file:///tmp/a.png"),
        Image("a picture"),
        Image("gs://bucket/a.png"),
        File(data="no base64 at all", name="d.pdf"),
        Other({"type": "input_file", "file_url": "ftp://example.org/a.pdf"}),
        Other({"type": "inline_data", "inline_data": {"mime_type": "image/png", "data": "?"}}),
        Other({"type": "file_data", "file_data": {"mime_type": "a/b", "file_uri": "a.pdf"}}),
        File("file-1", name="a.pdf"),
        File("file-2"),
        File(data=PDF, name="b.pdf"),
        File(data="AAAA", name="c.txt"),
        File(data="data:text/plain,hello%20there"),
        File(),
        Other({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        Other({"type": "image", "source": {"type": "url", "url": "https://example.org/b.png"}}),
        Other(
            {
                "type": "search_result",
                "source": "https://example.org",
                "title": "t",
                "content": [{"type": "text", "text": "found"}],
            }
        ),
        Other({"type": "mystery", "payload": 1}),
    ]
)
attachments = st.lists(
    st.sampled_from(
        [
            Attachment("1", "report.pdf", 9, "document", "application/pdf"),
            Attachment("2", "photo.png", 9, "image"),
            Attachment("3", "song.mp3", 9, "audio", "audio/mpeg"),
            Attachment("4", "film.mp4", 9, "video"),
            Attachment("5", "unknown.bin", 9, "document"),
        ]
    ),
    max_size=2,
).map(tuple)
files = st.sampled_from(
    [
        {},
        {"1": File("file-9"), "2": File("file-8"), "3": File("file-7"), "4": File("file-6")},
        {"1": File(data=PDF), "2": File(data=PNG), "3": File(data="AAAA"), "5": File(data="AAAA")},
    ]
)


@st.composite
def contents(draw: Any) -> Any:
    if draw(st.booleans()):
        return draw(texts)
    text = st.builds(lambda t, extra: Text(t, extra=extra), texts, marks)
    return tuple(draw(st.lists(st.one_of(text, media), max_size=3)))


@st.composite
def said(draw: Any, number: int) -> Any:
    if draw(st.booleans()):
        return draw(st.one_of(texts, st.none()))
    text = st.builds(Text, texts)
    native = st.sampled_from(
        [
            Text("signed", extra={"thought_signature": SIGNATURE}),
            Text("", extra={"thought_signature": SIGNATURE}),
            Text("", extra={"part_metadata": {"a": 1}}),
            Text("named", extra={"item_id": f"msg_{number}", "phase": "final_answer"}),
            Text("named", extra={"item_id": "msg_again"}),
            Other({"type": "refusal", "refusal": "no"}),
            Other({"type": "refusal", "refusal": ""}),
            Other({**SEARCH, "id": "ws_again"}),
            Other({"type": "mystery"}),
            Image(PNG),
            Other(
                {
                    "type": "executable_code",
                    "executable_code": {"code": "1", "language": "PYTHON"},
                }
            ),
        ]
    )
    return tuple(draw(st.lists(st.one_of(text, reasonings(number), native), max_size=4)))


@st.composite
def steps(draw: Any, number: int) -> list[Message]:
    """One move of a conversation: a message, or calls with their results."""
    kind = draw(st.sampled_from(["user", "assistant", "calls", "system", "orphan", "loose"]))
    name = draw(st.sampled_from([None, None, "ann", "two words"]))
    if kind == "user":
        return [
            Message("user", draw(contents()), attachments=draw(attachments), name=name,
                    extra=draw(marks))
        ]  # fmt: skip
    if kind == "assistant":
        extra = draw(st.sampled_from([None, {"reasoning_content": "hm", "annotations": []}]))
        return [Message("assistant", draw(said(number)), extra=extra)]
    if kind == "system":
        extra = draw(st.sampled_from([None, {"role": "developer"}]))
        return [Message("system", draw(contents()), extra=extra)]
    if kind == "orphan":
        return [Message("tool", draw(texts), tool_call_id=f"ghost{number}")]
    if kind == "loose":
        return [Message("tool", draw(texts))]
    return draw(calls(number))  # type: ignore[no-any-return]


@st.composite
def calls(draw: Any, number: int) -> list[Message]:
    pool = ["a", "b", "a_2", "call.1|x", "c" * 70, "c" * 69 + "d"]
    ids = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3, unique=True))
    pending = [f"p{number}"] if draw(st.integers(0, 3)) == 0 else []
    made = []
    for call_id in [*ids, *pending]:
        extra = draw(
            st.sampled_from(
                [
                    None,
                    {"type": "custom"},
                    {"item_id": "fc_again"},
                    {"thought_signature": SIGNATURE},
                    {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
                ]
            )
        )
        made.append(ToolCall(call_id, draw(names), draw(arguments), extra=extra))
    results = [
        Message("tool", draw(contents()), tool_call_id=call_id,
                name=draw(st.sampled_from([None, "f"])), attachments=draw(attachments),
                extra=draw(st.sampled_from([None, {"is_error": True}])))
        for call_id in draw(st.permutations(ids))
    ]  # fmt: skip
    if draw(st.integers(0, 3)) == 0:
        results.insert(draw(st.integers(0, len(results))), Message("user", "wait"))
    return [Message("assistant", draw(said(number)), tool_calls=tuple(made)), *results]


@st.composite
def conversations(draw: Any, max_steps: int = 6) -> list[Message]:
    count = draw(st.integers(0, max_steps))
    return [message for number in range(count) for message in draw(steps(number))]


TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "g", "description": "d", "strict": True}},
    {"name": "h", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
    {"type": "function", "name": "i", "parameters": {"type": "object", "properties": {}}},
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "web_search"},
    {"google_search": {}},
    {"type": "custom", "custom": {"name": "c"}},
]
# Names that are refused, that become alike, that are too long, and that stand twice; schemas
# without a type.
ODD_TOOLS: list[dict[str, Any]] = [
    {"name": "server.tool", "input_schema": {"properties": {"q": {"type": "string"}}}},
    {"type": "function", "function": {"name": "server_tool", "parameters": {}}},
    {"type": "function", "function": {"name": "server:tool", "parameters": {"properties": {}}}},
    {"type": "function", "function": {"name": "n" * 150}},
    {"type": "function", "function": {"name": "n" * 151}},
    {"type": "function", "function": {"name": "9 é", "parameters": {"type": None}}},
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}},
    {"type": "function", "name": "web_search", "parameters": {"type": "object"}},
    {"type": "custom", "custom": {"name": "c.d"}},
    {"function_declarations": [{"name": "f"}, {"name": "k l"}]},
]


@st.composite
def windows(draw: Any) -> Window:
    """Slots of every kind, at every budget, with and without the room for a lead."""
    history = draw(conversations())
    profile = draw(st.sampled_from([None, "anthropic/claude-sonnet-4-5", "openai/gpt-4o"]))
    slots = Slots(
        draw(st.one_of(st.integers(0, 600), st.just(100_000))),
        tokenizer=draw(st.sampled_from([len, "chars/4"])),
        profile=profile,
        tools=draw(st.lists(st.sampled_from([*TOOLS, *ODD_TOOLS]), max_size=8)),
        attachment_tokens=lambda item: 3,
    )
    slots.add("system", draw(texts), priority=draw(st.integers(0, 1)))
    split = draw(st.integers(0, len(history)))
    for name, piece in (("early", history[:split]), ("late", history[split:])):
        slots.add(
            name,
            piece,
            priority=draw(st.integers(0, 1)),
            trim_behavior=draw(st.sampled_from(["message", "char"])),
            min_tokens=draw(st.sampled_from([0, 50])),
        )
    slots.add("input", draw(texts))
    window = slots.render()
    points = draw(st.lists(st.integers(0, len(window.messages) + 1), max_size=6))
    ttl = draw(st.sampled_from([None, "1h", "30m"]))
    return replace(window, breakpoints=tuple(Breakpoint(after, ttl) for after in points))
