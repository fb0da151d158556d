"""`muntin doctor`: what is there, what to install, and what is broken."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from datetime import timedelta

import pytest

from muntin import App, user
from muntin.cli.doctor import PURPOSES, _extra, _needs, _packages
from muntin.timeline.items import Draft, draft_of
from muntin.timeline.store import open_store
from muntin.timeline.store.sql.schema import MIGRATIONS
from tests.cli.command import HOSTILE, fails, harmless, run, said, shown
from tests.paths import ROOT

pytestmark = pytest.mark.usefixtures("here")


def found(group: str, *args: str, code: int = 0, **options) -> dict[str, tuple[str, str]]:
    ended = run("doctor", *args, "--json", **options)
    assert (ended.returncode, ended.stderr) == (code, "")
    data = json.loads(ended.stdout)
    assert data["ok"] is (code == 0)
    return {c["name"]: (c["state"], c["detail"]) for c in data["checks"] if c["group"] == group}


def test_a_new_user_is_told_what_is_there_and_nothing_is_made(here):
    printed = said("doctor")
    assert printed.startswith("muntin 0.")
    assert "not there yet; it appears when used" in printed
    assert printed.endswith("\nall fine\n")
    assert list(here.iterdir()) == []


def test_json_has_the_versions_and_every_check():
    data = shown("doctor")
    assert list(data) == ["muntin", "python", "platform", "ok", "checks"]
    assert {check["group"] for check in data["checks"]} == {
        *("extras", "tokenizers", "store", "keys", "tests"),
    }


def test_every_extra_has_a_purpose():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"all", "dev"}
    assert extras <= set(PURPOSES)


def test_extras_are_read_from_the_package_with_those_inside_of_them():
    state, detail = found("extras")["cli"]
    assert state == "ok"
    assert "typer" in detail
    assert "tiktoken" in detail


@pytest.mark.parametrize(
    ("requirement", "package"),
    [
        ("typer>=0.15", ("typer", "0.15")),
        ("psycopg[binary]>=3.2", ("psycopg", "3.2")),
        ("python-liquid >= 2.3.3", ("python-liquid", "2.3.3")),
        ("plain", ("plain", "0")),
    ],
)
def test_a_requirement_is_a_package_and_its_least_version(requirement, package):
    needs = {"x": [requirement], "y": ["muntin[x]"]}
    assert list(_packages("y", needs)) == [package]


def test_the_installed_package_names_its_extras():
    assert _needs()["hf"] == ["tokenizers>=0.21"]


@pytest.mark.parametrize(
    ("requirement", "asked", "state", "detail"),
    [
        ("no-such-package", False, "missing", "for this command: pip install 'muntin[cli]'"),
        ("no-such-package", True, "broken", "for this command: pip install 'muntin[cli]'"),
        ("typer>=9999", False, "broken", "is too old: pip install -U 'muntin[cli]'"),
        ("typer>=0.1", True, "ok", "typer 0."),
    ],
)
def test_what_is_missing_is_no_fault_unless_it_was_asked_for(requirement, asked, state, detail):
    check = _extra("cli", {"cli": [requirement]}, is_required=asked)
    assert check.state == state
    assert detail in check.detail


def test_an_extra_that_was_asked_for_must_exist():
    assert "there is no extra 'x'; known are: " in fails("doctor", "--extra", "x")
    assert found("extras", "--extra", "dev")["dev"][0] == "ok"


def test_tokenizers_are_tried():
    assert {name: state for name, (state, _) in found("tokenizers").items()} == {
        "estimate": "ok",
        "chars/4": "ok",
        "o200k_base": "ok",
        "cl100k_base": "ok",
    }


def test_a_store_tells_its_version_and_sessions():
    open_store("sqlite:///a.db").close()
    assert found("store", "--store", "sqlite:///a.db") == {
        "sqlite:///a.db": ("ok", f"version {len(MIGRATIONS)} of the tables, sessions: 0")
    }
    assert found("store", env={"MUNTIN_STORE": "sqlite:///a.db"})["sqlite:///a.db"][0] == "ok"


def test_a_store_tells_what_waits_and_since_when():
    with open_store("sqlite:///store.db") as store:
        for entity in ("e/1", "e/2"):
            store.append(entity, [Draft("message", message=user("hi"), opens="inbox")])
        assert store.take("e/2", "me", timedelta(minutes=1), resumable=True)
    said = found("wakes", "--store", "sqlite:///store.db")
    assert list(said) == ["turns"]
    assert said["turns"][0] == "ok"
    assert re.fullmatch(
        r"waiting: 1, the oldest since 0:0\d:\d\d ago; running: 1", said["turns"][1]
    )


def test_a_store_tells_which_workers_live(tmp_path, server):
    database = server.new_database()
    app = App(server.url(database), engine="procrastinate")
    asyncio.run(app.resume())
    app.store.close()
    server.ask("SELECT * FROM procrastinate_register_worker_v1()", database)
    server.ask(
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 hour')",
        database,
    )
    said = found("wakes", "--store", server.url(database))
    assert said["turns"] == ("ok", "waiting: 0; running: 0")
    assert said["worker 1"][0] == "ok"
    assert re.fullmatch(r"heard 0:0\d:\d\d ago, running 0", said["worker 1"][1])
    assert said["worker 2"][0] == "missing"
    assert said["worker 2"][1].startswith("heard 1:00:")


def test_what_was_given_up_is_listed():
    with open_store("sqlite:///a.db") as store:
        store.append("e/1", [draft_of(user("poison"), opens="inbox")])
        for _ in range(2):
            store.take("e/1", "dead", timedelta(seconds=-1), resumable=True, max_attempts=1)
    ((name, (state, detail)),) = found("gave up", "--store", "sqlite:///a.db", code=1).items()
    assert (name, state) == ("e/1", "broken")
    assert "turn 1 was given up" in detail
    assert "muntin sessions retry e/1 --turn 1" in detail
    again = run("sessions", "retry", "e/1", "--store", "sqlite:///a.db")
    assert (again.returncode, again.stdout) == (0, "turn 1 of e/1 is tried again\n")
    with open_store("sqlite:///a.db") as store:
        assert [(turn.status, turn.tries) for turn in store.turns("e/1")] == [("open", 0)]
        store.settle("e/1", 1, "completed")
    assert run("sessions", "retry", "e/1", "--turn", "1", "--store", "a.db").returncode == 2
    assert run("sessions", "retry", "e/2", "--store", "sqlite:///a.db").returncode == 2


def test_a_store_that_was_asked_for_and_cannot_be_reached_is_broken(here):
    (here / "notes.db").write_text("notes " * 1_000)
    server = "postgresql://ann:secret@127.0.0.1:1/x"
    for url in ("sqlite:///none.db", "sqlite:///notes.db", server, "mongo://ann:secret@x"):
        ((name, (state, detail)),) = found("store", "--store", url, code=1).items()
        assert state == "broken"
        assert "secret" not in name + detail
    assert not (here / "none.db").exists()
    assert run("doctor", "--store", server).returncode == 1


def test_keys_are_seen_and_never_shown():
    environment = {"OPENAI_API_KEY": "sk-very-secret", "GEMINI_API_KEY": "g-very-secret"}
    assert found("keys", env=environment) == {
        "openai": ("ok", "OPENAI_API_KEY is set"),
        "anthropic": ("missing", "ANTHROPIC_API_KEY is not set"),
        "openrouter": ("missing", "OPENROUTER_API_KEY is not set"),
        "google": ("ok", "GEMINI_API_KEY is set"),
    }
    assert "secret" not in said("doctor", env=environment)


def test_a_model_that_was_asked_for_needs_its_sdk_and_a_key():
    models = ["--model", "openai/gpt-4o"]
    assert found("models", *models, code=1) == {
        "openai/gpt-4o": ("broken", "no key: set OPENAI_API_KEY")
    }
    for environment in ({"OPENAI_API_KEY": "k"}, {"OPENAI_BASE_URL": "http://localhost:1/v1"}):
        assert found("models", *models, env=environment)["openai/gpt-4o"][0] == "ok"
    assert "no provider 'x'" in found("models", "--model", "x/y", code=1)["x/y"][1]


def test_a_hostile_address_is_shown_and_not_obeyed():
    ended = run("doctor", "--store", f"sqlite:///{HOSTILE}", "--model", HOSTILE)
    assert ended.returncode == 1
    assert harmless(ended.stdout + ended.stderr)


def test_what_is_known_of_a_model_has_a_source_and_a_date():
    ended = run(
        "doctor", "--models", "anthropic/claude-opus-4-6", "--models", "openai/gpt-5", "--json"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    models = json.loads(ended.stdout)["models"]
    claude = {row["fact"]: row for row in models["anthropic/claude-opus-4-6"]}
    assert claude["limits"]["value"]["images"] == 600
    assert claude["added_tokens"]["value"] == [30, 520]
    assert claude["keeps_thoughts"]["value"] is True
    assert {row["fact"] for row in models["openai/gpt-5"]} >= {"caching", "image_formula"}
    for row in [*claude.values(), *models["openai/gpt-5"]]:
        assert row["address"].startswith(("https://", "recorded", "genai-prices"))
        assert re.match(r"2026-\d\d-\d\d|the release", row["since"])


def test_the_facts_of_models_as_a_table():
    printed = said("doctor", "--models", "anthropic/claude-haiku-4-5", "--models", "ollama/qwen3")
    assert "keeps_thoughts" not in printed
    assert "images 100" in " ".join(printed.split())
    assert "nothing is known" in printed
    assert fails("doctor", "--models", "nonsense").startswith("muntin: the provider of model")
