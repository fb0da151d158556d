"""Settings of all tests: the same examples every time, unless a longer search is asked for; and
a check of every window that follows another."""

import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from muntin.core.planning.plan import Plan
from muntin.core.planning.slots import Slots
from tests.stability import unexplained_move

if TYPE_CHECKING:
    from tests.reliability.server import Server

# No deadlines: how long an example takes says more about the machine than about us.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", print_blob=True, deadline=None)
settings.load_profile("search" if os.environ.get("MUNTIN_EXAMPLES") else "same")

# A shell starts what runs in the background with interrupts ignored, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what is there for all tests out of garbage collections: a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server() -> Iterator["Server"]:
    """Return the PostgreSQL of this process, which no test stops."""
    from tests.reliability.server import running_server  # what it needs is not always installed

    with running_server() as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def _the_prefix_stays_or_the_report_says_why() -> Iterator[None]:
    """Fail any test in which a following turn moved the prefix without saying why."""
    plan = Slots.plan

    def checked(slots: Slots) -> Plan:
        made = plan(slots)
        if slots.previous is not None:
            wrong = unexplained_move(made.window(), slots.previous, slots.profile)
            assert wrong is None, wrong
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slots, "plan", checked)
        yield
