"""`muntin count`: what files cost, and as what they are counted."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from muntin.cli.demo import recording
from muntin.core.counting.counter import Counter, as_tokenizer
from tests.cli.command import HOSTILE, fails, harmless, on_terminal, run, said, shown
from tests.paths import ROOT

AIRLINE = ROOT / "src" / "muntin" / "cli" / "data" / "airline.json"
SUPPORT = ROOT / "examples" / "data" / "support.jsonl"


pytestmark = pytest.mark.usefixtures("here")


def test_texts_and_chats_with_a_total(here):
    (here / "a.md").write_text("Hello, wörld 語\n", encoding="utf-8")
    lines = said("count", "a.md", AIRLINE, "--model", "openai/gpt-4o").splitlines()
    tokens = as_tokenizer("openai/gpt-4o").count("Hello, wörld 語\n")
    recorded = recording()
    counter = Counter("openai/gpt-4o")
    chat = sum(counter.message(each) for each in recorded.messages)
    chat += counter.text(recorded.policy) + counter.overhead + counter.answer
    assert lines[0].split() == ["tokens", "file", "as"]
    assert lines[1].split() == [f"{tokens}", "a.md", "text"]
    assert lines[2].split()[0] == f"{chat:,}"
    assert lines[-3].endswith("62 messages")
    assert lines[-2].split() == [f"{chat + tokens:,}", "total"]
    assert lines[-1] == (
        f"counted by o200k_base; {(chat + tokens) / 128_000:.1%} of the window of openai/gpt-4o "
        "(128,000)"
    )


def test_json_and_the_standard_input():
    assert shown("count", "-", "--tokenizer", "chars/4", input="12345678") == {
        "files": [{"file": "-", "kind": "text", "tokens": 2, "messages": None}],
        "total": 2,
        "tokenizer": "chars/4",
        "model": None,
        "window": None,
    }


MESSAGE = {"role": "user", "content": "12345678"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("text", "kind", "messages"),
    [
        (json.dumps([MESSAGE, MESSAGE]), "chat", 2),
        (json.dumps([MESSAGE, MESSAGE], indent=2), "chat", 2),
        (json.dumps({"messages": [MESSAGE]}), "chat", 1),
        (json.dumps(MESSAGE), "chat", 1),
        (f"{json.dumps(MESSAGE)}\n{json.dumps(MESSAGE)}\n", "chat", 2),
        (f"{json.dumps([MESSAGE])}\n{json.dumps({'messages': [MESSAGE]})}\n", "chat", 2),
        (SUPPORT.read_text(encoding="utf-8"), "chat", 9),
        ("\ufeff" + json.dumps([MESSAGE]), "chat", 1),
        ("[]", "text", None),
        ('{"messages": []}', "text", None),
        ('{"a": 1}', "text", None),
        ("[1, 2]", "text", None),
        ("[not JSON", "text", None),
        ("", "text", None),
        ("Hello", "text", None),
    ],
)
def test_a_chat_is_known_by_its_contents(text, kind, messages):
    data = shown("count", "-", "--tokenizer", "chars/4", input=text)
    (file,) = data["files"]
    assert (file["kind"], file["messages"]) == (kind, messages)
    if kind == "text":
        assert file["tokens"] == -(-len(text) // 4)


def test_tools_count_and_a_chat_can_be_counted_as_text(here):
    (here / "plain.json").write_text(json.dumps({"messages": [MESSAGE]}))
    (here / "tools.json").write_text(json.dumps({"messages": [MESSAGE], "tools": [TOOL]}))
    plain, tools = shown("count", "plain.json", "tools.json", "--tokenizer", "chars/4")["files"]
    assert plain["tokens"] == 2
    assert tools["tokens"] == 2 + Counter("chars/4").tools([TOOL])
    (text,) = shown("count", "plain.json", "--text", "--tokenizer", "chars/4")["files"]
    assert text["kind"] == "text"
    assert text["tokens"] == -(-(here / "plain.json").stat().st_size // 4)


def test_a_tokenizer_file_counts(here):
    words = models.WordLevel({"one": 0, "two": 1, "?": 2}, unk_token="?")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(here / "mine.json"))
    data = shown("count", "-", "--tokenizer", "mine.json", input="one two three")
    assert (data["total"], data["tokenizer"]) == (3, "mine")


def test_one_bad_file_does_not_keep_the_others_from_being_counted(here):
    (here / "good.txt").write_text("good")
    (here / "bytes.bin").write_bytes(b"ok\xff\xfe")
    (here / "bad.json").write_text(json.dumps([MESSAGE, {"role": "user", "content": 5}]))
    ended = run("count", "none.txt", "bytes.bin", ".", "bad.json", "good.txt")
    assert ended.returncode == 2
    assert [line.partition(": ")[2] for line in ended.stderr.splitlines()[:3]] == [
        "none.txt: cannot be read: No such file or directory",
        "bytes.bin: not UTF-8 text (byte 2)",
        ".: cannot be read: Is a directory",
    ]
    assert "bad.json: message 2: " in ended.stderr
    assert "good.txt" in ended.stdout


def test_wrong_usage_is_exit_code_2(here):
    (here / "a").write_text("a")
    assert "the provider of model 'x' is not known" in fails("count", "a", "--model", "x")
    assert "unknown tokenizer 'x'" in fails("count", "a", "--tokenizer", "x")
    assert "no tokenizer file at 'x.json'" in fails("count", "a", "--tokenizer", "x.json")
    assert run("count").returncode == 2


def test_a_hostile_name_or_message_is_shown_and_not_obeyed(here):
    name = HOSTILE.replace("/", "")
    (here / name).write_text("a")
    (here / "bad.json").write_text(json.dumps([{"role": HOSTILE, "content": "x"}]))
    ended = run("count", name, "bad.json", "none" + name)
    assert harmless(ended.stdout + ended.stderr)
    assert "\\u001b" in ended.stdout


def test_a_long_count_is_seen_to_go_on(here):
    (here / "long.txt").write_text("word " * 4_000_000)
    with on_terminal("count", "long.txt", "--tokenizer", "o200k_base") as terminal:
        assert "counting" in terminal.wait_for("counted by", 120)
        assert terminal.end() == 0
