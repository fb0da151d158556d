"""`muntin inspect`: the windows of a store as a page in the browser."""

import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Annotated

import typer

from muntin.cli.options import AsJson, Port, Store, existing_store
from muntin.cli.terminal import failing, note, print_json
from muntin.inspector.server import address_of, check_installed, listen, new_token, serve
from muntin.timeline.store import DEFAULT_URL

# How long a browser may take to start.
_READ_SECONDS = 60.0


@failing()
def inspect(
    store: Store = DEFAULT_URL,
    port: Port = 8765,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="127.0.0.1 or ::1; others are refused.")
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at the windows of a store in a browser.

    What filled them, what was left out, and what another budget would do. Serves a read-only page
    on this machine until Ctrl-C; its address holds a token.
    """
    check_installed()
    with existing_store(store) as opened, listen(host, port) as listening:
        token = new_token()
        address = address_of(listening, token)
        if as_json:
            print_json({"url": address, "store": opened.name}, lines=True)
        else:
            print(address, flush=True)
            note(f"Showing {opened.name}, read-only, until Ctrl-C.")
        with _open_page(address) if open_ else nullcontext():
            serve(opened, listening, token)


@contextmanager
def _open_page(address: str) -> Iterator[None]:
    """Open the page in a browser, through a file that leads to it.

    Other users of the machine can see the command line of a browser, but cannot read the file. The
    file is removed when the browser had time to read it, at the latest when the block ends.
    """
    with TemporaryDirectory(prefix="muntin-") as folder:
        file = Path(folder) / "inspect.html"
        file.touch(mode=0o600)
        file.write_text(f'<meta http-equiv="refresh" content="0; url={escape(address)}">')
        gone = Timer(_READ_SECONDS, partial(file.unlink, missing_ok=True))
        gone.daemon = True
        gone.start()
        try:
            webbrowser.open(file.as_uri())
            yield
        finally:
            gone.cancel()
