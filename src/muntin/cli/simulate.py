"""The command `muntin simulate`: replay a recorded conversation and show what caching saves.

Owns its options, and the reading of traces and of names of policies. Annotations are not strings:
Typer reads them when the command runs.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from muntin.cli.chats import exported, is_header, read_bytes
from muntin.cli.terminal import failing, print_json, progress, say
from muntin.core.message import Message, MessageLike
from muntin.core.planning.slot import Stepped
from muntin.errors import InvalidInput
from muntin.simulator import Simulation, simulate_trace
from muntin.simulator.run import PolicyLike
from muntin.timeline.lines import Lines

SYSTEM = ("system", "developer")
DEFAULT_POLICIES = ("exact", "stepped", "full")


@failing()
def simulate(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", hidden=True)],
    budget: Annotated[
        int, typer.Option(metavar="TOKENS", min=1, help="How many tokens a window may have.")
    ],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="anthropic/claude-sonnet-4-6, openai/gpt-5 …")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="exact, stepped, stepped=0.6, full, module:function; repeatable."
        ),
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Count every tool step as a request.")
    ] = False,
    pause: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="The time between two requests.")
    ] = 30.0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a picture, such as out.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what prompt caching saves on a conversation.

    TRACE is a chat as JSON or JSON Lines, or an export of `muntin sessions`; - reads the standard
    input. It is replayed under each policy.
    """
    messages = read_trace(trace)
    policies = dict(map(named_policy, policy or DEFAULT_POLICIES))
    with progress(f"replaying {len(messages):,} messages"):
        result = simulate_trace(
            messages, budget=budget, model=model, policies=policies, steps=steps, pause=pause
        )
    if plot is not None:
        _draw(result, plot)
    if as_json:
        print_json(result.to_dict())
        return
    for line in str(result).split("\n"):
        say(line)
    if plot is not None:
        say("")
        say(f"Written: {plot}")


def _draw(result: Simulation, path: Path) -> None:
    try:
        result.save(path)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror or error}") from error


def read_trace(path: Path) -> list[MessageLike]:
    """Read a conversation: messages, an object with `messages`, one of them a line, or an export.

    Several conversations become one, in order; system messages of later ones are left out.
    """
    read = Lines(read_bytes(path).splitlines(keepends=True))
    values: list[Any] = []
    messages: list[MessageLike] = []
    try:
        for value in read:
            values.append(value)
            if is_header(values[0]):
                continue
            if isinstance(value, dict) and "role" in value:
                messages.append(value)
            else:
                found = _conversation(value)
                messages += [m for m in found if not messages or not _is_system(m)]
    except InvalidInput as error:
        name = "<stdin>" if str(path) == "-" else path
        raise InvalidInput(f"{name}{read.place}: {error}") from error
    if is_header(values[0]):
        messages += _exported(path, values)
    return messages


def _exported(path: Path, values: list[Any]) -> list[Message]:
    """Return the conversation of an export; the instructions of later sessions are left out."""
    second = next((n for n, each in enumerate(values, 1) if n > 1 and is_header(each)), None)
    try:
        return [
            message
            for number, message in exported(values)
            if second is None or number < second or message.role not in SYSTEM
        ]
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def _conversation(value: Any) -> list[Mapping[str, Any]]:
    found = value.get("messages") if isinstance(value, dict) else value
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        return found
    raise InvalidInput("neither a message, nor a list of messages, nor an object with 'messages'")


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in SYSTEM


def named_policy(text: str) -> tuple[str, PolicyLike]:
    """Return a policy with its name: `stepped=0.6` fixes the low level; or a `module:function`."""
    if text.startswith("stepped="):
        try:
            return text, Stepped(low=float(text.removeprefix("stepped=")))
        except ValueError as error:
            raise InvalidInput(f"--policy {text}: {error}") from error
    if ":" not in text:
        return text, text
    module, _, name = text.partition(":")
    sys.path.insert(0, "")  # the user's function is usually in this folder
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"--policy {text}: {error}") from error
    finally:
        sys.path.remove("")
    return text, found
