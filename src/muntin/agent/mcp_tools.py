"""Tools of a server of the Model Context Protocol, as the tools of a toolbox.

Owns how a server's tools are listed, called and read. The session is the caller's: it is opened,
opened again and closed elsewhere.
"""

from __future__ import annotations

import inspect
import logging
from functools import partial
from typing import Any

from muntin.agent.tools import Tool
from muntin.core.checks import compact_json, shown
from muntin.core.toolboxes.words import first_sentence
from muntin.errors import InvalidInput, InvalidType

_log = logging.getLogger(__name__)


class McpTools:
    """The tools of one server, listed anew each time that they are asked for.

    `session` is a session of the official SDK, or a function, sync or async, that returns the one
    that is open now. While the server does not answer, the tools are those that it listed last.
    """

    def __init__(self, session: Any) -> None:
        if not _is_session(session) and not callable(session):
            raise InvalidType(
                "Toolbox.from_mcp takes a session of the MCP SDK, or a function that returns it, "
                f"not {shown(session)}"
            )
        self._session = session
        self._listed: list[Tool] = []

    async def __call__(self) -> list[Tool]:
        """List the tools."""
        try:
            session = await self._open()
            self._listed = [self._tool(tool) for tool in await _list_all(session)]
        except Exception as error:
            _log.warning("an MCP server did not list its tools: %s", error, exc_info=error)
        return self._listed

    async def _open(self) -> Any:
        session = self._session if _is_session(self._session) else self._session()
        return await session if inspect.isawaitable(session) else session

    def _tool(self, tool: Any) -> Tool:
        schema = getattr(tool, "input_schema", None) or getattr(tool, "inputSchema", None) or {}
        return Tool(
            partial(self._call, tool.name),
            name=tool.name,
            description=tool.description or getattr(tool, "title", None),
            parameters=schema,
        )

    async def _call(self, called: str, /, **arguments: Any) -> str:
        session = await self._open()
        return result_text(await session.call_tool(called, arguments))


def _is_session(value: Any) -> bool:
    return callable(getattr(value, "list_tools", None))


async def _list_all(session: Any) -> list[Any]:
    """Return the tools of all pages."""
    page = await session.list_tools()
    tools = list(page.tools)
    while cursor := getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None):
        from mcp.types import PaginatedRequestParams

        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += page.tools
    return tools


def result_text(result: Any) -> str:
    """Return the result of a call as a text; parts that are no text are named."""
    parts = []
    for part in getattr(result, "content", None) or ():
        text = getattr(part, "text", None)
        text = getattr(getattr(part, "resource", None), "text", None) if text is None else text
        parts.append(f"[{part.type}, which cannot be read as text]" if text is None else text)
    structured = getattr(result, "structured_content", None)
    if not parts and structured is not None:
        parts.append(compact_json(structured))
    text = "\n".join(parts) or "(done)"
    return f"Error: {text}" if getattr(result, "is_error", False) else text


def identity(session: Any, name: str | None, about: str) -> tuple[str, str]:
    """Return the name and the text of a server's toolbox: those given, else the server's own."""
    info = getattr(session, "server_info", None) if _is_session(session) else None
    chosen = name or getattr(info, "name", None)
    if not isinstance(chosen, str):
        raise InvalidInput(
            "Toolbox.from_mcp: the session says no name of its server (it is initialized first); "
            "give name="
        )
    own = getattr(session, "instructions", None) if _is_session(session) else None
    return chosen, about or (first_sentence(own) if isinstance(own, str) else "")
