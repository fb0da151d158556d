"""Toolboxes: named lists of tools that a model finds when it needs them.

Owns what a toolbox may hold, and how the tools of an interface become the offer of its requests.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, cast

from muntin.calls import off_loop
from muntin.core.checks import check_text, shown
from muntin.core.counting.counter import Counter
from muntin.core.schemas import Schemas
from muntin.core.tool_marks import ToolSource
from muntin.core.toolboxes.catalogue import Catalogue
from muntin.core.toolboxes.offer import Loading, ToolOffer, ToolSearch
from muntin.core.toolboxes.rungs import BoxedTool, as_boxed_tool
from muntin.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from muntin.agent.tools import ToolLike, Tools

ToolSearchLike: TypeAlias = ToolSearch | bool | Literal["inherit"] | None


@dataclass(frozen=True, slots=True, eq=False)
class Toolbox(ToolSource):
    """A named list of tools: all of them are declared while they fit, else the model finds them.

    `tools` are functions, `Tool`s and schemas, or a function that returns them, sync or async,
    which is asked once a turn. `about` says in a sentence what they are for. The `pinned` tools are
    always declared. `prefix` is put before every name.
    """

    name: str
    tools: Sequence[ToolLike] | Callable[[], Any]
    about: str = field(default="", kw_only=True)
    pinned: Sequence[str] = field(default=(), kw_only=True)
    prefix: str = field(default="", kw_only=True)
    # The tools under their names; None if they are asked for.
    _listed: ListedBox | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not check_text(self.name, "Toolbox: name").strip() or "\n" in self.name:
            raise InvalidInput(f"Toolbox: a name is a line of text, not {shown(self.name)}")
        for option in ("about", "prefix"):
            check_text(getattr(self, option), f"{self.what}: {option}")
        if isinstance(self.pinned, str) or not isinstance(self.pinned, Iterable):
            raise InvalidType(f"{self.what}: pinned must be a list of names")
        object.__setattr__(self, "pinned", tuple(self.pinned))
        if not callable(self.tools):
            object.__setattr__(self, "_listed", self._list(self.tools))

    @classmethod
    def from_mcp(
        cls,
        session: Any,
        *,
        name: str | None = None,
        about: str = "",
        pinned: Sequence[str] = (),
        prefix: str = "",
    ) -> Toolbox:
        """Return the toolbox of an MCP server, whose list is asked once a turn.

        `session` is a session of the official SDK, or a function, sync or async, that returns the
        one that is open now, so that a server may come back. While it does not answer, its tools
        are those that it listed last. Without `name` and `about`, the server's own are taken.
        """
        from muntin.agent.mcp_tools import McpTools, identity

        tools = McpTools(session)
        name, about = identity(session, name, about)
        return cls(name, tools, about=about, pinned=pinned, prefix=prefix)

    @property
    def what(self) -> str:
        """Its name in errors."""
        return f"toolbox {self.name!r}"

    async def ask(self) -> ListedBox:
        """Return the tools as they are now."""
        if self._listed is not None:
            return self._listed
        return self._list(await off_loop(self.tools))  # type: ignore[arg-type]

    def ask_now(self) -> ListedBox:
        """Do the same where nothing can be awaited."""
        if self._listed is not None:
            return self._listed
        tools = self.tools()  # type: ignore[operator]
        if isinstance(tools, Awaitable):
            if inspect.iscoroutine(tools):
                tools.close()
            raise InvalidInput(
                f"{self.what}: its tools are asked for by an async function, which Slots and fit "
                "cannot await; give it the list: Toolbox(name, await list_tools())"
            )
        return self._list(tools)

    def _list(self, tools: Any) -> ListedBox:
        from muntin.agent.tools import as_tools, tool_schema

        if isinstance(tools, Sequence) and any(isinstance(tool, Toolbox) for tool in tools):
            raise InvalidInput(f"{self.what}: a toolbox holds tools, not other toolboxes")
        functions = {}
        for name, tool in as_tools(tools, self.what).by_name.items():
            functions[f"{self.prefix}{name}"] = _renamed(tool, f"{self.prefix}{name}", self.prefix)
        schemas = as_tools(list(functions.values()), self.what).schemas
        missing = [name for name in self.pinned if name not in functions]
        missing = [name for name in missing if f"{self.prefix}{name}" not in functions]
        if missing and not callable(self.tools):
            raise InvalidInput(
                f"{self.what}: pinned names {missing[0]!r}, and none of its tools has this name"
            )
        pinned = {*self.pinned, *(f"{self.prefix}{name}" for name in self.pinned)}
        boxed = tuple(
            as_boxed_tool(tool_schema(tool), self.name, name in pinned)
            for name, tool in functions.items()
        )
        return ListedBox(self.name, self.about, functions, tuple(schemas), boxed)


@dataclass(frozen=True, slots=True, eq=False)
class ListedBox:
    """The tools of a toolbox at one time: to be run, to be declared, to be found."""

    name: str
    about: str
    functions: Mapping[str, ToolLike]
    schemas: tuple[Mapping[str, Any], ...]
    tools: tuple[BoxedTool, ...]


def _renamed(tool: ToolLike, name: str, prefix: str) -> ToolLike:
    """Return a tool under its name in the toolbox."""
    from muntin.agent.tools import Tool

    if not prefix:
        return tool
    if isinstance(tool, Tool):
        return replace(tool, name=name)
    if not isinstance(tool, Mapping):
        return Tool(cast("Callable[..., Any]", tool), name=name)
    function = tool.get("function")
    if isinstance(function, Mapping):
        return {**tool, "function": {**function, "name": name}}
    return {**tool, "name": name}


def as_tool_search(value: ToolSearchLike, what: str) -> ToolSearch | None:
    """Return when tools are searched: True is the library's own rule, False or None is never."""
    if isinstance(value, ToolSearch):
        return value
    if isinstance(value, bool | None):
        return ToolSearch() if value else None
    raise InvalidType(
        f"{what}: tool_search must be ToolSearch(...), True, False or None, not {shown(value)}"
    )


