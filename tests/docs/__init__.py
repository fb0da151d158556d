"""The docs are true: their examples run, their links lead somewhere, no name is missing."""

import pytest

pytest.register_assert_rewrite("tests.docs.blocks")  # so that a failure shows what was printed
