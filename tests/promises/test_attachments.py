"""An attachment costs what it is, by kind and size, a text its text; `attachment_tokens` overrides
that in every interface, and what is counted is what is sent."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin import (
    App,
    Attachment,
    File,
    History,
    Input,
    InvalidInput,
    Message,
    Slots,
    Source,
    config,
    generate,
    generator,
    prompt,
    user,
)
from muntin.core.counting.counter import Counter, file_hint
from muntin.core.counting.files import (
    AUDIO_BYTES,
    AUDIO_TOKENS,
    PAGE_BYTES,
    PAGE_TOKENS,
    VIDEO_BYTES,
    VIDEO_TOKENS,
)
from muntin.core.counting.images import image_tokens
from muntin.testing import ScriptedModel
from tests.cli.command import run
from tests.products import NAMES, PRICED

COUNTER = Counter()


def cost(item: Attachment, counter: Counter = COUNTER) -> int:
    """What the attachment itself costs, its hint aside."""
    return (
        counter.message(user("", attachments=[item]))
        - counter.message(user(""))
        - counter.text(file_hint(item.name))
    )


@pytest.mark.parametrize(
    ("name", "size", "modality", "mime", "tokens"),
    [
        ("notes.txt", 11, "document", "text/plain", 4),
        ("notes", 11, "document", None, 4),
        ("data.json", 3_000, "document", "application/json", 1_000),
        ("huge.txt", 20_000_000, "document", "text/plain", 6_666_667),
        ("one.pdf", 900, "document", "application/pdf", PAGE_TOKENS),
        ("ten.pdf", 10 * PAGE_BYTES, "document", None, 10 * PAGE_TOKENS),
        ("most.pdf", 10**9, "document", "application/pdf", 1_000 * PAGE_TOKENS),
        ("a.docx", PAGE_BYTES + 1, "document", None, 2 * PAGE_TOKENS),
        ("a.mp3", 60 * AUDIO_BYTES, "audio", "audio/mpeg", 60 * AUDIO_TOKENS),
        ("a.wav", 60 * 32_000, "audio", "audio/wav", 60 * AUDIO_TOKENS),
        ("a.mp4", 10 * VIDEO_BYTES, "video", "video/mp4", 10 * VIDEO_TOKENS),
        ("a.png", 1, "image", "image/png", image_tokens(None, None)),
    ],
)
def test_worked_cases(name: str, size: int, modality: Any, mime: str | None, tokens: int) -> None:
    assert cost(Attachment("a", name, size, modality, mime)) == tokens


def test_a_small_text_fits_a_small_window() -> None:
    slots = Slots(60)
    slots.add("input", Input("Sum it up.", (Attachment("a", "notes.txt", 11, "document"),)))
    window = slots.render()
    assert not window.over_budget
    assert window.messages[0].attachments


def test_a_large_text_does_not_go_out_unnoticed() -> None:
    slots = Slots(100_000)
    slots.add("input", Input("Sum it up.", (Attachment("a", "x.txt", 20_000_000, "document"),)))
    assert slots.render().over_budget


TEXT = "Nothing but text, née 東京.\n" * 40


def inline(text: str, mime: str = "text/plain") -> str:
    return f"data:{mime};base64,{b64encode(text.encode()).decode()}"


def test_a_text_at_hand_counts_as_that_text_in_every_form() -> None:
    plain = COUNTER.text(TEXT)
    hint = COUNTER.text(file_hint("a.txt"))
    data = b64encode(TEXT.encode()).decode()
    source = {"type": "text", "media_type": "text/plain", "data": TEXT}
    parts: list[tuple[Any, int]] = [
        (File(name="a.txt", data=inline(TEXT)), hint),
        (File(data=inline(TEXT, "application/json")), 0),
        ({"type": "document", "source": source, "title": "a.txt"}, hint),
        ({"type": "document", "source": {**source, "type": "base64", "data": data}}, 0),
        ({"type": "file", "file": {"filename": "a.txt", "file_data": inline(TEXT)}}, hint),
        ({"type": "inline_data", "inline_data": {"mime_type": "text/csv", "data": data}}, 0),
    ]
    for part, named in parts:
        message = Message("user", (part,))
        assert COUNTER.message(message) == COUNTER.overhead + plain + named, part


def test_what_is_sent_is_what_was_counted() -> None:
    slots = Slots(100_000)
    slots.add("input", [Message("user", (File(name="a.txt", data=inline(TEXT)),))])
    window = slots.render()
    (turn,) = window.anthropic()["messages"]
    hint, document = turn["content"]
    assert document["source"]["data"] == TEXT
    texts = COUNTER.text(hint["text"]) + COUNTER.text(TEXT)
    assert window.tokens == COUNTER.overhead + texts + COUNTER.answer


FILE = Attachment("a", "report.pdf", 400_000, "document", "application/pdf")
OVERRIDES: list[Any] = [{"document": 7}, lambda item: 7]


def said(model: ScriptedModel) -> int:
    """Tokens of the message with the file, as the window counted it."""
    window = model.windows[-1]
    assert any(message.attachments for message in window.messages)
    return window.tokens


class Rendering:
    async def on_context_build(self, ctx: Any) -> Any:
        ctx.slots.add("input", ctx.message)
        return ctx.slots.render()


async def by_conversation(app: App, model: ScriptedModel, **_: Any) -> None:
    await app.conversation("c", model=model).send("hi", attachments=[FILE])


async def by_strategy(app: App, model: ScriptedModel, **_: Any) -> None:
    await app.conversation("c", strategy=Rendering(), model=model).send("hi", attachments=[FILE])


async def by_entity(app: App, model: ScriptedModel, **_: Any) -> None:
    @app.entity("e")
    async def handle(ctx: Any, wake: Any) -> None:
        files = Source(lambda: [user("see", attachments=[FILE])], max=900_000)
        ctx.use_context(source_budget=900_000, sources={"files": files})
        ctx.use_agent(system_prompt="s", model=model)
        await ctx.agent.run()

    await app.ask("e/1", "hi")


async def by_generator(app: App, model: ScriptedModel, **_: Any) -> None:
    made = generator(model=model, prompt="s", user=lambda given: Input(given, (FILE,)))
    await made.run("hi", app=app, session="g")


async def by_generate(app: App, model: ScriptedModel, **given: Any) -> None:
    made = prompt(messages=[user("hi", attachments=[FILE])])
    await generate(made, model=model, **given)


@pytest.mark.parametrize("override", OVERRIDES, ids=["by kind", "by function"])
@pytest.mark.parametrize(
    "interface", [by_conversation, by_strategy, by_entity, by_generator, by_generate]
)
def test_every_interface_takes_the_override(interface: Any, override: Any) -> None:
    asyncio.run(_try_interface(interface, override))


async def _try_interface(interface: Any, override: Any) -> None:
    model = ScriptedModel(["ok"], name=PRICED)
    async with App("memory:", budget=1_000_000, attachment_tokens=override) as app:
        await interface(app, model, attachment_tokens=override)
    assert said(model) < 1_100

    model = ScriptedModel(["ok"], name=PRICED)
    async with App("memory:", budget=1_000_000) as app:
        with config.local(attachment_tokens=override):
            await interface(app, model)
    assert said(model) < 1_100

    model = ScriptedModel(["ok"], name=PRICED)
    async with App("memory:", budget=1_000_000, assets=Files()) as app:
        await interface(app, model)
    assert said(model) > 8 * PAGE_TOKENS


class Files:
    """Assets that hold every file; a scripted model sends none of them."""

    def read(self, id: str, /) -> bytes:
        return b"%PDF"

    def put(self, data: bytes, name: str, mime_type: str | None = None) -> Any:
        raise AssertionError("nothing is stored here")


@pytest.mark.parametrize("name", NAMES)
def test_without_assets_a_file_counts_as_its_name_which_is_all_that_is_sent(name: str) -> None:
    model = ScriptedModel(["ok"], name=name)

    async def work() -> None:
        async with App("memory:", model=model, budget=2_000) as app:
            await app.conversation("c").send("hi", attachments=[FILE])

    asyncio.run(work())
    assert said(model) < 100


@pytest.mark.parametrize("override", OVERRIDES, ids=["by kind", "by function"])
def test_slots_histories_and_prompts_take_it(override: Any) -> None:
    slots = Slots(100, attachment_tokens=override)
    slots.add("input", Input("hi", (FILE,)))
    assert not slots.render().over_budget
    past = History([user("hi", attachments=[FILE])], attachment_tokens=override)
    assert len(past.by_tokens(60)) == 1
    made = prompt(messages=[user("hi", attachments=[FILE])])
    assert made.resolve_sync(attachment_tokens=override).window.tokens < 60
    assert made.inspect_sync(attachment_tokens=override).report.tokens < 60


def test_the_command_line_takes_it(tmp_path: Path) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([user("hi", attachments=[FILE]).to_dict()]))

    def total(*options: str) -> int:
        return int(json.loads(run("count", str(chat), "--json", *options).stdout)["total"])

    assert total() > 8 * PAGE_TOKENS
    assert total("--attachment-tokens", "document=7") < 60
    ended = run("count", str(chat), "--attachment-tokens", "document")
    assert ended.returncode == 2
    assert "image=1000" in ended.stderr


def test_a_wrong_override_is_refused_where_it_is_given() -> None:
    for place in (App, lambda **given: Slots(1, **given), config):
        with pytest.raises(InvalidInput, match="unknown modality 'pdf'"):
            place(attachment_tokens={"pdf": 1})


@given(
    st.integers(0, 10**8), st.integers(0, 10**8), st.sampled_from(["document", "audio", "video"])
)
def test_a_larger_file_never_costs_less(one: int, other: int, kind: Any) -> None:
    small, large = sorted((one, other))
    assert cost(Attachment("a", "n", small, kind)) <= cost(Attachment("a", "n", large, kind))


@given(st.text(max_size=200))
def test_any_text_costs_its_text_inline(text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    message = Message("user", (File(data=inline(clean)),))
    wanted = COUNTER.text(clean) if clean else 0
    assert COUNTER.message(message) == COUNTER.overhead + wanted
