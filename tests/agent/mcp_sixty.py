"""A server of the Model Context Protocol with sixty tools, over standard input and output."""

from __future__ import annotations

import os

from mcp.server import MCPServer

from tests.toolboxes import boxes

server: MCPServer[None] = MCPServer("office", instructions="Documents, mail and maps. More words.")


def add(name: str, description: str) -> None:
    """Add a tool that says which process ran it."""

    def work(path: str, count: int = 1) -> str:
        return f"{name} of {path} x {count} in {os.getpid()}"

    server.add_tool(work, name=name, description=description, structured_output=False)


for tool in [tool for box in boxes() for tool in box["tools"]][:60]:
    add(tool["name"], tool["description"])

if __name__ == "__main__":
    server.run()
