"""The wire formats: a module for each API, with `encode` and `decode`."""

from muntin.providers.wire import anthropic, chat, google, responses

__all__ = ["anthropic", "chat", "google", "responses"]
