"""Contents of reports: written once, and there as long as a kept report names them."""

from datetime import UTC, datetime

from muntin import user
from muntin.timeline.items import Record, SideWrites, draft_of
from muntin.timeline.store.sql import Store, statements
from muntin.timeline.store.sql.transaction import Transaction


def put(store, turn, *names, keep=10, time=0):
    at = datetime(2030, 1, 1, 0, 0, time, tzinfo=UTC)
    contents = {name: f"content {name}" for name in names}
    store.put("s", SideWrites(Record(turn, 1, at, "{}", "{}"), contents, names, keep))


def opened(store):
    store.append("s", [draft_of(user("hi"), opens="turn", ends="completed")])


def test_what_the_report_before_names_is_not_written_again(tmp_path, monkeypatch):
    store = Store(f"sqlite:///{tmp_path / 'a.db'}")
    opened(store)
    put(store, 1, "a", "b")
    written: list[str] = []
    many = Transaction.many

    def watched(self, insert, rows):
        if insert == statements.INSERT_CONTENTS:
            written.extend(name for _, _, name, *_ in rows)
        many(self, insert, rows)

    monkeypatch.setattr(Transaction, "many", watched)
    put(store, 2, "a", "b", "c")
    assert written == ["c"]
    assert [store.content("s", "report", name) for name in "abc"] == [
        "content a",
        "content b",
        "content c",
    ]
    store.close()


def test_what_another_process_has_forgotten_meanwhile_is_written_again(tmp_path):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    mine, other = Store(url), Store(url)
    opened(mine)
    put(mine, 1, "a")
    put(other, 2, "b", keep=1)
    assert mine.content("s", "report", "a") is None  # it went with the only report that named it
    put(mine, 3, "a")
    assert mine.content("s", "report", "a") == "content a"
    mine.close()
    other.close()


def test_a_session_made_anew_has_its_contents(tmp_path):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    mine, other = Store(url), Store(url)
    opened(mine)
    put(mine, 1, "a")
    other.delete("s")
    opened(other)
    put(other, 1, "b")  # the same turn and time
    put(mine, 2, "a")
    assert mine.content("s", "report", "a") == "content a"
    mine.close()
    other.close()
