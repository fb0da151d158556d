"""Tags as text: the layout of an XML block, and the escaping that keeps content inside its tag.

Knows a flat list of tags, neither trees nor how they were merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Raw(str):
    """Text that is rendered unchanged, not escaped; made by `muntin.raw`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"raw({super().__repr__()})"


@dataclass(frozen=True, slots=True)
class Share:
    """One text in a tag, not yet escaped, and its author."""

    author: str
    text: str


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag to be rendered: a leaf with its shares; without shares, a parent of the next tags."""

    name: str
    depth: int
    shares: tuple[Share, ...]


def render(tags: Iterable[Tag], indent: int, escape: bool) -> str:
    """Render tags, each parent followed by its children, as lines of XML."""
    lines: list[str] = []
    parents: list[Tag] = []
    for tag in tags:
        lines.extend(_close(parents, tag.depth, indent))
        if tag.shares:
            lines.append(_block(tag, indent, escape))
        else:
            lines.append(f"{' ' * indent * tag.depth}<{tag.name}>")
            parents.append(tag)
    lines.extend(_close(parents, 0, indent))
    return "\n".join(lines)


def _close(parents: list[Tag], depth: int, indent: int) -> Iterator[str]:
    """Close the parents that a tag at `depth` is not inside of."""
    while parents and parents[-1].depth >= depth:
        tag = parents.pop()
        yield f"{' ' * indent * tag.depth}</{tag.name}>"


def _block(tag: Tag, indent: int, escape: bool) -> str:
    """Render a leaf: inline if nested and of one line, else between tags on their own lines."""
    pad, text = " " * indent * tag.depth, inner_text(tag, escape)
    if tag.depth and "\n" not in text:
        return f"{pad}<{tag.name}>{text}</{tag.name}>"
    if indent:
        inner = pad + " " * indent
        text = "\n".join(inner + line if line else line for line in text.split("\n"))
    return f"{pad}<{tag.name}>\n{text}\n{pad}</{tag.name}>"


def inner_text(tag: Tag, escape: bool) -> str:
    """Return the texts of a leaf as they are rendered, one below the other."""
    return "\n".join(
        escape_text(share.text) if escape and not isinstance(share.text, Raw) else share.text
        for share in tag.shares
    )


def block(name: str) -> tuple[str, str]:
    """Return the lines before and behind an escaped text that has lines of its own."""
    return f"<{name}>\n", f"\n</{name}>"


def element(name: str, attributes: Mapping[str, str], text: str) -> str:
    """Render one element with attributes, inline; its content cannot end it early."""
    return f"{opening(name, attributes)}{escape_text(text)}</{name}>"


def opening(name: str, attributes: Mapping[str, str]) -> str:
    """Render the opening tag of an element."""
    written = "".join(f' {key}="{_quote(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>"


# Characters that end a line: between quotes a reader would take them for spaces.
_LINE_ENDS = {ord(char): f"&#{ord(char)};" for char in "\n\r\x85\u2028\u2029"}


def _quote(text: str) -> str:
    """Escape a value between quotes."""
    return escape_text(text).replace('"', "&quot;").translate(_LINE_ENDS)


def escape_text(text: str) -> str:
    """Escape characters that could open or close a tag, and replace characters invalid in XML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _NOT_XML.sub("\ufffd", text)
