"""LangChain: a middleware that makes every request of an agent fit.

    create_agent(model, tools, middleware=[MuntinMiddleware(8_000)], checkpointer=…)

Hook (langchain 1.4): `AgentMiddleware.wrap_model_call(request: ModelRequest, handler) ->
ModelResponse | ExtendedModelResponse`, and `awrap_model_call`. The frontier is a private key of the
agent's state: the checkpointer keeps it, and callers do not see it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NotRequired

from muntin.errors import needing
from muntin.fitting import Fitted
from muntin.integrations.shared import FRONTIER, Hook

with needing("muntin.integrations.langchain needs: pip install 'muntin[langchain]'"):
    from langchain.agents.middleware.types import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        PrivateStateAttr,
    )
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.types import Command

from muntin.integrations.messages import name_of, pieces_of, read, thread_name, written

__all__ = ["MuntinMiddleware", "MuntinState"]


class MuntinState(AgentState):
    """The agent's state, with the frontier that one request leaves to the next."""

    # If LangChain is not installed, a type checker does not know that this is a TypedDict.
    muntin_frontier: NotRequired[  # type: ignore[valid-type, unused-ignore]
        Annotated[dict[str, Any], PrivateStateAttr]
    ]


class MuntinMiddleware(Hook, AgentMiddleware):
    """Fits every request of an agent; the conversation itself stays whole.

    `budget` is the tokens of a request, system text and tools included, or a `Fitter` with more
    settings. `model` names the model for counting, as in `openai/gpt-5`; without it the request's
    model is used, if its maker is known. `on_fit` is called with every fitted request.
    """

    state_schema = MuntinState
    tools = ()
    schema = staticmethod(convert_to_openai_tool)
    name_of = staticmethod(name_of)

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ExtendedModelResponse:
        """Send the messages that fit."""
        fitted, smaller = self.fitted(request, thread_name())
        return _extend_response(handler(smaller), fitted)

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ExtendedModelResponse:
        """Send the messages that fit."""
        thread = thread_name()  # known in this task only
        fitted, smaller = await self.recorded(lambda: self.fitted(request, thread))
        return _extend_response(await handler(smaller), fitted)

    def fitted(
        self, request: ModelRequest, thread: str | None = None
    ) -> tuple[Fitted, ModelRequest]:
        """Return the request of a thread with the messages that fit."""
        system = request.system_message
        fitted = self.fit(
            pieces_of(request.messages),
            request.tools,
            request.model,
            settings=request.model_settings,
            system=() if system is None else [read(system)],
            previous=request.state.get(FRONTIER),
            conversation=thread,
        )
        return fitted, request.override(messages=written(request.messages, fitted.placed))


def _extend_response(response: Any, fitted: Fitted) -> ExtendedModelResponse:
    command = Command(update={FRONTIER: fitted.frontier})
    return ExtendedModelResponse(model_response=response, command=command)
