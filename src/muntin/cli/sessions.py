"""`muntin sessions`: list, show, search, export, import and clean up the sessions of a store."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Annotated, Any

import typer

from muntin.cli.importing import Import, check_kept, import_files, new_store
from muntin.cli.options import store_option
from muntin.cli.terminal import (
    Advance,
    console,
    failing,
    many,
    print_json,
    progress,
    safe,
    say,
)
from muntin.core.checks import compact_json
from muntin.core.counting.counter import file_hint
from muntin.core.parts import Other, Part, Reasoning, Text
from muntin.core.usage import SessionUsage
from muntin.errors import InvalidInput
from muntin.timeline.entries import entry_of
from muntin.timeline.files import export_session, is_staged, remove_abandoned
from muntin.timeline.items import Item, SessionInfo, Turn
from muntin.timeline.lines import iso, item_to_dict
from muntin.timeline.recall.stored import search as find
from muntin.timeline.session import Session
from muntin.timeline.store import DEFAULT_URL, Store, open_store

# How many sessions are read at once.
PAGE = 500
# How many characters of a text are shown.
LONGEST = 400

command = typer.Typer(
    no_args_is_help=True, help="Look at stored sessions; write them to files and read them in."
)
At = Annotated[str, store_option("The store: a file or an address.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@command.command("list")
def list_(
    store: At = DEFAULT_URL,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the sessions of a store, by id."""
    with _existing(store) as opened:
        infos = list(_all_sessions(opened, limit + 1))
        if as_json:
            print_json([_info_to_dict(info) for info in infos[:limit]])
        else:
            _show_list(infos[:limit], opened.name, more=len(infos) > limit)


@command.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", hidden=True)],
    store: At = DEFAULT_URL,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many items, the newest.")
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the newest items of a session, turn by turn."""
    with _existing(store) as opened:
        info = opened.session(id)
        if info is None:
            raise _unknown(opened, id)
        items = opened.read(id, newest=limit)
        first = min((item.turn for item in items), default=1)
        turns = opened.turns(id, newest=info.turns - first + 1)[::-1]
        used = Session(id, store=opened, mend=False).usage()
        if as_json:
            shown = [{"turn": t.number, "status": t.status, "first": t.first} for t in turns]
            listed = [item_to_dict(item) for item in items]
            about = {**_info_to_dict(info), "usage": asdict(used)}
            print_json({**about, "shown": {"turns": shown, "items": listed}})
        else:
            _show_session(info, turns, items, used)


@command.command()
def search(
    id: Annotated[str, typer.Argument(metavar="ID", hidden=True)],
    query: Annotated[str, typer.Argument(metavar="QUERY", hidden=True)],
    store: At = DEFAULT_URL,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many excerpts at most.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Search what was said in a session, best matches first.

    QUERY is a question, words, or an identifier.
    """
    with _existing(store) as opened:
        if opened.session(id) is None:
            raise _unknown(opened, id)
        found = find(Session(id, store=opened, mend=False), query, limit, keep=False)
        if as_json:
            print_json({"id": id, "query": query, "found": [asdict(each) for each in found]})
            return
        for each in found:
            words = ", ".join(each.words) or "(next to a match)"
            console().print(f"{each.score:6.1f}  {safe(words)}", style="dim")
            for line in each.text.splitlines():
                print(safe(unescape(line)))
        if not found:
            say(f"{id} has nothing on that")


def _unknown(store: Store, id: str) -> InvalidInput:
    listing = "muntin sessions list"
    if store.name != DEFAULT_URL:
        listing += f" --store {store.name}"
    return InvalidInput(f"{store.name}: there is no session {id!r}; see `{listing}`")


