"""Templates: the sandbox in which the Liquid of a prompt file runs.

Owns what a template may see (fields, never attributes or calls), where it may read (the files
beside it, at load), what it may cost, and that every error names file and line. Imports
python-liquid at the top, so this module is imported late.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any, TextIO, cast
from uuid import UUID

from liquid import (
    BoundTemplate,
    Environment,
    Expression,
    Node,
    RenderContext,
    StrictUndefined,
    Tag,
    Token,
    TokenStream,
)
from liquid.builtin.expressions import BooleanExpression, FilteredExpression, StringLiteral
from liquid.builtin.expressions import Path as Variable
from liquid.builtin.expressions.primitive import RangeLiteral
from liquid.exceptions import FilterError, LiquidError, ResourceLimitError, UndefinedError
from liquid.utils import ReadOnlyChainMap
from pydantic import BaseModel

from muntin.core.checks import has_surrogates
from muntin.core.tags.tree import normalize_tag_name
from muntin.errors import PromptFileError

# Limits of one section: iterations of all its loops together, and how many iterations a partial
# counts as (it takes about ten times as long); characters of its output; characters it writes or
# sends through filters; bits of a number in a filter.
LOOPS = 100_000
PARTIAL = 10
OUTPUT = 10_000_000
WORK = 100_000_000
BITS = 4_096

# An output or a tag, also if it is never closed.
_EXPRESSION = re.compile(r"\{[{%].*?(?:[}%]\}|\Z)", re.DOTALL)
_BRACKET = re.compile(r"[][(){}]")

_PLAIN = (str, int, float, Decimal, date, time, timedelta, UUID)


class Sandbox(Environment):
    """The templates of one prompt file: its sections and the partials beside it."""

    loop_iteration_limit = LOOPS
    output_stream_limit = OUTPUT
    local_namespace_limit = 2 * OUTPUT

    def __init__(self, folder: Path, max_bytes: int, max_depth: int) -> None:
        super().__init__(undefined=StrictUndefined)
        self.folder = folder
        self.max_bytes, self.max_depth = max_bytes, max_depth
        self.places: list[tuple[str, Path, int]] = []
        self.partials: dict[str, BoundTemplate] = {}
        # Places where a variable may be undefined: operands of conditions, and before `default`.
        self.excused: set[Token] = set()
        self.tags = {name: _LocatedTag(tag) for name, tag in self.tags.items()}
        self.add_filter("date", _date)
        self.add_filter("json", _json)

    def load(self, source: str, file: Path, line: int) -> BoundTemplate:
        """Parse `source`, which begins at `line` of `file`, and the partials it names."""
        self.places.append((source, file, line))
        for match in _EXPRESSION.finditer(source):
            first = line + source.count("\n", 0, match.start())
            check_depth(match[0], file, first, self.max_depth)
        try:
            template = self.from_string(source, name=file.name)
            for node in _nodes(template):
                for top in node.expressions():
                    for expression in _inside(top):
                        self._check(expression, isinstance(top, BooleanExpression))
                if node.partial_scope() is not None:
                    self._load_partial(getattr(node, "name", None), node.token)
        except LiquidError as error:
            raise self.located(error, file, line) from error
        return template

    def run(
        self, template: BoundTemplate, file: Path, line: int, values: Mapping[str, object]
    ) -> str:
        """Render the section at `line` of `file`; a value of None counts as undefined."""
        try:
            variables = {name: _view(value) for name, value in values.items() if value is not None}
            context = _Context(template, globals=variables)
            output = context.get_buffer()
            template.render_with_context(context, output)
        except LiquidError as error:
            raise self.located(error, file, line) from error
        except RecursionError as error:
            reason = "a value is nested too deeply to be written, or holds itself"
            raise PromptFileError(str(file), line, reason) from error
        except Exception as error:  # an object of the caller's raised when it was read
            reason = f"{type(error).__name__}: {error}"
            raise PromptFileError(str(file), line, reason) from error
        text = output.getvalue()
        if has_surrogates(text):  # from a value: the file itself is UTF-8
            reason = "a value has a lone surrogate, which no provider can carry; clean it first"
            raise PromptFileError(str(file), line, reason)
        return text

    def located(self, error: LiquidError, file: Path, line: int) -> PromptFileError:
        """Say in which file, on which line and why a template failed."""
        if error.token is not None:
            for source, at, first in self.places:
                if source is error.token.source:
                    file, line = at, first + source.count("\n", 0, error.token.start_index)
        return PromptFileError(str(file), line, str(error.message))

    def get_template(
        self, name: str, *, context: RenderContext | None = None, **_: Any
    ) -> BoundTemplate:
        """Return a partial; all partials were loaded with the file that names them."""
        if isinstance(context, _Context):
            context.raise_for_loop_limit(PARTIAL)
        return self.partials[name]

    def _check(self, expression: Expression, condition: bool) -> None:
        """Note where variables may be undefined, bound ranges, and refuse unknown filters."""
        if isinstance(expression, RangeLiteral):
            expression.stop = _RangeEnd(expression)
        if condition and isinstance(expression, Variable):
            self.excused.add(expression.token)
        if isinstance(expression, FilteredExpression) and expression.filters:
            if expression.filters[0].name == "default":
                self.excused.add(expression.left.token)
            for used in expression.filters:
                used.validate_filter_arguments(self)

    def _load_partial(self, quoted: Expression | None, token: Token) -> None:
        if not isinstance(quoted, StringLiteral):
            raise LiquidError("the name of a partial must be a quoted text", token=token)
        name = quoted.value
        if name in self.partials:
            return
        file = self._find(name)
        if file is None:
            raise LiquidError(f"no partial {name!r} beside this file", token=quoted.token)
        source = read(file, self.max_bytes).rstrip("\n")
        # Known before it is parsed: a partial may include itself.
        self.partials[name] = BoundTemplate(self, [], name=file.name)
        self.partials[name].nodes = self.load(source, file, 1).nodes

    def _find(self, name: str) -> Path | None:
        """Return the sibling file called `name`, with or without a suffix; never another file."""
        if not name or name in (".", "..") or any(mark in name for mark in "/\\:\0"):
            return None
        for file in (self.folder / f"{name}{ending}" for ending in ("", ".md", ".liquid")):
            if file.is_file() and file.resolve().parent == self.folder.resolve():
                return file
        return None


def read(file: Path, max_bytes: int) -> str:
    """Return the text of a file: UTF-8, with or without a byte order mark, any line ends."""
    try:
        with file.open("rb") as opened:
            data = opened.read(max_bytes + 1)
        if len(data) > max_bytes:
            reason = f"it is larger than {max_bytes:,} bytes; raise max_bytes if you trust it"
            raise PromptFileError(str(file), None, reason)
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except PromptFileError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise PromptFileError(str(file), None, f"cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PromptFileError(str(file), line, f"not UTF-8: {error.reason}") from error
    except ValueError as error:  # a path that is not valid
        raise PromptFileError(str(file), None, f"cannot be read: {error}") from error


def check_depth(source: str, file: Path, line: int, max_depth: int) -> None:
    """Refuse a text, which begins at `line` of `file`, with too many brackets inside each other.

    Parsing takes time that grows with the square of their depth.
    """
    depth = 0
    for bracket in _BRACKET.finditer(source):
        depth = depth + 1 if bracket[0] in "[({" else max(0, depth - 1)
        if depth > max_depth:
            line += source.count("\n", 0, bracket.start())
            reason = f"brackets nested more than {max_depth:,} levels deep (max_depth)"
            raise PromptFileError(str(file), line, reason)


class _LocatedTag(Tag):
    """A tag whose syntax errors name a line even when the text ended too soon."""

    def __init__(self, tag: Tag) -> None:
        super().__init__(tag.env)
        self.tag = tag

    def get_node(self, stream: TokenStream) -> Node:
        token = stream.current
        try:
            return self.tag.get_node(stream)
        except LiquidError as error:
            if error.token is None or error.token.start_index < 0:
                error.token = token
            raise

    def parse(self, stream: TokenStream) -> Node:
        return self.tag.parse(stream)


class _RangeEnd(Expression):
    """The end of a range, which cannot be longer than a loop may be.

    python-liquid has no limit for a range that is searched, reversed or entered far from its start.
    """

    def __init__(self, literal: RangeLiteral) -> None:
        super().__init__(literal.token)
        self.range = RangeLiteral(literal.token, literal.start, literal.stop)

    def evaluate(self, context: RenderContext) -> object:
        numbers = self.range.evaluate(context)
        if numbers.stop - numbers.start > LOOPS:
            raise ResourceLimitError(f"a range is longer than {LOOPS:,}", token=self.token)
        return self.range.stop.evaluate(context)

    def children(self) -> list[Expression]:
        return [self.range.stop]


class _Context(RenderContext):
    """One rendering: strict about names, blind to attributes, and metered."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Without the built-in `now` and `today`, so that the same input gives the same bytes.
        self.scope = ReadOnlyChainMap(self.locals, self.globals, self.counters)
        assert isinstance(self.env, Sandbox)
        self.excused = self.env.excused
        # python-liquid's own limit holds for nested loops only, not for one loop after another.
        self.spent = {"loops": 0, "work": 0}

    def copy(self, *args: Any, **options: Any) -> RenderContext:
        copied = super().copy(*args, **options)
        assert isinstance(copied, _Context)
        copied.spent = self.spent
        return copied

    def spend(self, what: str, amount: int, limit: int) -> None:
        self.spent[what] += amount
        if self.spent[what] > limit:
            unit = "iterations" if what == "loops" else "characters of work"
            raise ResourceLimitError(f"stopped after {limit:,} {unit}", token=None)

    def raise_for_loop_limit(self, length: int = 1) -> None:
        self.spend("loops", length, LOOPS)

    def get_buffer(self, buf: TextIO | None = None) -> StringIO:
        return _Output(self)

    def get(self, path: list[object], *, token: Token | None, default: object = None) -> Any:
        try:
            value = self.scope[cast(str, path[0])]
            for key in path[1:]:
                value = self.get_item(value, key)
        except (KeyError, IndexError, TypeError):
            if token in self.excused:
                return None
            name = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in path)
            raise UndefinedError(f"{name.removeprefix('.')} is undefined", token=token) from None
        except LiquidError as error:
            error.token = error.token or token
            raise
        return value

    def filter(self, name: str, token: Token | None) -> Callable[..., object]:
        function = super().filter(name, token)

        def bounded(*args: object, **options: object) -> object:
            try:
                self.spend("work", _cost(name, args), WORK)
                return function(*args, **options)
            except LiquidError as error:
                error.token = error.token or token
                raise
            except Exception as error:
                raise FilterError(f"{name}: {error}", token=token) from error

        return bounded


