"""A provider that enforces the rules of its API, over HTTP: what breaks one is answered with 400.

It speaks Messages, Responses and Chat Completions. Its thoughts are bound as those of the newest
Claude models: a signature covers all that stood before the thought, so that it is valid only while
every byte of it is the same. It keeps no state that a request depends on: clients may restart.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeAlias

from tests.providers.servers import Answer, Received

Block: TypeAlias = dict[str, Any]
# A block with the role of its message, and its place in the list of messages.
Spoken: TypeAlias = tuple[str, Block, int]

THOUGHTS = ("thinking", "redacted_thinking")
_KEY = b"the provider's own"
_MARKS = 4
_BYTES = 32_000_000
_IMAGES, _FEW_IMAGES = 600, 100
CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
# https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
_MID_SYSTEM = re.compile(r"claude-((fable|mythos)-5|opus-(4-8|5)|(sonnet|haiku)-5-5)")
_NOT_BOUND = re.compile(
    r"claude-([\d]|instant|(opus|sonnet|haiku)-4|(fable|mythos|opus|sonnet|haiku)-5(-2\d{7})?$)"
)


class Refused(Exception):
    """A request that breaks a rule, by the rule's name."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(f"{rule}: {why}")
        self.rule = rule


@dataclass
class Exchange:
    """A request that came: its body, its text, its thoughts, and the rule that it broke."""

    api: str
    body: dict[str, Any]
    text: list[str]
    thoughts: int
    refused: str | None = None
    raw: bytes = b""


