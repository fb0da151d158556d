"""A store in memory: its own database, for all threads, until it is closed."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from muntin import user
from muntin.timeline.session import Session
from muntin.timeline.store import open_store


def texts(store):
    return [message.text for message in Session("s", store=store).messages()]


def test_stores_in_memory_are_separate():
    with closing(open_store("memory:")) as one, closing(open_store("memory://")) as other:
        Session("s", store=one).append(user("one"))
        assert (texts(one), texts(other)) == (["one"], [])


def test_threads_share_a_store_in_memory():
    with closing(open_store("memory:")) as store, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Session("s", store=store).append(user(str(n))), range(100)))
        assert sorted(texts(store), key=int) == [str(n) for n in range(100)]


def test_a_store_in_memory_is_empty_once_it_was_closed():
    store = open_store("memory:")
    Session("s", store=store).append(user("secret"))
    store.close()
    assert list(store.sessions()) == []
    store.close()


def test_deleted_room_of_a_store_in_memory_is_freed():
    with closing(open_store("memory:")) as store:
        Session("s", store=store).append(user("x" * 10_000))
        store.delete("s")
        store.vacuum()
        assert texts(store) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_fork_leaves_both_processes_a_store_in_memory():
    with closing(open_store("memory:")) as store:
        Session("s", store=store).append(user("before"))
        child = os.fork()
        if child == 0:
            os._exit(0 if texts(store) == ["before"] else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert texts(store) == ["before"]
