"""Anthropic Messages: messages, requests, replies and streams, each read and written here.

https://platform.claude.com/docs/en/api/messages/create
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from muntin.core.accepted import NameRule
from muntin.core.caching.cleared import CLEAR_AT, is_cleared
from muntin.core.caching.wire_order import Answer
from muntin.core.checks import compact_json, shown
from muntin.core.message import NO_RESULT, Message
from muntin.core.parts import (
    Other,
    Part,
    Reasoning,
    Text,
    ToolCall,
    as_plain,
    part_from_dict,
)
from muntin.core.profile import OMITTED
from muntin.core.tool_marks import FIND, found_names, found_tools
from muntin.core.toolboxes.finding import declaration_of
from muntin.core.toolboxes.offer import deferred
from muntin.core.usage import ServerLoop
from muntin.core.window import Window
from muntin.errors import InvalidInput, InvalidType, MuntinError
from muntin.wire.answers import END, AnswerParts
from muntin.wire.blocks import THINKING as _THINKING
from muntin.wire.blocks import ItemFormat, Turn, spans_of, turns, write_turns
from muntin.wire.common import (
    Files,
    arguments,
    as_mapping,
    check,
    count,
    ends,
    function_of,
    get,
    is_text,
    known_extra,
    made_by,
    result_text,
    with_fields,
)
from muntin.wire.encoder import Encoder, arrange_as_called, led_by_user, loads_by
from muntin.wire.media import (
    Content,
    Media,
    contents,
    hinted,
    miss_detail,
)
from muntin.wire.names import ToolNames, declared_tools, names_in, schema_of
from muntin.wire.pieces import Fitted
from muntin.wire.reply import (
    BROKEN_OFF,
    Event,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCalled,
    Usage,
)
from muntin.wire.requests import (
    Body,
    Request,
    asks_for_compaction,
    body_tools,
    breakpoints,
    count_marks,
    holder_of,
    inside,
    last_marks,
    listed,
    named,
    system_message,
    text_of,
)

# messages

# The fields of a response that are not part of its message.
_ENVELOPE = frozenset(
    {
        "id",
        "type",
        "model",
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "usage",
        "container",
        "context_management",
        "diagnostics",
    }
)


def has_blocks(data: Mapping[str, Any]) -> bool:
    """Say whether a message holds a block that becomes a message or a call of Muntin's."""
    content = data.get("content")
    return isinstance(content, list | tuple) and any(is_message_block(block) for block in content)


def is_message_block(block: object) -> bool:
    """Say whether a block is kept outside of a message's content: a call or a result."""
    kind = block.get("type") if isinstance(block, Mapping) else getattr(block, "type", None)
    return kind in ("tool_use", "tool_result")


def is_response(data: Mapping[str, Any]) -> bool:
    """Say whether this is a whole response of Anthropic's."""
    return "stop_reason" in data and isinstance(data.get("content"), list | tuple)


def read_messages(data: Mapping[str, Any]) -> list[Message]:
    """Read a message; a user's message becomes one message more for each of its tool results."""
    role = data.get("role")
    blocks = [as_plain(block) for block in data["content"] or ()]
    fields = {key: data[key] for key in ("at", "name") if data.get(key) is not None}
    rest = {k: v for k, v in data.items() if k not in ("role", "content", "at", "name")}
    if is_response(data):
        rest = {k: v for k, v in rest.items() if k not in _ENVELOPE}
    if role == "assistant":
        call_data = rest.pop("tool_calls", None) or ()
        calls = (
            Message.from_dict({"role": role, "tool_calls": call_data}).tool_calls
            if call_data
            else ()
        )
        return [assistant_message(blocks, calls=calls, extra=rest or None, **fields)]
    if role != "user":
        raise InvalidInput(f"a message of role {role!r} cannot hold tool calls or results")
    return _user(blocks, fields, rest or None)


def assistant_message(
    blocks: Sequence[Mapping[str, Any]],
    *,
    calls: Sequence[ToolCall] = (),
    is_broken_off: bool = False,
    **fields: Any,
) -> Message:
    """Read the blocks that a model made; `calls` are calls that are known already."""
    answer = AnswerParts(calls)
    ids = {call.id for call in calls}
    for block in blocks:
        if not isinstance(block, Mapping):
            raise InvalidType(f"a content block must be a mapping, not {shown(block)}")
        kind = block.get("type")
        if kind == "tool_result":
            raise InvalidInput("a tool_result belongs to a user message, not to an assistant's")
        if kind != "tool_use":
            answer.add(part(block))
        elif block.get("id") not in ids:
            answer.call(_call(block))
    as_made = is_broken_off or _must_stay_in_order(blocks)
    return answer.message("anthropic", as_made=as_made, **fields)


