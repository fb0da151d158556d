"""Anthropic Messages: a window as the arguments of the official call.

https://platform.claude.com/docs/en/api/messages/create
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

from muntin.core.accepted import NameRule
from muntin.core.caching.wire_order import Answer, arrange
from muntin.core.composed import Composed
from muntin.core.message import NO_RESULT, Message
from muntin.core.parts import Other, Reasoning, Text, ToolCall
from muntin.core.profile import OMITTED
from muntin.providers.wire.common import (
    Files,
    arguments,
    check,
    ends,
    function_of,
    is_text,
    known_extra,
    made_by,
    result_text,
)
from muntin.providers.wire.encoder import Encoder, led_by_user
from muntin.providers.wire.media import Content, Media, contents, hinted, miss_detail, stands_before
from muntin.providers.wire.names import ToolNames, schema_of, tools_of

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
_THINKING = ("thinking", "redacted_thinking")

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

Block = dict[str, Any]


def _is_own_tool(tool: Mapping[str, Any]) -> bool:
    """Say whether a tool is one of Anthropic's, which the API knows by its type and name."""
    kind = tool.get("type")
    return isinstance(kind, str) and _OWN_TOOL.fullmatch(kind) is not None


def names_of(window: Composed | None) -> ToolNames:
    """Return the names of a window's tools as the API takes them."""
    return ToolNames(_NAMES, tools_of(window), _is_own_tool)


def encode(window: Composed, *, strict: bool = True, files: Files | None = None) -> dict[str, Any]:
    """Return `messages`, `system` and `tools` (if any) for `client.messages.create(...)`."""
    files = check(window, strict, files)
    return _Encoder(files, names_of(window), bool(window.breakpoints)).request(window)