@command.command()
def export(
    id: Annotated[str | None, typer.Argument(metavar="ID", hidden=True)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The file to write; else it is printed."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every session, into one file.")] = False,
    store: At = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Write a session as JSON Lines, without loss."""
    with _existing(store) as opened:
        if (id is None) != all_:
            raise InvalidInput("give the id of a session, or --all")
        ids = [id] if id is not None else (each.id for each in _all_sessions(opened))
        done: list[dict[str, Any]] = []
        lines = _export(opened, ids, done)
        if output is None:
            _print_lines(lines)
            return
        with progress(f"writing {output}") as advance:
            _write_file(output, _told(lines, advance))
        if as_json:
            print_json({"file": str(output), "sessions": done})
        else:
            say(f"{many(len(done), 'session')} written to {output}")


@command.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", hidden=True),
    ],
    rename: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="Another id, for a single session.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Count by estimate, o200k_base, a model."),
    ] = None,
    wake: Annotated[
        bool, typer.Option("--wake", help="Keep waiting turns waiting; else they fail.")
    ] = False,
    store: At = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Read sessions in, from exports or chats.

    FILE is an export of Muntin, or OpenAI-style chats as JSON or JSON Lines; - reads the standard
    input. A file is imported as a whole or not at all.
    """
    with failing():
        if rename is not None and len(files) > 1:
            raise InvalidInput("--as names one session; give one file")
        with new_store(store) as opened:
            import_files(opened, files, Import(rename, tokenizer, wake), as_json=as_json)


@command.command()
def prune(
    days: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, max=100_000, help="Forget reports that are older."),
    ] = None,
    megabytes: Annotated[
        float | None,
        typer.Option(metavar="MB", min=0, help="Forget the oldest until all take less."),
    ] = None,
    store: At = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Forget old reports of all sessions.

    Also removes what interrupted imports left behind. Messages are kept.
    """
    with _existing(store) as opened:
        if days is None and megabytes is None:
            raise InvalidInput("say what to forget: --days or --megabytes")
        before = None if days is None else datetime.now(UTC) - timedelta(days=days)
        most = None if megabytes is None else int(megabytes * 1_000_000)
        imports = remove_abandoned(opened)
        pruned = opened.prune(before=before, most=most)
        if as_json:
            told = {"reports": pruned.reports, "bytes": pruned.bytes, "imports": len(imports)}
            print_json({"store": opened.name, **told})
            return
        say(f"{many(pruned.reports, 'report')} with {pruned.bytes:,} bytes forgotten")
        if imports:
            say(f"{many(len(imports), 'unfinished import')} removed")


@command.command()
def vacuum(store: At = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Free the disk space of what was deleted.

    What was deleted cannot be recovered afterwards. Other processes wait until it is done.
    """
    with _existing(store) as opened:
        opened.vacuum()
        if as_json:
            print_json({"store": opened.name})
        else:
            say(f"{opened.name} holds nothing that was deleted")


# Stores.


@contextmanager
def _existing(url: str) -> Iterator[Store]:
    """Open a store to read from; a missing store is not made."""
    with failing(), open_store(check_kept(url), create=False) as store:
        yield store


def _all_sessions(store: Store, limit: int | None = None) -> Iterator[SessionInfo]:
    after: str | None = None
    left = sys.maxsize if limit is None else limit
    while left > 0 and (page := store.sessions(after=after, limit=min(left, PAGE))):
        whole = [info for info in page if not is_staged(info)]
        yield from whole
        after, left = page[-1].id, left - len(whole)


# Export.


def _export(store: Store, ids: Iterable[str], done: list[dict[str, Any]]) -> Iterator[bytes]:
    for id in ids:
        lines = export_session(store, id)
        header = next(lines)
        done.append({"id": id, "items": json.loads(header)["items"]})
        yield header
        yield from lines


def _told(lines: Iterable[bytes], advance: Advance) -> Iterator[bytes]:
    """Yield lines, and now and then show how many there were."""
    for number, line in enumerate(lines):
        if number % 1_000 == 0:
            advance(number, many(number, "line"))
        yield line


