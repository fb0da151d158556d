"""The clock of leases on one machine: it never goes back, even if the wall clock is changed.

All processes of a machine share it as long as they share an anchor: what the wall clock said when
the monotonic clock began. A store on a server uses the server's clock instead.
"""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path


def monotonic_micros() -> int:
    """Return the microseconds of a clock that all processes of a machine share until a reboot."""
    return time.monotonic_ns() // 1_000


def new_anchor() -> int:
    """Return the microseconds to add to the monotonic clock to get the time."""
    return time.time_ns() // 1_000 - monotonic_micros()


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return a name for the time since the machine was booted; "" where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
