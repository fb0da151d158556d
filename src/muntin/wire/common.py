"""Shared by all codecs: order on the wire, ids, tools, and the list of what is not carried.

Knows messages and windows; knows no vendor's format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import is_dataclass, replace
from typing import Any, TypeAlias

from muntin.core.accepted import NameRule
from muntin.core.caching.wire_order import as_sent
from muntin.core.checks import compact_json, has_surrogates, replace_surrogates, shown
from muntin.core.message import NO_RESULT, Message
from muntin.core.parts import File, Reasoning, ToolCall
from muntin.core.report import NotCarried
from muntin.core.tool_marks import MARKS
from muntin.core.window import Breakpoint, Window
from muntin.errors import BudgetExceeded, InvalidInput, InvalidType

Files: TypeAlias = Mapping[str, File]

# Fields that encoders keep for themselves in `extra`: where a part stood, an id of the vendor's.
# They mean nothing to other vendors, so leaving them out is no loss.
_BOOKKEEPING = frozenset(
    {"as_made", "before", "item_id", "own_id", "status", "made_id", "as_json", "paused", *MARKS}
)


class Ledger:
    """The list of what one encoding could not carry, made while it runs."""

    __slots__ = ("_entries", "_provider")

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._entries: list[NotCarried] = []

    def miss(self, message: int | None, what: str, reason: str) -> None:
        """Note that `what` of the message at this index (None: of no message) is not sent."""
        self._entries.append(NotCarried(self._provider, message, what, reason))

    def miss_fields(
        self, message: int | None, extra: Mapping[str, Any], fields: Iterable[str] = ()
    ) -> None:
        """Note the fields of an `extra` that the API does not know and that are not empty."""
        for key, value in extra.items():
            if key not in fields and key not in _BOOKKEEPING and value not in (None, "", [], {}):
                self.miss(message, f"field {key!r}", "the API has no such field")

    def enter(self, window: Window) -> None:
        """Write the list into the window's report; it replaces this provider's last list."""
        window.enter_not_carried(self._provider, tuple(self._entries))


def check(window: Window, strict: bool, files: Files | None) -> Files:
    """Refuse a window that is over budget, or invalid files; return the files."""
    if strict and window.over_budget:
        error = BudgetExceeded(window.tokens, window.report.budget, window.report)
        why = f"{error} To encode the window anyway, pass strict=False."
        raise BudgetExceeded(error.needed, error.available, error.report, why)
    if files is None:
        return {}
    if not isinstance(files, Mapping):
        raise InvalidType(f"files must map an attachment's id to a File, not {shown(files)}")
    for key, file in files.items():
        if not isinstance(file, File):
            raise InvalidType(f"files[{key!r}] must be a File, not {type(file).__name__}")
    return files


def is_text(message: Message) -> bool:
    """Say whether a message is only a text, as most are."""
    return (
        message.content.__class__ is str
        and message.extra is None
        and message.name is None
        and not message.attachments
    )


def result_text(result: Message | None) -> str | None:
    """Return the text of a result that is only text; None otherwise."""
    if result is None:
        return NO_RESULT
    if result.content is None and not result.attachments:
        return ""
    if isinstance(result.content, str) and not result.attachments:
        return result.content
    return None


class Ids:
    """Makes ids of calls that an API accepts, the same ones for the same window.

    No id is given twice: recorded traffic uses the id of a call again after its result.
    """

    __slots__ = ("_known", "_rule", "_used")

    def __init__(self, rule: NameRule) -> None:
        self._rule = rule
        self._used: set[str] = set()
        self._known: dict[str, str] = {}

    def __call__(self, call_id: str) -> str:
        """Return the id unchanged, or the nearest one that is accepted and not yet taken."""
        accepted = self._known.get(call_id)
        if accepted is None:
            accepted = call_id if self._rule.accepts(call_id) else self._rule.marked(call_id)
            self._known[call_id] = accepted
        return self._apart(accepted)

    def _apart(self, name: str) -> str:
        again, apart = 1, name
        while apart in self._used:
            again += 1
            mark = f"_{again}"
            apart = name[: self._rule.limit - len(mark)] + mark
        self._used.add(apart)
        return apart


def arguments(call: ToolCall, index: int, ledger: Ledger) -> dict[str, Any]:
    """Return a call's arguments as an object; other arguments are sent as text, and listed."""
    text = call.arguments
    if not text or text.isspace():
        return {}
    try:
        value, end = _JSON.raw_decode(text)  # faster than `decode`, which skips white space
        if end != len(text):
            value = _JSON.decode(text)
        # An escape may hold half of a surrogate pair.
        lone = "\\u" in text and has_surrogates(json.dumps(value, ensure_ascii=False))
        if isinstance(value, dict) and not lone:
            return value
    except (ValueError, RecursionError):
        pass
    ledger.miss(
        index,
        f"the arguments of call {call.id!r}",
        "they are no JSON object; sent as text under 'arguments'",
    )
    return {"arguments": text}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is larger than any float")
    return value


