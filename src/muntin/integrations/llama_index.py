"""LlamaIndex: a memory whose messages fit, and an agent whose requests all fit.

    memory = MuntinMemory.from_defaults(token_limit=8_000, llm=llm)
    await MuntinAgent(llm=llm, tools=tools).run("Hi", memory=memory)

Hooks (llama-index-core 0.14): `BaseMemory.get(input, **kwargs) -> list[ChatMessage]` and `aget`,
which chat engines and custom loops call before each request; and `FunctionAgent.take_step(ctx,
llm_input, tools, memory) -> AgentOutput`, because an agent keeps the messages of a run to itself
until it ends: its memory does not see them. The frontier is in the chat store, beside the messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from muntin.core.message import Message
from muntin.errors import InvalidInput, needing
from muntin.fitting import Fitter, Piece, Pieces, Placed
from muntin.integrations.shared import (
    Hook,
    Watcher,
    call,
    chat_message,
    model_name,
    rewritten,
)
from muntin.wire import chat
from muntin.wire.lists import piece

with needing("muntin.integrations.llama_index needs: pip install 'muntin[llama-index]'"):
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY, BaseChatStoreMemory
    from llama_index.core.storage.chat_store import SimpleChatStore
    from llama_index.core.storage.chat_store.loading import load_chat_store

__all__ = ["MuntinAgent", "MuntinMemory"]

_ROLES = {"chatbot": "assistant"}


class _Hook(Hook):
    """The hook that fits the messages of a memory."""

    @staticmethod
    def schema(tool: Any) -> Mapping[str, Any]:
        """Describe a tool in the form for OpenAI's models; other models get less."""
        if isinstance(tool, dict):
            return tool
        schema: dict[str, Any] = tool.metadata.to_openai_tool(skip_length_check=True)
        function = schema["function"]
        parameters = {**function["parameters"], "additionalProperties": False}
        return {**schema, "function": {**function, "strict": False, "parameters": parameters}}

    @staticmethod
    def name_of(model: Any) -> str | None:
        """Return the name of a model."""
        return model_name(type(model).__module__, getattr(model, "model", None))


class MuntinMemory(BaseChatStoreMemory):
    """A memory that keeps all messages, and returns the messages that fit.

    `token_limit` is the tokens of a request; without one it is the window of the model. What is
    sent beside the messages counts too: `system_prompt` and `tool_schemas`, which `from_defaults`
    makes from the tools. A `MuntinAgent` uses its own.
    """

    token_limit: int | None = None
    model: str | None = None
    system_prompt: str = ""
    tool_schemas: list[dict[str, Any]] = Field(default_factory=list)
    _settings: dict[str, Any] = PrivateAttr(default_factory=dict)
    _hooks: dict[Any, _Hook] = PrivateAttr(default_factory=dict)
    _on_fit: Watcher | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, as LlamaIndex writes it."""
        return "MuntinMemory"

    @classmethod
    def from_defaults(
        cls,
        chat_history: list[Any] | None = None,
        llm: Any = None,
        chat_store: Any = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        *,
        model: str | None = None,
        system_prompt: str = "",
        tools: Sequence[Any] = (),
        on_fit: Watcher | None = None,
        **settings: Any,
    ) -> MuntinMemory:
        """Make a memory. `model` names the model for counting; without it the model of `llm` is
        used, if its maker is known. `settings` are the settings of a `Fitter`."""
        memory = cls(
            chat_store=chat_store or SimpleChatStore(),
            chat_store_key=chat_store_key,
            token_limit=token_limit,
            model=model or _Hook.name_of(llm),
            system_prompt=system_prompt,
            tool_schemas=[dict(_Hook.schema(tool)) for tool in tools],
        )
        memory._settings, memory._on_fit = settings, on_fit
        memory._hook(0)  # refuses wrong settings at once
        if chat_history:
            memory.set(chat_history)
        return memory

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> MuntinMemory:
        """Read what `to_dict` wrote."""
        store = load_chat_store(dict(data["chat_store"]))
        return cls(**{**data, **kwargs, "chat_store": store})

    def get(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[Any]:
        """Return the messages that fit, with room for the tokens that a chat engine adds."""
        mark = self._mark("")
        marks = self.chat_store.get_messages(mark)
        sent, marks = self.fitted(self.get_all(), marks, beside=initial_token_count)
        self.chat_store.set_messages(mark, marks)
        return sent

    async def aget(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[Any]:
        """Return the messages that fit, with room for the tokens that a chat engine adds."""
        return await self._afitted("", await self.aget_all(), beside=initial_token_count)

    async def astep(self, agent: Any, run: Sequence[Any], tools: Sequence[Any]) -> list[Any]:
        """Return the messages that an agent sends: system prompt, memory and its run."""
        lead = [ChatMessage(agent.system_prompt, role="system")] if agent.system_prompt else []
        whole = [*lead, *await self.aget_all(), *run]
        return await self._afitted(agent.name, whole, tools=tools, llm=agent.llm)

    async def _afitted(self, name: str, messages: Sequence[Any], **options: Any) -> list[Any]:
        mark = self._mark(name)
        marks = await self.chat_store.aget_messages(mark)
        hook = self._hook(options.get("beside", 0))
        sent, marks = await hook.recorded(lambda: self.fitted(messages, marks, **options))
        await self.chat_store.aset_messages(mark, marks)
        return sent

    def fitted(
        self,
        messages: Sequence[Any],
        marks: Sequence[Any],
        *,
        beside: int = 0,
        tools: Sequence[Any] | None = None,
        llm: Any = None,
    ) -> tuple[list[Any], list[Any]]:
        """Return the messages that are sent, and the frontier for the next request."""
        system = self.system_prompt if tools is None else ""
        key = self.chat_store_key
        fitted = self._hook(beside).fit(
            Pieces(messages, _read),
            self.tool_schemas if tools is None else tools,
            llm,
            system=[Message("system", system)] if system else (),
            # Memory and agents have different lists: each uses its own frontier, or none.
            previous=json.loads(marks[0].content) if marks else {},
            conversation=None if key == DEFAULT_CHAT_STORE_KEY else key,
        )
        frontier = ChatMessage(json.dumps(fitted.frontier), role="system")
        return [_write_message(messages, part) for part in fitted.placed], [frontier]

    def _mark(self, name: str) -> str:
        """Return the key of an agent's frontier in the chat store."""
        return f"{self.chat_store_key}:muntin_frontier:{name}"

    def _hook(self, beside: int) -> _Hook:
        key = beside, self.token_limit, self.model
        if key not in self._hooks:
            margin = self._settings.get("margin", 0) + beside
            fitter = Fitter(self.token_limit, **{**self._settings, "margin": margin})
            self._hooks[key] = _Hook(fitter, model=self.model, on_fit=self._on_fit)
        return self._hooks[key]


