"""When an SQLite file cannot be used, the error says why; nothing is half written.

What goes wrong goes wrong for real: files are filled up, locked, damaged.
"""

import os
import random
import sqlite3
import tempfile
from functools import partial
from pathlib import Path

import pytest

from muntin.errors import StoreError
from muntin.timeline.items import Item
from muntin.timeline.store import Store, open_store
from muntin.timeline.store.sql import database
from tests.words import asks

PAGE = 4096


def address(file: Path) -> str:
    return f"sqlite:///{file}"


def opened(file: Path) -> Store:
    return Store(address(file))


def filled(file: Path, items: int = 50) -> Path:
    with opened(file) as store:
        for number in range(items):
            store.append("s", [asks(f"{number} {'x' * 2_000}")])
    return file


def read_all(file: Path) -> list[Item]:
    with opened(file) as store:
        return store.read("s")


def numbers(store: Store, session: str = "s") -> list[int]:
    """Return the numbers of what was appended; the positions beside them are dense."""
    items = store.read(session)
    assert [item.position for item in items] == list(range(1, len(items) + 1))
    return [int(str(item.content).split()[0]) for item in items]


def intact(file: Path) -> bool:
    with sqlite3.connect(file) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# A full disk.


def test_a_full_database_refuses_whole_appends_and_takes_them_when_there_is_room(file, monkeypatch):
    pages = 60

    class Limited(sqlite3.Connection):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            self.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Limited))
    with opened(file) as store:
        stored = 0

        def fill() -> None:
            nonlocal stored
            while True:
                store.append("s", [asks(f"{stored} {'x' * 1_000}"), asks(f"{stored + 1} x")])
                stored += 2

        with pytest.raises(StoreError, match=r"full: make room; nothing .* was written") as full:
            fill()
        assert str(full.value).startswith(f"{address(file)}: ")
        assert 0 < stored == len(numbers(store))
        assert len(store.turns("s")) == stored
        pages = 10_000
        store.close()
        store.append("s", [asks(f"{stored} again")])
        assert numbers(store) == list(range(stored + 1))
    assert intact(file)


def test_a_file_that_may_not_grow_refuses_whole_appends_and_goes_on_when_it_may(file, start):
    worker = start("fill_the_disk", url=address(file), session="s", limit=400_000)
    *appended, refused, after = worker.stdout.read().splitlines()
    assert worker.wait() == 0
    assert refused.startswith(f"refused {address(file)}: ")
    assert refused.endswith("look at the disk; nothing of this was written")
    assert after == "appended after"
    assert appended
    assert appended == [f"appended {number}" for number in range(len(appended))]
    with opened(file) as store:
        texts = [str(item.content).split()[0] for item in store.read("s")]
        assert texts == [*(str(number) for number in range(len(appended))), "after"]
    assert intact(file)


# A file that cannot be written, or is not there.


def test_a_read_only_file_can_be_read_and_says_why_it_cannot_be_written(file):
    filled(file)
    url = f"sqlite:///file:{file}?mode=ro&uri=true"
    with Store(url) as store:
        assert len(numbers(store)) == 50
        with pytest.raises(StoreError, match=r"readonly.*: it cannot be written") as refused:
            store.append("s", [asks("50 more")])
        assert str(file) in str(refused.value)
        assert len(numbers(store)) == 50


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o755, 0o444), (0o555, 0o644)])
def test_a_file_without_permission_says_so(start, folder_mode, file_mode):
    # Not below pytest's own directory, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        file = filled(Path(folder) / "store.db")
        file.chmod(file_mode)
        file.parent.chmod(folder_mode)
        said = start("write_as_nobody", url=address(file), session="s").stdout.read()
        assert said.startswith(f"refused {address(file)}: ")
        assert "it cannot be written; look at its permissions" in said
        file.parent.chmod(0o755)
        file.chmod(0o644)
        with opened(file) as store:
            assert len(numbers(store)) == 50


