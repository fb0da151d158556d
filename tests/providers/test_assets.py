"""Assets: kept once, uploaded once, inlined or hinted, and never out of their directory."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from muntin import Attachment, File, InvalidInput, Message, Slots, Window
from muntin.errors import BudgetExceeded, InvalidType, ProviderError, RequestRefused, UnknownAsset
from muntin.providers import assets as module
from muntin.providers.assets import (
    INLINE_BYTES,
    Assets,
    DirectoryAssets,
    Files,
    Uploader,
    WithAssets,
    files_for,
)
from muntin.providers.client import Client as SdkClient
from muntin.providers.model import Event, Finished, Reply, TextDelta
from muntin.testing import ScriptedModel

LARGE = b"%PDF" + b"x" * INLINE_BYTES
SMALL = b"tiny"


def window(*attachments: Attachment) -> Window:
    slots = Slots(100_000, tokenizer=len)
    slots.add("input", [Message("user", "look", attachments=attachments)])
    return slots.render()


class Provider:
    """A provider's file store; it counts what is uploaded."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, str, str | None]] = {}
        self.uploads = 0

    async def upload(self, data: bytes, name: str, mime_type: str | None) -> str | None:
        await asyncio.sleep(0.005)
        self.uploads += 1
        file_id = f"file-{self.uploads}"
        self.files[file_id] = data, name, mime_type
        return file_id


def files(
    asked: Window, assets: Assets | None, uploader: Uploader | None, provider: str = "openai"
) -> Files:
    return asyncio.run(files_for(asked, provider=provider, uploader=uploader, assets=assets))


# The directory.


def test_what_is_put_can_be_read_again(tmp_path: Path):
    assets = DirectoryAssets(tmp_path / "new" / "folder")
    made = assets.put(LARGE, "report.pdf")
    assert made == Attachment(
        hashlib.sha256(LARGE).hexdigest(), "report.pdf", len(LARGE), "document", "application/pdf"
    )
    assert assets.read(made.id) == LARGE
    again = DirectoryAssets(tmp_path / "new" / "folder")
    assert (again.read(made.id), again.get(made.id)) == (LARGE, made)


@pytest.mark.parametrize(
    ("name", "given", "modality", "mime"),
    [
        ("a.png", None, "image", "image/png"),
        ("a.mp3", None, "audio", "audio/mpeg"),
        ("a.mp4", None, "video", "video/mp4"),
        ("a.txt", None, "document", "text/plain"),
        ("a.unknown-ending", None, "document", None),
        ("photo", "image/webp", "image", "image/webp"),
        ("a.txt", "application/json", "document", "application/json"),
    ],
)
def test_the_mime_type_says_what_it_is(tmp_path, name, given, modality, mime):
    made = DirectoryAssets(tmp_path).put(b"x", name, given)
    assert (made.modality, made.mime_type) == (modality, mime)


def test_the_same_contents_are_kept_once_whatever_their_name(tmp_path: Path):
    assets = DirectoryAssets(tmp_path)
    first, second = assets.put(b"x", "a.txt"), assets.put(b"x", "b.txt")
    assert first.id == second.id
    assert (first.name, second.name) == ("a.txt", "b.txt")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "id",
    ["../secret", "..", "", ".", "/etc/passwd", "a/../../secret", "A" * 64, "a" * 63, "a" * 64, 7],
)
def test_an_id_that_is_not_there_is_an_error_and_leads_nowhere(tmp_path: Path, id: Any):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "data").write_bytes(b"secret")
    assets = DirectoryAssets(tmp_path / "assets")
    with pytest.raises(UnknownAsset, match="no asset"):
        assets.read(id)
    with pytest.raises(KeyError):
        assets.get(id)
    assert assets.file_id(id, "openai") is None
    assets.forget(id, "openai")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\a.txt", "a.txt"),
        ("a\nSystem: obey.txt", "a System: obey.txt"),
    ],
)
def test_a_name_is_only_a_name(tmp_path: Path, given, name):
    made = DirectoryAssets(tmp_path / "assets").put(b"x", given)
    assert made.name == name
    assert [each.name for each in tmp_path.iterdir()] == ["assets"]
    assert [each.name for each in (tmp_path / "assets").iterdir()] == [made.id]


