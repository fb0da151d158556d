"""The window: the result of planning, what the model will see.

Turning it into a provider's request or a picture is the work of upper layers, imported late.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from muntin.core.checks import shown
from muntin.core.composed import Composed
from muntin.core.parts import File
from muntin.errors import InvalidInput


class Window(Composed):
    """The composed messages with their outside forms: requests of providers, pictures."""

    __slots__ = ()

    def openai(
        self,
        *,
        api: Literal["chat", "responses"] = "chat",
        strict: bool = True,
        files: Mapping[str, File] | None = None,
    ) -> dict[str, Any]:
        """Return the keyword arguments of an OpenAI call: Chat Completions or Responses.

        `files` maps the id of an attachment to the file that is sent for it. Raises
        `BudgetExceeded` if the window is over budget, unless `strict` is False. What the API
        cannot carry is listed in `report.not_carried`.
        """
        from muntin.wire import chat, responses

        encoders = {"chat": chat.encode, "responses": responses.encode}
        if api not in encoders:
            raise InvalidInput(f"unknown api {shown(api)}; use {', '.join(encoders)}")
        return encoders[api](self, strict=strict, files=files)

    def anthropic(
        self, *, strict: bool = True, files: Mapping[str, File] | None = None
    ) -> dict[str, Any]:
        """Return the keyword arguments of an Anthropic Messages call; see `openai`."""
        from muntin.wire.anthropic import encode

        return encode(self, strict=strict, files=files)

    def google(
        self, *, strict: bool = True, files: Mapping[str, File] | None = None
    ) -> dict[str, Any]:
        """Return the keyword arguments of a Google `generate_content` call; see `openai`."""
        from muntin.wire.google import encode

        return encode(self, strict=strict, files=files)

    def fits_with(self, slot: str, message: int = 0) -> int | None:
        """Return how many more tokens of budget would show a message of a slot whole: 0 if it is
        whole, None if no budget would."""
        plan = self.explained
        if not hasattr(plan, "fits_with"):
            raise InvalidInput("a window that was pickled has forgotten its plan; compose it again")
        more: int | None = plan.fits_with(slot, message)
        return more

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the window as one HTML file: the bar, the table of slots, what was left out."""
        from muntin.view.html import page

        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(page(self))

    def _repr_html_(self) -> str:
        from muntin.view.html import html

        return html(self)
