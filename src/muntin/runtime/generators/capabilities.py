"""Capabilities: context, tools and settings that several generators share.

Declares and checks them, and brings them into one order: dependencies before dependents, each
once. The generator that uses them merges their parts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from muntin.agent.tools import ToolLike, as_tools
from muntin.calls import arity, call_async, together
from muntin.core.checks import check_text, shown
from muntin.errors import InvalidInput, InvalidType
from muntin.runtime.generators.context import ContextSpec, read
from muntin.settings import check_settings

_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]*")
_FIELDS = ("context", "tools", "settings")
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Preset:
    """One named part of a capability."""

    context: ContextSpec
    tools: tuple[ToolLike, ...]
    settings: Mapping[str, Any] = field(repr=False)  # headers may hold keys


@dataclass(frozen=True, slots=True, eq=False)
class Capability:
    """Something a generator can be given with `uses=`; made by `capability()`."""

    name: str
    uses: tuple[Use, ...]
    functions: Callable[..., Any] | None
    all_presets: Mapping[str, Preset] = field(repr=False)
    off: frozenset[str] = frozenset()

    def presets(self, **on: bool) -> Capability:
        """Return a copy with these presets switched on or off; all are on at first."""
        off = set(self.off)
        for name, wanted in on.items():
            if name not in self.all_presets:
                names = ", ".join(self.all_presets) or "none"
                raise InvalidInput(f"{self.author} has no preset {name!r}; it has: {names}")
            if not isinstance(wanted, bool):
                raise InvalidType(
                    f"{self.author}: preset {name!r} is True or False, not {shown(wanted)}"
                )
            (off.discard if wanted else off.add)(name)
        return replace(self, off=frozenset(off))

    @property
    def author(self) -> str:
        """Its name as an author, and in errors."""
        return f"capability {self.name}"

    @property
    def key(self) -> str:
        """Its name as an attribute of `ctx.cap`."""
        return self.name.replace("-", "_")

    @property
    def active(self) -> list[Preset]:
        """The presets that are switched on, in the order they were given."""
        return [preset for name, preset in self.all_presets.items() if name not in self.off]

    def is_same(self, other: Capability) -> bool:
        """Say whether another capability is this one, or a copy with the same presets on."""
        return self.all_presets is other.all_presets and self.off == other.off


Use: TypeAlias = Capability | Callable[..., Any]


def capability(
    name: str,
    *,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    uses: Any = (),
    functions: Callable[..., Any] | None = None,
) -> Capability:
    """Define a capability.

    A preset has `context`, `tools` and `settings`, as a generator takes them. `uses` are the
    capabilities it needs, or functions `(ctx) -> [capability, ...]`. `functions(ctx)` is called
    once a turn; what it returns is `ctx.cap.<name>`.
    """
    if not _NAME.fullmatch(check_text(name, "capability: name")):
        raise InvalidInput(
            f"{shown(name)} is no name for a capability; it begins with a letter and has letters, "
            "digits, _ and -"
        )
    what = f"capability {name}"
    if not isinstance(presets, Mapping | None):
        raise InvalidType(f"{what}: presets must map names to presets, not {shown(presets)}")
    if functions is not None:
        check_takes_ctx(functions, f"{what}: functions")
    new_capability = Capability(
        name=name,
        uses=as_uses(uses, what),
        functions=functions,
        all_presets={
            check_text(preset_name, f"{what}: the name of a preset"): _preset(
                what, f"{what}: preset {preset_name!r}", parts
            )
            for preset_name, parts in (presets or {}).items()
        },
    )
    check_names([new_capability], what)
    return new_capability


def _preset(author: str, what: str, parts: Any) -> Preset:
    if not isinstance(parts, Mapping):
        raise InvalidType(f"{what} must be a mapping, not {shown(parts)}")
    for name in parts:
        if name not in _FIELDS:
            raise InvalidInput(f"{what}: unknown field {shown(name)}; use {', '.join(_FIELDS)}")
    settings = parts.get("settings")
    check_settings(settings, what)
    return Preset(
        read(author, parts.get("context")),
        as_tools(parts.get("tools") or (), what),
        dict(settings or {}),
    )


def as_uses(uses: Any, what: str) -> tuple[Use, ...]:
    """Check the entries of `uses`; None and False are left out."""
    if uses is None or callable(uses):
        uses = [uses]
    if not isinstance(uses, Sequence) or isinstance(uses, str):
        raise InvalidType(f"{what}: uses must be a list of capabilities, not {shown(uses)}")
    checked: list[Use] = []
    for index, use in enumerate(uses):
        if use is None or use is False:
            continue
        if not isinstance(use, Capability):
            if not callable(use):
                raise InvalidType(
                    f"{what}: uses[{index}] must be a capability or a function, not {shown(use)}"
                )
            check_takes_ctx(use, f"{what}: uses[{index}]")
        checked.append(use)
    return tuple(checked)


def check_takes_ctx(function: Any, what: str) -> None:
    """Refuse anything but a function of `(ctx)`."""
    if not callable(function):
        raise InvalidType(f"{what} must be a function of (ctx), not {shown(function)}")
    if arity(function, what) > 1:
        raise InvalidType(f"{what} must take (ctx), and no more")


def known(uses: Sequence[Use]) -> Iterator[Capability]:
    """Yield the capabilities that are known before a turn, dependencies before dependents."""
    for use in uses:
        if isinstance(use, Capability):
            yield from known(use.uses)
            yield use


def check_names(uses: Sequence[Use], what: str) -> None:
    """Refuse two capabilities of one name, among the known ones."""
    by_key: dict[str, Capability] = {}
    for capability in known(uses):
        other = by_key.setdefault(capability.key, capability)
        if not other.is_same(capability):
            raise _collision(what, other, capability)


def _collision(what: str, one: Capability, other: Capability) -> InvalidInput:
    if one.all_presets is other.all_presets:
        return InvalidInput(
            f"{what}: capability {one.name!r} is used twice with different presets; "
            "choose them in one place"
        )
    names = f"{one.name!r}" if one.name == other.name else f"{one.name!r} and {other.name!r}"
    return InvalidInput(
        f"{what}: two different capabilities are named {names}; both would be ctx.cap.{one.key}"
    )


# In a turn.


async def load(uses: Sequence[Use], ctx: Any, what: str) -> list[Capability]:
    """Return all capabilities in use, in order; put the results of their functions on `ctx.cap`.

    Their functions run side by side, each when the functions it needs are done. A function in
    `uses` is called when all functions before it are done.
    """
    loading = _Loading(ctx, what)
    try:
        for use in uses:
            await loading.visit(use, ())
        await loading.all()
    finally:
        for task in loading.tasks.values():
            task.cancel()
        await asyncio.gather(*loading.tasks.values(), return_exceptions=True)
    return list(loading.capabilities.values())


class _Loading:
    """The capabilities found so far, in order, and the tasks of their functions, by key."""

    def __init__(self, ctx: Any, what: str) -> None:
        self.capabilities: dict[str, Capability] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ctx = ctx
        self._what = what

    async def visit(
        self, use: Use, path: tuple[Capability, ...], depth: int = 1
    ) -> list[Capability]:
        """Find the capabilities of a use, and begin to call their functions; return them."""
        what = self._what
        if depth > _DEEPEST:
            raise InvalidInput(f"{what}: capabilities use one another more than {_DEEPEST} deep")
        if not isinstance(use, Capability):
            chosen = await self._chosen(use, path[-1].author if path else what)
            visited = [await self.visit(use_chosen, path, depth + 1) for use_chosen in chosen]
            return [cap for caps in visited for cap in caps]
        _check_path(use, path, what)
        other = self.capabilities.get(use.key)
        if other is not None:
            if not other.is_same(use):
                raise _collision(what, other, use)
            return [other]
        below = [await self.visit(inner, (*path, use), depth + 1) for inner in use.uses]
        needs = [cap for caps in below for cap in caps]
        self.tasks[use.key] = asyncio.create_task(self._give(use, needs))
        self.capabilities[use.key] = use
        return [use]

    async def _chosen(self, use: Callable[..., Any], who: str) -> tuple[Use, ...]:
        await self.all()
        ctx = self._ctx
        chosen = await call_async(use, f"uses of {who}", ctx, timeout=ctx.timeout)
        return as_uses(chosen, f"uses of {who}")

    async def _give(self, use: Capability, needs: Sequence[Capability]) -> None:
        await together(self.tasks[cap.key] for cap in needs)
        if use.functions is not None:
            setattr(self._ctx.cap, use.key, await _call_functions(use, use.functions, self._ctx))

    async def all(self) -> None:
        """Wait until all functions that were called so far are done."""
        await together(self.tasks.values())


def _check_path(use: Capability, path: tuple[Capability, ...], what: str) -> None:
    for index, above in enumerate(path):
        if above.key == use.key:
            if not above.is_same(use):
                raise _collision(what, above, use)
            names = " → ".join(step.name for step in (*path[index:], use))
            raise InvalidInput(f"{what}: capability {use.name!r} uses itself: {names}")


async def _call_functions(use: Capability, functions: Callable[..., Any], ctx: Any) -> Any:
    """Return the result of the functions of a capability, called once a turn."""
    results = ctx.turn.cap
    key = (use.key, id(functions))
    if key not in results:
        what = f"functions of {use.author}"
        turn = asyncio.ensure_future(call_async(functions, what, ctx, timeout=ctx.timeout))
        results[key] = (use, turn)  # keeps `use` alive, so that the id stays unique
    return await asyncio.shield(results[key][1])
