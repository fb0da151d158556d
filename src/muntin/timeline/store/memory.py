"""A store in memory, for tests and for sessions that need not last."""

from __future__ import annotations

from muntin.timeline.store.sql import Store


class MemoryStore(Store):
    """A store that lives until it is closed."""

    def __init__(self) -> None:
        super().__init__("memory:")
