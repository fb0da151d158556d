"""Shared by adapters: a hook with its Fitter, names of models, schemas of tools, items in parts.

Knows no framework.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from muntin.core.budget import Budget
from muntin.core.checks import replace_surrogates
from muntin.core.message import Message
from muntin.fitting import Fitted, Fitter, Piece, Pieces, Placed
from muntin.timeline.items import MAX_ID
from muntin.wire.blocks import merge_results
from muntin.wire.lists import piece

T = TypeVar("T")

Fits: TypeAlias = Fitter | Budget | int | None
"""The budget of a hook, or a `Fitter` that has more settings."""

Watcher: TypeAlias = Callable[[Fitted], object]
"""Called with every fitted request, before it is sent."""

# The key under which a framework keeps the frontier.
FRONTIER = "muntin_frontier"
# The keys under which callers name a conversation where a framework does not.
CONVERSATION_KEYS = ("session_id", "conversation_id", "thread_id")
# The words in the names of packages and providers by which frameworks name known providers.
_PROVIDERS = ("openai", "anthropic", "google")


def model_name(provider: str, name: object) -> str | None:
    """Return a model's name as Muntin writes it; None if its provider is not known_maker.

    `provider` is any word that contains the provider's name, such as the name of a package.
    """
    known_maker = next((maker for maker in _PROVIDERS if maker in provider.lower()), None)
    return f"{known_maker}/{name}" if known_maker and isinstance(name, str) and name else None


def conversation_in(facts: object) -> str | None:
    """Return the name that a caller gave a conversation among other facts, such as metadata."""
    names = [facts.get(key) for key in CONVERSATION_KEYS] if isinstance(facts, Mapping) else []
    return next((str(name) for name in names if name), None)


def _session_name(id: object) -> str | None:
    """Return a framework's id of a conversation as the name of its session."""
    text = "" if id is None else replace_surrogates(f"{id}").replace("\x00", "").strip()
    return text[:MAX_ID] or None


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
        self._fitter = budget if isinstance(budget, Fitter) else Fitter(budget)
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
        self,
        pieces: Sequence[Piece],
        tools: Sequence[Any],
        model: Any = None,
        *,
        conversation: object = None,
        **options: Any,
    ) -> Fitted:
        """Return the messages of a request that are sent; `model` is passed to `name_of`.

        `conversation` is the framework's own id of the thread or the session, if it has one: the
        conversation is recorded under it.
        """
        fitted = self._fitter.fit(
            pieces,
            conversation=_session_name(conversation),
            tools=self._schemas.of(tools),
            model=self._model or self._fitter.model or self.name_of(model),
            **options,
        )
        if self._on_fit is not None:
            self._on_fit(fitted)
        return fitted

    async def recorded(self, work: Callable[[], T]) -> T:
        """Do the work of an async hook; in a thread if it writes into a store."""
        return await self._fitter.beside_loop(work)


@dataclass(slots=True)
class Schemas:
    """The schemas of an agent's tools, made once for as long as the tools are the same objects."""

    make: Callable[[Any], Mapping[str, Any]]
    _converted: tuple[Sequence[Any], list[Mapping[str, Any]]] = field(default=((), []))

    def of(self, tools: Sequence[Any]) -> list[Mapping[str, Any]]:
        """Return the schemas of tools."""
        tools_before, schemas = self._converted
        is_same = len(tools_before) == len(tools) and all(map(operator.is_, tools_before, tools))
        if not is_same:
            tools_before, schemas = list(tools), [self.make(tool) for tool in tools]
            self._converted = (
                tools_before,
                schemas,
            )  # one assignment: at worst two threads both make it
        return schemas


# Reading and writing messages in forms of a framework's own.


def content_of(parts: Sequence[Mapping[str, Any]], joint: str | None = "\n") -> Any:
    """Return parts as content in the form of Chat Completions: texts alone become one text.

    Without a `joint`, only a single text does.
    """
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if len(texts) < len(parts) or (joint is None and len(texts) > 1):
        return parts
    return (joint or "").join(texts)


def chat_message(
    role: str, parts: Sequence[Mapping[str, Any]], calls: Sequence[Any], joint: str | None = "\n"
) -> dict[str, Any]:
    """Return parts and calls as a message in the form of Chat Completions."""
    data = {"role": role, "content": content_of(parts, joint) or None}
    return {**data, "tool_calls": calls} if calls else data