class _Encoder(Encoder):
    """One encoding: the turns so far, of alternating roles, and the state for the next."""

    def __init__(self, files: Files, names: ToolNames, tracking: bool) -> None:
        super().__init__("anthropic", files, names, _IDS, "Anthropic has no names")
        self.own_tools: set[str] = set()
        self.system: list[Block] = []
        self.turns: list[dict[str, Any]] = []
        self.role: str | None = None  # the role of the last turn
        # In wire order: blocks with a cache mark (where marks are to be set, all blocks that can
        # have one), and the thoughts of the last turn, which cannot have one.
        self.tracking = tracking
        self.trail: list[tuple[int, Block]] = []
        self.thoughts: list[tuple[int, Block]] = []

    def request(self, window: Composed) -> dict[str, Any]:
        leading = True
        for index, message, answers in arrange(window.messages):
            role = message.role
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

    def _finish(self, window: Composed) -> dict[str, Any]:
        self._end_turn()
        opening = {"type": "text", "text": OMITTED.text}
        turns, system = led_by_user(self.turns, self.system, "content", opening)
        if turns and turns[-1]["role"] == "assistant":
            last = turns[-1]["content"][-1]
            if last["type"] == "text":  # a prefill must not end in white space
                last["text"] = last["text"].rstrip()
        request: dict[str, Any] = {"messages": turns}
        if system:
            request["system"] = system
        tools = [tool for tool in map(self._tool, window.tools) if tool is not None]
        if tools:
            request["tools"] = tools
        self._mark(window, tools)
        self.ledger.enter(window)
        return request

    def _add(self, index: int, role: str, blocks: list[Block], *, plain: bool = False) -> None:
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
        if self.tracking or not plain:
            self._track(index, blocks)

    def _track(self, index: int, blocks: list[Block]) -> None:
        for block in blocks:
            if block["type"] in _THINKING:
                self.thoughts.append((index, block))
            elif self.tracking or _MARK in block:
                self.trail.append((index, block))

    def _end_turn(self) -> None:
        """Put the thoughts of the assistant's turn where the API wants them.

        The API refuses thoughts that end a turn, and thoughts of two answers in one turn; where it
        demands thoughts, they begin the turn.
        """
        if self.role != "assistant" or not self.thoughts:
            return
        content = self.turns[-1]["content"]
        while content and content[-1]["type"] in _THINKING:
            content.pop()
            self.ledger.miss(self.thoughts.pop()[0], "reasoning", "nothing of its turn follows it")
        thoughts, self.thoughts = self.thoughts, []
        for index, block in thoughts:
            if index != thoughts[-1][0]:
                _remove(content, block)
                self.ledger.miss(index, "reasoning", "its turn has thoughts of a later answer")
        if content and content[0]["type"] not in _THINKING:
            content[:] = _thoughts_first(content)
        if not content:
            self.turns.pop()
            self.role = self.turns[-1]["role"] if self.turns else None

    def _text(self, index: int, text: str, extra: Mapping[str, Any] | None = None) -> list[Block]:
        if not text:
            return []
        if text.isspace():
            self.ledger.miss(index, "a text of white space", "the API refuses it")
            return []
        if not extra:
            return [{"type": "text", "text": text}]
        known = known_extra(extra, (_MARK, "citations"), index, self.ledger)
        return [{"type": "text", "text": text, **known}]

    def _message(self, index: int, message: Message) -> list[Block]:
        """Return a message of the user or the system; a result without a call is the user's."""
        role = "system" if message.role == "system" else "user"
        self.miss_name(index, message)
        blocks = self._blocks(index, message, role)
        return self._own_mark(index, message, blocks, ("role",) if role == "system" else ())

    def _own_mark(
        self, index: int, message: Message, blocks: list[Block], known: tuple[str, ...] = ()
    ) -> list[Block]:
        """Put the user's own cache mark of a message on its last block that takes one."""
        extra = message.extra
        if not extra:
            return blocks
        self.ledger.miss_fields(index, extra, (_MARK, *known))
        if extra.get(_MARK):
            for block in reversed(blocks):
                if block["type"] not in _THINKING:
                    block.setdefault(_MARK, deepcopy(extra[_MARK]))
                    break
        return blocks

    def _blocks(self, index: int, message: Message, role: str) -> list[Block]:
        text = hinted(message, index, self.files, self.ledger)
        if text is not None:
            return self._text(index, text)
        blocks = []
        for part in contents(message, index, self.files, self.ledger):
            blocks += self._part(index, part, role)
        return blocks

    def _part(self, index: int, part: Content, role: str) -> list[Block]:
        if isinstance(part, Text):
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
            if kind in _BLOCKS[role]:
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
                known = (_MARK, "citations", "context", "transformations")
                return [{**block_or_why, **known_extra(part.extra, known, index, self.ledger)}]
            self.ledger.miss(index, part.label, block_or_why)
        return []

    def _assistant(self, index: int, message: Message, answers: Sequence[Answer]) -> None:
        blocks: list[Block] = []
        between: dict[str, list[Block]] = {}
        content = message.content
        if isinstance(content, str) and not message.attachments:
            blocks = self._text(index, content)
        else:
            calls = {call.id for call, _, _ in answers}
            for part in contents(message, index, self.files, self.ledger):
                before = stands_before(part, calls)
                place = blocks if before is None else between.setdefault(before, [])
                place += self._part(index, part, "assistant")
        results: list[tuple[int, Block]] = []
        for call, result, at in answers:
            call_id = self.ids(call.id)
            if between:
                blocks += between.get(call.id, ())
            blocks.append(self._call(index, call, call_id))
            results.append((at, self._result(at, call, result, call_id)))
        if message.name is not None or message.extra:
            self.miss_name(index, message)
            self._own_mark(index, message, blocks)
        marked = message.extra or any(call.extra for call in message.tool_calls)
        plain = isinstance(content, str) and not marked
        self._add(index, "assistant", blocks, plain=plain)
        for at, block in results:
            self._add(at, "user", [block], plain=_MARK not in block)

    def _call(self, index: int, call: ToolCall, call_id: str) -> Block:
        name = self.called(index, call)
        value = arguments(call, index, self.ledger)
        block: Block = {"type": "tool_use", "id": call_id, "name": name, "input": value}
        if call.extra:
            known = (_MARK, "caller", "toolset_name")
            block.update(known_extra(call.extra, known, index, self.ledger))
        return block

    def _result(self, index: int, call: ToolCall, result: Message | None, call_id: str) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": call_id}
        text = result_text(result)
        if text is None and result is not None:
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
                known = (_MARK, "is_error", "toolset_name")
                block.update(known_extra(result.extra, known, index, self.ledger))
        if block.get("is_error"):
            self._failed(index, block)
        return block

    def _failed(self, index: int, block: Block) -> None:
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
        made = {
            k: v for k, v in {**extra, **function}.items() if k in _TOOL_FIELDS and v is not None
        }
        return {**made, "name": name, "input_schema": schema_of(function.get("parameters"))}

    def _own_tool(self, tool: Mapping[str, Any]) -> dict[str, Any] | None:
        name = str(tool.get("name"))
        if name in self.own_tools:
            self.ledger.miss(None, f"tool {name!r}", "another tool of this name stands before it")
            return None
        self.own_tools.add(name)
        return deepcopy(dict(tool))

    def _mark(self, window: Composed, tools: Sequence[Block]) -> None:
        """Set the cache marks; of the user's own marks, only as many as the API takes are sent."""
        own: list[tuple[int | None, Block]] = [(None, tool) for tool in tools if _MARK in tool]
        own += [(index, block) for index, block in self.trail if _MARK in block]
        for index, block in own[:-_MARKS]:
            del block[_MARK]
            self.ledger.miss(
                index, "a cache mark", f"the API takes {_MARKS}; the last ones are sent"
            )
        for block, point in ends(self.trail, window, _MARKS - len(own)):
            ttl = {"ttl": point.ttl} if point.ttl in _TTLS else {}
            block.setdefault(_MARK, {"type": "ephemeral", **ttl})
        self._shorten(tools)

    def _shorten(self, tools: Sequence[Block]) -> None:
        """Shorten each mark that lasts longer than an earlier one: the API refuses 1h behind 5m."""
        trail: list[tuple[int | None, Block]] = [(None, tool) for tool in tools]
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


def _remove(content: list[Block], block: Block) -> None:
    """Remove this very block, not an equal one."""
    del content[next(place for place, each in enumerate(content) if each is block)]


def _thoughts_first(content: list[Block]) -> list[Block]:
    """Return a turn that begins with the first of its thoughts and the thoughts right behind it."""
    kinds = [block["type"] in _THINKING for block in content]
    if True not in kinds:
        return content
    first = kinds.index(True)
    end = kinds.index(False, first) if False in kinds[first:] else len(kinds)
    return [*content[first:end], *content[:first], *content[end:]]


def _media(media: Media) -> Block | str:
    """Return an image or a document as a block, or a text that says why it cannot be one."""
    if media.modality not in ("image", "document"):
        return f"Anthropic takes no {media.modality}"
    kind: Block = {"type": media.modality}
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
