"""The command line: puts the commands together, each from the module that owns it.

A command is the function of its module's name. Typer is an extra, so these modules are imported
only when it is installed. Typer reads annotations when a command runs, so their annotations are not
strings. `docs/cli.md` lists the exit codes.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any

from muntin import __version__
from muntin.cli.error_text import plain_value
from muntin.cli.terminal import fail
from muntin.errors import MissingExtra, needing

if TYPE_CHECKING:
    from typer import Typer

# In the order in which the help lists them.
COMMANDS = (
    "demo",
    "render",
    "count",
    "chat",
    "work",
    "sessions",
    "simulate",
    "inspect",
    "mcp",
    "gateway",
    "doctor",
)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # characters it lacks become escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        # A named command needs only its own modules; help and completion need all.
        command = app([name for name in COMMANDS if name in sys.argv[1:2]] or COMMANDS)
    except MissingExtra as error:
        fail(error)
    import typer

    # Click's class, or Typer's copy of it.
    usage_error: Any = typer.BadParameter.__bases__[0]
    try:
        code = command(standalone_mode=False)
    except usage_error as error:
        text = error.format_message()  # `str` of it leaves out the option
        if type(error).__name__ == "NoArgsIsHelpError":  # no arguments: its text is the help
            print(text, file=sys.stderr)
            sys.exit(2)
        text = plain_value(" ".join(text.split()))
        end = "" if text.endswith((".", "?", "!")) else "."
        fail(f"{text}{end} See: {error.ctx.command_path if error.ctx else _called()} -h")
    except typer.Abort:
        code = 1
    sys.exit(code if isinstance(code, int) else 0)


def _called() -> str:
    """Return the command that was called, where an error does not know it."""
    words = sys.argv[1:3] if sys.argv[1:2] == ["sessions"] else sys.argv[1:2]
    return " ".join(["muntin", *(word for word in words if not word.startswith("-"))])


def app(names: Sequence[str] = COMMANDS) -> "Typer":
    """Return the Typer application, with these commands."""
    with needing("the command line needs: pip install 'muntin[cli]'"):
        import rich  # noqa: F401 (needed as soon as something is printed)
        import typer

    command = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"muntin {__version__}")
            raise typer.Exit

    @command.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option("--version", callback=version, is_eager=True, help="Show the version."),
        ] = False,
    ) -> None:
        """Compose a language model's context window, and see where every token goes."""

    for name in names:
        module = import_module(f"muntin.cli.{name}")
        if name == "sessions":  # a group of commands
            command.add_typer(module.command, name=name)
        else:
            command.command()(getattr(module, name))
    return command
