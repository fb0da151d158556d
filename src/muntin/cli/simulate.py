"""The command `muntin simulate`: replay a recorded conversation and show what caching saves.

Owns its options, and the reading of traces and of names of policies. Annotations are not strings:
Typer reads them when the command runs.
"""

import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated

import typer

from muntin.cli.options import AsJson
from muntin.cli.terminal import failing, naming, print_json, progress, safe_text, say
from muntin.cli.transcripts import read_bytes, read_chats
from muntin.core.message import MessageLike, role_of
from muntin.core.planning.slot import Stepped
from muntin.errors import InvalidInput
from muntin.simulator import simulate_trace
from muntin.simulator.run import PolicyLike

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
    as_json: AsJson = False,
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
        with naming(plot, "written"):
            result.save(plot)
    if as_json:
        print_json(result.to_dict())
        return
    print(safe_text(str(result)))
    if plot is not None:
        say("")
        say(f"Written: {plot}")


def read_trace(path: Path) -> list[MessageLike]:
    """Read a conversation: messages, an object with `messages`, one of them a line, or an export.

    Several conversations become one, in order; system messages of later ones are left out.
    """
    messages: list[MessageLike] = []
    for chat in read_chats(read_bytes(path), "<stdin>" if str(path) == "-" else str(path)):
        messages += [m for m in chat.messages if not messages or role_of(m) != "system"]
    return messages


def named_policy(text: str) -> tuple[str, PolicyLike]:
    """Return a policy with its name: `stepped=0.6` fixes the low level; or a `module:function`."""
    if text.startswith("stepped="):
        try:
            return text, Stepped(low=float(text.removeprefix("stepped=")))
        except ValueError as error:
            raise InvalidInput(f"--policy {text}: {error}") from error
    if ":" not in text:
        return text, text
    sys.path.insert(0, "")  # the user's function is usually in this folder
    try:
        policy: PolicyLike = resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"--policy {text}: {error}") from error
    finally:
        sys.path.remove("")
    return text, policy