class _Output(StringIO):
    """The output of a section or a capture, counted."""

    def __init__(self, context: _Context) -> None:
        super().__init__()
        self.context = context
        self.size = 0

    def write(self, text: str, /) -> int:
        self.size += len(text)
        if self.size > OUTPUT:
            raise ResourceLimitError(f"stopped after {OUTPUT:,} characters", token=None)
        self.context.spend("work", len(text), WORK)
        return super().write(text)


class Fields(Mapping[Any, object]):
    """The fields of a mapping, dataclass or Pydantic model, read when a template needs them."""

    def __init__(self, names: Iterable[Any], read: Callable[[Any], object]) -> None:
        self._names = dict.fromkeys(names)
        self._read = read
        self._seen: dict[Any, object] = {}

    def __getitem__(self, key: Any) -> object:
        if key not in self._seen:
            if key not in self._names:
                raise KeyError(key)
            self._seen[key] = _view(self._read(key))
        return self._seen[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __str__(self) -> str:
        return _json(self)


class Tags(Fields):
    """Tag names and their inner texts; names may be in camel, snake or kebab case."""

    def __init__(self, context: Mapping[str, str]) -> None:
        filled = {normalize_tag_name(name): text for name, text in context.items() if text}
        super().__init__(filled, filled.__getitem__)

    def __getitem__(self, key: Any) -> object:
        return super().__getitem__(normalize_tag_name(key) if isinstance(key, str) else key)


def _view(value: object) -> object:
    """Return a value as a template sees it; a value it may not see is an error."""
    if isinstance(value, Enum):
        return _view(value.value)
    if value is None or isinstance(value, (*_PLAIN, Fields)):
        return value
    if isinstance(value, list | tuple):
        return [_view(item) for item in value]
    names: Iterable[Any]
    if isinstance(value, Mapping):
        # An empty mapping as a dict: Liquid knows that a dict can be empty.
        return Fields(value, value.__getitem__) if value else {}
    if isinstance(value, BaseModel):
        names = [*type(value).model_fields, *(value.model_extra or ())]
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
    else:
        raise LiquidError(
            f"a template cannot read a {type(value).__name__}: it reads texts, numbers, dates, "
            "lists, mappings and the fields of dataclasses and Pydantic models",
            token=None,
        )
    return Fields(
        (name for name in names if not name.startswith("_")), lambda name: getattr(value, name)
    )


def _nodes(template: BoundTemplate) -> Iterator[Node]:
    context = RenderContext(template)
    waiting = list(template.nodes)
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children(context, include_partials=False))


