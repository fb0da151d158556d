"""`muntin render`: the window of a prompt file."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from muntin.cli.options import AsJson, WindowBudget
from muntin.cli.terminal import failing, has_colours, print_json, safe_text, width
from muntin.composer import Composer
from muntin.core.budget import Budget
from muntin.core.checks import shown
from muntin.core.message import Input
from muntin.core.model_name import ModelName
from muntin.core.profile import Profile
from muntin.core.window import Window
from muntin.errors import InvalidInput, PromptFileError
from muntin.prompts.files import prompt_file
from muntin.view.bar import bar


@failing()
def render(
    file: Annotated[Path, typer.Argument(metavar="FILE", hidden=True)],
    input: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="JSON or text; repeatable.")
    ] = None,
    input_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The input, as a JSON object.")
    ] = None,
    budget: WindowBudget = None,
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="anthropic, openai/gpt-4o; else the file's model."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="estimate, o200k_base, chars/4; else the model's."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Render a prompt file and show its window."""
    window = _compose(file, _values(input or [], input_file), budget, provider, tokenizer)
    if as_json:
        print_json(
            {
                "messages": [message.to_dict() for message in window.messages],
                "report": window.report.to_dict(),
                "tokens": window.tokens,
                "over_budget": window.over_budget,
            }
        )
    else:
        texts = [bar(window, width=width(), colour=has_colours(sys.stdout))]
        texts += [f"--- {message.role}\n{safe_text(message.text)}" for message in window.messages]
        print("\n\n".join([*texts, str(window.report)]))
    if window.over_budget:
        raise typer.Exit(1)


def _values(pairs: list[str], file: Path | None) -> dict[str, Any]:
    """Return the input: the file's values, overridden by the pairs."""
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
            raise InvalidInput(f"--input {shown(pair)}: write it as key=value")
        try:
            values[key] = json.loads(text, parse_constant=_not_json)
        except (ValueError, RecursionError):
            values[key] = text
    return values


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
    model = file.config.get("model")
    if provider is not None and ModelName.parse(provider).provider is not None:
        model = provider
    elif provider is not None and not (model and ModelName.parse(model).provider == provider):
        model = f"{provider}/"  # a provider alone means the file's own model, if that fits
    output = file.config.get("max_tokens")
    slots = Composer.of(
        None if model is None else Profile.for_model(model).name,
        budget=Budget.of(model, max_output_tokens=output) if budget is None else budget,
        tokenizer=tokenizer,
    ).slots()
    try:
        rendered = file.render(values)
    except PromptFileError as error:
        missing = re.fullmatch(r"input\.(\w+) is undefined", error.reason)
        if missing is None:
            raise
        raise InvalidInput(f"{error}; give it: --input {missing[1]}=…") from error
    slots.add("system", rendered.system, required=True)
    if rendered.user is not None:
        slots.add("user", Input(rendered.user))
    return slots.render()
