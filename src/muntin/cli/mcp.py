"""`muntin mcp`: the tools that read one session, for an agent in another program."""

from typing import Annotated

import typer

from muntin.cli.options import Store, existing_store
from muntin.cli.terminal import failing
from muntin.mcp import mcp_server
from muntin.timeline.store import DEFAULT_URL


@failing()
def mcp(
    session: Annotated[
        str, typer.Option("--session", metavar="ID", help="The session that is read.")
    ],
    store: Store = DEFAULT_URL,
) -> None:
    """Serve one session to an agent in another program.

    Speaks the Model Context Protocol on standard input and output. The agent can search what was
    said, read it again, and see what its last window held. Nothing is written, and no other
    session can be read.
    """
    with existing_store(store) as opened:
        mcp_server(opened, session).run()
