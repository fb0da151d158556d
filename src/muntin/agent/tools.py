"""Tools: plain typed functions, described to the model and called by it.

Owns the schema of a tool, the checking of its arguments, and how its result or its error is told
to the model. The agent loop decides when and how often tools are called.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeAlias, Unpack, cast

from muntin.agent.json_schema import mistakes
from muntin.agent.signatures import Signature, WrongArguments, signature
from muntin.agent.toolbox import OfferOptions, Toolbox, make_offer
from muntin.calls import off_loop
from muntin.core.checks import (
    check_count,
    check_optional_text,
    check_seconds,
    compact_json,
    copy_json,
    replace_surrogates,
    shown,
)
from muntin.core.counting.counter import Counter
from muntin.core.cutting import longest
from muntin.core.parts import ToolCall
from muntin.core.schemas import Schemas
from muntin.core.toolboxes.catalogue import Catalogue
from muntin.core.toolboxes.rungs import as_boxed_tool
from muntin.errors import InvalidInput, InvalidType

# The text for the model when a tool returns None.
DONE = "(done)"

# The strictest rule of the providers:
# https://platform.openai.com/docs/api-reference/chat/create (tools.function.name)
# and the names of MCP; a name that a provider refuses is sent under another name.
_NAME = re.compile(r"[a-zA-Z0-9_.:/-]{1,64}")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function with settings as a tool.

    Without `name` and `description`, the function's name and docstring are used. After `timeout`
    seconds the model is told that there is no result. A result of more than `max_result_tokens`
    is cut, with a marker that says how much is missing. `parameters` is the JSON Schema of a tool
    that is no Python function: `fn` is called with the arguments by name.
    """

    fn: Callable[..., Any]
    name: str | None = field(default=None, kw_only=True)
    description: str | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)
    max_result_tokens: int | None = field(default=None, kw_only=True)
    parameters: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise InvalidType(f"Tool: fn must be a function, not {shown(self.fn)}")
        check_optional_text(self.name, "Tool.name")
        what = f"tool {tool_name(self)!r}"
        check_optional_text(self.description, f"{what}: description")
        if self.timeout is not None:
            check_seconds(self.timeout, f"{what}: timeout")
        if self.max_result_tokens is not None:
            check_count(self.max_result_tokens, f"{what}: max_result_tokens")
        if not isinstance(self.parameters, Mapping | None):
            raise InvalidType(f"{what}: parameters must be a schema, not {shown(self.parameters)}")


ToolLike: TypeAlias = Mapping[str, Any] | Callable[..., Any] | Tool | Toolbox


class Tools(tuple[ToolLike, ...]):
    """Checked tools, by name and with their schemas; `as_tools` makes them. Toolboxes stand apart
    until their tools are asked for: then `offer` makes them part of names and schemas."""

    by_name: dict[str, ToolLike]
    schemas: Schemas
    boxes: tuple[Toolbox, ...] = ()

    async def offer(self, what: str, **options: Unpack[OfferOptions]) -> Tools:
        """Return the tools with those of their toolboxes as they are now; unchanged without."""
        if not self.boxes:
            return self
        return make_offer(self, [await box.ask() for box in self.boxes], what, **options)

    def offer_now(self, what: str, **options: Unpack[OfferOptions]) -> Tools:
        """Do the same where nothing can be awaited."""
        if not self.boxes:
            return self
        return make_offer(self, [box.ask_now() for box in self.boxes], what, **options)


def as_tools(tools: Any, what: str) -> Tools:
    """Check a list of tools: each tool must have its own name and a schema."""
    if isinstance(tools, Tools):
        return tools
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise InvalidType(f"{what}: tools must be a list, not {shown(tools)}")
    checked = Tools(tools)
    checked.by_name = {}
    checked.boxes = _boxes(tools, what)
    tools = [tool for tool in tools if not isinstance(tool, Toolbox)] if checked.boxes else tools
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping | Tool) and not callable(tool):
            raise InvalidType(f"{what}: a tool must be a schema or a function, not {shown(tool)}")
        name = tool_name(tool)
        if name in checked.by_name:
            first = list(checked.by_name).index(name)
            raise InvalidInput(
                f"{what}: tools[{first}] and tools[{index}] both have the name {name!r}"
            )
        checked.by_name[name] = tool
    descriptions = tuple(_describe(tool, what) for tool in tools)
    if any(isinstance(tool, Mapping) for tool in tools):  # a caller may change its own schema
        checked.schemas = _schemas(descriptions)
    else:
        checked.schemas = _schemas_of_functions(descriptions)
    return checked