def _must_stay_in_order(blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether the blocks of an answer go back as they are: their order tells more than parts
    and calls do, or one of them is of a type that Muntin does not know."""
    kinds = [block.get("type") for block in blocks]
    thoughts = [place for place, kind in enumerate(kinds) if kind in _THINKING]
    kinds_in_order = (*_ASSISTANT_BLOCKS, "text", "thinking", "tool_use", "refusal")
    if any(kind not in kinds_in_order for kind in kinds) or kinds[-1:] == ["server_tool_use"]:
        return True
    if any(block.get("type") == "text" and not str(block.get("text")).strip() for block in blocks):
        return True
    return thoughts != [] and (thoughts[0] > 0 or thoughts[-1] == len(kinds) - 1)


def _call(block: Mapping[str, Any]) -> ToolCall:
    for key in ("id", "name"):
        if not isinstance(block.get(key), str):
            raise InvalidInput(f"a tool_use block needs an {key!r}: {shown(block)}")
    rest = {k: v for k, v in block.items() if k not in ("type", "id", "name", "input")}
    arguments = block.get("input")
    value = arguments if isinstance(arguments, str | Mapping) else compact_json(arguments or {})
    extra = {k: v for k, v in rest.items() if v is not None}
    return ToolCall(block["id"], block["name"], value, extra=extra or None)  # type: ignore[arg-type]


def part(block: Mapping[str, Any]) -> Part:
    """Read one block that is neither a call nor a result."""
    rest = {key: value for key, value in block.items() if value is not None and key != "type"}
    if block.get("type") == "text":
        text = rest.pop("text")
        return Text(text, extra=(rest or None) if text else {**rest, "as_made": "anthropic"})
    if block.get("type") == "thinking":
        text, signature = rest.pop("thinking"), rest.pop("signature", None)
        return Reasoning(text, signature=signature, extra=rest or None)
    return Other(block)


def _user(
    blocks: Sequence[Any], fields: Mapping[str, Any], extra: Mapping[str, Any] | None
) -> list[Message]:
    if any(get(block, "type") == "tool_use" for block in blocks):
        raise InvalidInput("a tool_use belongs to an assistant's message, not to a user's")
    messages: list[Message] = []
    for span in spans_of(blocks, ITEM_FORMAT.is_result) if blocks else ():
        piece = [blocks[number] for number in span]
        if ITEM_FORMAT.is_result(piece[0]):
            messages.append(_result_message(piece[0], fields.get("at")))
        else:
            messages.append(Message("user", tuple(map(part_from_dict, piece)), **fields))
    if extra and messages:
        at = next((n for n, message in enumerate(messages) if message.role == "user"), 0)
        messages[at] = replace(messages[at], extra={**extra, **(messages[at].extra or {})})
    return messages


def _result_message(block: Mapping[str, Any], at: float | None) -> Message:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str):
        raise InvalidInput(f"a tool_result block needs a 'tool_use_id': {shown(block)}")
    content = block.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = tuple(part_from_dict(part) for part in content)
    rest = {k: v for k, v in block.items() if k not in ("type", "tool_use_id", "content")}
    extra = {k: v for k, v in rest.items() if v is not None}
    return Message("tool", content, tool_call_id=call_id, at=at, extra=extra or None)


# requests

# https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools
_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")
_NAMES = NameRule(128, _REFUSED)
_OWN_TOOL = re.compile(r".*_\d{8}")
_IDS = NameRule(64, _REFUSED)
# https://platform.claude.com/docs/en/build-with-claude/prompt-caching
_MARKS, _MARK, _TTLS = 4, "cache_control", ("5m", "1h")
# https://platform.claude.com/docs/en/build-with-claude/vision
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")

# Blocks of the API that Muntin passes on unchanged: in a user's message, in a result, and blocks
# that the model made with tools that run at Anthropic.
_USER_BLOCKS = frozenset({"image", "document", "search_result", "container_upload"})
_RESULT_BLOCKS = frozenset(
    {"image", "document", "search_result", "tool_reference", "browser_state"}
)
_ASSISTANT_BLOCKS = frozenset(
    {
        "advisor_tool_result",
        "compaction",
        "connector_text",
        "fallback",
        "mcp_tool_listing",
        "mcp_tool_result",
        "mcp_tool_use",
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "container_upload",
    }
)
_BLOCKS = {
    "system": frozenset[str](),
    "user": _USER_BLOCKS,
    "tool": _RESULT_BLOCKS,
    "assistant": _ASSISTANT_BLOCKS,
}

_TOOL_FIELDS = (
    "name",
    "description",
    "strict",
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "eager_input_streaming",
    "input_examples",
)

SentBlock = dict[str, Any]


def _is_own_tool(tool: Mapping[str, Any]) -> bool:
    """Say whether a tool is one of Anthropic's, which the API knows by its type and name."""
    kind = tool.get("type")
    return isinstance(kind, str) and _OWN_TOOL.fullmatch(kind) is not None


def names_of(window: Window | None) -> ToolNames:
    """Return the names of a window's tools as the API takes them."""
    return ToolNames(_NAMES, declared_tools(window), _is_own_tool)


def encode(window: Window, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
    """Return `messages`, `system` and `tools` (if any) for `client.messages.create(...)`."""
    files = check(window, strict, files)
    return _Encoder(files, names_of(window), bool(window.breakpoints)).request(window)


class _Encoder(Encoder):
    """One encoding: the turns so far, of alternating roles, and the state for the next."""

    def __init__(self, files: Files, names: ToolNames, tracking: bool) -> None:
        super().__init__("anthropic", files, names, _IDS, "Anthropic has no names")
        self.own_tools: set[str] = set()
        # Whether results of `find_tools` refer to deferred tools.
        self.refers = False
        self.system: list[SentBlock] = []
        self.turns: list[dict[str, Any]] = []
        self.role: str | None = None  # the role of the last turn
        # In wire order: blocks with a cache mark (where marks are to be set, all blocks that can
        # have one), and the thoughts of the last turn, which cannot have one.
        self.tracking = tracking
        self.trail: list[tuple[int, SentBlock]] = []
        self.thoughts: list[tuple[int, SentBlock]] = []
        # The answers of the last turn, and those that Anthropic made.
        self.answers: list[int] = []
        self.native: set[int] = set()

    def request(self, window: Window) -> dict[str, Any]:
        leading = True
        self.refers = loads_by(window) == "reference"
        for index, message, answers in arrange_as_called(window):
            role = message.role
            if is_cleared(message):
                self._add_cleared(message)
                continue
            leading = leading and role == "system"
            content = message.content
            plain = False
            if not answers and is_text(message):
                blocks, plain = self._text(index, cast("str", content)), True
            elif role == "assistant":
                self._assistant(index, message, answers)
                continue
            else:
                blocks = self._message(index, message)
            if leading:
                self.system += blocks
                self._track(index, blocks)
            else:  # later system text becomes the user's: older models refuse it here
                turn = "assistant" if role == "assistant" else "user"
                self._add(index, turn, blocks, plain=plain)
        return self._finish(window)

    def _finish(self, window: Window) -> dict[str, Any]:
        self._end_turn()
        opening = {"type": "text", "text": OMITTED.text}
        turns, system = led_by_user(self.turns, self.system, "content", opening)
        if turns and turns[-1]["role"] == "assistant" and not {*self.answers[-1:]} & self.as_made:
            last = turns[-1]["content"][-1]
            if last["type"] == "text":  # a prefill must not end in white space
                last["text"] = last["text"].rstrip()
                if not last["text"]:
                    turns[-1]["content"].pop()
        request: dict[str, Any] = {"messages": turns}
        if system:
            request["system"] = system
        declared = (*window.tools, *self._lost_tools(window))
        tools = [tool for tool in map(self._tool, declared) if tool is not None]
        if tools:
            request["tools"] = tools
        self._mark(window, tools)
        self.ledger.enter(window)
        return request

    def _lost_tools(self, window: Window) -> Iterator[dict[str, Any]]:
        """Yield declarations of tools that a result refers to and that are no longer declared."""
        if not self.refers:
            return
        names = {name for tool in window.tools for name in names_in(tool)}
        for message in window.messages:
            for tool in found_tools(message):
                if tool["name"] not in names:
                    names.add(tool["name"])
                    yield deferred(declaration_of(tool))

    def _add(self, index: int, role: str, blocks: list[SentBlock], *, plain: bool = False) -> None:
        """Add blocks to the turn of this role, or begin it; `plain` blocks are unmarked texts."""
        if not blocks:
            return
        if role != self.role and self.thoughts:
            self._end_turn()
        if role == self.role:
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})
            self.role = role
            self.answers = []
        self.answers.append(index)
        if self.tracking or not plain:
            self._track(index, blocks)

    def _add_cleared(self, message: Message) -> None:
        """Add a text for one turn: it is the system's, and no mark may stand on it."""
        self._end_turn()
        block = {"type": "text", "text": message.text}
        extra = message.extra or {}
        self.turns.append({"role": "system", CLEAR_AT: extra[CLEAR_AT], "content": [block]})
        self.role = "system"

    def _track(self, index: int, blocks: list[SentBlock]) -> None:
        for block in blocks:
            if block["type"] in _THINKING:
                self.thoughts.append((index, block))
            elif self.tracking or _MARK in block:
                self.trail.append((index, block))

    def _end_turn(self) -> None:
        """Put the thoughts of the assistant's turn where the API wants them.

        The API refuses thoughts that end a turn, and thoughts of two answers in one turn, which
        stand together if what was between them has left; where it demands thoughts, they begin the
        turn. An answer that stands alone goes back as it is.
        """
        if self.role != "assistant" or not self.thoughts:
            return
        answers = {index for index, _ in self.thoughts}
        content = self.turns[-1]["content"]
        if answers <= self.as_made:
            self.thoughts = []
            return
        newest = self.thoughts[-1][0]
        while content and content[-1]["type"] in _THINKING and newest not in self.as_made:
            content.pop()
            self.ledger.miss(self.thoughts.pop()[0], "reasoning", "nothing of its turn follows it")
        thoughts, self.thoughts = self.thoughts, []
        for index, block in thoughts:
            if index != thoughts[-1][0] and index not in self.as_made:
                _remove(content, block)
                self.ledger.miss(index, "reasoning", "its turn has thoughts of a later answer")
        is_joined = len(self.answers) > 1
        if is_joined and content and content[0]["type"] not in _THINKING:
            content[:] = _thoughts_first(content)
        if not content:
            self.turns.pop()
            self.role = self.turns[-1]["role"] if self.turns else None

    def _text(
        self, index: int, text: str, extra: Mapping[str, Any] | None = None
    ) -> list[SentBlock]:
        if not text:
            return []
        if text.isspace():
            self.ledger.miss(index, "a text of white space", "the API refuses it")
            return []
        if not extra:
            return [{"type": "text", "text": text}]
        fields = known_extra(extra, (_MARK, "citations"), index, self.ledger)
        return [{"type": "text", "text": text, **fields}]

    def _message(self, index: int, message: Message) -> list[SentBlock]:
        """Return a message of the user or the system; a result without a call is the user's."""
        role = "system" if message.role == "system" else "user"
        self.miss_name(index, message)
        blocks = self._blocks(index, message, role)
        return self._own_mark(index, message, blocks, ("role",) if role == "system" else ())

    def _own_mark(
        self, index: int, message: Message, blocks: list[SentBlock], fields: tuple[str, ...] = ()
    ) -> list[SentBlock]:
        """Put the user's own cache mark of a message on its last block that takes one."""
        extra = message.extra
        if not extra:
            return blocks
        self.ledger.miss_fields(index, extra, (_MARK, *fields))
        if extra.get(_MARK):
            for block in reversed(blocks):
                if block["type"] not in _THINKING:
                    block.setdefault(_MARK, deepcopy(extra[_MARK]))
                    break
        return blocks

    def _blocks(self, index: int, message: Message, role: str) -> list[SentBlock]:
        text = hinted(message, index, self.files, self.ledger)
        if text is not None:
            return self._text(index, text)
        blocks = []
        for part in contents(message, index, self.files, self.ledger):
            blocks += self._part(index, part, role)
        return blocks

    def _part(self, index: int, part: Content, role: str) -> list[SentBlock]:
        if isinstance(part, Text):
            if not part.text.strip() and role == "assistant" and index in self.native:
                return [{"type": "text", "text": part.text}]
            return self._text(index, part.text, part.extra)
        if isinstance(part, Reasoning):
            if role == "assistant" and made_by(part) == "anthropic":
                self.ledger.miss_fields(index, part.extra or {})
                return [{"type": "thinking", "thinking": part.text, "signature": part.signature}]
            why = "it has no signature of Anthropic's" if role == "assistant" else "not the model's"
            self.ledger.miss(index, "reasoning", why)
        elif isinstance(part, Other):
            kind = part.data["type"]
            if kind == "refusal" and isinstance(part.data.get("refusal"), str):
                return self._text(index, part.data["refusal"])
            if kind in _BLOCKS[role] or (role == "assistant" and index in self.as_made):
                block = deepcopy(dict(part.data))
                block.pop("before", None)
                return [block]
            self.ledger.miss(index, f"part of type {kind!r}", f"{role} messages have none")
        else:
            block_or_why = (
                _media(part) if role in ("user", "tool") else f"{role} messages hold text only"
            )
            if isinstance(block_or_why, dict):
                miss_detail(part, index, self.ledger)
                fields = (_MARK, "citations", "context", "transformations")
                return [{**block_or_why, **known_extra(part.extra, fields, index, self.ledger)}]
            self.ledger.miss(index, part.label, block_or_why)
        return []

    def _assistant(self, index: int, message: Message, answers: Sequence[Answer]) -> None:
        content = message.content
        is_text_alone = isinstance(content, str) and not message.attachments
        is_text_alone = is_text_alone and not str(content).isspace()
        held = [] if is_text_alone else [*contents(message, index, self.files, self.ledger)]
        places = self.by_place(index, message, answers, held)
        if index in self.as_made or any(map(_is_native, held)):
            self.native.add(index)
        blocks = self._text(index, str(content)) if is_text_alone else []
        blocks += self._answer_blocks(index, places.get(None, ()))
        results: list[tuple[int, SentBlock]] = []
        for call, result, at in answers:
            call_id = self.ids(call.id)
            blocks += self._answer_blocks(index, places.get(call.id, ()))
            blocks.append(self._call(index, call, call_id))
            results.append((at, self._result(at, call, result, call_id)))
        blocks += self._answer_blocks(index, places.get(END, ()))
        if message.name is not None or message.extra:
            self.miss_name(index, message)
            self._own_mark(index, message, blocks)
        marked = message.extra or any(call.extra for call in message.tool_calls)
        plain = isinstance(content, str) and not marked
        self._add(index, "assistant", blocks, plain=plain)
        for at, block in results:
            self._add(at, "user", [block], plain=_MARK not in block)

    def _answer_blocks(self, index: int, parts: Sequence[Content]) -> list[SentBlock]:
        return [block for part in parts for block in self._part(index, part, "assistant")]

    def _call(self, index: int, call: ToolCall, call_id: str) -> SentBlock:
        name = self.called(index, call)
        value = arguments(call, index, self.ledger)
        block: SentBlock = {"type": "tool_use", "id": call_id, "name": name, "input": value}
        if call.extra:
            fields = (_MARK, "caller", "toolset_name")
            block.update(known_extra(call.extra, fields, index, self.ledger))
        return block

    def _result(
        self, index: int, call: ToolCall, result: Message | None, call_id: str
    ) -> SentBlock:
        block: SentBlock = {"type": "tool_result", "tool_use_id": call_id}
        text = result_text(result)
        if self.refers and call.name == FIND and result is not None and found_tools(result):
            # References stand alone: a text beside them is documented nowhere.
            names = map(self.names, found_names([result]))
            block["content"] = [{"type": "tool_reference", "tool_name": name} for name in names]
        elif text is None and result is not None:
            content = self._blocks(index, result, "tool")
            if content:
                block["content"] = content
            for inner in content:  # only blocks of the turn itself can be marked
                if _MARK in inner:
                    block[_MARK] = inner.pop(_MARK)
        elif text and not text.isspace():
            block["content"] = text
        if result is not None:
            self.miss_name(index, result, call)
            if result.extra:
                fields = (_MARK, "is_error", "toolset_name")
                block.update(known_extra(result.extra, fields, index, self.ledger))
        if block.get("is_error"):
            self._fail_result(index, block)
        return block

    def _fail_result(self, index: int, block: SentBlock) -> None:
        """Give a failed result a text, and only texts: the API refuses it otherwise."""
        content = block.get("content")
        if isinstance(content, list):
            texts = [inner for inner in content if inner["type"] == "text"]
            for inner in content:
                if inner["type"] != "text":
                    self.ledger.miss(index, inner["type"], "a result that failed holds text only")
            block["content"] = texts
        block["content"] = block.get("content") or NO_RESULT

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any] | None:
        kind = tool.get("type")
        if _is_own_tool(tool):
            return self._own_tool(tool)
        function = function_of(tool if kind != "custom" else {**tool, "type": None})
        if function is None:
            self.miss_tool(tool)
            return None
        name = self.declare(function.get("name"))
        if name is None:
            return None
        extra = {k: v for k, v in tool.items() if k in _TOOL_FIELDS}
        self.ledger.miss_fields(None, function, (*_TOOL_FIELDS, "parameters"))
        definition = {
            k: v for k, v in {**extra, **function}.items() if k in _TOOL_FIELDS and v is not None
        }
        return {**definition, "name": name, "input_schema": schema_of(function.get("parameters"))}

    def _own_tool(self, tool: Mapping[str, Any]) -> dict[str, Any] | None:
        name = str(tool.get("name"))
        if name in self.own_tools:
            self.ledger.miss(None, f"tool {name!r}", "another tool of this name stands before it")
            return None
        self.own_tools.add(name)
        return deepcopy(dict(tool))

    def _mark(self, window: Window, tools: Sequence[SentBlock]) -> None:
        """Set the cache marks; of the user's own marks, only as many as the API takes are sent."""
        marked: list[tuple[int | None, SentBlock]] = [
            (None, tool) for tool in tools if _MARK in tool
        ]
        marked += [(index, block) for index, block in self.trail if _MARK in block]
        for index, block in marked[:-_MARKS]:
            del block[_MARK]
            self.ledger.miss(
                index, "a cache mark", f"the API takes {_MARKS}; the last ones are sent"
            )
        for block, point in ends(self.trail, window, _MARKS - len(marked)):
            ttl = {"ttl": point.ttl} if point.ttl in _TTLS else {}
            block.setdefault(_MARK, {"type": "ephemeral", **ttl})
        self._shorten(tools)

    def _shorten(self, tools: Sequence[SentBlock]) -> None:
        """Shorten each mark that lasts longer than an earlier one: the API refuses 1h behind 5m."""
        trail: list[tuple[int | None, SentBlock]] = [(None, tool) for tool in tools]
        short = False
        for index, block in [*trail, *self.trail]:
            mark = block.get(_MARK)
            if not isinstance(mark, Mapping):
                continue
            if mark.get("ttl") != "1h":
                short = True
            elif short:
                block[_MARK] = {**mark, "ttl": "5m"}
                self.ledger.miss(index, "a cache mark of 1h", "one of 5m stands before it")


