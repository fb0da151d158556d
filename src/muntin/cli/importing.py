"""`muntin sessions import`: files into a store; no new store stays behind if nothing came in."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from muntin.cli.terminal import many, print_json, progress, say
from muntin.errors import InvalidInput
from muntin.timeline.files import Imported, import_sessions
from muntin.timeline.store import Store, open_store

# How many sessions an import names.
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Import:
    """How files are imported: another id, the tokenizer, and whether waiting turns keep waiting."""

    rename: str | None
    tokenizer: str | None
    wake: bool


def check_kept(url: str) -> str:
    """Return the address of a store that outlives the command; refuse one in memory."""
    if url.startswith("memory"):
        raise InvalidInput(f"{url!r} is gone when the command ends; name a file or a server")
    return url


@contextmanager
def new_store(url: str) -> Iterator[Store]:
    """Open a store to import into; a new file is removed again if nothing came in."""
    file = _missing(check_kept(url))
    vain = False
    try:
        with open_store(url) as store:
            try:
                yield store
            except BaseException:
                vain = file is not None and not store.sessions(limit=1)
                raise
    finally:
        # SQLite keeps a second file as long as any process, here another one, has the store open.
        if vain and file is not None and not os.path.exists(f"{file}-wal"):
            os.unlink(file)


def _missing(url: str) -> str | None:
    """Return the file of an SQLite address, if the file does not exist yet."""
    if not url.startswith("sqlite"):
        return None
    from muntin.timeline.store.sql.address import read_address

    file = read_address(url).file
    return None if file is None or os.path.exists(file) else file


def import_files(store: Store, files: Sequence[Path], how: Import, *, as_json: bool) -> None:
    """Import files, and say what was imported, even if a later file fails."""
    done: list[Imported] = []
    try:
        for file in files:
            done += _import(store, file, how)
    finally:
        if done:  # imported files stay, even if a later one fails
            _show(done, store.name, as_json, how.wake)


def _import(store: Store, path: Path, how: Import) -> list[Imported]:
    """Import one file and return its sessions."""
    named = str(path) != "-"
    source, stem = (str(path), path.stem) if named else ("<stdin>", "stdin")
    done: list[Imported] = []
    read = items = 0

    def lines(file: BinaryIO) -> Iterator[bytes]:
        nonlocal read
        for line in file:
            read += len(line)
            yield line

    try:
        with (
            path.open("rb") if named else nullcontext(sys.stdin.buffer) as file,
            progress(source, total=_size(file)) as advance,
            closing(
                import_sessions(
                    store,
                    lines(file),
                    source=source,
                    stem=stem,
                    rename=how.rename,
                    tokenizer=how.tokenizer,
                    wake=how.wake,
                )
            ) as steps,
        ):
            for step in steps:
                advance(read, many(items + step.items, "item"))
                if step.complete:
                    items += step.items
                    done.append(step)
    except OSError as error:
        raise InvalidInput(f"{source}: cannot be read: {error.strerror or error}") from error
    return done


def _size(file: BinaryIO) -> int | None:
    """Return how many bytes there are to read, if that is known."""
    try:
        return os.fstat(file.fileno()).st_size or None
    except OSError:
        return None


def _show(done: Sequence[Imported], name: str, as_json: bool, wake: bool) -> None:
    if as_json:
        listed = [{"id": d.session, "items": d.items, "turns": d.turns} for d in done]
        print_json({"store": name, "sessions": listed})
        return
    for each in done[:SHOWN]:
        counts = f"{many(each.items, 'item')} in {many(each.turns, 'turn')}"
        say(f"{each.session}: {counts}")
    if len(done) > SHOWN:
        say(f"… and {many(len(done) - SHOWN, 'more session')}")
    items = sum(each.items for each in done)
    say(f"{many(len(done), 'session')} with {many(items, 'item')} imported into {name}")
    unsettled = sum(each.unsettled for each in done)
    if unsettled and not wake:
        say(f"{many(unsettled, 'unfinished turn')} marked failed; with --wake they wait on")
