"""`muntin chat`: talk to a model, and see the window after every turn.

Answers go to the output, everything else (prompt, bars, remarks) to the error output: only the
model's answers are piped on.
"""

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any

import typer

from muntin.cli.options import check_url, store_option
from muntin.cli.terminal import (
    coloured,
    complain,
    failing,
    many,
    note,
    print_json,
    progress,
    safe_text,
    this_command,
    width,
)
from muntin.cli.words import in_flags
from muntin.core.counting.counter import as_tokenizer
from muntin.core.report import level_words, prefix_words
from muntin.core.window import Window
from muntin.errors import InvalidInput, MuntinError
from muntin.providers.model import Finished, Reply, TextDelta
from muntin.providers.names import as_model
from muntin.runtime.app import App
from muntin.runtime.conversation import Conversation
from muntin.runtime.summaries import Summary
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
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS", min=1, help="Tokens of the window; else the model's, or 128,000."
        ),
    ] = None,
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
    strategy = _Instructed(_instructions(system))
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
        if sys.stdin.isatty() and not as_json:
            _greet(talk.chat, model, app.store.name)
        failed = talk.run()
        if sys.stdin.isatty() and not as_json:
            given = {"model": model, "system": system, "budget": budget, "summary": summary}
            _leave(talk, app.store.name, {**given, "base-url": _without_password(base_url)})
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Instructed:
    """The strategy: instructions that stay, then as much of the past as fits."""

    instructions: str | None

    def on_context_build(self, ctx: Any) -> None:
        if self.instructions:
            ctx.slots.add("system", self.instructions, required=True)
        ctx.slots.add("history", ctx.timeline_messages())
        ctx.slots.add("input", ctx.message)


def _instructions(given: str | None) -> str | None:
    if given is None or not given.startswith("@"):
        return given
    path = Path(given.removeprefix("@"))
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidInput(f"{path}: not UTF-8 text") from error


@dataclass(slots=True)
class _Talk:
    """A conversation with the person at the terminal, or with the lines of a file."""

    runner: asyncio.Runner
    chat: Conversation
    as_json: bool
    window: Window | None = field(default=None)
    turns: int = field(default=0)

    def run(self) -> bool:
        """Talk until the input ends; say whether it ended because a turn failed."""
        by_hand = sys.stdin.isatty()
        for text in _messages(PROMPT if by_hand and not self.as_json else ""):
            command = _COMMANDS.get(text)
            if command is not None:
                if not command(self):
                    return False
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
                told = {"error": type(error).__name__, "message": in_flags(str(error))}
                print_json(told, lines=True)
            complain(error)
            return False
        self.window = reply.window
        if self.as_json:
            print_json(_to_dict(reply), lines=True)
        else:
            _show(reply)
        return True

    async def _answer(self, text: str) -> Reply:
        reply = None
        begun = False
        waiting = ExitStack()
        waiting.enter_context(progress("waiting"))
        try:
            async for event in self.chat.stream(text):
                if isinstance(event, Finished):
                    reply = event.reply
                elif isinstance(event, TextDelta) and not self.as_json:
                    waiting.close()
                    print(safe_text(event.text), end="", flush=True)
                    begun = True
        finally:
            waiting.close()
            if begun:
                print(flush=True)
        assert reply is not None  # a turn ends with Finished or an error
        return reply

    def report(self) -> bool:
        """Show where the tokens went."""
        said = "no window yet: say something first" if self.window is None else self.window.report
        print(said, file=sys.stderr)
        return True


def _help(_: _Talk) -> bool:
    print(HELP, file=sys.stderr)
    return True


# What each command does; False ends the conversation.
_COMMANDS: dict[str, Callable[[_Talk], bool]] = {
    "/help": _help,
    "/report": _Talk.report,
    "/quit": lambda _: False,
    "/exit": lambda _: False,
}


# Reading.


def _messages(prompt: str) -> Iterator[str]:
    """Yield the messages that are typed, or the lines of the input, without blank ones."""
    read = _reader(prompt)
    begun: list[str] = []
    while True:
        try:
            line = read("… " if begun and prompt else prompt)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            print(file=sys.stderr)
            note("(Ctrl-D or /quit leaves)")
            begun = []
            continue
        except EOFError:
            line = None
        if line is not None and line.endswith("\\"):
            begun.append(line.removesuffix("\\"))
            continue
        text = "\n".join([*begun, line or ""]).strip()
        begun = []
        if text:
            yield text
        if line is None:
            return


def _reader(prompt: str) -> Callable[[str], str]:
    """Return the function that reads a line, with editing on a terminal; `EOFError` is the end."""
    if prompt and sys.stdout.isatty():
        with suppress(ImportError):  # not on every system; once imported, `input` can edit lines
            import readline  # noqa: F401
        return input
    return partial(_read_line, sys.stdin)


def _read_line(stream: Any, prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line: str = stream.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


# Showing.


def _greet(chat: Conversation, model: str, store: str) -> None:
    info = chat.session.store.session(chat.session.id)
    before = f", goes on after {many(info.turns, 'turn')}" if info else ""
    note(f"{model} · session {chat.session.id} in {store}{before}")
    note("/help lists what else can be typed; Ctrl-C stops an answer, Ctrl-D leaves")


def _leave(talk: _Talk, store: str, given: Mapping[str, str | int | None]) -> None:
    """Print the commands that go on with the conversation and show it, ready to be run."""
    if not talk.turns or store.startswith("memory"):
        return
    print(file=sys.stderr)
    options = {**given, "session": talk.chat.session.id, "store": store}
    said = [word for name, value in options.items() if value for word in (f"--{name}", str(value))]
    note(f"go on:  {this_command()} chat {shlex.join(said)}")
    note(f"look:   {this_command()} inspect --store {shlex.quote(store)}")


def _without_password(url: str | None) -> str | None:
    return None if url is None or "@" in url or "?" in url else url


def _show(reply: Reply) -> None:
    if reply.finish_reason not in ("stop", "tool_calls"):
        note(f"(the answer ended early: {reply.finish_reason})")
    if reply.window is None:
        return
    shown = bar(reply.window, width=width(), colour=coloured(sys.stderr))
    used = reply.usage
    prefix = reply.window.report.prefix
    told = [shown, f"billed: {used}"]
    told += level_words(reply.window.report)
    told += prefix_words(prefix) if prefix is not None else ()
    print("", *told, "", sep="\n", file=sys.stderr, flush=True)


def _to_dict(reply: Reply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "finish_reason": reply.finish_reason,
        "usage": asdict(reply.usage),
        "report": reply.window.report.to_dict() if reply.window else None,
    }