class MuntinAgent(FunctionAgent):
    """An agent whose requests all fit; run it with a `MuntinMemory`."""

    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> Any:
        """Ask the model with the messages of memory and run that fit; the run keeps all."""
        if not isinstance(memory, MuntinMemory):
            raise InvalidInput(
                f"a MuntinAgent needs a MuntinMemory, not a {type(memory).__name__}: "
                "agent.run(…, memory=MuntinMemory.from_defaults(token_limit=…))"
            )
        run = await ctx.store.get(self.scratchpad_key, default=[])
        sent = await memory.astep(self, run, tools)
        await ctx.store.set(self.scratchpad_key, [])
        added: list[Any] = []
        try:
            output = await super().take_step(ctx, sent, tools, memory)
            added = await ctx.store.get(self.scratchpad_key, default=[])
        finally:
            await ctx.store.set(self.scratchpad_key, [*run, *added])
        return output


# Reading.


def _read(message: Any, number: int) -> Sequence[Piece]:
    return [piece(_as_dict(message), number)]


def _as_dict(message: Any) -> dict[str, Any]:
    """Return the counted part of a message, in the form of Chat Completions."""
    parts: list[dict[str, Any]] = []
    calls: list[Any] = []
    for block in message.blocks:
        if block.block_type == "tool_call":
            arguments = block.tool_kwargs
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(call(block.tool_call_id, block.tool_name, text))
        elif block.block_type != "cache":
            parts.append(_part(block))
    role, beside = message.role.value, message.additional_kwargs
    data = chat_message(_ROLES.get(role, role), parts, (), joint="")
    if role in ("tool", "function"):
        return {**data, "tool_call_id": beside.get("tool_call_id")}
    if beside.get("function_call") and not calls:
        data["function_call"] = beside["function_call"]
    calls = calls or list(beside.get("tool_calls") or ())
    return {**data, "tool_calls": calls} if calls else data


def _part(block: Any) -> dict[str, Any]:
    kind = block.block_type
    if kind == "text":
        return {"type": "text", "text": block.text}
    if kind == "image":
        url = str(block.url) if block.url else ""
        if block.image:
            url = f"data:{block.image_mimetype};base64,{block.image.decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": kind, "value": block.model_dump_json(exclude_none=True)}


# Writing.


def _write_message(messages: Sequence[Any], placed: Placed) -> Any:
    """Return a message as it is sent: the same object, unless its text or calls changed."""
    if placed.ref is None:
        called = placed.message.tool_call_id
        answers = {} if called is None else {"tool_call_id": called}
        role = MessageRole(placed.message.role)
        return ChatMessage(placed.message.text, role=role, additional_kwargs=answers)
    message = messages[placed.ref]
    if placed.is_whole:
        return message
    blocks = rewritten(
        message.blocks,
        placed,
        is_text=lambda block: block.block_type == "text",
        with_text=lambda _, text: TextBlock(text=text),
        call_id=lambda block: block.tool_call_id if block.block_type == "tool_call" else None,
        with_arguments=_with_arguments,
    )
    update: dict[str, Any] = {"blocks": blocks}
    beside = message.additional_kwargs
    if placed.arguments and any(block.block_type == "tool_call" for block in blocks):
        # The copy of the calls beside the blocks is out of date.
        update["additional_kwargs"] = {k: v for k, v in beside.items() if k != "tool_calls"}
    elif placed.arguments:
        update["additional_kwargs"] = {**beside, **chat.ITEM_FORMAT.beside(beside, placed)}
    return message.model_copy(update=update)


def _with_arguments(block: Any, text: str) -> Any:
    arguments = text if isinstance(block.tool_kwargs, str) else json.loads(text)
    return block.model_copy(update={"tool_kwargs": arguments})
