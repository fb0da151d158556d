"""Finding tools in a conversation: what a call of `find_tools` loads, and what is loaded already.

The set of loaded tools is read from the messages that are sent; nothing else remembers it. What a
search needs of the window that it was asked in is written into its call, so that a search that runs
after a crash gives the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muntin.core.checks import compact_json
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.parts import ToolCall
from muntin.core.tool_marks import CALL, CALLED, FIND, FOUND, found_names, found_tools
from muntin.core.toolboxes.offer import Loading, ToolOffer
from muntin.core.toolboxes.rungs import RUNGS, BoxedTool
from muntin.errors import InvalidInput

# A search loads at most so many tools, in so many tokens, or this part of the budget.
MOST_TOOLS, MOST_TOKENS, _PART = 8, 2_000, 8
# So many other tools are named where the index does not show names.
_OTHERS = 10
_QUESTION_CHARACTERS = 1_000
# Before the schema in an error of wrong arguments.
SCHEMA_WORDS = "The parameters are: "
_NOTHING = "Nothing found. Say it in other words, or name a toolbox."


def with_marks(message: Message, offer: ToolOffer, window: Sequence[Message]) -> Message:
    """Return an answer as it is recorded: a call of `call_tool` is a call of the tool itself, and
    calls that belong to toolboxes are marked. `window` has the messages that were answered."""
    if not offer.is_search or not message.tool_calls:
        return message
    loaded = found_names(window)
    calls = tuple(_marked(call, offer, loaded, window) for call in message.tool_calls)
    return message if calls == message.tool_calls else replace(message, tool_calls=calls)


def called_name(call: ToolCall) -> str:
    """Return the name of the tool that a call means, also one of `call_tool`."""
    return (_unwrapped(call.arguments)[0] or CALL) if call.name == CALL else call.name


def target(call: ToolCall, offer: ToolOffer, loaded: Collection[str] = ()) -> ToolCall:
    """Return the call that a call of `call_tool` means, marked with its toolbox."""
    if call.name == CALL and CALL in offer.declared:
        name, arguments = _unwrapped(call.arguments)
        if name:
            call = replace(call, name=name, arguments=arguments)
    tool = offer.catalogue.by_name.get(call.name)
    if call.name in offer.declared or (tool is None and call.name not in loaded):
        return call
    box = "" if tool is None else tool.box
    mark = {"box": box, **({"loaded": True} if call.name in loaded else {})}
    return replace(call, extra={**(call.extra or {}), CALLED: mark})


def _unwrapped(text: str) -> tuple[str, str]:
    """Return the name and the arguments that the arguments of `call_tool` hold."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return "", text
    if not isinstance(values, dict) or not isinstance(values.get("name"), str):
        return "", text
    arguments = values.get("arguments")
    if isinstance(arguments, str):  # a JSON text of an object
        try:
            decoded = json.loads(arguments)
        except (ValueError, RecursionError):
            decoded = None
        if not isinstance(decoded, dict):
            return values["name"], arguments or "{}"
        arguments = decoded
    return values["name"], json.dumps(arguments or {}, ensure_ascii=False, separators=(",", ":"))


class WindowSearch:
    """The search for tools in one window, for a loop of one's own; `Window.tool_search` makes it.

    The answers go into the list of messages like any other result.
    """

    def __init__(self, offer: ToolOffer, messages: Sequence[Message], counter: Counter) -> None:
        self.offer = offer
        self._messages = messages
        self._counter = counter

    def __repr__(self) -> str:
        return f"<WindowSearch tools={len(self.offer.listed)}>"

    def answer(self, call: ToolCall) -> Message:
        """Answer a call of `find_tools` that came as the answer to this window."""
        if call.name != FIND:
            raise InvalidInput(f"tool_search.answer takes calls of {FIND}, not of {call.name!r}")
        answer = with_marks(Message("assistant", tool_calls=(call,)), self.offer, self._messages)
        return answer_search(answer.tool_calls[0], self.offer, self._counter, self._messages)

    def target(self, call: ToolCall) -> ToolCall:
        """Return the call that is to be run: of `call_tool`, the call of the tool that it names;
        every other call is returned as it is."""
        if call.name != CALL:
            return call
        found = target(call, self.offer, found_names(self._messages))
        return replace(found, extra=call.extra)

    def recorded(self, answer: Message) -> Message:
        """Return an answer as it is best kept: its calls name the tools themselves, so that the
        conversation can go on with another provider."""
        return with_marks(answer, self.offer, self._messages)