def _is_native(part: Content) -> bool:
    """Say whether a part of an answer was made by Anthropic."""
    if isinstance(part, Other):
        return part.data["type"] in _ASSISTANT_BLOCKS
    return isinstance(part, Reasoning) and made_by(part) == "anthropic"


def _remove(content: list[SentBlock], block: SentBlock) -> None:
    """Remove this very block, not an equal one."""
    del content[next(place for place, candidate in enumerate(content) if candidate is block)]


def _thoughts_first(content: list[SentBlock]) -> list[SentBlock]:
    """Return a turn that begins with the first of its thoughts and the thoughts right behind it."""
    kinds = [block["type"] in _THINKING for block in content]
    if True not in kinds:
        return content
    first = kinds.index(True)
    end = kinds.index(False, first) if False in kinds[first:] else len(kinds)
    return [*content[first:end], *content[:first], *content[end:]]


def _media(media: Media) -> SentBlock | str:
    """Return an image or a document as a block, or a text that says why it cannot be one."""
    if media.modality not in ("image", "document"):
        return f"Anthropic takes no {media.modality}"
    kind: SentBlock = {"type": media.modality}
    if media.modality == "document" and media.name:
        kind["title"] = media.name
    if media.id is not None:
        return {**kind, "source": {"type": "file", "file_id": media.id}}
    if not media.inline:
        return {**kind, "source": {"type": "url", "url": media.url}}
    allowed = _IMAGES if media.modality == "image" else ("application/pdf",)
    if media.mime in allowed:
        source = {"type": "base64", "media_type": media.mime, "data": media.base64}
        return {**kind, "source": source}
    if media.modality == "document" and media.mime.startswith("text/"):
        try:
            text = b64decode(media.base64).decode()
        except ValueError:
            return "it is no UTF-8 text"
        if text.strip():
            return {**kind, "source": {"type": "text", "media_type": "text/plain", "data": text}}
        return "it is empty"
    return f"Anthropic takes no {media.modality} of type {media.mime}"


