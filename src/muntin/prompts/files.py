"""Prompt files: a prompt as a Markdown file with Liquid in it.

Owns the file's form (front matter, sections) and how its sections become texts. `templates` runs
the templates; it is imported late because it needs the extra `prompts`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from muntin.core.checks import check_count, check_text, shown
from muntin.errors import InvalidInput, InvalidType, PromptFileError, needing

if TYPE_CHECKING:
    from liquid import BoundTemplate

    from muntin.prompts.liquid import Sandbox

SECTIONS = ("system", "user", "context")

# What the value of each key of the front matter must be.
_KEYS = {
    "name": "a text",
    "description": "a text",
    "intent": "a text",
    "model": "a text",
    "caching": "true, false or a text",
    "max_tokens": "a whole number above 0",
    "temperature": "a number, 0 or above",
}
# How many characters of YAML's message are shown: it may repeat a value.
_REASON = 300
_OPENING = re.compile(rf"([ \t]*)<({'|'.join(SECTIONS)})>")


@dataclass(frozen=True, slots=True)
class RenderedTexts:
    """The texts of a prompt; `user` is None if the file has no such section.

    `system` is `section` and `block` (the context), with a blank line between them.
    """

    system: str
    user: str | None = None
    section: str = field(default="", compare=False)
    block: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class PromptFile:
    """A prompt file, read and checked; `config` is its front matter."""

    path: Path
    config: Mapping[str, Any]
    _templates: Mapping[str, tuple[BoundTemplate, int]] = field(repr=False)
    _sandbox: Sandbox = field(repr=False)

    @property
    def sections(self) -> tuple[str, ...]:
        """The names of the file's sections, in the order they stand in."""
        return tuple(self._templates)

    def render(
        self,
        input: object = None,
        *,
        ctx: object = None,
        context: Mapping[str, str] | None = None,
        block: str = "",
        config: Mapping[str, Any] | None = None,
    ) -> RenderedTexts:
        """Render every section, or raise `PromptFileError`.

        `input` and `ctx` are mappings, dataclasses or Pydantic models; `context` maps tag names
        to their escaped inner texts, which the template sees as `config.context`; `config` wins
        over the front matter. `block` is the whole tagged context, appended to the system text
        unless the file has a `<context>` section.
        """
        from muntin.prompts.liquid import Tags

        check_text(block, "block")
        for name, value in (("context", context), ("config", config)):
            if value is not None and not isinstance(value, Mapping):
                raise InvalidType(f"{name} must be a mapping or None, not {shown(value)}")
        if config and "context" in config:
            raise InvalidInput("config must not have the key 'context'; pass context= instead")
        values = {
            "input": input,
            "ctx": ctx,
            "config": {**self.config, **(config or {}), "context": Tags(context or {})},
        }
        texts = {
            name: self._sandbox.run(template, self.path, line, values)
            for name, (template, line) in self._templates.items()
        }
        if "context" in texts:
            body = texts["context"].strip("\n")
            block = f"<context>\n{body}\n</context>" if body.strip() else ""
        texts_of = (texts["system"].strip("\n"), block.strip("\n"))
        section, block = (text if text.strip() else "" for text in texts_of)
        system = "\n\n".join(part for part in (section, block) if part)
        return RenderedTexts(system, texts.get("user"), section, block)


def prompt_file(
    path: str | os.PathLike[str], *, max_bytes: int = 64 * 1024, max_depth: int = 100
) -> PromptFile:
    """Read a prompt file and check all of it: front matter, sections, Liquid, partials.

    The file and each partial have at most `max_bytes` bytes, and brackets at most `max_depth`
    levels deep.
    """
    with needing("prompt files need: pip install 'muntin[prompts]'"):
        import yaml  # noqa: F401  (used further down; a missing package is reported once, here)

        from muntin.prompts.liquid import Sandbox, read
    try:
        file = Path(path)
    except TypeError:
        raise InvalidType(
            f"the path of a prompt file must be a str or Path, not {shown(path)}"
        ) from None
    lines = read(file, check_count(max_bytes, "max_bytes")).split("\n")
    config, start = _front_matter(file, lines, check_count(max_depth, "max_depth"))
    sandbox = Sandbox(file.parent, max_bytes, max_depth)
    templates = {
        name: (sandbox.load(source, file, line), line)
        for name, (source, line) in _sections(file, lines, start).items()
    }
    return PromptFile(file, MappingProxyType(config), templates, sandbox)


