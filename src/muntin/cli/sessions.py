"""`muntin sessions`: list, show, search, export, import and clean up the sessions of a store."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from muntin.cli.options import AsJson, check_lasting, existing_store
from muntin.cli.options import Store as At
from muntin.cli.terminal import (
    console,
    failing,
    many,
    naming,
    plain_table,
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
from muntin.timeline.files import (
    Imported,
    export_session,
    import_sessions,
    is_staged,
    remove_abandoned,
)
from muntin.timeline.items import Item, SessionInfo, Turn
from muntin.timeline.lines import iso, item_to_dict
from muntin.timeline.recall import Excerpt
from muntin.timeline.recall.stored import search as find
from muntin.timeline.session import Session
from muntin.timeline.store import DEFAULT_URL, Store, open_store

# How many sessions are read at once.
PAGE = 500
# How many characters of a text are shown.
LONGEST = 400
# How many sessions an import names.
LISTED_SESSIONS = 20

command = typer.Typer(
    no_args_is_help=True, help="Look at stored sessions; write them to files and read them in."
)


@command.command("list")
def list_(
    store: At = DEFAULT_URL,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the sessions of a store, by id."""
    with failing(), existing_store(store) as opened:
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
    with failing(), existing_store(store) as opened:
        info = _session(opened, id)
        items = opened.read(id, newest=limit)
        first = min((item.turn for item in items), default=1)
        turns = opened.turns(id, newest=info.turns - first + 1)[::-1]
        used = Session(id, store=opened, mend=False).usage()
        if as_json:
            data = {
                "turns": [{"turn": t.number, "status": t.status, "first": t.first} for t in turns],
                "items": [item_to_dict(item) for item in items],
            }
            print_json({**_info_to_dict(info), "usage": used.to_dict(), "shown": data})
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
    with failing(), existing_store(store) as opened:
        _session(opened, id)
        excerpts = find(Session(id, store=opened, mend=False), query, limit, keep=False)
        if as_json:
            print_json({"id": id, "query": query, "found": list(map(_excerpt_to_dict, excerpts))})
            return
        for excerpt in excerpts:
            words = ", ".join(excerpt.words) or "(next to a match)"
            day = "" if excerpt.day is None else f"  {excerpt.day}"
            console().print(f"{excerpt.score:6.1f}{day}  {safe(words)}", style="dim")
            for line in excerpt.text.splitlines():
                print(safe(unescape(line)))
        if not excerpts:
            say(f"{id} has nothing on that")


def _excerpt_to_dict(excerpt: Excerpt) -> dict[str, Any]:
    day = None if excerpt.day is None else excerpt.day.isoformat()
    return {**asdict(excerpt), "day": day}


