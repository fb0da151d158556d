"""`muntin count`: how many tokens files are, as texts or as chats."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from muntin.cli.count_tools import count_toolboxes, show_toolboxes
from muntin.cli.options import AsJson
from muntin.cli.terminal import (
    complain,
    console,
    failing,
    many,
    plain_table,
    print_json,
    progress,
    safe,
)
from muntin.cli.transcripts import Chat, NotAChat, read_bytes, read_chats
from muntin.core.counting.counter import Counter
from muntin.core.counting.exact import hf_tokenizer
from muntin.core.forms import messages_from
from muntin.core.profile import Profile
from muntin.errors import InvalidInput, MissingExtra, UnknownModel
from muntin.providers.names import context_window


@dataclass(frozen=True, slots=True)
class Count:
    """The tokens of one file; a chat has messages, a text has none."""

    file: str
    kind: str
    tokens: int
    messages: int | None = None


@failing()
def count(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", hidden=True)] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Count as for openai/gpt-4o, anthropic/…, google/…"),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="estimate, o200k_base, chars/4, or a tokenizer.json; else --model's.",
        ),
    ] = None,
    attachment_tokens: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=TOKENS", help="What an attachment costs, such as image=1000."),
    ] = None,
    tools: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Count tools by toolbox: schemas, or what MCP lists."),
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Count chats as texts too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count the tokens of files.

    A chat is OpenAI-style messages as JSON or JSON Lines, also with tools, or an export of
    `muntin sessions`; anything else is a text. - reads the standard input. --tools shows what each
    toolbox of a file costs in full, without the texts of its parameters (lean), and with first
    sentences only (brief), and what an index of the tools costs.
    """
    counter = Counter.of(
        None if model is None else Profile.for_model(model),
        tokenizer=hf_tokenizer(tokenizer)
        if tokenizer is not None and tokenizer.endswith(".json")
        else tokenizer,
        attachment_tokens=_attachment_tokens(attachment_tokens or ()),
    )
    try:
        window = None if model is None else context_window(model)
    except (UnknownModel, MissingExtra):
        window = None
    if tools is not None and files:
        raise InvalidInput("--tools counts the tools of one file; leave the other files out")
    if tools is not None:
        counted_tools = count_toolboxes(tools, counter)
        print_json(counted_tools) if as_json else show_toolboxes(counted_tools)
        return
    if not files:
        raise InvalidInput("name the files to count, or a file of tools with --tools")
    counts: list[Count] = []
    failed = False
    with progress("counting", total=len(files) if len(files) > 1 else None) as advance:
        for number, file in enumerate(files):
            advance(number, str(file))
            try:
                counts.append(_count(file, counter, as_text=text))
            except InvalidInput as error:  # the other files are still counted
                complain(error)
                failed = True
    total = sum(counted.tokens for counted in counts)
    if as_json:
        print_json(
            {
                "files": list(map(asdict, counts)),
                "total": total,
                "tokenizer": counter.name,
                "model": model,
                "window": window,
            }
        )
    elif counts:
        table = plain_table()
        table.add_column("tokens", justify="right", no_wrap=True)
        table.add_column("file", overflow="fold")
        table.add_column("as", no_wrap=True)
        for counted in counts:
            kind = counted.kind
            if counted.messages is not None:
                kind = many(counted.messages, "message")
            table.add_row(f"{counted.tokens:,}", safe(counted.file), kind)
        if len(counts) > 1:
            table.add_row(f"{total:,}", "total")
        console().print(table)
        share = f"; {total / window:.1%} of the window of {model} ({window:,})" if window else ""
        console().print(safe(f"counted by {counter.name}{share}"))
    if failed:
        raise typer.Exit(2)


def _attachment_tokens(pairs: Iterable[str]) -> dict[str, int] | None:
    """Read `image=1000`."""
    tokens_of: dict[str, int] = {}
    for pair in pairs:
        kind, equals, tokens = pair.partition("=")
        if not equals or not tokens.isdecimal() or len(tokens) > 9:
            raise InvalidInput(
                f"--attachment-tokens {pair!r}: write a kind and a number, image=1000"
            )
        tokens_of[kind] = int(tokens)
    return tokens_of or None


def _count(path: Path, counter: Counter, *, as_text: bool) -> Count:
    name = str(path)
    data = read_bytes(path)
    chats = None if as_text else _chats(data, name)
    if chats is None:
        try:
            return Count(name, "text", counter.text_once(data.decode()))
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{name}: not UTF-8 text (byte {error.start:,})") from error
    try:
        messages = messages_from([message for chat in chats for message in chat.messages], first=1)
        tools = [tool for chat in chats for tool in _tools(chat)]
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
    tokens = sum(counter.message(message) for message in messages) + counter.beside(tools)
    return Count(name, "chat", tokens, len(messages))


def _chats(data: bytes, name: str) -> list[Chat] | None:
    """Return the chats of a file, None for a file of something else."""
    if not data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        return None
    try:
        chats = read_chats(data, name)
    except NotAChat:
        return None
    return chats if any(chat.messages for chat in chats) else None


def _tools(chat: Chat) -> list[Mapping[str, Any]]:
    tools = chat.tools or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise InvalidInput("'tools' must be a list of schemas")
    return tools
