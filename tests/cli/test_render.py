"""`muntin render`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muntin.providers.names import context_window
from tests.cli.command import HOSTILE, fails, harmless, run, said
from tests.paths import ROOT

CHAT = """\
---
model: openai/gpt-4o
---
<system>
You help {{ input.name | default: "people" }}.
</system>
<user>{{ input.message }}</user>
"""


@pytest.fixture
def chat(tmp_path: Path) -> str:
    file = tmp_path / "chat.md"
    file.write_text(CHAT, encoding="utf-8")
    return str(file)


def shown(*args: str):
    result = run(*args, "--json")
    assert not result.stderr
    return result.returncode, json.loads(result.stdout)


def texts(data) -> list[str]:
    return [message["content"] for message in data["messages"]]


def test_it_shows_the_bar_the_messages_and_the_report(chat):
    result = run("render", chat, "--input", "message=Hi!", "--budget", "40")
    assert result.returncode == 0
    assert result.stdout == (
        f"{'s' * 16}{'u' * 12}{'a' * 6}{'·' * 46}\n"
        "system 8   user 6   (answer) 3   · free 23\n"
        "\n"
        "--- system\n"
        "You help people.\n"
        "\n"
        "--- user\n"
        "Hi!\n"
        "\n"
        "17 of 40 tokens (42%), counted by o200k_base\n"
        "\n"
        "slot      status  kept  asked  messages  priority  floor  cap  why\n"
        "--------  ------  ----  -----  --------  --------  -----  ---  ---\n"
        "system    kept       8      8       1/1         0      -    -\n"
        "user      kept       6      6       1/1         0      -    -\n"
        "(answer)  kept       3      3         -         -      -    -  -\n"
    )


def test_json_is_one_object(chat):
    code, data = shown("render", chat, "--input", "message=Hi!", "--budget", "40")
    assert code == 0
    assert list(data) == ["messages", "report", "tokens", "over_budget"]
    assert data["messages"] == [
        {"role": "system", "content": "You help people."},
        {"role": "user", "content": "Hi!"},
    ]
    assert (data["tokens"], data["over_budget"]) == (17, False)
    assert data["report"]["tokens"] == 17
    assert data["report"]["budget"] == 40


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("7", "7"),
        ("true", "true"),
        ('["a", "b"]', "ab"),
        ('"quoted"', "quoted"),
        ("a=b", "a=b"),
        ("NaN", "NaN"),
        ("[1, 2", "[1, 2"),
        ("", ""),
        ("{{ ctx.x }}", "{{ ctx.x }}"),
    ],
)
def test_a_value_is_json_if_it_can_be_and_else_text(chat, value, text):
    _, data = shown("render", chat, "--input", f"message={value}", "--input", "name=Bo")
    assert texts(data) == ["You help Bo.", text] if text else ["You help Bo."]


def test_an_input_file_gives_way_to_single_values(chat, tmp_path):
    file = tmp_path / "data.json"
    file.write_text('{"name": "Ann", "message": "from the file"}')
    _, data = shown("render", chat, "--input-file", str(file), "--input", "name=Bo")
    assert texts(data) == ["You help Bo.", "from the file"]


def test_over_budget_is_exit_code_1_and_still_shown(chat):
    code, data = shown("render", chat, "--input", "message=Hi!", "--budget", "5")
    assert code == 1
    assert data["over_budget"] is True
    assert texts(data) == ["You help people.", "Hi!"]
    assert run("render", chat, "--input", "message=Hi!", "--budget", "5").returncode == 1


def test_the_user_is_cut_before_the_window_is_over_budget(chat):
    message = "message=" + "word " * 1_000
    code, data = shown("render", chat, "--input", message, "--budget", "400")
    assert code == 0
    assert 256 < data["tokens"] <= 400
    assert texts(data)[0] == "You help people."


@pytest.mark.parametrize(
    ("options", "counted"),
    [
        ([], "o200k_base"),
        (["--provider", "openai"], "o200k_base"),
        (["--provider", "anthropic"], "estimate"),
        (["--provider", "anthropic/claude-sonnet-4-5"], "estimate"),
        (["--provider", "openai/gpt-4"], "cl100k_base"),
        (["--tokenizer", "chars/4"], "chars/4"),
        (["--provider", "anthropic", "--tokenizer", "cl100k_base"], "cl100k_base"),
    ],
)
def test_the_provider_and_the_tokenizer_choose_the_count(chat, options, counted):
    _, data = shown("render", chat, "--input", "message=Hi!", *options)
    assert data["report"]["tokenizer"] == counted


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        ([], 128_000),
        (["--provider", "openai/gpt-4.1"], context_window("openai/gpt-4.1")),
        (["--provider", "nobody"], 128_000),
        (["--budget", "77"], 77),
    ],
)
def test_the_budget_is_given_or_the_models_or_128000(chat, options, budget):
    _, data = shown("render", chat, "--input", "message=Hi!", *options)
    assert data["report"]["budget"] == budget


def test_the_models_window_gives_room_to_the_output(tmp_path):
    file = tmp_path / "s.md"
    file.write_text("---\nmodel: openai/gpt-4.1\nmax_tokens: 576\n---\n<system>a</system>")
    _, data = shown("render", str(file))
    assert data["report"]["budget"] == context_window("openai/gpt-4.1") - 576


def test_a_prompt_without_user_has_one_message(tmp_path):
    file = tmp_path / "s.md"
    file.write_text("<system>Alone.</system>")
    assert texts(shown("render", str(file))[1]) == ["Alone."]


def test_a_bad_file_is_exit_code_2_naming_file_and_line(chat, tmp_path):
    assert fails("render", chat) == (
        f"muntin: {chat}:7: input.message is undefined; give it: --input message=…\n"
    )
    bad = tmp_path / "bad.md"
    bad.write_text("<system>\n\n{{ x\n</system>")
    assert fails("render", str(bad)) == f"muntin: {bad}:3: expected '}}}}', found end of file\n"
    none = tmp_path / "none.md"
    assert fails("render", str(none)).startswith(f"muntin: {none}: cannot be read: ")


def test_bad_usage_is_exit_code_2(chat, tmp_path):
    data = tmp_path / "data.json"
    data.write_text('{\n"a": }')
    listed = tmp_path / "list.json"
    listed.write_text("[1]")
    assert fails("render", chat, "--input", "message") == (
        "muntin: --input 'message': write it as key=value\n"
    )
    assert fails("render", chat, "--input-file", str(data)).startswith(
        f"muntin: {data}:2: not JSON: "
    )
    assert fails("render", chat, "--input-file", str(listed)) == (
        f"muntin: {listed}:1: the input must be a JSON object\n"
    )
    assert "cannot be read" in fails("render", chat, "--input-file", str(tmp_path / "none.json"))
    assert "unknown tokenizer 'x'" in fails("render", chat, "--tokenizer", "x")
    assert "Invalid value for '--budget'" in fails(
        "render", chat, "--input", "message=a", "--budget=-1"
    )
    for wrong in (["render", chat, "--budget", "many"], ["render"], ["nonsense"]):
        result = run(*wrong)
        assert (result.returncode, result.stdout) == (2, "")
        assert "Traceback" not in result.stderr


def test_the_page_shows_the_file_of_the_example():
    page = (ROOT / "docs" / "prompt-files.md").read_text(encoding="utf-8")
    file = (ROOT / "examples" / "data" / "chat.md").read_text(encoding="utf-8")
    assert f"```liquid\n{file}```" in page


def test_control_characters_of_a_prompt_are_shown_and_not_obeyed(chat):
    for option in ([], ["--json"]):
        printed = said("render", chat, "--input", f"message={HOSTILE}\n\tnext", *option)
        assert harmless(printed)
        assert "\\u001b]0;owned" in printed
    assert harmless(run("render", f"{chat}{HOSTILE}").stderr)
