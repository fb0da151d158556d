"""`muntin gateway`: a server in front of a provider's server, which makes every request fit."""

from typing import Annotated

import typer

from muntin.cli.options import AsJson, Port, store_option
from muntin.cli.terminal import failing, note, print_json
from muntin.errors import InvalidInput
from muntin.fitting.fitter import Fitter
from muntin.fitting.recorder import RECORD_SECONDS
from muntin.gateway.server import INSPECTOR, PORT, Gateway, check_installed, listen, serve
from muntin.inspector.server import address_of, make_app, new_token
from muntin.timeline.store import DEFAULT_URL, open_store

_MEGABYTE = 1024 * 1024


@failing()
def gateway(
    upstream: Annotated[
        str,
        typer.Option(metavar="URL", help="The provider's address, like https://api.openai.com."),
    ],
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS", min=1, help="What a request may have; else the model's window."
        ),
    ] = None,
    store: Annotated[
        str, store_option("Where sessions are recorded: a file or an address.")
    ] = DEFAULT_URL,
    port: Port = PORT,
    host: Annotated[
        str,
        typer.Option(metavar="HOST", help="The address to listen on; else this machine only."),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            envvar="MUNTIN_GATEWAY_TOKEN",
            help="Clients must send it in the header x-muntin-token; needed beyond this machine.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name by which clients call it; may be repeated."),
    ] = None,
    body_limit: Annotated[
        int, typer.Option(metavar="MB", min=1, help="The largest body of a request.")
    ] = 32,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=1, help="How long the provider may keep silent."),
    ] = 600.0,
    recall: Annotated[
        bool,
        typer.Option("--recall", help="Bring back messages that left a window and bear on it."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit and record every request of any client.

    Change the base URL of the client. Speaks OpenAI's Chat Completions and Responses and
    Anthropic's Messages; all else passes. The clients' own keys are used, and never logged. Runs
    until Ctrl-C.
    """
    check_installed()
    if not host.strip():
        raise InvalidInput("--host must name an address")
    if token is not None and not token.strip():
        raise InvalidInput("--token must not be empty")
    with (
        open_store(store, timeout=RECORD_SECONDS) as opened,
        listen(host, port, token) as listening,
    ):
        login = new_token()
        page = make_app(opened, token=login, port=listening.getsockname()[1], base=f"{INSPECTOR}/")
        server = Gateway(
            upstream,
            store=opened,
            fitter=Fitter(budget, recall=recall),
            most=body_limit * _MEGABYTE,
            seconds=timeout,
            inspector=page,
            token=token,
            hosts=allow_host or (),
        )
        look = address_of(listening, login, f"{INSPECTOR}/")
        address = look.partition(INSPECTOR)[0]
        if as_json:
            addresses = {"url": address, "inspector": look, "upstream": server.upstream.name}
            print_json({**addresses, "store": opened.name}, lines=True)
        else:
            print(address, flush=True)
            note(f"In front of {server.upstream.name}, recording into {opened.name}, until Ctrl-C.")
            note(f"Sessions: {look}")
        serve(server, listening)
