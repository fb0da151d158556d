"""`muntin work`: handles what is sent to the entities of an app, until it is stopped."""

import asyncio
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated

import typer

from muntin.cli.terminal import failing, many, note
from muntin.core.checks import shown
from muntin.errors import InvalidInput
from muntin.runtime.app import App


@failing()
def work(
    app: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Where the App is, like support:app.")
    ],
) -> None:
    """Handle what is sent to an app's entities, also what was left unfinished; Ctrl-C ends it."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_work(_find(app)))


def _find(name: str) -> App:
    """Return the App that a module holds; modules are looked for in the current folder too."""
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise InvalidInput(f"an app is named like 'support:app', not {shown(name)}")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # of something that the module itself needs
        raise InvalidInput(f"there is no module {module!r} here: {error}") from error
    if not isinstance(found, App):
        raise InvalidInput(f"{name!r} is not an App, but {found!r}")
    return found


async def _work(app: App) -> None:
    async with app:
        taken = await app.resume()
        note(f"Unfinished work was done: {many(len(taken), 'session')}. Ctrl-C ends this.")
        await asyncio.Event().wait()