def _boxes(tools: Sequence[Any], what: str) -> tuple[Toolbox, ...]:
    """Return the toolboxes of a list; each must have its own name."""
    boxes = tuple(tool for tool in tools if isinstance(tool, Toolbox))
    names = [box.name for box in boxes]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{what}: two toolboxes have the name {name!r}")
    return boxes


@dataclass(frozen=True, slots=True, eq=False)
class _Description:
    """The schema of a tool, which must not be changed, and its text."""

    schema: dict[str, Any]
    text: str


def _schemas(descriptions: tuple[_Description, ...]) -> Schemas:
    schemas = Schemas(description.schema for description in descriptions)
    schemas.texts = tuple(description.text for description in descriptions)
    return schemas


_schemas_of_functions = lru_cache(maxsize=128)(_schemas)  # a turn offers what the last one did


NO_TOOLS = as_tools((), "tools")


def merge_tools(
    offers: Iterable[tuple[str, Sequence[ToolLike]]],
    *,
    winners: Sequence[ToolLike] = (),
    what: str = "",
) -> tuple[ToolLike, ...]:
    """Return the tools of all sources, each name once; `winners` replace tools of their name.

    A name that two sources offer is an error naming both; the error begins with `what`.
    """
    merged: dict[str, ToolLike] = {}
    sources: dict[str, str] = {}
    for source, tools in offers:
        for tool in tools:
            name = tool_name(tool)
            first, owner = merged.setdefault(name, tool), sources.setdefault(name, source)
            if first is not tool or owner != source:  # one context may be used in two places
                raise InvalidInput(f"{what}tool {name!r} is contributed by {owner} and by {source}")
    merged.update({tool_name(tool): tool for tool in winners})
    return tuple(merged.values())


def tool_name(tool: ToolLike) -> str:
    """Return the name of a tool: of a schema, or of a function; of a toolbox, how it is called."""
    if isinstance(tool, Toolbox):
        return tool.what
    if isinstance(tool, Mapping):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, Mapping) else tool.get("name")
    elif isinstance(tool, Tool):
        name = getattr(tool.fn, "__name__", None) if tool.name is None else tool.name
    else:
        name = getattr(tool, "__name__", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a tool needs a name, as in Tool(fn, name=...): {shown(tool)}")
    return name


def tool_schema(tool: ToolLike) -> Mapping[str, Any]:
    """Return the OpenAI-style schema of a tool; a typed function is described by its signature.

    Parameters are described by `Annotated[..., Field(description=...)]`, or by the `Args:`
    section of the docstring, which is then left out of the tool's own description.
    """
    return tool if isinstance(tool, Mapping) else deepcopy(_describe(tool, "").schema)


def _describe(tool: ToolLike, what: str) -> _Description:
    if isinstance(tool, Mapping):
        schema = copy_json(tool, f"{what}: tool {tool_name(tool)!r}")
        return _Description(schema, compact_json(schema))
    fn: Any
    fn, description = (tool.fn, tool.description) if isinstance(tool, Tool) else (tool, None)
    if not callable(fn):
        raise InvalidType(f"a tool must be a schema or a function, not {shown(tool)}")
    name = tool_name(tool)
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"tool {name!r}: a tool's name has 1 to 64 letters, digits and the signs _ - . : /; "
            "give it one: Tool(fn, name=...)"
        )
    if isinstance(tool, Tool) and tool.parameters is not None:
        parameters = copy_json(tool.parameters, f"tool {name!r}: parameters", as_read=True)
        about = {"description": description} if description else {}
        schema = {"type": "function", "function": {"name": name, **about, "parameters": parameters}}
        return _Description(schema, compact_json(schema))
    return _description(signature(name, fn), name, _text_of(fn), description)


@lru_cache(maxsize=512)  # a turn asks for every tool
def _description(
    signature: Signature, name: str, docstring: str | None, description: str | None
) -> _Description:
    parameters = deepcopy(signature.schema)
    text, documented = _split_docstring(docstring)
    for parameter, words in documented.items():
        if parameter in parameters.get("properties", {}):
            parameters["properties"][parameter].setdefault("description", words)
    text = text if description is None else description
    about = {"description": text} if text else {}
    schema = {"type": "function", "function": {"name": name, **about, "parameters": parameters}}
    return _Description(schema, compact_json(schema))


def _text_of(fn: Callable[..., Any]) -> str | None:
    if isinstance(fn, partial):
        return _text_of(fn.func)
    if inspect.isroutine(fn) or fn.__doc__ != type(fn).__doc__:
        return fn.__doc__
    return type(fn).__call__.__doc__  # an object: the docstring of its class describes no call


_ARGS = re.compile(r"(Args|Arguments|Parameters):\s*")
_ARG = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


