"""The OpenAI Agents SDK: a filter that makes every request fit, and a session with a frontier.

    session = MuntinSession(SQLiteSession("ada", "chat.db"), 8_000)
    await Runner.run(agent, "Hi", session=session, run_config=session.run_config())

Hooks (openai-agents 0.24): `RunConfig.call_model_input_filter: Callable[[CallModelData],
MaybeAwaitable[ModelInputData]]`, and the protocol `Session` (`get_items`, `add_items`, `pop_item`,
`clear_session`). The frontier is the last item of the wrapped session, and is never shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.message import Message
from muntin.errors import needing
from muntin.integrations.shared import FRONTIER, Fits, Hook, Watcher, model_name
from muntin.wire.lists import pieces_of, write_items

with needing("muntin.integrations.openai_agents needs: pip install 'muntin[openai-agents]'"):
    from agents import RunConfig, get_current_trace
    from agents.run_config import CallModelData, ModelInputData

__all__ = ["MuntinFilter", "MuntinSession"]


class MuntinFilter(Hook):
    """Fits the input of every model call of a run; give it as `call_model_input_filter`.

    `budget` is the tokens of a request, instructions and the agent's function tools included, or a
    `Fitter` with more settings: its `margin` is for handoffs and the tools of MCP servers, which
    the hook does not see. Conversations are found again as long as the process lives;
    `MuntinSession` finds them after a restart too. A `Fitter` with a store records them under the
    id of their session; without a session, under the `group_id` of the run and the agent's name.
    """

    @staticmethod
    def schema(tool: Any) -> Mapping[str, Any]:
        """Describe a tool as OpenAI does."""
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
            "strict": tool.strict_json_schema,
        }
        return {"type": "function", "function": function}

    @staticmethod
    def name_of(model: Any) -> str | None:
        """Return a model's name: a bare name is OpenAI's, as in the SDK."""
        name = model if isinstance(model, str) else getattr(model, "model", None)
        if not isinstance(name, str):
            return None
        maker, _, rest = name.removeprefix("litellm/").rpartition("/")
        return model_name(maker or "openai", rest)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input that fits."""
        group = getattr(get_current_trace(), "group_id", None)
        conversation = f"{group}/{data.agent.name}" if group else None
        return (await self.afitted(data, None, conversation))[0]

    async def afitted(
        self,
        data: CallModelData[Any],
        previous: Mapping[str, Any] | None,
        conversation: str | None = None,
    ) -> tuple[ModelInputData, dict[str, Any]]:
        """Return the input that fits, and its frontier."""
        return await self.recorded(lambda: self.fitted(data, previous, conversation))

    def fitted(
        self,
        data: CallModelData[Any],
        previous: Mapping[str, Any] | None,
        conversation: str | None = None,
    ) -> tuple[ModelInputData, dict[str, Any]]:
        """Return the input that fits, and its frontier."""
        request, agent = data.model_data, data.agent
        tools = [tool for tool in agent.tools if hasattr(tool, "params_json_schema")]
        system = [Message("system", request.instructions)] if request.instructions else []
        fitted = self.fit(
            pieces_of(request.input),
            tools,
            agent.model,
            system=system,
            previous=previous,
            conversation=conversation,
        )
        return replace(request, input=write_items(request.input, fitted.placed)), fitted.frontier


class MuntinSession:
    """A session that keeps all items in another session, and the frontier behind them.

    Run with `run_config=session.run_config()`. The wrapped session has one item more, of a type of
    Muntin's: to use the wrapped session alone again, call `unwrap()` first.
    """

    def __init__(
        self,
        session: Any,
        budget: Fits = None,
        *,
        model: str | None = None,
        on_fit: Watcher | None = None,
    ) -> None:
        self._session = session
        self.filter = MuntinFilter(budget, model=model, on_fit=on_fit)
        self._frontier: dict[str, Any] | None = None

    @property
    def session_id(self) -> str:
        """The id of the wrapped session."""
        return str(self._session.session_id)

    @property
    def session_settings(self) -> Any:
        """The settings of the wrapped session."""
        return getattr(self._session, "session_settings", None)

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """Return a run configuration, new or the given one, with the filter of this session."""
        return replace(config or RunConfig(), call_model_input_filter=self.input_filter)

    async def input_filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input of a model call that fits."""
        await self._load()
        before, id = self._frontier, self.session_id
        sent, self._frontier = await self.filter.afitted(data, before, id)
        return sent

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest `limit` items; all without a limit."""
        items = await self._session.get_items(None if limit is None else limit + 1)
        visible = [item for item in items if not _is_mark(item)]
        return (
            visible
            if limit is None
            else visible[len(visible) - limit if len(visible) > limit else 0 :]
        )

    async def add_items(self, items: Sequence[Any]) -> None:
        """Append items; the frontier stands behind the last item."""
        await self._load()
        await self.unwrap()
        await self._session.add_items([*items, *self._mark()])

    async def pop_item(self) -> Any:
        """Remove the newest item and return it."""
        await self._load()
        await self.unwrap()
        popped = await self._session.pop_item()
        if mark := self._mark():
            await self._session.add_items(mark)
        return popped

    async def clear_session(self) -> None:
        """Remove all items."""
        self._frontier = None
        await self._session.clear_session()

    async def unwrap(self) -> Any:
        """Return the wrapped session, without Muntin's item."""
        if await self._marked() is not None:
            await self._session.pop_item()
        return self._session

    async def _load(self) -> None:
        if self._frontier is None:
            self._frontier = await self._marked()

    def _mark(self) -> list[dict[str, Any]]:
        return [] if self._frontier is None else [{"type": FRONTIER, "frontier": self._frontier}]

    async def _marked(self) -> dict[str, Any] | None:
        """Return the frontier that stands behind the items."""
        last = await self._session.get_items(1)
        frontier: dict[str, Any] | None = None
        if last and _is_mark(last[0]):
            frontier = last[0]["frontier"]
        return frontier


def _is_mark(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") == FRONTIER