def offer_for_slots(
    tools: Sequence[Any],
    search: ToolSearchLike,
    *,
    budget: int,
    counter: Counter,
    loading: Loading,
) -> Schemas:
    """Return what the requests of `Slots` say of tools with toolboxes among them."""
    from muntin.agent.tools import as_tools

    return (
        as_tools(tools, "Slots")
        .offer_now(
            "Slots",
            budget=budget,
            counter=counter,
            search=as_tool_search(search, "Slots"),
            loading=loading,
        )
        .schemas
    )


class OfferOptions(TypedDict):
    """On what an offer depends beside the tools: the input budget, how tokens are counted, when
    tools are searched, and how a found tool gets into a request."""

    budget: int
    counter: Counter
    search: ToolSearch | None
    loading: Loading


def make_offer(
    tools: Tools, boxes: Sequence[ListedBox], what: str, **options: Unpack[OfferOptions]
) -> Tools:
    """Return tools with which a run answers every call, and whose schemas are the offer."""
    from muntin.agent.tools import Tools

    owners = dict.fromkeys(tools.by_name, "the interface's own list")
    by_name = dict(tools.by_name)
    for box in boxes:
        for name, function in box.functions.items():
            first = owners.setdefault(name, f"toolbox {box.name!r}")
            if name in by_name:
                raise InvalidInput(
                    f"{what}: {first} and toolbox {box.name!r} both have a tool {name!r}; give one "
                    f"of them names of its own: Toolbox({box.name!r}, ..., "
                    f'prefix="{box.name}_")'
                )
            by_name[name] = function
    offered = Tools(tools)
    offered.by_name = by_name
    offered.boxes = ()
    schemas = tuple(schema for box in boxes for schema in box.schemas)
    offered.schemas = ToolOffer.make(
        tools.schemas,
        schemas,
        _catalogue(tuple(_Key(tool) for tool in _all_tools(tools, boxes)), _about(boxes)),
        **options,
    )
    return offered


def _all_tools(tools: Tools, boxes: Sequence[ListedBox]) -> list[BoxedTool]:
    own = [as_boxed_tool(schema) for schema in tools.schemas]
    return [*own, *(tool for box in boxes for tool in box.tools)]


def _about(boxes: Sequence[ListedBox]) -> tuple[tuple[str, str], ...]:
    return tuple((box.name, box.about) for box in boxes)


class _Key:
    """A tool that is equal to another one that says the same."""

    __slots__ = ("digest", "tool")

    def __init__(self, tool: BoxedTool) -> None:
        self.tool, self.digest = tool, tool.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=32)  # made once for all turns, sessions and conversations
def _catalogue(keys: tuple[_Key, ...], about: tuple[tuple[str, str], ...]) -> Catalogue:
    return Catalogue([key.tool for key in keys], dict(about))
