"""Forms: how a call and its results look when there is less room for them.

Owns what a result looks like when it is too long (`Results`), short, or one line (`Ladder`). Which
group goes down, and when, is decided elsewhere. A form depends on the message, the rules and the
tokenizer alone, so the same message always has the same bytes; each is made once and remembered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from muntin.core.checks import check_size
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.parts import Text, ToolCall, compact_json
from muntin.core.planning.cut import Keep, longest
from muntin.core.planning.limits import ratio_of
from muntin.errors import InvalidInput, InvalidType

Level: TypeAlias = Literal["full", "short", "stub"]
# No result is cut to less by a ceiling, nor the newest one by anything.
LEAST = 64
# Arguments of a call up to so many tokens are left alone by a stub.
_ARGUMENTS = 64
# So much of a long value in arguments stays.
_VALUE = 40
_KEEPS: tuple[Keep, ...] = get_args(Keep)


@dataclass(frozen=True, slots=True)
class Results:
    """How much of the window one tool result may have.

    A longer one shows its beginning and its end, or the one of them that `keep` names, and a line
    that says how much is missing. No result of at most 64 tokens is cut.
    """

    max_ratio: float = 0.25
    keep: tuple[Keep, ...] = ("head", "tail")

    def __post_init__(self) -> None:
        ratio = self.max_ratio
        if not isinstance(ratio, int | float) or isinstance(ratio, bool):
            raise InvalidType(f"Results.max_ratio must be a number, not {ratio!r}")
        if not 0 < ratio <= 1:  # NaN is not
            raise InvalidInput(f"Results.max_ratio must be above 0 and up to 1, got {ratio!r}")
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
            raise InvalidInput(f"Ladder.stubs must be True or False, not {self.stubs!r}")


def _check_keep(keep: object) -> None:
    names = ", ".join(repr(each) for each in _KEEPS)
    if not isinstance(keep, Sequence) or isinstance(keep, str):
        raise InvalidType(f"Results.keep must be a tuple of {names}, not {keep!r}")
    if not keep or len(set(keep)) < len(keep) or any(each not in _KEEPS for each in keep):
        raise InvalidInput(f"Results.keep takes {names}, each at most once, got {keep!r}")


BOTH: tuple[Keep, ...] = ("head", "tail")


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of messages for one counter.

    `loads` says that the agent has the tool `load_result`, so that a line may name it.
    """

    counter: Counter
    loads: bool = False

    def result(self, message: Message, most: int, keep: tuple[Keep, ...] = BOTH) -> Message:
        """Return a result with at most `most` tokens of content, or as it is if it is no longer."""
        if self.content_tokens(message) <= most:
            return message
        known = self.counter.forms.get(key := ("result", message, most, keep, self.loads))
        if known is None:
            known = self._cut(message, most, keep)
            self.counter.forms.put(key, known, len(message.text) + len(known.text))
        return known

    def _cut(self, message: Message, most: int, keep: tuple[Keep, ...]) -> Message:
        text, size = message.text, self.content_tokens(message)
        others = isinstance(message.content, tuple) and any(
            not isinstance(part, Text) for part in message.content
        )
        plain = replace(message, content=text, attachments=())
        if (message.attachments or others) and self.counter.text(text) <= most:
            # What is no text went first; the line says so, if there is room for it.
            whole = f"{text}\n{self._line(message, size - self.counter.text(text))}".lstrip("\n")
            return replace(plain, content=whole if self.counter.text(whole) <= most else text)

        def shown(kept: int) -> str:
            head, tail = _ends(text, kept, keep)
            left = size - self.counter.text_once(head + tail)
            return "\n".join(p for p in (head, self._line(message, max(left, 1)), tail) if p)

        return replace(plain, content=_largest(text, most, shown, self.counter.text_once))

    def _line(self, message: Message, tokens: int) -> str:
        return f"[{tokens:,} tokens left out{self._how(message)}]"

    def _how(self, message: Message) -> str:
        return f"; load_result({message.tool_call_id!r}) reads them" if self.loads else ""

    def content_tokens(self, message: Message) -> int:
        """Return what the content of a message costs."""
        return self.counter.message(message) - self.counter.overhead

    def stub(self, message: Message, name: str) -> Message:
        """Return a result as one line, or as it is if that is no shorter."""
        size = self.content_tokens(message)
        line = f"[{name}: {size:,} tokens, left out{self._how(message)}]"
        if self.counter.text(line) >= size:
            return message
        return replace(message, content=line, attachments=())

    def calls(self, message: Message) -> Message:
        """Return a message with long arguments of its calls shortened."""
        calls = tuple([self._call(call) for call in message.tool_calls])
        return message if calls == message.tool_calls else replace(message, tool_calls=calls)

    def _call(self, call: ToolCall) -> ToolCall:
        if self.counter.text(call.arguments) <= _ARGUMENTS:
            return call
        try:
            given = json.loads(call.arguments)
        except ValueError:
            given = None
        shown: Any = {"left_out": f"{self.counter.text(call.arguments):,} tokens"}
        if isinstance(given, dict):
            short = {key: self._value(value) for key, value in given.items()}
            if self.counter.text(compact_json(short)) < self.counter.text(call.arguments):
                shown = short
        return replace(call, arguments=compact_json(shown))

    def _value(self, value: Any) -> Any:
        """Return a value of arguments, shortened if it is long."""
        text = value if isinstance(value, str) else compact_json(value)
        if len(text) <= 2 * _VALUE:
            return value
        return f"{text[:_VALUE]} [{len(text) - _VALUE:,} characters left out]"


def group_at(
    forms: Forms, level: Level, rules: Ladder, messages: tuple[Message, ...]
) -> tuple[Message, ...]:
    """Return the messages of a group of calls and results at a level."""
    if level == "full":
        return messages
    names = {call.id: call.name for each in messages for call in each.tool_calls}
    made = []
    for each in messages:
        if each.tool_call_id is not None:
            if level == "short":
                each = forms.result(each, rules.short_tokens)
            else:
                each = forms.stub(each, names.get(each.tool_call_id, "result"))
        elif level == "stub" and each.tool_calls:
            each = forms.calls(each)
        made.append(each)
    return tuple(made)


def _ends(text: str, kept: int, keep: tuple[Keep, ...]) -> tuple[str, str]:
    """Return so many characters of a text: from its beginning, its end, or both."""
    if keep == ("head",):
        return _whole_elements(text[:kept]), ""
    if keep == ("tail",):
        return "", text[len(text) - kept :]
    tail = kept // 3  # the beginning says what it is, the end how it came out
    return _whole_elements(text[: kept - tail]), text[len(text) - tail :] if tail else ""


def _largest(text: str, most: int, shown: Callable[[int], str], count: Callable[[str], int]) -> str:
    """Return the form with the most characters of a text that has at most so many tokens."""
    low, high = 0, len(text)
    best = shown(0)
    # The first guess is in proportion; then halves.
    guess = max(1, len(text) * most // max(1, count(text)))
    while low < high - 1:
        middle = min(max(guess, low + 1), high - 1)
        made = shown(middle)
        if count(made) <= most:
            low, best = middle, made
        else:
            high = middle
        guess = (low + high) // 2
    return best


def _whole_elements(head: str) -> str:
    """Return the beginning of a JSON text up to the end of an element, if one is near; any other
    text as it is."""
    if head[:1] not in ("[", "{"):
        return head
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
    near = [at for _, at in sorted(last.items()) if at >= len(head) // 2]
    return head[: near[0]] if near else head
