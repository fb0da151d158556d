"""When a PostgreSQL server cannot be used, the error says why; it works again when the server does.

The server is stopped, restarted and locked for real.
"""

import threading
import time

import psycopg
import pytest

from muntin.core.message import user
from muntin.errors import InvalidInput, StoreError
from muntin.timeline.session import Session
from muntin.timeline.store import open_store
from muntin.timeline.store.sql import Store
from tests.reliability.server import GUARDED, PASSWORD, SUPERUSER, Server
from tests.words import asks

SECRET = "wr0ng-s3cret"


@pytest.fixture
def server(own_server: Server) -> Server:
    return own_server


@pytest.fixture
def address(server: Server, database: str) -> str:
    return server.url(database)


def test_a_server_that_goes_away_is_an_error_and_its_return_is_noticed(server, address):
    with Store(address) as store:
        store.append("s", [asks("before")])
        server.stop("immediate")
        try:
            for attempt in (
                lambda: store.append("s", [asks("meanwhile")]),
                lambda: store.read("s"),
                lambda: open_store(address),
            ):
                with pytest.raises(StoreError, match="is the server running") as gone:
                    attempt()
                assert str(gone.value).startswith(f"{store.name}: ")
        finally:
            server.start()
        assert [item.content for item in store.read("s")] == ["before"]
        assert store.append("s", [asks("after")])[0].position == 2


def test_a_server_that_crashes_under_a_writer_keeps_every_acknowledged_append(server, address):
    acknowledged: list[int] = []
    errors: list[StoreError] = []
    begun = threading.Event()

    def write() -> None:
        with Store(address) as store:
            try:
                for number in range(1_000_000):
                    store.append("s", [asks(f"{number} a"), asks(f"{number} b")])
                    acknowledged.append(number)
                    begun.set()
            except StoreError as error:
                errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(30)
    server.stop("immediate")
    writer.join(30)
    server.start()
    assert not writer.is_alive()
    assert "is the server running" in str(errors[0])
    with Store(address) as store:
        items = store.read("s")
        assert [item.position for item in items] == list(range(1, len(items) + 1))
        # The one that was on its way may have been stored before it could be acknowledged.
        count = len(items) // 2
        assert count - len(acknowledged) in (0, 1)
        expected = [f"{number} {half}" for number in range(count) for half in "ab"]
        assert [item.content for item in items] == expected
        assert store.append("s", [asks("after")])[0].position == len(items) + 1


def test_a_turn_whose_store_went_away_is_there_as_far_as_it_was_acknowledged(server, address):
    with Store(address) as store:
        log = Session("s", store=store)
        try:
            with pytest.raises(StoreError), log.turn() as turn:  # noqa: PT012
                turn.append(user("Hello?"))
                server.stop("immediate")
                turn.append(user("Anybody?"))
        finally:
            server.start()
        assert [item.content for item in log.items.history()] == ["Hello?"]
        with log.turn() as turn:
            turn.append(user("Once more."))
        assert [turn.number for turn in store.turns("s", status="completed")] == [2]
        assert log.messages()[-1].text == "Once more."


def new_role(server: Server, options: str = "") -> None:
    server.ask(f"DROP ROLE IF EXISTS {GUARDED}")
    server.ask(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}' {options}")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (f"{GUARDED}:{SECRET}", "password authentication failed.*user and password right"),
        ("nobody_we_know", "does not exist.*user and password right"),
        (GUARDED, "no password supplied.*user and password right"),
    ],
)
def test_a_wrong_user_or_password_is_an_error_that_does_not_show_it(server, given, says):
    new_role(server)
    with pytest.raises(StoreError, match=says) as refused:
        open_store(server.url("postgres", given))
    assert SECRET not in str(refused.value)
    assert str(refused.value).startswith("postgresql://")


@pytest.mark.parametrize(
    "where",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/name",
        f"postgresql://me:{SECRET}@no-such-host.invalid/name",
        f"postgresql://me@127.0.0.1:1/name?password={SECRET}",
    ],
)
def test_a_server_that_is_not_there_is_an_error_that_does_not_show_the_password(where):
    with pytest.raises(StoreError, match="is the server running") as refused:
        open_store(where)
    assert SECRET not in str(refused.value)
    assert str(refused.value).startswith("postgresql://me")


def test_an_address_that_is_none_is_refused_without_its_password():
    with pytest.raises(InvalidInput, match="is no address of a store") as refused:
        open_store(f"postgresql://me:{SECRET}@host:port/name")
    assert SECRET not in str(refused.value)


def test_a_database_that_does_not_exist_is_named(server):
    with pytest.raises(StoreError, match=r'"nowhere" does not exist.* database'):
        open_store(server.url("nowhere"))


def test_missing_rights_are_named_and_once_granted_the_store_works(server, database):
    new_role(server)
    url = server.url(database, f"{GUARDED}:{PASSWORD}")
    with pytest.raises(StoreError, match=r"permission denied.*grant") as refused:
        open_store(url)
    assert PASSWORD not in str(refused.value)
    server.ask(f"ALTER DATABASE {database} OWNER TO {GUARDED}")
    with Store(url) as store:
        assert store.append("s", [asks("now")])[0].position == 1
    server.ask(f"REASSIGN OWNED BY {GUARDED} TO {SUPERUSER}", database)


def test_a_server_that_takes_no_writes_still_reads(server, database, address):
    with Store(address) as store:
        store.append("s", [asks("before")])
    server.ask(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with Store(address) as store:
        with pytest.raises(StoreError, match="takes no writes"):
            store.append("s", [asks("refused")])
        assert [item.content for item in store.read("s")] == ["before"]
    server.ask(f"ALTER DATABASE {database} SET default_transaction_read_only = off")
    with Store(address) as store:
        assert store.append("s", [asks("after")])[0].position == 2


def test_a_server_without_a_connection_left_says_so(server, database):
    new_role(server, "CONNECTION LIMIT 0")
    with pytest.raises(StoreError, match="too many connections"):
        open_store(server.url(database, f"{GUARDED}:{PASSWORD}"))


def test_tables_of_a_newer_version_are_refused(server, database, address):
    open_store(address).close()
    server.ask("UPDATE muntin_meta SET value = '99'", database)
    with pytest.raises(StoreError, match=r"written by a newer Muntin .*pip install -U muntin"):
        open_store(address)


def test_a_session_locked_for_too_long_is_an_error_and_others_work_meanwhile(address):
    with Store(address, timeout=0.2) as store, psycopg.connect(address) as other:
        store.append("s", [asks("before")])
        other.execute("SELECT * FROM muntin_sessions FOR UPDATE")
        with pytest.raises(StoreError, match="lock timeout: another process held it"):
            store.append("s", [asks("refused")])
        assert store.append("another", [asks("unharmed")])[0].position == 1
        assert [item.content for item in store.read("s")] == ["before"]
        other.rollback()
        assert store.append("s", [asks("after")])[0].position == 2


def test_a_connection_the_server_closed_is_replaced_before_it_is_used(server, database, address):
    with Store(address) as store:
        store.append("s", [asks("before")])
        server.ask(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        )
        deadline = time.monotonic() + 30
        while server.clients(database):
            assert time.monotonic() < deadline
        assert store.append("s", [asks("after")])[0].position == 2
