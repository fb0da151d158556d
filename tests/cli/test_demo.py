"""`muntin demo`: the main job for a new user, who has neither a key nor a network."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
from functools import partial

import pytest

from muntin.cli.demo import recording, replay
from muntin.runtime import read_plan
from muntin.timeline.store import open_store
from tests.cli.command import MUNTIN, fails, on_terminal, run, said, shown
from tests.paths import ROOT

pytestmark = pytest.mark.usefixtures("here")


def test_it_shows_bar_reasons_and_request_and_ends_with_the_inspector(here):
    path = f"{MUNTIN.parent}:{os.environ['PATH']}"
    env = {"HTTPS_PROXY": "http://127.0.0.1:9", "OPENAI_API_KEY": "", "PATH": path}
    printed = said("demo", env=env)
    for words in ("of 2,500 tokens (", "left the window", "dropped", "style guide", '"role": "sys'):
        assert words in printed
    assert re.search(r"^s+h+i+t+a+·+$", printed, re.MULTILINE)
    dropped = r"^  history +messages 0 to \d+ +dropped +moved +about -"
    assert re.search(dropped, printed, re.MULTILINE)
    assert printed.endswith("\n  muntin inspect --store muntin-demo.db\n")
    assert sorted(path.name for path in here.iterdir()) == ["muntin-demo.db", "muntin-demo.html"]
    assert "Airline Agent Policy" in (here / "muntin-demo.html").read_text(encoding="utf-8")


def test_its_sessions_are_the_recording_and_every_window_can_be_planned_again(here):
    told = shown("demo")
    assert told["sessions"] == ["airline-small", "airline-roomy"]
    recorded = [(m.role, m.text) for m in recording().messages[:-1]]
    with open_store(told["store"], create=False) as store:
        for session, budget in (("airline-small", 2_500), ("airline-roomy", 8_000)):
            messages = [item.message for item in store.read(session) if item.message]
            assert [(m.role, m.text) for m in messages] == recorded
            assert {turn.status for turn in store.turns(session)} == {"completed"}
            reports = store.reports(session)
            assert len(reports) == sum(role == "assistant" for role, _ in recorded)
            for record in reports:
                plan = json.loads(record.plan)
                window = read_plan(plan, partial(store.content, session, "report")).window()
                assert window.report.budget == budget
                assert window.tokens == json.loads(record.report)["tokens"]
        kept = [json.loads(record.report) for record in store.reports("airline-small")]
    assert told["report"] in kept


def test_a_second_run_leaves_the_same(here):
    first = shown("demo")
    assert shown("demo") == first
    listed = shown("sessions", "list", "--store", first["store"])
    assert [(each["id"], each["turns"]) for each in listed] == [
        ("airline-roomy", 10),
        ("airline-small", 10),
    ]


def test_it_writes_into_the_folder_it_is_given_and_makes_it(here):
    printed = said("demo", "--output", "my/folder 2/")
    command = shlex.split(printed.splitlines()[-1])
    assert command[1:] == ["inspect", "--store", "my/folder 2/muntin-demo.db"]
    assert (here / "my" / "folder 2" / "muntin-demo.db").exists()
    (here / "file").touch()
    assert fails("demo", "-o", "file") == "muntin: file: this is a file; name a folder\n"


def test_a_file_that_is_no_store_is_left_alone(here):
    (here / "muntin-demo.db").write_text("my notes, by chance under this name\n" * 100)
    assert "muntin-demo.db" in fails("demo")
    assert (here / "muntin-demo.db").read_text().startswith("my notes")


def test_the_terminal_has_colours_unless_it_wants_none(here):
    with on_terminal("demo") as terminal:
        terminal.wait_for("muntin inspect", 60)
        assert "\x1b[38;5;33m█" in terminal.seen
        assert terminal.end() == 0
    with on_terminal("demo", env={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for("muntin inspect", 60)
        assert "\x1b[38" not in terminal.seen


def test_make_demo_runs_the_command():
    planned = subprocess.run(
        ["make", "--no-print-directory", "-n", "-o", ".venv/.ready", "demo"],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},  # not those of the make that runs this test
        capture_output=True,
        text=True,
        check=True,
    )
    assert planned.stdout.strip().endswith(".venv/bin/muntin demo")


def test_every_tool_answers_what_was_recorded():
    with open_store("memory:") as store:
        asyncio.run(replay(store, "s", budget=100_000))
        results = [
            i.message.text for i in store.read("s") if i.message and i.message.role == "tool"
        ]
    assert results == [each.text for each in recording().messages_of_role("tool")]


def test_help_says_what_it_writes():
    assert "muntin-demo.html" in run("demo", "--help").stdout