@pytest.mark.parametrize("where", ["no/such/folder/store.db", "."])
def test_a_file_that_cannot_be_made_says_where_it_would_have_been(tmp_path, where):
    url = f"sqlite:///{tmp_path / where}"
    with pytest.raises(StoreError, match="does the folder exist") as refused:
        open_store(url)
    assert str(refused.value).startswith(f"{url}: ")


# A damaged file, or none of ours.


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(file):
    text = b"Dear diary, today I was opened as a database.\n" * 200
    file.write_bytes(text)
    with pytest.raises(StoreError, match="not a database: the file is damaged, or is not a store"):
        opened(file)
    assert file.read_bytes() == text


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(file, share):
    filled(file)
    os.truncate(file, int(file.stat().st_size * share))
    with pytest.raises(StoreError, match=r"malformed: the file is damaged.* restore a copy"):
        opened(file)


@pytest.mark.parametrize("seed", range(8))
def test_garbage_in_a_file_never_passes_for_what_was_stored(file, seed):
    filled(file)
    chance = random.Random(seed)
    content = bytearray(file.read_bytes())
    pages = range(1, len(content) // PAGE)
    for page in chance.sample(pages, len(pages) // 3):
        content[page * PAGE : (page + 1) * PAGE] = chance.randbytes(PAGE)
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged.* restore a copy") as refused:
        read_all(file)
    assert str(refused.value).startswith(f"{address(file)}: ")


@pytest.mark.parametrize("garbage", [b"\xff", b"a", b"["])
def test_garbage_within_an_item_is_an_error_that_names_the_store_and_quotes_little(file, garbage):
    filled(file)
    content = file.read_bytes()
    at = content.index(b'{"message"')
    file.write_bytes(content[:at] + garbage * 1_000 + content[at + 1_000 :])
    with opened(file) as store:
        with pytest.raises(StoreError, match=r"damaged.* restore a copy") as refused:
            store.read("s")
        assert str(refused.value).startswith(f"{address(file)}: ")
        assert len(str(refused.value)) < 600
        store.append("another", [asks("0 is unharmed")])
        assert numbers(store, "another") == [0]


@pytest.mark.parametrize(
    ("version", "says"),
    [("99", "written by a newer Muntin .*pip install -U muntin"), ("x", "'x': .*damaged")],
)
def test_a_file_of_another_version_is_refused_and_left_as_it_is(file, version, says):
    filled(file)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE muntin_meta SET value = ?", (version,))
        before = list(connection.iterdump())
    with pytest.raises(StoreError, match=says) as refused:
        opened(file)
    assert str(refused.value).startswith(f"{address(file)}: ")
    with sqlite3.connect(file) as connection:
        assert list(connection.iterdump()) == before


def test_a_database_of_somebody_else_is_used_beside_its_tables(file):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE items (name TEXT)")
        connection.execute("INSERT INTO items VALUES ('theirs')")
        connection.execute("PRAGMA user_version = 99")
    with opened(file) as store:
        store.append("s", [asks("0 ours")])
    with opened(file) as store:
        assert numbers(store) == [0]
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT * FROM items").fetchall() == [("theirs",)]
        assert connection.execute("PRAGMA user_version").fetchall() == [(99,)]


# A file that others hold.


def test_a_file_locked_for_too_long_is_an_error_and_works_again_afterwards(file, monkeypatch):
    monkeypatch.setattr(database, "SECONDS", 0.2)
    filled(file)
    other = sqlite3.connect(file, isolation_level=None)
    with opened(file) as store:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked: another process held it") as refused:
            store.append("s", [asks("50 more")])
        assert str(refused.value).startswith(f"{address(file)}: ")
        assert len(numbers(store)) == 50
        other.execute("ROLLBACK")
        store.append("s", [asks("50 more")])
        assert numbers(store) == list(range(51))
    other.close()


def test_a_file_locked_for_too_long_cannot_be_opened_and_can_be_afterwards(file, monkeypatch):
    monkeypatch.setattr(database, "SECONDS", 0.2)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked: another process held it"):
        opened(file)
    other.execute("ROLLBACK")
    with opened(file) as store:
        assert store.append("s", [asks("0")])[0].position == 1
    other.close()
