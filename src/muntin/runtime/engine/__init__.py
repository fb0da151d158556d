"""Engines: what runs the wakes of entities, in this process or in workers on many machines."""

from __future__ import annotations

from muntin.core.checks import shown
from muntin.errors import InvalidInput, InvalidType
from muntin.runtime.engine.embedded import Embedded
from muntin.runtime.engine.protocol import Again, Engine, EngineState, Host, Resumed, WorkerState

__all__ = [
    "Again",
    "Embedded",
    "Engine",
    "EngineState",
    "Host",
    "Resumed",
    "WorkerState",
    "as_engine",
]


def as_engine(given: Engine | str | None) -> Engine:
    """Return the engine meant: by its name, or the given engine; None is `Embedded()`."""
    if given is None or given == "embedded":
        return Embedded()
    if isinstance(given, str):
        if given != "procrastinate":
            raise InvalidInput(
                f"there is no engine {given!r}; use 'embedded', 'procrastinate' or an Engine"
            )
        from muntin.runtime.engine.procrastinate import Procrastinate

        return Procrastinate()
    if not hasattr(given, "waits"):
        raise InvalidType(f"engine must be an Engine or the name of one, not {shown(given)}")
    return given