# replies

RESPONSE = "an Anthropic message"

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def decode(response: Any, window: Window | None = None) -> Reply:
    """Read a response, the SDK's object or its dict, as a Reply.

    With the window that was sent, calls have the names of its tools. Raises `InvalidInput`,
    naming the expected form, if the value is something else.
    """
    data = as_mapping(response, RESPONSE, "content")
    blocks = data["content"]
    if not isinstance(blocks, Sequence) or not all(isinstance(block, Mapping) for block in blocks):
        raise InvalidInput(
            f"expected {RESPONSE}, whose 'content' is a list of blocks; got {shown(blocks)}"
        )
    finish = data.get("stop_reason") or "stop"
    try:
        message = assistant_message(blocks, is_broken_off=finish in BROKEN_OFF)
    except (MuntinError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"expected {RESPONSE}; its content cannot be read: {shown(error)}"
        ) from error
    return Reply(
        names_of(window).read(message),
        usage=usage_of(data.get("usage")),
        finish_reason=_FINISH.get(finish, finish),
        window=window,
    )


def usage_of(usage: Any) -> Usage:
    """Read the billed tokens; Anthropic counts uncached input apart from cached input.

    Of a request that the server made several of, `iterations` lists all that is billed; compaction
    is not in the totals.
    """
    thought = get(usage, "output_tokens_details") if usage is not None else None
    reasoning = count(thought, "thinking_tokens")
    entries = get(usage, "iterations") if usage is not None else None
    if not isinstance(entries, list | tuple) or not entries:
        return replace(_billed(usage), reasoning=reasoning)
    billed = [_billed(entry) for entry in entries]
    kinds = [get(entry, "type") for entry in entries]
    total = replace(sum(billed, Usage()), reasoning=reasoning)
    answers = [one for one, kind in zip(billed, kinds, strict=True) if kind == "message"]
    is_compacted = "compaction" in kinds
    if len(entries) == 1 and not is_compacted:
        return total
    last = (answers or billed)[-1]
    first = 0 if is_compacted or not answers else answers[0].input
    answer = last.input + last.output - first if first else last.output
    return replace(total, loop=ServerLoop(first, last.input, max(last.output, answer)))


