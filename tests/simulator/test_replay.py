"""A recorded conversation, read as a trace."""

from __future__ import annotations

import pytest

from muntin import InvalidInput, system, user
from muntin.simulator.replay import trace_of


def test_a_trace_needs_a_user_and_says_which_message_is_wrong():
    with pytest.raises(InvalidInput, match="at least one user message"):
        trace_of([system("x")])
    with pytest.raises(InvalidInput, match="message 1 of the trace: unknown role 'robot'"):
        trace_of([user("x"), {"role": "robot", "content": "y"}])
