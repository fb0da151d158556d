"""The agent loop, and the tools that an agent calls."""

from muntin.agent.loop import run_agent, stream_agent
from muntin.agent.toolbox import Toolbox
from muntin.agent.tools import Tool, ToolLike, tool_schema

__all__ = ["Tool", "ToolLike", "Toolbox", "run_agent", "stream_agent", "tool_schema"]
