"""The offer: what every request of a conversation says about tools.

A function of the declaration, the budget and the counter, never of the messages: `tools` keeps its
bytes, whatever was found. Tools of toolboxes are all declared if they fit, else they are found by
`find_tools`, and an index in a system text says what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, Literal, TypeAlias

from muntin.core.checks import check_size, compact_json, shown
from muntin.core.counting.counter import Counter
from muntin.core.message import Message
from muntin.core.schemas import Schemas, is_deferred
from muntin.core.tool_marks import CALL, FIND
from muntin.core.toolboxes.catalogue import Catalogue
from muntin.core.toolboxes.rungs import BoxedTool
from muntin.core.toolboxes.words import first_sentence
from muntin.errors import InvalidInput, InvalidType

# Lines, the fullest form of the index, may take this share of the limit.
_LINES_SHARE = 0.5
_ABOUT_CHARACTERS = 90

IndexRung: TypeAlias = Literal["lines", "names", "boxes", "titles", "none"]
INDEX_RUNGS: tuple[IndexRung, ...] = ("lines", "names", "boxes", "titles", "none")
# How a found tool gets into a request: by a reference to its deferred declaration, as an item
# behind the result, or as text that `call_tool` runs.
Loading: TypeAlias = Literal["reference", "item", "text"]


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """When tools of toolboxes are searched: all of them are declared while they have at most
    `share` of the input budget and `most_tokens`."""

    share: float = 0.10
    most_tokens: int = 20_000

    def __post_init__(self) -> None:
        share = self.share
        if not isinstance(share, int | float) or isinstance(share, bool):
            raise InvalidType(f"ToolSearch.share must be a number, not {shown(share)}")
        if not 0 <= share <= 1:  # NaN is not
            raise InvalidInput(f"ToolSearch.share must be from 0 to 1, got {shown(share)}")
        check_size(self.most_tokens, "ToolSearch.most_tokens")

    def limit(self, budget: int) -> int:
        """Return how many tokens the tools of toolboxes, or their index, may have."""
        return min(int(self.share * budget), self.most_tokens)


_FIND_SCHEMA = {
    "type": "function",
    "function": {
        "name": FIND,
        "description": "Load tools that are not in your list. Give exact names from the index, or "
        "say in a few words what you need, one need a line.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
    },
}
_CALL_SCHEMA = {
    "type": "function",
    "function": {
        "name": CALL,
        "description": f"Run a tool that {FIND} loaded.",
        "parameters": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name", "arguments"],
        },
    },
}


class ToolOffer(Schemas):
    """The schemas that every request declares, and what else is known of tools.

    With `is_search` the model finds tools by `find_tools`; `index_text` says what there is, at
    `rung`. `budget` is the input budget of the interface.
    """

    catalogue: Catalogue
    is_search: bool
    index_text: str
    rung: IndexRung
    loading: Loading
    budget: int
    _counter: Counter
    _search: ToolSearch | None

    @classmethod
    def make(
        cls,
        own: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        catalogue: Catalogue,
        *,
        budget: int,
        counter: Counter,
        search: ToolSearch | None,
        loading: Loading = "text",
    ) -> ToolOffer:
        """Decide what is declared. `own` are schemas that were given directly, `tools` those of
        toolboxes, as they were given; the catalogue knows all of both."""
        limit = 0 if search is None else search.limit(budget)
        boxed = [(schema, catalogue.by_name[_name(schema)]) for schema in tools]
        not_pinned = [schema for schema, tool in boxed if not tool.is_pinned]
        fits = search is None or counter.tools(Schemas.of(not_pinned)) <= limit
        if fits:
            offer = cls(sorted(Schemas.of((*own, *tools)), key=_name))
            return offer._complete(catalogue, counter, search, loading, budget, "", "none")
        pinned = [schema for schema, tool in boxed if tool.is_pinned]
        declared = [*own, *pinned, _FIND_SCHEMA, *([_CALL_SCHEMA] if loading == "text" else [])]
        for schema in (*own, *tools):
            if _name(schema) in (FIND, CALL):
                raise InvalidInput(
                    f"a tool is called {_name(schema)!r}: while tools are searched, Muntin's own "
                    "tool has this name; rename it, or give tool_search=False"
                )
        schemas = sorted(Schemas.of(declared), key=_name)
        if loading == "reference":
            full = [catalogue.by_name[_name(schema)].at("full") for schema in not_pinned]
            schemas += sorted(map(deferred, full), key=_name)
        listed = [catalogue.by_name[_name(schema)] for schema in not_pinned]
        offer = cls(schemas)
        for rung in INDEX_RUNGS:
            index = write_index(listed, catalogue.about, rung)
            most = limit * _LINES_SHARE if rung == "lines" else limit
            if not index or counter.text(index) <= most:
                break
        return offer._complete(
            catalogue, counter, search, loading, budget, index, rung, is_search=True
        )

    def _complete(
        self,
        catalogue: Catalogue,
        counter: Counter,
        search: ToolSearch | None,
        loading: Loading,
        budget: int,
        index: str,
        rung: IndexRung,
        *,
        is_search: bool = False,
    ) -> ToolOffer:
        self.catalogue, self.loading, self.budget = catalogue, loading, budget
        self.index_text, self.rung, self.is_search = index, rung, is_search
        self._counter, self._search = counter, search
        return self

    def size_of(self, declaration: Mapping[str, Any]) -> int:
        """Return the tokens of a declaration."""
        plain = {key: declaration.get(key) for key in ("name", "description", "parameters")}
        return self._counter.overhead + self._counter.text(compact_json(plain))

    @property
    def limit(self) -> int:
        """What toolboxes may take."""
        return 0 if self._search is None else self._search.limit(self.budget)

    @cached_property
    def by_name(self) -> Schemas:
        """The schemas in the order of their names, which they have: deferred ones come last."""
        return self

    @cached_property
    def declared(self) -> frozenset[str]:
        """The names of the tools that the model sees in every request."""
        return frozenset(_name(schema) for schema in self if not is_deferred(schema))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The tokens of each tool in full, by name."""
        return {tool.name: self.size_of(tool.at("full")) for tool in self.catalogue.tools}

    @property
    def fits_with(self) -> int | None:
        """The input budget at which all tools would be declared; None if there is none."""
        search = self._search
        boxed = [tool for tool in self.catalogue.tools if tool.box and not tool.is_pinned]
        total = sum([self.sizes[tool.name] for tool in boxed])
        if search is None or not search.share or total > search.most_tokens:
            return None
        return ceil(total / search.share)

    @cached_property
    def listed(self) -> tuple[BoxedTool, ...]:
        """The tools that are found, not declared."""
        tools = self.catalogue.tools
        return tuple(tool for tool in tools if tool.name not in self.declared)

    @cached_property
    def index_messages(self) -> tuple[Message, ...]:
        """The index as a message, if there is one."""
        return (Message("system", self.index_text),) if self.index_text else ()

    @property
    def words(self) -> str:
        """What the index says, for the report."""
        boxes = {tool.box for tool in self.listed}
        what = "first lines" if self.rung == "lines" else self.rung
        about = f"{what} of " if self.rung != "none" else ""
        plural = "" if len(boxes) == 1 else "es"
        return f"{about}{len(self.listed):,} tools in {len(boxes):,} toolbox{plural}"


