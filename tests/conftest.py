"""Settings of all tests: the same examples every time, unless a longer search is asked for; and
a check of every window that follows another."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from muntin.core.planning.plan import Plan
from muntin.core.planning.slots import Slots
from tests.products import EXAMPLES
from tests.stability import unexplained_move

if TYPE_CHECKING:
    from tests.reliability.server import Server

# How long an example takes says more about the machine than about us.
limits = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)
settings.register_profile("same", limits, derandomize=True)
settings.register_profile("search", limits, print_blob=True)
settings.load_profile("search" if os.environ.get("MUNTIN_EXAMPLES") else "same")
# Hypothesis also draws constants of the modules that are loaded: others in every process.
providers._get_local_constants = lambda: providers._local_constants

# A shell starts what runs in the background with interrupts ignored, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests that mostly wait: for processes, servers, leases.
WAITING = tuple(
    f"tests/{part}"
    for part in ("faults", "gateway", "reliability", "runtime/engine", "docs/test_doc")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let half of the processes of a run begin with tests that wait, the others with the rest."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    waiting = [item for item in items if item.nodeid.startswith(WAITING)]
    rest = [item for item in items if not item.nodeid.startswith(WAITING)]
    half = len(rest) // 2
    items[:] = [*waiting[::2], *rest[:half], *waiting[1::2], *rest[half:]]


def pytest_collection_finish() -> None:
    """Leave what is there for all tests out of garbage collections: a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def _shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Server"]:
    from tests.reliability.server import shared_server  # what it needs is not always installed

    folder = tmp_path_factory.getbasetemp()
    with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as running:
        yield running


@pytest.fixture(scope="session")
def _own_server() -> Iterator["Server"]:
    from tests.reliability.server import running_server

    with running_server(is_synced=False) as running:
        yield running


@pytest.fixture
def server(_shared_server: "Server") -> Iterator["Server"]:
    """Return the PostgreSQL of the whole run, which no test stops."""
    yield _shared_server
    _shared_server.take_back()


@pytest.fixture
def own_server(_own_server: "Server") -> Iterator["Server"]:
    """Return the PostgreSQL of this process, which a test may stop."""
    yield _own_server
    if not _own_server.socket.exists():
        _own_server.start()
    _own_server.take_back()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def database(server: "Server") -> str:
    return server.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the address of an empty store that several processes can open."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('file')}"
    server: Server = request.getfixturevalue("server")
    return server.url(request.getfixturevalue("database"))


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
