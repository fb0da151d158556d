"""The names of tools on the wire: a name that an API refuses is changed, and changed back.

Knows how tools are declared; knows no vendor's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from muntin.core.accepted import NameRule
from muntin.core.message import Message
from muntin.core.parts import ToolCall
from muntin.core.window import Window
from muntin.wire.common import function_of

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
# Settings that name tools.
_CHOICES = ("tool_choice", "tool_config")


class ToolNames:
    """The tools of a window under the names that an API accepts, no name twice.

    `fixed` says which tools always keep their name: tools that the API itself knows by name. Names
    depend on the declared tools alone, so they do not change in a conversation.
    """

    __slots__ = ("_back", "_others", "_rule", "_sent")

    def __init__(
        self,
        rule: NameRule,
        tools: Iterable[Mapping[str, Any]] = (),
        fixed: Callable[[Mapping[str, Any]], bool] = lambda tool: False,
    ) -> None:
        self._rule = rule
        declared, names = [], set()
        for tool in tools:
            if fixed(tool):
                names.add(str(tool.get("name")))
            else:
                declared += [name for name in names_in(tool) if name not in declared]
        self._sent = {name: name for name in names}
        self._others: dict[str, str] = {}
        self._back: dict[str, str] = {name: name for name in names}
        # Accepted names are sent unchanged, even if refused names stand before them.
        for name in sorted(declared, key=lambda name: rule.fitted(name) != name):
            self._sent[name] = sent = self._free(name)
            self._back[sent] = name

    def __call__(self, name: str) -> str:
        """Return the name under which a tool is declared or called."""
        sent = self._sent.get(name) or self._others.get(name)
        if sent is None:  # a tool that is no longer declared
            sent = self._rule.fitted(name)
            if sent != name and sent in self._back:
                sent = self._free(name)
            self._others[name] = sent
        return sent

    def back(self, sent: str) -> str:
        """Return the name of the tool that the model called under the name `sent`."""
        return self._back.get(sent, sent)

    def _free(self, name: str) -> str:
        sent, again = self._rule.fitted(name), 0
        while sent in self._back:
            sent = self._rule.marked(name + "'" * again)
            again += 1
        return sent

    def read(self, message: Message) -> Message:
        """Return an answer whose calls have the names of the declared tools."""
        calls = tuple([self.called(call) for call in message.tool_calls])
        if all(call is original for call, original in zip(calls, message.tool_calls, strict=True)):
            return message
        return replace(message, tool_calls=calls)

    def called(self, call: ToolCall) -> ToolCall:
        """Return a call of the declared tool."""
        name = self.back(call.name)
        return call if name == call.name else replace(call, name=name)

    def chosen(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return settings with the names of tools as they are sent."""
        changed = {key: self._chosen(settings[key]) for key in _CHOICES if settings.get(key)}
        return {**settings, **changed} if changed else settings

    def _chosen(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._chosen(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        renamed = {key: self._chosen(item) for key, item in value.items()}
        if isinstance(renamed.get("name"), str):
            renamed["name"] = self._sent.get(renamed["name"], renamed["name"])
        allowed = renamed.get("allowed_function_names")
        if isinstance(allowed, list):
            renamed["allowed_function_names"] = [self._sent.get(name, name) for name in allowed]
        return renamed


def names_in(tool: Mapping[str, Any]) -> list[str]:
    """Return the names of functions that a tool declares; Google's tools hold several."""
    if isinstance(tool.get("function_declarations"), list | tuple):
        inner = tool["function_declarations"]
        names = [part.get("name") for part in inner if isinstance(part, Mapping)]
    elif tool.get("type") == "custom":
        custom = tool.get("custom")
        names = [(custom if isinstance(custom, Mapping) else tool).get("name")]
    else:
        names = [(function_of(tool) or {}).get("name")]
    return [name for name in names if isinstance(name, str)]


def declared_tools(window: Window | None) -> tuple[Mapping[str, Any], ...]:
    """Return the tools that a window declares."""
    return window.tools if window is not None else ()


def schema_of(parameters: Any) -> dict[str, Any]:
    """Return the schema of a function's parameters; every API wants the schema of an object."""
    if not isinstance(parameters, Mapping) or not parameters:
        return dict(_NO_PARAMETERS)
    if parameters.get("type") is not None:
        return dict(parameters)
    rest = {key: value for key, value in parameters.items() if key != "type"}
    return {"type": "object", **rest}
