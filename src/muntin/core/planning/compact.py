"""Compact forms: how messages look when there is less room for them.

Owns what a result looks like when it is cut (`Results`), short, or one line (`Ladder`). Other
modules decide which message gets which form, and when. A form depends on the message, the rules and
the tokenizer alone, so the same message always has the same bytes; each form is made once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar, get_args

from muntin.core.checks import check_size, compact_json, shown
from muntin.core.counting.counter import Counter
from muntin.core.cutting import End, Keep, cut_with_line
from muntin.core.message import Message
from muntin.core.parts import Other, ToolCall
from muntin.core.planning.limits import allocate, ratio_of
from muntin.core.tool_marks import FIND, FOUND, found_names, found_tools
from muntin.errors import InvalidInput, InvalidType

# How a unit is shown. Only calls with results become short, or stubs.
FULL, CUT, SHORT, STUB, GONE = range(5)
# No ceiling cuts a result to fewer tokens, and nothing cuts the newest result to fewer.
LEAST = 64
# Arguments of a call with up to this many tokens are neither short nor a stub.
_ARGUMENTS = 64
# A text in arguments with more characters is cut when its call is short.
_TEXT = 200
# So many characters of a long value in arguments stay in a stub.
_VALUE = 40
_KEEPS: tuple[Keep, ...] = get_args(Keep)
_S = TypeVar("_S", "Results", "Ladder")


@dataclass(frozen=True, slots=True)
class Results:
    """How much of the window one tool result may have when something must give.

    A longer result then shows its beginning and its end, or the one of them that `keep` names, and
    a line that says how much is missing. No result of at most 64 tokens is cut.
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
    names = ", ".join(repr(kind) for kind in _KEEPS)
    if not isinstance(keep, Sequence) or isinstance(keep, str):
        raise InvalidType(f"Results.keep must be a tuple of {names}, not {shown(keep)}")
    if not keep or len(set(keep)) < len(keep) or any(kind not in _KEEPS for kind in keep):
        raise InvalidInput(f"Results.keep takes {names}, each at most once, got {shown(keep)}")


def as_shapes(
    what: str, results: Results | bool | None, ladder: Ladder | bool | None
) -> tuple[Results | None, Ladder | None]:
    """Return the ceiling and the ladder that were given: True means the library's own, False or
    None means none. `what` names the place where they were given."""
    return _as_shape(what, "results", results, RESULTS), _as_shape(what, "ladder", ladder, LADDER)


def _as_shape(what: str, name: str, value: _S | bool | None, default: _S) -> _S | None:
    if isinstance(value, bool | None):
        return default if value else None
    if isinstance(value, type(default)):
        return value
    kinds = f"{type(default).__name__}(...), True, False or None"
    raise InvalidType(f"{what}: {name} must be {kinds}, not {shown(value)}")


BOTH: tuple[Keep, ...] = ("head", "tail")
RESULTS = Results()
LADDER = Ladder()


# Messages, and their tokens.
Costed: TypeAlias = tuple[tuple[Message, ...], int]


