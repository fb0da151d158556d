"""OpenAI Responses: messages, requests, replies and streams, each read and written here.

https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from muntin.core.accepted import NameRule
from muntin.core.caching.wire_order import Answer
from muntin.core.checks import shown
from muntin.core.message import NO_RESULT, Message
from muntin.core.parts import (
    Image,
    Other,
    Part,
    Reasoning,
    Text,
    ToolCall,
    as_plain,
    part_from_dict,
)
from muntin.core.tool_marks import FIND, found_tools, is_boxed
from muntin.core.toolboxes.finding import declaration_of, loaded_text
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.wire.answers import END, AnswerParts
from muntin.wire.blocks import ItemFormat, new_arguments, write_items
from muntin.wire.chat import MARK, is_refusal, mark_items, names_of, request_of, takes_mark, text_in
from muntin.wire.common import (
    Files,
    as_mapping,
    check,
    count,
    function_of,
    get,
    is_text,
    known_extra,
    made_by,
)
from muntin.wire.encoder import Encoder, arrange_as_called, loads_by
from muntin.wire.media import Content, Media, contents, hinted
from muntin.wire.names import ToolNames, schema_of
from muntin.wire.pieces import Fitted, Placed
from muntin.wire.reply import Event, ReasoningDelta, Reply, TextDelta, ToolCalled, Usage
from muntin.wire.requests import (
    ASKS,
    Body,
    Request,
    body_tools,
    holder_of,
    inside,
    listed,
    named,
    system_message,
    text_of,
)

# messages

# Items that the model made with tools that run at OpenAI; the API takes them back unchanged.
ITEMS = frozenset(
    {
        "additional_tools",
        "apply_patch_call",
        "code_interpreter_call",
        "compaction",
        "computer_call",
        "configuration_update",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "mcp_approval_request",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
RESULTS = ("function_call_output", "custom_tool_call_output")
# Calls, and the field of their arguments.
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
# Calls of OpenAI's own tools that the app runs, by the types of the app's answers.
_CALLS_OF_RESULTS = {
    f"{call}_output": call
    for call in ("apply_patch_call", "computer_call", "local_shell_call", "shell_call")
}
# The output of a program that ran on in an earlier answer stands apart from it, as a result.
_CALLS_OF_RESULTS["program_output"] = "program"
# The items of an answer; consecutive ones are one answer.
OUTPUTS = frozenset({*ITEMS, *CALLS, "reasoning", "message"})
# The item that asks OpenAI to compact what stands before it.
TRIGGER = "compaction_trigger"
# Items of the app that are neither messages nor results, and are read alone.
INPUTS = frozenset({TRIGGER})
# All items of this API.
TYPES = frozenset({*OUTPUTS, *INPUTS, *RESULTS, *_CALLS_OF_RESULTS})


def is_output(item: Any) -> bool:
    """Say whether an item is part of a model's answer."""
    kind = get(item, "type")
    if not isinstance(kind, str) or kind not in OUTPUTS:
        return False
    if kind != "message":
        return True
    content = get(item, "content")
    is_answer = get(item, "role") == "assistant" and get(item, "stop_reason") is None
    if not is_answer or isinstance(content, str):
        return False
    parts = content if isinstance(content, list | tuple) else ()
    return all(get(part, "type") in ("output_text", "refusal") for part in parts)


def is_trigger(item: Any) -> bool:
    """Say whether an item asks OpenAI to compact what stands before it."""
    return bool(get(item, "type") == TRIGGER)


def check_item(item: Mapping[str, Any]) -> None:
    """Refuse an item of an answer that lacks a field needed for reading."""
    kind = item["type"]
    needed = ["id"] if kind == "reasoning" else ["content"] if kind == "message" else []
    if kind in CALLS:
        needed = ["call_id", "name", CALLS[kind]]
    for key in needed:
        if item.get(key) is None:
            raise InvalidInput(f"an item of type {kind!r} needs {key!r}: {shown(dict(item))}")


