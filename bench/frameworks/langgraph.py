"""A graph written by hand with LangGraph, whose node asks the model with what Muntin fits."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.frameworks.langchain import CONFIG, model, tools
from bench.runs.script import Script, Turn


def graph(script: Script, url: str, budget: int, saver: Any) -> Any:
    """Return the graph that a user of LangGraph writes: a model, and its tools."""
    module = import_module("langgraph.graph")
    prebuilt = import_module("langgraph.prebuilt")
    adapter = import_module("muntin.integrations.langgraph")
    given = tools(script)
    asked = model(url)
    fit = adapter.MuntinFit(budget, tools=given, system=script.system, model=asked)
    bound = asked.bind_tools(given)

    messages: Any = module.MessagesState
    own: Any = adapter.MuntinState

    class State(messages, own):  # type: ignore[misc]
        pass

    def ask(state: Any) -> Any:
        fitted = fit(state)
        return {"messages": [bound.invoke(fitted.messages)], **fitted.update}

    nodes = module.StateGraph(State)
    nodes.add_node("ask", ask)
    nodes.add_node("tools", prebuilt.ToolNode(given))
    nodes.add_edge(module.START, "ask")
    nodes.add_conditional_edges("ask", prebuilt.tools_condition)
    nodes.add_edge("tools", "ask")
    return nodes.compile(checkpointer=saver)


def resume(script: Script, url: str, folder: Path, turns: Sequence[Turn], budget: int) -> None:
    """Play turns in a conversation that a file keeps."""
    saved = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    with saved.from_conn_string(str(folder / "chat.db")) as saver:
        assistant = graph(script, url, budget, saver)
        for turn in turns:
            assistant.invoke({"messages": [{"role": "user", "content": turn.text}]}, CONFIG)
