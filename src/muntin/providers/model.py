"""What every model offers, and the values that it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from muntin.core.usage import Usage as Usage
from muntin.core.window import Window
from muntin.wire.reply import Event as Event
from muntin.wire.reply import Finished as Finished
from muntin.wire.reply import ReasoningDelta as ReasoningDelta
from muntin.wire.reply import Reply as Reply
from muntin.wire.reply import TextDelta as TextDelta
from muntin.wire.reply import ToolCalled as ToolCalled
from muntin.wire.reply import ToolFinished as ToolFinished


class Model(Protocol):
    """Anything that answers a window."""

    @property
    def name(self) -> str:
        """The name of the model, `provider/model` where there is a provider."""

    async def complete(self, window: Window, *, settings: Mapping[str, Any]) -> Reply:
        """Send the window and return the whole answer."""

    def stream(self, window: Window, *, settings: Mapping[str, Any]) -> AsyncIterator[Event]:
        """Send the window and yield the answer as it comes, ending with `Finished`."""
