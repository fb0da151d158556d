"""Installed alone, in an environment in which there is nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import muntin
from tests.docs.blocks import blocks
from tests.packaging.conftest import ROOT, Environment


def said(environment: Environment, code: str, tmp_path: Path) -> list[str]:
    """Return the lines that a program prints there."""
    ended = environment.run("python", "-c", code, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_it_comes_from_the_environment_and_is_this_version(bare, tmp_path):
    code = "import muntin; print(muntin.__version__, muntin.__file__)"
    (line,) = said(bare, code, tmp_path)
    version, file = line.split(" ", 1)
    assert version == muntin.__version__
    assert file.startswith(str(bare.folder))


def first_snippet() -> tuple[str, list[str]]:
    """Return the first program of the README, and the lines that it prints."""
    fenced = blocks(ROOT / "README.md")
    (language, shell), (_, program), (_, printed), *_ = fenced
    assert language == "console"
    assert shell.split("#")[0].strip() == "pip install muntin"
    assert [language for language, _ in fenced[1:3]] == ["python", "text"]
    return program, printed.splitlines()


def test_the_first_program_of_the_readme_needs_nothing_else(bare, tmp_path):
    program, printed = first_snippet()
    assert said(bare, program, tmp_path) == printed


def test_every_public_name_is_there(bare, tmp_path):
    code = "import muntin\nfor name in muntin.__all__: getattr(muntin, name); print(name)"
    assert said(bare, code, tmp_path) == muntin.__all__


def test_a_window_is_composed_and_encoded(bare, tmp_path):
    code = """
from muntin import Slots, user
slots = Slots(100)
slots.add("system", "Be brief.")
slots.add("history", [user("Hello.")])
print(slots.render().openai()["messages"])
"""
    (line,) = said(bare, code, tmp_path)
    assert "Be brief." in line
    assert "Hello." in line


def test_sessions_live_in_memory(bare, tmp_path):
    code = """
from muntin import Session, user
from muntin.timeline.store import open_store
session = Session("a", store=open_store("memory:"))
session.append(user("Hello."))
print(len(session.items.all()))
"""
    assert said(bare, code, tmp_path) == ["1"]


def test_a_conversation_is_kept_in_a_file_and_nothing_of_others_is_there(bare, tmp_path):
    code = """
import asyncio, sys
from importlib.metadata import distributions
from muntin import App, Session
from muntin.testing import ScriptedModel
from muntin.timeline.store import open_store

async def main():
    async with App(model=ScriptedModel(["Hello, Ada."])) as app:
        print((await app.conversation("ada").send("Hi.")).text)

asyncio.run(main())
print(*(message.text for message in Session("ada").messages()))
with open_store("sqlite:///muntin.db", create=False) as store:
    print(len(store.reports("ada")))
print(*(found.name for found in distributions()))
"""
    assert said(bare, code, tmp_path) == ["Hello, Ada.", "Hi. Hello, Ada.", "1", "muntin"]
    assert (tmp_path / "muntin.db").exists()


@pytest.mark.parametrize("command", [("muntin",), ("python", "-m", "muntin")])
def test_the_command_says_what_it_needs(command, bare, tmp_path):
    ended = bare.run(*command, "--version", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == "muntin: the command line needs: pip install 'muntin[cli]'\n"


def test_an_agent_reads_on_by_tools_that_need_nothing_else(bare, tmp_path):
    code = """
import asyncio
from muntin import App, Source, ToolCall
from muntin.testing import ScriptedModel

answers = iter([ToolCall("c1", "load_timeline_range", '{"start": 1, "end": 1}'), "Seen."])
model = ScriptedModel(lambda window: next(answers), budget=4_000)

async def main():
    async with App("memory:") as app:
        @app.entity("agent")
        async def agent(ctx, wake):
            past = Source(ctx.timeline_messages, max=2_000)
            ctx.use_context(source_budget=2_000, sources={"past": past})
            return ctx.use_agent(model=model)
        await app.ask("agent/1", "Hello.")

asyncio.run(main())
print(model.windows[-1].messages[-1].text)
"""
    (line,) = said(bare, code, tmp_path)
    assert line == '{"at":1,"content":"Hello.","role":"user"}'