@dataclass
class EnforcingProvider:
    """Answers requests by a script, and refuses those that break a rule.

    Of `period` answers all but the last call the `tool`. With `strict` thoughts are bound whatever
    the model's name; None decides by the name.
    """

    period: int = 6
    tool: str = "read"
    strict: bool | None = None
    thinking: int = 40
    exchanges: list[Exchange] = field(default_factory=list)
    count: int = 0
    _lock: Lock = field(default_factory=Lock)

    @property
    def refused(self) -> list[str]:
        """The rules that were broken, one for each refused request."""
        return [exchange.refused for exchange in self.exchanges if exchange.refused]

    @property
    def moves(self) -> int:
        """How many requests do not begin with the text of the request before."""
        both = zip(self.exchanges, self.exchanges[1:], strict=False)
        return sum([new.text[: len(old.text)] != old.text for old, new in both])

    def binds(self, model: str) -> bool:
        """Say whether the thoughts of a model are bound to what stands before them."""
        name = re.sub(r"[.@_]", "-", model.rpartition("/")[2].lower())
        name = name[name.find("claude") :] if "claude" in name else ""
        return self.strict if self.strict is not None else bool(name) and not _NOT_BOUND.match(name)

    def answer(self, received: Received) -> Answer:
        """Answer a request; an HTTP server calls this."""
        body, path = received.body, received.path.partition("?")[0]
        api = "messages" if path.endswith("/messages") else path.rpartition("/")[2]
        with self._lock:
            self.count += 1
            count = self.count
        check = {"messages": self._messages, "responses": _responses, "completions": _chat}[api]
        exchange = Exchange(api, body, text_of(api, body), _count_thoughts(body), raw=received.raw)
        self.exchanges.append(exchange)
        try:
            if len(received.raw) > _BYTES:
                raise Refused("size", f"{len(received.raw):,} bytes are more than {_BYTES:,}")
            check(body, received.headers)
        except Refused as error:
            exchange.refused = str(error)
            kind = {"type": "invalid_request_error", "message": str(error)}
            return Answer(400, {"type": "error", "error": kind})
        calls = count % self.period != 0 and bool(body.get("tools"))
        reply = {"messages": self._speak, "responses": _respond, "completions": _complete}[api]
        return reply(body, count, self.tool if calls else None)

    # Messages.

    def _messages(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        model, spoken = str(body.get("model")), list(_spoken(body))
        betas = headers.get("anthropic-beta", "")
        messages = body["messages"]
        if not messages:
            raise Refused("roles", "messages: at least one message is required")
        for message in messages:
            if message["role"] not in ("user", "assistant", "system"):
                raise Refused("roles", f"unexpected role {message['role']!r}")
        _check_texts(spoken, messages)
        _check_pairs(spoken)
        _check_compaction(spoken)
        _check_mid_system(model, messages, betas)
        _check_marks(body)
        _check_images(model, spoken)
        if self.binds(model):
            self._check_bound(body, spoken)
        else:
            _check_signatures(spoken)

    def _check_bound(self, body: Mapping[str, Any], spoken: Sequence[Spoken]) -> None:
        if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
            raise Refused("forced tool", "thinking does not go with a forced tool")
        if (body.get("thinking") or {}).get("type") == "enabled":
            raise Refused("thinking", "thinking.type enabled is not supported; use adaptive")
        if body["messages"][-1]["role"] == "assistant":
            raise Refused("prefill", "the conversation must end with a user message")
        _check_signatures(spoken)
        held, before = head_of(body), None
        for role, block, _ in spoken[_summary(spoken) :]:
            if block["type"] not in THOUGHTS:
                held.append(_key(role, block))
                continue
            name, previous, bound, _ = _read_signature(block)
            if bound != _digest(held):
                raise Refused("thinking binding", f"thought {name}: what stood before it changed")
            if before is not None and previous != before:
                raise Refused("unbroken thoughts", f"{previous} is gone from before {name}")
            before = name

    def _speak(self, body: Mapping[str, Any], count: int, tool: str | None) -> Answer:
        spoken = list(_spoken(body))
        held = head_of(body) + [
            _key(role, block)
            for role, block, _ in spoken[_summary(spoken) :]
            if block["type"] not in THOUGHTS
        ]
        names = [_read_signature(b)[0] for _, b, _ in spoken if b["type"] in THOUGHTS]
        thought = f"Let me think about step {count}. " * max(1, self.thinking // 8)
        signature = _sign(f"t{count}", names[-1] if names else "-", held, thought)
        blocks: list[Block] = [
            {"type": "redacted_thinking", "data": _sign(f"t{count}", names[-1] if names else "-",
             held, "")}
            if count % 7 == 3
            else {"type": "thinking", "thinking": thought, "signature": signature}
        ]  # fmt: skip
        if tool is None or count % 3 == 0:
            blocks.append({"type": "text", "text": f"This is answer {count}."})
        if tool is not None:
            arguments = {"path": f"src/module_{count}.py"}
            call = {"type": "tool_use", "id": f"toolu_{count}", "name": tool, "input": arguments}
            blocks.append(call)
        usage = {"input_tokens": 100, "output_tokens": 20}
        head = {"id": f"msg_{count}", "type": "message", "role": "assistant"}
        reason = "end_turn" if tool is None else "tool_use"
        end = {"stop_reason": reason, "stop_sequence": None}
        if body.get("stream"):
            whole = {**head, "model": body["model"], "content": [], "usage": usage}
            return Answer(pieces=tuple(_events(whole, blocks, end, usage)))
        return Answer(body={**head, "model": body["model"], "content": blocks, **end,
                            "usage": usage})  # fmt: skip


# What is bound.


def text_of(api: str, body: Mapping[str, Any]) -> list[str]:
    """Return the text of a request, piece by piece: what stands in front, then every block, joined
    by role, without thoughts and marks."""
    if api == "messages":
        spoken = [(r, b) for r, b, _ in _spoken(body) if b["type"] not in THOUGHTS]
        return head_of(body) + [_key(role, block) for role, block in spoken]
    items = body.get("input") if api == "responses" else body.get("messages")
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items or []
    keys = [_dump(item) for item in items if item.get("type") != "reasoning"]
    return [_dump(body.get("tools") or []), _dump(body.get("instructions")), *keys]


def head_of(body: Mapping[str, Any]) -> list[str]:
    """Return what stands before all messages: the loaded tools as a set, the system text."""
    system = body.get("system") or []
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    tools = [tool for tool in body.get("tools") or [] if not tool.get("defer_loading")]
    return ["".join(sorted(map(_dump, tools))), *(_key("top", block) for block in blocks)]


def _spoken(body: Mapping[str, Any]) -> Iterator[Spoken]:
    for place, message in enumerate(body["messages"]):
        content, role = message.get("content") or [], message["role"]
        if role == "system":
            role = f"system {message.get('clear_at', 'never')}"
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield from ((role, block, place) for block in blocks)


def _key(role: str, block: Mapping[str, Any]) -> str:
    content = block.get("content")
    if block.get("type") == "tool_result" and isinstance(content, str):
        block = {**block, "content": [{"type": "text", "text": content}]}
    return f"{role}: {_dump(block)}"


def _dump(value: Any) -> str:
    return json.dumps(_without_marks(value), sort_keys=True)


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_marks(v) for k, v in value.items() if k != "cache_control"}
    return [_without_marks(item) for item in value] if isinstance(value, list) else value


def _digest(held: Sequence[str]) -> str:
    return blake2b("\n".join(held).encode(), digest_size=8).hexdigest()


def _sign(name: str, before: str, held: Sequence[str], thought: str) -> str:
    head = f"{name}.{before}.{_digest(held)}"
    return f"{head}.{hmac.new(_KEY, f'{head}.{thought}'.encode(), 'sha256').hexdigest()}"


def _read_signature(block: Mapping[str, Any]) -> list[str]:
    return str(block.get("signature") or block.get("data") or "...").split(".")


def _check_signatures(spoken: Sequence[Spoken]) -> None:
    for role, block, _ in spoken:
        if block["type"] not in THOUGHTS:
            continue
        if role != "assistant":
            raise Refused("thinking signature", f"a thought of role {role}")
        head, _, mac = str(block.get("signature") or block.get("data") or "").rpartition(".")
        signed = f"{head}.{block.get('thinking', '')}".encode()
        if not hmac.compare_digest(mac, hmac.new(_KEY, signed, "sha256").hexdigest()):
            raise Refused("thinking signature", "invalid signature in a thinking block")


def _count_thoughts(body: Mapping[str, Any]) -> int:
    blocks = [m.get("content") for m in body.get("messages") or [] if isinstance(m, dict)]
    held = [b for content in blocks if isinstance(content, list) for b in content]
    return sum([block.get("type") in THOUGHTS for block in held])


# The other rules of Messages.


def _check_texts(spoken: Sequence[Spoken], messages: Sequence[Mapping[str, Any]]) -> None:
    made = {place for role, block, place in spoken if block["type"] in THOUGHTS}
    for place, message in enumerate(messages):
        if not message.get("content") and place < len(messages) - 1:
            raise Refused("texts", f"messages.{place}: content must not be empty")
    for _, block, place in spoken:
        if block["type"] == "text" and not block["text"].strip() and place not in made:
            raise Refused("texts", f"messages.{place}: text must hold more than white space")


def _check_pairs(spoken: Sequence[Spoken]) -> None:
    turns: list[tuple[str, list[Block]]] = []
    for role, block, _ in spoken:
        role = role.partition(" ")[0]
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].append(block)
    asked: list[str] = []
    for role, blocks in turns:
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if asked and (role != "user" or sorted(results) != sorted(asked)):
            raise Refused("pairs", f"tool_use {asked} needs its results right behind it")
        if not asked and results:
            raise Refused("pairs", f"tool_result {results} has no tool_use right before it")
        if asked and any(b["type"] == "tool_result" for b in blocks[len(results) :]):
            raise Refused("pairs", "results must stand before the other content of their message")
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if asked:
        raise Refused("pairs", f"tool_use {asked} has no results")