def wrapped(call: ToolCall) -> ToolCall:
    """Return a call of a toolbox's tool as a call of `call_tool`."""
    name = json.dumps(call.name, ensure_ascii=False)
    try:
        is_object = isinstance(json.loads(call.arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    arguments = call.arguments if is_object else json.dumps(call.arguments, ensure_ascii=False)
    return replace(call, name=CALL, arguments=f'{{"name":{name},"arguments":{arguments}}}')


def _marked(
    call: ToolCall, offer: ToolOffer, loaded: Sequence[str], window: Sequence[Message]
) -> ToolCall:
    if call.name != FIND:
        return target(call, offer, loaded)
    users = [message.text for message in window if message.role == "user" and message.text]
    question = users[-1][:_QUESTION_CHARACTERS] if users else ""
    state = {"loaded": list(loaded), "question": question}
    return replace(call, extra={**(call.extra or {}), CALLED: state})


def query_of(call: ToolCall) -> str:
    """Return the query of a call of `find_tools`; arguments that are no object are the query."""
    try:
        values = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
    query = values.get("query") if isinstance(values, dict) else values
    if isinstance(query, list):
        return "\n".join(map(str, query))
    return "" if query is None else str(query)


def answer_search(
    call: ToolCall, offer: ToolOffer, counter: Counter, run: Sequence[Message] = ()
) -> Message:
    """Answer a call of `find_tools`; `run` has the messages of the run before the call."""
    state = (call.extra or {}).get(CALLED)
    state = state if isinstance(state, Mapping) else {}
    loaded = [str(name) for name in state.get("loaded") or ()]
    query = query_of(call).strip()
    again = _loaded_by(query, run)
    if again and set(again) <= set(loaded):
        return Message("tool", _before(again), tool_call_id=call.id)
    declared = [name for name in offer.declared if name in offer.catalogue.by_name]
    in_sight = frozenset((*loaded, *declared))
    others = 0 if offer.rung in ("lines", "names") else _OTHERS
    exact = {tool.name for tool in offer.catalogue.named(query)}
    question = str(state.get("question") or "")
    matches = offer.catalogue.search(query, MOST_TOOLS + others, question, in_sight)
    left = min(MOST_TOKENS, offer.budget // _PART)
    found: list[dict[str, Any]] = []
    before, lines = [], []
    for tool in matches:
        if tool.name in in_sight:
            before.append(tool.name)
            continue
        rung = None
        if len(found) < MOST_TOOLS or tool.name in exact:
            rung = next((r for r in _sized(tool, counter) if r[1] <= left), None)
            if rung is None and (not found or tool.name in exact):
                rung = list(_sized(tool, counter))[-1]
        if rung is None:
            lines.append(tool.line)
            continue
        found.append(rung[0])
        left -= rung[1]
    texts = []
    if found:
        texts.append(f"Loaded; run them with {CALL}(name, arguments):")
        texts += [compact_json(declaration_of(tool)) for tool in found]
    if before:
        texts.append(_before(before))
    if lines:
        texts += [f"Not loaded; {FIND} with the exact name loads them:", *lines]
    if not texts:
        texts.append(_nothing(offer))
    extra = {FOUND: found} if found else None
    return Message("tool", "\n".join(texts), tool_call_id=call.id, extra=extra)


def _sized(tool: BoxedTool, counter: Counter) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the declaration of a tool at each rung, and its tokens."""
    for rung in RUNGS:
        declaration = tool.at(rung)
        yield {**declaration, "rung": rung}, counter.text(compact_json(declaration))


def declaration_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a found tool as it is declared: name, text and schema."""
    return {
        "name": found["name"],
        "description": found.get("description") or "",
        "parameters": found.get("parameters") or {"type": "object", "properties": {}},
    }


def loaded_text(result: Message) -> str:
    """Return the text of a result where the declarations stand elsewhere: only their names."""
    tools = found_tools(result)
    rest = result.text.splitlines()[1 + len(tools) :]
    return "\n".join([f"Loaded: {', '.join(found_names([result]))}", *rest])


def load_for_error(
    tool: BoxedTool, call: ToolCall, text: str, loading: Loading
) -> tuple[str, dict[str, Any]]:
    """Return an error of wrong arguments that shows the schema, and the field that loads it, if it
    was not loaded. Where only references load, which stand alone in their result, nothing is."""
    declaration = tool.at("full")
    text = f"{text}. {SCHEMA_WORDS}{compact_json(declaration['parameters'])}"
    is_loaded = ((call.extra or {}).get(CALLED) or {}).get("loaded")
    if is_loaded or loading == "reference":
        return text, {}
    return text, {FOUND: [{**declaration, "rung": "full"}]}


def _before(names: Sequence[str]) -> str:
    return f"Loaded before: {', '.join(names)}"


def _nothing(offer: ToolOffer) -> str:
    if offer.rung != "none":
        return _NOTHING
    boxes = sorted({tool.box for tool in offer.listed})
    return f"{_NOTHING} The toolboxes are: {', '.join(boxes)}."


def _loaded_by(query: str, run: Iterable[Message]) -> list[str]:
    """Return what an earlier search of the same words loaded."""
    same: set[str] = set()
    for message in run:
        for call in message.tool_calls:
            if call.name == FIND and query_of(call).strip().casefold() == query.casefold():
                same.add(call.id)
        if message.tool_call_id in same and (loaded := found_names([message])):
            return loaded
    return []
