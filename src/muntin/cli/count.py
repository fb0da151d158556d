"""`muntin count`: how many tokens files are, as texts or as chats."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from muntin.cli.chats import exported, is_header, read_bytes
from muntin.cli.terminal import complain, console, failing, many, print_json, progress, safe
from muntin.core.counting.counter import Counter, Tokenizer
from muntin.core.counting.exact import hf_tokenizer
from muntin.core.forms import joins_others, messages_from
from muntin.core.message import Message
from muntin.core.profile import Profile
from muntin.errors import InvalidInput, MissingExtra, UnknownModel
from muntin.providers.names import context_window
from muntin.timeline.lines import Lines


@dataclass(frozen=True, slots=True)
class Count:
    """The tokens of one file; a chat has messages, a text has none."""

    file: str
    kind: str
    tokens: int
    messages: int | None = None


@failing()
def count(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", hidden=True)],
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
    text: Annotated[bool, typer.Option("--text", help="Count chats as texts too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count the tokens of files.

    A chat is OpenAI-style messages as JSON or JSON Lines, also with tools, or an export of
    `muntin sessions`; anything else is a text. - reads the standard input.
    """
    counter = _counter(model, tokenizer, _sizes(attachment_tokens or ()))
    window = _window(model)
    counts: list[Count] = []
    broken = False
    with progress("counting", total=len(files) if len(files) > 1 else None) as advance:
        for number, file in enumerate(files):
            advance(number, str(file))
            try:
                counts.append(_count(file, counter, as_text=text))
            except InvalidInput as error:  # the other files are still counted
                complain(error)
                broken = True
    if as_json:
        print_json(_to_dict(counts, counter.name, model, window))
    elif counts:
        _show(counts, counter.name, model, window)
    if broken:
        raise typer.Exit(2)


def _sizes(given: Iterable[str]) -> dict[str, int] | None:
    """Read `image=1000`."""
    found: dict[str, int] = {}
    for each in given:
        kind, equals, tokens = each.partition("=")
        if not equals or not tokens.isdecimal() or len(tokens) > 9:
            raise InvalidInput(
                f"--attachment-tokens {each!r}: write a kind and a number, image=1000"
            )
        found[kind] = int(tokens)
    return found or None


def _counter(model: str | None, tokenizer: str | None, sizes: dict[str, int] | None) -> Counter:
    profile = None if model is None else Profile.for_model(model)
    chosen: Tokenizer | str | None = tokenizer
    if tokenizer is not None and tokenizer.endswith(".json"):
        chosen = hf_tokenizer(tokenizer)
    return Counter.of(profile, tokenizer=chosen, attachment_tokens=sizes)


def _window(model: str | None) -> int | None:
    try:
        return None if model is None else context_window(model)
    except (UnknownModel, MissingExtra):
        return None


# Reading.


def _count(path: Path, counter: Counter, *, as_text: bool) -> Count:
    name = str(path)
    data = read_bytes(path)
    values = None if as_text else _values(data)
    if values is not None:
        try:
            messages = list(_messages(values))
            tools = [tool for value in values for tool in _tools(value)]
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from error
        tokens = sum(counter.message(message) for message in messages) + counter.beside(tools)
        return Count(name, "chat", tokens, len(messages))
    try:
        return Count(name, "text", counter.text_once(data.decode()))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name}: not UTF-8 text (byte {error.start:,})") from error


def _values(data: bytes) -> list[Any] | None:
    """Return the JSON values of a file that holds a chat, None for another file."""
    if not data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        return None
    try:
        values = list(Lines(data.splitlines(keepends=True)))
    except InvalidInput:
        return None
    return values if is_header(values[0]) or all(map(_is_chat, values)) else None


def _is_chat(value: object) -> bool:
    """Say whether a value is a message, a list of messages, or has messages under `messages`."""
    if isinstance(value, dict):
        return _is_message(value) or _is_chat(value.get("messages"))
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and ("role" in value or "parts" in value or joins_others(value))


def _messages(values: list[Any]) -> Iterator[Message]:
    if is_header(values[0]):
        yield from (message for _, message in exported(values))
        return
    found: list[Any] = []
    for value in values:
        given = value.get("messages", value) if isinstance(value, dict) else value
        found += [given] if isinstance(given, dict) else given
    yield from messages_from(found, first=1)


def _tools(value: object) -> list[Mapping[str, Any]]:
    found = value.get("tools") if isinstance(value, dict) else None
    if not found:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidInput("'tools' must be a list of schemas")
    return found


# Showing.


def _to_dict(
    counts: list[Count], tokenizer: str, model: str | None, window: int | None
) -> dict[str, Any]:
    return {
        "files": [asdict(each) for each in counts],
        "total": sum(each.tokens for each in counts),
        "tokenizer": tokenizer,
        "model": model,
        "window": window,
    }


def _show(counts: list[Count], tokenizer: str, model: str | None, window: int | None) -> None:
    from rich.table import Table

    total = sum(each.tokens for each in counts)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("file", overflow="fold")
    table.add_column("as", no_wrap=True)
    for each in counts:
        kind = each.kind if each.messages is None else many(each.messages, "message")
        table.add_row(f"{each.tokens:,}", safe(each.file), kind)
    if len(counts) > 1:
        table.add_row(f"{total:,}", "total")
    out = console()
    out.print(table)
    share = f"; {total / window:.1%} of the window of {model} ({window:,})" if window else ""
    out.print(safe(f"counted by {tokenizer}{share}"))