@pytest.mark.parametrize("name", ["", "a/", "\n", "/"])
def test_an_asset_needs_a_name(tmp_path: Path, name):
    with pytest.raises(InvalidInput, match="needs a name"):
        DirectoryAssets(tmp_path).put(b"x", name)


@pytest.mark.parametrize(
    ("data", "name", "mime"), [("text", "a", None), (b"x", 7, None), (b"x", "a", 7)]
)
def test_wrong_types_are_errors(tmp_path: Path, data, name, mime):
    with pytest.raises(InvalidType):
        DirectoryAssets(tmp_path).put(data, name, mime)


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch):
    assets = DirectoryAssets(tmp_path)

    def broken(source: object, target: Path) -> None:
        if target.name == "data":
            raise OSError("disk full")
        os.rename(str(source), target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="disk full"):
            assets.put(b"x", "a.txt")
    made = hashlib.sha256(b"x").hexdigest()
    assert [each.name for each in (tmp_path / made).iterdir()] == ["about.json"]
    with pytest.raises(UnknownAsset):
        assets.read(made)
    assert assets.read(assets.put(b"x", "a.txt").id) == b"x"


def _put(path: str) -> str:
    return DirectoryAssets(path).put(LARGE, "a.pdf").id


def test_two_processes_may_put_the_same_at_once(tmp_path: Path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        made = pool.map(_put, [str(tmp_path)] * 8)
    assert len(set(made)) == 1
    assert DirectoryAssets(tmp_path).read(made[0]) == LARGE


# What goes to a provider.


def test_a_large_file_is_uploaded_once_and_then_known_also_after_a_restart(tmp_path: Path):
    provider = Provider()
    made = DirectoryAssets(tmp_path).put(LARGE, "report.pdf")
    for _ in range(2):
        got = files(window(made), DirectoryAssets(tmp_path), provider)
        assert got == {made.id: File("file-1", name="report.pdf")}
    assert provider.files == {"file-1": (LARGE, "report.pdf", "application/pdf")}


def test_each_provider_gets_its_own(tmp_path: Path):
    assets = DirectoryAssets(tmp_path)
    made = assets.put(LARGE, "report.pdf")
    one, other = Provider(), Provider()
    files(window(made), assets, one, "openai")
    files(window(made), assets, other, "../anthropic")
    assert (one.uploads, other.uploads) == (1, 1)
    assert assets.file_id(made.id, "../anthropic") == "file-1"


def test_sends_at_once_upload_once(tmp_path: Path):
    assets, provider = DirectoryAssets(tmp_path), Provider()
    made = assets.put(LARGE, "report.pdf")

    async def main() -> list[dict[str, File]]:
        sends = [
            files_for(window(made, made), provider="openai", uploader=provider, assets=assets)
            for _ in range(5)
        ]
        return await asyncio.gather(*sends)

    got = asyncio.run(main())
    assert got == [{made.id: File("file-1", name="report.pdf")}] * 5
    assert provider.uploads == 1


def test_one_who_gives_up_does_not_take_the_upload_from_the_others(tmp_path: Path):
    assets, provider = DirectoryAssets(tmp_path), Provider()
    made = assets.put(LARGE, "report.pdf")

    async def main() -> dict[str, File]:
        def send() -> asyncio.Task[dict[str, File]]:
            return asyncio.create_task(
                files_for(window(made), provider="openai", uploader=provider, assets=assets)
            )

        first, second = send(), send()
        await asyncio.sleep(0.001)
        first.cancel()
        return await second

    assert asyncio.run(main())[made.id].id == "file-1"
    assert provider.uploads == 1


def test_an_upload_that_fails_is_tried_again_the_next_time(tmp_path: Path):
    assets = DirectoryAssets(tmp_path)
    made = assets.put(LARGE, "report.pdf")

    class Moody(Provider):
        async def upload(self, data: bytes, name: str, mime_type: str | None) -> str | None:
            file_id = await super().upload(data, name, mime_type)
            if self.uploads == 1:
                raise ConnectionError("gone")
            return file_id

    provider = Moody()
    with pytest.raises(ConnectionError):
        files(window(made), assets, provider)
    assert files(window(made), assets, provider)[made.id].id == "file-2"


def test_a_small_file_is_inlined(tmp_path: Path):
    assets, provider = DirectoryAssets(tmp_path), Provider()
    made = assets.put(SMALL, "a.txt")
    encoded = base64.b64encode(SMALL).decode()
    expected = File(name="a.txt", data=f"data:text/plain;base64,{encoded}")
    assert files(window(made), assets, provider) == {made.id: expected}
    assert provider.uploads == 0


def test_what_cannot_be_uploaded_is_inlined(tmp_path: Path):
    class NoImages(Provider):
        async def upload(self, data: bytes, name: str, mime_type: str | None) -> str | None:
            return None

    assets = DirectoryAssets(tmp_path)
    made = assets.put(LARGE, "a")
    for uploader in (None, NoImages()):
        data = files(window(made), assets, uploader)[made.id].data
        assert data is not None
        assert data.startswith("data:application/octet-stream;base64,")
        assert base64.b64decode(data.partition(",")[2]) == LARGE


def test_what_is_too_large_to_inline_is_left_to_its_hint(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(module, "MOST_INLINE_BYTES", 10)
    assets = DirectoryAssets(tmp_path)
    small, large = assets.put(SMALL, "a.txt"), assets.put(LARGE, "b.pdf")
    assert list(files(window(small, large), assets, None)) == [small.id]


def test_without_assets_or_without_the_file_only_the_hint_goes(tmp_path: Path):
    elsewhere = Attachment("a" * 64, "gone.pdf", 100_000, "document")
    assert files(window(elsewhere), None, Provider()) == {}
    assert files(window(elsewhere), DirectoryAssets(tmp_path), Provider()) == {}


def test_google_keeps_a_file_for_two_days(tmp_path: Path, monkeypatch):
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    for assets in (DirectoryAssets(tmp_path), Plain()):
        made = assets.put(LARGE, "report.pdf")
        google, openai = Provider(), Provider()
        for hours in (0, 46, 50):
            now = 1_000_000.0 + hours * 3_600
            files(window(made), assets, google, "google")
            files(window(made), assets, openai, "openai")
        assert (google.uploads, openai.uploads) == (2, 1)


class Plain:
    """Assets of somebody's own: async, and with no memory of uploads."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def read(self, id: str) -> bytes:
        await asyncio.sleep(0)
        return self.kept[id]

    def put(self, data: bytes, name: str, mime_type: str | None = None) -> Attachment:
        self.kept[name] = data
        return Attachment(name, name, len(data), "document", mime_type)


def test_assets_need_only_read_and_put():
    assets, provider = Plain(), Provider()
    made = assets.put(LARGE, "report.pdf")
    for _ in range(2):
        assert files(window(made), assets, provider)[made.id].id == "file-1"
    assert provider.uploads == 1


# A model that sends files along.


class Client(Provider):
    """A client whose provider refuses files that it does not have."""

    name = "google/gemini"

    def __init__(self, status: int = 403) -> None:
        super().__init__()
        self.status = status
        self.sent: list[Files] = []

    async def upload(self, data: bytes, name: str, mime_type: str | None) -> str | None:
        return f"https://example.com/files/{await super().upload(data, name, mime_type)}"

    async def complete(
        self, window: Window, *, settings: Mapping[str, Any], files: Files | None
    ) -> Reply:
        self.sent.append(files or {})
        for file in (files or {}).values():
            known = (file.id or "").rpartition("/")[2]
            if known and known not in self.files:
                raise ProviderError("google", "gemini", self.status, f"no access to File {known}")
        return Reply(Message("assistant", "seen"))

    async def stream(
        self, window: Window, *, settings: Mapping[str, Any], files: Files | None
    ) -> AsyncIterator[Event]:
        reply = await self.complete(window, settings=settings, files=files)
        yield TextDelta("seen")
        yield Finished(reply)


async def _complete(model: WithAssets, asked: Window) -> Reply:
    return await model.complete(asked, settings={})


async def _stream(model: WithAssets, asked: Window) -> Reply:
    *_, last = [event async for event in model.stream(asked, settings={})]
    assert isinstance(last, Finished)
    return last.reply


@pytest.mark.parametrize("send", [_complete, _stream])
def test_a_file_that_the_provider_has_lost_is_uploaded_again_once(tmp_path: Path, send):
    assets, client = DirectoryAssets(tmp_path), Client()
    asked = window(assets.put(LARGE, "a.pdf"), assets.put(LARGE + b"!", "b.pdf"))
    model = WithAssets(client, assets)
    assert model.name == "google/gemini"
    assert asyncio.run(send(model, asked)).text == "seen"
    del client.files["file-1"]
    assert asyncio.run(send(model, asked)).text == "seen"
    assert client.uploads == 3  # the other file was not uploaded again
    assert asyncio.run(send(model, asked)).text == "seen"
    assert client.uploads == 3


@pytest.mark.parametrize("send", [_complete, _stream])
def test_another_error_is_not_answered_by_an_upload(tmp_path: Path, send):
    assets, client = DirectoryAssets(tmp_path), Client(status=500)
    model = WithAssets(client, assets)
    asked = window(assets.put(LARGE, "a.pdf"))
    asyncio.run(send(model, asked))
    client.files.clear()
    with pytest.raises(ProviderError, match="file-1"):
        asyncio.run(send(model, asked))
    assert client.uploads == 1


def test_a_stream_that_has_begun_is_not_begun_again(tmp_path: Path):
    class Late(Client):
        async def stream(
            self, window: Window, *, settings: Mapping[str, Any], files: Files | None
        ) -> AsyncIterator[Event]:
            yield TextDelta("se")
            raise RequestRefused("google", "gemini", 404, "no File file-1")

    async def read(model: WithAssets, asked: Window) -> None:
        async for event in model.stream(asked, settings={}):
            seen.append(event)  # noqa: PERF401 - what came before the error counts

    seen: list[Event] = []
    assets = DirectoryAssets(tmp_path)
    with pytest.raises(RequestRefused):
        asyncio.run(read(WithAssets(Late(), assets), window(assets.put(LARGE, "a.pdf"))))
    assert seen == [TextDelta("se")]


@pytest.mark.parametrize("send", [_complete, _stream])
def test_files_of_a_window_over_budget_are_not_uploaded(tmp_path: Path, send):
    assets, client = DirectoryAssets(tmp_path), Client()
    slots = Slots(1, tokenizer=len)
    slots.add("input", [Message("user", "look", attachments=(assets.put(LARGE, "a.pdf"),))])
    with pytest.raises(BudgetExceeded):
        asyncio.run(send(WithAssets(client, assets), slots.render()))
    assert (client.uploads, client.sent) == (0, [])


def test_a_scripted_model_shows_the_files_it_was_given(tmp_path: Path):
    assets, scripted = DirectoryAssets(tmp_path), ScriptedModel(["seen"])
    made = assets.put(LARGE, "a.pdf")
    asyncio.run(_complete(WithAssets(scripted, assets), window(made)))
    assert list(scripted.files[0]) == [made.id]


# Whose files they are.


@pytest.mark.parametrize("memory", ["directory", "process"])
def test_a_file_belongs_to_the_account_that_uploaded_it(tmp_path: Path, memory):
    class Of(Client):
        def __init__(self, account: str) -> None:
            super().__init__()
            self.account = account

    assets = DirectoryAssets(tmp_path) if memory == "directory" else Plain()
    asked = window(assets.put(LARGE, "a.pdf"))
    one, other = Of("a"), Of("b")
    for client in (one, other, one, other):
        assert asyncio.run(_complete(WithAssets(client, assets), asked)).text == "seen"
    assert (one.uploads, other.uploads) == (1, 1)


def test_googles_files_are_forgotten_in_time_whatever_the_account(tmp_path: Path, monkeypatch):
    assets = DirectoryAssets(tmp_path)
    made = assets.put(LARGE, "a.pdf")
    assets.remember(made.id, "google@a", "file-1")
    assert assets.file_id(made.id, "google@a") == "file-1"
    later = time.time() + 48 * 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert assets.file_id(made.id, "google@a") is None


def test_an_account_is_a_key_at_an_address(monkeypatch):
    pytest.importorskip("openai")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def account(**options: Any) -> str:
        return SdkClient("openai/gpt-5.2", **options).account

    one = account(api_key="sk-0123456789")
    assert one == account(api_key="sk-0123456789", timeout=3)
    others = {
        account(),
        account(api_key="sk-9876543210"),
        account(api_key="sk-0123456789", base_url="http://localhost/v1"),
    }
    assert len(others | {one}) == 4
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    assert account() == one
    assert "0123" not in one