def _inside(expression: Expression) -> Iterator[Expression]:
    waiting = [expression]
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting.extend(expression.children())


def _cost(name: str, args: tuple[object, ...]) -> int:
    """Return about how many characters a filter will read and write."""
    if any(isinstance(arg, int) and arg.bit_length() > BITS for arg in args):
        raise ResourceLimitError(f"a number has more than {BITS:,} bits", token=None)
    cost = sum(map(_size, args))
    if name == "uniq" and isinstance(args[0], list | range):
        return cost + len(args[0]) ** 2
    if name == "replace" and len(args) > 2:
        return cost + str(args[0]).count(str(args[1])) * _size(args[2])
    if name == "join" and len(args) > 1 and isinstance(args[0], list | range):
        return cost + len(args[0]) * _size(args[1])
    return cost


def _size(value: object) -> int:
    if isinstance(value, list):
        return len(value) + sum(map(_size, value))
    return len(value) if isinstance(value, str | range) else 1


def _date(value: object, form: object) -> str:
    """Write a date; python-liquid's own filter would read the clock and the time zone."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, date) or not isinstance(form, str):
        raise TypeError("takes a date, or its ISO text, and a format")
    return value.strftime(form)


def _json(value: object) -> str:
    return json.dumps(
        value,
        ensure_ascii=False,
        default=lambda other: dict(other) if isinstance(other, Mapping) else str(other),
    )