def as_input(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message item of the user or the system as a dict without the API's own fields."""
    rest = {k: v for k, v in data.items() if k not in ("type", "id", "status")}
    return rest if data.get("id") is None else {**rest, "item_id": data["id"]}


def result(item: Mapping[str, Any]) -> Message:
    """Read the output of a call."""
    call_id = item.get("call_id")
    if not isinstance(call_id, str):
        raise InvalidInput(
            f"an item of type {item['type']!r} needs a 'call_id': {shown(dict(item))}"
        )
    output = item.get("output")
    if isinstance(output, Sequence) and not isinstance(output, str):
        output = tuple(part_from_dict(part) for part in output)
    fields = ("type", "call_id", "output", "id", "status")
    extra = {k: v for k, v in item.items() if k not in fields and v is not None}
    return Message("tool", output, tool_call_id=call_id, extra=extra or None)


def is_own_result(item: Any) -> bool:
    """Say whether an item is an app's answer to a call of one of OpenAI's own tools."""
    kind = get(item, "type")
    return (
        isinstance(kind, str)
        and kind in _CALLS_OF_RESULTS
        and isinstance(get(item, "call_id"), str)
    )


def own_result(item: Mapping[str, Any]) -> Message:
    """Read an app's answer to a call of one of OpenAI's own tools.

    A screenshot cannot be written as text, and a program's output is OpenAI's: both stay whole.
    """
    call_id, output = item["call_id"], item.get("output")
    if item["type"] == "program_output":
        whole = Text(str(item.get("result") or "")), Other({"type": "unread", "value": ""})
        return Message("tool", whole, tool_call_id=call_id)
    if isinstance(output, Mapping):
        shot = Image(str(output.get("image_url") or ""))
        return Message("tool", (shot, Other({"type": "unread", "value": ""})), tool_call_id=call_id)
    if isinstance(output, Sequence) and not isinstance(output, str):
        streams = [chunk.get(key) for chunk in output for key in ("stdout", "stderr")]
        output = "\n".join(stream for stream in streams if stream)
    return Message("tool", output, tool_call_id=call_id)


def shorter_output(item: Mapping[str, Any], text: str | None) -> Any:
    """Return the output of a result with another text, in the form of its type."""
    output = item.get("output")
    if item.get("type") == "shell_call_output" and isinstance(output, list | tuple) and output:
        return [{**as_plain(output[-1]), "stdout": text, "stderr": ""}]
    return text


def with_own_calls(message: Message, answered: Collection[str]) -> Message:
    """Return an answer with the calls of OpenAI's own tools that these ids answer, so that calls
    and results stay together."""
    content = message.content if isinstance(message.content, tuple) else ()
    held = [part.data for part in content if isinstance(part, Other)]
    calls = [
        ToolCall(item["call_id"], item["type"], "")
        for item in held
        if item["type"] in _CALLS_OF_RESULTS.values() and item.get("call_id") in answered
    ]
    return replace(message, tool_calls=(*message.tool_calls, *calls)) if calls else message


def own_answered(items: Iterable[Any]) -> frozenset[str]:
    """Return the ids of the calls of OpenAI's own tools that these items answer."""
    return frozenset(get(item, "call_id") for item in items if is_own_result(item))


def result_type(call: ToolCall) -> str:
    """Return the type of the item that answers a call."""
    custom = (call.extra or {}).get("type") == "custom"
    return "custom_tool_call_output" if custom else "function_call_output"


def answer(items: Sequence[Mapping[str, Any]], error: Any = None) -> Message:
    """Read the items of one answer."""
    parts = AnswerParts()
    reasoned = False
    for item in items:
        kind = item.get("type")
        if kind in CALLS:
            parts.call(call(item, reasoned))
        elif kind == "message":
            parts.add(
                *[_read_content_part(as_plain(part), item, reasoned) for part in item["content"]]
            )
        elif kind == "reasoning":
            reasoned = True
            parts.add(_reasoning(item))
        else:
            parts.add(Other(item))
    kinds = [item.get("type") for item in items]
    as_made = not OUTPUTS.issuperset(kinds) or kinds[-1:] == ["reasoning"]
    return parts.message("openai", as_made=as_made, extra={"error": error} if error else None)


def call(item: Mapping[str, Any], reasoned: bool) -> ToolCall:
    """Read a call; `reasoned` says whether reasoning stands before it in its answer."""
    key = CALLS[item["type"]]
    fields = ("type", "id", "call_id", "name", key)
    rest = {k: v for k, v in item.items() if k not in fields and v is not None}
    custom = {"type": "custom"} if key == "input" else {}
    extra = {**custom, **_id_of(item, reasoned), **rest}
    return ToolCall(item["call_id"], item["name"], item[key], extra=extra or None)


def _read_content_part(part: Mapping[str, Any], item: Mapping[str, Any], reasoned: bool) -> Part:
    """Read a part of a message item: a text or a refusal, with what is known of its item."""
    extra = {**_id_of(item, reasoned), "phase": item.get("phase")}
    if extra.keys() > {"phase"} and item.get("status") != "completed":
        extra["status"] = item.get("status")
    extra = {key: value for key, value in extra.items() if value}
    if part.get("type") != "output_text":
        return Other({**part, **extra})
    beside = {key: value for key, value in part.items() if key not in ("type", "text")}
    extra |= {key: value for key, value in beside.items() if value or key == "logprobs"}
    return Text(part["text"], extra=extra or None)


def _id_of(item: Mapping[str, Any], reasoned: bool) -> dict[str, str]:
    """Return an item's id: under `item_id` if the API takes it only beside the reasoning before it.

    https://developers.openai.com/api/docs/guides/reasoning
    """
    return {"item_id" if reasoned else "own_id": item["id"]} if item.get("id") else {}


def _reasoning(item: Mapping[str, Any]) -> Reasoning:
    fields = ("type", "encrypted_content", "content", "summary")
    extra = {k: v for k, v in item.items() if k not in fields and v is not None}
    extra["summary"] = list(item.get("summary") or ())
    if item.get("content"):
        extra["content"] = list(item["content"])
    text = "\n\n".join(part["text"] for part in extra.get("content") or extra["summary"])
    return Reasoning(text, signature=item.get("encrypted_content"), extra=extra)


# requests

_IDS = NameRule(64)

# Tools that run at OpenAI, or exist only in this API.
_TOOLS = frozenset(
    {
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use_preview",
        "custom",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "namespace",
        "programmatic_tool_calling",
        "shell",
        "tool_search",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    }
)


def encode(window: Window, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
    """Return `input` (and `tools`, if any) for `client.responses.create(...)`."""
    return _Encoder(check(window, strict, files), names_of(window)).request(window)


class _Encoder(Encoder):
    """One encoding: the items so far, and the state for the next."""

    def __init__(self, files: Files, names: ToolNames) -> None:
        super().__init__("openai", files, names, _IDS, "Responses has no names")
        self.sent: list[tuple[int, dict[str, Any]]] = []
        # Whether tools that are found get declarations behind their results, and which have one.
        self.adds_tools = False
        self.added: set[str] = set()

    def request(self, window: Window) -> dict[str, Any]:
        self.adds_tools = loads_by(window) == "item"
        for index, message, answers in arrange_as_called(window):
            content = message.content
            if content and not answers and message.role != "tool" and is_text(message):
                self.sent.append((index, {"role": message.role, "content": content}))
            elif message.role == "assistant":
                self._assistant(index, message, answers)
            else:
                self._message(index, message)
        self._drop_duplicates()
        self._drop_loose_reasoning()
        tools = map(self._tool, window.tools)
        return request_of("input", self.sent, tools, window, self.ledger, _markable, _part)

    def _add(self, index: int, item: dict[str, Any]) -> None:
        self.sent.append((index, item))

    def _drop_duplicates(self) -> None:
        """Remove repeated ids, as of a message that stands in two slots: the API refuses them.

        Texts and calls of the model are sent again without their id; other items are sent once.
        """
        named = [item["id"] for _, item in self.sent if _is_named(item)]
        if len(set(named)) == len(named):
            return
        seen: set[str] = set()
        sent, nameless = [], -1
        for index, item in self.sent:
            if _is_named(item) and (item["id"] in seen or index == nameless):
                if item["type"] == "reasoning":
                    nameless = index  # the item behind it may not have an id without it
                if item["type"] not in _NEEDS_NO_ID:
                    why = f"{item['id']!r}, or the reasoning before it, stands twice"
                    self.ledger.miss(index, f"item of type {item['type']!r}", why)
                    continue
                item = _without_id(item)
            elif _is_named(item):
                seen.add(item["id"])
            sent.append((index, item))
        self.sent = sent

    def _drop_loose_reasoning(self) -> None:
        """Leave out reasoning that no item of the model follows: the API refuses it."""
        if not any(item.get("type") == "reasoning" for _, item in self.sent):
            return
        sent = []
        follower = False
        for index, item in reversed(self.sent):
            kind = item.get("type", "message")
            if kind == "reasoning" and not follower and index not in self.as_made:
                self.ledger.miss(index, "reasoning", "nothing of the model's follows it")
                continue
            if kind != "reasoning":
                is_message = kind == "message"
                follower = item.get("role") == "assistant" if is_message else kind in OUTPUTS
            sent.append((index, item))
        self.sent = sent[::-1]

    def _message(self, index: int, message: Message) -> None:
        """Add a message of the user or the system; a result without a call is the user's text."""
        role = "user" if message.role == "tool" else message.role
        self.miss_name(index, message)
        extra, fields = message.extra or {}, ()
        if role == "system" and extra.get("role") == "developer":
            role, fields = "developer", ("role",)  # type: ignore[assignment]
        self.ledger.miss_fields(index, extra, fields)
        parts = message.content if isinstance(message.content, tuple) else ()
        if len(parts) == 1 and isinstance(parts[0], Other) and parts[0].data["type"] in INPUTS:
            self._add(index, deepcopy(dict(parts[0].data)))
            return
        content = self._content(index, message, role)
        if content:
            self._add(index, {"role": role, "content": content})

    def _content(self, index: int, message: Message, role: str) -> Any:
        text = hinted(message, index, self.files, self.ledger)
        if text is not None:
            return text
        parts = []
        for media_or_text in contents(message, index, self.files, self.ledger):
            part = self._part(index, media_or_text, role)
            if part is not None:
                parts.append(part)
        return parts

    def _part(self, index: int, part: Content, role: str) -> dict[str, Any] | None:
        if isinstance(part, Text):
            extra = known_extra(part.extra, (MARK,), index, self.ledger)
            return {"type": "input_text", "text": part.text, **extra} if part.text else None
        if isinstance(part, Reasoning):
            self.ledger.miss(index, "reasoning", f"{role} messages have none")
        elif isinstance(part, Other):
            self.ledger.miss(index, f"part of type {part.data['type']!r}", "the API has none")
        elif role in ("system", "developer"):
            self.ledger.miss(index, part.label, f"{role} messages hold text only")
        else:
            sent = _media(part)
            if sent is not None:
                return {**sent, **known_extra(part.extra, (MARK,), index, self.ledger)}
            self.ledger.miss(index, part.label, f"Responses takes no {part.modality}")
        return None

    def _assistant(self, index: int, message: Message, answers: Sequence[Answer]) -> None:
        self.miss_name(index, message)
        self.ledger.miss_fields(index, message.extra or {})
        held = list(contents(message, index, self.files, self.ledger))
        named = any(isinstance(part, Reasoning) and made_by(part) == "openai" for part in held)
        places = self.by_place(index, message, answers, held)
        self._add_contents(index, places.get(None, ()), named)
        results = []
        for call, result, at in answers:
            self._add_contents(index, places.get(call.id, ()), named)
            call_id = self.ids(call.id)
            self._add(index, self._call(index, call, call_id, named))
            results.append((at, self._result(at, call, result, call_id)))
        self._add_contents(index, places.get(END, ()), named)
        for at, item in results:
            self._add(at, item)
        for _, result, at in answers:
            if self.adds_tools and result is not None and found_tools(result):
                self._add(at, self._additional_tools(result))

    def _additional_tools(self, result: Message) -> dict[str, Any]:
        """Return the item that declares what a result loads."""
        tools = []
        for tool in map(declaration_of, found_tools(result)):
            self.added.add(tool["name"])
            name = self.names(tool["name"])
            parameters = schema_of(tool["parameters"])
            tools.append(
                {
                    "type": "function",
                    **tool,
                    "name": name,
                    "parameters": parameters,
                    "strict": False,
                }
            )
        return {"type": "additional_tools", "role": "developer", "tools": tools}

    def _add_contents(self, index: int, parts: Sequence[Content], named: bool) -> None:
        """Add the assistant's texts and reasoning; texts of one item become one item."""
        open_item: dict[str, Any] | None = None
        for part in parts:
            kind = part.data["type"] if isinstance(part, Other) else None
            if isinstance(part, Text):
                if part.text or _sent_id(part.extra, named):
                    open_item = self._text(index, part, named, open_item)
                continue
            if isinstance(part, Other) and kind == "refusal":
                if _sent_id(part.data, named):
                    open_item = self._text(index, part, named, open_item)
                elif part.data.get("refusal"):
                    self._text(index, Text(str(part.data["refusal"])), False, None)
                    open_item = None
                continue
            open_item = None
            if isinstance(part, Reasoning):
                self._reasoning(index, part)
            elif isinstance(part, Media):
                self.ledger.miss(index, part.label, "assistant messages hold text only")
            elif kind in ITEMS or index in self.as_made:
                item = deepcopy(dict(part.data))
                item.pop("before", None)
                self._add(index, item)
            else:
                self.ledger.miss(index, f"part of type {kind!r}", "the API has none")

    def _text(
        self, index: int, part: Text | Other, named: bool, open_item: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Add a text or a refusal to its item, or as a new item; return that item."""
        extra: Mapping[str, Any] = part.data if isinstance(part, Other) else part.extra or {}
        phase = {"phase": extra["phase"]} if extra.get("phase") else {}
        item_id = _sent_id(extra, named)
        if item_id is None:
            text = part.text if isinstance(part, Text) else ""
            self.ledger.miss_fields(index, extra, ("phase", "annotations", "logprobs"))
            if open_item and "id" not in open_item and open_item.get("phase") == extra.get("phase"):
                open_item["content"] += text
                return open_item
            item = {"role": "assistant", "content": text, **phase}
            self._add(index, item)
            return item
        if isinstance(part, Text):
            fields = known_extra(extra, ("annotations", "logprobs"), index, self.ledger, ("phase",))
            new_part = {"type": "output_text", "text": part.text, "annotations": [], **fields}
        else:
            new_part = {"type": "refusal", "refusal": extra.get("refusal")}
        if open_item and open_item.get("id") == item_id:
            open_item["content"].append(new_part)
            return open_item
        item = {"type": "message", "id": item_id, "role": "assistant", "content": [new_part]}
        item["status"] = extra.get("status") or "completed"
        self._add(index, {**item, **phase})
        return self.sent[-1][1]

    def _reasoning(self, index: int, part: Reasoning) -> None:
        extra = dict(part.extra or {})
        if made_by(part) != "openai" or not isinstance(extra.get("id"), str):
            self.ledger.miss(index, "reasoning", "it is not of the Responses API")
            return
        extra.pop("before", None)
        item = {"type": "reasoning", "id": extra.pop("id"), **deepcopy(extra)}
        if part.signature is not None:
            item["encrypted_content"] = part.signature
        self._add(index, item)

    def _call(self, index: int, call: ToolCall, call_id: str, named: bool) -> dict[str, Any]:
        name = self.called(index, call)
        extra = call.extra or {}
        # Another vendor's call may have a `caller` too.
        ours = ("namespace", *(_CALL_FIELDS if _sent_id(extra, True) else ()))
        rest = known_extra(extra, ours, index, self.ledger, ("type",))
        if is_boxed(call):  # the namespace of a declaration in this request, not of another one
            rest.pop("namespace", None)
            if call.name in self.added:
                rest["namespace"] = name
        item_id = _sent_id(extra, named)
        if item_id is not None:
            rest |= {"id": item_id, **({"status": extra["status"]} if extra.get("status") else {})}
        if extra.get("type") == "custom":
            kind, key = "custom_tool_call", "input"
        else:
            kind, key = "function_call", "arguments"
        return {"type": kind, "call_id": call_id, "name": name, key: call.arguments, **rest}

    def _result(
        self, index: int, call: ToolCall, result: Message | None, call_id: str
    ) -> dict[str, Any]:
        output: Any = NO_RESULT
        if result is not None:
            output = self._content(index, result, "tool") or ""
            if self.adds_tools and call.name == FIND and found_tools(result):
                output = loaded_text(result)
            self.miss_name(index, result, call)
            self.ledger.miss_fields(index, result.extra or {})
        return {"type": result_type(call), "call_id": call_id, "output": output}

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any] | None:
        if tool.get("type") == "custom":
            custom = tool.get("custom")
            held = custom if isinstance(custom, Mapping) else tool
            sent_name = self.declare(held.get("name"))
            return None if sent_name is None else {"type": "custom", **held, "name": sent_name}
        if tool.get("type") in _TOOLS:
            return dict(tool)
        function = function_of(tool)
        if function is None:
            self.miss_tool(tool)
            return None
        name = self.declare(function.get("name"))
        if name is None:
            return None
        fields = ("name", "description", "parameters", "strict", "defer_loading", "output_schema")
        self.ledger.miss_fields(None, function, fields)
        flat = {"type": "function", **{key: function[key] for key in fields if key in function}}
        flat |= {"name": name, "parameters": schema_of(flat.get("parameters"))}
        # The default here is true, but false in Chat Completions.
        flat.setdefault("strict", False)
        return flat


# Fields of a call that the API takes back.
_CALL_FIELDS = ("caller", "async")


def _sent_id(extra: Mapping[str, Any] | None, named: bool) -> str | None:
    """Return the id of an item; `named` says whether the reasoning of its answer is sent."""
    if not extra:
        return None
    return extra.get("own_id") or (extra.get("item_id") if named else None)


# Items that need no id.
_NEEDS_NO_ID = ("message", "function_call", "custom_tool_call")


def _is_named(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("id"), str)


def _without_id(item: dict[str, Any]) -> dict[str, Any]:
    """Return a text or call of the model without its id; a message has another form then."""
    if item["type"] != "message":
        return {key: value for key, value in item.items() if key not in ("id", "status")}
    text = "".join([str(part.get("text") or part.get("refusal")) for part in item["content"]])
    phase = {"phase": item["phase"]} if "phase" in item else {}
    return {"role": "assistant", "content": text, **phase}


def _media(media: Media) -> dict[str, Any] | None:
    """Return an image or a document as a part of an input message; None if the API has none."""
    if media.modality == "image":
        detail = media.detail or "auto"
        source = {"file_id": media.id} if media.id is not None else {"image_url": media.url}
        return {"type": "input_image", "detail": detail, **source}
    if media.modality != "document":
        return None
    if media.id is not None:
        return {"type": "input_file", "file_id": media.id}
    if media.inline:
        return {"type": "input_file", "file_data": media.url, "filename": media.name or "file"}
    return {"type": "input_file", "file_url": media.url}


# replies

RESPONSE = "a response of the Responses API"


def decode(response: Any, window: Window | None = None) -> Reply:
    """Read a response, the SDK's object or its dict, as a Reply.

    A response that failed has the finish reason `failed` and its error in `message.extra`. With
    the window that was sent, calls have the names of its tools. Raises `InvalidInput`, naming
    the expected form, if the value is something else.
    """
    data = as_mapping(response, RESPONSE, "output")
    items = data["output"]
    if not isinstance(items, Sequence) or not all(isinstance(item, Mapping) for item in items):
        raise InvalidInput(
            f"expected {RESPONSE}, whose 'output' is a list of items; got {shown(items)}"
        )
    try:
        message = answer(items, data.get("error"))
    except (MuntinError, KeyError, TypeError) as error:
        raise InvalidInput(
            f"expected {RESPONSE}; its output cannot be read: {shown(error)}"
        ) from error
    return Reply(
        names_of(window).read(message),
        usage=usage_of(data.get("usage")),
        finish_reason=_finish(data, message),
        window=window,
    )


def usage_of(usage: Any) -> Usage:
    """Read the billed tokens."""
    details = get(usage, "input_tokens_details") if usage is not None else None
    made = get(usage, "output_tokens_details") if usage is not None else None
    return Usage(
        count(usage, "input_tokens"),
        count(usage, "output_tokens"),
        count(details, "cached_tokens"),
        count(details, "cache_write_tokens"),
        count(made, "reasoning_tokens"),
    )


_INCOMPLETE = {"max_output_tokens": "length"}


def _finish(data: Mapping[str, Any], message: Message) -> str:
    status = data.get("status") or "completed"
    if status == "incomplete":
        reason = (data.get("incomplete_details") or {}).get("reason") or status
        return _INCOMPLETE.get(reason, str(reason))
    if status != "completed":
        return str(status)
    return "tool_calls" if message.tool_calls else "stop"


_REASONING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class Assembler:
    """Puts a streamed answer together from its events; see `wire.chat.Assembler`.

    The last event holds the whole response, so only that event is kept.
    """

    def __init__(self, window: Window | None = None) -> None:
        self._names = names_of(window)
        self._response: Any = None
        self._error: Any = None
        self._named = False

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is complete."""
        return self._response is not None

    def feed(self, chunk: Any) -> list[Event]:
        """Take the next event of the stream; return its new events."""
        kind = get(chunk, "type")
        if kind in _TEXT_EVENTS:
            return [TextDelta(get(chunk, "delta"))]
        if kind in _REASONING_EVENTS:
            return [ReasoningDelta(get(chunk, "delta"))]
        if kind == "response.output_item.done":
            item = get(chunk, "item")
            self._named = self._named or get(item, "type") == "reasoning"
            if get(item, "type") in ("function_call", "custom_tool_call"):
                data = as_mapping(item, "a tool call of the Responses API", "call_id")
                return [ToolCalled(self._names.called(call(data, self._named)))]
        elif kind in _LAST_EVENTS:
            self._response = get(chunk, "response")
        elif kind == "error":
            self._error = get(chunk, "message")
        return []

    def reply(self, window: Window | None = None) -> Reply:
        """Return the whole answer.

        Raises `InvalidInput` if the stream has not ended.
        """
        if self._response is None:
            why = f": {self._error}" if self._error else ""
            raise InvalidInput(f"the stream of Responses broke off before its last event{why}")
        reply = decode(self._response, window)
        if window is not None:
            return reply
        return replace(reply, message=self._names.read(reply.message))


# requests read

# Fields that say that OpenAI keeps a part of the request.
_ELSEWHERE = ("prompt",)


def read_request(body: Body) -> Request:
    """Read the body of a request."""
    turn_input = body.get("input")
    asks = isinstance(turn_input, list | tuple) and any(map(is_trigger, turn_input))
    instructions = text_of(body.get("instructions"))
    stored_field = next((key for key in _ELSEWHERE if body.get(key)), None)
    return Request(
        [turn_input]
        if isinstance(turn_input, str)
        else listed(body, "input", "a request of Responses"),
        system=() if instructions is None else system_message(_system, instructions),
        tools=body_tools(body),
        model=named("openai", body.get("model")),
        user=text_of(body.get("safety_identifier")) or text_of(body.get("user")),
        passes=ASKS.format(TRIGGER)
        if asks
        else None
        if stored_field is None
        else f"a part of the request is at OpenAI ({stored_field!r})",
        held=holder_of(body),
        output=inside(body, "text", "format", "schema"),
    )


def _system(text: str) -> Message:
    return Message("system", text)


def write_request(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages, marked where it may be cached."""
    turn_input = body["input"]
    listed_items = [turn_input] if isinstance(turn_input, str) else turn_input
    placed = [part for part in fitted.placed if part.ref or part.message.text]
    items, ends = write_items(listed_items, placed, lambda item: ITEM_FORMAT)
    new_items = mark_items(items, ends, replace(fitted, placed=tuple(placed)), _markable, _part)
    options = {key: value for key, value in new_items.items() if key not in body}
    sent = (
        items[0]
        if isinstance(turn_input, str) and [str] == [type(item) for item in items]
        else items
    )
    return {**body, **options, "input": sent}


# items written back


def _new_fields(item: Any, placed: Placed) -> dict[str, Any]:
    """Return the fields of a call with new arguments, or of a result of OpenAI's own tools."""
    key = CALLS.get(get(item, "type"))
    if key is not None:
        (text,) = new_arguments([item], placed)
        return {} if text is None else {key: text}
    if placed.text is not None and is_own_result(item):
        return {"output": shorter_output(as_plain(item), placed.text)}
    return {}


def _make_item(message: Message, call: ToolCall | None, items: Sequence[Any]) -> dict[str, Any]:
    if call is None:
        return {"role": message.role, "content": message.text}
    return {"type": result_type(call), "call_id": message.tool_call_id, "output": message.text}


def _part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


ITEM_FORMAT = ItemFormat(
    model="assistant",
    is_result=lambda block: False,
    call=lambda block: None,
    text=text_in,
    stays=is_refusal,
    make_text=_part,
    with_result_text=lambda block, text: block,
    with_arguments=lambda block, text: block,
    make_item=_make_item,
    key=lambda item: "content" if get(item, "output") is None else "output",
    beside=_new_fields,
)


def _markable(item: Any) -> str | None:
    if isinstance(item, str):
        return "content" if item else None
    if not isinstance(item, Mapping):
        return None
    is_output_of_call = item.get("type") in RESULTS
    key = "output" if is_output_of_call else "content"
    if not is_output_of_call and item.get("role") not in _MARKED_ROLES:
        return None
    return takes_mark(item, key)


_MARKED_ROLES = ("user", "system", "developer")