def rewritten(
    blocks: Sequence[Any],
    placed: Placed,
    *,
    is_text: Callable[[Any], object],
    with_text: Callable[[Any, str], Any],
    call_id: Callable[[Any], str | None],
    with_arguments: Callable[[Any, str], Any],
    is_thought: Callable[[Any], bool] = lambda block: False,
) -> list[Any]:
    """Return the blocks of a message with its new text, which replaces all texts, and its new
    arguments; without thoughts, if they left."""
    text = placed.text
    result: list[Any] = []
    for block in blocks:
        if placed.is_bare and is_thought(block):
            continue
        arguments = placed.arguments.get(call_id(block) or "")
        if arguments is not None:
            block = with_arguments(block, arguments)
        elif placed.text is not None and is_text(block):
            if not text:
                continue
            block, text = with_text(block, text), None
        result.append(block)
    return result


# Items that are several messages, because each result in them is one message.


def split(
    items: Sequence[Any],
    count: Callable[[Any], int],
    read: Callable[[Any, int], Sequence[Piece]],
) -> Pieces:
    """Return the pieces of items, some of which are several pieces: their references are pairs of
    the item's number and the adapter's own key of the part."""
    several = {number: size for number, item in enumerate(items) if (size := count(item)) != 1}
    return Pieces(items, read, several=several)


def put_together(
    items: Sequence[Any],
    placed: Sequence[Placed],
    count: Callable[[Any], int],
    *,
    added: Callable[[Message], Any],
    changed: Callable[[Any, Sequence[Placed]], Sequence[Any]],
) -> list[Any]:
    """Return the items that are sent; an unchanged item is the same object."""
    sent: list[Any] = []
    for number, group in groupby(placed, lambda part: part.ref and part.ref[0]):
        parts = list(group)
        if number is None:
            sent += [added(part.message) for part in parts]
            continue
        item = items[number]
        is_same = len(parts) == count(item) and all(part.is_whole for part in parts)
        sent += [item] if is_same else changed(item, parts)
    return sent


@dataclass(frozen=True, slots=True)
class BlockForm:
    """How the messages of a framework hold blocks, and how they are read and written.

    Each result among the blocks of a message is a piece, and all its other blocks are one. The
    references are the number of a message and the place of a result in it, None for the others.
    Messages are read in the form of Chat Completions.
    """

    blocks: Callable[[Any], Sequence[Any]]
    is_result: Callable[[Any], bool]
    # Of a result, with the number of its message and its place; and of a message's other blocks.
    read_result: Callable[[Any, int, int], dict[str, Any]]
    read_rest: Callable[[Any, list[Any], int], dict[str, Any]]
    with_blocks: Callable[[Any, list[Any]], Any]
    with_result: Callable[[Any, str], Any]
    rewrite: Callable[[list[Any], Placed], list[Any]]
    # A message that Muntin adds.
    added: Callable[[Message], Any]

    def pieces(self, messages: Sequence[Any]) -> Pieces:
        """Return the pieces of messages."""
        return split(messages, self._count, self._read)

    def written(self, messages: Sequence[Any], placed: Sequence[Placed]) -> list[Any]:
        """Return the messages that are sent; an unchanged message is the same object. The results
        of the calls of one message stand in one message."""
        sent = put_together(
            messages, placed, self._count, added=self.added, changed=self._change_message
        )
        return merge_results(
            sent,
            messages,
            lambda message: any(map(self.is_result, self.blocks(message))),
            lambda one, two: self.with_blocks(one, [*self.blocks(one), *self.blocks(two)]),
        )

    def _count(self, message: Any) -> int:
        return len(self._places(message))

    def _places(self, message: Any) -> Sequence[int | None]:
        blocks = self.blocks(message)
        results = [place for place, block in enumerate(blocks) if self.is_result(block)]
        return results if results and len(results) == len(blocks) else [*results, None]

    def _rest(self, message: Any) -> list[Any]:
        return [block for block in self.blocks(message) if not self.is_result(block)]

    def _read(self, message: Any, number: int) -> Sequence[Piece]:
        return [
            piece(
                self.read_rest(message, self._rest(message), number)
                if place is None
                else self.read_result(self.blocks(message)[place], number, place),
                (number, place),
            )
            for place in self._places(message)
        ]

    def _change_message(self, message: Any, parts: Sequence[Placed]) -> list[Any]:
        blocks: list[Any] = []
        for part in parts:
            place = part.ref[1]
            if place is None:
                blocks += self.rewrite(self._rest(message), part)
            else:
                result = self.blocks(message)[place]
                blocks.append(result if part.text is None else self.with_result(result, part.text))
        return [self.with_blocks(message, blocks)]
