"""Shapes: how a call and its results look when there is less room for them.

Owns what a result looks like when it is too long (`Results`), short, or one line (`Ladder`). Other
modules decide which group goes down, and when. A form depends on the message, the rules and the
tokenizer alone, so the same message always has the same bytes; each form is made once and kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from muntin.core.checks import check_size, compact_json, shown
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.parts import Other, ToolCall
from muntin.core.planning.cut import End, Keep, ends, longest
from muntin.core.planning.limits import ratio_of
from muntin.errors import InvalidInput, InvalidType

Level: TypeAlias = Literal["full", "short", "stub"]
# No ceiling cuts a result to fewer tokens, and nothing cuts the newest result to fewer.
LEAST = 64
# A stub does not shorten the arguments of a call up to this many tokens.
_ARGUMENTS = 64
# About how many tokens a stub of one result has.
_STUB = 16
# Up to this many characters of a JSON text are read for its structure.
_SCANNED = 2_000
# So many characters of a long value in arguments stay.
_VALUE = 40
_KEEPS: tuple[Keep, ...] = get_args(Keep)
_S = TypeVar("_S", "Results", "Ladder")


@dataclass(frozen=True, slots=True)
class Results:
    """How much of the window one tool result may have.

    A longer result shows its beginning and its end, or the one of them that `keep` names, and a
    line that says how much is missing. No result of at most 64 tokens is cut.
    """

    max_ratio: float = 0.25
    keep: tuple[Keep, ...] = ("head", "tail")

    def __post_init__(self) -> None:
        ratio = self.max_ratio
        if not isinstance(ratio, int | float) or isinstance(ratio, bool):
            raise InvalidType(f"Results.max_ratio must be a number, not {shown(ratio)}")
        if not 0 < ratio <= 1:  # NaN is not
            raise InvalidInput(f"Results.max_ratio must be above 0 and up to 1, got {shown(ratio)}")
        _check_keep(self.keep)
        object.__setattr__(self, "keep", tuple(self.keep))

    def ceiling(self, room: int) -> int:
        """Return how many tokens one result may have."""
        return max(LEAST, ratio_of(room, self.max_ratio))


@dataclass(frozen=True, slots=True)
class Ladder:
    """How calls and results leave the window: first short, then as one line, then whole.

    `short_tokens` is what a short result may have. The `keep_groups` newest groups of call and
    results stay full while there is anything else to shorten. Without `stubs` a short group goes
    whole.
    """

    short_tokens: int = 200
    keep_groups: int = 3
    stubs: bool = True

    def __post_init__(self) -> None:
        if check_size(self.short_tokens, "Ladder.short_tokens") < LEAST:
            raise InvalidInput(
                f"Ladder.short_tokens must be at least {LEAST}, got {self.short_tokens}"
            )
        check_size(self.keep_groups, "Ladder.keep_groups")
        if self.stubs is not True and self.stubs is not False:
            raise InvalidInput(f"Ladder.stubs must be True or False, not {shown(self.stubs)}")


def _check_keep(keep: object) -> None:
    names = ", ".join(repr(each) for each in _KEEPS)
    if not isinstance(keep, Sequence) or isinstance(keep, str):
        raise InvalidType(f"Results.keep must be a tuple of {names}, not {shown(keep)}")
    if not keep or len(set(keep)) < len(keep) or any(each not in _KEEPS for each in keep):
        raise InvalidInput(f"Results.keep takes {names}, each at most once, got {shown(keep)}")


def as_shapes(
    what: str, results: Results | bool | None, ladder: Ladder | bool | None
) -> tuple[Results | None, Ladder | None]:
    """Return the ceiling and the ladder that were given: True means the library's own, False or
    None means none. `what` names the place where they were given."""
    return _as_shape(what, "results", results, RESULTS), _as_shape(what, "ladder", ladder, LADDER)


def _as_shape(what: str, name: str, value: _S | bool | None, own: _S) -> _S | None:
    if isinstance(value, bool | None):
        return own if value else None
    if isinstance(value, type(own)):
        return value
    kinds = f"{type(own).__name__}(...), True, False or None"
    raise InvalidType(f"{what}: {name} must be {kinds}, not {shown(value)}")


BOTH: tuple[Keep, ...] = ("head", "tail")
RESULTS = Results()
LADDER = Ladder()


@dataclass(frozen=True, slots=True)
class Levels:
    """How far each level reaches in a list, as indices of messages: messages before `gone` have
    left, results before `stubs` are one line, results before `shorts` are short."""

    gone: int = 0
    stubs: int = 0
    shorts: int = 0

    def of(self, index: int) -> Level:
        """Return the level of a group that has not left."""
        return "stub" if index < self.stubs else "short" if index < self.shorts else "full"

    def moved(self, by: int) -> Levels:
        """Return the levels of the same list with `by` more messages in front (fewer below 0)."""
        return Levels(*(max(0, each + by) for each in (self.gone, self.stubs, self.shorts)))


NO_LEVELS = Levels()


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of messages for one counter.

    `loads` says that the agent has the tool `load_result`, so that a line may name it.
    """

    counter: Counter = field(compare=False)
    loads: bool = False

    def result(self, message: Message, most: int, keep: tuple[Keep, ...] = BOTH) -> Message:
        """Return a result with at most `most` tokens of content; unchanged if it is not longer, or
        has no text that could stand for it."""
        if self.content_tokens(message) <= most or _is_unread(message):
            return message
        key = (message, most, keep, self.loads)
        known: Message | None = self.counter.forms.get(key)
        if known is None:
            known = self._cut(message, most, keep)
            self.counter.forms.put(key, known, len(message.text) + len(known.text))
        return known

    def _cut(self, message: Message, most: int, keep: tuple[Keep, ...]) -> Message:
        count = self.counter.text_once
        text, size = message.text, self.content_tokens(message)
        plain = replace(message, content=text, attachments=())
        whole = self.counter.text(text)
        if whole <= most:  # other parts than text go first; a line says so, if it has room
            told = f"{text}\n{self._line(message, size - whole)}".lstrip("\n")
            return replace(plain, content=told if count(told) <= most else text)
        end: End = "ends" if len(keep) > 1 else keep[0]

        def shown(kept: str) -> str:
            left = self._line(message, max(1, size - count(kept)))
            head, tail = _split(text, len(kept), end)
            return "\n".join(part for part in (whole_elements(head), left, tail) if part)

        found = longest(text, whole, most, lambda kept: count(shown(kept)), end)
        return replace(plain, content=shown("" if found is None else found[0]))

    def _line(self, message: Message, tokens: int) -> str:
        return f"[{tokens:,} tokens left out{self._how(message)}]"

    def _how(self, message: Message) -> str:
        return f"; load_result({message.tool_call_id!r}) reads them" if self.loads else ""

    def content_tokens(self, message: Message) -> int:
        """Return what the content of a message costs."""
        return self.counter.message(message) - self.counter.overhead

    def stub(self, message: Message, name: str) -> Message:
        """Return a result as one line, or unchanged if that is no shorter."""
        size = self.content_tokens(message)
        line = f"[{name}: {size:,} tokens, left out{self._how(message)}]"
        if self.counter.text(line) >= size or _is_unread(message):
            return message
        return replace(message, content=line, attachments=())

    def calls(self, message: Message) -> Message:
        """Return a message with long arguments of its calls shortened."""
        calls = tuple([self._call(call) for call in message.tool_calls])
        return message if calls == message.tool_calls else replace(message, tool_calls=calls)

    def _call(self, call: ToolCall) -> ToolCall:
        if self.counter.text(call.arguments) <= _ARGUMENTS:
            return call
        shown: Any = {"left_out": f"{self.counter.text(call.arguments):,} tokens"}
        try:
            given = json.loads(call.arguments)
            if isinstance(given, dict):
                short = {key: self._value(value) for key, value in given.items()}
                if self.counter.text(_like(call, short)) < self.counter.text(call.arguments):
                    shown = short
        except (ValueError, RecursionError):  # no JSON, or nested too deeply
            pass
        return replace(call, arguments=_like(call, shown))

    def _value(self, value: Any) -> Any:
        """Return a value of arguments, shortened if it is long."""
        text = value if isinstance(value, str) else compact_json(value)
        if len(text) <= 2 * _VALUE:
            return value
        return f"{text[:_VALUE]} [{len(text) - _VALUE:,} characters left out]"


