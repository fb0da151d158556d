"""Uploading a file to a provider through its SDK, to refer to it by id afterwards.

Each function returns the id that the wire format writes, or None if the provider takes such a file
only inline, or not at all. Other modules decide what is uploaded, and when.
"""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any


async def upload_chat(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Upload a document: Chat Completions takes other media only inline.

    https://platform.openai.com/docs/guides/pdf-files
    """
    if _kind(mime) in ("image", "audio", "video"):
        return None
    return str((await client.files.create(file=(name, data, mime), purpose="user_data")).id)


async def upload_responses(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Upload a document or an image: https://platform.openai.com/docs/api-reference/files/create"""
    if _kind(mime) == "image":
        return str((await client.files.create(file=(name, data, mime), purpose="vision")).id)
    return await upload_chat(client, data, name, mime)


async def upload_anthropic(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Upload a file that a content block can refer to.

    https://platform.claude.com/docs/en/build-with-claude/files
    """
    if _kind(mime) != "image" and mime not in ("application/pdf", "text/plain"):
        return None
    return str((await client.files.upload(file=(name, data, mime))).id)


async def upload_google(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Upload any file whose type is known, and wait until it can be used.

    https://ai.google.dev/gemini-api/docs/files. Vertex AI has no such files.
    """
    if mime is None or client.vertexai:
        return None
    config = {"display_name": name, "mime_type": mime}
    file = await client.aio.files.upload(file=BytesIO(data), config=config)
    while file.state is not None and file.state.name == "PROCESSING":
        await asyncio.sleep(1)
        file = await client.aio.files.get(name=file.name)
    return str(file.uri)


async def upload_nothing(client: Any, data: bytes, name: str, mime: str | None) -> str | None:
    """Return None: compatible servers take files inline, if at all."""
    return None


def _kind(mime: str | None) -> str:
    return (mime or "").partition("/")[0]
