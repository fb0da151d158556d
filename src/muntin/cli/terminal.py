"""Shared by the commands: printing that no content can trick, errors in one line, progress.

Must not know what any command does.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, NoReturn, Protocol, TextIO

from muntin.cli.error_text import in_flags
from muntin.errors import InvalidInput, MuntinError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Work that takes longer than this gets a progress bar.
BAR_SECONDS = 0.5
# Wider is hard to read.
WIDEST = 100

# Characters that could move the cursor, hide text or reverse its direction on a terminal.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def safe(text: str) -> str:
    """Write characters that a terminal obeys as JSON escapes, line ends too."""
    return _UNSAFE.sub(_escape, text)


def safe_text(text: str) -> str:
    """Escape a text of several lines as `safe` does, but keep its line ends and tabs."""
    return _UNSAFE.sub(lambda match: match[0] if match[0] in "\n\t" else _escape(match), text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return f"\\u{ord(character):04x}" if character < "\U00010000" else json.dumps(character)[1:-1]


def say(text: str) -> None:
    """Print one line."""
    print(safe(text))


def note(text: str) -> None:
    """Print one line to the error output, for the person at the terminal."""
    print(safe(text), file=sys.stderr, flush=True)


def print_json(value: object, *, lines: bool = False) -> None:
    """Print a value as JSON; with `lines`, on one line."""
    text = json.dumps(value, ensure_ascii=False, indent=None if lines else 2)
    print("\n".join(safe(line) for line in text.split("\n")), flush=lines)


def many(count: int, what: str) -> str:
    """Return a number of things: 1 turn, 2 turns."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def has_colours(stream: TextIO) -> bool:
    """Say whether to write colours: on a terminal that has them, unless NO_COLOR is set."""
    # https://no-color.org
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and stream.isatty()


def width() -> int:
    """Return how many columns to fill."""
    return max(20, min(WIDEST, shutil.get_terminal_size().columns))


def console() -> Console:
    """Return Rich's console on the output; contents cannot use its markup."""
    from rich.console import Console

    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=False)


def plain_table(*, header: bool = True) -> Table:
    """Return a table of Rich's without lines."""
    from rich.table import Table

    return Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=header
    )


def this_command() -> str:
    """Return how this command was called, so that a printed command works when it is copied."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return f"{_as_typed(sys.executable)} -m muntin"
    return _as_typed(called)


def _as_typed(path: str) -> str:
    """Return the shortest name by which a shell in this folder finds a program."""
    name = os.path.basename(path)
    installed = shutil.which(name)
    if installed is not None and os.path.realpath(installed) == os.path.realpath(path):
        return name
    here = os.path.relpath(path)
    if here.startswith(os.pardir):
        return shlex.quote(path)
    return shlex.quote(here if os.sep in here else os.path.join(os.curdir, here))


def complain(error: object) -> None:
    """Print an error as one line."""
    note(f"muntin: {' '.join(in_flags(str(error)).splitlines())}")


def fail(error: object) -> NoReturn:
    """Print an error as one line, and exit with 2."""
    complain(error)
    sys.exit(2)


@contextmanager
def failing() -> Iterator[None]:
    """Print an error of Muntin's, or of a file, as one line, and exit with 2."""
    try:
        yield
    except MuntinError as error:
        fail(error)
    except BrokenPipeError:
        raise  # the reader of the output has closed it
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}")


@contextmanager
def naming(file: object, what: str = "read") -> Iterator[None]:
    """Turn an error of the file system into an error that names the file and what failed."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{file}: cannot be {what}: {error.strerror or error}") from error


class Advance(Protocol):
    """Shows the progress of something."""

    def __call__(self, done: int, remark: str = "") -> None:
        """Show how much is done, with a remark."""


@contextmanager
def progress(what: str, *, total: int | None = None) -> Iterator[Advance]:
    """Yield a function that shows the progress of something.

    The bar is drawn on a terminal only, and only after a while.
    """
    if not sys.stderr.isatty():
        yield lambda done, remark="": None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        *((SpinnerColumn(),) if total is None else (BarColumn(), TaskProgressColumn())),
        TextColumn("{task.fields[remark]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(safe(what), total=total, remark="")

    def advance(done: int, remark: str = "") -> None:
        bar.update(task, completed=done, remark=safe(remark))

    # Started by a clock and not by a step: a single step may take long.
    timer = Timer(BAR_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield advance
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