def _summary(spoken: Sequence[Spoken]) -> int:
    """Return the place of the newest summary with content, where what is read begins."""
    places = [n for n, (_, b, _) in enumerate(spoken) if b["type"] == "compaction"]
    return next((n for n in reversed(places) if spoken[n][1].get("content")), 0)


def _check_compaction(spoken: Sequence[Spoken]) -> None:
    signed = [n for n, (_, b, _) in enumerate(spoken) if b.get("type") == "compaction"
              and b.get("signature")]  # fmt: skip
    if signed and (signed != [0] or not spoken[0][1].get("content")):
        raise Refused("compaction placement", "a signed compaction block must be sent first, alone")


def _check_mid_system(model: str, messages: Sequence[Mapping[str, Any]], betas: str) -> None:
    for place, message in enumerate(messages):
        if message["role"] != "system":
            if "clear_at" in message:
                raise Refused("mid system", "clear_at is for system messages")
            continue
        if not _MID_SYSTEM.search(re.sub(r"[.@_]", "-", model)):
            raise Refused("mid system", f"{model} takes no system message in messages")
        before = messages[place - 1]["role"] if place else None
        after = messages[place + 1]["role"] if place + 1 < len(messages) else "assistant"
        if before != "user" or after != "assistant":
            raise Refused("mid system placement", f"between {before} and {after}")
        if message.get("clear_at") and CLEAR_AT not in betas:
            raise Refused("mid system", "clear_at: Extra inputs are not permitted")


