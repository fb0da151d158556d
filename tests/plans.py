"""How many plans something makes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from muntin.core.planning import slots
from muntin.core.planning.window import Window


@contextmanager
def counted_plans() -> Iterator[list[Window]]:
    """Yield a list that grows by a window with every plan made in the block."""
    plan = slots.plan  # type: ignore[attr-defined]
    made: list[Window] = []

    def counted(*args: Any, **options: Any) -> Window:
        made.append(plan(*args, **options))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "plan", counted)
        yield made
