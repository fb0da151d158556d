"""`muntin chat`: the real SDK against a server on this machine, in pipes and on a terminal."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time

import pytest

from muntin import Session, ToolCall, assistant, tool, user
from muntin.timeline.store import open_store
from tests.cli.command import HOSTILE, MUNTIN, environment, fails, harmless, on_terminal, run
from tests.providers.servers import CHAT, Answer, _chunk, _sse, serving

HELLO = Answer(pieces=CHAT.pieces)


pytestmark = pytest.mark.usefixtures("here")


def to(server, *more: str) -> list[str]:
    return ["chat", "--model", "openai/gpt-4o", "--base-url", f"{server.url}/v1", *more]


def says(text: str) -> Answer:
    """Answer with a text, in one piece."""
    chunks = [_chunk({"role": "assistant", "content": text}), _chunk({}, "stop")]
    return Answer(pieces=(*_sse(chunks), "data: [DONE]\n\n"))


def roles(request) -> list[str]:
    return [message["role"] for message in request.body["messages"]]


# In pipes.


def test_answers_are_the_output_and_the_bars_are_not():
    with serving(HELLO) as server:
        ended = run(*to(server, "--system", "Be brief."), input="Hi\n\n  \nAgain\n")
    assert (ended.returncode, ended.stdout) == (0, "Hello, world\nHello, world\n")
    assert "system 7   input 5   (answer) 3   · free 127,985" in ended.stderr
    assert re.search(r"^shia·+$", ended.stderr, re.MULTILINE)
    assert ended.stderr.count("billed: 11 in, 3 out") == 2
    assert [roles(request) for request in server.received] == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]


def test_a_session_goes_on_where_it_stopped(here):
    with serving(HELLO) as server:
        run(*to(server, "--session", "s", "--store", "sqlite:///a.db"), input="one")
        run(*to(server, "--session", "s", "--store", "sqlite:///a.db"), input="two")
    assert [m["content"] for m in server.received[1].body["messages"]] == [
        *("one", "Hello, world"),
        "two",
    ]
    with open_store("sqlite:///a.db", create=False) as store:
        assert [turn.status for turn in store.turns("s")] == ["completed", "completed"]
        assert len(store.reports("s")) == 2


def test_levels_of_a_long_run_and_a_summary_are_said(here):
    line = "line of a file, rather long, as files are.\n"
    with open_store("sqlite:///a.db") as store:
        session = Session("s", store=store)
        for part in range(12):
            with session.turn() as turn:
                turn.append(user(f"Part {part}"))
                for step in range(3):
                    call = ToolCall(f"c{part}.{step}", "read", "{}")
                    text = f"File {part}.{step}.\n" + line * 60
                    turn.append(assistant(tool_calls=[call]), tool(call.id, text))
                turn.append(assistant(f"Done with {part}."))
    options = ("--session", "s", "--store", "sqlite:///a.db", "--budget", "6000")
    answered = says("A fine answer, in a few words. " * 30)

    def answer(request):
        return answered if request.body.get("stream") else Answer(body=CHAT.body)

    with serving(answer) as server:
        ended = run(*to(server, *options, "--summary", "openai/gpt-4o-mini"), input="Hi\n" * 26)
    data = json.loads(run("sessions", "show", "s", "--store", "sqlite:///a.db", "--json").stdout)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^groups of calls and results: .*\d+ stubbed", ended.stderr, re.MULTILINE)
    assert re.search(r"^a summary of \d+ tokens stands in front", ended.stderr, re.MULTILINE)
    assert data["usage"]["summaries"]["input"] > 0
    assert {request.body["model"] for request in server.received} == {"gpt-4o", "gpt-4o-mini"}


def test_nothing_is_written_when_it_is_kept_in_memory(here):
    with serving(HELLO) as server:
        assert run(*to(server, "--store", "memory:"), input="one").returncode == 0
    assert list(here.iterdir()) == []


def test_json_is_one_object_a_turn():
    with serving(HELLO) as server:
        ended = run(*to(server, "--json"), input="one\ntwo\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    first, second = [json.loads(line) for line in ended.stdout.splitlines()]
    assert first["text"] == second["text"] == "Hello, world"
    assert first["usage"] == {"input": 11, "output": 3, "cache_read": 0, "cache_write": 0}
    assert second["report"]["tokens"] > first["report"]["tokens"]


def test_a_failed_turn_is_one_line_and_ends_a_pipe_with_1():
    with serving(Answer(status=401, body=CHAT.errors[401])) as server:
        ended = run(*to(server), input="one\ntwo\n")
        told = run(*to(server, "--json"), input="one\n")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "muntin: openai/gpt-4o (401): Incorrect API key.\n"
    assert json.loads(told.stdout)["error"] == "AuthenticationFailed"
    assert len(server.received) == 2


def test_a_stream_that_breaks_off_keeps_what_was_said_on_a_line_of_its_own():
    with serving(Answer(pieces=CHAT.pieces[:1], cut="clean")) as server:
        ended = run(*to(server), input="one\n")
    assert (ended.returncode, ended.stdout) == (1, "Hello\n")
    assert "broke off" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_a_key_it_says_which_one_to_set():
    ended = run("chat", "--model", "openai/gpt-4o", input="one\n")
    assert ended.returncode == 1
    assert "set OPENAI_API_KEY" in ended.stderr


def test_wrong_usage_is_exit_code_2(here):
    (here / "bytes").write_bytes(b"\xff")
    assert "no provider 'foo'" in fails("chat", "--model", "foo/bar")
    assert "unknown store 'mongo'" in fails("chat", "--model", "openai/x", "--store", "mongo://x")
    assert "none: cannot be read" in fails("chat", "--model", "openai/x", "--system", "@none")
    assert "bytes: not UTF-8" in fails("chat", "--model", "openai/x", "--system", "@bytes")
    assert run("chat").returncode == 2


def test_what_does_not_fit_is_said_and_not_sent():
    with serving(HELLO) as server:
        ended = run(*to(server, "--system", "word " * 50, "--budget", "20"), input="one\n")
    assert ended.returncode == 1
    assert "the window needs" in ended.stderr
    assert server.received == []


def test_instructions_may_stand_in_a_file(here):
    (here / "rules.md").write_text("Answer in rhymes.\n")
    with serving(HELLO) as server:
        run(*to(server, "--system", "@rules.md"), input="one\n")
    assert server.received[0].body["messages"][0]["content"] == "Answer in rhymes.\n"


def test_lines_that_go_on_and_messages_with_a_slash():
    with serving(HELLO) as server:
        ended = run(*to(server), input="one \\\ntwo\n//path\n/nonsense\n/quit\nnever\n")
    assert [r.body["messages"][-1]["content"] for r in server.received] == ["one \ntwo", "/path"]
    assert "there is no /nonsense" in ended.stderr
    assert ended.returncode == 0


def test_bytes_that_are_no_text_are_replaced():
    with serving(HELLO) as server:
        assert run(*to(server), input=b"a\xff\n").returncode == 0
    assert server.received[0].body["messages"][-1]["content"] == "a\ufffd"


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_control_characters_of_an_answer_are_shown_and_not_obeyed(option):
    with serving(says(HOSTILE)) as server:
        ended = run(*to(server, *option), input="one\n")
    assert harmless(ended.stdout + ended.stderr)
    assert "\\u001b]0;owned\\u0007" in ended.stdout
    assert "[red]x[/red] :smile:" in ended.stdout


def test_ctrl_c_in_a_pipe_is_130(here):
    with serving(Answer(pieces=CHAT.pieces[:1], hang=True)) as server:
        process = subprocess.Popen(
            [MUNTIN, *to(server, "--session", "s")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.read(5) == b"Hello"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 130
        assert b"Traceback" not in errors
        assert server.client_left.wait(60)
    with open_store(create=False) as store:
        assert [turn.status for turn in store.turns("s")] == ["failed"]


# On a terminal.


def test_a_conversation_on_a_terminal(here):
    with serving(HELLO) as server, on_terminal(*to(server, "--session", "s")) as terminal:
        assert "openai/gpt-4o · session s in sqlite:///muntin.db" in terminal.wait_for("\n> ")
        terminal.type("/report\n")
        assert "no window yet" in terminal.wait_for("\n> ")
        terminal.type("Hi\n")
        answer = terminal.wait_for("\n> ")
        assert "Hello, world\n" in answer  # a slow answer follows a spinner
        assert "\x1b[38;5;" in answer
        assert "input 5" in answer
        terminal.type("/report\n")
        assert "8 of 128,000 tokens (0%), counted by o200k_base" in terminal.wait_for("\n> ")
        terminal.type("/help\n")
        assert "/quit    leave" in terminal.wait_for("\n> ")
        terminal.type("\x04")
        assert terminal.end() == 0
        assert "muntin inspect --store sqlite:///muntin.db" in terminal.seen
    with on_terminal(*to(server, "--session", "s")) as terminal:
        assert "goes on after 1 turn\n" in terminal.wait_for("\n> ")
        terminal.type("/quit\n")
        assert terminal.end() == 0


def test_the_command_that_goes_on_can_be_run_as_it_is_printed(here):
    options = ("--system", "Be very brief.", "--budget", "900")
    with serving(HELLO) as server:
        with on_terminal(*to(server, *options)) as terminal:
            terminal.wait_for("\n> ")
            terminal.type("Hi\n")
            terminal.wait_for("\n> ")
            terminal.type("/quit\n")
            last = terminal.wait_for("look:")
            assert terminal.end() == 0
        (line,) = re.findall(r"go on:  \S*muntin (.*?)\r?\n", last)
        ended = run(*shlex.split(line), input="Again\n")
    assert (ended.returncode, ended.stdout) == (0, "Hello, world\n")
    assert roles(server.received[-1]) == ["system", "user", "assistant", "user"]


def test_ctrl_c_stops_the_answer_and_not_the_conversation():
    answers = iter([Answer(pieces=CHAT.pieces[:1], hang=True), HELLO])
    with (
        serving(lambda _: next(answers)) as server,
        on_terminal(*to(server, "--session", "s")) as terminal,
    ):
        terminal.wait_for("\n> ")
        terminal.type("Hi\n")
        terminal.wait_for("Hello")
        terminal.type("\x03")
        terminal.wait_for("(stopped; your message is kept, the turn counts as failed)\n> ")
        assert server.client_left.wait(60)
        time.sleep(0.5)  # Python loses a Ctrl-C between showing the prompt and reading
        terminal.type("\x03")
        terminal.wait_for("(Ctrl-D or /quit leaves)\n> ")
        terminal.type("Again\n")
        terminal.wait_for("Hello, world\n")
        terminal.wait_for("\n> ")
        terminal.type("/quit\n")
        assert terminal.end() == 0
        assert "Traceback" not in terminal.seen
    with open_store(create=False) as store:
        assert [turn.status for turn in store.turns("s")] == ["completed", "failed"]


def test_a_failed_turn_does_not_end_a_conversation_on_a_terminal():
    answers = iter([Answer(status=404, body=CHAT.errors[404]), HELLO])
    with serving(lambda _: next(answers)) as server, on_terminal(*to(server)) as terminal:
        terminal.wait_for("\n> ")
        terminal.type("Hi\n")
        assert "muntin: openai/gpt-4o (404): No such model.\n" in terminal.wait_for("\n> ")
        terminal.type("Hi\n")
        terminal.wait_for("Hello, world\n")
        terminal.wait_for("\n> ")  # the key would be lost while nobody reads
        terminal.type("\x04")
        assert terminal.end() == 0


def test_a_slow_answer_is_seen_to_be_awaited():
    def slowly(_):
        time.sleep(1.5)
        return HELLO

    with serving(slowly) as server, on_terminal(*to(server, "--store", "memory:")) as terminal:
        terminal.wait_for("\n> ")
        terminal.type("Hi\n")
        assert "waiting" in terminal.wait_for("Hello, world\n")


def test_no_color_is_respected():
    with (
        serving(HELLO) as server,
        on_terminal(*to(server, "--store", "memory:"), env={"NO_COLOR": "1"}) as terminal,
    ):
        terminal.wait_for("\n> ")
        terminal.type("Hi\n")
        assert "\x1b[38" not in terminal.wait_for("\n> ")
