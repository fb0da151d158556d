"""`muntin mcp`: the tools that read one session, for an agent in another program."""

from typing import Annotated

import typer

from muntin.cli.options import store_option
from muntin.cli.terminal import failing
from muntin.errors import InvalidInput
from muntin.mcp import mcp_server
from muntin.timeline.store import DEFAULT_URL, open_store


@failing()
def mcp(
    session: Annotated[
        str, typer.Option("--session", metavar="ID", help="The session that is read.")
    ],
    store: Annotated[str, store_option("The store: a file or an address.")] = DEFAULT_URL,
) -> None:
    """Serve one session to an agent in another program.

    Speaks the Model Context Protocol on standard input and output. The agent can search what was
    said, read it again, and see what its last window held. Nothing is written, and no other
    session can be read.
    """
    if store.startswith("memory"):
        raise InvalidInput(f"{store!r} is empty in a new process; name a file or a server")
    with open_store(store, create=False) as opened:
        mcp_server(opened, session).run()
