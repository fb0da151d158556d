"""A server of the Model Context Protocol: one session, read by an agent in another program.

Owns which tools are offered, and that a server knows only one session: no tool can read what
another user said. The recovery tools decide what is read, and how much at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from muntin.core.checks import shown
from muntin.core.report import text_table
from muntin.errors import InvalidInput, needing
from muntin.runtime.recovery import Reader
from muntin.runtime.store_thread import run_in_store
from muntin.timeline.project import Projection
from muntin.timeline.session import Session
from muntin.timeline.store import Store

if TYPE_CHECKING:
    from mcp.server import MCPServer

# How many of the newest turns are searched for a report: older reports may be deleted.
_TURNS = 50
_COLUMNS = ("slot", "status", "kept", "asked", "why")


def mcp_server(store: Store, session: str, projection: Projection | None = None) -> MCPServer[Any]:
    """Return a server whose tools read one session, and nothing else.

    `projection` is how items are shown, as in the app that wrote them. The server writes nothing;
    its `run()` serves standard input and output.
    """
    with needing("an MCP server needs: pip install 'muntin[mcp]'"):
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    if not store.sessions(id=session):
        raise InvalidInput(f"there is no session {shown(session)} in {store.name}")
    server: MCPServer[Any] = MCPServer("muntin", instructions="What was said in this conversation.")
    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = _Tools(store, session, projection)
    for tool in (
        tools.search_history,
        tools.load_range,
        tools.load_result,
        tools.what_is_in_my_window,
    ):
        server.add_tool(tool, annotations=reading, structured_output=False)
    return server


class _Tools:
    """The tools of one session."""

    def __init__(self, store: Store, session: str, projection: Projection | None) -> None:
        self._session = Session(session, store=store)
        self._reader = Reader(self._session, projection, lambda: None)
        self._reader.reads_on = "load_range"

    async def search_history(self, query: str) -> str:
        """Search what was said. Lines begin with positions for load_range."""
        return await self._reader.search_history(query)

    async def load_range(self, start: int, end: int) -> str:
        """Read what was said from position start to end."""
        return await self._reader.load_timeline_range(start, end)

    async def load_result(self, call_id: str, start: int = 0, end: int | None = None) -> str:
        """Read the result of a tool call, by characters."""
        return await self._reader.load_result(call_id, start, end)

    async def what_is_in_my_window(self) -> str:
        """Say what the last request held, and what was left out."""
        return await run_in_store(self._session, self._window)

    def _window(self) -> str:
        store, id = self._session.store, self._session.id
        newest = store.turns(id, newest=1)
        first = max(0, newest[0].number - _TURNS) if newest else 0
        records = store.reports(id, first=first) if newest else []
        if not records:
            return "(no window of this conversation is kept)"
        record = records[-1]
        report = json.loads(record.report)
        rows = [
            (
                str(slot["name"]),
                str(slot["status"]),
                f"{slot['tokens_kept']:,}",
                f"{slot['tokens_asked']:,}",
                str(slot["reason"] or ""),
            )
            for slot in report["slots"]
        ]
        head = (
            f"Turn {record.turn}, step {record.step}: {report['tokens']:,} of "
            f"{report['budget']:,} tokens."
        )
        return "\n".join([head, "", *text_table([_COLUMNS, *rows], range(2, 4))])
