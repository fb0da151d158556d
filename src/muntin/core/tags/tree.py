"""Tagged context: named texts from many authors, merged into one list of tags.

Each author's tree is read once into flat steps, and merged tags are a flat list: nothing here
recurses, so trees nest without limit. Callables are kept for an interface to call and fill.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from muntin.core.checks import check_size, check_text, shown
from muntin.core.tags.xml import Raw, Share, Tag, inner_text, render
from muntin.errors import InvalidInput, InvalidType

# Models and frameworks read these names as protocol.
RESERVED_TAG_NAMES = frozenset({
    "active-skill", "thinking", "answer", "tool-use", "tool-result", "function-calls", "invoke",
    "parameter", "system", "user", "assistant", "role", "message",
})  # fmt: skip

_NAME = re.compile("[a-z][a-z0-9-]*")
# Between "r" and "I" of userID, between "L" and "P" of XMLParser, but not inside "IDs".
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")


def normalize_tag_name(name: str) -> str:
    """Return `name` in kebab-case, from camelCase, snake_case or kebab-case.

    A trailing underscore, which Python needs for a key like `class_`, is left out.
    """
    if not isinstance(name, str):
        raise InvalidType(f"a tag name must be a str, not {shown(name)}")
    return re.sub("[-_]+", "-", _HUMP.sub("-", name)).rstrip("-").lower()


def is_tag_name(name: object) -> bool:
    """Say whether `name` can stand in a tag unchanged."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def validate_tag_name(name: str) -> str:
    """Return the normalised `name`; raise if it is malformed or reserved."""
    tag = normalize_tag_name(name)
    if not _NAME.fullmatch(tag):
        raise InvalidInput(
            f"{shown(name)} is not a tag name; it must begin with a letter and may have letters, "
            "digits, hyphens and underscores"
        )
    if tag in RESERVED_TAG_NAMES:
        raise InvalidInput(f"the tag name {tag!r} is reserved; choose another")
    return tag


def raw(text: str) -> Raw:
    """Return `text` marked as trusted: it may hold tags of its own and is not escaped."""
    return Raw(check_text(text, "raw text"))


def xml_tag(name: str, content: object) -> str:
    """Render one tag with its content, by the rules of `render_tagged_context`."""
    return render_tagged_context({validate_tag_name(name): content})


def render_tagged_context(tree: object, indent: int = 0, escape: bool = True) -> str:
    """Render a tree of resolved values as XML tags; an empty tag is left out.

    `indent` is the number of spaces per level; `escape=False` renders all text unescaped.
    """
    return aggregate([contribute("", tree)]).render(indent, escape)


# --- One author's tree, as steps ---


@dataclass(frozen=True, slots=True)
class Call:
    """A callable found in a tree, and the key path for its result.

    It may also be an object of one of the types that `contribute` leaves to the interface.
    """

    path: str
    function: Any


@dataclass(frozen=True, slots=True)
class _OpenTag:
    name: str


@dataclass(frozen=True, slots=True)
class _CloseTag:
    pass


Step: TypeAlias = _OpenTag | _CloseTag | Call | str


@dataclass(frozen=True, slots=True)
class Contribution:
    """One author's part of the tagged context; made by `contribute`."""

    author: str
    steps: tuple[Step, ...]
    lazy: tuple[type, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The callables whose results are still missing, in order."""
        return tuple(step for step in self.steps if isinstance(step, Call))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its outermost tags."""
        return tuple(name for name, _ in self._outermost())

    def called(self, is_call: Callable[[Any], bool]) -> frozenset[str]:
        """Return the outermost tags that hold a call for which `is_call` is true."""
        return frozenset(
            name
            for name, step in self._outermost()
            if isinstance(step, Call) and is_call(step.function)
        )

    def _outermost(self) -> Iterator[tuple[str, Step]]:
        """Yield every step with its outermost tag."""
        depth, name = 0, ""
        for step in self.steps:
            if isinstance(step, _OpenTag):
                name = step.name if depth == 0 else name
                depth += 1
            elif isinstance(step, _CloseTag):
                depth -= 1
            yield name, step

    def fill(self, results: Iterable[object]) -> Contribution:
        """Return the contribution with each of its `calls` replaced by its result.

        A result follows the rules of any value, so it may bring new calls.
        """
        values = list(results)
        if len(values) != len(self.calls):
            raise InvalidInput(
                f"{len(self.calls)} results are needed{_by(self.author)}, got {len(values)}"
            )
        rest = iter(values)
        steps: list[Step] = []
        for step in self.steps:
            if isinstance(step, Call):
                steps.extend(_read(next(rest), self.author, step.path, self.lazy))
            else:
                steps.append(step)
        return Contribution(self.author, tuple(steps), self.lazy)


def contribute(author: str, tree: object, lazy: tuple[type, ...] = ()) -> Contribution:
    """Read an author's tree: a mapping, a dataclass, a model, or a list of them that merge.

    Names and values are checked at every depth, callables are noted as `calls`, and so are values
    of the types `lazy`. Later changes to the tree have no effect.
    """
    check_text(author, "the author")
    return Contribution(author, tuple(_read(tree, author, "", lazy)), lazy)


class _ValueAtPath(NamedTuple):
    """A value and its key path."""

    value: object
    path: str


class _LeaveContainer(NamedTuple):
    value: object


# The first type that fits decides. Subclasses become plain text; their `__str__` is not used.
_TEXTS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Raw, lambda value: value),
    (str, str.__str__),
    (bool, lambda value: "true" if value else "false"),
    (int, int.__repr__),
    (float, float.__repr__),
    (date, lambda value: value.isoformat()),
)