def _is_unread(message: Message) -> bool:
    """Say whether a result holds a part that is sent back unchanged or not at all."""
    content = message.content if isinstance(message.content, tuple) else ()
    return any(isinstance(part, Other) and part.data["type"] == "unread" for part in content)


def _like(call: ToolCall, arguments: Any) -> str:
    """Write arguments with the spaces that the call itself has. Frameworks parse arguments and
    write them again; the text they send is then the text that was counted."""
    if '": ' not in call.arguments:
        return compact_json(arguments)
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


class Form(NamedTuple):
    """A group before it was shortened: its level now, its messages and tokens before."""

    level: Level
    messages: tuple[Message, ...]
    tokens: int


# Messages, what each costs, and all together.
Shown: TypeAlias = tuple[tuple[Message, ...], tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Shape:
    """How the groups of one slot are shown: results up to a ceiling, groups at their levels."""

    forms: Forms
    most: int = sys.maxsize
    keep: tuple[Keep, ...] = BOTH
    ladder: Ladder | None = None
    levels: Levels = NO_LEVELS

    def result(self, message: Message) -> Message:
        """Return a result, cut to its ceiling."""
        return self.forms.result(message, self.most, self.keep)

    def group(self, level: Level, messages: tuple[Message, ...]) -> Shown:
        """Return the messages of a group at a level, what each costs, and all together."""
        ladder, forms = self.ladder, self.forms
        short = None if ladder is None else ladder.short_tokens
        key = (level, messages, short, self.most, self.keep, forms.loads)
        known: Shown | None = forms.counter.forms.get(key)
        if known is None:
            made = tuple(self._made(level, messages))
            costs = tuple([forms.counter.message(each) for each in made])
            known = made, costs, sum(costs)
            size = sum([len(each.text) for each in (*messages, *made)])
            forms.counter.forms.put(key, known, size)
        return known

    def _made(self, level: Level, messages: tuple[Message, ...]) -> Iterator[Message]:
        names = {call.id: call.name for each in messages for call in each.tool_calls}
        ladder = self.ladder
        for each in messages:
            called = each.tool_call_id
            if level == "full" or ladder is None:
                yield each if called is None else self.result(each)
            elif called is None:
                yield self.forms.calls(each) if level == "stub" and each.tool_calls else each
            elif level == "short":
                yield self.forms.result(each, min(ladder.short_tokens, self.most))
            else:
                yield self.forms.stub(each, names.get(called, "result"))

    def cuts_at(self, index: int) -> int:
        """Return the ceiling of the result at an index; a short result has none."""
        return self.most if index >= self.levels.shorts else sys.maxsize

    def least(self, tokens: int, costs: Sequence[int], messages: Sequence[Message]) -> int:
        """Return about how many tokens a group has at the lowest level."""
        ladder = self.ladder
        if ladder is None:
            return tokens
        most = self.forms.counter.overhead + (_STUB if ladder.stubs else ladder.short_tokens)
        if tokens <= most:
            return tokens
        saved = [
            c - most for c, m in zip(costs, messages, strict=True) if m.tool_call_id and c > most
        ]
        return tokens - sum(saved)


def _split(text: str, length: int, end: End) -> tuple[str, str]:
    """Return `length` characters of a text: some of its beginning, and some of its end."""
    if end == "ends":
        return ends(text, length)
    return (text[:length], "") if end == "head" else ("", text[len(text) - length :])


def whole_elements(head: str) -> str:
    """Return the beginning of a JSON text up to the end of an element, if one is near; return any
    other text unchanged."""
    if head[:1] not in ("[", "{"):
        return head
    if len(head) > _SCANNED:  # too long to be read for its structure
        near = max(head.rfind(end, len(head) // 2) for end in ("},", "],"))
        return head[: near + 2] if near > 0 else head
    last: dict[int, int] = {}
    depth, quoted, skip = 0, False, False
    for index, char in enumerate(head):
        if skip:
            skip = False
        elif quoted:
            skip = char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == ",":
            last[depth] = index + 1
    found = [at for _, at in sorted(last.items()) if at >= len(head) // 2]
    return head[: found[0]] if found else head
