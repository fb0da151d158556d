"""`muntin sessions`: what it prints and writes, and what a hostile session cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta

import pytest

from muntin import App, Session, assistant, user
from muntin.cli.terminal import safe
from muntin.core.parts import Attachment, ToolCall
from muntin.testing import ScriptedModel
from muntin.timeline.files import export_session, import_sessions
from muntin.timeline.items import Draft, Record, SideWrites, Visibility
from muntin.timeline.store import open_store
from tests.cli import command as installed
from tests.paths import ROOT, TRACES

SUPPORT = ROOT / "examples" / "data" / "support.jsonl"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test is a new user in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUNTIN_STORE", raising=False)
    return tmp_path


def run(*args: str, **options):
    return installed.run("sessions", *args, **options)


def said(*args: str, **options):
    result = run(*args, **options)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def shown(*args: str):
    return json.loads(said(*args, "--json"))


def fails(*args: str, **options):
    result = run(*args, **options)
    assert result.returncode == 2
    assert not result.stdout
    assert result.stderr.startswith("muntin: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_nothing_but_import_makes_a_store(here):
    for args in (["list"], ["show", "x"], ["export", "x"], ["export", "--all"]):
        assert "sqlite:///muntin.db" in fails(*args)
    assert list(here.iterdir()) == []


def test_reading_leaves_a_file_alone_that_is_no_store(here):
    (here / "notes.db").write_bytes(b"")
    fails("list", "--store", "sqlite:///notes.db")
    assert (here / "notes.db").read_bytes() == b""


def test_import_list_show_export(here):
    assert said("import", str(SUPPORT)) == (
        "support-42: 9 items in 3 turns\n1 session with 9 items imported into sqlite:///muntin.db\n"
    )
    assert shown("list") == [
        {
            "id": "support-42",
            "items": 9,
            "turns": 3,
            "created": "2026-03-02T09:30:00.000000+00:00",
            "updated": "2026-03-02T09:35:30.000000+00:00",
        }
    ]
    assert said("export", "support-42").encode() == SUPPORT.read_bytes()
    assert said("export", "support-42", "-o", "out.jsonl") == "1 session written to out.jsonl\n"
    assert (here / "out.jsonl").read_bytes() == SUPPORT.read_bytes()
    assert sorted(path.name for path in here.iterdir() if "muntin.db" not in path.name) == [
        "out.jsonl"
    ]


def test_what_the_command_line_can_do_about_an_error_is_said_in_flags(here):
    assert "no store is there; name yours with --store" in fails("list")
    assert "'.' is a folder; name a file in it, like chat.db" in fails("list", "--store", ".")
    said("import", str(SUPPORT))
    assert "give this one another id with --as" in fails("import", str(SUPPORT))


def test_a_run_without_a_payload_shows_none_and_a_neighbour_is_called_one(here):
    async def talk() -> None:
        async with App("sqlite:///muntin.db", model=ScriptedModel(["I see."] * 2)) as app:
            chat = app.conversation("ada")
            await chat.send("Emma is on the shelf.")
            await chat.send("Something else.")

    asyncio.run(talk())
    assert [line for line in said("show", "ada").splitlines() if "run" in line] == [
        "2  run         -",
        "5  run         -",
    ]
    found = said("search", "ada", "Emma").splitlines()
    assert any(line.endswith("  emma") for line in found)
    assert any(line.endswith("  (next to a match)") for line in found)


def test_json_tells_the_same(here):
    summary = shown("import", str(SUPPORT))
    assert summary == {
        "store": "sqlite:///muntin.db",
        "sessions": [{"id": "support-42", "items": 9, "turns": 3}],
    }
    assert shown("export", "--all", "-o", "all.jsonl") == {
        "file": "all.jsonl",
        "sessions": [{"id": "support-42", "items": 9}],
    }
    data = shown("show", "support-42", "--limit", "2")
    assert (data["id"], data["items"], data["turns"]) == ("support-42", 9, 3)
    lines = [json.loads(line) for line in SUPPORT.read_text(encoding="utf-8").splitlines()]
    assert data["shown"]["items"] == lines[-2:]
    assert data["shown"]["turns"] == [{"turn": 3, "status": "failed", "first": 8}]


def test_what_was_billed_is_shown_answers_and_summaries_apart(here):
    assert "billed" not in said("import", str(SUPPORT)) + said("show", "support-42")
    with open_store("sqlite:///muntin.db") as store:
        usage = {"input": 1_200, "output": 30, "cache_read": 900, "cache_write": 0}
        Session("paid", store=store).append(
            user("Hi"),
            Draft("message", assistant("Hello."), meta={"usage": usage}),
            Draft("summary", payload={"text": "x", "usage": {"input": 70, "output": 8}}),
        )
    told = said("show", "paid")
    assert "billed for answers: 1,200 in (900 from the cache), 30 out" in told
    assert "billed for summaries: 70 in, 8 out" in told
    data = shown("show", "paid")["usage"]
    assert data["answers"] == usage
    assert data["summaries"]["input"] == 70


def test_the_store_is_an_option_or_in_the_environment(here):
    said("import", str(SUPPORT), "--store", "sqlite:///a.db")
    assert said("list", env={"MUNTIN_STORE": "sqlite:///a.db"}) == said(
        "list", "--store", "sqlite:///a.db"
    )
    assert not (here / "muntin.db").exists()


def test_every_session_goes_through_one_file_and_back(here):
    said("import", str(TRACES))
    said("export", "--all", "-o", "all.jsonl")
    assert said("import", "all.jsonl", "--store", "sqlite:///b.db").endswith(
        "… and 30 more sessions\n50 sessions with 1,384 items imported into sqlite:///b.db\n"
    )
    said("export", "--all", "-o", "again.jsonl", "--store", "sqlite:///b.db")
    assert (here / "again.jsonl").read_bytes() == (here / "all.jsonl").read_bytes()


def test_import_reads_the_standard_input():
    data = SUPPORT.read_bytes()
    assert "support-42: 9 items" in said("import", "-", input=data)
    assert "give this one another id" in fails("import", "-", input=data)
    assert "copy: 9 items" in said("import", "-", "--as", "copy", input=data)
    chat = b'[{"role": "user", "content": "Hi"}]'
    assert "stdin: 1 item in 1 turn" in said("import", "-", input=chat)


def test_a_chat_is_named_by_its_file(here):
    (here / "monday.json").write_text('[{"role": "user", "content": "Hi"}]')
    assert shown("import", "monday.json")["sessions"] == [{"id": "monday", "items": 1, "turns": 1}]
    (here / "two.jsonl").write_text('[{"role": "user"}]\n[{"role": "user"}]\n')
    assert [each["id"] for each in shown("import", "two.jsonl")["sessions"]] == ["two-1", "two-2"]


def test_the_tokenizer_counts(here):
    (here / "a.json").write_text('[{"role": "user", "content": "12345678"}]')
    said("import", "a.json", "--tokenizer", "chars/4")
    (item,) = shown("show", "a")["shown"]["items"]
    assert item["tokens"] == {"chars/4+0#2": 2}
    assert "unknown tokenizer 'x'" in fails("import", "a.json", "--as", "b", "--tokenizer", "x")


def test_a_broken_file_leaves_nothing_and_the_files_before_it_stay(here):
    (here / "bad.jsonl").write_bytes(SUPPORT.read_bytes()[:-200])
    result = run("import", str(SUPPORT), "bad.jsonl")
    assert result.returncode == 2
    assert "1 session with 9 items imported" in result.stdout
    assert result.stderr.startswith("muntin: bad.jsonl:")
    said("import", str(SUPPORT), "--store", "sqlite:///b.db", "--as", "x")
    assert "bad.jsonl:11: not JSON" in fails("import", "bad.jsonl", "--store", "sqlite:///b.db")
    assert [each["id"] for each in shown("list", "--store", "sqlite:///b.db")] == ["x"]


def test_wrong_usage_is_exit_code_2(here):
    said("import", str(SUPPORT))
    (here / "folder").mkdir()
    assert "give the id of a session, or --all" in fails("export")
    assert "give the id of a session, or --all" in fails("export", "support-42", "--all")
    assert "there is no session 'x'; see `muntin sessions list`" in fails("show", "x")
    assert "there is no session 'x'" in fails("export", "x")
    said("import", str(SUPPORT), "--store", "b.db")
    wrong = fails("show", "x", "--store", "b.db")
    assert "see `muntin sessions list --store sqlite:///b.db`" in wrong
    assert "none.json: cannot be read: No such file" in fails("import", "none.json")
    assert "folder: cannot be read: Is a directory" in fails("import", "folder")
    assert "folder: cannot be written" in fails("export", "support-42", "-o", "folder")
    assert "cannot be written" in fails("export", "support-42", "-o", "none/x.jsonl")
    assert "--as names one session" in fails("import", "a", "b", "--as", "x")
    assert "a second session" in fails("import", str(TRACES), "--as", "x")
    assert "is gone when the command ends" in fails("import", str(SUPPORT), "--store", "memory:")
    assert "unknown store 'mongo'" in fails("list", "--store", "mongo://x")
    assert run("import").returncode == 2
    assert run("list", "--limit", "-1").returncode == 2
    assert run("nonsense").returncode == 2
    assert [each["id"] for each in shown("list")] == ["support-42"]


def test_an_export_that_fails_leaves_the_file_that_was_there(here):
    said("import", str(SUPPORT))
    (here / "out.jsonl").write_text("mine")
    fails("export", "nobody", "-o", "out.jsonl")
    assert (here / "out.jsonl").read_text() == "mine"
    assert not list(here.glob(".out*"))


def test_limits_say_that_there_is_more():
    said("import", str(TRACES))
    assert len(shown("list", "--limit", "3")) == 3
    assert said("list", "--limit", "3").endswith("… and more; see them with --limit 30\n")
    assert "more" not in said("list", "--limit", "50")
    assert "… 29 earlier items; see them with --limit 32\n" in said(
        "show", "airline-0-0", "--limit", "3"
    )
    assert said("show", "airline-0-0", "--limit", "0").count("\n") == 3


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\x7f\x00\r\n[red]x[/red] :smile: \U000e0041"


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_control_characters_do_not_reach_the_terminal(option):
    name = HOSTILE.replace("\x00", "")
    with open_store() as store:
        store.append(
            name,
            [
                Draft("message", user(HOSTILE), tokens={HOSTILE: 3}),
                Draft("signal", payload={HOSTILE: HOSTILE}, visibility=Visibility(False, False)),
                Draft(
                    "tool_call",
                    assistant(HOSTILE, tool_calls=[ToolCall(HOSTILE, HOSTILE, HOSTILE)]),
                ),
                Draft("message", payload=HOSTILE, transient=True),
                Draft("context_inserted", payload={"id": "e", "name": HOSTILE, "content": HOSTILE}),
            ],
        )
    printed = said("list", *option) + said("show", name, *option)
    printed += run("show", name + "!").stderr + run("import", name[:9] + ".json").stderr
    assert set(re.findall(r"[^\x20-\x7e…·]", printed)) == {"\n"}
    assert "[red]x[/red] :smile:" in printed
    assert "\\u001b" in printed


@pytest.mark.parametrize("text", ["日本語 テキスト", "👨‍👩‍👧 family", "naïve café", "می‌خواهم"])
def test_other_scripts_are_shown_as_they_are(text):
    assert safe(text) == text


def test_what_is_special_about_an_item_is_shown():
    session = Session("s")
    file = Attachment("f", "report.pdf", 5, "document")
    image = {"type": "image_url", "image_url": {"url": "https://x"}}
    session.append(user("look", attachments=[file]), {"role": "assistant", "content": [image]})
    session.append(
        Draft("message", assistant("a"), visibility=Visibility(client=False)),
        Draft("message", assistant("b"), visibility=Visibility(history=False)),
        Draft("wake", payload={"at": 5}, transient=True),
        Draft("message", user("long " * 1_000_000), opens="turn"),
    )
    session.store.close()
    lines = [line for line in said("show", "s").splitlines() if re.match(r"\d  ", line)]
    texts = [re.split(r"\s{2,}", line, maxsplit=3)[3] for line in lines]
    assert texts[:5] == [
        "look File: report.pdf",
        "[image]",
        "(hidden from the client) a",
        "(hidden from the model) b",
        '(for this turn only) {"at":5}',
    ]
    assert texts[5].startswith("long long")
    assert texts[5].endswith("…")
    assert all(len(line) <= 80 for line in lines)
    assert "\nturn 2, open\n" in said("show", "s")


def test_a_wide_text_is_cut_at_the_width_of_the_terminal():
    session = Session("s")
    session.append(user("語" * 500))
    session.store.close()
    line = said("show", "s", env={"COLUMNS": "40"}).splitlines()[-1]
    assert line.endswith("…")
    assert 10 < line.count("語") < 17


# On a real terminal.


def command(*args: str) -> list[str]:
    script = "import muntin.cli.terminal; muntin.cli.terminal.BAR_SECONDS = 0; muntin.cli.main()"
    return [sys.executable, "-c", script, "sessions", *args]


def on_terminal(*args: str) -> tuple[str, str]:
    """Run a command whose stderr is a terminal; return what it wrote there, and its stdout."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(command(*args), stdout=subprocess.PIPE, stderr=theirs) as process:
            os.close(theirs)
            written = b""
            try:
                while chunk := os.read(ours, 4_096):
                    written += chunk
            except OSError:  # how Linux tells that the other side is closed
                pass
            out = process.communicate()[0].decode()
        assert process.returncode == 0
    finally:
        os.close(ours)
    return written.decode(), out