def _read(tree: object, author: str, base: str, lazy: tuple[type, ...]) -> Iterator[Step]:
    """Yield the steps of a tree, depth first."""
    inside: set[int] = set()
    todo: list[_ValueAtPath | _LeaveContainer | Step] = [_ValueAtPath(tree, base)]
    while todo:
        item = todo.pop()
        if isinstance(item, _LeaveContainer):
            inside.remove(id(item.value))
        elif not isinstance(item, _ValueAtPath):
            yield item
        elif isinstance(item.value, lazy):
            yield Call(item.path, item.value)
        elif isinstance(item.value, Enum):
            todo.append(_ValueAtPath(item.value.value, item.path))
        elif (parts := _parts(item, author)) is None:
            yield from _leaf(item, author)
        elif id(item.value) in inside:
            raise InvalidInput(f"{_place(item.path, author)} contains itself")
        else:
            inside.add(id(item.value))
            todo.append(_LeaveContainer(item.value))
            todo.extend(reversed(parts))


def _parts(at: _ValueAtPath, author: str) -> list[_ValueAtPath | Step] | None:
    """Return the parts of a list or of a value with fields; None for anything else."""
    value, path = at
    items = fields_of(value)
    if items is None:
        if getattr(type(value), "__pydantic_root_model__", False):
            return [_ValueAtPath(getattr(value, "root", None), path)]
        if isinstance(value, list | tuple):
            return [_ValueAtPath(part, f"{path}[{i}]") for i, part in enumerate(value)]
        return None
    parts: list[_ValueAtPath | Step] = []
    for key, part in items:
        here = f"{path}.{key}" if path else str(key)
        try:
            name = validate_tag_name(key)
        except InvalidInput as error:
            raise type(error)(f"{_place(here, author)}: {error}") from None
        parts += _OpenTag(name), _ValueAtPath(part, here), _CloseTag()
    return parts


