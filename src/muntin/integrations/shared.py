"""Shared by adapters: a hook with its Fitter, names of models, schemas of tools, items in parts.

Knows no framework.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from muntin.core.budget import Budget
from muntin.core.message import Message
from muntin.fitting import Fitted, Fitter, Piece, Pieces, Placed
from muntin.threads import in_thread

T = TypeVar("T")

Fits: TypeAlias = Fitter | Budget | int | None
"""The budget of a hook, or a `Fitter` that has more settings."""

Watcher: TypeAlias = Callable[[Fitted], object]
"""Called with every fitted request, before it is sent."""

# The words in the names of packages and providers by which frameworks name known providers.
_PROVIDERS = ("openai", "anthropic", "google")


def fitter_of(given: Fits) -> Fitter:
    """Return the Fitter of a hook."""
    return given if isinstance(given, Fitter) else Fitter(given)


def model_name(provider: str, name: object) -> str | None:
    """Return a model's name as Muntin writes it; None if its provider is not known.

    `provider` is any word that contains the provider's name, such as the name of a package.
    """
    known = next((each for each in _PROVIDERS if each in provider.lower()), None)
    return f"{known}/{name}" if known and isinstance(name, str) and name else None


def call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return a tool call in the form of Chat Completions."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


class Hook:
    """The common part of all hooks; it knows no framework.

    `budget` is the tokens of a request, instructions and tools included, or a `Fitter` with more
    settings. `model` names the model for counting; without it the request's model is used, if its
    maker is known. `on_fit` is called with every fitted request.
    """

    def __init__(
        self, budget: Fits = None, *, model: str | None = None, on_fit: Watcher | None = None
    ) -> None:
        super().__init__()  # of the framework's class, from which a hook inherits too
        self._fitter = fitter_of(budget)
        self._model = model
        self._on_fit = on_fit
        self._schemas = Schemas(self.schema)

    @staticmethod
    def schema(tool: Any) -> Mapping[str, Any]:
        """Describe a tool of the framework; a tool that is a schema already stays unchanged."""
        described: Mapping[str, Any] = tool
        return described

    @staticmethod
    def name_of(model: Any) -> str | None:
        """Return the name of a model of the framework, if its maker is known."""
        return None

    def fit(
        self, pieces: Sequence[Piece], tools: Sequence[Any], model: Any = None, **given: Any
    ) -> Fitted:
        """Return the messages of a request that are sent; `model` is passed to `name_of`."""
        fitted = self._fitter.fit(
            pieces,
            tools=self._schemas.of(tools),
            model=self._model or self._fitter.model or self.name_of(model),
            **given,
        )
        if self._on_fit is not None:
            self._on_fit(fitted)
        return fitted

    async def recorded(self, work: Callable[[], T]) -> T:
        """Do the work of an async hook; in a thread if it writes into a store."""
        return work() if self._fitter.recorder is None else await in_thread(work)


@dataclass(slots=True)
class Schemas:
    """The schemas of an agent's tools, made once for as long as the tools are the same objects."""

    make: Callable[[Any], Mapping[str, Any]]
    _made: tuple[Sequence[Any], list[Mapping[str, Any]]] = field(default=((), []))

    def of(self, tools: Sequence[Any]) -> list[Mapping[str, Any]]:
        """Return the schemas of tools."""
        known, schemas = self._made
        same = len(known) == len(tools)
        if not same or any(one is not other for one, other in zip(known, tools, strict=True)):
            known, schemas = list(tools), [self.make(tool) for tool in tools]
            self._made = known, schemas  # one assignment: at worst two threads both make it
        return schemas


# Items that are several messages, because each result in them is one message.


def parted(
    items: Sequence[Any],
    count: Callable[[Any], int],
    read: Callable[[Any, int], Sequence[Piece]],
) -> Pieces:
    """Return the pieces of items, some of which are several pieces: their references are pairs of
    the item's number and the adapter's own key of the part."""
    several = {number: size for number, item in enumerate(items) if (size := count(item)) > 1}
    return Pieces(items, read, several=several)


def rejoined(
    items: Sequence[Any],
    placed: Sequence[Placed],
    count: Callable[[Any], int],
    *,
    added: Callable[[Message], Any],
    changed: Callable[[Any, Sequence[Placed]], Sequence[Any]],
) -> list[Any]:
    """Return the items that are sent; an unchanged item is the same object."""
    found: list[Any] = []
    for number, several in groupby(placed, lambda each: each.ref and each.ref[0]):
        group = list(several)
        if number is None:
            found += [added(each.message) for each in group]
            continue
        item = items[number]
        same = len(group) == count(item) and all(each.is_whole for each in group)
        found += [item] if same else changed(item, group)
    return found
