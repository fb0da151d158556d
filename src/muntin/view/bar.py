"""Showing a window to a person in a terminal: one bar, divided into slots.

Reads only the window's report. The colours are the same in every picture of a window.
"""

from __future__ import annotations

from muntin.core.window import Window

# One colour a slot, readable on light and dark: (terminal 256-colour number, CSS colour).
COLOURS = (
    (33, "#4f7df9"),
    (37, "#0fa596"),
    (172, "#ef9234"),
    (134, "#a564ea"),
    (161, "#e2557f"),
    (71, "#46a758"),
    (38, "#1ba3c9"),
    (136, "#b08415"),
    (62, "#6e62d9"),
    (131, "#b8694d"),
)
_FREE = (245, "#8a8f98")


def panes(window: Window) -> list[tuple[str, int, tuple[int, str]]]:
    """Return (name, tokens, colour) of everything that takes room, the free room last."""
    report = window.report
    parts = [
        (slot.name, slot.tokens_kept, COLOURS[number % len(COLOURS)])
        for number, slot in enumerate(report.slots)
    ]
    parts += [
        (f"({name})", getattr(report, f"{name}_tokens"), _FREE)
        for name in ("tools", "joined", "lead", "answer")
    ]
    parts.append(("free", max(0, report.budget - report.tokens), _FREE))
    return [pane for pane in parts if pane[1] > 0]


def widths(sizes: list[int], total: int) -> list[int]:
    """Divide `total` columns in proportion to `sizes`; every size gets one at least."""
    if not sizes or total < len(sizes):
        return [1] * len(sizes)
    whole = sum(sizes) or 1
    columns = [max(1, size * total // whole) for size in sizes]
    while sum(columns) != total:
        step = 1 if sum(columns) < total else -1
        # Give to the pane furthest below its share, take from the pane furthest above.
        error = [size * total / whole - column for size, column in zip(sizes, columns, strict=True)]
        choices = [i for i, column in enumerate(columns) if step > 0 or column > 1]
        columns[max(choices, key=lambda i: step * error[i])] += step
    return columns


def bar(window: Window, *, width: int = 80, colour: bool = True) -> str:
    """Return the whole budget as one line, divided into slots, with a legend below."""
    parts = panes(window)
    line, legend = [], []
    for (name, tokens, (code, _)), columns in zip(
        parts, widths([pane[1] for pane in parts], width), strict=True
    ):
        block = "·" if name == "free" else "█" if colour else name.lstrip("(")[:1]
        on, off = (f"\x1b[38;5;{code}m", "\x1b[0m") if colour else ("", "")
        line.append(f"{on}{block * columns}{off}")
        mark = "█ " if colour and name != "free" else "· " if name == "free" else ""
        legend.append(f"{on}{mark}{off}{name} {tokens:,}")
    return "".join(line) + "\n" + "   ".join(legend)
