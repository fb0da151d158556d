"""The wire formats: for each API how a window is sent, and how its answers are read."""

from collections.abc import Callable
from typing import Any, NamedTuple

from muntin.providers.model import Reply
from muntin.providers.wire import (
    anthropic_reply,
    anthropic_request,
    chat_reply,
    chat_request,
    google_reply,
    google_request,
    responses_reply,
    responses_request,
)
from muntin.providers.wire.names import ToolNames


class Wire(NamedTuple):
    """One API: `encode` makes its request, `decode` and `Assembler` read a whole or a streamed
    answer, `names_of` tells the names under which tools are sent."""

    encode: Callable[..., dict[str, Any]]
    decode: Callable[..., Reply]
    Assembler: Callable[..., Any]
    names_of: Callable[..., ToolNames]

    @classmethod
    def of(cls, request: Any, reply: Any) -> "Wire":
        """Return the wire format that a request module and a reply module make up."""
        return cls(request.encode, reply.decode, reply.Assembler, request.names_of)


anthropic = Wire.of(anthropic_request, anthropic_reply)
chat = Wire.of(chat_request, chat_reply)
google = Wire.of(google_request, google_reply)
responses = Wire.of(responses_request, responses_reply)

__all__ = ["Wire", "anthropic", "chat", "google", "responses"]
