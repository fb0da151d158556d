"""What a store must do, on every database: each check is a function of a fresh store whose
docstring states the fact."""

from __future__ import annotations

from tests.timeline.store.conformance import archive, contents, leases, reading, waking, writing
from tests.timeline.store.conformance.facts import Check, facts_of

__all__ = ["CHECKS"]

_MODULES = (writing, contents, reading, leases, waking, archive)
CHECKS: tuple[Check, ...] = tuple(check for module in _MODULES for check in facts_of(module))