@command.command()
def retry(
    id: Annotated[str, typer.Argument(metavar="ID", hidden=True)],
    turn: Annotated[
        int | None,
        typer.Option("--turn", metavar="N", min=1, help="A failed turn; else the last given up."),
    ] = None,
    store: At = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Try a turn again that was given up, or failed.

    The newest turn goes on where it stopped; for an older one a new turn begins with the same
    messages. A worker handles it.
    """
    with failing(), existing_store(store) as opened:
        _session(opened, id)
        if turn is None:
            failed = opened.turns(id, status="failed")
            given_up = [lost.number for lost in failed if lost.reason == "gave_up"]
            if not given_up:
                raise InvalidInput(f"no turn of {id} was given up; --turn N names a failed turn")
            turn = given_up[0]
        items = Session(id, store=opened, mend=False).try_again(turn)
        if as_json:
            print_json({"id": id, "turn": turn, "again": items[0].turn})
        else:
            new = items[0].turn
            say(f"turn {turn} of {id} is tried again" + (f" as turn {new}" if new != turn else ""))


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
    with failing(), existing_store(store) as opened:
        if (id is None) != all_:
            raise InvalidInput("give the id of a session, or --all")
        ids = [id] if id is not None else (info.id for info in _all_sessions(opened))
        exported: list[dict[str, Any]] = []

        def lines() -> Iterator[bytes]:
            for id in ids:
                session = export_session(opened, id)
                header = next(session)
                exported.append({"id": id, "items": json.loads(header)["items"]})
                yield header
                yield from session

        if output is None:
            _print_lines(lines())
            return
        _write_file(output, lines())
        if as_json:
            print_json({"file": str(output), "sessions": exported})
        else:
            say(f"{many(len(exported), 'session')} written to {output}")


@command.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", hidden=True)],
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
        imported: list[Imported] = []
        with _new_store(store) as opened:
            try:
                for file in files:
                    imported += _import(opened, file, rename, tokenizer, wake)
            finally:
                if imported:  # imported files stay, even if a later one fails
                    _show_imported(imported, opened.name, as_json, wake)


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
    with failing(), existing_store(store) as opened:
        if days is None and megabytes is None:
            raise InvalidInput("say what to forget: --days or --megabytes")
        before = None if days is None else datetime.now(UTC) - timedelta(days=days)
        most = None if megabytes is None else int(megabytes * 1_000_000)
        imports = remove_abandoned(opened)
        pruned = opened.prune(before=before, most=most)
        if as_json:
            counts = {"reports": pruned.reports, "bytes": pruned.bytes, "imports": len(imports)}
            print_json({"store": opened.name, **counts})
            return
        say(f"{many(pruned.reports, 'report')} with {pruned.bytes:,} bytes forgotten")
        if imports:
            say(f"{many(len(imports), 'unfinished import')} removed")


@command.command()
def vacuum(store: At = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Free the disk space of what was deleted.

    What was deleted cannot be recovered afterwards. Other processes wait until it is done.
    """
    with failing(), existing_store(store) as opened:
        opened.vacuum()
        if as_json:
            print_json({"store": opened.name})
        else:
            say(f"{opened.name} holds nothing that was deleted")


# Stores.


def _session(store: Store, id: str) -> SessionInfo:
    """Return the facts about a session that must exist."""
    infos = store.sessions(id=id)
    if not infos:
        at = "" if store.name == DEFAULT_URL else f" --store {store.name}"
        raise InvalidInput(
            f"{store.name}: there is no session {id!r}; see `muntin sessions list{at}`"
        )
    return infos[0]


def _all_sessions(store: Store, limit: int = sys.maxsize) -> Iterator[SessionInfo]:
    after: str | None = None
    while limit > 0 and (page := store.sessions(after=after, limit=min(limit, PAGE))):
        complete = [info for info in page if not is_staged(info)]
        yield from complete
        after, limit = page[-1].id, limit - len(complete)


# Export.


def _print_lines(lines: Iterable[bytes]) -> None:
    if sys.stdout.isatty():
        for line in lines:
            print(safe(line.decode().rstrip("\n")))
        return
    sys.stdout.buffer.writelines(lines)
    sys.stdout.buffer.flush()


def _write_file(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file whole or not at all."""
    # A pipe or device is written directly.
    target = path if path.exists() and not path.is_file() else path.with_name(f".{path.name}.part")
    try:
        with naming(path, "written"), progress(f"writing {path}") as advance:
            with target.open("wb") as file:
                for number, line in enumerate(lines):
                    if number % 1_000 == 0:
                        advance(number, many(number, "line"))
                    file.write(line)
            if target is not path:
                os.replace(target, path)
    finally:
        if target is not path:
            target.unlink(missing_ok=True)


# Import.


@contextmanager
def _new_store(url: str) -> Iterator[Store]:
    """Open a store to import into; a new file is removed again if nothing came in."""
    check_lasting(url)
    new_file: str | None = None
    if url.startswith("sqlite"):
        from muntin.timeline.store.sql.address import read_address

        file = read_address(url).file
        new_file = None if file is None or os.path.exists(file) else file
    is_empty = False
    try:
        with open_store(url) as store:
            try:
                yield store
            except BaseException:
                is_empty = new_file is not None and not store.sessions(limit=1)
                raise
    finally:
        # SQLite keeps a second file as long as any process, here another one, has the store open.
        if is_empty and new_file is not None and not os.path.exists(f"{new_file}-wal"):
            os.unlink(new_file)


def _import(
    store: Store, path: Path, rename: str | None, tokenizer: str | None, wake: bool
) -> list[Imported]:
    """Import one file and return its sessions."""
    is_file = str(path) != "-"
    source, stem = (str(path), path.stem) if is_file else ("<stdin>", "stdin")
    sessions: list[Imported] = []
    bytes_read = items = 0

    def lines(file: BinaryIO) -> Iterator[bytes]:
        nonlocal bytes_read
        for line in file:
            bytes_read += len(line)
            yield line

    with (
        naming(source),
        path.open("rb") if is_file else nullcontext(sys.stdin.buffer) as file,
        progress(source, total=_size(file)) as advance,
        closing(
            import_sessions(
                store,
                lines(file),
                source=source,
                stem=stem,
                rename=rename,
                tokenizer=tokenizer,
                wake=wake,
            )
        ) as steps,
    ):
        for step in steps:
            advance(bytes_read, many(items + step.items, "item"))
            if step.complete:
                items += step.items
                sessions.append(step)
    return sessions


def _size(file: BinaryIO) -> int | None:
    """Return how many bytes there are to read, if that is known."""
    try:
        return os.fstat(file.fileno()).st_size or None
    except OSError:
        return None


def _show_imported(sessions: Sequence[Imported], name: str, as_json: bool, wake: bool) -> None:
    if as_json:
        listed = [{"id": s.session, "items": s.items, "turns": s.turns} for s in sessions]
        print_json({"store": name, "sessions": listed})
        return
    for session in sessions[:LISTED_SESSIONS]:
        say(f"{session.session}: {many(session.items, 'item')} in {many(session.turns, 'turn')}")
    if len(sessions) > LISTED_SESSIONS:
        say(f"… and {many(len(sessions) - LISTED_SESSIONS, 'more session')}")
    items = sum(session.items for session in sessions)
    say(f"{many(len(sessions), 'session')} with {many(items, 'item')} imported into {name}")
    unsettled = sum(session.unsettled for session in sessions)
    if unsettled and not wake:
        say(f"{many(unsettled, 'unfinished turn')} marked failed; with --wake they wait on")


# Showing.


def _show_list(infos: Sequence[SessionInfo], name: str, *, more: bool) -> None:
    if not infos and not more:
        say(f"{name} has no sessions")
        return
    table = plain_table()
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
    # The tokenizer that counted most of the items.
    counted_by = Counter(key for item in items for key in item.tokens).most_common(1)
    key = counted_by[0][0] if counted_by else None
    counted = f" · tokens by {safe(key.partition('+')[0])}" if key else ""
    out.print(Styled(safe(info.id), "bold"))
    out.print(f"{counts} · {span}{counted}")
    for words in used.words():
        out.print(words)
    hidden = info.items - len(items)
    if hidden:
        out.print(f"… {many(hidden, 'earlier item')}; see them with --limit {info.items}")
    status = {turn.number: turn.status for turn in turns}
    rows = []
    for item in items:
        who = item.kind if item.kind == "reasoning" or item.role is None else item.role
        count = None if key is None else item.tokens.get(key)
        rows.append((str(item.position), who, "-" if count is None else f"{count:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    turn = None
    for (position, who, tokens), item in zip(rows, items, strict=True):
        if item.turn != turn:
            turn = item.turn
            how = status.get(turn, "completed")
            heading = f"turn {turn}" if how == "completed" else f"turn {turn}, {how}"
            out.print(Styled(f"\n{heading}", "bold"))
        columns = position.rjust(widths[0]), who.ljust(widths[1]), tokens.rjust(widths[2]), ""
        line = Styled("  ".join(columns), "dim")
        line.append(_text(item), "not dim")
        line.rstrip()
        out.print(line, no_wrap=True, overflow="ellipsis")


def _text(item: Item) -> str:
    """Return the beginning of an item in one line, with its marks."""
    texts: list[str] = []
    if not item.visibility.client:
        texts.append("(hidden from the client)")
    if not item.visibility.history:
        texts.append("(hidden from the model)")
    if item.transient:
        texts.append("(for this turn only)")
    if item.message is not None:
        content = item.message.content
        texts += [content] if isinstance(content, str) else map(_part_text, content or ())
        texts += [f"{call.name}({call.arguments})" for call in item.message.tool_calls]
        texts += [file_hint(file.name) for file in item.message.attachments]
    elif item.kind == "context_inserted":
        entry = entry_of(item)
        texts.append(f"{entry.id} ({entry.name}): {entry.content}")
    elif isinstance(item.payload, str):
        texts.append(item.payload)
    elif item.kind != "run" or item.payload:
        texts.append(compact_json(item.payload))
    begin = " ".join(text[:LONGEST] for text in texts)
    return safe(" ".join(begin[:LONGEST].split()))


def _part_text(part: Part) -> str:
    if isinstance(part, Text | Reasoning):
        return part.text
    return f"[{part.data['type'] if isinstance(part, Other) else type(part).__name__.lower()}]"


def _minute(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="minutes")[:16]


def _info_to_dict(info: SessionInfo) -> dict[str, Any]:
    times = {"created": iso(info.created), "updated": iso(info.updated)}
    return {"id": info.id, "items": info.items, "turns": info.turns, **times}
