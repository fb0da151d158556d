"""`muntin inspect`: the windows of a store as a page in the browser."""

import webbrowser
from typing import Annotated

import typer

from muntin.cli.terminal import failing, note, print_json
from muntin.errors import InvalidInput
from muntin.inspector.server import address_of, check_installed, listen, new_token, serve
from muntin.timeline.store import DEFAULT_URL, open_store


@failing()
def inspect(
    store: Annotated[
        str, typer.Option("--store", envvar="MUNTIN_STORE", help="The address of the store.")
    ] = DEFAULT_URL,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes any free port.")
    ] = 8765,
    host: Annotated[
        str, typer.Option(help="127.0.0.1 or ::1; other addresses are refused.")
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as JSON, in one line.")
    ] = False,
) -> None:
    """Look at the windows of a store: what filled them, what was left out, and what if.

    Serves a read-only page on this machine until Ctrl-C; its address holds a token.
    """
    check_installed()
    if store.startswith("memory"):
        raise InvalidInput(f"{store!r} is empty in a new process; name a file or a server")
    with open_store(store, create=False) as opened, listen(host, port) as listening:
        token = new_token()
        address = address_of(listening, token)
        if as_json:
            print_json({"url": address, "store": opened.name}, lines=True)
        else:
            print(address, flush=True)
            note(f"Showing {opened.name}, read-only, until Ctrl-C.")
        if open_:
            webbrowser.open(address)
        serve(opened, listening, token)
