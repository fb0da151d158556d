"""Addresses of SQL stores: what a driver is given, and what anybody may see."""

import pytest

from muntin.errors import InvalidInput
from muntin.timeline.store import open_store
from muntin.timeline.store.sql.address import read_address


@pytest.mark.parametrize(
    ("url", "shown", "options"),
    [
        (
            "postgresql://ann:s%40cret/x@db.example.com:5433/my%20name",
            "postgresql://ann:***@db.example.com:5433/my%20name",
            {
                "user": "ann",
                "password": "s@cret/x",
                "host": "db.example.com",
                "port": "5433",
                "dbname": "my name",
            },
        ),
        ("postgres://[::1]/n", "postgresql://[::1]/n", {"host": "::1", "dbname": "n"}),
        (
            "postgresql+psycopg://ann@/n?host=/run/pg&options=-csearch_path%3Da",
            "postgresql://ann@/n?host=/run/pg&options=-csearch_path%3Da",
            {"user": "ann", "dbname": "n", "host": "/run/pg", "options": "-csearch_path=a"},
        ),
        (
            "postgresql:///n?host=a&host=b&password=x&ssl%50assword=y",
            "postgresql:///n?host=a&host=b",
            {"dbname": "n", "host": "a,b", "password": "x", "sslPassword": "y"},
        ),
    ],
)
def test_a_server_is_found_by_its_address_which_is_shown_without_what_is_secret(
    url, shown, options
):
    address = read_address(url)
    assert (address.kind, address.shown, address.options) == ("postgresql", shown, options)


def test_a_file_stays_the_same_when_the_program_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address = read_address("sqlite+pysqlite:///a%20b.db")
    assert (address.kind, address.shown) == ("sqlite", "sqlite:///a%20b.db")
    assert address.file == address.options["database"] == str(tmp_path / "a b.db")
    with open_store("sqlite:///kept.db") as store:
        monkeypatch.chdir("/")
        store.close()
        assert store.sessions() == []
    assert (tmp_path / "kept.db").exists()


def test_an_address_with_options_of_sqlite_is_given_to_it_whole():
    address = read_address("sqlite:///file:a.db?mode=ro&uri=true")
    assert address.options == {"database": "file:a.db?mode=ro", "uri": True}
    assert address.file is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:a.db", "'sqlite:a.db' is no address of a store"),
        ("postgresql://me:secret@h:p/n?password=secret", "'h:p/n' is no address of a store"),
        ("sqlite:///", "names no file; write 'sqlite:///muntin.db'"),
        ("sqlite://a.db", "names no file; write 'sqlite:///a.db' with three slashes"),
        ("sqlite://b/a.db", "write 'sqlite:///b/a.db'"),
        ("sqlite:///:memory:", "or 'memory:' for a store in memory"),
        ("sqlite:///a.db?mode=ro", "options need 'sqlite:///file:NAME?…&uri=true'"),
    ],
)
def test_what_is_no_address_is_refused_without_its_secrets(url, says):
    with pytest.raises(InvalidInput) as refused:
        open_store(url)
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)