@dataclass(slots=True)
class Compactor:
    """Makes the compact forms of messages; `window` is what sizes are shares of.

    `loads` says that the agent has the tool `load_result`, so that a line may name it. A result
    that is cut has `largest_result` tokens; `deepest` is the most compact form of a group.
    """

    counter: Counter = field(compare=False)
    loads: bool = False
    results: Results | None = None
    ladder: Ladder | None = None
    window: int = 0
    largest_result: int = field(init=False)
    deepest: int = field(init=False)
    # All rules as one text: a key whose hash is made once.
    _rules: str = field(default="", init=False, compare=False)

    def __post_init__(self) -> None:
        results, ladder = self.results, self.ladder
        self.largest_result = sys.maxsize if results is None else results.ceiling(self.window)
        self.deepest = CUT if ladder is None else STUB if ladder.stubs else SHORT

    def form(self, level: int, messages: tuple[Message, ...]) -> Costed:
        """Return the messages of a unit at a level, and their tokens."""
        if not self._rules:
            self._rules = f"{self.results} {self.ladder} {self.window} {self.loads}"
        reported = [message.answer_tokens for message in messages]
        law = (*reported, self.counter.law.factor) if any(reported) else ()
        key = (level, messages, self._rules, *law)
        cached: Costed | None = self.counter.forms.get(key)
        if cached is None:
            compacted = tuple(self._messages(level, messages))
            cached = compacted, sum(map(self.counter.message, compacted))
            size = sum([len(message.text) for message in (*messages, *compacted)])
            self.counter.forms.put(key, cached, size)
        return cached

    def _messages(self, level: int, messages: tuple[Message, ...]) -> Iterator[Message]:
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        keep = BOTH if self.results is None else self.results.keep
        for message in messages:
            called = message.tool_call_id
            if called is None and message.tool_calls:
                yield self.calls(message, CUT if self.ladder is None else level)
            elif called is None:
                yield self._text(message)
            elif found_tools(message):  # whole, or a line: a schema is never cut
                is_whole = level == CUT or self.ladder is None
                yield message if is_whole else self.unloaded(message)
            elif level == CUT or self.ladder is None:
                yield self.result(message, self.largest_result, keep)
            elif level == SHORT:
                yield self.result(message, min(self.ladder.short_tokens, self.largest_result))
            else:
                yield self.stub(message, names.get(called, "result"))

    def _text(self, message: Message) -> Message:
        """Return a text that is larger than half of the window as its beginning and its end."""
        if self.results is None or self.content_tokens(message) <= self.window // 2:
            return message
        if message.attachments or not isinstance(message.content, str):
            return message
        return self.result(message, max(LEAST, self.window // 4))

    def result(self, message: Message, most: int, keep: tuple[Keep, ...] = BOTH) -> Message:
        """Return a message with at most `most` tokens of content; unchanged if it is not longer, or
        has no text that could stand for it."""
        if self.content_tokens(message) <= most or _is_unread(message) or found_tools(message):
            return message
        key = (message, most, keep, self.loads)
        cached: Message | None = self.counter.forms.get(key)
        if cached is None:
            cached = self._cut(message, most, keep)
            self.counter.forms.put(key, cached, len(message.text) + len(cached.text))
        return cached

    def _cut(self, message: Message, most: int, keep: tuple[Keep, ...]) -> Message:
        count = self.counter.text_once
        text, size = message.text, self.content_tokens(message)
        plain = replace(message, content=text, attachments=())
        whole = self.counter.text(text)
        if whole <= most:  # other parts than text go first; a line says so, if it has room
            line = f"{text}\n{self._line(message, size - whole)}".lstrip("\n")
            return replace(plain, content=line if count(line) <= most else text)
        end: End = "ends" if len(keep) > 1 else keep[0]
        content, _ = cut_with_line(
            text,
            whole,
            most,
            count,
            lambda text: self._line(message, max(1, size - count(text))),
            end,
        )
        return replace(plain, content=content)

    def _line(self, message: Message, tokens: int) -> str:
        return f"[{tokens:,} tokens left out{self._how(message)}]"

    def _how(self, message: Message) -> str:
        loads = self.loads and message.tool_call_id is not None
        return f"; load_result({message.tool_call_id!r}) reads them" if loads else ""

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

    def repeated(self, message: Message, name: str, called: str) -> Message:
        """Return a result as a line that names the later call with the same result, or unchanged if
        that is no shorter."""
        size = self.content_tokens(message)
        how = self._how(message)
        line = (
            f"[{name}: {size:,} tokens, left out; the later result of {called!r} is the same{how}]"
        )
        if self.counter.text(line) >= size or message.attachments or found_tools(message):
            return message
        return replace(message, content=line)

    def unloaded(self, message: Message) -> Message:
        """Return a result that loads tools as a line: it loads nothing any more."""
        extra = {key: value for key, value in (message.extra or {}).items() if key != FOUND}
        line = f"[{FIND}: loaded {', '.join(found_names([message]))}]"
        return replace(message, content=line, attachments=(), extra=extra or None)

    def calls(self, message: Message, level: int, most: int = sys.maxsize) -> Message:
        """Return a message with the arguments of its calls at a level, together at most `most`
        tokens if cutting their texts is enough."""
        sizes = [self.counter.text(call.arguments) for call in message.tool_calls]
        shares = allocate(most, sizes, [1] * len(sizes))
        pairs = zip(message.tool_calls, shares, strict=True)
        calls = tuple([self._call(call, level, share) for call, share in pairs])
        if calls == message.tool_calls:
            return message
        return self.counter.shortened(message, replace(message, tool_calls=calls))

    def body_tokens(self, message: Message) -> int:
        """Return what may be cut of a message: the arguments of its calls, or its content."""
        if not message.tool_calls:
            return self.content_tokens(message)
        return sum([self.counter.text(call.arguments) for call in message.tool_calls])

    def cut(self, message: Message, most: int) -> Message:
        """Return a message with calls, or a result, of which at most `most` tokens stay."""
        return self.calls(message, CUT, most) if message.tool_calls else self.result(message, most)

    def _call(self, call: ToolCall, level: int, most: int) -> ToolCall:
        """Return a call whose long texts lose their middle: so that it has `most` tokens when cut,
        those of more than 200 characters when short. In a stub long values are named by their
        size. No form is larger than the one before it."""
        count = self.counter.text
        size, most = count(call.arguments), min(most, self.largest_result)
        if size <= (most if level == CUT else _ARGUMENTS):
            return call
        forms, named = [call], {"left_out": f"{size:,} tokens"}
        try:
            arguments = json.loads(call.arguments)
            if not isinstance(arguments, dict):
                raise ValueError
            if size > most:
                forms.append(_with_arguments(call, self._fitted(arguments, size, most)))
            if level >= SHORT:
                short = _changed(json.loads(forms[-1].arguments), _short_text)
                forms.append(_with_arguments(call, short))
            if level == STUB or count(forms[-1].arguments) > most:
                values = {key: _short_value(value) for key, value in arguments.items()}
                forms.append(_with_arguments(call, values))
                if level == STUB and count(forms[-1].arguments) >= size:
                    forms.append(_with_arguments(call, named))
        except (ValueError, RecursionError):  # no JSON object, or nested too deeply
            forms.append(_with_arguments(call, named))
        return min(forms, key=lambda form: count(form.arguments))

    def _fitted(self, arguments: Any, size: int, most: int) -> Any:
        """Return arguments whose texts share what `most` tokens leave for them."""

        def count(text: str) -> int:
            return self.counter.text_once(compact_json(text))

        texts = [*dict.fromkeys(_texts(arguments))]
        sizes = [count(text) for text in texts]
        shares = allocate(max(0, most - size + sum(sizes)), sizes, [1] * len(sizes))
        cuts = {
            text: _cut_text(text, whole, share, count)
            for text, whole, share in zip(texts, sizes, shares, strict=True)
            if share < whole
        }
        return _changed(arguments, lambda text: cuts.get(text, text))


def _is_unread(message: Message) -> bool:
    """Say whether a result holds a part that is sent back unchanged or not at all."""
    content = message.content if isinstance(message.content, tuple) else ()
    return any(isinstance(part, Other) and part.data["type"] == "unread" for part in content)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in arguments."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Return arguments with every text changed."""
    if isinstance(value, dict):
        return {key: _changed(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_changed(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _cut_text(text: str, whole: int, most: int, count: Callable[[str], int]) -> str:
    """Return the beginning and the end of a text, and a line that says how much is missing."""

    def line(rest: str) -> str:
        return f"[{len(text) - len(rest):,} characters left out]"

    return cut_with_line(text, whole, most, count, line)[0]


def _short_text(text: str) -> str:
    return text if len(text) <= _TEXT else _cut_text(text, len(text), _TEXT, len)


def _short_value(value: Any) -> Any:
    """Return a value of arguments, or the beginning of a long one."""
    text = value if isinstance(value, str) else compact_json(value)
    if len(text) <= 2 * _VALUE:
        return value
    return f"{text[:_VALUE]} [{len(text) - _VALUE:,} characters left out]"


def _with_arguments(call: ToolCall, arguments: Any) -> ToolCall:
    """Return a call with other arguments, with the spaces that it has itself. Frameworks parse
    arguments and write them again; the text they send is then the text that was counted."""
    if '": ' not in call.arguments:
        return replace(call, arguments=compact_json(arguments))
    text = json.dumps(arguments, ensure_ascii=False, sort_keys=True)
    return replace(call, arguments=text)