def fields_of(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the named parts of a mapping, a dataclass, a Pydantic model or a named tuple.

    None if it is something else. Fields that a model excludes from its dump are left out.
    """
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        return [(spec.name, getattr(value, spec.name)) for spec in fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    # The core works without Pydantic, so a model is recognised by its attributes.
    declared = getattr(type(value), "model_fields", None)
    if not isinstance(declared, Mapping) or getattr(value, "__pydantic_root_model__", False):
        return None
    names = [name for name, info in declared.items() if not getattr(info, "exclude", None)]
    extra = getattr(value, "model_extra", None) or {}
    return [*((name, getattr(value, name)) for name in names), *extra.items()]


def _leaf(at: _ValueAtPath, author: str) -> Iterator[Step]:
    """Yield the text or call of a single value; nothing for None and empty text."""
    value, path = at
    if value is None:
        return
    for kind, text_of in _TEXTS:
        if isinstance(value, kind):
            try:
                text = text_of(value)
            except ValueError as error:  # an int of more digits than Python writes
                raise InvalidInput(f"{_place(path, author)}: {error}") from None
            if text:
                yield text
            return
    if not callable(value):
        raise InvalidType(
            f"{_place(path, author)}: cannot render type {type(value).__name__}; give "
            "text, a number, a bool, a date, a list, a mapping, a dataclass, a Pydantic model "
            "or None"
        )
    yield Call(path, value)


def _place(path: str, author: str) -> str:
    return (f"context key {path!r}" if path else "the context") + _by(author)


def _by(author: str) -> str:
    return f" from {author!r}" if author else ""


# --- Many authors' trees, as one ---


class Inner(Mapping[str, str]):
    """The inner text of each top-level tag, found by any spelling of its name."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)

    def __getitem__(self, name: str) -> str:
        return self._texts[normalize_tag_name(name) if isinstance(name, str) else name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"Inner({self._texts!r})"


@dataclass(frozen=True, slots=True)
class Tagged:
    """The merged tags in the order of rendering, and all authors in order."""

    tags: tuple[Tag, ...]
    authors: tuple[str, ...]

    def render(self, indent: int = 0, escape: bool = True) -> str:
        """Render the tags as one block, without a newline at its end; empty if there are none."""
        return render(self.tags, check_size(indent, "indent"), escape)

    def divided(self, names: Collection[str]) -> tuple[Tagged, Tagged]:
        """Return the outermost tags that have none of these names, and the others."""
        sides: tuple[list[Tag], list[Tag]] = [], []
        name = ""
        for tag in self.tags:
            name = name if tag.depth else tag.name
            sides[name in names].append(tag)
        return Tagged(tuple(sides[0]), self.authors), Tagged(tuple(sides[1]), self.authors)

    @property
    def provenance(self) -> dict[str, tuple[Share, ...]]:
        """The path of every leaf, as in `memory.short-term`, with the text of each author."""
        shares: dict[str, tuple[Share, ...]] = {}
        names: list[str] = []
        for tag in self.tags:
            names[tag.depth :] = [tag.name]
            if tag.shares:
                shares[".".join(names)] = tag.shares
        return shares

    def who(self, path: str) -> tuple[str, ...]:
        """Return the authors of texts in the tag at `path` or inside it, in author order."""
        wanted = ".".join(normalize_tag_name(name) for name in path.split("."))
        givers = {
            share.author
            for leaf, shares in self.provenance.items()
            if f"{leaf}.".startswith(f"{wanted}.")
            for share in shares
        }
        return tuple(author for author in self.authors if author in givers)

    @property
    def inner(self) -> Inner:
        """The inner text of each top-level tag, rendered and escaped."""
        groups: list[list[Tag]] = []
        for tag in self.tags:
            if not tag.depth:
                groups.append([])
            groups[-1].append(tag)
        return Inner(
            {
                tag.name: inner_text(tag, True) if tag.shares else render(rest, 0, True)
                for tag, *rest in groups
            }
        )


@dataclass(slots=True, eq=False)
class _Node:
    """A tag while trees are being merged."""

    name: str = ""
    shares: list[Share] = field(default_factory=list)
    children: dict[str, _Node] = field(default_factory=dict)
    nested_by: str = ""
    filled: bool = False


def aggregate(contributions: Iterable[Contribution]) -> Tagged:
    """Merge contributions: one tag for each name, at its first place, in author order."""
    if not isinstance(contributions, Iterable):
        raise InvalidType(f"cannot aggregate {shown(contributions)}; give a list of contributions")
    root = _Node()
    authors: dict[str, None] = {}
    for contribution in contributions:
        if not isinstance(contribution, Contribution):
            raise InvalidType(f"cannot aggregate {shown(contribution)}; make it with contribute()")
        authors[contribution.author] = None
        _merge(root, contribution)
    return Tagged(tuple(_tags(root)), tuple(authors))


def _merge(root: _Node, contribution: Contribution) -> None:
    author = contribution.author
    line = [root]
    for step in contribution.steps:
        node = line[-1]
        if isinstance(step, _CloseTag):
            line.pop()
        elif isinstance(step, _OpenTag):
            if node.shares:
                raise _mismatch(line, node.shares[0].author, author)
            if not node.children:
                node.nested_by = author
            line.append(node.children.setdefault(step.name, _Node(step.name)))
        elif isinstance(step, Call):
            raise InvalidType(f"{_place(step.path, author)} is a callable; resolve it first")
        elif node is root:
            raise InvalidType(f"the text {step[:40]!r}{_by(author)} has no tag; give it a key")
        elif node.children:
            raise _mismatch(line, author, node.nested_by)
        else:
            node.shares.append(Share(author, step))
            for above in reversed(line):
                if above.filled:
                    break
                above.filled = True


def _mismatch(line: list[_Node], text_by: str, nested_by: str) -> InvalidInput:
    path = ".".join(node.name for node in line[1:])
    return InvalidInput(
        f"context key {path!r} has both text{_by(text_by)} and nested tags{_by(nested_by)}; "
        "choose one of them"
    )


def _tags(root: _Node) -> Iterator[Tag]:
    """Yield the tags that have text somewhere inside, each parent before its children."""
    todo = [(0, node) for node in reversed(root.children.values())]
    while todo:
        depth, node = todo.pop()
        if node.filled:
            yield Tag(node.name, depth, tuple(node.shares))
            todo.extend((depth + 1, child) for child in reversed(node.children.values()))
