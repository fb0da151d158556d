"""An oracle for ladders: the order of the steps down, played one by one.

It shares no code with the planner. It is given what each group has in each form, the oldest
first, and goes down until the run fits: what is left of each group.
"""

from __future__ import annotations

from collections.abc import Sequence

FULL, SHORT, STUB, GONE = range(4)


def go_down(sizes: Sequence[Sequence[int]], room: int, keep: int, stubs: bool) -> list[int]:
    """Return the tokens that are left of each group of a run."""
    forms = [FULL] * len(sizes)
    newest = len(sizes) - 1
    edge = max(0, len(sizes) - keep)
    order: list[tuple[int, int]] = []
    for zone in (range(edge), range(edge, len(sizes))):
        order += [(group, SHORT) for group in zone]
        order += [(group, STUB) for group in zone if stubs and group != newest]
    order += [(group, GONE) for group in range(newest)]

    def left() -> list[int]:
        return [(*each, 0)[form] for each, form in zip(sizes, forms, strict=True)]

    for group, form in order:
        if sum(left()) <= room:
            break
        forms[group] = form
    return left()
