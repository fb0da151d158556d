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


def as_engine(engine: Engine | str | None) -> Engine:
    """Return the engine meant: by its name, or the engine itself; None is `Embedded()`."""
    if engine is None or engine == "embedded":
        return Embedded()
    if isinstance(engine, str):
        if engine != "procrastinate":
            raise InvalidInput(
                f"there is no engine {engine!r}; use 'embedded', 'procrastinate' or an Engine"
            )
        from muntin.runtime.engine.procrastinate import Procrastinate

        return Procrastinate()
    if not hasattr(engine, "waits"):
        raise InvalidType(f"engine must be an Engine or the name of one, not {shown(engine)}")
    return engine
