"""What the encoder of every API begins with, and how all of them list a name or a tool.

Knows messages and tools; knows no vendor's format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muntin.core.accepted import NameRule
from muntin.core.message import Message
from muntin.core.parts import ToolCall
from muntin.providers.wire.common import Files, Ids, Ledger
from muntin.providers.wire.names import Declared, ToolNames


class Encoder:
    """One encoding: the files and names it goes by, and the list of what is not carried.

    `ids` is which ids of calls the API takes, `nameless` why a message has no name there.
    """

    def __init__(
        self, provider: str, files: Files, names: ToolNames, ids: NameRule, nameless: str
    ) -> None:
        self.files = files
        self.ledger = Ledger(provider)
        self.ids = Ids(ids)
        self.names = names
        self.declare = Declared(names, self.ledger)
        self._nameless = nameless

    def called(self, index: int, call: ToolCall) -> str:
        """Return the name that a call is sent under; one that is not its own is listed."""
        name = self.names(call.name)
        if name != call.name:
            self.ledger.miss(index, f"tool name {call.name!r}", f"sent as {name!r}")
        return name

    def miss_name(self, index: int, message: Message, call: ToolCall | None = None) -> None:
        """List the name of a message; a result may have that of its `call`."""
        if message.name is not None and (call is None or message.name != call.name):
            self.ledger.miss(index, f"name {message.name!r}", self._nameless)

    def miss_tool(self, tool: Mapping[str, Any]) -> None:
        """List a tool that the API does not have."""
        self.ledger.miss(None, f"tool {tool.get('name') or tool.get('type')!r}", "the API has none")


def led_by_user(
    turns: list[dict[str, Any]],
    system: list[dict[str, Any]],
    key: str,
    opening: dict[str, Any],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return turns and system text for an API that wants a turn, and the first to be the user's.

    `key` is where a turn has its content, `opening` what stands for a beginning that was left out.
    """
    if turns and turns[0]["role"] != "user":
        return [{"role": "user", key: [opening]}, *turns], system
    if not turns and system:  # there must be a turn: the system text is the only one
        return [{"role": "user", key: system}], []
    return turns, system
