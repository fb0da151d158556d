"""What a person types and reads: stores as files, flags in errors, one line for wrong usage."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from muntin import Session, assistant, user
from muntin.cli.commands import COMMANDS
from muntin.cli.error_text import IN_FLAGS
from muntin.timeline.files import export_session
from muntin.timeline.store import open_store
from tests.cli.command import MUNTIN, environment, fails, run, said, shown
from tests.paths import ROOT

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
SESSIONS = ("list", "show", "search", "export", "import", "prune", "vacuum")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.json").write_text(json.dumps(CHAT), encoding="utf-8")
    return tmp_path


# Stores.


@pytest.mark.parametrize("name", ["chat.db", "./chat.db", "100% sure?.db"])
def test_a_store_may_be_named_by_its_file(here, name):
    said("sessions", "import", "chat.json", "--store", name)
    assert (here / name).exists()
    assert [each["id"] for each in shown("sessions", "list", "--store", str(here / name))] == [
        "chat"
    ]
    assert [each["id"] for each in shown("sessions", "list", env={"MUNTIN_STORE": name})] == [
        "chat"
    ]
    assert "sessions: 1" in said("doctor", "--store", name)


def test_a_word_that_is_neither_file_nor_address_is_refused(here):
    assert "--store" in fails("sessions", "list", "--store", "chat")
    assert "name a file like chat.db" in fails("sessions", "list", "--store", "")
    assert "unknown store 'mongo'" in fails("sessions", "list", "--store", "mongo://x")


# Errors.


def test_wrong_usage_is_one_line_that_says_where_to_look():
    assert fails("simulate") == "muntin: Missing argument 'TRACE'. See: muntin simulate -h\n"
    assert fails("nonsense") == "muntin: No such command 'nonsense'. See: muntin -h\n"
    assert "'--model'" in fails("chat")
    assert "See: muntin sessions list -h" in fails("sessions", "list", "--limit", "-1")
    assert "--budget" in fails("chat", "--model", "openai/gpt-4o", "--budget", "many")
    assert fails("sessions", "nonsense").endswith("See: muntin sessions -h\n")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("inspect", "--port", "abc"), "whole number|not a valid integer"),
        (("inspect", "--port", "99999"), "at most 65535|in the range"),
        (("chat", "--model", "openai/x", "--budget", "0"), "at least 1|in the range"),
        (("sessions", "prune", "--days", "x"), "must be a number|not a valid float"),
    ],
    ids=str,
)
def test_a_value_that_is_refused_is_told_in_plain_words(args, says):
    told = fails(*args)
    assert re.search(says, told)
    assert "Input should" not in told


def test_an_option_without_its_value_says_where_to_look():
    assert fails("sessions", "list", "--limit").endswith("See: muntin sessions list -h\n")
    assert fails("inspect", "--port").endswith("See: muntin inspect -h\n")


def test_an_upstream_that_is_no_address_is_named_by_its_flag():
    assert "--upstream is an address" in fails("gateway", "--upstream", "foo")


def test_a_model_without_its_provider_is_answered_with_the_whole_name():
    for flag in ("--model", "--summary"):
        given = ("--model", "openai/gpt-4o", flag, "gpt-4o", "--store", "memory:")
        assert "did you mean 'openai/gpt-4o'?" in fails("chat", *given)
    assert "openai/gpt-4o" in said("count", "chat.json", "--model", "openai/gpt-4o")


PYTHON = re.compile(r"\b[a-z_]+=(?!\d)|\b[A-Z]\w+\(|\w_url\b|callable|attachment_tokens")
TRACE = ("simulate", "chat.json", "--budget", "100", "--model")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("chat", "--model", "openai/x", "--base-url", "foo", "--store", "memory:"), "--base-url"),
        (("chat", "--model", "llama3", "--store", "memory:"), "with --base-url"),
        (("count", "chat.json", "--tokenizer", "none"), "'o200k_base'"),
        (("count", "chat.json", "--attachment-tokens", "smell=3"), "--attachment-tokens"),
        ((*TRACE, "nobody/nothing"), "with --model"),
        ((*TRACE, "openai/gpt-5", "--policy", "none"), "'module:function'"),
        ((*TRACE, "openai/gpt-5", "--pause", "-1"), "--pause"),
        (("simulate", "chat.json", "--model", "openai/gpt-5", "--budget", "0"), "--budget"),
        (("render", "chat.json", "--budget", "-1"), "--budget"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_errors_name_flags_and_no_arguments_of_python(args, says):
    told = fails(*args)
    assert says in told
    assert not PYTHON.search(told)


def test_a_turn_that_fails_says_what_to_do_in_flags():
    for args in ((), ("--budget", "5", "--base-url", "http://127.0.0.1:9/v1")):
        command = ("chat", "--model", "openai/gpt-4o", "--store", "memory:", *args)
        ended = run(*command, input="A question of some length\n")
        assert ended.returncode == 1
        assert not PYTHON.search(ended.stderr)
        told = json.loads(run(*command, "--json", input="A question of some length\n").stdout)
        assert not PYTHON.search(told["message"])


def test_what_is_said_otherwise_is_what_the_library_says():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    source = re.sub(r'"\s*f?"', "", source)
    for python, _ in IN_FLAGS:
        assert source.count(python) > 1, python


# Help.


def test_no_help_shows_types_of_python():
    for command in (*((name,) for name in COMMANDS), *(("sessions", name) for name in SESSIONS)):
        told = said(*command, "-h")
        assert not re.search(r"<[\w\[\] ]+>", told), command
        assert "..." not in said("-h").partition("Commands:")[2]


# Importing.


def test_an_import_that_fails_leaves_no_file(here):
    (here / "bad.json").write_text('{"messages":', encoding="utf-8")
    (here / "half.jsonl").write_text(
        "\n".join([*(json.dumps(CHAT[0]) for _ in range(2_500)), "nonsense"]), encoding="utf-8"
    )
    before = sorted(here.iterdir())
    for given in ("bad.json", "half.jsonl", "none.json"):
        fails("sessions", "import", given, "--store", "new.db")
    fails("sessions", "import", "chat.json", "--tokenizer", "none", "--store", "new.db")
    assert sorted(here.iterdir()) == before
    ended = run("sessions", "import", "chat.json", "bad.json", "--store", "new.db")
    assert ended.returncode == 2
    assert [each["id"] for each in shown("sessions", "list", "--store", "new.db")] == ["chat"]


def test_an_import_that_fails_leaves_a_store_that_was_there_or_is_in_use(here):
    (here / "bad.json").write_text('{"messages":', encoding="utf-8")
    with open_store("sqlite:///empty.db"):
        pass
    fails("sessions", "import", "bad.json", "--store", "empty.db")
    assert (here / "empty.db").exists()
    os.mkfifo(here / "slow")
    command = [str(MUNTIN), "sessions", "import", "slow"]
    process = subprocess.Popen(
        [*command, "--store", "used.db"], env=environment(), cwd=here, stderr=subprocess.PIPE
    )
    with (here / "slow").open("w") as pipe, open_store("sqlite:///used.db") as store:
        store.sessions()
        pipe.write("nonsense")
        pipe.close()
        process.communicate(timeout=60)
        assert process.returncode == 2
        Session("mine", store=store).append(user("Hello?"))
    assert [each["id"] for each in shown("sessions", "list", "--store", "used.db")] == ["mine"]


# Simulating.


def test_simulate_reads_the_standard_input_and_exports(here):
    with open_store("sqlite:///a.db") as store:
        session = Session("s", store=store)
        for turn in range(30):
            session.append(user(f"Question {turn}. " * 20), assistant(f"Answer {turn}. " * 20))
        lines = b"".join(export_session(store, "s"))
        chat = [item.message.to_dict() for item in store.read("s") if item.message]
    (here / "s.jsonl").write_bytes(lines)
    options = ("--budget", "2000", "--model", "openai/gpt-5")
    expected = shown("simulate", "-", *options, input=json.dumps(chat))
    assert expected["policies"][0]["requests"] == 30
    assert shown("simulate", "s.jsonl", *options) == expected
    assert shown("simulate", "-", *options, input=lines) == expected
    told = fails("simulate", "-", *options, input=lines[:-20])
    assert told.startswith("muntin: <stdin>:")


def test_of_several_exported_sessions_the_first_has_the_instructions(here):
    from muntin import system

    with open_store("sqlite:///a.db") as store:
        for id in ("a", "b"):
            Session(id, store=store).append(system(f"Be {id}."), user("Hi"), assistant("Ho"))
        lines = b"".join(b"".join(export_session(store, id)) for id in ("a", "b"))
    (here / "all.jsonl").write_bytes(lines)
    from muntin.cli.simulate import read_trace

    roles = [each.role for each in read_trace(here / "all.jsonl")]  # type: ignore[union-attr]
    assert roles == ["system", "user", "assistant", "user", "assistant"]


# The demo.


def test_the_command_that_the_demo_prints_works_as_printed(here):
    """As from a fresh clone: the command is in the folder .venv, and not on the path."""
    (here / ".venv").symlink_to(Path(sys.executable).parents[1])
    bare = {**environment(), "PATH": "/usr/bin:/bin"}
    for called in (".venv/bin/muntin", ".venv/bin/python -m muntin"):
        ended = subprocess.run(
            f"{called} demo -o 'new folder/deep'",
            shell=True,
            cwd=here,
            env=bare,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        command = ended.stdout.splitlines()[-1].strip()
        assert shlex.split(command)[-1] == "new folder/deep/muntin-demo.db"
        with subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command} --port 0 --json"],
            cwd=here,
            env=bare,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            process.terminate()
        assert told["url"].startswith("http://127.0.0.1:")
