"""The place of a run in its turn, by which an interrupted run is found again: whose call it serves,
what runs, and on which input. Two runs with one place ask the same question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID, uuid4

from muntin.core.checks import compact_json, digest
from muntin.threads import register_variable

# Values that their `repr` tells whole.
_PLAIN = (bytes, date, time, timedelta, Decimal, Enum, PurePath, UUID)

# The tool call that this code serves: session and turn, the position of the answer, the call's id.
_caller: ContextVar[tuple[str, int, int, str] | None] = register_variable(
    ContextVar("muntin_caller", default=None)
)


@contextmanager
def serving(session: str, turn: int, answer: int, call: str) -> Iterator[None]:
    """Mark the code of the block, with its tasks and threads, as part of a tool call."""
    token = _caller.set((session, turn, answer, call))
    try:
        yield
    finally:
        with suppress(ValueError):  # the event loop has ended without its tasks
            _caller.reset(token)


def place_of(session: str, turn: int, name: str, input: Any) -> str:
    """Return the place of a run, the same in every process."""
    caller = _caller.get()
    is_ours = caller is not None and caller[:2] == (session, turn)
    try:
        text = json.dumps(input, sort_keys=True, default=_plain)
    except (TypeError, ValueError, RecursionError):
        text = uuid4().hex  # it cannot be known again: such a run begins anew
    return digest(compact_json([caller[2:] if caller and is_ours else None, name, text]), 16)


def _plain(value: Any) -> Any:
    """Return a value that JSON has not as one that it has, with its type."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, _PLAIN):
        return [kind, repr(value)]
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(type(value), "model_fields"):
        return [kind, dict(value)]
    if is_dataclass(value) and not isinstance(value, type):
        return [kind, {field.name: getattr(value, field.name) for field in fields(value)}]
    raise TypeError