_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def made_by(part: Reasoning) -> str | None:
    """Name the provider that made this reasoning, by its marks; None if it is not signed."""
    extra = part.extra or {}
    if "summary" in extra:
        return "openai"
    if "thought" in extra:
        return "google"
    return "anthropic" if part.signature is not None else None


def known_extra(
    extra: Mapping[str, Any] | None,
    fields: Sequence[str],
    index: int,
    ledger: Ledger,
    elsewhere: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a copy of the fields that an API knows; list the others, except any `elsewhere`."""
    if not extra:
        return {}
    ledger.miss_fields(index, extra, (*fields, *elsewhere))
    return {key: deepcopy(extra[key]) for key in fields if extra.get(key) is not None}


def ends(
    trail: Sequence[tuple[int, dict[str, Any]]], window: Window, room: int
) -> list[tuple[dict[str, Any], Breakpoint]]:
    """Return the pieces behind which to cache, at most `room` of them, the last ones.

    `trail` are the pieces that can be marked, in wire order, with the index of their message. If
    the message of a breakpoint is not sent, the last message sent before it gets the breakpoint.
    """
    if room <= 0 or not window.breakpoints:
        return []
    sent = enumerate(as_sent(window.messages))
    order = {piece.place: rank for rank, piece in sent if piece.place is not None}
    by_place: dict[int, Breakpoint] = {}
    for point in window.breakpoints:
        until = order.get(point.after - 1)
        if until is None:  # an empty message, which is not sent
            before = [rank for place, rank in order.items() if place < point.after]
            until = max(before, default=-1)
        places = [n for n, (index, _) in enumerate(trail) if order.get(index, -1) <= until]
        if places:
            by_place[places[-1]] = point
    chosen = [(trail[place][1], by_place[place]) for place in sorted(by_place)]
    return chosen[-room:]


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a function tool's name, description, parameters and strictness; else None.

    The tool may have the form of Chat Completions, Responses or Anthropic.
    """
    function = tool.get("function")
    if isinstance(function, Mapping):
        return function
    if not isinstance(tool.get("name"), str) or tool.get("type") not in (None, "function"):
        return None
    if "input_schema" in tool:
        rest = {k: v for k, v in tool.items() if k not in ("input_schema", "type")}
        return {**rest, "parameters": tool["input_schema"]}
    if tool.get("type") == "function" or "parameters" in tool:
        return {k: v for k, v in tool.items() if k != "type"}
    return None


def as_mapping(
    response: Any, expected: str, key: str, *, by_alias: bool = True
) -> Mapping[str, Any]:
    """Return a response, an SDK's object or its dict, as a mapping that has `key`."""
    data = response
    if not isinstance(data, Mapping) and hasattr(data, "model_dump"):
        data = data.model_dump(by_alias=by_alias, exclude_none=True, warnings=False)
    if not isinstance(data, Mapping):
        raise InvalidType(f"expected {expected}, or its dict; got {type(response).__name__}")
    if key not in data:
        raise InvalidInput(
            f"expected {expected}, which has {key!r}; got one with {shown(sorted(map(str, data)))}"
        )
    return data


def get(value: Any, name: str) -> Any:
    """Return a field of an SDK's object or of a mapping; None if it is not there."""
    if value.__class__ is dict or isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


def with_fields(value: Any, **new: Any) -> Any:
    """Return a copy of a mapping or an object with some fields replaced."""
    if not new:
        return value
    if isinstance(value, Mapping):
        return {**value, **new}
    if hasattr(value, "model_copy"):
        return value.model_copy(update=new)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **new)
    other = copy(value)
    for key, new_value in new.items():
        setattr(other, key, new_value)
    return other


def as_text(data: Any) -> str:
    """Return roughly the text of a value as it is sent."""
    try:
        return compact_json(clean(data))
    except (TypeError, ValueError, RecursionError):
        return replace_surrogates(repr(data))


def clean(value: Any) -> Any:
    """Return JSON values without lone surrogates."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def count(usage: Any, name: str) -> int:
    """Return a number of tokens; 0 if the provider tells none."""
    value = get(usage, name) if usage is not None else None
    return value if isinstance(value, int) else 0
