"""Showing a window to a person: in a terminal, or in a notebook.

It only reads the window and its report.
"""

from __future__ import annotations

from html import escape

from muntin.core.message import Message
from muntin.core.report import SlotReport
from muntin.core.tokens import file_hint
from muntin.core.window import Window

# One colour a slot, readable on light and dark: (terminal 256-colour number, CSS colour).
_COLOURS = (
    (33, "#0087ff"),
    (71, "#5faf5f"),
    (172, "#d78700"),
    (133, "#af5faf"),
    (37, "#00afaf"),
    (167, "#d75f5f"),
    (100, "#878700"),
    (103, "#8787af"),
)
_FREE = (245, "#8a8a8a")


def _panes(window: Window) -> list[tuple[str, int, tuple[int, str]]]:
    """Return (name, tokens, colour) of everything that takes room, the free room last."""
    report = window.report
    panes = [
        (slot.name, slot.tokens_kept, _COLOURS[number % len(_COLOURS)])
        for number, slot in enumerate(report.slots)
    ]
    panes += [
        (f"({name})", getattr(report, f"{name}_tokens"), _FREE)
        for name in ("tools", "joined", "lead")
    ]
    panes.append(("free", max(0, report.budget - report.tokens), _FREE))
    return [pane for pane in panes if pane[1] > 0]


def widths(sizes: list[int], total: int) -> list[int]:
    """Divide `total` columns in proportion to `sizes`; whatever has a size gets one at least."""
    if not sizes or total < len(sizes):
        return [1] * len(sizes)
    whole = sum(sizes) or 1
    columns = [max(1, size * total // whole) for size in sizes]
    while sum(columns) != total:
        step = 1 if sum(columns) < total else -1
        # Give to whom is shortest of his share, take from whom is longest over it.
        error = [size * total / whole - column for size, column in zip(sizes, columns, strict=True)]
        choices = [i for i, column in enumerate(columns) if step > 0 or column > 1]
        columns[max(choices, key=lambda i: step * error[i])] += step
    return columns


def bar(window: Window, *, width: int = 80, colour: bool = True) -> str:
    """Return the whole budget as one line, divided into slots, with a legend below."""
    panes = _panes(window)
    line, legend = [], []
    for (name, tokens, (code, _)), columns in zip(
        panes, widths([pane[1] for pane in panes], width), strict=True
    ):
        block = "·" if name == "free" else "█" if colour else name.lstrip("(")[:1]
        on, off = (f"\x1b[38;5;{code}m", "\x1b[0m") if colour else ("", "")
        line.append(f"{on}{block * columns}{off}")
        mark = "█ " if colour and name != "free" else "· " if name == "free" else ""
        legend.append(f"{on}{mark}{off}{name} {tokens:,}")
    return "".join(line) + "\n" + "   ".join(legend)


def html(window: Window) -> str:
    """Return the window as HTML: the bar, the table of slots, and the messages."""
    report = window.report
    cells = "".join(
        f'<div title="{escape(name)}: {tokens:,} tokens" style="flex:{tokens} 0 2px;'
        f'background:{css};opacity:{0.25 if name == "free" else 1}"></div>'
        for name, tokens, (_, css) in _panes(window)
    )
    head = "".join(
        f"<th>{name}</th>" for name in ("slot", "status", "kept", "asked", "messages", "why")
    )
    rows = "".join(_row(slot, number) for number, slot in enumerate(report.slots))
    messages = "".join(
        f"<dt><b>{escape(message.role)}</b></dt>"
        f'<dd style="white-space:pre-wrap;margin:0 0 .5em 1em">{escape(_shown(message))}</dd>'
        for message in window.messages
    )
    state = " · <b>over budget</b>" if report.over_budget else ""
    return (
        '<div style="font-family:system-ui,sans-serif;max-width:60em">'
        f"<p>{report.tokens:,} of {report.budget:,} tokens{state} · {escape(report.tokenizer)}</p>"
        f'<div style="display:flex;height:1.2em;gap:1px">{cells}</div>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<details><summary>{len(window.messages):,} messages</summary>"
        f"<dl>{messages}</dl></details>"
        "</div>"
    )


def _shown(message: Message) -> str:
    """Return a message's text, with the tools it calls and the files it brings."""
    calls = [f"→ {call.name}({call.arguments})" for call in message.tool_calls]
    files = [file_hint(item.name) for item in message.attachments]
    return "\n".join(line for line in (message.text, *calls, *files) if line)


def _row(slot: SlotReport, number: int) -> str:
    css = _COLOURS[number % len(_COLOURS)][1]
    about = "~" if slot.asked_is_estimate else ""
    why = slot.reason or ""
    if slot.detail:
        why = f"{why}: {slot.detail}"
    cells = (
        slot.status,
        f"{slot.tokens_kept:,}",
        f"{about}{slot.tokens_asked:,}",
        f"{slot.messages_kept:,}/{slot.messages_asked:,}",
        why,
    )
    return (
        f'<tr><td><span style="color:{css}">■</span> {escape(slot.name)}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
    )
