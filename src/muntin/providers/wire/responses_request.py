"""OpenAI Responses: a window as the arguments of the official call.

https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from muntin.core.accepted import NameRule
from muntin.core.caching.wire_order import Answer, arrange
from muntin.core.composed import Composed
from muntin.core.forms.responses import ITEMS, result_type
from muntin.core.message import NO_RESULT, Message
from muntin.core.parts import Other, Reasoning, Text, ToolCall
from muntin.providers.wire.chat_request import (
    MARK,
    MARKS,
    cache_options,
    mark,
    names_of,
)
from muntin.providers.wire.common import (
    Files,
    check,
    ends,
    function_of,
    is_text,
    known_extra,
    made_by,
)
from muntin.providers.wire.encoder import Encoder
from muntin.providers.wire.media import Content, Media, contents, hinted, stands_before
from muntin.providers.wire.names import ToolNames, schema_of

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


def encode(window: Composed, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
    """Return `input` (and `tools`, if any) for `client.responses.create(...)`."""
    return _Encoder(check(window, strict, files), names_of(window)).request(window)


class _Encoder(Encoder):
    """One encoding: the items so far, and the state for the next."""

    def __init__(self, files: Files, names: ToolNames) -> None:
        super().__init__("openai", files, names, _IDS, "Responses has no names")
        self.items: list[dict[str, Any]] = []
        self.order: list[int] = []

    def request(self, window: Composed) -> dict[str, Any]:
        items, order = self.items, self.order
        for index, message, answers in arrange(window.messages):
            content = message.content
            if content and not answers and message.role != "tool" and is_text(message):
                items.append({"role": message.role, "content": content})
                order.append(index)
            elif message.role == "assistant":
                self._assistant(index, message, answers)
            else:
                self._message(index, message)
        self._drop_duplicates()
        if any(item.get("type") == "reasoning" for item in self.items):
            self._drop_loose_reasoning()
        request: dict[str, Any] = {"input": self.items, **cache_options(window)}
        tools = [tool for tool in map(self._tool, window.tools) if tool is not None]
        if tools:
            request["tools"] = tools
        if window.breakpoints:
            self._mark(window)
        self.ledger.enter(window)
        return request

    def _add(self, index: int, item: dict[str, Any]) -> None:
        self.items.append(item)
        self.order.append(index)

    def _drop_duplicates(self) -> None:
        """Remove repeated ids, as of a message that stands in two slots: the API refuses them.

        Texts and calls of the model are sent again without their id; other items are sent once.
        """
        named = [item["id"] for item in self.items if _is_named(item)]
        if len(set(named)) == len(named):
            return
        seen: set[str] = set()
        items, order, nameless = [], [], -1
        for index, item in zip(self.order, self.items, strict=True):
            if _is_named(item) and (item["id"] in seen or index == nameless):
                if item["type"] == "reasoning":
                    nameless = index  # the item behind it may not have an id without it
                if item["type"] not in _SAID:
                    why = f"{item['id']!r}, or the reasoning before it, stands twice"
                    self.ledger.miss(index, f"item of type {item['type']!r}", why)
                    continue
                item = _unnamed(item)
            elif _is_named(item):
                seen.add(item["id"])
            items.append(item)
            order.append(index)
        self.items, self.order = items, order

    def _drop_loose_reasoning(self) -> None:
        """Leave out reasoning that no item of the model follows: the API refuses it."""
        items: list[dict[str, Any]] = []
        order: list[int] = []
        follower = False
        for index, item in zip(reversed(self.order), reversed(self.items), strict=True):
            kind = item.get("type", "message")
            if kind == "reasoning" and not follower:
                self.ledger.miss(index, "reasoning", "nothing of the model's follows it")
                continue
            if kind != "reasoning":
                follower = item.get("role", "assistant") == "assistant" and "output" not in item
            items.append(item)
            order.append(index)
        self.items, self.order = items[::-1], order[::-1]

    def _message(self, index: int, message: Message) -> None:
        """Add a message of the user or the system; a result without a call is the user's text."""
        role = "user" if message.role == "tool" else message.role
        self.miss_name(index, message)
        extra, known = message.extra or {}, ()
        if role == "system" and extra.get("role") == "developer":
            role, known = "developer", ("role",)  # type: ignore[assignment]
        self.ledger.miss_fields(index, extra, known)
        content = self._content(index, message, role)
        if content:
            self._add(index, {"role": role, "content": content})

    def _content(self, index: int, message: Message, role: str) -> Any:
        text = hinted(message, index, self.files, self.ledger)
        if text is not None:
            return text
        parts = []
        for each in contents(message, index, self.files, self.ledger):
            part = self._part(index, each, role)
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
        # An item may have its id only together with the reasoning that led to it, or the API
        # refuses the request: https://developers.openai.com/api/docs/guides/reasoning
        named = any(isinstance(part, Reasoning) and made_by(part) == "openai" for part in held)
        between: dict[str, list[Content]] = {}
        opening: list[Content] = []
        calls = {call.id for call, _, _ in answers}
        for part in held:
            before = stands_before(part, calls)
            (opening if before is None else between.setdefault(before, [])).append(part)
        self._said(index, opening, named)
        results = []
        for call, result, at in answers:
            if call.id in between:
                self._said(index, between[call.id], named)
            call_id = self.ids(call.id)
            self._add(index, self._call(index, call, call_id, named))
            results.append((at, self._result(at, call, result, call_id)))
        for at, item in results:
            self._add(at, item)

    def _said(self, index: int, parts: Sequence[Content], named: bool) -> None:
        """Add the assistant's texts and reasoning; texts of one item become one item."""
        open_item: dict[str, Any] | None = None
        for part in parts:
            if isinstance(part, Text):
                if part.text:
                    open_item = self._text(index, part, named, open_item)
                continue
            open_item = None
            if isinstance(part, Reasoning):
                self._reasoning(index, part)
            elif isinstance(part, Media):
                self.ledger.miss(index, part.label, "assistant messages hold text only")
            elif part.data["type"] == "refusal":
                if part.data.get("refusal"):
                    self._text(index, Text(str(part.data["refusal"])), False, None)
            elif part.data["type"] in ITEMS:
                item = deepcopy(dict(part.data))
                item.pop("before", None)
                self._add(index, item)
            else:
                self.ledger.miss(index, f"part of type {part.data['type']!r}", "the API has none")

    def _text(
        self, index: int, part: Text, named: bool, open_item: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Add a text to its item, or as a new item; return that item."""
        extra = part.extra or {}
        self.ledger.miss_fields(index, extra, ("phase", "annotations"))
        item_id = extra.get("item_id") if named else None
        phase = {"phase": extra["phase"]} if extra.get("phase") else {}
        if item_id is None:
            if open_item and "id" not in open_item and open_item.get("phase") == extra.get("phase"):
                open_item["content"] += part.text
                return open_item
            item = {"role": "assistant", "content": part.text, **phase}
            self._add(index, item)
            return item
        said = {
            "type": "output_text",
            "text": part.text,
            "annotations": deepcopy(extra.get("annotations") or []),
        }
        if open_item and open_item.get("id") == item_id:
            open_item["content"].append(said)
            return open_item
        item = {"type": "message", "id": item_id, "role": "assistant", "content": [said]}
        item["status"] = extra.get("status") or "completed"
        self._add(index, {**item, **phase})
        return self.items[-1]

    def _reasoning(self, index: int, part: Reasoning) -> None:
        extra = part.extra or {}
        if made_by(part) != "openai" or not isinstance(extra.get("id"), str):
            self.ledger.miss(index, "reasoning", "it is not of the Responses API")
            return
        item = {"type": "reasoning", "id": extra["id"], "summary": deepcopy(extra["summary"])}
        if extra.get("content"):
            item["content"] = deepcopy(extra["content"])
        if part.signature is not None:
            item["encrypted_content"] = part.signature
        self._add(index, item)

    def _call(self, index: int, call: ToolCall, call_id: str, named: bool) -> dict[str, Any]:
        name = self.called(index, call)
        extra = call.extra or {}
        self.ledger.miss_fields(index, extra, ("type", "namespace"))
        rest = {"namespace": extra["namespace"]} if extra.get("namespace") else {}
        if named and extra.get("item_id"):
            rest["id"] = extra["item_id"]
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
            self.miss_name(index, result, call)
            self.ledger.miss_fields(index, result.extra or {})
        return {"type": result_type(call), "call_id": call_id, "output": output}

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any] | None:
        if tool.get("type") == "custom":
            custom = tool.get("custom")
            held = custom if isinstance(custom, Mapping) else tool
            own = self.declare(held.get("name"))
            return None if own is None else {"type": "custom", **held, "name": own}
        if tool.get("type") in _TOOLS:
            return dict(tool)
        function = function_of(tool)
        if function is None:
            self.miss_tool(tool)
            return None
        name = self.declare(function.get("name"))
        if name is None:
            return None
        known = ("name", "description", "parameters", "strict", "defer_loading", "output_schema")
        self.ledger.miss_fields(None, function, known)
        flat = {"type": "function", **{key: function[key] for key in known if key in function}}
        flat |= {"name": name, "parameters": schema_of(flat.get("parameters"))}
        # The default here is true, but false in Chat Completions.
        flat.setdefault("strict", False)
        return flat

    def _mark(self, window: Composed) -> None:
        trail, taken = [], 0
        for at, item in zip(self.order, self.items, strict=True):
            key = "output" if "output" in item else "content"
            if item.get("role") in ("user", "system", "developer") or key == "output":
                if item.get(key):
                    trail.append((at, item))
                if isinstance(item.get(key), list):
                    taken += sum(MARK in part for part in item[key])
        for item, point in ends(trail, window, MARKS - taken):
            key = "output" if "output" in item else "content"
            if isinstance(item[key], str):
                item[key] = [{"type": "input_text", "text": item[key]}]
            item[key][-1].setdefault(MARK, mark(point))


# Items that need no id.
_SAID = ("message", "function_call", "custom_tool_call")


def _is_named(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("id"), str)


def _unnamed(item: dict[str, Any]) -> dict[str, Any]:
    """Return a text or call of the model without its id; a message has another form then."""
    if item["type"] != "message":
        return {key: value for key, value in item.items() if key != "id"}
    text = "".join([part["text"] for part in item["content"]])
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
