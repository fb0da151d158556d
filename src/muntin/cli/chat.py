"""`muntin chat`: talk to a model, and see the window after every turn.

Answers go to the output, everything else (prompt, bars, remarks) to the error output: only the
model's answers are piped on.
"""

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any

import typer

from muntin.cli.error_text import in_flags
from muntin.cli.options import WindowBudget, check_url, store_option
from muntin.cli.terminal import (
    complain,
    failing,
    has_colours,
    many,
    naming,
    note,
    print_json,
    progress,
    safe_text,
    this_command,
    width,
)
from muntin.core.counting.counter import as_tokenizer
from muntin.core.report import level_words, prefix_words
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.providers.model import Finished, Reply, TextDelta
from muntin.providers.names import as_model
from muntin.runtime.app import App
from muntin.runtime.conversation import Conversation
from muntin.runtime.run_rules import Summary
from muntin.timeline.store import DEFAULT_URL
from muntin.view.bar import bar

PROMPT = "> "
HELP = """\
/help    this
/report  where every token of the last window went
/quit    leave, as Ctrl-D does
Ctrl-C stops an answer. A line that ends with \\ goes on in the next; // begins a message with /."""


@failing()
def chat(
    model: Annotated[
        str, typer.Option(metavar="NAME", help="openai/gpt-4o, anthropic/…, google/…")
    ],
    store: Annotated[
        str, store_option("Where it is kept: a file or an address; memory: keeps nothing.")
    ] = DEFAULT_URL,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="The id of the session; an old one goes on.")
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Instructions; @FILE takes them from a file.")
    ] = None,
    budget: WindowBudget = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            callback=check_url,
            help="A compatible server, such as http://localhost:11434/v1.",
        ),
    ] = None,
    summary: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A model that summarises what leaves the window."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object a turn.")] = False,
) -> None:
    """Talk to a model, with the window as a bar after each turn.

    Without a terminal every line of the input is a message, and the first turn that fails
    ends it.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    strategy = _Strategy(_instructions(system))
    id = session or f"chat-{datetime.now():%Y%m%d-%H%M%S}-{token_hex(2)}"
    with ExitStack() as stack:
        with progress(f"loading {model}"):
            answering = as_model(model, base_url=base_url)
            app = App(
                store,
                model=answering,
                budget=budget,
                tokenizer=as_tokenizer(model),
                summary=Summary(as_model(summary, base_url=base_url)) if summary else None,
            )
        runner = stack.enter_context(asyncio.Runner())
        stack.callback(lambda: runner.run(app.close()))
        talk = _Talk(runner, app.conversation(id, strategy=strategy), as_json)
        by_hand = sys.stdin.isatty() and not as_json
        if by_hand:
            infos = app.store.sessions(id=id)
            before = f", goes on after {many(infos[0].turns, 'turn')}" if infos else ""
            note(f"{model} · session {id} in {app.store.name}{before}")
            note("/help lists what else can be typed; Ctrl-C stops an answer, Ctrl-D leaves")
        failed = talk.run()
        if by_hand and talk.turns and not app.store.name.startswith("memory"):
            # The commands that go on with the conversation and show it, ready to be run.
            options = {
                "model": model,
                "system": system,
                "budget": budget,
                "summary": summary,
                # It may hold a password.
                "base-url": None
                if base_url is None or "@" in base_url or "?" in base_url
                else base_url,
                "session": id,
                "store": app.store.name,
            }
            words = [
                f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value
            ]
            print(file=sys.stderr)
            note(f"go on:  {this_command()} chat {' '.join(words)}")
            note(f"look:   {this_command()} inspect --store {shlex.quote(app.store.name)}")
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Strategy:
    """Instructions that stay, then as much of the past as fits."""

    instructions: str | None

    def on_context_build(self, ctx: Any) -> None:
        if self.instructions:
            ctx.slots.add("system", self.instructions, required=True)
        ctx.slots.add("history", ctx.timeline_messages())
        ctx.slots.add("input", ctx.message)


def _instructions(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    path = Path(text.removeprefix("@"))
    try:
        with naming(path):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not UTF-8 text") from error


@dataclass(slots=True)
class _Talk:
    """A conversation with the person at the terminal, or with the lines of a file."""

    runner: asyncio.Runner
    chat: Conversation
    as_json: bool
    window: Window | None = None
    turns: int = 0

    def run(self) -> bool:
        """Talk until the input ends; say whether it ended because a turn failed."""
        by_hand = sys.stdin.isatty()
        for text in _messages(PROMPT if by_hand and not self.as_json else ""):
            if text in ("/quit", "/exit"):
                return False
            if text == "/help":
                print(HELP, file=sys.stderr)
            elif text == "/report":
                window = self.window
                empty = "no window yet: say something first"
                print(empty if window is None else window.report, file=sys.stderr)
            elif text.startswith("/") and not text.startswith("//"):
                note(f"there is no {text.split()[0]}; /help lists what there is")
            elif not self._turn(text[1:] if text.startswith("//") else text) and not by_hand:
                return True
        return False

    def _turn(self, text: str) -> bool:
        """Send a message and show the answer; say whether there was one."""
        self.turns += 1
        try:
            reply = self.runner.run(self._answer(text))
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            note("(stopped; your message is kept, the turn counts as failed)")
            return False
        except MuntinError as error:
            if self.as_json:
                message = in_flags(str(error))
                print_json({"error": type(error).__name__, "message": message}, lines=True)
            complain(error)
            return False
        self.window = reply.window
        if self.as_json:
            data = {
                "text": reply.text,
                "finish_reason": reply.finish_reason,
                "usage": reply.usage.to_dict(),
                "report": reply.window.report.to_dict() if reply.window else None,
            }
            print_json(data, lines=True)
        else:
            _show(reply)
        return True

    async def _answer(self, text: str) -> Reply:
        reply = None
        has_text = False
        with ExitStack() as waiting:
            waiting.enter_context(progress("waiting"))
            try:
                async for event in self.chat.stream(text):
                    if isinstance(event, Finished):
                        reply = event.reply
                    elif isinstance(event, TextDelta) and not self.as_json:
                        waiting.close()
                        print(safe_text(event.text), end="", flush=True)
                        has_text = True
            finally:
                waiting.close()
                if has_text:
                    print(flush=True)
        assert reply is not None  # a turn ends with Finished or an error
        return reply


def _messages(prompt: str) -> Iterator[str]:
    """Yield the messages that are typed, or the lines of the input, without blank ones."""
    if prompt and sys.stdout.isatty():
        with suppress(ImportError):  # not on every system; once imported, `input` can edit lines
            import readline  # noqa: F401
        read: Callable[[str], str] = input
    else:
        read = _read_line
    lines: list[str] = []
    while True:
        try:
            line = read("… " if lines and prompt else prompt)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            print(file=sys.stderr)
            note("(Ctrl-D or /quit leaves)")
            lines = []
            continue
        except EOFError:
            line = None
        if line is not None and line.endswith("\\"):
            lines.append(line.removesuffix("\\"))
            continue
        text = "\n".join([*lines, line or ""]).strip()
        lines = []
        if text:
            yield text
        if line is None:
            return


def _read_line(prompt: str) -> str:
    """Read a line as `input` does, with the prompt on the error output."""
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def _show(reply: Reply) -> None:
    if reply.finish_reason not in ("stop", "tool_calls"):
        note(f"(the answer ended early: {reply.finish_reason})")
    if reply.window is None:
        return
    report = reply.window.report
    lines = [bar(reply.window, width=width(), colour=has_colours(sys.stderr))]
    lines += [f"billed: {reply.usage}", *level_words(report)]
    lines += prefix_words(report.prefix) if report.prefix is not None else ()
    print("", *lines, "", sep="\n", file=sys.stderr, flush=True)
