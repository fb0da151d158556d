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
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from muntin.core.message import Message
from muntin.errors import needing
from muntin.fitting import Fitted, Piece, Placed
from muntin.integrations.shared import (
    Fits,
    Hook,
    Watcher,
    call,
    model_name,
    parted,
    rejoined,
)
from muntin.wire.lists import answered_together, piece

with needing("muntin.integrations.google_adk needs: pip install 'muntin[google-adk]'"):
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai.types import Content, FunctionDeclaration, FunctionResponse, Part

__all__ = ["MuntinPlugin"]

FRONTIER = "muntin_frontier"
_ROLES = {None: "user", "model": "assistant"}
# The prefix of ids for calls that have none; Gemini gets such calls without an id.
_MADE = "muntin-"


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
        fitted = await self.recorded(lambda: self.fitted(llm_request, previous))
        state[key] = fitted.frontier
        agent = callback_context.get_invocation_context().agent
        llm_request.contents = written(llm_request.contents, fitted, _takes_text(agent))

    def fitted(self, request: Any, previous: Mapping[str, Any] | None) -> Fitted:
        """Return the contents of a request that are sent."""
        told = _text(request.config.system_instruction)
        contents = request.contents
        return self.fit(
            parted(contents, _count, partial(_read, contents)),
            _declared(request.config.tools or ()),
            request.model,
            system=[Message("system", told)] if told else (),
            previous=previous,
        )


def _takes_text(agent: Any) -> bool:
    """Say whether the agent's model accepts a result that is no dict: LiteLLM's do."""
    model = getattr(agent, "canonical_model", None)
    return any(each.__name__ == "LiteLlm" for each in type(model).__mro__)


def _text(instruction: Any) -> str:
    """Return an instruction as text: a text, a content, a part, or a list of them."""
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    if isinstance(instruction, list):
        return "\n\n".join(filter(None, map(_text, instruction)))
    parts = getattr(instruction, "parts", None)
    return _text(list(parts)) if parts else getattr(instruction, "text", None) or ""


def _declared(tools: Sequence[Any]) -> list[Any]:
    """Return the functions that tools declare, and the tools that are something else."""
    found: list[Any] = []
    for tool in tools:
        declared = getattr(tool, "function_declarations", None)
        found += [tool] if declared is None else declared
    return found


# Reading: each result of a content is a piece, and the parts beside the results are one piece.


def _results(content: Any) -> list[int]:
    return [at for at, part in enumerate(content.parts or ()) if part.function_response]


def _rest(content: Any) -> list[Any]:
    return [part for part in content.parts or () if not part.function_response]


def _count(content: Any) -> int:
    results = len(_results(content))
    return results + bool(results and _rest(content)) or 1


def _read(contents: Sequence[Any], content: Any, number: int) -> Sequence[Piece]:
    found = []
    for at in _results(content):
        answer = content.parts[at].function_response
        called = answer.id or _answered(contents, number, at)
        told: Any = _json(answer.response)
        if answer.parts:
            told = [{"type": "text", "text": told}, *map(_part, answer.parts)]
        data = {"role": "tool", "tool_call_id": called, "content": told}
        found.append(piece(data, (number, at)))
    if not found or _rest(content):
        found.append(piece(_said(content, number), (number, None)))
    return found


def _said(content: Any, number: int) -> dict[str, Any]:
    """Return the texts and calls of a content, in the form of Chat Completions."""
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for at, part in enumerate(content.parts or ()):
        if part.function_call:
            made = part.function_call.id or f"{_MADE}{number}-{at}"
            calls.append(call(made, part.function_call.name, part.function_call.args or {}))
        elif not part.function_response:
            parts.append(_part(part))
    data: dict[str, Any] = {"role": _ROLES.get(content.role, content.role), "content": parts}
    if all(part["type"] == "text" for part in parts):
        data["content"] = "\n".join(part["text"] for part in parts) or None
    return {**data, "tool_calls": calls} if calls else data


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


def _answered(contents: Sequence[Any], number: int, at: int) -> str:
    """Return the id of the call that a result without an id answers: calls and results of one name
    stand in the same order."""
    answers = [part.function_response for part in contents[number].parts[: at + 1]]
    name = answers[at].name
    before = sum(bool(each and each.name == name) for each in answers[:at])
    for owner in range(number - 1, -1, -1):
        named = [
            (part.function_call.id or f"{_MADE}{owner}-{place}")
            for place, part in enumerate(contents[owner].parts or ())
            if part.function_call and part.function_call.name == name
        ]
        if before < len(named):
            return named[before]
    return f"{_MADE}{number}-{at}"


# Writing.


class _Said(FunctionResponse):
    """A shortened result for LiteLLM, which sends a dict as JSON, where escapes make it longer than
    it was counted, and a text unchanged. Code that reads the fields sees a dict."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return value["result"] if name == "response" else value


def written(contents: Sequence[Any], fitted: Fitted, as_text: bool) -> list[Any]:
    """Return the contents that are sent."""
    names = {c.id: c.name for each in fitted.placed for c in each.message.tool_calls}
    answer = _Said if as_text else FunctionResponse

    def added(message: Message) -> Any:
        if message.role != "tool":
            role = "model" if message.role == "assistant" else "user"
            return Content(role=role, parts=[Part(text=message.text)])
        called = message.tool_call_id or ""
        given = None if called.startswith(_MADE) else called
        said = answer(id=given, name=names.get(called, "tool"), response={"result": message.text})
        return Content(role="user", parts=[Part(function_response=said)])

    def result(part: Any, text: str) -> Any:
        given = part.function_response
        said = answer(id=given.id, name=given.name, response={"result": text})
        return part.model_copy(update={"function_response": said})

    def changed(content: Any, placed: Sequence[Placed]) -> list[Any]:
        parts: list[Any] = []
        for each in placed:
            at = each.ref[1]
            if at is None:
                parts += _changed(content, each)
            else:
                part = content.parts[at]
                parts.append(part if each.text is None else result(part, each.text))
        return [content.model_copy(update={"parts": parts})]

    sent = rejoined(contents, fitted.placed, _count, added=added, changed=changed)
    return answered_together(sent, contents, lambda each: bool(_results(each)), _joined)


def _joined(one: Any, other: Any) -> Any:
    return one.model_copy(update={"parts": [*one.parts, *other.parts]})


def _changed(content: Any, placed: Placed) -> list[Any]:
    """Return the texts and calls of a content, with its new text and arguments."""
    calls = iter(placed.message.tool_calls)
    parts: list[Any] = []
    text = placed.text
    for part in _rest(content):
        if part.function_call:
            made = next(calls)
            if made.id in placed.arguments:
                args = {"args": json.loads(made.arguments)}
                part = part.model_copy(
                    update={"function_call": part.function_call.model_copy(update=args)}
                )
        elif part.text and not part.thought and placed.text is not None:
            if not text:
                continue
            part, text = part.model_copy(update={"text": text}), None  # one text replaces all texts
        parts.append(part)
    return parts