def test_a_long_import_has_a_bar_on_a_terminal_and_none_elsewhere():
    bar, out = on_terminal("import", str(TRACES))
    assert "100%" in bar
    assert "items" in bar
    assert "50 sessions with 1,384 items imported" in out
    assert "%" not in out
    quiet = subprocess.run(
        command("import", str(TRACES), "--store", "sqlite:///b.db"), capture_output=True, check=True
    )
    assert quiet.stderr == b""


def test_an_export_printed_on_a_terminal_is_readable_json_without_control_characters():
    with open_store() as store:
        store.append("s", [Draft("message", user("\x9b31m\x7f 語 \U000e0041"))])
    ours, theirs = pty.openpty()
    subprocess.run(command("export", "s"), stdout=theirs, check=True)
    os.close(theirs)
    written = os.read(ours, 65_536).decode()
    os.close(ours)
    assert not re.search("[\x7f-\x9f]|\U000e0041", written)
    assert json.loads(written.splitlines()[1])["message"]["content"] == (
        "\x9b31m\x7f 語 \U000e0041"
    )


def test_ctrl_c_leaves_nothing_behind(here):
    fifo = here / "slow"
    os.mkfifo(fifo)
    process = subprocess.Popen(command("import", str(fifo)), stderr=subprocess.PIPE)
    with open_store("memory:") as source, fifo.open("wb") as pipe:
        texts = (user(str(n)) for n in range(3_000))
        source.append("s", [Draft("message", text, tokens={"x": 1}) for text in texts])
        pipe.writelines(list(export_session(source, "s"))[:2_500])
        pipe.flush()
        with open_store() as store:
            deadline = time.monotonic() + 30
            while not store.sessions():  # until the first batch is in
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=30)[1]
            assert process.returncode != 0
            assert b"Traceback" not in errors
            assert store.sessions() == []


