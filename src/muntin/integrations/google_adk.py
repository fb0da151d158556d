"""Google's Agent Development Kit: a plugin that makes every request fit.

    App(name="app", root_agent=agent, plugins=[MuntinPlugin(8_000)])

Hook (google-adk 2.13): `BasePlugin.before_model_callback(*, callback_context: CallbackContext,
llm_request: LlmRequest) -> LlmResponse | None`, which may change the contents of the request. The
frontier is in the state of the session, which the session service keeps. An error of Muntin's is
the cause of a `RuntimeError`, as all errors of plugins are.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muntin.core.message import Message
from muntin.errors import needing
from muntin.fitting import Fitted, Placed
from muntin.integrations.shared import (
    FRONTIER,
    BlockForm,
    Fits,
    Hook,
    Watcher,
    call,
    chat_message,
    model_name,
    rewritten,
)
from muntin.wire.common import with_fields

with needing("muntin.integrations.google_adk needs: pip install 'muntin[google-adk]'"):
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai.types import Content, FunctionDeclaration, FunctionResponse, Part

__all__ = ["MuntinPlugin"]

_ROLES = {None: "user", "model": "assistant"}
# The prefix of ids for calls that have none; Gemini gets such calls without an id.
_ID_PREFIX = "muntin-"


class _Plugin(BasePlugin):
    def __init__(self) -> None:
        super().__init__("muntin")


class MuntinPlugin(Hook, _Plugin):
    """Fits every request of every agent of an app; the session keeps all events.

    `budget` is the tokens of a request, instruction and tools included, or a `Fitter` with more
    settings. `model` names the model for counting; without it the request's model is used, if its
    maker is known. `on_fit` is called with every fitted request.
    """

    def __init__(
        self,
        budget: Fits = None,
        *,
        model: str | None = None,
        on_fit: Watcher | None = None,
        name: str = "muntin",
    ) -> None:
        super().__init__(budget, model=model, on_fit=on_fit)
        self.name = name

    @staticmethod
    def schema(tool: Any) -> Mapping[str, Any]:
        """Describe a declared function in OpenAI's form; other tools stay unchanged."""
        if not isinstance(tool, FunctionDeclaration):
            return Hook.schema(tool)
        parameters = tool.parameters_json_schema
        if parameters is None and tool.parameters is not None:
            parameters = tool.parameters.model_dump(exclude_none=True, by_alias=True, mode="json")
        function = {"name": tool.name, "description": tool.description or ""}
        described = {**function, "parameters": parameters or {"type": "object", "properties": {}}}
        return {"type": "function", "function": described}

    @staticmethod
    def name_of(model: Any) -> str | None:
        """Return a model's name: a bare name is Gemini's, LiteLLM's names begin with the maker."""
        maker, _, name = str(model or "").rpartition("/")
        return model_name(maker or "google", name)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Send the contents that fit."""
        state = callback_context.state
        key = f"{FRONTIER}:{callback_context.agent_name}"  # agents see different contents
        previous = state.get(key)
        invocation = callback_context.get_invocation_context()
        agent, session = invocation.agent, invocation.session.id
        if getattr(agent, "root_agent", agent) is not agent:
            session = f"{session}/{callback_context.agent_name}"
        fitted = await self.recorded(lambda: self.fitted(llm_request, previous, session))
        state[key] = fitted.frontier
        contents = llm_request.contents
        form = _form(contents, as_text=_takes_text(agent))
        llm_request.contents = form.written(contents, fitted.placed)

    def fitted(
        self, request: Any, previous: Mapping[str, Any] | None, session: str | None = None
    ) -> Fitted:
        """Return the contents of a request that are sent."""
        instruction = _text(request.config.system_instruction)
        return self.fit(
            _form(request.contents).pieces(request.contents),
            _split_declared(request.config.tools or ()),
            request.model,
            system=[Message("system", instruction)] if instruction else (),
            previous=previous,
            conversation=session,
        )


def _takes_text(agent: Any) -> bool:
    """Say whether the agent's model accepts a result that is no dict: LiteLLM's do."""
    model = getattr(agent, "canonical_model", None)
    return any(kind.__name__ == "LiteLlm" for kind in type(model).__mro__)


def _text(instruction: Any) -> str:
    """Return an instruction as text: a text, a content, a part, or a list of them."""
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    if isinstance(instruction, list):
        return "\n\n".join(filter(None, map(_text, instruction)))
    parts = getattr(instruction, "parts", None)
    return _text(list(parts)) if parts else getattr(instruction, "text", None) or ""


def _split_declared(tools: Sequence[Any]) -> list[Any]:
    """Return the functions that tools declare, and the tools that are something else."""
    functions: list[Any] = []
    for tool in tools:
        declared = getattr(tool, "function_declarations", None)
        functions += [tool] if declared is None else declared
    return functions


class _TextResponse(FunctionResponse):
    """A shortened result for LiteLLM, which sends a dict as JSON, where escapes make it longer than
    it was counted, and a text unchanged. Code that reads the fields sees a dict."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value["result"] if name == "response" else value


