"""Settings of all tests: the same examples every time, unless a longer search is asked for."""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("search", print_blob=True)
settings.load_profile("search" if os.environ.get("MUNTIN_EXAMPLES") else "same")