def test_a_reader_that_stops_early_is_no_traceback():
    said("import", str(TRACES))
    ended = subprocess.run(
        f"{shlex.join(command('export', '--all'))} | head -c 100",
        shell=True,
        capture_output=True,
        check=True,
    )
    assert len(ended.stdout) == 100
    assert ended.stderr == b""


def test_without_utf_8_nothing_breaks():
    with open_store() as store:
        list(import_sessions(store, ['[{"role": "user", "content": "語 …"}]'.encode()], stem="é"))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for args in (["list"], ["show", "é"], ["show", "é", "--json"], ["export", "é"]):
        ended = subprocess.run(command(*args), capture_output=True, env=environment)
        assert (ended.returncode, ended.stderr) == (0, b"")


def test_the_page_shows_the_lines_of_the_file():
    page = (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert SUPPORT.read_text(encoding="utf-8").startswith(lines)


def test_what_waited_is_marked_failed_unless_it_is_to_wake(here):
    with open_store("memory:") as source:
        source.append("s", [Draft("message", user("Anybody?"), opens="inbox")])
        (here / "s.jsonl").write_bytes(b"".join(export_session(source, "s")))
    assert "1 unfinished turn marked failed; with --wake they wait on" in said("import", "s.jsonl")
    assert "unfinished" not in said("import", "s.jsonl", "--as", "t", "--wake")
    with open_store() as store:
        assert [info.id for info in store.sessions(waiting=True)] == ["t"]


def test_old_reports_are_forgotten_and_what_was_said_stays(here):
    secret = "pomegranate"
    with open_store() as store:
        store.append("s", [Draft("message", user("Hi"), opens="turn", ends="completed")])
        for turn, days in ((1, 40), (2, 1)):
            time = datetime.now(UTC) - timedelta(days=days)
            record = Record(turn, 1, time, f"{secret}-{turn}", "{}")
            store.put("s", SideWrites(record, {f"k{turn}": f"{secret}-{turn}"}, [f"k{turn}"], 10))
    assert "1 report with 28 bytes forgotten" in said("prune", "--days", "30")
    with open_store() as store:
        assert [record.turn for record in store.reports("s")] == [2]
        assert store.content("s", "report", "k1") is None
        assert store.content("s", "report", "k2") == f"{secret}-2"
        assert len(store.read("s")) == 1
    assert shown("prune", "--megabytes", "0")["reports"] == 1
    said("vacuum")
    for file in here.glob("muntin.db*"):
        assert secret.encode() not in file.read_bytes()
    with open_store() as store:
        assert (store.reports("s"), len(store.read("s"))) == ([], 1)


def test_prune_says_what_it_needs(here):
    open_store().close()
    assert "say what to forget: --days or --megabytes" in fails("prune")


# Searching.


def test_a_session_is_searched_for_what_a_question_needs_and_nothing_is_written(here):
    with open_store("sqlite:///muntin.db") as store:
        session = Session("ada", store=store)
        session.append(user("My locker is QX7731 <in> the hall\x1b[31m."), assistant("Noted."))
        for number in range(20):
            session.append(user(f"What about the weather on day {number}?"), assistant("Rain."))
    before = (here / "muntin.db").read_bytes()
    told = said("search", "ada", "Which number has my locker?", "--limit", "1")
    assert "1 user" in told
    assert "QX7731 <in> the hall" in told
    assert "\x1b" not in told
    (found,) = shown("search", "ada", "locker number", "--limit", "1")["found"]
    assert found["positions"] == [1]
    assert found["day"] == date.today().isoformat()
    assert "locker" in found["words"]
    assert (here / "muntin.db").read_bytes() == before
    assert "nothing on that" in said("search", "ada", "zeppelin")
    assert "there is no session 'bob'" in fails("search", "bob", "locker")
