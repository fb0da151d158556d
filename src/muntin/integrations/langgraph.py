"""LangGraph: a helper for the node that asks the model, with the frontier in the checkpoint.

    class State(MessagesState, MuntinState): ...

    fit = MuntinFit(8_000, tools=tools)

    def ask(state: State):
        fitted = fit(state)
        return {"messages": [model.invoke(fitted.messages)], **fitted.update}

LangGraph 1.2 has no hook before a model: a node is a function of the state, and the dict that it
returns is merged into the state and kept by the checkpointer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muntin.errors import InvalidInput, needing
from muntin.fitting import Fitted
from muntin.integrations.shared import FRONTIER, Fits, Hook, Watcher

with needing("muntin.integrations.langgraph needs: pip install 'muntin[langgraph]'"):
    from langchain_core.messages import BaseMessage, SystemMessage
    from langchain_core.utils.function_calling import convert_to_openai_tool

    # The same TypedDict as LangGraph's own states have, so that one class can inherit from both.
    from typing_extensions import TypedDict

from muntin.integrations.messages import name_of, pieces_of, read, thread_name, written

__all__ = ["FittedState", "MuntinFit", "MuntinState"]


class MuntinState(TypedDict, total=False):
    """The key that a graph's state needs: the frontier that one request leaves to the next."""

    muntin_frontier: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FittedState:
    """The messages that a node sends, and the update that it returns beside the model's answer."""

    messages: list[BaseMessage]
    update: dict[str, Any]
    fitted: Fitted


class MuntinFit(Hook):
    """Fits the messages of a state; the node sends `tools` and `system` with them.

    A system text is put before the messages, and not into the state.
    """

    schema = staticmethod(convert_to_openai_tool)
    name_of = staticmethod(name_of)

    def __init__(
        self,
        budget: Fits = None,
        *,
        tools: Sequence[Any] = (),
        system: str | None = None,
        model: Any = None,
        key: str = "messages",
        on_fit: Watcher | None = None,
    ) -> None:
        named = model if isinstance(model, str | None) else name_of(model)
        super().__init__(budget, model=named, on_fit=on_fit)
        self._tools = self._schemas.of(tools)
        self._system = [] if system is None else [SystemMessage(system)]
        self._key = key

    def __call__(self, state: Mapping[str, Any]) -> FittedState:
        """Return the messages of a state that are sent."""
        if self._key not in state:
            raise InvalidInput(f"the state has no key {self._key!r}; name it: MuntinFit(key=...)")
        messages = state[self._key]
        fitted = self.fit(
            pieces_of(messages),
            self._tools,
            system=[read(message) for message in self._system],
            previous=state.get(FRONTIER),
            conversation=thread_name(),
        )
        sent = [*self._system, *written(messages, fitted.placed)]
        return FittedState(sent, {FRONTIER: fitted.frontier}, fitted)