def deferred(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a declaration that the model does not see until a reference names it."""
    return {
        "name": declaration["name"],
        "description": declaration["description"],
        "input_schema": declaration["parameters"],
        "defer_loading": True,
    }


def write_index(tools: Iterable[BoxedTool], about: Mapping[str, str], rung: IndexRung) -> str:
    """Return the text that says which tools can be loaded, box by box, sorted by name."""
    if rung == "none":
        return ""
    boxes: dict[str, list[BoxedTool]] = {}
    for tool in tools:
        boxes.setdefault(tool.box, []).append(tool)
    lines = [f"More tools can be loaded with {FIND}: by exact names, or by saying what you need."]
    for name in sorted(boxes):
        inside = sorted(boxes[name], key=lambda tool: tool.name)
        lines += _box_lines(name, inside, about.get(name, ""), rung)
    return "\n".join(lines) if boxes else ""


def _box_lines(name: str, tools: Sequence[BoxedTool], about: str, rung: IndexRung) -> Iterator[str]:
    if rung == "lines":
        yield f"{name}:"
        yield from (f"  {tool.line}" for tool in tools)
    elif rung == "names":
        yield f"{name}: {', '.join(tool.name for tool in tools)}"
    elif rung == "boxes":
        words = first_sentence(about, _ABOUT_CHARACTERS)
        yield f"{name} ({len(tools)} tools){': ' if words else ''}{words}"
    else:
        yield f"{name} ({len(tools)})"


def _name(schema: Mapping[str, Any]) -> str:
    function = schema.get("function")
    return str((function if isinstance(function, Mapping) else schema).get("name") or "")
