"""`muntin work`: takes up what waits for entities, and keeps doing so until it is stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest

from muntin import user
from muntin.timeline.items import Draft
from muntin.timeline.store import open_store
from tests.cli.command import MUNTIN, environment, run

SUPPORT = """
from muntin import App

app = App("sqlite:///store.db")
other = 5


@app.entity("e")
async def handler(ctx, wake):
    await ctx.insert_context("seen", name="Seen", content=wake.payload)
"""


SLOW = SUPPORT.replace(
    "await ctx.insert_context(", "await __import__('asyncio').sleep(60); await ctx.insert_context("
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "support.py").write_text(SUPPORT, encoding="utf-8")
    return tmp_path


def test_it_takes_up_what_was_left_and_what_comes(folder):
    store = open_store(f"sqlite:///{folder / 'store.db'}")
    store.append("e/1", [Draft("message", message=user("left"), opens="inbox")])
    with subprocess.Popen(
        [MUNTIN, "work", "support:app"],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as working:
        assert working.stderr is not None
        lines = [working.stderr.readline(), working.stderr.readline()]
        assert lines[0] == "Working. Press Ctrl-C to stop.\n"
        assert "resumed unfinished work: turn 1 of 'e/1'" in lines[1]
        store.append("e/2", [Draft("message", message=user("new"), opens="inbox")])
        end = time.monotonic() + 20
        while not store.read("e/2", live=True) and time.monotonic() < end:
            time.sleep(0.05)
        working.send_signal(signal.SIGINT)
        assert working.wait(20) == 0
    assert [item.payload["content"] for item in store.read("e/1", live=True)] == ["left"]
    assert [item.payload["content"] for item in store.read("e/2", live=True)] == ["new"]
    store.close()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("support", "an app is named like 'support:app', not 'support'"),
        (":app", "an app is named like"),
        ("nowhere:app", "there is no module 'nowhere' here"),
        ("support.py:app", "name the module, not its file: support:app"),
        ("support:other", "'support:other' is not an App, but 5"),
        ("support:missing", "module 'support' has no 'missing'; did you mean support:app?"),
        ("empty:app", "module 'empty' has no 'app': assign the App to a name there"),
    ],
)
def test_what_is_no_app_is_named(folder, name, told):
    (folder / "empty.py").touch()
    ended = run("work", name, cwd=folder)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_term_signal_begins_nothing_and_leaves_what_runs_too_long_to_others(folder):
    (folder / "slow.py").write_text(SLOW, encoding="utf-8")
    store = open_store(f"sqlite:///{folder / 'store.db'}")
    for number in (1, 2):
        store.append(f"e/{number}", [Draft("message", message=user("go"), opens="inbox")])
    with subprocess.Popen(
        [MUNTIN, "work", "slow:app", "--concurrency", "1", "--timeout", "0.5"],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as working:
        end = time.monotonic() + 20
        while not store.turns("e/1", status="open") and time.monotonic() < end:
            time.sleep(0.05)
        working.send_signal(signal.SIGTERM)
        said = working.communicate(timeout=20)[1]
        assert working.returncode == 0
    assert "Stopped in the middle and left to others: e/1." in said
    assert "Traceback" not in said
    assert [turn.status for turn in store.turns("e/1")] == ["open"]
    assert [turn.status for turn in store.turns("e/2")] == ["pending"]
    store.close()


def test_once_ends_and_names_what_it_handled_and_left(folder):
    with open_store(f"sqlite:///{folder / 'store.db'}") as store:
        for entity in ("e/1", "e/2"):
            store.append(entity, [Draft("message", message=user("left"), opens="inbox")])
        store.take("e/2", "another-machine:1:1:x", timedelta(minutes=1), resumable=True)
    done = subprocess.run(
        [MUNTIN, "work", "support:app", "--once"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stdout == "Handled: e/1.\nLeft: e/2: turn 1 is handled by another process.\n"
