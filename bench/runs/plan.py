"""One step of a run with many groups, planned with the ladder and without, in turns.

All groups are in view both times: in full where the budget is large, as stubs where it is not. So
what is compared is the ladder, not how much a window shows.
"""

from __future__ import annotations

from time import process_time

from muntin import Ladder, Results, Slots, Stepped, ToolCall, Window, assistant, tool
from muntin.core.counting.counter import Counter
from muntin.core.message import Message

WIDE, NARROW = 4_000_000, 40_000
MODEL = "openai/gpt-5"


class Planned:
    """A run that grows by a group a step, and the window before."""

    def __init__(self, ladder: Ladder | None) -> None:
        self.given = {} if ladder is None else {"ladder": ladder, "results": Results()}
        self.budget = WIDE if ladder is None else NARROW
        self.run: list[Message] = []
        self.counter: Counter | None = None
        self.window: Window | None = None

    def step(self) -> float:
        """Add a group and plan; return the seconds that planning took."""
        number = len(self.run) // 2
        self.run.append(assistant(tool_calls=[ToolCall(f"c{number}", "look", f"[{number}]")]))
        self.run.append(tool(f"c{number}", f"{number}: " + "found it " * 200))
        started = process_time()
        slots = Slots(
            self.budget,
            profile=MODEL,
            counter=self.counter,
            previous=self.window,
            trimming=Stepped(),
            **self.given,  # type: ignore[arg-type]
        )
        slots.add("system", "You are a clerk.", role="system", required=True)
        slots.add("input", "Look everything up.", role="user", required=True)
        slots.add("run", self.run)
        self.window = slots.render()
        self.counter = slots.counter
        return process_time() - started


def planning(groups: int, steps: int) -> tuple[float, float]:
    """Return what a step takes with the ladder and without, after so many groups, on average."""
    both = Planned(Ladder()), Planned(None)
    for each in both:
        for _ in range(groups):
            each.step()
    taken = [0.0, 0.0]
    for _ in range(steps):
        for place, each in enumerate(both):
            taken[place] += each.step()
    for each in both:
        assert each.window is not None
        assert len(each.window.messages) == 2 * (groups + steps) + 2, "not all groups are in view"
    return taken[0] / steps, taken[1] / steps
