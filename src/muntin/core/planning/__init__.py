"""Planning: slots are read, trimmed and ordered into one window."""

from muntin.core.planning.composed import Breakpoint
from muntin.core.planning.frontier import Frontier
from muntin.core.planning.plan import Plan
from muntin.core.planning.shapes import Ladder, Results
from muntin.core.planning.slot import Cut, Exact, Group, Slot, Stepped
from muntin.core.planning.slots import Slots
from muntin.core.planning.window import Window

__all__ = [
    "Breakpoint",
    "Cut",
    "Exact",
    "Frontier",
    "Group",
    "Ladder",
    "Plan",
    "Results",
    "Slot",
    "Slots",
    "Stepped",
    "Window",
]