def _split_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the docstring without its `Args:` section, and the text for each parameter."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    start = next((n for n, line in enumerate(lines) if _ARGS.fullmatch(line)), len(lines))
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    texts: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + "\n".join(lines[start + 1 : end])).splitlines():
        entry = _ARG.fullmatch(line)
        if entry and not line[0].isspace():
            name, texts[entry[1]] = entry[1], entry[2]
        elif name:
            texts[name] = f"{texts[name]} {line.strip()}".strip()
    if not texts:
        return "\n".join(lines).strip(), {}
    rest = "\n".join(lines[:start]).strip(), "\n".join(lines[end:]).strip()
    return "\n\n".join(filter(None, rest)), texts


async def call_tool(tool: ToolLike, call: ToolCall, counter: Counter) -> str:
    """Run a tool as the model asked, and return the text for the model.

    Every error becomes such a text; only a cancellation is raised. A sync function runs in a
    thread, which cannot be stopped: after a timeout or a cancellation its result is lost.
    """
    if isinstance(tool, Mapping):
        raise InvalidType(f"tool {call.name!r} has a schema but no function to call")
    checked = tool if isinstance(tool, Tool) else Tool(cast("Callable[..., Any]", tool))
    limit = asyncio.timeout(checked.timeout)
    try:
        async with limit:
            args, named = _bind(checked, call)
            text = _result(await off_loop(partial(checked.fn, *args, **named)), call.name)
    except WrongArguments as error:
        text = f"{_refusal(call)}: {error}"
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        text = f"Error: tool {call.name!r} was cancelled."  # by itself, not by its caller
    except (Exception, SystemExit) as error:
        if isinstance(error, TimeoutError) and limit.expired():
            text = f"Error: tool {call.name!r} gave no result within {checked.timeout:g} s."
        else:
            # The model gets no traceback; the author of the tool may want one.
            _log.info("tool %r failed", call.name, exc_info=error)
            reason = f": {error}" if str(error) else ""
            text = f"Error: tool {call.name!r} failed: {type(error).__name__}{reason}"
    text = replace_surrogates(text)
    most = checked.max_result_tokens
    return text if most is None else shorten(text, most, counter)


def _refusal(call: ToolCall) -> str:
    return f"Error: invalid arguments for tool {call.name!r}"


def is_refusal(text: str, call: ToolCall) -> bool:
    """Say whether a result says that the arguments of the call do not fit."""
    return text.startswith(_refusal(call))


def near_names(name: str, tools: Mapping[str, ToolLike], most: int = 5) -> list[str]:
    """Return the names of at most `most` tools, those that are most like a name first."""
    if len(tools) <= most:
        return list(tools)
    catalogue = Catalogue([as_boxed_tool(tool_schema(tool)) for tool in tools.values()], {})
    return catalogue.near(name, most)


def _bind(tool: Tool, call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call, by position and by name."""
    if tool.parameters is None:
        return signature(call.name, tool.fn).bind(call.arguments)
    try:
        values = json.loads(call.arguments if call.arguments.strip() else "{}")
    except (ValueError, RecursionError) as error:
        raise WrongArguments(f"arguments: Invalid JSON: {error}") from error
    wrong = mistakes({"type": "object", **tool.parameters}, values)
    if wrong:
        raise WrongArguments("; ".join(wrong))
    return [], values


def _result(value: object, name: str) -> str:
    """Return a tool's result as text: a str unchanged, any other value as compact JSON."""
    if value is None:
        return DONE
    if isinstance(value, str):
        return value
    try:
        return compact_json(_jsonable(value))
    except Exception as error:
        kind = type(value).__name__
        _log.info("tool %r returned a %s", name, kind, exc_info=error)
        first = str(error).partition("\n")[0]
        return f"Error: tool {name!r} returned a {kind} that cannot be written as JSON: {first}"


def _jsonable(value: object) -> object:
    try:
        from pydantic_core import to_jsonable_python
    except ImportError:  # without Pydantic only plain JSON can be written
        return value
    return to_jsonable_python(value)


def shorten(text: str, most: int, counter: Counter) -> str:
    """Return `text`, or as much of its beginning as fits with a marker that says what is missing.

    Where not even the marker fits, the marker stands alone: the model must know.
    """
    whole = counter.text_once(text)
    if whole <= most:
        return text

    def marked(piece: str) -> str:
        missing = len(text) - len(piece)
        marker = f"[cut: {missing:,} of {len(text):,} characters left out]"
        return f"{piece}\n{marker}" if piece else marker

    piece = longest(text, whole, most, lambda piece: counter.text_once(marked(piece)), "head")
    return marked(piece[0] if piece else "")
