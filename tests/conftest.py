"""Settings of all tests: the same examples every time, unless a longer search is asked for; and
a check of every window that follows another."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from muntin.core.planning import slots
from muntin.core.planning.window import Window
from tests.stability import unexplained_move

# No deadlines: how long an example takes says more about the machine than about us.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", print_blob=True, deadline=None)
settings.load_profile("search" if os.environ.get("MUNTIN_EXAMPLES") else "same")


@pytest.fixture(scope="session", autouse=True)
def _the_prefix_stays_or_the_report_says_why() -> Iterator[None]:
    """Fail any test in which a following turn moved the prefix without saying why."""
    plan = slots.plan  # type: ignore[attr-defined]

    def checked(*args: Any, **options: Any) -> Window:
        window = plan(*args, **options)
        previous = options.get("previous")
        if previous is not None:
            wrong = unexplained_move(window, previous, options.get("profile"))
            assert wrong is None, wrong
        return window

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "plan", checked)
        yield
