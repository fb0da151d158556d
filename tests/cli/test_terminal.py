"""What the commands share: safe printing, errors in one line, progress."""

from __future__ import annotations

import io
import sys

import pytest

from muntin.cli.terminal import failing, has_colours, many, progress, safe, safe_text
from muntin.errors import InvalidInput


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_line_ends_and_tabs_of_a_text_are_left():
    assert safe_text("a\n\tb\x1b[1m\r\u202e") == "a\n\tb\\u001b[1m\\u000d\\u202e"
    assert safe("a\n\tb") == "a\\u000a\\u0009b"


@pytest.mark.parametrize(
    ("environment", "colours"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
    ],
)
def test_colours_are_for_terminals_that_want_them(monkeypatch, environment, colours):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert has_colours(FakeTerminal()) is colours
    assert has_colours(io.StringIO()) is False


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InvalidInput("first\nsecond\x1b[2J"), "muntin: first second\\u001b[2J\n"),
        (FileNotFoundError(2, "No such file", "a.txt"), "muntin: a.txt: No such file\n"),
        (OSError("out of luck"), "muntin: out of luck\n"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(capsys, error, line):
    with pytest.raises(SystemExit) as exit, failing():
        raise error
    assert exit.value.code == 2
    assert capsys.readouterr().err == line


def test_a_fault_of_our_own_is_not_hidden():
    with pytest.raises(ZeroDivisionError), failing():
        raise ZeroDivisionError


def test_a_reader_who_stopped_is_no_error_of_ours():
    with pytest.raises(BrokenPipeError), failing():
        raise BrokenPipeError


def test_progress_is_for_terminals_only(monkeypatch, capsys):
    monkeypatch.setattr("muntin.cli.terminal.BAR_SECONDS", 0.0)
    with progress("working", total=2) as advance:
        advance(1, "one")
    assert capsys.readouterr().err == ""


def test_progress_of_something_quick_is_not_shown(monkeypatch):
    terminal = FakeTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("working", total=2) as advance:
        advance(1, "one")
    assert "working" not in terminal.getvalue()


def test_one_is_singular():
    assert (many(1, "turn"), many(2_000, "turn")) == ("1 turn", "2,000 turns")
