"""The common beginning of all encoders: files, names, ids, and what is not carried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.accepted import NameRule
from muntin.core.caching.wire_order import Answer, ArrangedMessage, arrange
from muntin.core.compaction import is_compaction
from muntin.core.message import Message
from muntin.core.parts import Other, ToolCall
from muntin.core.schemas import is_deferred
from muntin.core.tool_marks import CALL, FIND, is_boxed
from muntin.core.toolboxes.finding import wrapped
from muntin.core.toolboxes.offer import Loading
from muntin.core.window import Window
from muntin.wire.answers import END
from muntin.wire.common import Files, Ids, Ledger
from muntin.wire.media import Content
from muntin.wire.names import ToolNames, names_in


class Encoder:
    """One encoding: its files and names, and the list of what is not carried.

    `ids` is the rule for ids of calls, `nameless` says why a message has no name in the API.
    """

    def __init__(
        self, provider: str, files: Files, names: ToolNames, ids: NameRule, nameless: str
    ) -> None:
        self.files = files
        self.ledger = Ledger(provider)
        self.ids = Ids(ids)
        self.names = names
        self._declared: set[str] = set()
        self._nameless = nameless
        self._maker = provider
        # Answers that go back to their maker block for block, by the index of their message.
        self.as_made: set[int] = set()

    def by_place(
        self, index: int, message: Message, answers: Sequence[Answer], held: Iterable[Content]
    ) -> dict[str | None, list[Content]]:
        """Return the content of an answer by the call that it stood before: None at the beginning,
        `END` behind the last call."""
        places = {call.id for call, _, _ in answers}
        if message.extra and message.extra.get("as_made") == self._maker:
            self.as_made.add(index)
            places.add(END)
        parts: dict[str | None, list[Content]] = {}
        for part in held:
            extra = part.data if isinstance(part, Other) else part.extra
            before = extra.get("before") if extra else None
            place = before if isinstance(before, str) and before in places else None
            parts.setdefault(place, []).append(part)
        return parts

    def called(self, index: int, call: ToolCall) -> str:
        """Return the name under which a call is sent; a changed name is listed."""
        name = self.names(call.name)
        if name != call.name:
            self.ledger.miss(index, f"tool name {call.name!r}", f"sent as {name!r}")
        return name

    def declare(self, name: Any) -> str | None:
        """Return the name under which a tool is declared; None if it cannot be declared."""
        if not isinstance(name, str):
            self.ledger.miss(None, f"a tool of name {name!r}", "a name must be a text")
            return None
        if name in self._declared:
            self.ledger.miss(None, f"tool {name!r}", "another tool of this name stands before it")
            return None
        self._declared.add(name)
        sent = self.names(name)
        if sent != name:
            self.ledger.miss(None, f"tool name {name!r}", f"sent as {sent!r}")
        return sent

    def miss_name(self, index: int, message: Message, call: ToolCall | None = None) -> None:
        """List the name of a message; a result may have the name of its `call`."""
        if message.name is not None and (call is None or message.name != call.name):
            self.ledger.miss(index, f"name {message.name!r}", self._nameless)

    def miss_tool(self, tool: Mapping[str, Any]) -> None:
        """List a tool that the API does not have."""
        self.ledger.miss(None, f"tool {tool.get('name') or tool.get('type')!r}", "the API has none")


def loads_by(window: Window) -> Loading | None:
    """Say how a window loads tools that are found; None if its tools are not searched."""
    names = {name for tool in window.tools for name in names_in(tool)}
    if FIND not in names:
        return None
    if CALL in names:
        return "text"
    return "reference" if any(map(is_deferred, window.tools)) else "item"


def arrange_as_called(window: Window) -> list[ArrangedMessage]:
    """Return the messages in wire order; where tools that were found run by `call_tool`, their
    calls are written as calls of it."""
    declared = {name for tool in window.tools for name in names_in(tool)}
    if CALL not in declared:
        return arrange(window.messages)

    def as_called(call: ToolCall) -> ToolCall:
        return wrapped(call) if is_boxed(call) and call.name not in declared else call

    return arrange(
        [
            replace(message, tool_calls=tuple(map(as_called, message.tool_calls)))
            if any(map(is_boxed, message.tool_calls))
            else message
            for message in window.messages
        ]
    )


def led_by_user(
    turns: list[dict[str, Any]],
    system: list[dict[str, Any]],
    key: str,
    opening: dict[str, Any],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return turns and system text for an API that needs a turn, and the user's turn first.

    `key` is the field of a turn's content, `opening` the text for a beginning that was left out.
    """
    first = turns[0][key][:1] if turns else ()
    if turns and turns[0]["role"] != "user" and not any(map(is_compaction, first)):
        return [{"role": "user", key: [opening]}, *turns], system
    if not turns and system:  # there must be a turn: the system text becomes one
        return [{"role": "user", key: system}], []
    return turns, system
