"""What every store must do, as checks that anyone's store can run.

Each check is a function of a fresh store whose docstring states the fact. It needs nothing but
the protocol; pytest takes `CHECKS` as parameters, anything else calls `check_store`.
"""

from __future__ import annotations

from collections.abc import Callable

from muntin.timeline.store import Store
from muntin.timeline.store.conformance import archive, contents, leases, reading, waking, writing
from muntin.timeline.store.conformance.facts import Check, facts_of

__all__ = ["CHECKS", "check_store"]

_MODULES = (writing, contents, reading, leases, waking, archive)
CHECKS: tuple[Check, ...] = tuple(check for module in _MODULES for check in facts_of(module))


def check_store(make: Callable[[], Store]) -> None:
    """Run every check, each on a fresh store that `make` returns; fail with all that is untrue."""
    untrue: list[str] = []
    cause: Exception | None = None
    for check in CHECKS:
        store = make()
        try:
            check(store)
        except Exception as error:
            cause = cause or error
            untrue.append(f"{check.__name__}: {check.__doc__}\n  {type(error).__name__}: {error}")
        finally:
            store.close()
    if untrue:
        count = f"{len(untrue)} of {len(CHECKS)} facts about stores are untrue"
        raise AssertionError("\n".join([f"{count} of this one:", *untrue])) from cause
