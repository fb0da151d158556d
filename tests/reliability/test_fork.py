"""A store that was opened before a fork works in both processes."""

import os
import signal
from collections.abc import Callable

from muntin.timeline.store import Store
from tests.words import asks

APPENDS = 50


def fork(work: Callable[[], None]) -> int:
    """Run work in a child that leaves nothing else of its parent's running; return its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.alarm(60)
        work()
        status = 0
    finally:
        os._exit(status)


def append(store: Store, who: str, appends: int = APPENDS) -> None:
    for number in range(appends):
        store.append("s", [asks(f"{who} {number}")])


def test_parent_and_child_write_at_once_through_a_store_opened_before_the_fork(url):
    with Store(url) as store:
        append(store, "before", 1)
        child = fork(lambda: append(store, "child"))
        append(store, "parent")
        assert os.waitpid(child, 0)[1] == 0
        items = store.read("s")
        assert [item.position for item in items] == list(range(1, 2 * APPENDS + 2))
        for who in ("child", "parent"):
            own = [str(item.content) for item in items if str(item.content).startswith(who)]
            assert own == [f"{who} {number}" for number in range(APPENDS)]


def test_what_a_child_appends_stays_when_its_parent_closes_the_store_meanwhile(url):
    (child_waits, parent_says), (parent_waits, child_says) = os.pipe(), os.pipe()

    def work() -> None:
        append(store, "before", 1)
        os.write(child_says, b"!")
        os.read(child_waits, 1)
        append(store, "after", 3)
        os._exit(0)  # without closing: as if it were killed

    with Store(url) as store:
        append(store, "parent", 1)
        child = fork(work)
        os.close(child_says)  # so that reading ends with the child
        assert os.read(parent_waits, 1)
    # Closed. In the way SQLite holds its locks, a child that shared the parent's connection
    # would now write into a file that the parent has just removed.
    os.write(parent_says, b"!")
    assert os.waitpid(child, 0)[1] == 0
    for pipe in (child_waits, parent_says, parent_waits):
        os.close(pipe)
    with Store(url) as store:
        texts = [item.content for item in store.read("s")]
        assert texts == ["parent 0", "before 0", "after 0", "after 1", "after 2"]
