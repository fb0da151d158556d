"""Planning: slots are read, trimmed and ordered into one window."""

from muntin.core.planning.compact import Ladder, Results
from muntin.core.planning.slot import Cut, Exact, Group, Pool, Slot, Stepped

__all__ = ["Cut", "Exact", "Group", "Ladder", "Pool", "Results", "Slot", "Stepped"]