def _print_lines(lines: Iterable[bytes]) -> None:
    if sys.stdout.isatty():
        for line in lines:
            print(safe(line.decode().rstrip("\n")))
        return
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _write_file(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file whole or not at all."""
    # A pipe or device is written directly.
    whole = path if path.exists() and not path.is_file() else path.with_name(f".{path.name}.part")
    try:
        with whole.open("wb") as file:
            file.writelines(lines)
        if whole is not path:
            os.replace(whole, path)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if whole is not path:
            whole.unlink(missing_ok=True)


# Showing.


def _show_list(infos: Sequence[SessionInfo], name: str, *, more: bool) -> None:
    from rich.table import Table

    if not infos and not more:
        say(f"{name} has no sessions")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("session", overflow="fold")
    for heading in ("items", "turns"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("created (UTC)", "updated"):
        table.add_column(heading, no_wrap=True)
    for info in infos:
        counts = f"{info.items:,}", f"{info.turns:,}"
        table.add_row(safe(info.id), *counts, _minute(info.created), _minute(info.updated))
    out = console()
    out.print(table)
    if more:
        out.print(f"… and more; see them with --limit {10 * max(1, len(infos))}")


def _show_session(
    info: SessionInfo, turns: Sequence[Turn], items: Sequence[Item], used: SessionUsage
) -> None:
    from rich.text import Text as Styled

    out = console()
    counts = f"{many(info.items, 'item')} in {many(info.turns, 'turn')}"
    begin, end = _minute(info.created), _minute(info.updated)
    span = f"{begin} to {end.removeprefix(begin[:11])} UTC"
    key = _usual_key(items)
    counted = f" · tokens by {safe(key.partition('+')[0])}" if key else ""
    out.print(Styled(safe(info.id), "bold"))
    out.print(f"{counts} · {span}{counted}")
    for words in used.words():
        out.print(words)
    hidden = info.items - len(items)
    if hidden:
        out.print(f"… {many(hidden, 'earlier item')}; see them with --limit {info.items}")
    status = {turn.number: turn.status for turn in turns}
    rows = [(str(item.position), _who(item), _tokens(item, key)) for item in items]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    turn = None
    for (position, who, tokens), item in zip(rows, items, strict=True):
        if item.turn != turn:
            turn = item.turn
            how = status.get(turn, "completed")
            heading = f"turn {turn}" if how == "completed" else f"turn {turn}, {how}"
            out.print(Styled(f"\n{heading}", "bold"))
        columns = position.rjust(wide[0]), who.ljust(wide[1]), tokens.rjust(wide[2]), ""
        line = Styled("  ".join(columns), "dim")
        line.append(_text(item), "not dim")
        line.rstrip()
        out.print(line, no_wrap=True, overflow="ellipsis")


def _who(item: Item) -> str:
    return item.kind if item.kind == "reasoning" or item.role is None else item.role


def _usual_key(items: Sequence[Item]) -> str | None:
    """Return the tokenizer that counted most of the items."""
    found = Counter(key for item in items for key in item.tokens)
    return found.most_common(1)[0][0] if found else None


def _tokens(item: Item, key: str | None) -> str:
    count = item.tokens.get(key) if key is not None else None
    return "-" if count is None else f"{count:,}"


def _text(item: Item) -> str:
    """Return the beginning of an item in one line, with its marks."""
    said: list[str] = []
    if not item.visibility.client:
        said.append("(hidden from the client)")
    if not item.visibility.history:
        said.append("(hidden from the model)")
    if item.transient:
        said.append("(for this turn only)")
    if item.message is None:
        said += [_payload(item)] if item.kind != "run" or item.payload else []
    else:
        content = item.message.content
        parts = (content,) if isinstance(content, str) else content or ()
        said += [part if isinstance(part, str) else _part(part) for part in parts]
        said += [f"{call.name}({call.arguments})" for call in item.message.tool_calls]
        said += [file_hint(file.name) for file in item.message.attachments]
    begin = " ".join(text[:LONGEST] for text in said)
    return safe(" ".join(begin[:LONGEST].split()))


def _payload(item: Item) -> str:
    if item.kind == "context_inserted":
        entry = entry_of(item)
        return f"{entry.id} ({entry.name}): {entry.content}"
    return item.payload if isinstance(item.payload, str) else compact_json(item.payload)


def _part(part: Part) -> str:
    if isinstance(part, Text | Reasoning):
        return part.text
    return f"[{part.data['type'] if isinstance(part, Other) else type(part).__name__.lower()}]"


def _minute(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="minutes")[:16]


def _info_to_dict(info: SessionInfo) -> dict[str, Any]:
    times = {"created": iso(info.created), "updated": iso(info.updated)}
    return {"id": info.id, "items": info.items, "turns": info.turns, **times}
