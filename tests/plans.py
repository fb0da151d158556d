"""How many plans something makes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from muntin.core.planning import carrying
from muntin.core.planning.plan import Declaration, Plan
from muntin.core.planning.planner import plan_window


@contextmanager
def counted_plans() -> Iterator[list[Plan]]:
    """Yield a list that grows with every plan made in the block."""
    made: list[Plan] = []

    def counted(declared: Declaration) -> Plan:
        made.append(plan_window(declared))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrying, "plan_window", counted)
        yield made