def _form(contents: Sequence[Any], *, as_text: bool = False) -> BlockForm:
    """Return how contents are read, and written for a model that takes results as dicts or text."""

    def read_result(part: Any, number: int, place: int) -> dict[str, Any]:
        response = part.function_response
        content: Any = _json(response.response)
        if response.parts:
            content = [{"type": "text", "text": content}, *map(_part, response.parts)]
        called = response.id or _answered_id(contents, number, place)
        return {"role": "tool", "tool_call_id": called, "content": content}

    def responded(id: str | None, name: str | None, text: str) -> FunctionResponse:
        kind = _TextResponse if as_text else FunctionResponse
        return kind(id=id, name=name, response={"result": text})

    def with_result(part: Any, text: str) -> Any:
        response = part.function_response
        return with_fields(part, function_response=responded(response.id, response.name, text))

    def added(message: Message) -> Any:
        if message.role != "tool":
            role = "model" if message.role == "assistant" else "user"
            return Content(role=role, parts=[Part(text=message.text)])
        called = message.tool_call_id or ""
        name = next((call.name for id, call in _calls(contents) if id == called), "tool")
        response = responded(None if called.startswith(_ID_PREFIX) else called, name, message.text)
        return Content(role="user", parts=[Part(function_response=response)])

    return BlockForm(
        blocks=lambda content: content.parts or (),
        is_result=lambda part: bool(part.function_response),
        read_result=read_result,
        read_rest=_read_rest,
        with_blocks=lambda content, parts: with_fields(content, parts=parts),
        with_result=with_result,
        rewrite=_rewrite,
        added=added,
    )


def _calls(contents: Sequence[Any], first: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the calls of contents with their ids; `first` is the number of the first content."""
    for number, content in enumerate(contents, first):
        for place, part in enumerate(content.parts or ()):
            if part.function_call:
                yield part.function_call.id or f"{_ID_PREFIX}{number}-{place}", part.function_call


def _answered_id(contents: Sequence[Any], number: int, place: int) -> str:
    """Return the id of the call that a result without an id answers: calls and results of one name
    stand in the same order."""
    results = [part.function_response for part in contents[number].parts[: place + 1]]
    name = results[place].name
    before = sum(bool(result and result.name == name) for result in results[:place])
    for owner in range(number - 1, -1, -1):
        ids = [id for id, call in _calls(contents[owner : owner + 1], owner) if call.name == name]
        if before < len(ids):
            return ids[before]
    return f"{_ID_PREFIX}{number}-{place}"


def _read_rest(content: Any, parts: Sequence[Any], number: int) -> dict[str, Any]:
    calls = [call(id, called.name, called.args or {}) for id, called in _calls([content], number)]
    rest = [_part(part) for part in parts if not part.function_call]
    return chat_message(_ROLES.get(content.role, content.role), rest, calls)


def _rewrite(parts: Sequence[Any], placed: Placed) -> list[Any]:
    ids = iter([call.id for call in placed.message.tool_calls])
    return rewritten(
        parts,
        placed,
        is_text=lambda part: part.text and not part.thought,
        with_text=lambda part, text: with_fields(part, text=text),
        call_id=lambda part: next(ids) if part.function_call else None,
        with_arguments=lambda part, arguments: with_fields(
            part, function_call=with_fields(part.function_call, args=json.loads(arguments))
        ),
    )


def _part(part: Any) -> dict[str, Any]:
    if part_text := getattr(part, "text", None):
        return {"type": "thought" if part.thought else "text", "text": part_text}
    data = part.inline_data
    if data is not None and str(data.mime_type).startswith("image/"):
        url = f"data:{data.mime_type};base64,{b64encode(data.data or b'').decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "part", "value": part.model_dump_json(exclude_none=True)}


def _json(value: Any) -> str:
    """Return a value as the text that LiteLLM sends for it; other models send no more."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)
