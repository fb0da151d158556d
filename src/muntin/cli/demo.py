"""`muntin demo`: the main job in a minute, without a key or a network."""

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from muntin.cli.recording import recording, replay
from muntin.cli.terminal import coloured, failing, print_json, progress, safe_text, width
from muntin.core.planning.window import Window
from muntin.core.report import Report
from muntin.errors import InvalidInput
from muntin.timeline.store import open_store
from muntin.view.bar import bar

# The same conversation in a small window and in a roomy one: session, tokens.
SESSIONS = {"airline-small": 2_500, "airline-roomy": 8_000}
SHOWN = "airline-small"


def register(command: typer.Typer) -> None:
    """Add the command."""
    command.command()(demo)


@failing()
def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A folder for what the demo writes.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compose a real conversation into a small window, and show where every token went.

    Writes muntin-demo.db, the sessions with their reports, and muntin-demo.html, the receipt
    of one window.
    """
    if not output.is_dir():
        raise InvalidInput(f"{output}: there is no such folder")
    database, page = output / "muntin-demo.db", output / "muntin-demo.html"
    store = f"sqlite:///{database}"
    window = _question(_replay(store))
    window.save_html(page)
    if as_json:
        print_json(
            {
                "store": store,
                "sessions": list(SESSIONS),
                "html": str(page),
                "report": window.report.to_dict(),
            }
        )
        return
    print(_intro())
    print(_window(window))
    print(_request(window))
    print(
        f"\nWritten: {page} (this receipt, to open in a browser)\n"
        f"         {database} ({len(SESSIONS)} sessions with the report of every window)\n"
        f"\nLook at every turn, and at other budgets:\n\n"
        f"  muntin inspect --store {shlex.quote(store)}"
    )


def _replay(store: str) -> list[Window]:
    """Live the conversation in each session, and return the windows of the one that is shown."""
    turns = len(recording().questions)
    windows: dict[str, list[Window]] = {}
    with open_store(store) as opened, progress("replaying", total=turns * len(SESSIONS)) as step:
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            step(done, "turns")

        for session, budget in SESSIONS.items():
            windows[session] = asyncio.run(replay(opened, session, budget=budget, advance=advance))
    return windows[SHOWN]


def _question(windows: list[Window]) -> Window:
    """Return the window in which the last question was first put to the model."""
    question = recording().questions[-1]
    return next(each for each in windows if each.messages[-1].text == question)


def _intro() -> str:
    messages = len(recording().messages) + 1
    return (
        f"{messages} messages of a real airline agent, lived again turn by turn in a window of "
        f"{SESSIONS[SHOWN]:,} tokens.\nThe window of the last question:\n"
    )


def _window(window: Window) -> str:
    shown = bar(window, width=width(), colour=coloured(sys.stdout))
    cuts = _cuts(window.report)
    return f"{shown}\n\n{window.report}\n\nWhat was left out, first to last:\n\n{cuts}"


def _cuts(report: Report) -> str:
    cuts = [(d.rank, slot.name, d) for slot in report.slots for d in slot.decisions if d.rank]
    lines = []
    for _, name, cut in sorted(cuts, key=lambda cut: cut[0]):
        what = f"message {cut.first}" + f" and {cut.count - 1} more" * (cut.count > 1)
        lost = cut.tokens_asked - cut.tokens_kept
        lines.append(f"  {name:12} {what:22} {cut.status:8} {cut.reason:12} -{lost:,} tokens")
    return "\n".join(lines)


def _request(window: Window) -> str:
    """Return the window as OpenAI's SDK takes it: a line a message, cut to the width."""
    lines = ["", "The same window as an OpenAI request:", ""]
    for name, values in window.openai().items():
        lines += [f"{name}=[", *(f"  {json.dumps(v, ensure_ascii=False)}," for v in values), "]"]
    most = width()
    return safe_text("\n".join(x if len(x) <= most else f"{x[: most - 1]}…" for x in lines))