def _billed(usage: Any) -> Usage:
    read, written = count(usage, "cache_read_input_tokens"), count(usage, _WRITTEN)
    fresh = count(usage, "input_tokens")
    return Usage(fresh + read + written, count(usage, "output_tokens"), read, written)


_WRITTEN = "cache_creation_input_tokens"
_USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", _WRITTEN)
# What a stream reports beside the counts, in its last event.
_REPORTED_LAST = ("output_tokens_details", "iterations")


class Assembler:
    """Puts a streamed answer together from its events; see `wire.chat.Assembler`."""

    def __init__(self, window: Window | None = None) -> None:
        self._names = names_of(window)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the answer is complete."""
        return self._stop is not None

    def feed(self, chunk: Any) -> list[Event]:
        """Take the next event of the stream; return its new events."""
        kind = get(chunk, "type")
        if kind == "content_block_delta":
            return self._delta(get(chunk, "index"), get(chunk, "delta"))
        if kind == "content_block_start":
            block = as_mapping(get(chunk, "content_block"), "a content block", "type")
            self._blocks[get(chunk, "index")] = dict(block)
        elif kind == "content_block_stop":
            block = self._close(get(chunk, "index"))
            if block.get("type") == "tool_use":
                called = assistant_message([block]).tool_calls[0]
                return [ToolCalled(self._names.called(called))]
        elif kind == "message_start":
            self._count(get(get(chunk, "message"), "usage"))
        elif kind == "message_delta":
            self._stop = get(get(chunk, "delta"), "stop_reason") or "end_turn"
            self._count(get(chunk, "usage"))
        return []

    def _count(self, usage: Any) -> None:
        """Take over the counts; they are cumulative."""
        for name in (*_USAGE, *_REPORTED_LAST) if usage is not None else ():
            value = get(usage, name)
            if value is not None:
                self._usage[name] = value

    def _delta(self, index: int, delta: Any) -> list[Event]:
        kind = get(delta, "type")
        if kind == "citations_delta":
            citation = get(delta, "citation")
            block = self._blocks[index]
            block["citations"] = block.get("citations") or []
            block["citations"].append(dict(as_mapping(citation, "a citation", "type")))
            return []
        field, key = _DELTAS.get(kind, (None, None))
        if field is None or key is None:
            return []
        piece = get(delta, field)
        self._pieces.setdefault(index, {}).setdefault(key, []).append(piece)
        if kind == "text_delta":
            return [TextDelta(piece)]
        return [ReasoningDelta(piece)] if kind == "thinking_delta" else []

    def _close(self, index: int) -> dict[str, Any]:
        """Put the pieces of a block together."""
        block = self._blocks.get(index, {})
        for key, pieces in self._pieces.pop(index, {}).items():
            whole = "".join(pieces)
            if key == "input":
                try:
                    block[key] = json.loads(whole) if whole else {}
                except ValueError:  # broken off at max_tokens: kept as text
                    block[key] = whole
            else:
                block[key] = (block.get(key) or "") + whole
        return block

    def reply(self, window: Window | None = None) -> Reply:
        """Return the whole answer.

        Raises `InvalidInput` if the stream has not ended.
        """
        if self._stop is None:
            raise InvalidInput("the stream of Anthropic broke off: no stop_reason came")
        for index in list(self._pieces):
            self._close(index)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        whole = {"content": blocks, "stop_reason": self._stop, "usage": self._usage}
        reply = decode(whole, window)
        if window is not None:
            return reply
        return replace(reply, message=self._names.read(reply.message))


_DELTAS: Mapping[Any, tuple[str | None, str | None]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}


# requests read

# https://platform.claude.com/docs/en/build-with-claude/prompt-caching
_LONG = "1h"


def read_request(body: Body) -> Request:
    """Read the body of a request."""
    metadata = body.get("metadata")
    system = body.get("system")
    blocks = [_text_block(system)] if isinstance(system, str) and system else system
    return Request(
        listed(body, "messages", "a request of Anthropic's Messages API"),
        system=system_message(_texts, blocks) if isinstance(blocks, list) and blocks else (),
        tools=body_tools(body),
        model=named("anthropic", body.get("model")),
        user=text_of(metadata.get("user_id")) if isinstance(metadata, Mapping) else None,
        passes=asks_for_compaction(body),
        held=holder_of(body),
        remark=_remark(body),
        folds=True,
        output=inside(body, "output_config", "format", "schema"),
    )


def _remark(body: Body) -> str | None:
    """Say that a request has more cache marks of its own than the API takes."""
    marks = [body.get("tools"), body.get("system"), body.get("messages")]
    own = count_marks(marks, _MARK) if body.get(_MARK) else 0
    if own < _MARKS:
        return None
    return (
        f"it has {own} cache marks and an automatic one (the top-level {_MARK!r}); the API takes "
        f"{_MARKS} in all: leave one out"
    )


def write_request(body: Body, fitted: Fitted) -> dict[str, Any]:
    """Return the request with the kept messages, marked where it may be cached."""
    messages = body["messages"]
    body = {**body, **_fold(body, fitted.folded)}
    new_turns = turns(messages, fitted.placed, ITEM_FORMAT)
    system = _mark(body, new_turns, fitted)
    return {**body, **system, "messages": write_turns(messages, new_turns, ITEM_FORMAT)}


def _fold(body: Body, folded: Sequence[Message]) -> dict[str, Any]:
    """Return the system text and the tools of a request with those of later system messages that
    have left: their texts at the end, and their changes of tools made."""
    texts = [_text_block(message.text) for message in folded if message.text.strip()]
    parts = [
        part for message in folded for part in message.content or () if isinstance(part, Other)
    ]
    new: dict[str, Any] = {}
    if texts:
        system = body.get("system")
        head = [_text_block(system)] if isinstance(system, str) and system else list(system or ())
        new["system"] = [*head, *texts]
    if parts:
        tools = list(body.get("tools") or ())
        for part in parts:
            tools = _with_tool_change(tools, part.data)
        new["tools"] = tools
    return new


def _with_tool_change(tools: Sequence[Any], block: Mapping[str, Any]) -> list[Any]:
    """Return tools after a `tool_addition` or a `tool_removal`. A tool that is removed stays, not
    loaded: a later block may name it again."""
    tool = block.get("tool")
    tool = tool if isinstance(tool, Mapping) else {}
    definition = tool.get("definition")
    is_added = block.get("type") == "tool_addition"
    if is_added and isinstance(definition, Mapping):
        return [*(e for e in tools if get(e, "name") != definition.get("name")), definition]
    if tool.get("type") != "tool_reference" or block.get("type") not in _TOOL_CHANGES:
        return list(tools)
    changed: list[Any] = []
    for declared in tools:
        if get(declared, "name") == tool.get("name"):
            rest = {key: value for key, value in declared.items() if key != "defer_loading"}
            declared = rest if is_added else {**rest, "defer_loading": True}
        changed.append(declared)
    return changed


_TOOL_CHANGES = ("tool_addition", "tool_removal")


def _texts(blocks: Sequence[Any]) -> Message:
    return Message("system", tuple([part_from_dict(block) for block in blocks]))


def _text(block: Any) -> str | None:
    text = get(block, "text")
    return text if get(block, "type") == "text" and isinstance(text, str) else None


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _make_item(message: Message, call: ToolCall | None, items: Sequence[Any]) -> dict[str, Any]:
    if call is None:
        return {"role": message.role, "content": message.text}
    block = {"type": "tool_result", "tool_use_id": call.id, "content": message.text}
    return {"role": "user", "content": [block]}


ITEM_FORMAT = ItemFormat(
    model="assistant",
    is_result=lambda block: get(block, "type") == "tool_result",
    call=lambda block: block if get(block, "type") == "tool_use" else None,
    text=_text,
    stays=lambda block: get(block, "type") in ("tool_use", *_THINKING),
    make_text=_text_block,
    with_result_text=lambda block, text: with_fields(block, content=text),
    with_arguments=lambda block, text: with_fields(block, input=json.loads(text)),
    make_item=_make_item,
)


def _mark(body: Body, new_turns: Sequence[Turn], fitted: Fitted) -> dict[str, Any]:
    """Mark the blocks behind which to cache; return the system text if it is marked too."""
    system = body.get("system")
    blocks = [_text_block(system)] if isinstance(system, str) and system else list(system or ())
    held = [block for turn in new_turns for block in turn.blocks]
    marks_used = count_marks([body.get("tools"), blocks, held, {_MARK: body.get(_MARK)}], _MARK)
    new_fields: dict[str, Any] = {}
    for place, point in last_marks(breakpoints(fitted), _MARKS - marks_used):
        before = list(_before(blocks, new_turns, place))
        spot = _markable(before)
        if spot is None:
            continue
        inside, at, turn = spot
        marks = [*body_tools(body), *(inside[at] for inside, at, _ in before)]
        short = any(_is_short(block) for block in marks)
        ttl = {"ttl": _LONG} if point.ttl == _LONG and not short else {}
        inside[at] = {**inside[at], _MARK: {"type": "ephemeral", **ttl}}
        if turn is None:
            new_fields["system"] = blocks
        else:
            turn.whole = False
    return new_fields


def _before(
    system: list[Any], new_turns: Sequence[Turn], place: int
) -> Iterator[tuple[list[Any], int, Turn | None]]:
    """Yield the blocks up to the end of a placed message, each with its place and its turn."""
    yield from ((system, at, None) for at in range(len(system)))
    for turn in new_turns:
        end = max((end for at, end in turn.ends if at <= place), default=0)
        yield from ((turn.blocks, at, turn) for at in range(end))


def _markable(
    before: Sequence[tuple[list[Any], int, Turn | None]],
) -> tuple[list[Any], int, Turn | None] | None:
    """Return the last block that can be marked; None if it is marked already."""
    for spot in reversed(before):
        block = spot[0][spot[1]]
        if not isinstance(block, Mapping) or block.get("type") in _THINKING:
            continue
        text = _text(block)
        if text is None or text.strip():
            return None if block.get(_MARK) else spot
    return None


def _is_short(block: Any) -> bool:
    """Say whether a block has a mark of five minutes: no mark of an hour may stand behind it."""
    mark = block.get(_MARK) if isinstance(block, Mapping) else None
    return isinstance(mark, Mapping) and mark.get("ttl") != _LONG
