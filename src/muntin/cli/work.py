"""`muntin work`: handles messages to the entities of an app, until it is stopped."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated

import typer

from muntin.cli.terminal import failing, note, say
from muntin.core.checks import shown
from muntin.errors import InvalidInput
from muntin.runtime.app import CLOSE_SECONDS, App


@failing()
def work(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", hidden=True)],
    concurrency: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="How many entities are handled side by side."),
    ] = 20,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.001, help="How long running wakes may take to end."),
    ] = CLOSE_SECONDS,
    once: Annotated[
        bool, typer.Option("--once", help="End when nothing is left that can be handled now.")
    ] = False,
) -> None:
    """Handle what is sent to an app's entities.

    Also what was left unfinished. MODULE:APP is where the App is, like support:app; the module is
    imported from this folder. Ctrl-C or SIGTERM ends it: no wake is begun, running ones have some
    time, the rest is left to other workers.
    """
    with suppress(KeyboardInterrupt):
        found = _find(app)
        asyncio.run(_once(found) if once else _work(found, concurrency, timeout))


def _find(name: str) -> App:
    """Return the App of a module; modules are searched in the current folder too."""
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise InvalidInput(f"an app is named like 'support:app', not {shown(name)}")
    if module.endswith(".py"):
        meant = module.removesuffix(".py").replace("/", ".")
        raise InvalidInput(f"name the module, not its file: {meant}:{attribute}")
    sys.path.insert(0, os.getcwd())
    try:
        names = vars(import_module(module))
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # the module needs something that is missing
        raise InvalidInput(f"there is no module {module!r} here: {error}") from error
    if attribute not in names:
        apps = [f"{module}:{key}" for key, value in names.items() if isinstance(value, App)]
        meant = f"; did you mean {apps[0]}?" if apps else ": assign the App to a name there"
        raise InvalidInput(f"module {module!r} has no {attribute!r}{meant}")
    candidate = names[attribute]
    if not isinstance(candidate, App):
        raise InvalidInput(f"{name!r} is not an App, but {shown(candidate)}")
    return candidate


async def _work(app: App, concurrency: int, timeout: float) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # without signals, Ctrl-C still stops it
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with app:
        note("Working. Press Ctrl-C to stop.")
        running = await app.work(concurrency=concurrency, stop=stop, timeout=timeout)
        if running:
            note(f"Stopped in the middle and left to others: {', '.join(running)}.")


async def _once(app: App) -> None:
    async with app:
        resumed = await app.resume()
    say(f"Handled: {', '.join(resumed.handled) or 'nothing'}.")
    for entity, why in resumed.left.items():
        say(f"Left: {entity}: {why}.")
