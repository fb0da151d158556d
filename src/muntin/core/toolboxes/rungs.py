"""The declaration of a tool at three rungs: in full, lean and brief.

A rung leaves out words, never a path, a type, `required`, an enum or a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from muntin.core.checks import compact_json, copy_json, digest
from muntin.core.toolboxes.words import first_sentence

Rung: TypeAlias = Literal["full", "lean", "brief"]
RUNGS: tuple[Rung, ...] = ("full", "lean", "brief")

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
# Words in a schema, and keys whose keys are names of parameters or of definitions.
_WORDS = frozenset(
    {"description", "title", "$schema", "examples", "example", "default", "$comment"}
)
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
# Values that are data: nothing in them is a schema.
_DATA = frozenset({"enum", "const", "required", "dependentRequired"})


@dataclass(frozen=True, slots=True, eq=False)
class BoxedTool:
    """A tool as a toolbox lists it: name, text and the schema of its parameters.

    `box` is the name of the toolbox, empty for a tool that was given directly.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    box: str = ""
    is_pinned: bool = False

    def at(self, rung: Rung) -> dict[str, Any]:
        """Return the declaration at a rung."""
        is_full = rung == "full"
        description = first_sentence(self.description) if rung == "brief" else self.description
        parameters = self.parameters or _NO_PARAMETERS
        return {
            "name": self.name,
            "description": description,
            "parameters": copy_json(
                parameters if is_full else without_words(parameters), self.name, as_read=True
            ),
        }

    @property
    def line(self) -> str:
        """The tool in one line."""
        about = first_sentence(self.description)
        return f"{self.name}: {about}" if about else self.name

    @property
    def digest(self) -> str:
        """A digest of all that the tool says."""
        return digest(compact_json([self.box, self.is_pinned, self.at("full")]), 8)


def as_boxed_tool(schema: Mapping[str, Any], box: str = "", is_pinned: bool = False) -> BoxedTool:
    """Read a schema in the form of Chat Completions, Responses, Anthropic or MCP."""
    inner = schema.get("function")
    function: Mapping[str, Any] = inner if isinstance(inner, Mapping) else schema
    keys = ("parameters", "input_schema", "inputSchema")
    parameters: Any = next((function[key] for key in keys if function.get(key)), {})
    return BoxedTool(
        str(function.get("name") or ""),
        str(function.get("description") or ""),
        parameters if isinstance(parameters, Mapping) else {},
        box,
        is_pinned,
    )


def without_words(schema: Any) -> Any:
    """Return a schema without words; a parameter that is itself called `description` stays."""
    if isinstance(schema, list | tuple):
        return [without_words(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    structure = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            structure[key] = {name: without_words(item) for name, item in value.items()}
        elif key in _DATA:
            structure[key] = value
        elif key not in _WORDS:
            structure[key] = without_words(value)
    return structure
