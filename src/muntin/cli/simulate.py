"""The command `muntin simulate`: replay a recorded conversation and show what caching saves.

Owns its options, the reading of traces and of policies' names. Annotations are not strings here:
Typer reads them when the command runs.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from muntin.cli.terminal import failing, print_json, progress, say
from muntin.core.planning.slot import Stepped
from muntin.errors import InvalidInput
from muntin.simulator import simulate_trace
from muntin.simulator.run import PolicyLike
from muntin.timeline.lines import Lines

DEFAULT_POLICIES = ("exact", "stepped", "full")


@failing()
def simulate(
    trace: Annotated[Path, typer.Argument(help="OpenAI-style messages, JSON or JSON Lines.")],
    budget: Annotated[int, typer.Option(help="Tokens of a window.")],
    model: Annotated[str, typer.Option(help="anthropic/claude-sonnet-4-5, openai/gpt-5 ...")],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="exact, stepped, stepped=0.6, full, module:function; repeatable."),
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="A request a tool step.")] = False,
    pause: Annotated[float, typer.Option(help="Seconds between two requests.")] = 30.0,
    plot: Annotated[Path | None, typer.Option(help="Draw a picture: out.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay a recorded conversation: what prompt caching saves, policy by policy."""
    messages = read_trace(trace)
    policies = dict(map(named_policy, policy or DEFAULT_POLICIES))
    with progress(f"replaying {len(messages):,} messages"):
        result = simulate_trace(
            messages, budget=budget, model=model, policies=policies, steps=steps, pause=pause
        )
    if plot is not None:
        result.save(plot)
    if as_json:
        print_json(result.to_dict())
    else:
        for line in str(result).split("\n"):
            say(line)


def read_trace(path: Path) -> list[Mapping[str, Any]]:
    """Read a conversation: a list of messages, an object with `messages`, or one of them a line.

    Several conversations become one, in their order; system messages of later ones are left out.
    """
    try:
        read = Lines(path.read_bytes().splitlines(keepends=True))
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error}") from error
    messages: list[Mapping[str, Any]] = []
    try:
        for value in read:
            if isinstance(value, dict) and "role" in value:
                messages.append(value)
            else:
                found = _conversation(value)
                messages += [m for m in found if not messages or not _is_system(m)]
    except InvalidInput as error:
        raise InvalidInput(f"{path}:{read.number}: {error}") from error
    return messages


def _conversation(value: Any) -> list[Mapping[str, Any]]:
    found = value.get("messages") if isinstance(value, dict) else value
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        return found
    raise InvalidInput("neither a message, nor a list of messages, nor an object with 'messages'")


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def named_policy(text: str) -> tuple[str, PolicyLike]:
    """Return a policy with its name: `stepped=0.6` fixes the low level, `module:function` is one's
    own."""
    if text.startswith("stepped="):
        try:
            return text, Stepped(low=float(text.removeprefix("stepped=")))
        except ValueError as error:
            raise InvalidInput(f"--policy {text}: {error}") from error
    if ":" not in text:
        return text, text
    module, _, name = text.partition(":")
    sys.path.insert(0, "")  # one's own function is usually in a file right here
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"--policy {text}: {error}") from error
    finally:
        sys.path.remove("")
    return text, found