def _check_marks(body: Mapping[str, Any]) -> None:
    lives = []
    for role, block in _in_order(body):
        mark = block.get("cache_control")
        if mark is None:
            continue
        if block.get("type") in THOUGHTS or role == "system next_user_message":
            raise Refused("marks", f"cache_control is not allowed on {block.get('type')}")
        if block.get("type") == "text" and not block["text"].strip():
            raise Refused("marks", "cache_control cannot be set for empty text")
        lives.append(mark.get("ttl", "5m"))
    lives += ["5m"] if body.get("cache_control") else []
    if len(lives) > _MARKS:
        raise Refused("marks", f"{len(lives)} marks, at most {_MARKS}")
    if "5m" in lives and "1h" in lives[lives.index("5m") :]:
        raise Refused("marks", "a mark of 1h behind one of 5m")


def _in_order(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from (("tool", tool) for tool in body.get("tools") or [])
    system = body.get("system")
    yield from (("top", block) for block in (system if isinstance(system, list) else []))
    yield from ((role, block) for role, block, _ in _spoken(body))


def _check_images(model: str, spoken: Sequence[Spoken]) -> None:
    text = _dump([block for _, block, _ in spoken])
    images, most = text.count('"type": "image"'), _FEW_IMAGES if "haiku-4" in model else _IMAGES
    if images > most:
        raise Refused("images", f"{images} images, at most {most}")


def _events(
    head: Mapping[str, Any], blocks: Sequence[Block], end: Mapping[str, Any],
    usage: Mapping[str, int],
) -> Iterator[str]:  # fmt: skip
    """Yield an answer as the events of a stream."""
    yield _event("message_start", message={**head, "stop_reason": None, "stop_sequence": None})
    for index, block in enumerate(blocks):
        kind, empty, deltas = block["type"], dict(block), list[Block]()
        if kind == "text":
            empty, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        elif kind == "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]},
                      {"type": "signature_delta", "signature": block["signature"]}]  # fmt: skip
        elif kind == "tool_use":
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=dict(end), usage=dict(usage))
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


# Responses and Chat Completions.


def _responses(body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    items = body.get("input")
    items = items if isinstance(items, list) else []
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    if sorted(calls) != sorted(results):
        raise Refused("pairs", f"calls {calls} and outputs {results} do not match")
    for place, item in enumerate(items):
        after = items[place + 1] if place + 1 < len(items) else {}
        if item.get("type") == "reasoning":
            role, kind = after.get("role"), after.get("type")
            if role in ("user", "developer", "system") or kind in (None, "function_call_output"):
                raise Refused("reasoning item", "reasoning without the item that followed it")
        if item.get("type") == "compaction_trigger" and after:
            raise Refused("compaction placement", "compaction_trigger must be the last item")


def _chat(body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    asked: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in asked:
                raise Refused("pairs", f"tool message {message.get('tool_call_id')} has no call")
            asked.remove(message["tool_call_id"])
        elif asked:
            raise Refused("pairs", f"tool calls {asked} have no tool messages right behind them")
        else:
            asked = [call["id"] for call in message.get("tool_calls") or []]
    if asked:
        raise Refused("pairs", f"tool calls {asked} have no tool messages")


def _respond(body: Mapping[str, Any], count: int, tool: str | None) -> Answer:
    reasoning = {"type": "reasoning", "id": f"rs_{count}", "summary": [],
                 "encrypted_content": f"gAAA{count}"}  # fmt: skip
    if tool is None:
        part = {"type": "output_text", "text": f"This is answer {count}.", "annotations": []}
        item = {"type": "message", "id": f"msg_{count}", "role": "assistant",
                "status": "completed", "content": [part]}  # fmt: skip
    else:
        item = {"type": "function_call", "id": f"fc_{count}", "call_id": f"call_{count}",
                "name": tool, "arguments": json.dumps({"path": f"src/module_{count}.py"}),
                "status": "completed"}  # fmt: skip
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
             "input_tokens_details": {"cached_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 10}}  # fmt: skip
    whole = {"id": f"resp_{count}", "object": "response", "created_at": 1, "model": body["model"],
             "status": "completed", "output": [reasoning, item], "usage": usage,
             "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    return Answer(body=whole)


def _complete(body: Mapping[str, Any], count: int, tool: str | None) -> Answer:
    message: Block = {"role": "assistant", "content": f"This is answer {count}."}
    if tool is not None:
        function = {"name": tool, "arguments": json.dumps({"path": f"src/module_{count}.py"})}
        call = {"id": f"call_{count}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    reason = "stop" if tool is None else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    head = {"id": f"c{count}", "object": "chat.completion", "created": 1, "model": body["model"]}
    return Answer(body={**head, "choices": [choice], "usage": usage})
