"""The clock of a file's leases: shared by all processes of a machine, and never set back."""

import subprocess
import sys
import time
from datetime import timedelta

from muntin import user
from muntin.timeline.clock import boot_id, monotonic_micros, new_anchor
from muntin.timeline.items import draft_of
from muntin.timeline.store.sql import Store

PROGRAM = """
import sys, time
real = time.time_ns
time.time_ns = lambda: real() - 3_600_000_000_000
from muntin.timeline.store import open_store
with open_store(sys.argv[1]) as store:
    print(store.database.query("SELECT muntin_now()")[0][0])
"""


def test_the_clock_does_not_go_back_with_the_wall_clock(monkeypatch):
    database = Store("memory:").database
    before = database.query("SELECT muntin_now()")
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert database.query("SELECT muntin_now()") >= before
    assert new_anchor() == -monotonic_micros() or abs(new_anchor() + monotonic_micros()) < 10_000


def test_a_process_with_another_wall_clock_has_the_same_time_of_a_file(tmp_path):
    url = f"sqlite:///{tmp_path / 's.db'}"
    with Store(url) as store:
        store.append("s", [draft_of(user("hello"), opens="inbox")])
        taken = store.take("s", "me", timedelta(0))
        assert taken is not None
        told = subprocess.run([sys.executable, "-c", PROGRAM, url], capture_output=True, text=True)
        assert told.stderr == ""
        now = store.database.query("SELECT muntin_now()")[0][0]
    assert boot_id() == "" or 0 <= now - int(told.stdout) < 60_000_000
