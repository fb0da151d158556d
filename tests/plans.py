"""How many plans something makes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from muntin.core.planning import decide as deciding
from muntin.core.planning.plan import Declaration, Plan


@contextmanager
def counted_plans() -> Iterator[list[Plan]]:
    """Yield a list that grows with every plan made in the block."""
    decide = deciding.decide
    made: list[Plan] = []

    def counted(declared: Declaration) -> Plan:
        made.append(decide(declared))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "decide", counted)
        yield made
