"""The command `muntin simulate`: what it reads, prints and draws, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from muntin import Stepped
from muntin.cli.commands import app
from muntin.cli.simulate import named_policy, read_trace
from muntin.errors import InvalidInput
from tests.paths import TRACES

CHAT = [
    {"role": "system", "content": "Be brief. " * 600},
    *[
        {"role": role, "content": f"{turn} and more. " * 20}
        for turn in range(40)
        for role in ("user", "assistant")
    ],
]


def run(*args: object):
    return CliRunner().invoke(app(), ["simulate", *map(str, args)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(CHAT), encoding="utf-8")
    return file


CLAUDE = ("--budget", "4000", "--model", "anthropic/claude-sonnet-4-5")


def test_it_prints_a_line_for_each_policy(trace):
    result = run(trace, *CLAUDE)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "40 requests, anthropic/claude-sonnet-4-5, budget 4,000"
    assert [line.split()[0] for line in lines[4:]] == ["exact", "stepped", "full"]


def test_stepped_is_cheaper_than_exact_and_near_the_optimum(trace):
    result = run(trace, *CLAUDE, "--json")
    found = {each["policy"]: each for each in json.loads(result.stdout)["policies"]}
    assert found["stepped"]["cost"] < 0.7 * found["exact"]["cost"]
    assert found["stepped"]["cost"] < 1.15 * found["stepped"]["best"]
    assert found["full"]["retention"] == 1.0
    causes = {step["cause"] for step in found["stepped"]["steps"]}
    assert causes == {None, "history trimmed"}


def test_a_low_mark_may_be_given(trace):
    result = run(trace, *CLAUDE, "--policy", "stepped=0.2", "--policy", "stepped=0.8", "--json")
    low, high = json.loads(result.stdout)["policies"]
    assert low["policy"] == "stepped=0.2"
    assert low["retained"] < high["retained"]
    assert low["breaks"] < high["breaks"]


def test_ones_own_function_is_a_policy(trace, tmp_path, monkeypatch):
    (tmp_path / "own_policy.py").write_text(
        "def newest(messages, budget):\n    return [messages[0], *messages[-5:]]\n"
    )
    monkeypatch.chdir(tmp_path)
    result = run(trace, *CLAUDE, "--policy", "own_policy:newest")
    assert result.exit_code == 0, result.stderr
    assert "own_policy:newest" in result.stdout


def test_the_plot_is_written(trace, tmp_path):
    result = run(trace, *CLAUDE, "--plot", tmp_path / "out.html")
    assert result.exit_code == 0, result.stderr
    assert "<svg" in (tmp_path / "out.html").read_text()
    assert result.stdout.endswith(f"\n\nWritten: {tmp_path / 'out.html'}\n")
    result = run(trace, *CLAUDE, "--plot", tmp_path / "out.html", "--json")
    json.loads(result.stdout)
    result = run(trace, *CLAUDE, "--plot", tmp_path / "none" / "out.html")
    assert result.exit_code == 2
    assert f"{tmp_path / 'none' / 'out.html'}: cannot be written: No such file" in result.stderr


def test_an_empty_input_is_named_as_what_it_is(tmp_path):
    (tmp_path / "empty.json").touch()
    result = run(tmp_path / "empty.json", *CLAUDE)
    assert result.stderr == f"muntin: {tmp_path / 'empty.json'}: the file is empty\n"
    assert run("-", *CLAUDE).stderr == "muntin: <stdin>: the file is empty\n"


def test_recorded_conversations_become_one(tmp_path):
    result = run(TRACES, "--budget", 8_000, "--model", "openai/gpt-5", "--policy", "full", "--json")
    (full,) = json.loads(result.stdout)["policies"]
    assert full["requests"] > 300
    assert full["breaks"] == 0
    steps = run(
        TRACES,
        "--budget",
        8_000,
        "--model",
        "openai/gpt-5",
        "--policy",
        "full",
        "--json",
        "--steps",
    )
    assert json.loads(steps.stdout)["policies"][0]["requests"] > full["requests"]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CHAT),
        json.dumps({"messages": CHAT}),
        "\n".join(json.dumps(message) for message in CHAT),
        json.dumps({"id": "x", "messages": CHAT[:21]})
        + "\n\n"
        + json.dumps({"messages": [CHAT[0], *CHAT[21:]]}),
    ],
    ids=["list", "object", "lines of messages", "lines of conversations"],
)
def test_a_trace_is_json_or_json_lines(text, tmp_path):
    file = tmp_path / "trace"
    file.write_text(text, encoding="utf-8")
    assert read_trace(file) == CHAT


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"role": "user"}\nnot json', "trace.jsonl:2: not JSON"),
        ('{"text": "hi"}', "trace.jsonl:1: neither a message"),
        ('[{"role": "system", "content": "x"}]', "at least one user message"),
        ('[{"role": "robot"}]', "message 0 of the trace: unknown role 'robot'"),
    ],
)
def test_a_wrong_trace_is_named_with_its_line(text, says, tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_text(text, encoding="utf-8")
    result = run(file, *CLAUDE)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--policy", "best"), "unknown policy 'best'"),
        (("--policy", "stepped=x"), "--policy stepped=x"),
        (("--policy", "no.such:thing"), "--policy no.such:thing: No module named"),
        (("--policy", "json:no_such"), "has no attribute 'no_such'"),
        (("--plot", "out.png"), "saved as .html"),
        (("--model", "nobody/nothing"), "no caching rules are known for 'nobody/nothing'"),
    ],
)
def test_wrong_options_are_errors_that_say_what_to_do(trace, args, says):
    result = run(trace, *CLAUDE, *args)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_missing_file_is_an_error(tmp_path):
    result = run(tmp_path / "nothing.json", *CLAUDE)
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_names_stand_for_policies():
    assert named_policy("stepped=0.6") == ("stepped=0.6", Stepped(low=0.6))
    assert named_policy("full") == ("full", "full")
    with pytest.raises(InvalidInput, match="below 1"):
        named_policy("stepped=1")
