"""Settings of all tests: the same examples every time, unless a longer search is asked for."""

import os

from hypothesis import settings

# No deadlines: how long an example takes says more about the machine than about us.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", print_blob=True, deadline=None)
settings.load_profile("search" if os.environ.get("MUNTIN_EXAMPLES") else "same")
