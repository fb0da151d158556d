"""The command line: what a prompt file becomes, and the sessions of a store.

Owns options, printing and exit codes (0 fine, 1 over budget, 2 wrong usage or file), nothing else.
Typer reads the annotations of its commands when they run, and is an extra: so the commands are
made inside a function, in a module whose annotations are not strings.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from muntin import __version__, cli_simulate
from muntin.core.budget import Budget
from muntin.core.message import Input
from muntin.core.slots import Slots
from muntin.core.window import Window
from muntin.errors import InvalidInput, MissingExtra, MuntinError, UnknownModel
from muntin.prompt_files import prompt_file
from muntin.show import bar

if TYPE_CHECKING:
    from typer import Typer

# The budget when neither the caller nor the model says one.
DEFAULT_BUDGET = 128_000


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what its encoding has not is written as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        command = app()
    except MissingExtra as error:
        fail(error)
    command()


def app() -> "Typer":
    """Return the Typer application."""
    try:
        import typer
    except ImportError as error:
        raise MissingExtra("the command line needs: pip install 'muntin[cli,prompts]'") from error

    command = typer.Typer(
        add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False
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
        """Compose a language model's context window."""

    @command.command()
    def render(
        file: Annotated[Path, typer.Argument(help="A prompt file.")],
        input: Annotated[
            list[str] | None, typer.Option(metavar="KEY=VALUE", help="JSON or text; repeatable.")
        ] = None,
        input_file: Annotated[Path | None, typer.Option(help="The input as a JSON object.")] = None,
        budget: Annotated[
            int | None, typer.Option(help="Tokens; else the model's window, or 128,000.")
        ] = None,
        provider: Annotated[
            str | None, typer.Option(help="anthropic, openai/gpt-4o; else the file's model.")
        ] = None,
        tokenizer: Annotated[
            str | None, typer.Option(help="estimate, o200k_base, chars/4; else the model's.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    ) -> None:
        """Render a prompt file and show its window."""
        try:
            values = _values(input or [], input_file)
            window = _compose(file, values, budget, provider, tokenizer)
        except MuntinError as error:
            fail(error)
        typer.echo(_as_json(window) if as_json else _as_text(window))
        if window.over_budget:
            raise typer.Exit(1)

    from muntin.cli_sessions import sessions_app

    command.add_typer(sessions_app(), name="sessions")
    cli_simulate.register(command)
    return command


def fail(error: object) -> NoReturn:
    """Print an error as one line, and exit with 2."""
    print(f"muntin: {error}", file=sys.stderr)
    sys.exit(2)


def _values(pairs: list[str], file: Path | None) -> dict[str, Any]:
    """Return the input: what the file says, and over it the pairs."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise InvalidInput(f"{file}:{error.lineno}: not JSON: {error.msg}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidInput(f"{file}: cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise InvalidInput(f"{file}:1: the input must be a JSON object")
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise InvalidInput(f"--input {pair!r}: write it as key=value")
        values[key] = _value(text)
    return values


def _value(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return text


def _not_json(constant: str) -> NoReturn:
    raise ValueError(constant)  # Python reads NaN and Infinity, JSON has none


def _compose(
    path: Path,
    values: Mapping[str, Any],
    budget: int | None,
    provider: str | None,
    tokenizer: str | None,
) -> Window:
    file = prompt_file(path)
    model = _model(provider, file.config.get("model"))
    slots = Slots(
        _budget(model, file.config.get("max_tokens")) if budget is None else budget,
        tokenizer=tokenizer,
        profile=model,
    )
    rendered = file.render(values)
    slots.add("system", rendered.system, required=True)
    if rendered.user is not None:
        slots.add("user", Input(rendered.user))
    return slots.render()


def _model(provider: str | None, own: str | None) -> str | None:
    """Return the model meant: a provider alone is that of the file's own model, if it fits."""
    if provider is None or "/" in provider:
        return provider or own
    return own if own and own.startswith(f"{provider}/") else f"{provider}/"


def _budget(model: str | None, max_tokens: int | None) -> Budget | int:
    if model is None:
        return DEFAULT_BUDGET
    try:
        return Budget.for_model(model, max_output_tokens=max_tokens)
    except (UnknownModel, MissingExtra):
        return DEFAULT_BUDGET


def _as_json(window: Window) -> str:
    return json.dumps(
        {
            "messages": [message.to_dict() for message in window.messages],
            "report": window.report.to_dict(),
            "tokens": window.tokens,
            "over_budget": window.over_budget,
        },
        ensure_ascii=False,
        indent=2,
    )


def _as_text(window: Window) -> str:
    width = min(80, shutil.get_terminal_size().columns)
    messages = [f"--- {message.role}\n{message.text}" for message in window.messages]
    return "\n\n".join(
        [bar(window, width=width, colour=sys.stdout.isatty()), *messages, str(window.report)]
    )
