"""Context entries: durable facts beside a timeline, and how one is written for the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from muntin.core.checks import check_text, shown
from muntin.core.tags.tree import is_tag_name, validate_tag_name
from muntin.core.tags.xml import escape_text
from muntin.core.tags.xml import opening as opening_tag
from muntin.errors import InvalidInput, InvalidType
from muntin.timeline.items import Draft, Item, check_id

_TAKEN = ("id", "name")


def check_attrs(attrs: object, what: str) -> dict[str, str]:
    """Return checked attributes of a tag: names in their one form, values as texts."""
    if not isinstance(attrs, Mapping):
        raise InvalidType(f"{what}: attrs must be a mapping, not {shown(attrs)}")
    checked: dict[str, str] = {}
    for key, value in attrs.items():
        name = _attribute(key, what)
        if name in checked:
            raise InvalidInput(f"{what}: attrs has {name!r} twice")
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, int | float):
            value = str(value)
        checked[name] = check_text(value, f"{what}: attrs[{key!r}]")
    return checked


def _attribute(key: object, what: str) -> str:
    try:
        name = validate_tag_name(check_text(key, "a key"))
    except InvalidInput as error:
        raise type(error)(f"{what}: attrs: {error}") from error
    if name in _TAKEN:
        raise InvalidInput(f"{what}: attrs[{key!r}] is taken by the entry itself")
    return name


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """A text that stays in the window until it is replaced or removed.

    `inserted_at` is its position on the timeline. An entry that async code inserted is durable
    before the next step; its position is 0 until then, and `await` makes it durable at once.
    """

    id: str
    name: str
    content: str
    attrs: Mapping[str, str] = field(default_factory=dict, hash=False)
    inserted_at: int = 0
    # Makes the entry durable; None if it is durable already.
    written: Callable[[], Awaitable[ContextEntry]] | None = field(
        default=None, repr=False, compare=False
    )

    def __await__(self) -> Generator[Any, None, ContextEntry]:
        if self.written is None:
            return self
        return (yield from self.written().__await__())

    def render(self) -> str:
        """Return the entry as one element, escaped: its content cannot close its own tag."""
        opening, closing = self.frame()
        return f"{opening}{escape_text(self.content)}{closing}"

    def frame(self) -> tuple[str, str]:
        """Return the tags around the content."""
        attributes = {"id": self.id, "name": self.name, **self.attrs}
        return opening_tag("context-entry", attributes), "</context-entry>"


def inserted(
    id: str, name: str, content: str, attrs: Mapping[str, Any] | None, **fields: Any
) -> Draft:
    """Return the item that inserts an entry, or replaces the one with this id.

    `attrs` are written as attributes of its tag: numbers and booleans become texts.
    """
    check_id(id, "the id of a context entry")
    what = f"context entry {id!r}"
    payload: dict[str, Any] = {
        "id": id,
        "name": check_text(name, f"{what}: name"),
        "content": check_text(content, f"{what}: content"),
    }
    if attrs:
        payload["attrs"] = check_attrs(attrs, what)
    return Draft("context_inserted", payload=payload, **fields)


def removed(id: str, **fields: Any) -> Draft:
    """Return the item that removes an entry."""
    return Draft("context_removed", payload={"id": id}, **fields)


def entry_of(item: Item) -> ContextEntry:
    """Return the entry that an item inserted.

    Attributes with invalid names are left out: an older Muntin imported them.
    """
    data = item.payload
    attrs = {key: value for key, value in data.get("attrs", {}).items() if is_attribute(key)}
    return ContextEntry(data["id"], data["name"], data["content"], attrs, item.position)


def is_attribute(name: object) -> bool:
    """Say whether an attribute of an entry can have this name: it must neither end the tag nor be a
    name that the entry itself uses."""
    return is_tag_name(name) and name not in _TAKEN