def _front_matter(file: Path, lines: list[str], max_depth: int) -> tuple[dict[str, Any], int]:
    """Return the front matter, and the index of the line that follows it."""
    import yaml
    from yaml.constructor import SafeConstructor

    from muntin.prompts.liquid import check_depth

    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].strip() != "---":
        return {}, first
    last = next((i for i in range(first + 1, len(lines)) if lines[i].strip() == "---"), None)
    if last is None:
        raise PromptFileError(str(file), first + 1, "the front matter is never closed with ---")
    text = dedent("\n".join(lines[first + 1 : last]))
    line = first + 2
    check_depth(text, file, line, max_depth)
    data: dict[str, Any] = {}
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AliasToken | yaml.AnchorToken):
                # A few lines with aliases can mean more values than any memory holds.
                sign = "*" if isinstance(token, yaml.AliasToken) else "&"
                reason = f"{sign}{token.value[:40]}: no anchors and aliases; write the value out"
                raise PromptFileError(str(file), line + token.start_mark.line, reason)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(node, yaml.MappingNode | None):
            raise PromptFileError(str(file), line, "the front matter must be keys and values")
        for key, value in node.value if node else ():
            line = first + 2 + key.start_mark.line
            name = key.value
            if not isinstance(name, str) or name not in _KEYS:
                reason = f"unknown key {shown(name)} in the front matter; known: {', '.join(_KEYS)}"
                raise PromptFileError(str(file), line, reason)
            if name in data:
                reason = f"{name} stands twice in the front matter"
                raise PromptFileError(str(file), line, reason)
            data[name] = SafeConstructor().construct_document(value)
            if not _is_valid(name, data[name]):
                reason = f"{name} must be {_KEYS[name]}, not {shown(data[name])}"
                raise PromptFileError(str(file), line, reason)
    except PromptFileError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = first + 2 + mark.line if mark else line
        reason = str(getattr(error, "problem", None) or error)[:_REASON]
        raise PromptFileError(str(file), line, f"front matter: {reason}") from error
    except Exception as error:  # PyYAML passes on errors of dates and numbers
        reason = f"{type(error).__name__}: {error}"[:_REASON]
        raise PromptFileError(str(file), line, f"front matter: {reason}") from error
    return data, last + 1


def _is_valid(key: str, value: Any) -> bool:
    """Say whether a key of the front matter allows a value."""
    if key == "max_tokens":
        return type(value) is int and value > 0
    if key == "temperature":
        return type(value) in (int, float) and math.isfinite(value) and value >= 0
    if isinstance(value, str):
        return value.strip() != ""
    return key == "caching" and isinstance(value, bool)


def _sections(file: Path, lines: list[str], start: int) -> dict[str, tuple[str, int]]:
    """Divide the lines from `start` on into sections: source and first line."""
    sections: dict[str, tuple[str, int]] = {}
    number = start
    while number < len(lines):
        if not lines[number].strip():
            number += 1
            continue
        opening = _OPENING.match(lines[number])
        if opening is None:
            section_names = ", ".join(f"<{name}>" for name in SECTIONS)
            reason = f"text outside of the sections {section_names}: {lines[number].strip()[:40]!r}"
            raise PromptFileError(str(file), number + 1, reason)
        name = opening[2]
        if name in sections:
            raise PromptFileError(str(file), number + 1, f"<{name}> stands twice")
        sections[name], number = _section(file, lines, number, opening)
    if "system" not in sections:
        raise PromptFileError(str(file), None, "there is no <system> section")
    return sections


def _section(
    file: Path, lines: list[str], first: int, opening: re.Match[str]
) -> tuple[tuple[str, int], int]:
    """Return the section that opens on line `first`, and the index of the line behind it."""
    indent, name = opening[1], opening[2]
    closing = f"</{name}>"
    # With its indent, so that the first line has the same margin as the others.
    body = [indent + lines[first][opening.end() :]]
    number = first
    while not body[-1].rstrip().endswith(closing):
        number += 1
        if number == len(lines):
            raise PromptFileError(
                str(file), first + 1, f"<{name}> is never closed; {closing} must end a line"
            )
        inner = _OPENING.match(lines[number])
        if inner and len(inner[1]) <= len(indent):
            raise PromptFileError(
                str(file),
                number + 1,
                f"<{inner[2]}> opens inside <{name}>; close that first, "
                f"or write {{{{ '<{inner[2]}>' }}}} to mean the text",
            )
        body.append(lines[number])
    body[-1] = body[-1].rstrip().removesuffix(closing)
    filled = [i for i, line in enumerate(body) if line.strip()]
    if not filled:
        return ("", first + 1), number + 1
    source = dedent("\n".join(body[filled[0] : filled[-1] + 1]))
    return (source, first + filled[0] + 1), number + 1
