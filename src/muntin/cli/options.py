"""Options that several commands have, and their checks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from muntin.core.checks import shown
from muntin.errors import InvalidInput
from muntin.timeline.store import Store as OpenStore
from muntin.timeline.store import open_store

# A scheme of two letters or more; one letter is a Windows drive.
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")


def store_option(help: str) -> Any:
    """Return the option that names a store."""
    return typer.Option(
        "--store", metavar="STORE", envvar="MUNTIN_STORE", callback=store_address, help=help
    )


def store_address(text: str | None) -> str | None:
    """Return the address of a store; a plain file means SQLite."""
    if text is None or _SCHEME.match(text):
        return text
    path = Path(text)
    if text.strip() and path.is_dir():
        raise typer.BadParameter(f"{shown(text)} is a folder; name a file in it, like chat.db")
    if text.strip() and (path.suffix or path.parent != Path() or path.exists()):
        return "sqlite:///" + text.replace("%", "%25").replace("?", "%3F")
    raise typer.BadParameter(
        f"{shown(text)} is not a store; name a file like chat.db, or postgresql://user@host/name"
    )


def check_lasting(url: str) -> None:
    """Refuse a store in memory, which is the process's own."""
    if url.startswith("memory"):
        raise InvalidInput(
            f"{url!r} is empty in a new process and is gone when the command ends; "
            "name a file or a server"
        )


@contextmanager
def existing_store(url: str) -> Iterator[OpenStore]:
    """Open a store to read from; a missing store is not made."""
    check_lasting(url)
    with open_store(url, create=False) as store:
        yield store


def check_url(text: str | None) -> str | None:
    """Return the address of a server; refuse anything else."""
    if text is None or re.match(r"https?://\S+$", text):
        return text
    raise typer.BadParameter(f"{shown(text)} is not an address like http://localhost:11434/v1")


Store = Annotated[str, store_option("The store: a file or an address.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Port = Annotated[
    int,
    typer.Option(metavar="PORT", min=0, max=65_535, help="Where to listen; 0 takes any free port."),
]
WindowBudget = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS", min=1, help="Tokens of the window; else the model's, or 128,000."
    ),
]
